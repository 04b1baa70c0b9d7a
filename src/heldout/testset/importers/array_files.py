"""NumPy files, read without ever running a pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from heldout.errors import BadFile, NotFound


def load_array(path: Path) -> np.ndarray:
    """The array of a ``.npy`` file."""
    return _load(path, ())[0]


def load_arrays(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """The named arrays of a ``.npz`` file."""
    return _load(path, names)


def _load(path: Path, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    try:
        with path.open("rb") as handle:  # ours to close: NumPy leaves a broken file open
            loaded = np.load(handle, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                if names:
                    raise BadFile(path, "holds one array without a name", fix="give a .npz file")
                return (loaded,)
            if not names:
                raise BadFile(path, "holds several arrays", fix="give a .npy file")
            missing = [name for name in names if name not in loaded.files]
            if missing:
                held = ", ".join(loaded.files) or "no arrays"
                raise BadFile(path, f"has no array {missing[0]!r}", fix=f"it holds {held}")
            return tuple(loaded[name] for name in names)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is cut short"
        if "pickle" in reason:
            reason = "it holds Python objects or is no NumPy file"
        raise BadFile(
            path, f"cannot be read as NumPy arrays ({reason})", fix="fetch or write it again"
        ) from None

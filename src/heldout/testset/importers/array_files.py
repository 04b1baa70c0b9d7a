"""NumPy files, read without ever running a pickle."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from heldout.errors import BadFile, NotFound


def load_array(path: Path) -> np.ndarray:
    """The array of a ``.npy`` file."""
    loaded = _open(path)
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise BadFile(path, "holds several arrays", fix="give a .npy file")
    return loaded


def load_arrays(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """The named arrays of a ``.npz`` file."""
    loaded = _open(path)
    if isinstance(loaded, np.ndarray):
        raise BadFile(path, "holds one array without a name", fix="give a .npz file")
    with loaded:
        missing = [name for name in names if name not in loaded.files]
        if missing:
            held = ", ".join(loaded.files) or "no arrays"
            raise BadFile(path, f"has no array {missing[0]!r}", fix=f"it holds {held}")
        try:
            return tuple(loaded[name] for name in names)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise _unreadable(path, error) from None


def _open(path: Path) -> np.ndarray | np.lib.npyio.NpzFile:
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    try:
        loaded: np.ndarray | np.lib.npyio.NpzFile = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error) from None
    return loaded


def _unreadable(path: Path, error: Exception) -> BadFile:
    reason = str(error).splitlines()[0] if str(error) else "it is cut short"
    if "pickle" in reason:
        reason = "it holds Python objects or is no NumPy file"
    return BadFile(
        path, f"cannot be read as NumPy arrays ({reason})", fix="fetch or write it again"
    )

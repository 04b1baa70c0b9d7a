"""NumPy files, read without ever running a pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile
from heldout.core.files import existing_file


def load_array(path: Path, *, name: str | None = None) -> np.ndarray:
    """The array of a ``.npy`` file, or one of a ``.npz`` file: the named one, or its only one."""
    with _opened(path) as loaded:
        if isinstance(loaded, np.ndarray):
            return loaded
        if name is None and len(loaded.files) != 1:
            raise BadFile(path, f"holds {_names(loaded)}", fix="name one with --array")
        return _named(loaded, name or loaded.files[0], path)


def load_arrays(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """The named arrays of a ``.npz`` file."""
    with _opened(path) as loaded:
        if isinstance(loaded, np.ndarray):
            raise BadFile(path, "holds one array without a name", fix="give a .npz file")
        return tuple(_named(loaded, name, path) for name in names)


def _named(loaded: Any, name: str, path: Path) -> np.ndarray:
    if name not in loaded.files:
        raise BadFile(path, f"has no array {name!r}", fix=f"it holds {_names(loaded)}")
    array: np.ndarray = loaded[name]
    return array


def _names(loaded: Any) -> str:
    return ", ".join(loaded.files) or "no arrays"


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        # Ours to close: NumPy leaves a broken file open.
        with existing_file(path, "file").open("rb") as handle:
            yield np.load(handle, allow_pickle=False)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is cut short"
        if "pickle" in reason:
            reason = "it holds Python objects or is not a NumPy file"
        raise BadFile(
            path, f"cannot be read as NumPy arrays ({reason})", fix="fetch or write it again"
        ) from None

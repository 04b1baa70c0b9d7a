"""NumPy files, read without ever running a pickle."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile
from heldout.core.files import existing_file


def load_array(path: Path, *, name: str | None = None, mapped: bool = False) -> np.ndarray:
    """The array of a ``.npy`` file, or one of a ``.npz`` file: the named one, or its only one.

    ``mapped``  a ``.npy`` file stays on disk and is read where it is used
    """
    with _opened(path, mapped=mapped) as loaded:
        if isinstance(loaded, np.ndarray):
            return loaded
        if name is None and len(loaded.files) != 1:
            raise BadFile(path, f"holds {_names(loaded)}", fix="name one with --array")
        return _named(loaded, name or loaded.files[0], path)


def load_arrays(path: Path, *names: str | tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """The named arrays of a ``.npz`` file; of several names for one array the first that is there."""
    with _opened(path) as loaded:
        if isinstance(loaded, np.ndarray):
            raise BadFile(path, "holds one array without a name", fix="give a .npz file")
        return tuple(_named(loaded, name, path) for name in names)


def _named(loaded: Any, name: str | tuple[str, ...], path: Path) -> np.ndarray:
    names = (name,) if isinstance(name, str) else name
    there = next((one for one in names if one in loaded.files), None)
    if there is None:
        raise BadFile(path, f"has no array {names[0]!r}", fix=f"it holds {_names(loaded)}")
    member = there if there in loaded.zip.namelist() else f"{there}.npy"
    with loaded.zip.open(member) as handle:
        _check_size(handle, loaded.zip.getinfo(member).file_size)
    array: np.ndarray = loaded[there]
    return array


def _check_size(handle: Any, size: int) -> None:
    """Refuse a header that states more than there is, before any memory is taken for it."""
    version = np.lib.format.read_magic(handle)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(handle)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(handle)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if math.prod(shape) * dtype.itemsize > size - handle.tell():
        raise ValueError(f"its header states the shape {shape}, which it is too short for")


def _names(loaded: Any) -> str:
    return ", ".join(loaded.files) or "no arrays"


@contextmanager
def _opened(path: Path, *, mapped: bool = False) -> Iterator[Any]:
    try:
        # Ours to close: NumPy leaves a broken file open.
        with existing_file(path, "file").open("rb") as handle:
            zipped = handle.read(2) == b"PK"
            handle.seek(0)
            if not zipped:
                _check_size(handle, path.stat().st_size)
            if not mapped:
                handle.seek(0)
                yield np.load(handle, allow_pickle=False)
                return
        yield np.load(path, mmap_mode="r", allow_pickle=False)
    except _BROKEN as error:
        reason = str(error).splitlines()[0] if str(error) else "it is cut short"
        if "magic" in reason:
            reason = "it is not a NumPy file"
        raise BadFile(
            path, f"cannot be read as NumPy arrays ({reason})", fix="fetch or write it again"
        ) from None


# An encrypted member and an unknown compression are RuntimeErrors.
_BROKEN = (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error)

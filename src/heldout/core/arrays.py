"""NumPy files, read without ever running a pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from heldout.core.errors import BadFile, NotFound

T = TypeVar("T")


def load_array(path: Path, *, name: str | None = None) -> np.ndarray:
    """The array of a ``.npy`` file, or one of a ``.npz`` file: the named one, or its only one."""

    def pick(loaded: Any) -> np.ndarray:
        if isinstance(loaded, np.ndarray):
            return loaded
        held = ", ".join(loaded.files) or "no arrays"
        if name is None and len(loaded.files) != 1:
            raise BadFile(path, f"holds {held}", fix="name one with --array, or give a .npy file")
        if name is not None and name not in loaded.files:
            raise BadFile(path, f"has no array {name!r}", fix=f"it holds {held}")
        array: np.ndarray = loaded[name or loaded.files[0]]
        return array

    return _load(path, pick)


def load_arrays(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """The named arrays of a ``.npz`` file."""

    def pick(loaded: Any) -> tuple[np.ndarray, ...]:
        if isinstance(loaded, np.ndarray):
            raise BadFile(path, "holds one array without a name", fix="give a .npz file")
        missing = [name for name in names if name not in loaded.files]
        if missing:
            held = ", ".join(loaded.files) or "no arrays"
            raise BadFile(path, f"has no array {missing[0]!r}", fix=f"it holds {held}")
        return tuple(loaded[name] for name in names)

    return _load(path, pick)


def _load(path: Path, pick: Callable[[Any], T]) -> T:
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    try:
        with path.open("rb") as handle:  # ours to close: NumPy leaves a broken file open
            return pick(np.load(handle, allow_pickle=False))
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is cut short"
        if "pickle" in reason:
            reason = "it holds Python objects or is no NumPy file"
        raise BadFile(
            path, f"cannot be read as NumPy arrays ({reason})", fix="fetch or write it again"
        ) from None

"""Reading ``.safetensors`` files: a JSON header of names, types and places, then raw numbers.

The format holds no code, so forty lines read it; the package of that name would be one more
dependency of what is to run without torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile
from heldout.core.files import existing_file

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_LONGEST_HEADER = 100_000_000
_FIX = "download it again"


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, sorted; they are read-only and mapped into memory."""
    existing_file(path, ".safetensors file")
    data = np.memmap(path, np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)
    size = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or size > min(_LONGEST_HEADER, len(data) - 8):
        raise BadFile(path, "is no .safetensors file, or is cut short", fix=_FIX)
    try:
        header = json.loads(data[8 : 8 + size].tobytes().decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise BadFile(path, "has a header that is no JSON object", fix=_FIX)
    entries = {name: header[name] for name in sorted(header) if name != "__metadata__"}
    return {name: _array(path, name, entry, data[8 + size :]) for name, entry in entries.items()}


def _array(path: Path, name: str, entry: Any, data: np.ndarray) -> np.ndarray:
    try:
        start, stop = (int(place) for place in entry["data_offsets"])
        shape = tuple(int(side) for side in entry["shape"])
        dtype = np.dtype(_DTYPES[entry["dtype"]])
    except (KeyError, TypeError, ValueError):
        raise BadFile(
            path,
            f"{name!r} has no proper type, shape and place",
            fix=f"types that can be read: {', '.join(_DTYPES)}",
        ) from None
    wanted = (
        int(np.prod(shape, dtype=object)) * dtype.itemsize if min(shape, default=0) >= 0 else -1
    )
    if not 0 <= start <= stop <= len(data) or stop - start != wanted:
        raise BadFile(path, f"{name!r} does not lie inside it, or has another size", fix=_FIX)
    return np.frombuffer(
        data[start:stop].tobytes() if start % dtype.itemsize else data[start:stop], dtype
    ).reshape(shape)

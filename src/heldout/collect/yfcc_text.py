"""Form-encoded text (``+`` for a space, ``%C3%A9`` for é), decoded a column at a time.

A column's texts lie one after another in one buffer of bytes. All escapes are found, decoded and
closed up in that buffer at once, so no text becomes a Python object.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

import numpy as np
from numpy.typing import NDArray

_PERCENT, _PLUS, _SPACE = 37, 43, 32
_NO_DIGIT = 255


def _digits() -> NDArray[np.uint8]:
    table = np.full(256, _NO_DIGIT, dtype=np.uint8)
    for value, digits in enumerate(zip("0123456789abcdef", "0123456789ABCDEF", strict=True)):
        for digit in digits:
            table[ord(digit)] = value
    return table


_DIGIT = _digits()


def decoded(column: Any) -> tuple[Any, int]:
    """The texts that form-encoded ones stand for, and how many were no UTF-8 once decoded.

    ``column`` is an Arrow array of binary or string without nulls. Each text comes out as
    ``urllib.parse.unquote_plus`` would give it: an escape that is none stays as it is, bytes that
    are no UTF-8 become U+FFFD.
    """
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    n = len(column)
    if not n:
        return pa.array([], pa.string()), 0
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[column.offset : column.offset + n + 1]
    low, high = int(offsets[0]), int(offsets[-1])
    offsets = offsets - np.int32(low)
    if high == low:
        return pa.array([""] * n, pa.string()), 0
    text = np.frombuffer(data, dtype=np.uint8)[low:high]
    made = np.where(text == _PLUS, np.uint8(_SPACE), text)
    at = np.flatnonzero(text == _PERCENT)
    if len(at):
        padded = np.append(text, np.zeros(2, dtype=np.uint8))
        first, second = _DIGIT[padded[at + 1]], _DIGIT[padded[at + 2]]
        ends = offsets[np.searchsorted(offsets, at, side="right")]
        real = (first != _NO_DIGIT) & (second != _NO_DIGIT) & (at + 2 < ends)
        at = at[real]
        made[at] = first[real] * 16 + second[real]
        keep = np.ones(len(made), dtype=bool)
        keep[at + 1] = False
        keep[at + 2] = False
        made = made[keep]
        offsets = offsets - 2 * np.searchsorted(at, offsets).astype(np.int32)
    found = pa.StringArray.from_buffers(
        n, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(made)
    )
    if made.max() < 128:
        return found, 0
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        return _one_by_one(column)
    return found, 0


def _one_by_one(column: Any) -> tuple[Any, int]:
    """The same, a text at a time, where some are no UTF-8."""
    import pyarrow as pa

    made, broken = [], 0
    for value in column.to_pylist():
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        plain = unquote_plus(text)
        broken += "�" in plain and "�" not in text and "%EF%BF%BD" not in text.upper()
        made.append(plain)
    return pa.array(made, pa.string()), broken

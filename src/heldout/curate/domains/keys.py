"""Values as whole numbers in the same order, and the k-th smallest of them without sorting.

A similarity becomes an unsigned number that is the smaller the better it is. The k-th smallest number
is found by counting: a pass counts how many lie in each of 65,536 equal parts of the range, and the
next looks only at the part that holds the one sought (a radix selection). Memory does not grow with
the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError

T = TypeVar("T")
Keys = NDArray[np.unsignedinteger[Any]]
_MOST_32, _MOST_64 = (1 << 31) - 1, (1 << 63) - 1
BUCKETS = 16
"""Bits that one pass decides."""
FEW = 1 << 20
"""Keys that are rather sorted in memory than counted once more."""


def similarity_keys(values: NDArray[Any]) -> Keys:
    """Numbers as unsigned keys, greatest first; equal numbers (also 0.0 and -0.0) have equal keys.

    float16, float32 -> uint32, float64 and whole numbers -> uint64. NaN has no place in the order.
    """
    if values.dtype.kind in "iu":
        if values.dtype.kind == "u":
            return ~values.astype(np.uint64)
        signed = values.astype(np.int64)
        return ~(signed.view(np.uint64) ^ np.uint64(1 << 63))
    if values.dtype.kind != "f":
        raise UserError(f"similarities are {values.dtype}", fix="give a column of numbers")
    # Adding zero turns -0.0 into 0.0. Positive numbers have their order turned, negative ones do not.
    if values.dtype.itemsize > 4:
        wide = (values.astype(np.float64) + np.float64(0)).view(np.int64)
        return (wide ^ (~(wide >> np.int64(63)) & np.int64(_MOST_64))).view(np.uint64)
    bits = (values.astype(np.float32) + np.float32(0)).view(np.int32)
    return (bits ^ (~(bits >> np.int32(31)) & np.int32(_MOST_32))).view(np.uint32)


def similarity_of(key: int, dtype: np.dtype[Any]) -> float:
    """The number that has a key, for columns of this type."""
    if dtype.kind == "u":
        return float(~np.uint64(key))
    if dtype.kind == "i":
        return float((~np.uint64(key) ^ np.uint64(1 << 63)).astype(np.int64))
    if dtype.itemsize > 4:
        bits = key if key > _MOST_64 else key ^ _MOST_64
        return float(np.uint64(bits).view(np.float64))
    bits = key if key > _MOST_32 else key ^ _MOST_32
    return float(np.uint32(bits).view(np.float32))


class Found(NamedTuple):
    """A key by its rank: how many keys are smaller, how many equal to it, how many there are."""

    key: int
    smaller: int
    equal: int
    total: int


class Pass(Protocol):
    """One pass over all keys from ``low`` to ``high``."""

    def __call__(self, low: int, high: int, work: Callable[[Keys], T]) -> Iterable[T]:
        """``work`` on every array of such keys, perhaps in several threads."""
        ...


def nth_key(scan: Pass, rank: int, *, low: int, high: int) -> Found:
    """The key of this rank (1 is the smallest) among all that ``scan`` finds.

    A rank beyond the last gives the last key, so compare it with ``total``.
    """
    smaller = total = 0
    while True:
        shift = max(0, (high - low).bit_length() - BUCKETS)
        counts = _histogram(scan, low, high, shift)
        ends = np.cumsum(counts)
        total = total or int(ends[-1])
        if not total:
            return Found(high, 0, 0, 0)
        rank = min(rank, total)
        bucket = int(np.searchsorted(ends, rank - smaller))
        smaller += int(ends[bucket] - counts[bucket])
        low, high = low + (bucket << shift), min(high, low + ((bucket + 1) << shift) - 1)
        if low == high:
            return Found(low, smaller, int(counts[bucket]), total)
        if counts[bucket] <= FEW:
            ordered = np.sort(np.concatenate(list(scan(low, high, np.array))))
            key = ordered[rank - smaller - 1]
            first = int(np.searchsorted(ordered, key, "left"))
            last = int(np.searchsorted(ordered, key, "right"))
            return Found(int(key), smaller + first, last - first, total)


def _histogram(scan: Pass, low: int, high: int, shift: int) -> NDArray[np.int64]:
    size = ((high - low) >> shift) + 1
    total = np.zeros(size, dtype=np.int64)

    def count(keys: Keys) -> NDArray[np.int64]:
        kind = keys.dtype.type
        places = ((keys - kind(low)) >> kind(shift)).astype(np.int64)
        found: NDArray[np.int64] = np.bincount(places, minlength=size)
        return found

    for counts in scan(low, high, count):
        total += counts
    return total

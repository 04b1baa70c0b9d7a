"""A hash of row ids that never changes: the one source of chance when rows are drawn.

``hash()`` and ``sample()`` of table libraries change between their versions, and a generator's
draws depend on the order of rows. A number that follows from the row's id and a seed alone does
neither: whatever the order, the shards or the other rows, the same rows are drawn, and a smaller
request draws a subset of a larger one.

The hash is ours, of 64 bits, and frozen. An id's UTF-8 bytes are padded with zeros to words of
eight bytes, little-endian. From ``h = mix(seed + G)``, each word ``w`` gives
``h = mix((h + G) ^ w)``, and last the number of bytes does the same. ``mix`` is the finaliser of
SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014) and
``G`` its increment; all arithmetic is modulo 2^64. It is no protection against ids that someone
chose to collide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

_G = 0x9E3779B97F4A7C15
_ROWS = 1 << 18
"""Rows that are hashed at once: their words stay in the processor's cache."""

_KEEP = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)

Hashes = NDArray[np.uint64]


def row_hash(ids: pa.Array | pa.ChunkedArray | Iterable[str], *, seed: int) -> Hashes:
    """The hash of every id, uint64 (n,); ``seed`` is any whole number from 0 to 2^64 - 1.

    Texts or an Arrow column of texts; null ids are refused.

    >>> [hex(h) for h in row_hash(["a", "b"], seed=0)]
    ['0x57c53c319e2a2819', '0x5ed0ebf8d6f86a0f']
    """
    import pyarrow as pa

    if not 0 <= seed < 1 << 64:
        raise UserError(f"seed {seed} is out of range", fix="use 0 to 2^64 - 1")
    if not isinstance(ids, pa.Array | pa.ChunkedArray):
        ids = pa.array(ids, pa.string())
    if ids.null_count:
        raise UserError(f"{ids.null_count} rows have no id to hash", fix="give every row an id")
    column = ids.cast(pa.large_string())
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [
        _hash_chunk(chunk.slice(start, _ROWS), seed)
        for chunk in chunks
        for start in range(0, len(chunk), _ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


def derived_seed(purpose: str, seed: int) -> int:
    """A seed of its own for each purpose, so that one draw does not lean on another.

    Rows that survive a cap have small numbers: were the next draw made by the same ones, it would
    prefer the groups that the first had thinned out.
    """
    return int(row_hash([purpose], seed=seed)[0])


def uniform(hashes: Hashes) -> NDArray[np.float64]:
    """Hashes as numbers in [0, 1), float64 (n,): the top 53 bits."""
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def first_in_groups(
    ids: Any, groups: NDArray[np.int64], *, count: int, seed: int
) -> NDArray[np.int64]:
    """Rows of the ``count`` smallest hashes in each group, ties by id; int64, ascending.

    ``groups`` int (n,); rows of a negative group are never drawn. Which rows are drawn does not
    depend on their order, nor a group's rows on the other groups; a smaller ``count`` gives a
    subset.
    """
    if count < 0:
        raise UserError(f"cannot draw {count} rows", fix="give 0 or more")
    import pyarrow as pa

    column = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, pa.string())
    if len(column) != len(groups):
        raise ValueError(f"{len(column)} ids for {len(groups)} groups")
    hashes = row_hash(column, seed=seed)
    order = np.lexsort((hashes, groups))
    if (np.diff(hashes[order]) == 0).any():  # two hashes alike: only then are the ids needed
        texts = np.asarray(column.to_pylist(), dtype=object)
        order = np.lexsort((texts, hashes, groups))
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return np.sort(order[(place < count) & (ordered >= 0)])


def _hash_chunk(chunk: Any, seed: int) -> Hashes:
    """Hash one Arrow array of large strings: word by word over all rows that still have one."""
    offsets = np.frombuffer(chunk.buffers()[1], dtype=np.int64)
    offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = chunk.buffers()[2]
    size = int(offsets[-1]) if len(offsets) else 0
    # Eight zero bytes at the end let every word be read whole.
    text = np.zeros(size + 8, dtype=np.uint8)
    if data is not None and size:
        text[:size] = np.frombuffer(data, dtype=np.uint8, count=size)
    first = _mix_number((seed + _G) % (1 << 64))
    state = np.full(len(chunk), first, dtype=np.uint64)
    for position in range(0, int(lengths.max(initial=0)), 8):
        rows = np.flatnonzero(lengths > position)
        words = _words(text, starts[rows] + position, np.minimum(lengths[rows] - position, 8))
        state[rows] = _mix((state[rows] + np.uint64(_G)) ^ words)
    return _mix((state + np.uint64(_G)) ^ lengths.astype(np.uint64))


def _words(text: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Hashes:
    """The little-endian words that begin at ``starts``; bytes from ``sizes`` on count as zero."""
    # A word may begin at any byte: a view with a step of one byte reads it without copying.
    every = np.ndarray((len(text) - 7,), dtype="<u8", buffer=text, strides=(1,))
    return every[starts].astype(np.uint64) & _KEEP[sizes]


def _mix(values: Hashes) -> Hashes:
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _mix_number(value: int) -> int:
    return int(_mix(np.array([value], dtype=np.uint64))[0])

"""Hashes of tables over canonical rows, and the hash of row ids that every draw uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa


def _other(value: Any) -> str:
    """A value that JSON lacks, as text: dates in ISO 8601, bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_other
).encode

_BLOCK = 1 << 18
_ESCAPED = r'["\\\x00-\x1f]'


def hash_rows(lines: Iterable[str]) -> str:
    """SHA-256 over the sorted lines."""
    digest = hashlib.sha256()
    for line in sorted(lines):
        digest.update(line.encode("utf-8"))
        digest.update(b"\n")
    return digest.hexdigest()


def hash_table(table: Any) -> str:
    """SHA-256 over a table's column names and its rows as canonical JSON, in sorted order.

    Columns are taken by name, so their order does not matter; a column that is all null counts as
    absent, so that adding an optional column without values changes nothing.
    """
    names = sorted(n for n in table.column_names if table[n].null_count < len(table[n]))
    rows_hash = _hash_columns([table[name] for name in names]) if names else hash_rows(())
    return hashlib.sha256((_encode(names) + "\n" + rows_hash).encode("utf-8")).hexdigest()


def _hash_columns(columns: Sequence[Any]) -> str:
    """:func:`hash_rows` of rows as canonical JSON, for millions of rows.

    Every distinct value is encoded once. An encoded value with what stands after it never begins
    another one, so rows stand in the order of their lines when they stand in that of their values.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    parts, ranks = [], []
    for number, column in enumerate(columns):
        before = "," if number else "["
        last = number == len(columns) - 1
        codes, encoded = _encoded(column)
        order = pc.array_sort_indices(_joined(encoded, "]" if last else ","))
        rank = np.empty(len(encoded), dtype=np.int64)
        rank[order.to_numpy()] = np.arange(len(encoded))
        ranks.append(rank[codes])
        parts.append(_joined(before, encoded.take(order), "]\n" if last else ""))
    rows = np.lexsort(ranks[::-1])
    digest = hashlib.sha256()
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        cells = [part.take(pa.array(rank[block])) for part, rank in zip(parts, ranks, strict=True)]
        lines = _joined(*cells)
        ends = np.frombuffer(lines.buffers()[1], dtype=np.int64)[lines.offset :]
        digest.update(memoryview(lines.buffers()[2])[ends[0] : ends[len(lines)]])
    return digest.hexdigest()


def _joined(*parts: Any) -> Any:
    """Texts side by side, row by row, as large strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar("", pa.large_string())
    cells = [
        pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts
    ]
    return pc.binary_join_element_wise(*cells, nothing)


def _encoded(column: Any) -> tuple[Any, Any]:
    """A column as codes, int64 (n,), and the distinct JSON texts that they stand for."""
    import numpy as np
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    keys = _keys(whole)
    codes = np.arange(len(whole))
    if keys is not None:
        coded = keys.dictionary_encode(null_encoding="encode")
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        first = np.zeros(len(coded.dictionary), dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        whole = whole.take(pa.array(first))
    texts = _texts(whole)
    if texts is None:
        texts = pa.array([_encode(value) for value in _plain(whole)], pa.large_string())
    distinct = texts.dictionary_encode()  # two values may be written alike
    again = distinct.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return again[codes], distinct.dictionary


def _texts(column: Any) -> Any:
    """Texts without any character that JSON escapes, in quotes; None for all other columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return None
    return pc.fill_null(_joined('"', column.cast(pa.large_string()), '"'), "null")


def _keys(column: Any) -> Any:
    """An array that is equal where the column is, and can be coded; None where there is none.

    Numbers with a point by their bits: 0.0 and -0.0 are written differently. Lists of texts by
    their length and texts, joined by a character that they do not hold.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    bits = {pa.float64(): pa.int64(), pa.float32(): pa.int32(), pa.float16(): pa.int16()}
    if kind in bits:
        return column.view(bits[kind])
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        flat = column.flatten()
        if flat.null_count or pc.any(pc.match_substring(flat, "\0")).as_py():
            return None
        size = pc.list_value_length(column).cast(pa.string())
        return pc.binary_join_element_wise(size, pc.binary_join(column, "\0"), "\0")
    return None if pa.types.is_nested(kind) or pa.types.is_null(kind) else column


def _plain(column: Any) -> list[Any]:
    """A column as JSON values; floats that are no numbers have no JSON form and become text."""
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [v if v is None or v - v == 0 else repr(v) for v in values]
    return values


def images_hash(table: Any, namespace: str | None = None) -> str:
    """SHA-256 over sorted (image_id, file hash or namespace): which images, and nothing else.

    ``namespace`` says whose ids those of images without a file hash are; None for ids that mean
    the same image everywhere, as those of published lists do.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = table["image_id"]
    digests = table["sha256"] if "sha256" in table.column_names else pa.nulls(len(ids), pa.string())
    if namespace is not None:
        digests = pc.fill_null(digests, namespace)
    return _hash_columns([ids, digests])


def combine(hashes: Mapping[str, str]) -> str:
    """The content hash of a set of named tables."""
    return hash_rows(f"{name} {digest}" for name, digest in hashes.items())


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

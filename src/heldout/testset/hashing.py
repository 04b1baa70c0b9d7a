"""Hashes of tables: over canonical rows, never over Parquet bytes.

Equal content gives equal hashes whatever the row order, the Parquet version or the compression.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def _other(value: Any) -> str:
    """A value that JSON lacks, as text: dates in ISO 8601, bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_other
).encode

_BLOCK = 1 << 18


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
    import pyarrow as pa

    names = sorted(n for n in table.column_names if table[n].null_count < len(table[n]))
    if names and all(pa.types.is_string(table[name].type) for name in names):
        rows_hash = _hash_texts([table[name] for name in names])
    else:
        columns = [_plain(table[name]) for name in names]
        rows_hash = hash_rows(map(_encode, zip(*columns, strict=True)) if names else iter(()))
    return hashlib.sha256((_encode(names) + "\n" + rows_hash).encode("utf-8")).hexdigest()


def _hash_texts(columns: Sequence[Any]) -> str:
    """:func:`hash_rows` of rows of texts or nulls, for millions of rows.

    Every distinct value is encoded once. An encoded value never begins another (its closing quote
    ends it), so rows stand in the order of their lines when they stand in that of their values.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    parts, ranks = [], []
    for number, column in enumerate(columns):
        before = "," if number else "["
        after = "" if number < len(columns) - 1 else "]\n"
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        coded = whole.dictionary_encode(null_encoding="encode")
        encoded = [_encode(value) for value in coded.dictionary.to_pylist()]
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        rank = np.empty(len(encoded), dtype=np.int64)
        rank[order] = np.arange(len(encoded))
        ranks.append(rank[coded.indices.to_numpy(zero_copy_only=False)])
        parts.append(
            pa.array([before + encoded[place] + after for place in order], pa.large_string())
        )
    rows = np.lexsort(ranks[::-1])
    digest = hashlib.sha256()
    for first in range(0, len(rows), _BLOCK):
        block = rows[first : first + _BLOCK]
        cells = [part.take(pa.array(rank[block])) for part, rank in zip(parts, ranks, strict=True)]
        lines = pc.binary_join_element_wise(*cells, pa.scalar("", pa.large_string()))
        digest.update("".join(lines.to_pylist()).encode("utf-8"))
    return digest.hexdigest()


def _plain(column: Any) -> list[Any]:
    """A column as JSON values; floats that are no numbers have no JSON form and become text."""
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [v if v is None or v - v == 0 else repr(v) for v in values]
    return values


def images_hash(table: Any) -> str:
    """SHA-256 over sorted (image_id, file hash or null): which images, and nothing else."""
    ids = table["image_id"].to_pylist()
    digests = table["sha256"].to_pylist() if "sha256" in table.column_names else [None] * len(ids)
    return hash_rows(map(_encode, zip(ids, digests, strict=True)))


def combine(hashes: Mapping[str, str]) -> str:
    """The content hash of a set of named tables."""
    return hash_rows(f"{name} {digest}" for name, digest in hashes.items())

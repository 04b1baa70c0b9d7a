"""The k rows of the greatest similarity, exactly, with ties by id.

Two numbers say which rows these are: the similarity of the last one, and, where rows of that very
similarity are cut apart, the id of the last one among them (ids rise: whole numbers by size, texts by
their bytes). The first is found by counting (:mod:`heldout.curate.domains.keys`), so that no pass
holds more than a batch; where ties are cut, the ids of all rows that tie are held once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.domains.keys import Found, Keys, nth_key, similarity_keys, similarity_of
from heldout.curate.domains.reading import Mask, Reader, Seen

T = TypeVar("T")


@dataclass(frozen=True)
class Boundary:
    """Where the best rows end.

    ``key``        of the last similarity that is kept (:func:`similarity_keys`)
    ``last_id``    the last id kept among rows of that similarity; None where all of them are
    ``threshold``  that similarity
    ``tied``       complete rows that have it, ``kept_tied`` of which are kept
    ``complete``   rows with an id, a class, a domain and a similarity
    """

    key: int
    last_id: Any
    threshold: float
    tied: int
    kept_tied: int
    complete: int

    def keeps(self, seen: Seen, ids: Any) -> Mask:
        """Which complete rows of a batch are kept; ``ids`` may be None where no tie is cut."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = seen.keys
        if keys is None:
            raise ValueError("the pass reads no similarity")
        kept: Mask = seen.complete & (keys <= keys.dtype.type(self.key))
        if self.last_id is not None:
            tied = np.flatnonzero(seen.complete & (keys == keys.dtype.type(self.key)))
            if len(tied):
                theirs = _plain(ids).take(pa.array(tied))
                kept[tied] = pc.less_equal(theirs, self.last_id).to_numpy(zero_copy_only=False)
        return kept


def find_boundary(reader: Reader, top: int) -> Boundary:
    """The boundary of the ``top`` best of all complete rows; fewer of them are a user's error."""
    if reader.similarity is None:
        raise UserError("--top without a similarity", fix="name its column with --similarity")
    column = reader.similarity
    dtype = _number_type(reader.rows.schema.field(column).type)
    found, complete = _best(reader, top, _stated_range(reader, column, dtype))
    if found.total < complete:  # what the files state of themselves is not so
        found, complete = _best(reader, top, _whole_range(dtype))
    if complete < top:
        raise UserError(
            f"--top {top:,} of {complete:,} rows with an id, class, domain and similarity",
            fix=f"ask for {complete:,} or fewer" if complete else "check the names of the columns",
        )
    kept = top - found.smaller
    last = None
    if kept < found.equal:
        last = _last_id(reader, found.key, kept)
    return Boundary(found.key, last, similarity_of(found.key, dtype), found.equal, kept, complete)


def _best(reader: Reader, top: int, ends: tuple[int, int]) -> tuple[Found, int]:
    """The key of the last of the best, and how many complete rows there are."""
    complete: list[int] = []

    def scan(low: int, high: int, work: Callable[[Keys], T]) -> Iterator[T]:
        first = (low, high) == ends

        def on_batch(seen: Seen) -> T:
            if first:
                complete.append(int(seen.complete.sum()))
            return work(_within(_keys(seen), seen.complete, low, high))

        return reader.scan([reader.similarity or ""], on_batch)

    found = nth_key(scan, top, low=ends[0], high=ends[1])
    return found, sum(complete)


def _number_type(kind: Any) -> np.dtype[Any]:
    """The NumPy type of an Arrow column of numbers."""
    import pyarrow as pa

    found: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return found


def _keys(seen: Seen) -> Keys:
    if seen.keys is None:
        raise ValueError("the pass reads no similarity")
    return seen.keys


def _within(keys: Keys, rows: Mask, low: int, high: int) -> Keys:
    kind = keys.dtype.type
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    if low > least or high < most:
        rows = rows & (keys >= kind(max(low, least))) & (keys <= kind(min(high, most)))
    return keys if rows.all() else keys[rows]


def _stated_range(reader: Reader, column: str, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Bounds of all keys, by what the files state of the column, else those of the type."""
    facts = reader.rows.facts(column)
    if facts.low is not None and np.isfinite([facts.low, facts.high]).all():
        ends = similarity_keys(np.array([facts.high, facts.low], dtype=dtype))
        return int(ends[0]), int(ends[1])
    return _whole_range(dtype)


def _whole_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    kind = similarity_keys(np.zeros(1, dtype=dtype)).dtype
    return 0, int(np.iinfo(kind).max)


def _last_id(reader: Reader, key: int, rank: int) -> Any:
    """The id of this rank among the rows with ``key``."""
    import pyarrow as pa

    def ids(seen: Seen) -> Any:
        keys = _keys(seen)
        rows = np.flatnonzero(seen.complete & (keys == keys.dtype.type(key)))
        return _plain(seen.batch.column(reader.id)).take(pa.array(rows))

    parts = reader.scan([reader.similarity or "", reader.id], ids)
    return _nth(pa.chunked_array([part for part in parts if len(part)]).combine_chunks(), rank)


def _nth(ids: Any, rank: int) -> Any:
    """The id of this rank; equal ids on both sides of it have no order."""
    import pyarrow.compute as pc

    ordered = ids.take(pc.array_sort_indices(ids))
    if rank < len(ordered) and ordered[rank - 1] == ordered[rank]:
        raise UserError(
            f"two rows have the id {str(ordered[rank])!r}", fix="give every row an id of its own"
        )
    return ordered[rank - 1]


def _plain(column: Any) -> Any:
    """A column of ids without dictionary."""
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

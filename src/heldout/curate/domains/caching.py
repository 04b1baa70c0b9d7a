"""Columns that every pass reads, kept decoded between passes where they are small.

Reading Parquet costs most of a pass. A table of a few million rows has columns of a few megabytes,
which are then decoded once; of a large table nothing is kept, so that memory stays bounded whatever
the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from heldout.curate.domains.rows import Facts, FileRows

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
MOST = 200_000_000
"""Bytes of decoded columns that are kept."""


@dataclass(frozen=True, eq=False)
class CachedRows:
    """Rows of files of which some columns are decoded once. Make one with :func:`cached`.

    ``kept``  these columns
    """

    rows: FileRows
    kept: frozenset[str]
    _units: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self.rows.schema

    def __len__(self) -> int:
        return len(self.rows)

    def facts(self, column: str) -> Facts:
        """What the files say of a column."""
        return self.rows.facts(column)

    def scan(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], T]) -> Iterator[T]:
        """``work`` on every batch, by the threads of the files."""
        wanted = list(columns)

        def read(unit: tuple[int, int]) -> list[T]:
            return [work(batch) for batch in self._batches(unit, wanted)]

        return self.rows.by_units(read)

    def _batches(self, unit: tuple[int, int], wanted: list[str]) -> Iterator[Any]:
        """The batches of a unit: columns from before, the others from the file."""
        import pyarrow as pa

        # A unit is read by one thread at a time, and passes follow one another: no lock is needed.
        have = self._units.setdefault(unit, {})
        known = {name: have[name] for name in wanted if name in have}
        missing = [name for name in wanted if name not in known]
        keep: dict[str, list[Any]] = {name: [] for name in missing if name in self.kept}
        start = 0
        for length, fresh in self._pieces(unit, known, missing):
            for name, columns in keep.items():
                columns.append(fresh.column(name))
            if known:
                parts = {name: _piece(column, start, length) for name, column in known.items()}
                parts |= {name: fresh.column(name) for name in missing}
                yield pa.record_batch([parts[name] for name in wanted], names=wanted)
            else:
                yield fresh
            start += length
        have |= {name: pa.chunked_array(columns) for name, columns in keep.items() if columns}

    def _pieces(
        self, unit: tuple[int, int], known: dict[str, Any], missing: list[str]
    ) -> Iterator[tuple[int, Any]]:
        """Lengths of batches, each with what is read from the file, None where nothing is."""
        if missing:
            for batch in self.rows.batches(unit, missing):
                yield len(batch), batch
            return
        for chunk in next(iter(known.values())).chunks:
            yield len(chunk), None


def _piece(column: Any, start: int, length: int) -> Any:
    """Rows of a column as one array; batches of other columns may be cut elsewhere."""
    found = column.slice(start, length)
    return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def cached(rows: FileRows, columns: Sequence[str]) -> CachedRows:
    """Rows that keep these columns decoded, if all of them fit into ``MOST`` bytes."""
    wanted = frozenset(columns)
    total = sum(map(rows.decoded_size, wanted))
    return CachedRows(rows, wanted if total <= MOST else frozenset())

"""Candidates in passes: Parquet files or a table in memory, read in batches in bounded memory."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from heldout.core.engine import Progress, Tick
from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.domains.parameters import DomainsParameters

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
BATCH = 1 << 18
"""Rows in a batch: a few megabytes, so that memory stays small whatever the number of rows."""


@dataclass(frozen=True)
class Facts:
    """What is known of a column before any row is read.

    ``nulls``      how many rows have no value; None where the files do not say
    ``low, high``  least and greatest value; None where the files do not say
    """

    nulls: int | None = None
    low: Any = None
    high: Any = None


class Rows(Protocol):
    """A table that is read in passes."""

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        ...

    def __len__(self) -> int:
        """How many rows there are."""
        ...

    def facts(self, column: str) -> Facts:
        """What is known of a column without reading it."""
        ...

    def scan(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], T]) -> Iterator[T]:
        """``work`` on every batch of these columns; what it gives, in the order of the rows."""
        ...


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table in memory."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self.table.schema

    def __len__(self) -> int:
        return len(self.table)

    def facts(self, column: str) -> Facts:
        """The number of nulls."""
        return Facts(nulls=self.table[column].null_count)

    def scan(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], T]) -> Iterator[T]:
        """``work`` on every batch, one after the other."""
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=BATCH):
            yield work(batch)


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows of Parquet files with the same columns. Open them with :func:`open_rows`.

    ``units``  (file, row group) in order: what one thread reads at a time
    ``coded``  columns that are read as codes and a dictionary
    """

    files: tuple[Path, ...]
    units: tuple[tuple[int, int], ...]
    schema: pa.Schema
    metadata: tuple[Any, ...] = field(repr=False)
    coded: tuple[str, ...] = ()
    workers: int = 2

    def __len__(self) -> int:
        return sum(head.num_rows for head in self.metadata)

    def facts(self, column: str) -> Facts:
        """Nulls and bounds by the statistics in the files' footers, where all files have them."""
        nulls: int | None = 0
        lows, highs = [], []
        bounded = True
        for file, group in self.units:
            part = self.metadata[file].row_group(group)
            place = _place(self.metadata[file], column)
            known = None if place is None else part.column(place).statistics
            if known is None or not known.has_null_count:
                nulls = None
            elif nulls is not None:
                nulls += known.null_count
            if known is None or not known.has_min_max:
                bounded = bounded and known is not None and known.null_count == part.num_rows
            else:
                lows.append(known.min)
                highs.append(known.max)
        if not bounded or not lows:
            return Facts(nulls=nulls)
        return Facts(nulls=nulls, low=min(lows), high=max(highs))

    def scan(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], T]) -> Iterator[T]:
        """``work`` on every batch, by ``workers`` threads."""
        wanted = list(columns)

        def read(unit: tuple[int, int]) -> list[T]:
            return [work(batch) for batch in self.batches(unit, wanted)]

        return self.by_units(read)

    def by_units(self, read: Callable[[tuple[int, int]], list[T]]) -> Iterator[T]:
        """What ``read`` gives of every unit, by ``workers`` threads, in the order of the rows."""
        return chain.from_iterable(_in_order(read, self.units, self.workers))

    def decoded_size(self, column: str) -> int:
        """About how many bytes a column has in memory."""
        import pyarrow as pa

        kind = self.schema.field(column).type
        if column in self.coded or pa.types.is_dictionary(kind):
            return 4 * len(self)
        if pa.types.is_primitive(kind):
            return int(kind.bit_width) * len(self) // 8
        stated = 0
        for file, group in self.units:
            place = _place(self.metadata[file], column)
            part = self.metadata[file].row_group(group)
            # Texts may be coded in the file: eight bytes a row at least are reckoned with.
            stated += 0 if place is None else part.column(place).total_uncompressed_size
        return max(stated, 8 * len(self)) + 4 * len(self)

    def batches(self, unit: tuple[int, int], columns: list[str]) -> Iterator[Any]:
        """The batches of a unit, of ``BATCH`` rows but for the last."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.files[unit[0]]
        # Opened anew for every row group: a reader is not to be shared by threads.
        try:
            with pq.ParquetFile(
                path, metadata=self.metadata[unit[0]], read_dictionary=list(self.coded)
            ) as file:
                yield from file.iter_batches(
                    BATCH, row_groups=[unit[1]], columns=columns, use_threads=False
                )
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from None


_FEW = 20_000_000


@contextmanager
def plain_allocation(rows: int) -> Iterator[None]:
    """Let Arrow take memory from the system while not too many ``rows`` are read.

    Its own allocator keeps what is freed and asks for more, which costs several times the page
    faults on short passes. On long ones it is the system's that does not give memory back: 1.05
    against 0.78 GB for 100 million rows. Nothing that is made depends on it.
    """
    import pyarrow as pa

    before = pa.default_memory_pool()
    if rows <= _FEW:
        pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def open_rows(path: Path, *, coded: Sequence[str] = (), workers: int | None = None) -> FileRows:
    """The rows of a Parquet file, or of all Parquet files below a folder.

    ``coded``    columns of texts with few distinct values, which are read faster as codes
    ``workers``  threads; all cores, at most eight, by default
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = tuple(_files(path))
    heads: list[Any] = []
    schema: pa.Schema | None = None
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                heads.append(opened.metadata)
                found = opened.schema_arrow.remove_metadata()
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(file, error) from None
        if schema is None:
            schema = found
        elif (difference := _difference(schema, found)) is not None:
            raise BadFile(
                file,
                f"has other columns than {files[0].name}: {difference}",
                fix="give files with the same columns",
            )
    if schema is None:
        raise NotFound(f"no Parquet file at {path}", fix="check the path")
    text = {name for name in coded if name in schema.names and _is_text(schema.field(name).type)}
    return FileRows(
        files=files,
        units=tuple(
            (file, group) for file, head in enumerate(heads) for group in range(head.num_row_groups)
        ),
        schema=schema,
        metadata=tuple(heads),
        coded=tuple(sorted(text)),
        workers=workers or min(os.cpu_count() or 1, 8),
    )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = [
            file
            for file in sorted(path.rglob("*.parquet"))
            if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        ]
        if not found:
            raise NotFound(f"no Parquet file below {path}", fix="check the path")
        return found
    if not path.exists():
        raise NotFound(f"no pool {path}", fix="check the path: a Parquet file, a folder, a pool")
    return [path]


def _difference(one: Any, other: Any) -> str | None:
    """The first column in which two schemas differ; dictionaries count as what they hold."""
    for name in sorted({*one.names, *other.names}):
        if name not in one.names or name not in other.names:
            return str(name)
        if _held(one.field(name).type) != _held(other.field(name).type):
            return f"{name!s} is {one.field(name).type} and {other.field(name).type}"
    return None


def _held(kind: Any) -> Any:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    held = _held(kind)
    return bool(pa.types.is_string(held) or pa.types.is_large_string(held))


def _place(head: Any, column: str) -> int | None:
    """The position of a flat column in a file."""
    schema = head.schema
    for place in range(len(schema)):
        if schema.column(place).path == column:
            return place
    return None


def _unreadable(path: Path, error: Exception) -> UserError:
    return BadFile(
        path, f"cannot be read as Parquet ({str(error).splitlines()[0]})", fix="write it again"
    )


def _in_order(work: Callable[[Any], T], items: Sequence[Any], workers: int) -> Iterator[T]:
    """``map`` by threads, in order, with only a few results waiting at any time."""
    if workers <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[T]] = deque(
            pool.submit(work, item) for item in islice(rest, workers + 1)
        )
        try:
            while waiting:
                done = waiting.popleft().result()
                for item in islice(rest, 1):
                    waiting.append(pool.submit(work, item))
                yield done
        finally:
            for left in waiting:
                left.cancel()


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


def expected_passes(parameters: DomainsParameters, *, take: bool) -> int:
    """Passes over all rows that a request needs; where ties are cut there is one more."""
    ranked = 0 if parameters.top is None else 2
    capped = 0 if parameters.domain_cap is None else 2
    return ranked + 1 + capped + take


@dataclass(eq=False)
class WatchedRows:
    """Rows that tell after every batch how many were read, in all passes together."""

    rows: Rows
    passes: int
    progress: Progress
    _begun: float = field(default_factory=time.monotonic)
    _scans: int = 0
    _done: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self.rows.schema

    def __len__(self) -> int:
        return len(self.rows)

    def facts(self, column: str) -> Facts:
        """What is known of a column without reading it."""
        return self.rows.facts(column)

    def scan(self, columns: Sequence[str], work: Callable[[pa.RecordBatch], T]) -> Iterator[T]:
        """``work`` on every batch, and a tick after each."""
        self._scans += 1

        def counted(batch: pa.RecordBatch) -> tuple[int, T]:
            return len(batch), work(batch)

        for length, made in self.rows.scan(columns, counted):
            self._done += length
            total = max(self.passes, self._scans) * len(self.rows)
            self.progress(Tick(self._done, 0, 0, total, time.monotonic() - self._begun))
            yield made

"""Candidates in passes: Parquet files or a table in memory, read in batches in bounded memory.

A pass calls a function on every batch and gathers what it gives, in the order of the rows. Threads
work on several batches at a time; nothing that a pass returns may depend on how the rows are cut
into batches, files or row groups.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from heldout.core.engine import Progress, Tick, no_progress
from heldout.core.errors import BadFile, NotFound
from heldout.core.tables import parquet_batches

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
BATCH = 1 << 18
"""Rows in a batch: a few megabytes, so that memory stays small whatever the number of rows."""


class Rows:
    """Rows that are read in passes. Open files with :func:`open_rows`, a table by ``Rows(table)``."""

    def __init__(
        self,
        table: pa.Table | None = None,
        *,
        files: Sequence[Path] = (),
        coded: Sequence[str] = (),
        workers: int | None = None,
    ) -> None:
        """``coded``: columns of texts with few distinct values, read faster as codes."""
        self.workers = workers or min(os.cpu_count() or 1, 8)
        self._files, self._coded = files, list(coded)
        self._heads: list[Any] = []
        self._held = [] if table is None else table.to_batches(max_chunksize=BATCH)
        self._progress: Progress = no_progress
        self._begun = 0.0
        self._done = 0
        if table is None:
            self.schema: pa.Schema = self._checked_schema()
            self._length = int(sum(head.num_rows for head in self._heads))
        else:
            self.schema, self._length = table.schema, len(table)

    def __len__(self) -> int:
        return self._length

    def report(self, progress: Progress) -> None:
        """From now on call ``progress`` with the rows that were read, over all passes."""
        self._progress, self._begun, self._done = progress, time.monotonic(), 0

    def without_nulls(self, column: str) -> bool:
        """Whether every row is known to have a value, from what the files state of themselves."""
        if not self._files:
            return not any(batch.column(column).null_count for batch in self._held)
        for head in self._heads:
            paths = [head.schema.column(place).path for place in range(len(head.schema))]
            for group in range(head.num_row_groups):
                known = head.row_group(group).column(paths.index(column)).statistics
                if known is None or not known.has_null_count or known.null_count:
                    return False
        return True

    def scan(self, columns: Sequence[str], work: Callable[[pa.RecordBatch, int], T]) -> Iterator[T]:
        """``work(batch, number of its first row)`` on every batch; what it gives, in order."""
        wanted = list(columns)
        batches = self._read(wanted) if self._files else (b.select(wanted) for b in self._held)
        waiting: deque[tuple[int, Future[T]]] = deque()
        start = 0
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                for batch in batches:
                    waiting.append((len(batch), pool.submit(work, batch, start)))
                    start += len(batch)
                    # Only a few batches and results wait at any time.
                    if len(waiting) > self.workers:
                        yield self._finished(*waiting.popleft())
                while waiting:
                    yield self._finished(*waiting.popleft())
            finally:
                for _, left in waiting:
                    left.cancel()

    def _finished(self, length: int, future: Future[T]) -> T:
        made = future.result()
        self._done += length
        self._progress(Tick(self._done, 0, 0, None, time.monotonic() - self._begun))
        return made

    def _read(self, columns: list[str]) -> Iterator[Any]:
        """The batches of all files, one file after the other, these columns only."""
        for file in self._files:
            yield from parquet_batches(
                file,
                size=BATCH,
                options={"read_dictionary": self._coded, "pre_buffer": False},
                columns=columns,
                use_threads=self.workers > 1,
            )

    def _checked_schema(self) -> pa.Schema:
        """The columns of the files, which must be the same in all; dictionaries as what they hold."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schemas = []
        for file in self._files:
            try:
                with pq.ParquetFile(file) as opened:
                    self._heads.append(opened.metadata)
                    schemas.append(opened.schema_arrow.remove_metadata())
            except (pa.ArrowException, OSError) as error:
                raise BadFile(
                    file,
                    f"cannot be read as Parquet ({str(error).splitlines()[0]})",
                    fix="write it again",
                ) from None
            names = schemas[-1].names
            if len(set(names)) < len(names):
                raise BadFile(file, "has two columns of one name", fix="give each its own name")
            first, last = (
                {f.name: held_type(f.type) for f in s} for s in (schemas[0], schemas[-1])
            )
            other = sorted(name for name in {*first, *last} if first.get(name) != last.get(name))
            if other:
                raise BadFile(
                    file,
                    f"has other columns than {self._files[0].name}: {other[0]} is "
                    f"{first.get(other[0], 'missing')} and {last.get(other[0], 'missing')}",
                    fix="give files with the same columns",
                )
        texts = {
            f.name for f in schemas[0] if held_type(f.type) in (pa.string(), pa.large_string())
        }
        self._coded = [name for name in self._coded if name in texts]
        return schemas[0]


def open_rows(path: Path, *, coded: Sequence[str] = (), workers: int | None = None) -> Rows:
    """The rows of a Parquet file, or of all Parquet files below a folder.

    ``coded``    columns of texts with few distinct values
    ``workers``  threads; all cores, at most eight, by default
    """
    if not path.exists():
        raise NotFound(f"no pool {path}", fix="check the path: a Parquet file, a folder, a pool")
    files = [path]
    if path.is_dir():
        files = [
            file
            for file in sorted(path.rglob("*.parquet"))
            if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        ]
        if not files:
            raise NotFound(f"no Parquet file below {path}", fix="check the path")
    return Rows(files=files, coded=coded, workers=workers)


def held_type(kind: Any) -> Any:
    """The type of a column's values, whether or not they are coded by a dictionary."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind

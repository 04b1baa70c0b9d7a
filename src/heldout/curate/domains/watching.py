"""How far the passes over the rows are: rows read, of those that all passes will read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from heldout.core.engine import Progress, Tick
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.rows import Facts, Rows

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


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

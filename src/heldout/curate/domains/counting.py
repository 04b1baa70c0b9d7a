"""How many rows each class has in each domain: the one table that all rules about sizes need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError
from heldout.curate.domains.reading import Codes, Mask, Reader, Seen

MOST_CELLS = 1 << 24
"""Classes times domains that are counted; more would be no domains any more."""


@dataclass(frozen=True, eq=False)
class Counts:
    """``cells`` int64 (classes, domains), both in the order of their names, which are sorted."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]
    cells: NDArray[np.int64]

    @property
    def total(self) -> int:
        """All rows."""
        return int(self.cells.sum())

    @property
    def by_class(self) -> NDArray[np.int64]:
        """Rows of each class, int64 (classes,)."""
        counts: NDArray[np.int64] = self.cells.sum(axis=1)
        return counts

    @property
    def by_domain(self) -> NDArray[np.int64]:
        """Rows of each domain, int64 (domains,)."""
        counts: NDArray[np.int64] = self.cells.sum(axis=0)
        return counts

    def only(self, *, classes: Mask | None = None, domains: Mask | None = None) -> Counts:
        """The same table with no rows in classes or domains that are left out."""
        cells = self.cells
        if classes is not None:
            cells = cells * classes[:, None]
        if domains is not None:
            cells = cells * domains[None, :]
        return Counts(self.classes, self.domains, cells)


def count_cells(reader: Reader, keeps: Callable[[Seen], Mask], columns: tuple[str, ...]) -> Counts:
    """Count the rows that ``keeps`` keeps, in one pass over class, domain and ``columns``."""

    def count(seen: Seen) -> tuple[Codes, NDArray[np.int64]]:
        kept = keeps(seen)
        classes = reader.classes.codes(seen.batch.column(reader.class_column))
        domains = reader.domains.codes(seen.batch.column(reader.domain))
        if not kept.all():
            classes, domains = classes[kept], domains[kept]
        width = int(domains.max(initial=0)) + 1
        counted = np.bincount(classes * width + domains)
        cells = np.flatnonzero(counted)
        # Classes and domains apart: the next batch may know more domains.
        return np.stack(np.divmod(cells, width)), counted[cells]

    totals = np.zeros((0, 0), dtype=np.int64)
    for places, counts in reader.scan((reader.class_column, reader.domain, *columns), count):
        if places.size:
            needed = places.max(axis=1) + 1
            if (needed > totals.shape).any():
                totals = _grown(totals, needed)
            totals[places[0], places[1]] += counts
    return _sorted(reader, totals)


def _grown(totals: NDArray[np.int64], needed: NDArray[np.int64]) -> NDArray[np.int64]:
    shape = [
        have if have >= need else max(int(need), 2 * have)
        for have, need in zip(totals.shape, needed.tolist(), strict=True)
    ]
    if needed[0] * needed[1] > MOST_CELLS:
        raise UserError(
            f"{needed[0]:,} classes times {needed[1]:,} domains are too many to count",
            fix="name a column with fewer values with --domain, such as a country or a continent",
        )
    grown = np.zeros(shape, dtype=np.int64)
    grown[: totals.shape[0], : totals.shape[1]] = totals
    return grown


def _sorted(reader: Reader, totals: NDArray[np.int64]) -> Counts:
    """Codes come in the order in which threads met the names; names are put in their own order."""
    classes, domains = reader.classes.names, reader.domains.names
    rows = sorted(range(len(classes)), key=classes.__getitem__)
    columns = sorted(range(len(domains)), key=domains.__getitem__)
    cells = np.zeros((len(classes), len(domains)), dtype=np.int64)
    high, wide = min(len(classes), totals.shape[0]), min(len(domains), totals.shape[1])
    cells[:high, :wide] = totals[:high, :wide]
    return Counts(
        tuple(classes[code] for code in rows),
        tuple(domains[code] for code in columns),
        cells[np.ix_(rows, columns)],
    )

"""Conjunctions: every slice by up to three columns that holds enough images.

Rows of a slice of two columns are the rows that two slices share, so only pairs that share enough
are ever made, and triples grow from those pairs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.testset import TestSet
from heldout.measure.score.measuring import Measured
from heldout.measure.score.slices import format_value
from heldout.measure.score.slicing import CLASS, partitions

DEPTH = 3
FINEST = 12
"""A column of numbers with more values than this is cut at its quartiles."""
_MOST_PAIRS = 60_000_000  # of rows and slices: about 500 MB


@dataclass(frozen=True, eq=False)
class Conjunctions:
    """Slices by one to three columns, each of at least the asked number of rows.

    ``names``    as records name them, those of one column first
    ``columns``  (slices,): how many columns each has
    ``rows``     a sparse matrix (slices, n) of ones, int32: which measured rows a slice holds
    """

    names: tuple[str, ...]
    columns: np.ndarray
    rows: Any

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n(self) -> np.ndarray:
        """Rows of each slice; int64 (slices,)."""
        return np.asarray(np.diff(self.rows.indptr), dtype=np.int64)

    def positions(self, slice_number: int) -> np.ndarray:
        """The sorted measured rows of a slice."""
        start, end = self.rows.indptr[slice_number : slice_number + 2]
        return np.sort(self.rows.indices[start:end])


def search_entries(testset: TestSet, columns: Sequence[str] | None = None) -> list[str]:
    """What a search slices by: the columns asked for, else the class and every column but text.

    Numbers of more than :data:`FINEST` values are cut at quartiles. The cuts come from the columns
    alone, never from what a model did, so that no search can profit from them.
    """
    if columns is None:
        kinds = testset.card.columns
        columns = [CLASS, *(name for name, kind in kinds.items() if kind.kind != "text")]
    return [_cut(testset, name) for name in dict.fromkeys(columns)]


def _cut(testset: TestSet, name: str) -> str:
    kind = testset.card.columns.get(name)
    if kind is None or kind.multi or kind.kind == "text":
        return name
    import pyarrow.types as types

    if not types.is_floating(testset.images[name].type) and not types.is_integer(
        testset.images[name].type
    ):
        return name
    numbers = testset.images[name].drop_null().to_numpy().astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if len(np.unique(numbers)) <= FINEST:
        return name
    edges = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))
    texts = dict.fromkeys(format_value(float(edge)) for edge in edges if edge > numbers.min())
    return f"{name}@{','.join(texts)}"


def conjunctions(
    measured: Measured, entries: Sequence[str], *, depth: int = DEPTH, minimum_n: int
) -> Conjunctions:
    """Every slice by one to ``depth`` of the entries with ``minimum_n`` rows or more, but not all.

    Columns of one conjunction are distinct. An image without a value is in no slice of that column.
    """
    from scipy.sparse import csr_array, vstack

    if not 1 <= depth <= DEPTH:
        raise UserError(f"conjunctions of {depth} columns", fix=f"choose 1 to {DEPTH}")
    if any("&" in entry and entry not in measured.testset.card.columns for entry in entries):
        raise UserError("a search makes the conjunctions itself", fix="name single columns")
    n = len(measured)
    singles: list[tuple[list[str], Any]] = []
    for partition in partitions(measured, entries):
        ones = np.ones(len(partition.codes), dtype=np.int32)
        whole = csr_array(
            (ones, (partition.codes, partition.positions)), shape=(len(partition.names), n)
        )
        large = np.flatnonzero(np.diff(whole.indptr) >= minimum_n)
        singles.append(([partition.names[code] for code in large], whole[large]))
    # A conjunction is made from its columns in order, so each is made once.
    level = [(place, names, rows) for place, (names, rows) in enumerate(singles)]
    every = list(level)
    for _ in range(depth - 1):
        deeper = []
        for last, names, rows in level:
            for place in range(last + 1, len(singles)):
                made = _shared(names, rows, *singles[place], minimum_n)
                if made[0]:
                    deeper.append((place, *made))
                _check_size([*every, *deeper])
        every += deeper
        level = deeper
    found = [name for _, names, _ in every for name in names]
    if not found:
        raise NotApplicable(
            f"no slice of {measured.testset.name} has {minimum_n} images", fix="lower --minimum-n"
        )
    rows = vstack([rows for _, names, rows in every if names], format="csr")
    part = np.flatnonzero(np.diff(rows.indptr) < n)  # all images are no slice
    if not len(part):
        raise NotApplicable(
            f"every slice of {measured.testset.name} holds all images", fix="name other columns"
        )
    kept = tuple(found[row] for row in part)
    return Conjunctions(kept, np.array([name.count("&") + 1 for name in kept]), rows[part])


def _shared(
    names: list[str], rows: Any, others: list[str], other_rows: Any, minimum_n: int
) -> tuple[list[str], Any]:
    """The slices that hold what a slice of each side shares, where that is enough."""
    sizes = (rows @ other_rows.T).tocoo()
    large = sizes.data >= minimum_n
    first, second = sizes.coords[0][large], sizes.coords[1][large]
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    both = rows[first].multiply(other_rows[second]).tocsr()
    made = [_named(names[a], others[b]) for a, b in zip(first, second, strict=True)]
    return made, both


def _named(one: str, other: str) -> str:
    """The name of a conjunction: the parts of both, by column, as slices are written."""
    parts = [*one.split("&"), other]
    return "&".join(sorted(parts, key=lambda part: unquote(part.partition("=")[0])))


def _check_size(parts: Sequence[tuple[int, list[str], Any]]) -> None:
    if sum(rows.nnz for _, _, rows in parts) > _MOST_PAIRS:
        raise UserError(
            "these columns make too many conjunctions to search",
            fix="name fewer with --column, raise --minimum-n, or lower --depth",
        )

"""Slicing: which images belong to which slice of a column or of a conjunction of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.errors import NotFound, UserError
from heldout.score.slices import format_slice
from heldout.testset import TestSet

CLASS = "class"
"""The name under which the class of an image can be sliced like any column."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The slices of a column (or conjunction): pairs of image row and slice code.

    ``rows``, ``codes``  int64 (pairs,): for a single-valued column one pair an image
    ``names``            the slice's name for each code, in the column's own order
    """

    rows: np.ndarray
    codes: np.ndarray
    names: tuple[str, ...]
    single: bool

    def slices_of(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """For measured rows (indices of images): slice name -> positions in ``rows``; empty ones omitted."""
        order = np.argsort(rows, kind="stable")
        low = np.searchsorted(rows[order], self.rows, side="left")
        high = np.searchsorted(rows[order], self.rows, side="right")
        lengths = high - low
        starts = np.repeat(low - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
        positions = order[starts + np.arange(lengths.sum())]
        codes = np.repeat(self.codes, lengths)
        by_code = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[by_code], np.arange(len(self.names) + 1))
        return {
            name: np.sort(positions[by_code[edges[code] : edges[code + 1]]])
            for code, name in enumerate(self.names)
            if edges[code + 1] > edges[code]
        }

    def codes_for(self, rows: np.ndarray) -> np.ndarray | None:
        """The slice code of each measured row, -1 for none; None when an image may have several."""
        if not self.single:
            return None
        table = np.full(int(max(rows.max(), self.rows.max(initial=0))) + 1, -1)
        table[self.rows] = self.codes
        found: np.ndarray = table[rows]
        return found


def partitions(testset: TestSet, by: Sequence[str]) -> list[Partition]:
    """One partition for each entry of ``by``: a column, or columns joined by ``&``."""
    return [_conjunction(testset, [part.strip() for part in entry.split("&")]) for entry in by]


def _conjunction(testset: TestSet, columns: list[str]) -> Partition:
    parts = [_column(testset, name) for name in sorted(columns)]
    if len(parts) == 1:
        rows, codes, values, single = parts[0]
        names = tuple(format_slice({columns[0]: value}) for value in values)
        return Partition(rows, codes, names, single)
    if not all(single for *_, single in parts):
        raise UserError(
            f"{'&'.join(columns)} joins a column with several values an image",
            fix="slice by it alone",
        )
    n = len(testset)
    total = np.zeros(n, dtype=np.int64)
    known = np.ones(n, dtype=bool)
    sizes = [len(values) for _, _, values, _ in parts]
    for (rows, codes, values, _), _size in zip(parts, sizes, strict=True):
        column = np.full(n, -1)
        column[rows] = codes
        known &= column >= 0
        total = total * len(values) + column
    present = np.unique(total[known])
    names = []
    for combined in present:
        picked: dict[str, object] = {}
        rest = int(combined)
        for name, (_, _, values, _) in zip(reversed(sorted(columns)), reversed(parts), strict=True):
            rest, code = divmod(rest, len(values))
            picked[name] = values[code]
        names.append(format_slice(picked))
    rows = np.flatnonzero(known)
    return Partition(rows, np.searchsorted(present, total[known]), tuple(names), True)


def _column(testset: TestSet, name: str) -> tuple[np.ndarray, np.ndarray, list[object], bool]:
    """Rows, codes, distinct values in the column's order, and whether it is single-valued."""
    import pyarrow.compute as pc

    if name == CLASS:
        from heldout.score.hits import truth_arrays

        truth = truth_arrays(testset)
        known = truth.labels >= 0
        return truth.rows[known], truth.labels[known], list(testset.label_space.ids), False
    kind = testset.card.columns.get(name)
    if kind is None:
        have = ", ".join([CLASS, *testset.card.columns])
        raise NotFound(f"test set {testset.name} has no column {name!r}", fix=f"it has {have}")
    if kind.kind == "text":
        raise UserError(f"column {name!r} is text and cannot be sliced", fix="choose another column")
    if kind.multi:
        mine = testset.memberships.filter(pc.equal(testset.memberships["column"], name))
        rows = pc.index_in(mine["image_id"].combine_chunks(), value_set=testset.image_ids)
        image_rows, raw = rows.to_numpy(zero_copy_only=False).astype(np.int64), mine["value"].to_pylist()
    else:
        raw = testset.images[name].to_pylist()
        image_rows = np.array([i for i, value in enumerate(raw) if value is not None], dtype=np.int64)
        raw = [value for value in raw if value is not None]
    values = _in_order(set(raw), list(kind.order))
    place = {value: code for code, value in enumerate(values)}
    return image_rows, np.array([place[value] for value in raw], dtype=np.int64), values, not kind.multi


def _in_order(values: set[object], order: list[str | float]) -> list[object]:
    """Distinct values: first those the column type lists, then the rest sorted."""
    first: list[object] = [value for value in order if value in values]
    rest = [value for value in values if value not in first]
    numbers = all(isinstance(v, int | float) for v in rest)
    return first + sorted(rest, key=(lambda v: (0, v)) if numbers else (lambda v: (1, str(v))))  # type: ignore[arg-type, return-value]

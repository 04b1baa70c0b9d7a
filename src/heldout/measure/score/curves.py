"""A metric along the values of a column, or over the cells of two, and which units are where.

A filter that drops images drops them unevenly: at the largest sizes only the objects that still
fit are left, and the curve then shows other objects, not only another size. So a curve knows its
units and the mix of classes at each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.data.testset import ColumnType
from heldout.measure.score.measure import Measured
from heldout.measure.score.slices import (
    CLASS,
    Partition,
    entry_columns,
    factor_columns,
    number_of,
    parse_slice,
    partitions,
    split_edges,
    unit_codes,
    values_in_order,
)
from heldout.stats.slices import SliceMeans, slice_means

Shape = Literal["curve", "circle", "grid", "table", "bars"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """The rows of a measurement that have a value of a column, by value.

    ``measured``  those rows alone
    ``columns``   one column, or two
    ``shape``     ``curve`` (ordered), ``circle`` (circular), ``bars`` (any other single column);
                  ``grid`` (the axes of one grid) or ``table`` (any other two columns)
    ``slices``    the slice's name for each code, in the column's own order
    ``texts``     the values for each code, as text, one per column
    ``codes``     int64 (n,): which slice a row is in
    ``clusters``  int64 (n,): which rows belong together, or None; ``cluster`` names their column
    ``support``   ``all`` or ``balanced``
    """

    measured: Measured
    columns: tuple[str, ...]
    types: tuple[ColumnType, ...]
    shape: Shape
    slices: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    codes: np.ndarray
    clusters: np.ndarray | None = None
    cluster: str | None = None
    support: str = "all"

    def __len__(self) -> int:
        return len(self.slices)

    @property
    def entry(self) -> str:
        """The columns as records name them."""
        return "&".join(self.columns)

    @cached_property
    def means(self) -> SliceMeans:
        """Accuracies at every value, with the covariance between them."""
        return slice_means(
            self.measured.values, self.codes, count=len(self), clusters=self.clusters
        )

    @cached_property
    def numbers(self) -> np.ndarray | None:
        """The values as numbers, float64 (values,); None where they are not numbers.

        A column that lists its values in an order of its own has no distances between them.
        """
        if len(self.columns) != 1 or self.types[0].order:
            return None
        found = [number_of(text[0]) for text in self.texts]
        return None if None in found else np.array(found, dtype=np.float64)

    def axis(self, place: int) -> list[str]:
        """The distinct values of one of two columns, in order."""
        return values_in_order((text[place] for text in self.texts), self.types[place])

    @cached_property
    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Of two columns: the places (2, cells) of each cell on its axes, and codes by place.

        The codes have a row and a column more than the axes: -1, as where there is no cell.
        """
        places = np.array(
            [[self.axis(way).index(text[way]) for text in self.texts] for way in (0, 1)]
        )
        codes = np.full(places.max(axis=1) + 2, -1)
        codes[tuple(places)] = np.arange(len(self))
        return places, codes

    @cached_property
    def neighbours(self) -> list[np.ndarray]:
        """Tables (values,) that name for each value one that comes after it, -1 for none.

        Along a curve the next value; on a circle the first after the last as well; on a grid two
        tables, of cells that touch to the right and below. None for other shapes.
        """
        if self.shape == "curve":
            return [np.append(np.arange(1, len(self)), -1)]
        if self.shape == "circle":
            return [np.roll(np.arange(len(self)), -1)]
        if self.shape != "grid":
            return []
        (x, y), codes = self.cells
        return [codes[x + 1, y], codes[x, y + 1]]


def curve_of(
    measured: Measured,
    entry: str,
    partition: Partition,
    *,
    clusters: np.ndarray | None = None,
    cluster: str | None = None,
) -> Curve:
    """The curve of one entry of ``by``, from its slices; ``clusters`` (n,) over all rows."""
    testset = measured.testset
    columns = tuple(split_edges(part, testset)[0] for part in entry_columns(entry, testset))
    if not partition.single or len(columns) > 2 or not len(partition.positions):
        raise NotApplicable(
            f"{entry!r} is not a curve: it has several values per image, more than two columns, or none",
            fix="read it by slices",
        )
    types = tuple(_type(measured, column) for column in columns)
    partition = partition.of_slices(np.unique(partition.codes))
    values = [parse_slice(name) for name in partition.names]
    return Curve(
        measured=measured.select(partition.positions),
        columns=columns,
        types=types,
        shape=_shape(types),
        slices=partition.names,
        texts=tuple(tuple(value[column] for column in columns) for value in values),
        codes=partition.codes,
        clusters=None if clusters is None else clusters[partition.positions],
        cluster=cluster,
    )


def _type(measured: Measured, column: str) -> ColumnType:
    if column == CLASS and CLASS not in measured.testset.card.columns:
        return ColumnType(kind="categorical")
    return measured.testset.card.columns[column]


def _shape(types: Sequence[ColumnType]) -> Shape:
    if len(types) == 1:
        kinds: dict[str, Shape] = {"ordered": "curve", "grid": "curve", "circular": "circle"}
        return kinds.get(types[0].kind, "bars")
    axes = {(kind.grid, kind.axis) for kind in types if kind.kind == "grid"}
    return "grid" if len(axes) == 2 and len({grid for grid, _ in axes}) == 1 else "table"


_MOST_NAMED = 6


def support_of(curve: Curve, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The unit of each row, named by ``columns``, and whether it is at every value; (n,) each."""
    units = unit_codes(curve.measured, columns)
    cells = np.unique(units * len(curve) + curve.codes)
    values = np.bincount(cells // len(curve))
    return units, np.asarray(values[units] == len(curve))


def balanced(curve: Curve, complete: np.ndarray) -> Curve:
    """The same curve on the rows (n,) whose units are there at every value; there must be some."""
    return replace(
        curve,
        measured=curve.measured.select(np.flatnonzero(complete)),
        codes=curve.codes[complete],
        clusters=None if curve.clusters is None else curve.clusters[complete],
        support="balanced",
    )


@dataclass(frozen=True)
class Mix:
    """How the values of one column (or the classes) are spread over the values of a curve.

    ``total`` values, ``kept`` of them at every value of the curve; ``text`` names those that drop
    out, and where; empty where none does.
    """

    column: str
    total: int
    kept: int
    text: str


def mixes(curve: Curve) -> list[Mix]:
    """The mix of classes, and of every other factor of the card, over the values of a curve."""
    testset = curve.measured.testset
    others = [
        column
        for entry in testset.card.factors
        for column in factor_columns(testset, entry)
        if column not in curve.columns and column in testset.card.columns
    ]
    found = [_mix(curve, column) for column in (CLASS, *others) if column not in curve.columns]
    return [mix for mix in found if mix.total > 1]


def _mix(curve: Curve, column: str) -> Mix:
    codes, names = _values(curve.measured, column)
    known = codes >= 0
    there = np.zeros((len(names), len(curve)), dtype=bool)
    there[codes[known], curve.codes[known]] = True
    used = np.flatnonzero(there.any(axis=1))
    dropped = [code for code in used if not there[code].all()]
    # Those that miss the most values first, then in their own order.
    dropped.sort(key=lambda code: (there[code].sum(), code))
    listed = [f"{names[code]} at {_ranges(curve, ~there[code])}" for code in dropped]
    text = ""
    if dropped:
        what = "classes" if column == CLASS else f"values of {column}"
        text = (
            f"the mix of {what} changes over {curve.entry}: {len(used) - len(dropped)} of "
            f"{len(used)} are at every value; absent are {_listed(listed, ', ', '')}"
        )
    return Mix(column, len(used), len(used) - len(dropped), text)


def _values(measured: Measured, column: str) -> tuple[np.ndarray, list[str]]:
    """The code of each row (-1 for none) and the values' names, classes by their first name."""
    if column == CLASS and CLASS not in measured.testset.card.columns:
        return measured.groups, [
            item.names[0] if item.names else item.id for item in measured.space
        ]
    (partition,) = partitions(measured, [column], text=True)
    codes = np.full(len(measured), -1, dtype=np.int64)
    codes[partition.positions] = partition.codes
    return codes, [parse_slice(name)[column] for name in partition.names]


def _ranges(curve: Curve, where: np.ndarray) -> str:
    """Values of a curve as runs: ``0.77 to 1``; cells of two columns are counted."""
    if len(curve.columns) > 1:
        return f"{int(where.sum())} of {len(where)} cells"
    places = np.flatnonzero(where)
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    ends = [(curve.texts[run[0]][0], curve.texts[run[-1]][0]) for run in runs]
    texts = [first if first == last else f"{first} to {last}" for first, last in ends]
    return _listed(texts, " and ", " runs")


def _listed(texts: Sequence[str], joint: str, what: str) -> str:
    """The first few of some texts, and how many more there are."""
    more = len(texts) - _MOST_NAMED
    return joint.join(texts[:_MOST_NAMED]) + (f" and {more} more{what}" if more > 0 else "")

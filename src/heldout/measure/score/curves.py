"""A metric along the values of a column, or over the cells of two: what summaries are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.data.testset import ColumnType
from heldout.measure.score.measuring import Measured
from heldout.measure.score.slices import parse_slice
from heldout.measure.score.slicing import CLASS, Partition, column_name, entry_columns
from heldout.stats import SliceMeans, slice_means

Shape = Literal["curve", "circle", "grid", "table", "bars"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """The rows of a measurement that have a value of a column, by value.

    ``measured``  those rows alone
    ``columns``   one column, or two
    ``shape``     ``curve`` (ordered), ``circle`` (circular), ``bars`` (any other single column);
                  ``grid`` (the axes of one grid) or ``table`` (any other two columns)
    ``slices``    the slice's name for each code, in the column's own order
    ``texts``     the values for each code, as text, one a column
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
        """The values as numbers, float64 (values,); None where they are no numbers.

        A column that lists its values in an order of its own has no distances between them.
        """
        if len(self.columns) != 1 or self.types[0].order:
            return None
        found = [_number(text[0]) for text in self.texts]
        return None if None in found else np.array(found, dtype=np.float64)

    def axis(self, place: int) -> list[str]:
        """The distinct values of one of two columns, in order: numbers by size."""
        distinct = list(dict.fromkeys(text[place] for text in self.texts))
        given = [_text(value) for value in self.types[place].order]
        if not given and all(_number(text) is not None for text in distinct):
            return sorted(distinct, key=float)
        known = {text: number for number, text in enumerate(given)}
        return sorted(distinct, key=lambda text: (known.get(text, len(known)), text))

    @cached_property
    def steps(self) -> np.ndarray:
        """Pairs of codes that are neighbours; int64 (pairs, 2).

        Along a curve each value and the next; on a circle the last and the first as well; on a
        grid cells that touch, to the right and below.
        """
        if self.shape == "curve":
            return np.stack([np.arange(len(self) - 1), np.arange(1, len(self))], axis=1)
        if self.shape == "circle":
            return np.stack([np.arange(len(self)), np.roll(np.arange(len(self)), -1)], axis=1)
        if self.shape != "grid":
            return np.empty((0, 2), dtype=np.int64)
        place = {
            text: (self.axis(0).index(text[0]), self.axis(1).index(text[1])) for text in self.texts
        }
        code = {place[text]: number for number, text in enumerate(self.texts)}
        pairs = [
            (number, code[beside])
            for (a, b), number in code.items()
            for beside in ((a + 1, b), (a, b + 1))
            if beside in code
        ]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)


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
    columns = tuple(column_name(part, testset) for part in entry_columns(entry, testset))
    if not partition.single or len(columns) > 2 or not len(partition.positions):
        raise NotApplicable(
            f"{entry!r} is no curve: it has several values an image, more than two columns, or none",
            fix="read it by slices",
        )
    types = tuple(_type(measured, column) for column in columns)
    present, codes = np.unique(partition.codes, return_inverse=True)
    names = tuple(partition.names[code] for code in present)
    values = [parse_slice(name) for name in names]
    return Curve(
        measured=measured.take(partition.positions),
        columns=columns,
        types=types,
        shape=_shape(types),
        slices=names,
        texts=tuple(tuple(value[column] for column in columns) for value in values),
        codes=codes.astype(np.int64),
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


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _text(value: str | float) -> str:
    """A listed value as a slice writes and parses it."""
    return format(value + 0.0, ".6g") if isinstance(value, float) else str(value)

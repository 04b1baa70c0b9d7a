"""Support: which units are there at which values of a column, and what that does to the mix.

A filter that drops images drops them unevenly: at the largest sizes only the objects that still
fit are left, and the curve then shows other objects, not only another size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heldout.measure.score.clustering import factor_columns, unit_codes
from heldout.measure.score.curves import Curve
from heldout.measure.score.measuring import Measured
from heldout.measure.score.slices import parse_slice
from heldout.measure.score.slicing import CLASS, partitions

_MOST_NAMED = 6


@dataclass(frozen=True, eq=False)
class Support:
    """The units of a curve: ``units`` (n,) codes, ``complete`` (units,) those at every value."""

    columns: tuple[str, ...]
    units: np.ndarray
    complete: np.ndarray

    @property
    def is_balanced(self) -> bool:
        """Whether every unit is there at every value."""
        return bool(self.complete.all())

    def of_complete(self) -> Support:
        """The support of the balanced curve: its units alone, each at every value."""
        kept = self.units[self.complete[self.units]]
        units = np.unique(kept, return_inverse=True)[1].astype(np.int64)
        return Support(self.columns, units, np.ones(int(units.max()) + 1, dtype=bool))


def support_of(curve: Curve, columns: Sequence[str]) -> Support:
    """Which units, named by ``columns``, are there at every value of a curve."""
    units = unit_codes(curve.measured, columns)
    cells = np.unique(units * len(curve) + curve.codes)
    values = np.bincount(cells // len(curve), minlength=int(units.max()) + 1)
    return Support(tuple(columns), units, values == len(curve))


def balanced(curve: Curve, support: Support) -> Curve:
    """The same curve on the units that are there at every value; there must be some."""
    rows = np.flatnonzero(support.complete[support.units])
    return replace(
        curve,
        measured=curve.measured.take(rows),
        codes=curve.codes[rows],
        clusters=None if curve.clusters is None else curve.clusters[rows],
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
    listed = [f"{names[code]} at {_ranges(curve, ~there[code])}" for code in dropped[:_MOST_NAMED]]
    more = len(dropped) - len(listed)
    text = ""
    if dropped:
        what = "classes" if column == CLASS else f"values of {column}"
        text = (
            f"the mix of {what} changes over {curve.entry}: {len(used) - len(dropped)} of "
            f"{len(used)} are at every value; absent are {', '.join(listed)}"
            + (f" and {more} more" if more else "")
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
    texts = []
    for run in runs:
        first, last = curve.texts[run[0]][0], curve.texts[run[-1]][0]
        texts.append(first if len(run) == 1 else f"{first} to {last}")
    shown = texts[:_MOST_NAMED]
    more = len(texts) - len(shown)
    return " and ".join(shown) + (f" and {more} more runs" if more else "")

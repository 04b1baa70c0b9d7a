"""Flips: how often a unit turns from right to wrong, or back, between neighbouring values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.curves import Curve


@dataclass(frozen=True, eq=False)
class Flips:
    """Steps of units between neighbouring values.

    ``flipped``   bool (steps, models)
    ``clusters``  int64 (steps,): the cluster of the unit, or the unit itself
    """

    flipped: np.ndarray
    clusters: np.ndarray


def flips(curve: Curve, units: np.ndarray) -> Flips:
    """Every step that a unit makes from one value to the next, where it is there at both.

    A unit that has several images at one value cannot be followed, and is refused: which of them
    would be compared with which?
    """
    cells = units * len(curve) + curve.codes
    present, rows, counts = np.unique(cells, return_index=True, return_counts=True)
    if (counts > 1).any():
        several = len(np.unique(present[counts > 1] // len(curve)))
        raise NotApplicable(
            f"{several} units have several images at one value of {curve.entry}",
            fix="name more columns with --balance",
        )
    codes, before, after = present % len(curve), [rows[:0]], [rows[:0]]
    for beside in _neighbours(curve):
        wanted = present - codes + beside[codes]
        place = np.minimum(np.searchsorted(present, wanted), len(present) - 1)
        both = (beside[codes] >= 0) & (present[place] == wanted)
        before.append(rows[both])
        after.append(rows[place[both]])
    old, new = np.concatenate(before), np.concatenate(after)
    if not len(old):
        raise NotApplicable(
            f"no unit is there at two neighbouring values of {curve.entry}",
            fix="name fewer columns with --balance",
        )
    values = curve.measured.values
    together = units if curve.clusters is None else curve.clusters
    return Flips(values[old] != values[new], together[old])


def _neighbours(curve: Curve) -> list[np.ndarray]:
    """Tables (values,) that name for each value one that comes after it, -1 for none.

    One table for a curve or a circle; two for a grid, to the right and below.
    """
    tables: list[np.ndarray] = []
    for a, b in curve.steps:
        free = next((table for table in tables if table[a] < 0), None)
        if free is None:
            free = np.full(len(curve), -1, dtype=np.int64)
            tables.append(free)
        free[a] = b
    return tables

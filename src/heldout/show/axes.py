"""Where values lie on an axis: linear, probit and logit shares, and the values of a column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from heldout.data.testset.columns import ColumnType
from heldout.measure.score.fits import from_axes, to_axes
from heldout.measure.score.slices import number_of
from heldout.show.charts import PERCENT_LABEL, Spec

_TAILS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03)
_TICKS = (
    *_TAILS,
    *(round(0.05 * step, 2) for step in range(1, 20)),
    *(round(1 - tail, 3) for tail in reversed(_TAILS)),
)
_STEPS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
_FEWEST = 4
# Vega expressions that name a position in percent; they hold no text from the data.
_LABELS = {
    "linear": PERCENT_LABEL,
    "probit": "format(100 * cumulativeNormal(datum.value), '.3~g') + ' %'",
    "logit": "format(100 / (1 + exp(-datum.value)), '.3~g') + ' %'",
}
_BAR = 0.38  # how far a bar reaches to the next value
_QUARTERS = 8


def position(fraction: float, axes: str, *, n: int) -> float:
    """Where a fraction of ``n`` images lies; 0 and 1 are drawn half an image inside."""
    return float(to_axes(np.array([fraction]), axes, n=max(n, 1))[0])


def domain(positions: Sequence[float], *, pad: float = 0.06) -> tuple[float, float]:
    """The stretch that holds all positions, with some air; never empty."""
    low, high = min(positions), max(positions)
    air = pad * (high - low) or 0.05
    return low - air, high + air


def ticks(axes: str, low: float, high: float, *, most: int = 10) -> list[float]:
    """Positions of round percentages between ``low`` and ``high``, at most about ``most``."""
    if axes == "linear":
        step = next((s for s in _STEPS if (high - low) / s <= most), 0.25)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        inside = [round(k * step, 6) for k in range(first, last + 1)]
        return [tick for tick in inside if 0 <= tick <= 1]
    positions = [round(float(p), 9) for p in to_axes(np.array(_TICKS), axes)]
    gap = (high - low) / most
    chosen: list[float] = []
    # Round tens first, so that thinning keeps 50, 60, 70 rather than 55, 65, 75.
    order = sorted(
        range(len(_TICKS)), key=lambda i: (round(_TICKS[i] * 100, 3) % 10 != 0, _TICKS[i])
    )
    for i in order:
        if low <= positions[i] <= high and all(abs(positions[i] - c) >= gap for c in chosen):
            chosen.append(positions[i])
    if len(chosen) >= _FEWEST:
        return sorted(chosen)
    # A short stretch: even steps in percent, which the axes hardly bend there.
    ends = from_axes(np.array([low, high]), axes)
    even = np.array(ticks("linear", float(ends[0]), float(ends[1]), most=most))
    shares = even[(even > 0) & (even < 1)]
    return [round(float(p), 9) for p in to_axes(shares, axes) if low <= p <= high]


def tick_axis(axes: str, low: float, high: float, title: str) -> Spec:
    """The Vega-Lite axis: round percentages wherever the transformation puts them."""
    return {"values": ticks(axes, low, high), "labelExpr": _LABELS[axes], "title": title}


@dataclass(frozen=True)
class CurveAxis:
    """Where the values of one column lie.

    Numbers lie at their size, unless the column lists an order of its own. A circular column is
    turned so that it runs from minus half a period to plus half, and its first value is repeated
    one period later.
    """

    values: tuple[str, ...]
    kind: ColumnType
    title: str

    @cached_property
    def places(self) -> dict[str, float] | None:
        """By value: its place; None where values are not numbers."""
        known = {value: size for value in self.values if (size := number_of(value)) is not None}
        if len(known) < len(self.values) or self.kind.order:
            return None
        if not self.period:
            return known
        half = self.period / 2
        turned = {value: (size + half) % self.period - half for value, size in known.items()}
        # A column that names both ends of the circle stays as it is: turned, they would coincide.
        return turned if len(set(turned.values())) == len(turned) else known

    @property
    def period(self) -> float | None:
        """The period of a circular column, else None."""
        return self.kind.period if self.kind.kind == "circular" else None

    @cached_property
    def sizes(self) -> list[float]:
        """The places, ascending; none where values are not numbers."""
        return sorted((self.places or {}).values())

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The stretch of a numeric axis, with room for a bar at each end."""
        if self.period:
            return self.sizes[0], self.sizes[0] + self.period
        first, last = self.bar(self.sizes[0])[0], self.bar(self.sizes[-1])[1]
        return (first, last) if last > first else (self.sizes[0] - 1, self.sizes[0] + 1)

    @property
    def closes(self) -> bool:
        """Whether the curve comes round to its first value."""
        return self.period is not None and self.places is not None

    @property
    def label(self) -> str:
        """The field of :meth:`laid` rows that holds the value as it is written."""
        return "at" if self.places is None else "value_text"

    @property
    def order(self) -> Spec:
        """The channel along which a line runs; none where values are not numbers."""
        return {"order": {"field": "at", "type": "quantitative"}} if self.places else {}

    def bar(self, place: float) -> tuple[float, float]:
        """The stretch of the bar at a place: part of the way to the nearest neighbour."""
        sizes = self.sizes
        if self.period:
            sizes = [sizes[-1] - self.period, *sizes, sizes[0] + self.period]
        reach = _BAR * min((abs(place - other) for other in sizes if other != place), default=1.0)
        return place - reach, place + reach

    def laid(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows with a value in ``at``, each with its place; a circle's first place repeated."""
        if self.places is None:
            return [dict(row) for row in rows]
        found = [{**row, "value_text": row["at"], "at": self.places[row["at"]]} for row in rows]
        if self.closes:
            start, end = self.ends
            known = {(row.get("model"), row["at"]) for row in found}
            found += [
                row | {"at": end}
                for row in found
                if row["at"] == start and (row.get("model"), end) not in known
            ]
        return sorted(found, key=lambda row: row["at"])

    def channel(self) -> Spec:
        """The encoding of the axis, over the field ``at``."""
        axis: Spec = {"title": self.title, "grid": False, "labelAngle": 0, "labelOverlap": True}
        if self.places is None:
            scale: Spec = {"domain": list(self.values)}
            return {"field": "at", "type": "ordinal", "sort": None, "scale": scale, "axis": axis}
        first, last = self.ends
        if self.period:
            step = self.period / _QUARTERS
            marks = [round(step * k, 6) for k in range(-2 * _QUARTERS, 2 * _QUARTERS + 1)]
            axis["values"] = [mark for mark in marks if first <= mark <= last]
        elif len(self.values) <= 12:
            axis["values"] = self.sizes
        scale = {"domain": [first, last], "zero": False, "nice": False}
        return {"field": "at", "type": "quantitative", "scale": scale, "axis": axis}

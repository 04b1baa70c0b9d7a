"""The horizontal axis of a curve: numbers at their places, text in order, circles closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from heldout.data.testset.columns import ColumnType
from heldout.show import theme
from heldout.show.panels import number

_BAR = 0.38  # how far a bar reaches to the next value
_QUARTERS = 8


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
        """By value: its place; None where values are no numbers."""
        numbers = {value: number(value) for value in self.values}
        known = {value: found for value, found in numbers.items() if found is not None}
        if len(known) < len(numbers) or self.kind.order:
            return None
        period = self.period
        turned = (
            {v: (n + period / 2) % period - period / 2 for v, n in known.items()}
            if period
            else known
        )
        # A column that names both ends of the circle stays as it is: turned, they would coincide.
        return turned if len(set(turned.values())) == len(turned) else known

    @property
    def period(self) -> float | None:
        """The period of a circular column, else None."""
        return self.kind.period if self.kind.kind == "circular" else None

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The stretch of a numeric axis, with room for a bar at each end."""
        places = sorted((self.places or {}).values())
        if self.period:
            return places[0], places[0] + self.period
        first, last = self.bar(places[0])[0], self.bar(places[-1])[1]
        return (first, last) if last > first else (places[0] - 1, places[0] + 1)

    @property
    def closes(self) -> bool:
        """Whether the curve comes round to its first value."""
        return self.period is not None and self.places is not None

    def starts_at(self, place: float) -> bool:
        """Whether a place is the first value's."""
        return self.places is not None and place == min(self.places.values())

    def bar(self, place: float) -> tuple[float, float]:
        """The stretch of the bar at a place: part of the way to the nearest neighbour."""
        places = sorted((self.places or {}).values())
        if self.period:
            places = [places[-1] - self.period, *places, places[0] + self.period]
        gaps = [abs(place - other) for other in places if other != place]
        reach = _BAR * min(gaps, default=1.0)
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

    def channel(self) -> theme.Spec:
        """The encoding of the axis, over the field ``at``."""
        axis: theme.Spec = {
            "title": self.title,
            "grid": False,
            "labelAngle": 0,
            "labelOverlap": True,
        }
        if self.places is None:
            return {
                "field": "at",
                "type": "ordinal",
                "sort": None,
                "scale": {"domain": list(self.values)},
                "axis": axis,
            }
        if self.closes and self.period:
            step = self.period / _QUARTERS
            first, last = self.ends
            marks = [round(step * k, 6) for k in range(-2 * _QUARTERS, 2 * _QUARTERS + 1)]
            axis["values"] = [mark for mark in marks if first <= mark <= last]
        elif len(self.values) <= 12:
            axis["values"] = sorted(self.places.values())
        return {
            "field": "at",
            "type": "quantitative",
            "scale": {"domain": list(self.ends), "zero": False, "nice": False},
            "axis": axis,
        }

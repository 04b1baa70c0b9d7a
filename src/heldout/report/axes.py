"""The three kinds of axes on which accuracies are drawn: linear, probit and logit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

AXES = ("linear", "probit", "logit")
_TAILS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03)
_TICKS = (
    *_TAILS,
    *(round(0.05 * step, 2) for step in range(1, 20)),
    *(round(1 - tail, 3) for tail in reversed(_TAILS)),
)


@dataclass(frozen=True, kw_only=True)
class Axes:
    """How a fraction becomes a position, and how the axis names that position in percent.

    ``label`` is a Vega expression over ``datum.value``; it holds no text from the data.
    """

    name: str
    forward: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    inverse: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    label: str

    def position(self, fraction: float, *, n: int) -> float:
        """Where a fraction of ``n`` images lies; 0 and 1 are drawn half an image inside."""
        if self.name == "linear":
            return fraction
        edge = 0.5 / max(n, 1)
        return float(self.forward(np.array([min(max(fraction, edge), 1 - edge)]))[0])


def axes_of(name: str) -> Axes:
    """The axes of that name; probit is the inverse normal distribution function, logit log odds."""
    if name == "probit":
        from scipy.special import ndtr, ndtri

        return Axes(
            name=name,
            forward=lambda x: np.asarray(ndtri(x), dtype=np.float64),
            inverse=lambda x: np.asarray(ndtr(x), dtype=np.float64),
            label="format(100 * cumulativeNormal(datum.value), '.3~g') + ' %'",
        )
    if name == "logit":
        return Axes(
            name=name,
            forward=lambda x: np.log(x) - np.log1p(-x),
            inverse=lambda x: 1 / (1 + np.exp(-x)),
            label="format(100 / (1 + exp(-datum.value)), '.3~g') + ' %'",
        )
    if name == "linear":
        return Axes(
            name=name,
            forward=lambda x: x,
            inverse=lambda x: x,
            label="format(100 * datum.value, '.3~g') + ' %'",
        )
    raise ValueError(f"no axes named {name!r}")


def domain(positions: Sequence[float], *, pad: float = 0.06) -> tuple[float, float]:
    """The stretch that holds all positions, with some air; never empty."""
    low, high = min(positions), max(positions)
    air = pad * (high - low) or 0.05
    return low - air, high + air


def ticks(axes: Axes, low: float, high: float, *, most: int = 8) -> list[float]:
    """Positions of round percentages between ``low`` and ``high``, at most about ``most``."""
    if axes.name == "linear":
        step = next(
            (s for s in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / s <= most), 0.25
        )
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        inside = [round(k * step, 6) for k in range(first, last + 1)]
        return [tick for tick in inside if 0 <= tick <= 1]
    positions = [round(float(p), 9) for p in axes.forward(np.array(_TICKS))]
    gap = (high - low) / most
    chosen: list[float] = []
    # Round tens first, so that thinning keeps 50, 60, 70 rather than 55, 65, 75.
    order = sorted(
        range(len(_TICKS)), key=lambda i: (round(_TICKS[i] * 100, 3) % 10 != 0, _TICKS[i])
    )
    for i in order:
        if low <= positions[i] <= high and all(abs(positions[i] - c) >= gap for c in chosen):
            chosen.append(positions[i])
    return sorted(chosen)


def tick_axis(axes: Axes, low: float, high: float, title: str) -> dict[str, Any]:
    """The Vega-Lite axis: round percentages wherever the transformation puts them."""
    return {"values": ticks(axes, low, high), "labelExpr": axes.label, "title": title}

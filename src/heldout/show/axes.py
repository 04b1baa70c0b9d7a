"""The three kinds of axes on which accuracies are drawn: linear, probit and logit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from heldout.measure.score.fits import from_axes, to_axes

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
    "linear": "format(100 * datum.value, '.3~g') + ' %'",
    "probit": "format(100 * cumulativeNormal(datum.value), '.3~g') + ' %'",
    "logit": "format(100 / (1 + exp(-datum.value)), '.3~g') + ' %'",
}


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


def tick_axis(axes: str, low: float, high: float, title: str) -> dict[str, Any]:
    """The Vega-Lite axis: round percentages wherever the transformation puts them."""
    return {"values": ticks(axes, low, high), "labelExpr": _LABELS[axes], "title": title}

"""Where a curve crosses half of its maximum, with an interval.

The interval inverts a test: x is left out where the curve at x, interpolated, less half of the
curve at its maximum, is surely below (or surely above) zero. It needs no resampling, and where the
data never rule out the far end it stays open there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.stats import SliceMeans, t_quantile

SHARE = 0.5
_STEPS = 60


@dataclass(frozen=True)
class Crossing:
    """The first place where a curve reaches a share of its maximum; limits None where open.

    ``inside`` is False where the curve is there from its first value on; ``varies`` is False where
    all images on both sides of the place agree, so that nothing is known of the spread.
    """

    value: float
    low: float | None
    high: float | None
    inside: bool
    varies: bool = True


def first_crossing(
    numbers: np.ndarray, means: SliceMeans, column: int, *, level: float, share: float = SHARE
) -> Crossing | None:
    """The first value at which the curve reaches ``share`` of its maximum, linearly interpolated.

    ``numbers`` (values,) rise or fall. None where the curve is 0 everywhere.
    """
    curve = means.value[:, column]
    top = int(curve.argmax())
    if curve[top] <= 0:
        return None
    gaps = curve - share * curve[top]
    end = int(np.argmax(gaps >= 0))
    value = float(numbers[0]) if end == 0 else _root(numbers, end, gaps[end - 1], gaps[end])
    weights = -share * np.eye(len(curve))[top] + np.eye(len(curve))
    degrees = float(means.contrast(weights[end]).degrees[column])
    quantile = float(t_quantile(level, degrees))
    covariance = means.covariance[column]

    def limit(place: int, part: float, sign: float) -> float:
        """The upper (sign 1) or lower (-1) limit of the gap, ``part`` of the way to ``place``."""
        w = part * weights[place] + (1 - part) * weights[max(place - 1, 0)]
        return float(w @ curve + sign * quantile * np.sqrt(max(w @ covariance @ w, 0.0)))

    def reached(sign: float) -> float | None:
        ends = [limit(place, 1.0, sign) >= 0 for place in range(len(curve))]
        if not any(ends):
            return None
        place = ends.index(True)
        if place == 0:
            return float(numbers[0])
        below, above = 0.0, 1.0
        for _ in range(_STEPS):
            middle = 0.5 * (below + above)
            if limit(place, middle, sign) >= 0:
                above = middle
            else:
                below = middle
        return float(numbers[place - 1] + above * (numbers[place] - numbers[place - 1]))

    beside = [weights[place] for place in (max(end - 1, 0), end)]
    if max(float(w @ covariance @ w) for w in beside) <= 0.0:
        return Crossing(value, None, None, end > 0, varies=False)
    low, high = reached(1.0), reached(-1.0)
    if numbers[-1] < numbers[0]:
        low, high = high, low
    return Crossing(value, low, high, end > 0)


def _root(numbers: np.ndarray, end: int, before: float, after: float) -> float:
    part = -before / (after - before)
    return float(numbers[end - 1] + part * (numbers[end] - numbers[end - 1]))

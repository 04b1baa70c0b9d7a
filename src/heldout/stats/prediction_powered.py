"""A mean of answers of which few are known, helped by a prediction of every one of them.

The population is finite: pairs that somebody could review. Some are drawn and reviewed; a number in
[0, 1] predicts each of them, well or badly. The estimate is the mean of the predictions, corrected by
what the reviewed ones show of their errors (the difference estimator of Cassel, Särndal and Wretman
1976; prediction-powered inference of Angelopoulos et al. 2023, with the power tuned as in their
PPI++). Bad predictions cost width, not truth.

Pairs are drawn in an order that is fixed from the start (priority sampling, Duffield, Lund and
Thorup 2007): each has a size ``a`` and a number ``u`` in [0, 1), and the smallest ``u / a`` comes
first. Whoever stops after any number of answers has a sample in which a pair's chance, given the
order of all others, is ``min(1, a t)``, with ``t`` the ``u / a`` of the first pair left out. So
pairs that matter more come earlier, more answers only add to the sample, and nobody has to say in
advance how many there will be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import FloatArray, Interval, check_level, t_quantile

_STEPS = 60
_FARTHEST = 40.0
_SURE = 1e-3


@dataclass(frozen=True)
class Powered:
    """A weighted mean over a finite population, from a sample of it.

    ``value``           the estimate, within what is possible
    ``interval``        where the mean over the whole population lies; a point when all is known
    ``n``, ``of``       how many of the population were drawn
    ``power``           the slope of the answers on the predictions: 0 when these say nothing
    ``fitted``          (population,): the answers that the estimate expects, in [0, 1]
    """

    value: float
    interval: Interval
    n: int
    of: int
    power: float
    fitted: FloatArray


def drawing_order(uniform: npt.ArrayLike, sizes: npt.ArrayLike) -> FloatArray:
    """The key of each of a population: who has the smallest is drawn first.

    ``uniform`` (n,) in [0, 1), independent; ``sizes`` (n,) above 0, of any scale.
    """
    return np.asarray(uniform, dtype=np.float64) / np.asarray(sizes, dtype=np.float64)


def drawing_chances(sizes: npt.ArrayLike, threshold: float) -> FloatArray:
    """The chance of each to be drawn before the key ``threshold``; 1 where it is infinite."""
    a = np.asarray(sizes, dtype=np.float64)
    if np.isinf(threshold):
        return np.ones(len(a))
    return np.minimum(1.0, a * threshold)


def prediction_powered(
    observed: npt.ArrayLike,
    predicted: npt.ArrayLike,
    chances: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> Powered:
    """The weighted mean of answers in [0, 1] over a population, with an interval.

    ``observed``   (n,): the answer of each that was drawn, NaN for the others
    ``predicted``  (n,) in [0, 1]: made without looking at the answers of this sample
    ``chances``    (n,) in (0, 1]: how likely each was to be drawn; see :func:`drawing_chances`
    ``weights``    (n,), equal by default

    The interval inverts a test, as Wilson's does: a mean is kept if the estimate is no farther from
    it than chance allows, where chance is the larger of what the residuals show and what answers
    would do that have this mean. So a handful of equal answers gives a wide interval, not a point.

    >>> answers = np.array([1.0, 0.0, 1.0, 1.0, np.nan, np.nan, np.nan, np.nan])
    >>> found = prediction_powered(answers, np.full(8, 0.5), np.full(8, 0.5))
    >>> found.value, found.n, round(found.interval.low, 2), round(found.interval.high, 2)
    (0.75, 4, 0.38, 0.88)
    """
    check_level(level)
    y, f, p = (np.asarray(part, dtype=np.float64) for part in (observed, predicted, chances))
    if not ((p > 0) & (p <= 1)).all():
        raise ValueError("chances must be above 0 and at most 1")
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    q = w / w.sum()
    drawn = ~np.isnan(y)
    known = np.where(drawn, y, 0.0)
    least = float(q @ known)
    most = min(1.0, least + float(q[~drawn].sum()))
    if drawn.all():
        exact = Interval(least, least, "complete", level)
        return Powered(least, exact, len(y), len(y), 1.0, known)
    chance = drawn & (p < 1.0)
    if not chance.any():
        raise NotApplicable(
            "none of the answers says anything about the rest",
            fix="answer more, from the head of the queue",
        )
    spread = np.square(q) * (1.0 - p) / np.square(p)
    power, base = _slope(y[chance], f[chance], spread[chance])
    fitted = base + power * f
    value = float(q @ fitted + (q[drawn] / p[drawn]) @ (y[drawn] - fitted[drawn]))
    value = min(max(value, least), most)
    count = int(chance.sum())
    free = 2 if power > 0.0 else 1
    residual = spread[chance] @ np.square(y[chance] - fitted[chance])
    variance = float(residual) * count / max(count - free, 1)
    effective = float(spread[chance].sum() ** 2 / np.square(spread[chance]).sum())
    seen = float(t_quantile(level, max(effective - free, 1.0))) * float(np.sqrt(variance))
    low, high = _limits(value, seen, f, p, q, min(power, 1.0), level)
    interval = Interval(
        min(max(low, least), value), max(min(high, most), value), "prediction-powered", level
    )
    filled = np.where(drawn, known, np.clip(fitted, 0.0, 1.0))
    return Powered(value, interval, int(drawn.sum()), len(y), power, filled)


def _slope(y: FloatArray, f: FloatArray, spread: FloatArray) -> tuple[float, float]:
    """Slope and constant of answers on predictions, weighted as they enter the variance.

    A slope below zero is no help to be trusted. With few answers the slope is drawn towards zero,
    since its own error would not show in the residuals.
    """
    share = spread / spread.sum()
    mean_y, mean_f = float(share @ y), float(share @ f)
    across = float(share @ ((f - mean_f) * (y - mean_y)))
    along = float(share @ np.square(f - mean_f))
    slope = 0.0 if along <= 1e-12 else max(across / along, 0.0)
    slope *= len(y) / (len(y) + 10.0)
    return slope, mean_y - slope * mean_f


def _limits(
    value: float,
    seen: float,
    f: FloatArray,
    p: FloatArray,
    q: FloatArray,
    power: float,
    level: float,
) -> tuple[float, float]:
    """The least and the greatest mean from which ``value`` is no farther than chance allows."""
    from scipy.special import expit, logit

    z = float(t_quantile(level, None))
    base = logit(np.clip(f, _SURE, 1.0 - _SURE))
    rest = np.square(q) * (1.0 - p) / p

    def mean_and_reach(shift: float) -> tuple[float, float]:
        moved = expit(base + shift)
        mean = float(q @ moved)
        answers = (1.0 - power) * mean + power * moved
        noise = max(float(rest @ (answers * (1.0 - answers))), 0.0)
        return mean, max(seen, z * float(np.sqrt(noise)))

    def limit(sign: float) -> float:
        kept, left = -_FARTHEST * sign, _FARTHEST * sign
        for _ in range(_STEPS):
            middle = (kept + left) / 2.0
            mean, reach = mean_and_reach(middle)
            kept, left = (middle, left) if sign * (mean - value) <= reach else (kept, middle)
        return mean_and_reach(left)[0]

    return limit(-1.0), limit(1.0)

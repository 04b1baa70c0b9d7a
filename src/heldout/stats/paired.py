"""Two models, right or wrong on the same images: McNemar's test and Tango's interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import FloatArray, Interval, normal_quantile, scalar_or_array


@dataclass(frozen=True)
class PairedDifference:
    """The mean of ``a - b`` over images, its interval, and the two-sided p of no difference.

    Floats for one pair, arrays of one shape for many.
    """

    difference: Any
    interval: Interval
    p: Any


def mcnemar_exact(
    only_a: npt.ArrayLike,
    only_b: npt.ArrayLike,
    *,
    mid_p: bool = False,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> Any:
    """McNemar's (1947) exact p: could the images that only one model gets right be a coin toss?

    ``only_a`` and ``only_b`` count the images that only model a, only model b, gets right; scalars
    give a float, arrays give an array. Two-sided: ``min(1, 2 P(X <= min))`` for X binomial with
    probability one half; ``greater``: ``P(X >= only_a)``, for a better than b. ``mid_p`` counts
    half of the observed outcome: closer to its level, no longer guaranteed. No disagreement at
    all gives 1.

    >>> round(mcnemar_exact(1, 9), 6)
    0.021484
    >>> round(mcnemar_exact(1, 9, mid_p=True), 6)
    0.011719
    """
    a, b = np.broadcast_arrays(
        np.asarray(only_a, dtype=np.float64), np.asarray(only_b, dtype=np.float64)
    )
    n = a + b
    # One-sided: P(X >= a) = P(n - X <= b)
    k, share = (b, 1.0) if alternative == "greater" else (np.minimum(a, b), 2.0)
    tail = _half_tail(k, n)
    if mid_p:
        tail = tail - 0.5 * _half_mass(k, n)
    return scalar_or_array(np.minimum(share * tail, 1.0))


def _half_tail(k: FloatArray, n: FloatArray) -> FloatArray:
    """``P(X <= k)`` for X binomial (n, 1/2); exactly 1 at ``k = n``."""
    from scipy.special import betainc

    every = k >= n
    inside = betainc(np.where(every, 1.0, n - k), k + 1.0, 0.5)
    return np.where(every, 1.0, inside)


def _half_mass(k: FloatArray, n: FloatArray) -> FloatArray:
    """``P(X = k)`` for X binomial (n, 1/2)."""
    from scipy.special import gammaln

    log = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0) - n * np.log(2.0)
    mass: FloatArray = np.exp(log)
    return mass


def paired_difference(
    only_a: npt.ArrayLike, only_b: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95
) -> Interval:
    """Tango's (1998) score interval for the difference of two accuracies on the same ``n`` images.

    The difference is ``(only_a - only_b) / n``; images on which the models agree count only in
    ``n``. The limits are the differences whose score statistic, with the disagreement estimated
    under that difference, equals the normal quantile. Scalars or arrays that broadcast.

    >>> interval = paired_difference(1, 7, 21)  # the first example of Fagerland et al. 2014
    >>> round(interval.low, 3), round(interval.high, 3)
    (-0.517, -0.026)
    """
    a, b, total = np.broadcast_arrays(
        *(np.asarray(count, dtype=np.float64) for count in (only_a, only_b, n))
    )
    if (total == 0).any():
        raise NotApplicable("a difference on no images has no interval", fix="leave out n = 0")
    if (a < 0).any() or (b < 0).any() or (a + b > total).any():
        raise ValueError("counts must satisfy only_a, only_b >= 0 and only_a + only_b <= n")
    z = normal_quantile(level)
    centre = (a - b) / total
    low = _tango_root(a, b, total, z, -np.ones_like(centre), centre)
    high = -_tango_root(b, a, total, z, -np.ones_like(centre), -centre)
    return Interval(scalar_or_array(low), scalar_or_array(high), "tango", level)


def accuracy_difference(
    only_a: npt.ArrayLike, only_b: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95
) -> PairedDifference:
    """The difference of two accuracies with Tango's interval and McNemar's mid-p, which agree.

    Near 0 the two may disagree by a hair: the one counts half of the observed outcome, the other
    takes the binomial for a normal. The test then decides. Where it does not reject, the interval
    reaches to 0; where it rejects and Tango's limit lies beyond 0, the limit nearer to 0 is that of
    the mid-p test of the images on which the models disagree.

    >>> found = accuracy_difference(1, 9, 100)
    >>> round(found.p, 4), round(found.interval.low, 3), round(found.interval.high, 3)
    (0.0117, -0.154, -0.023)
    """
    a, b, total = np.broadcast_arrays(
        *(np.asarray(count, dtype=np.float64) for count in (only_a, only_b, n))
    )
    tango = paired_difference(a, b, total, level=level)
    p = np.asarray(mcnemar_exact(a, b, mid_p=True))
    rejected, turned = p < 1.0 - level, a < b
    near = np.where(turned, -np.asarray(tango.high), tango.low)
    near = np.where(rejected, near, np.minimum(near, 0.0))
    if (beyond := rejected & (near <= 0)).any():
        more, fewer = np.maximum(a, b), np.minimum(a, b)
        share = _mid_p_limit(more[beyond], fewer[beyond], (1.0 - level) / 2.0)
        near[beyond] = (2.0 * share - 1.0) * (more + fewer)[beyond] / total[beyond]
    low, high = np.where(turned, tango.low, near), np.where(turned, -near, tango.high)
    limits = Interval(scalar_or_array(low), scalar_or_array(high), "tango", level)
    return PairedDifference(scalar_or_array((a - b) / total), limits, scalar_or_array(p))


def _mid_p_limit(k: FloatArray, rest: FloatArray, tail: float) -> FloatArray:
    """The share at which ``k`` or more of ``k + rest``, ``k`` itself by half, has ``tail``."""
    from scipy.special import betainc

    low, high = np.full(k.shape, 0.5), np.ones(k.shape)
    for _ in range(60):
        middle = 0.5 * (low + high)
        more = np.where(rest > 0, betainc(k + 1.0, np.maximum(rest, 1.0), middle), 0.0)
        above = 0.5 * (betainc(k, rest + 1.0, middle) + more) < tail
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def _tango_root(
    a: FloatArray, b: FloatArray, n: FloatArray, z: float, low: FloatArray, high: FloatArray
) -> FloatArray:
    """The difference in [low, high] at which the score falls to ``z``, by bisection.

    The score falls as the difference grows, so ``score > z`` means: look higher.
    """
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = _tango_score(a, b, n, middle) > z
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return high


def _tango_score(a: FloatArray, b: FloatArray, n: FloatArray, difference: FloatArray) -> FloatArray:
    """Tango's statistic; the nuisance root is the restricted estimate of ``P(only b)``."""
    linear = -a - b + (2.0 * n - a + b) * difference
    constant = -b * difference * (1.0 - difference)
    root = np.sqrt(np.maximum(linear * linear - 8.0 * n * constant, 0.0))
    # The stable form of (root - linear) / 4n: no cancellation where linear > 0.
    stable = np.where(
        linear > 0,
        -2.0 * constant / np.where(linear > 0, linear + root, 1.0),
        (root - linear) / (4.0 * n),
    )
    variance = n * (2.0 * np.maximum(stable, 0.0) + difference * (1.0 - difference))
    gap = a - b - n * difference
    certain = np.where(gap > 0, np.inf, np.where(gap < 0, -np.inf, 0.0))
    return np.where(variance > 0, gap / np.sqrt(np.where(variance > 0, variance, 1.0)), certain)

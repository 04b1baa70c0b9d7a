"""Intervals: of proportions (Wilson, Clopper-Pearson), from replicates, from a standard error.

Wilson is the default everywhere: its coverage stays close to the level from a handful of images to
fifty thousand. Clopper-Pearson never falls below the level and pays for it with width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, UserError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """Where the true value lies, at ``level``, by ``method``.

    ``low`` and ``high`` are floats for one value and arrays of one shape for many; their type is
    ``Any`` because which of the two it is follows from the data, not from the call.
    """

    low: Any
    high: Any
    method: str
    level: float

    @property
    def width(self) -> Any:
        """``high - low``."""
        return self.high - self.low

    def at(self, index: int) -> Interval:
        """The interval of one of many values."""
        return Interval(float(self.low[index]), float(self.high[index]), self.method, self.level)


def check_level(level: float) -> float:
    """``level`` if it is a confidence level: above 0 and below 1."""
    if not 0.0 < level < 1.0:
        raise UserError(f"a confidence level of {level}", fix="give a fraction such as 0.95")
    return float(level)


def normal_quantile(level: float) -> float:
    """The half-width of a two-sided normal interval in standard errors.

    >>> round(normal_quantile(0.95), 6)
    1.959964
    """
    # From the small tail: 1 - tail would lose the digits that simultaneous levels live on.
    return -NormalDist().inv_cdf((1.0 - check_level(level)) / 2.0)


def scalar_or_array(value: npt.ArrayLike) -> Any:
    """A float for a zero-dimensional result, else the array."""
    array = np.asarray(value, dtype=np.float64)
    return float(array) if array.ndim == 0 else array


def check_counts(k: npt.ArrayLike, n: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """``k`` and ``n`` as float arrays of one shape, with ``0 <= k <= n`` and ``n > 0``."""
    hits, trials = np.broadcast_arrays(
        np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    )
    if not (np.isfinite(hits).all() and np.isfinite(trials).all()):
        raise ValueError("counts must be finite numbers")
    if (trials == 0).any():
        raise NotApplicable(
            "a proportion of no images has no interval", fix="leave out slices with n = 0"
        )
    if (hits < 0).any() or (hits > trials).any():
        raise ValueError("counts must satisfy 0 <= k <= n")
    return hits, trials


def wilson_limits(
    p: npt.ArrayLike, n: npt.ArrayLike, quantile: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """The two roots of ``|p - x| = quantile * sqrt(x (1 - x) / n)``, inside [0, 1].

    ``n`` may be an effective number of images, and ``quantile`` one of Student's t.
    """
    p, n = np.asarray(p, dtype=np.float64), np.asarray(n, dtype=np.float64)
    z2 = np.square(np.asarray(quantile, dtype=np.float64)) / n
    centre = (p + z2 / 2.0) / (1.0 + z2)
    half = np.sqrt(z2 * (p * (1.0 - p) + z2 / 4.0)) / (1.0 + z2)
    # The roots at p = 0 and p = 1 are exact; rounding must not move them, nor push p outside.
    low = np.where(p <= 0.0, 0.0, np.minimum(np.maximum(centre - half, 0.0), p))
    high = np.where(p >= 1.0, 1.0, np.maximum(np.minimum(centre + half, 1.0), p))
    return low, high


def wilson(k: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """The score interval of Wilson (1927) for ``k`` right of ``n``.

    ``k`` and ``n`` are scalars (floats come back) or arrays that broadcast (arrays come back).

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4902, 0.9433)
    >>> wilson([0, 10], 10).low.round(4).tolist()
    [0.0, 0.7225]
    """
    hits, trials = check_counts(k, n)
    low, high = wilson_limits(hits / trials, trials, normal_quantile(level))
    return Interval(scalar_or_array(low), scalar_or_array(high), "wilson", level)


def clopper_pearson(k: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """The exact interval of Clopper and Pearson (1934) for ``k`` right of ``n``.

    Coverage is never below ``level``. Quantiles of the beta distribution, with 0 at ``k = 0`` and
    1 at ``k = n``, where those quantiles do not exist.

    >>> interval = clopper_pearson(8, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4439, 0.9748)
    >>> clopper_pearson(10, 10).high
    1.0
    """
    hits, trials = check_counts(k, n)
    tail = (1.0 - check_level(level)) / 2.0
    low, high = clopper_pearson_limits(hits, trials, tail, tail)
    return Interval(scalar_or_array(low), scalar_or_array(high), "clopper-pearson", level)


def clopper_pearson_limits(
    hits: FloatArray, trials: FloatArray, low_tail: float, high_tail: float
) -> tuple[FloatArray, FloatArray]:
    """One-sided exact limits, each with its own tail probability."""
    from scipy.special import betaincinv

    none, every = hits <= 0, hits >= trials
    # The stand-in counts keep the unused branch free of NaN.
    low = np.where(none, 0.0, betaincinv(np.where(none, 1.0, hits), trials - hits + 1.0, low_tail))
    # The upper limit through the mirrored problem: accurate for tiny tails.
    high = np.where(
        every,
        1.0,
        1.0 - betaincinv(np.where(every, 1.0, trials - hits), hits + 1.0, high_tail),
    )
    return low, high


_CORRELATIONS = np.linspace(-9.0, 4.0, 24)  # on the logit
_PLACES = np.linspace(-3.5, 3.5, 11)[:, None]  # of the mean, in standard errors


def clustered_proportion(
    value: FloatArray,
    hits: FloatArray,
    sizes: FloatArray,
    *,
    alone: float,
    together: float,
    level: float = 0.95,
) -> Interval:
    """Limits of means ``value`` (columns,) of values from 0 to 1 in few clusters.

    ``hits`` (clusters, columns) are sums over clusters of ``sizes`` (clusters,) images. ``alone`` is
    the sum of the squares of images' parts in the mean, ``together`` that of clusters' parts: with a
    correlation r inside clusters the mean knows as much as ``1 / ((1 - r) alone + r together)`` images
    drawn one by one. How strong r is, few clusters do not tell: every r counts by the likelihood of
    the hits were they beta-binomial (prior ``r ** -0.5``), and the limits are those of the mixture of
    Jeffreys' binomial limits.
    """
    from scipy.special import betainc, betaln, expit

    tail = (1.0 - check_level(level)) / 2.0
    r = expit(_CORRELATIONS)
    clusters = len(sizes)
    trials = 1.0 / ((1.0 - r) * alone + r * together * clusters / (clusters - 1.0))
    # On the scale of the arc sine the mean's error is the same everywhere, and Jeffreys' prior even.
    step = 0.5 / np.sqrt(trials)
    weight = np.empty((len(value), len(r)))
    for column, k in enumerate(hits.T):
        angle = np.arcsin(np.sqrt(value[column])) + _PLACES * step
        mean = np.square(np.sin(np.clip(angle, 1e-4, np.pi / 2 - 1e-4)))
        a, b = (part * (1.0 / r - 1.0) for part in (mean, 1.0 - mean))
        fits = betaln(a[..., None] + k, b[..., None] + (sizes - k)) - betaln(a, b)[..., None]
        logs = np.where((angle > 0) & (angle < np.pi / 2), fits.sum(axis=-1), -np.inf)
        weight[column] = np.exp(logs - logs.max()).sum(axis=0) * step * np.sqrt(r) * (1.0 - r)
    weight /= weight.sum(axis=1, keepdims=True)
    counts = value[:, None] * trials

    def limit(share: float) -> FloatArray:
        below, above = np.zeros(len(value)), np.ones(len(value))
        for _ in range(17):
            middle = 0.5 * (below + above)
            at = betainc(counts + 0.5, trials - counts + 0.5, middle[:, None])
            short = (at * weight).sum(axis=1) < share
            below, above = np.where(short, middle, below), np.where(short, above, middle)
        return np.asarray(below)

    low, high = np.minimum(limit(tail), value), np.maximum(limit(1.0 - tail), value)
    return Interval(low, high, "beta-binomial", level)


Method = Literal["percentile", "t", "wilson", "studentised"]


class Bounded(NamedTuple):
    """A value and its limits."""

    value: float
    low: float
    high: float


def square_and_add(one: Bounded, other: Bounded) -> tuple[float, float]:
    """The limits of ``one − other``, two values that share no images.

    Newcombe's (1998) method 10: each side takes the distance to the nearer end of one interval and to
    the farther end of the other, ``d − √((p₁−l₁)² + (u₂−p₂)²)`` and ``d + √((u₁−p₁)² + (p₂−l₂)²)``.

    >>> low, high = square_and_add(Bounded(0.8, 0.7, 0.9), Bounded(0.5, 0.5, 0.5))
    >>> round(low, 3), round(high, 3)
    (0.2, 0.4)
    """
    difference = one.value - other.value
    low = difference - math.hypot(one.value - one.low, other.high - other.value)
    high = difference + math.hypot(one.high - one.value, other.value - other.low)
    return low, high


def t_quantile(level: float, degrees_of_freedom: npt.ArrayLike | None) -> Any:
    """The half-width of a two-sided t interval in standard errors; normal without degrees.

    >>> round(t_quantile(0.95, 19), 4)
    2.093
    """
    from scipy.special import ndtri, stdtrit

    tail = (1.0 - check_level(level)) / 2.0
    if degrees_of_freedom is None:
        return float(-ndtri(tail))
    return scalar_or_array(-stdtrit(degrees_of_freedom, tail))


def interval_from_replicates(
    estimate: npt.ArrayLike,
    replicates: npt.ArrayLike,
    *,
    level: float = 0.95,
    method: Method = "percentile",
    bounds: tuple[float, float] | None = None,
    units: float | None = None,
    degrees_of_freedom: npt.ArrayLike | None = None,
    standard_error: npt.ArrayLike | None = None,
    student: npt.ArrayLike | None = None,
) -> Interval:
    """An interval from ``estimate`` () or (columns,) and ``replicates`` (B,) or (B, columns).

    - ``percentile``: quantiles of the replicates.
    - ``t``: estimate ± t × standard error, the standard deviation of the replicates unless given.
    - ``wilson``: Wilson's interval between ``bounds``, with the number of images that would give
      this standard error, ``p (1 - p) / se^2``, and a quantile of t.
    - ``studentised`` (bootstrap-t): quantiles of ``student``, the t value of each replicate.

    Where nothing varies, replicates say nothing. With ``bounds`` and ``units``, the limits then
    allow for the share ``u = 1 - ((1 - level) / 2) ** (1 / units)`` that may differ and was never
    drawn: ``estimate - u (estimate - least)`` to ``estimate + u (greatest - estimate)``; for a
    proportion of 0 or 1 that is Clopper-Pearson.

    >>> draws = np.linspace(0.4, 0.6, 1001)
    >>> interval = interval_from_replicates(0.5, draws)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.405, 0.595)
    """
    tail = (1.0 - check_level(level)) / 2.0
    value = np.asarray(estimate, dtype=np.float64)
    draws = np.asarray(replicates, dtype=np.float64)
    if not np.isfinite(draws).all():
        raise ValueError("replicates must be finite: the statistic fails on some resamples")
    if standard_error is None:
        error = draws.std(axis=0, ddof=1)
    else:
        error = np.asarray(standard_error, dtype=np.float64)
    if method == "percentile":
        low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    elif method == "t":
        half = t_quantile(level, degrees_of_freedom) * error
        low, high = value - half, value + half
    elif method == "studentised":
        upper, lower = np.quantile(np.asarray(student), [tail, 1.0 - tail], axis=0)
        # Quantiles of one sign come only from a handful of replicates; the estimate stays inside.
        low = value - np.maximum(lower, 0.0) * error
        high = value - np.minimum(upper, 0.0) * error
    else:
        quantile = t_quantile(level, degrees_of_freedom)
        low, high = _bounded(value, error, bounds or (0.0, 1.0), quantile)
    low, high = np.asarray(low), np.asarray(high)
    if bounds is not None:
        if units is not None:
            if method == "studentised":
                limits = _one_trial_per_unit(value, bounds, units, tail)
                low, high = np.maximum(low, limits[0]), np.minimum(high, limits[1])
            low, high = _with_unseen(value, error, low, high, bounds, tail ** (1.0 / units))
        low, high = np.clip(low, *bounds), np.clip(high, *bounds)
    return Interval(scalar_or_array(low), scalar_or_array(high), method, level)


def interval_from_error(
    value: npt.ArrayLike,
    standard_error: npt.ArrayLike,
    *,
    quantile: npt.ArrayLike,
    level: float = 0.95,
    bounds: tuple[float, float] | None = None,
    units: npt.ArrayLike | None = None,
    tail: float | None = None,
) -> Interval:
    """An interval from a value and its standard error alone, both () or (columns,).

    ``value ± quantile × standard_error``; between ``bounds`` Wilson's interval with the number of
    images that would give this standard error. Where nothing varies, limits as in
    :func:`interval_from_replicates` allow for what ``units`` draws may have missed, each with
    probability ``tail``: half of ``1 - level`` unless given.

    >>> interval = interval_from_error(0.8, 0.04, quantile=1.96, bounds=(0.0, 1.0))
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.711, 0.867)
    """
    centre = np.asarray(value, dtype=np.float64)
    error = np.asarray(standard_error, dtype=np.float64)
    if bounds is None:
        half = np.asarray(quantile) * error
        return Interval(scalar_or_array(centre - half), scalar_or_array(centre + half), "t", level)
    low, high = _bounded(centre, error, bounds, quantile)
    if units is not None:
        missed = (1.0 - check_level(level)) / 2.0 if tail is None else tail
        kept = missed ** (1.0 / np.asarray(units, dtype=np.float64))
        low, high = _with_unseen(centre, error, low, high, bounds, kept)
    return Interval(scalar_or_array(low), scalar_or_array(high), "wilson", level)


def _with_unseen(
    value: FloatArray,
    error: FloatArray,
    low: FloatArray,
    high: FloatArray,
    bounds: tuple[float, float],
    kept: Any,
) -> tuple[FloatArray, FloatArray]:
    """Limits; where nothing varies, those of a share ``1 - kept`` that was never drawn."""
    least = value - (1.0 - kept) * (value - bounds[0])
    most = value + (1.0 - kept) * (bounds[1] - value)
    return np.where(error > 0, low, least), np.where(error > 0, high, most)


def _one_trial_per_unit(
    value: FloatArray, bounds: tuple[float, float], units: float, tail: float
) -> tuple[FloatArray, FloatArray]:
    """Exact limits as if each unit were a single trial: the worst that clustering can do.

    Bootstrap-t loses all sense of scale where many replicates do not vary at all (one wrong image
    in twenty clusters); values within ``bounds`` cannot vary more than this.
    """
    least, width = bounds[0], bounds[1] - bounds[0]
    p = np.clip((value - least) / width, 0.0, 1.0)
    low, high = clopper_pearson_limits(p * units, np.full_like(p, units), tail, tail)
    return least + width * low, least + width * high


def _bounded(
    value: FloatArray,
    error: FloatArray,
    bounds: tuple[float, float],
    quantile: Any,
) -> tuple[FloatArray, FloatArray]:
    """Limits between ``bounds``; where nothing varies, the value itself."""
    least, width = bounds[0], bounds[1] - bounds[0]
    p = np.clip((value - least) / width, 0.0, 1.0)
    varies = (error > 0) & (p > 0) & (p < 1)
    inside = np.where(varies, p, 0.5)
    spread = np.where(varies, error / width, 1.0)
    room = inside * (1.0 - inside)
    low, high = wilson_limits(inside, room / np.square(spread), quantile)
    return (
        least + width * np.where(varies, low, p),
        least + width * np.where(varies, high, p),
    )

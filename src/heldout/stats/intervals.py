"""Intervals for plain proportions: ``k`` images right of ``n``.

Wilson is the default everywhere: its coverage stays close to the level from a handful of images to
fifty thousand. Clopper-Pearson never falls below the level and pays for it with width.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

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

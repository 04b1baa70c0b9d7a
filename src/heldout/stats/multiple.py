"""Many numbers at once: adjusted p values, simultaneous levels, the worst slice, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.bootstrap import design
from heldout.stats.intervals import (
    FloatArray,
    Interval,
    check_level,
    clopper_pearson,
)
from heldout.stats.paired import mcnemar_exact


def holm(p: npt.ArrayLike) -> FloatArray:
    """Holm's (1979) adjusted p values (m,): none false with probability ``1 - alpha``.

    Reject where the adjusted value is at most alpha. Valid under any dependence.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def simultaneous_level(level: float, count: int) -> float:
    """The level of each of ``count`` intervals so that all hold together at ``level``.

    Bonferroni: ``1 - (1 - level) / count``, under any dependence.

    >>> round(simultaneous_level(0.95, 10), 6)
    0.995
    """
    check_level(level)
    if count < 1:
        raise NotApplicable("a simultaneous level over nothing", fix="give at least one slice")
    return 1.0 - (1.0 - level) / count


def max_t(estimate: npt.ArrayLike, replicates: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """Simultaneous intervals for ``estimate`` (columns,) from shared replicates (B, columns).

    ``estimate ± c × standard error``, with ``c`` the ``level`` quantile over replicates of the
    largest ``|replicate - estimate| / standard error`` among columns: narrower than Bonferroni
    where columns move together, as models on the same images do. Columns that never vary get no
    width.

    >>> draws = np.random.default_rng(0).normal(size=(1000, 3))
    >>> interval = max_t(np.zeros(3), draws)
    >>> bool((interval.high > 1.96).all())
    True
    """
    check_level(level)
    centre = np.asarray(estimate, dtype=np.float64)
    draws = np.asarray(replicates, dtype=np.float64)
    error = np.sqrt(np.square(draws - centre).mean(axis=0))
    scaled = np.abs(draws - centre) / np.where(error > 0, error, 1.0)
    critical = np.quantile(scaled.max(axis=1), level)
    return Interval(centre - critical * error, centre + critical * error, "max-t", level)


@dataclass(frozen=True)
class WorstSlice:
    """The slice with the lowest accuracy, and what can be said after looking at all of them.

    ``index`` is its position in the input, ``value`` its accuracy, ``interval`` that of its true one.
    """

    index: int
    value: float
    interval: Interval


def worst_slice_interval(k: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95) -> WorstSlice:
    """The worst of many slices, with an interval that stays honest after the search.

    ``k`` right of ``n`` images in each slice (slices,); slices may overlap. Leave out slices of few
    images before: some of these are always at zero. Ties go to the slice with more images, then to
    the earlier one.

    Its limits are exact (Clopper-Pearson), each tail divided by the number of slices.

    >>> worst = worst_slice_interval([80, 75, 18], [100, 100, 20])
    >>> worst.index, worst.value
    (1, 0.75)
    >>> round(worst.interval.low, 3), round(worst.interval.high, 3)
    (0.632, 0.846)
    """
    hits, trials = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if hits.size == 0:
        raise NotApplicable("no slice to compare", fix="lower the minimum n of a slice")
    values = hits / trials
    best = int(np.lexsort((-trials, values))[0])
    shared = simultaneous_level(level, len(hits))
    limits = clopper_pearson(hits[best], trials[best], level=shared)
    found = Interval(limits.low, limits.high, "bonferroni-clopper-pearson", level)
    return WorstSlice(best, float(values[best]), found)


_ROWS = 1 << 20  # float32 counts are exact up to 2^24; a block of rows stays below that
_DRAWS = 5000


@dataclass(frozen=True)
class Ranks:
    """Models in the order given; rank 1 is the best.

    ``low`` and ``high`` bound the rank: with probability ``level``, every model's true rank lies
    in its interval. ``better[i, j]`` says that model i is better than model j beyond doubt.
    """

    names: tuple[str, ...]
    value: FloatArray
    rank: npt.NDArray[np.intp]
    low: npt.NDArray[np.intp]
    high: npt.NDArray[np.intp]
    better: npt.NDArray[np.bool_]
    method: str
    level: float


def rank_intervals(
    correct: npt.ArrayLike,
    names: Sequence[str],
    *,
    level: float = 0.95,
    clusters: npt.ArrayLike | None = None,
    method: Literal["holm", "max-t"] = "holm",
    rng: np.random.Generator | None = None,
) -> Ranks:
    """Ranks by mean of ``correct`` (n, models), highest first, with simultaneous intervals.

    Equal means: the name that comes first in ascending order gets the better rank. A model's rank
    is at least one more than the number of models proven better, and at most the number of models
    less those proven worse (Mogstad et al. 2024). "Proven" is a one-sided paired test of each
    ordered pair, all pairs corrected together: ``holm`` is valid under any dependence; ``max-t``
    draws the largest of all differences under their joint normal law, step by step (Romano and
    Wolf 2005), needs ``rng``, and separates more models. The test is McNemar's exact one for right
    and wrong on plain images under ``holm``, and a t test of the paired differences otherwise.

    >>> right = np.zeros((100, 3))
    >>> right[:90, 0] = right[:50, 1] = right[:52, 2] = 1
    >>> ranks = rank_intervals(right, ["a", "b", "c"])
    >>> ranks.rank.tolist(), ranks.low.tolist(), ranks.high.tolist()
    ([1, 3, 2], [1, 2, 2], [1, 3, 3])
    """
    check_level(level)
    data = np.asarray(correct)
    if data.shape[0] == 0 or data.shape[1] == 0:
        raise NotApplicable("no images or no models to rank", fix="score at least one model")
    models = data.shape[1]
    value = data.mean(axis=0, dtype=np.float64)
    if models == 1:
        better = np.zeros((1, 1), dtype=bool)
    elif method == "holm" and clusters is None and _binary(data):
        better = _holm_pairs(_mcnemar_pairs(data), level)
    else:
        layout = design(len(data), clusters=clusters)
        sums = layout.unit_sums(data.astype(np.float64) - value)
        residuals = layout.residuals(sums) / len(data)
        covariance = residuals.T @ residuals
        # A difference that is the same in all units is a sign test, over all ordered pairs.
        sure = 0.5**layout.units * models * (models - 1) <= 1.0 - level
        t = _t_pairs(value, covariance, sure=sure)
        if method == "holm":
            from scipy.special import stdtr

            better = _holm_pairs(stdtr(layout.degrees_of_freedom, -t), level)
        else:
            if rng is None:
                raise ValueError("max-t needs rng")
            better = _max_t_pairs(t, covariance, layout.degrees_of_freedom, level, rng)
    # Sums of the same numbers in another order differ in their last digits: that is a tie.
    even = value.round(12)
    order = sorted(range(models), key=lambda model: (-even[model], names[model]))
    rank = np.empty(models, dtype=np.intp)
    rank[order] = np.arange(1, models + 1)
    return Ranks(
        names=tuple(names),
        value=value,
        rank=rank,
        low=1 + better.sum(axis=0),
        high=models - better.sum(axis=1),
        better=better,
        method=method,
        level=level,
    )


def _binary(data: npt.NDArray[Any]) -> bool:
    return data.dtype == np.bool_ or bool(((data == 0) | (data == 1)).all())


def _mcnemar_pairs(data: npt.NDArray[Any]) -> FloatArray:
    """One-sided p (models, models) of "row better than column"; all pairs from one product."""
    models = data.shape[1]
    both = np.zeros((models, models))
    for first in range(0, len(data), _ROWS):
        block = data[first : first + _ROWS].astype(np.float32)
        both += block.T @ block
    only = np.diag(both)[:, None] - both
    p: FloatArray = mcnemar_exact(only, only.T, alternative="greater")
    return p


def _t_pairs(value: FloatArray, covariance: FloatArray, *, sure: bool) -> FloatArray:
    """t of "row better than column" (models, models).

    Where a difference never varies it is infinite, or 0 where that is not ``sure``: two images
    that agree prove nothing.
    """
    variance = np.diag(covariance)
    pooled = variance[:, None] + variance
    spread = pooled - 2.0 * covariance
    varies = spread > 1e-12 * pooled  # below this, the subtraction has left only rounding
    gap = value[:, None] - value
    certain = np.where(gap > 0, np.inf, np.where(gap < 0, -np.inf, 0.0)) if sure else 0.0
    return np.where(varies, gap / np.sqrt(np.where(varies, spread, 1.0)), certain)


def _holm_pairs(p: FloatArray, level: float) -> npt.NDArray[np.bool_]:
    """Which ordered pairs are proven at ``level``, over all ordered pairs together."""
    models = len(p)
    pairs = ~np.eye(models, dtype=bool)
    better = np.zeros((models, models), dtype=bool)
    better[pairs] = holm(p[pairs]) <= 1.0 - level
    return better


def _max_t_pairs(
    t: FloatArray,
    covariance: FloatArray,
    degrees_of_freedom: int,
    level: float,
    rng: np.random.Generator,
) -> npt.NDArray[np.bool_]:
    """Step-down: prove what exceeds the largest chance difference, and look at the rest again."""
    models = len(t)
    values, vectors = np.linalg.eigh(covariance)
    draws = rng.standard_normal((_DRAWS, models)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    # One chi-square a draw turns normal into t: few clusters have heavy tails.
    draws /= np.sqrt(rng.chisquare(degrees_of_freedom, _DRAWS) / degrees_of_freedom)[:, None]
    variance = np.diag(covariance)
    pooled = variance[:, None] + variance
    spread = pooled - 2.0 * covariance
    scale = np.sqrt(np.where(spread > 1e-12 * pooled, spread, np.inf))
    open_pairs = ~np.eye(models, dtype=bool)
    better = np.zeros_like(open_pairs)
    while open_pairs.any():
        largest = np.full(_DRAWS, -np.inf)
        for model in np.flatnonzero(open_pairs.any(axis=1)):
            rivals = open_pairs[model]
            chance = (draws[:, model : model + 1] - draws[:, rivals]) / scale[model, rivals]
            np.maximum(largest, chance.max(axis=1), out=largest)
        proven = open_pairs & (t > np.quantile(largest, level))
        if not proven.any():
            break
        better |= proven
        open_pairs &= ~proven
    return better

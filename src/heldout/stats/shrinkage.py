"""Many proportions at once: what is left of their spread when chance is taken off.

Of a hundred small slices, the worst looks bad by luck alone. The hierarchical beta-binomial model
says how far true accuracies differ, and pulls each slice towards the rest by as much as its few
images leave open (Efron and Morris 1975; Gelman et al. 2013, chapter 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import FloatArray, Interval, check_counts, check_level

METHOD = "beta-binomial"
_POINTS = 33
_ROUNDS = 5
_NEGLIGIBLE = 16.0  # log posterior below the highest: a factor of ten million


@dataclass(frozen=True, eq=False)
class Shrunken:
    """What the slices say of each other.

    ``value``, ``interval``  (slices,): the posterior mean and limits of each true proportion
    ``mean``, ``spread``     of true proportions over slices: mean and standard deviation, posterior
                             means; ``spread_interval`` holds the limits of the second, the lower
                             one 0 where slices may all be equal
    """

    value: FloatArray
    interval: Interval
    mean: float
    spread: float
    spread_interval: Interval


def shrink(k: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95) -> Shrunken:
    """``k`` right of ``n`` images in each slice (slices,), read together.

    True proportions come from a beta distribution; ``k`` given them is binomial. Its mean and its
    ``1 / (a + b + 1)`` (the correlation of two images of one slice) are unknown, each uniform on 0
    to 1 beforehand, and integrated out on a grid. So intervals allow for not knowing them, and are
    right on average over slices like these, also for the slice that is picked as the worst.
    Overlapping slices are treated as if they were apart.

    >>> found = shrink([2, 8, 9, 8, 9], [10, 10, 10, 10, 10])
    >>> found.value.round(2).tolist()
    [0.32, 0.77, 0.84, 0.77, 0.84]
    """
    from scipy.special import betaincinv

    check_level(level)
    hits, trials = check_counts(np.asarray(k), np.asarray(n))
    if hits.ndim != 1 or len(hits) < 2:
        raise NotApplicable(
            "one slice has no others to be read with", fix="give two slices or more"
        )
    a, b, weight = _posterior(hits, trials)
    shape = (a + b)[:, None] + trials
    first = (a[:, None] + hits) / shape
    value = weight @ first
    # Var = E[var | a, b] + Var[mean | a, b]; then the beta distribution of that mean and variance.
    variance = weight @ (first * (1 - first) / (shape + 1)) + weight @ np.square(first - value)
    size = np.maximum(value * (1 - value) / np.maximum(variance, 1e-300) - 1, 1e-6)
    tail = (1 - level) / 2
    low = betaincinv(value * size, (1 - value) * size, tail)
    high = betaincinv(value * size, (1 - value) * size, 1 - tail)
    mean = a / (a + b)
    deviation = np.sqrt(mean * (1 - mean) / (a + b + 1))
    order = np.argsort(deviation, kind="stable")
    at = np.cumsum(weight[order])
    ends = [
        float(deviation[order][min(int(np.searchsorted(at, q)), len(at) - 1)])
        for q in (tail, 1 - tail)
    ]
    if _may_be_equal(hits, trials, a, b, tail):
        ends[0] = 0.0
    return Shrunken(
        value,
        Interval(low, high, METHOD, level),
        float(weight @ mean),
        float(weight @ deviation),
        Interval(ends[0], ends[1], METHOD, level),
    )


def _may_be_equal(
    hits: FloatArray, trials: FloatArray, a: FloatArray, b: FloatArray, tail: float
) -> bool:
    """Whether one proportion explains all slices: a likelihood ratio test at its boundary.

    No prior on a grid can say so. Half of the time the ratio is 0 where there is no spread, so its
    tail is that of a chi-squared over two (Self and Liang 1987).
    """
    from scipy.special import betaln, chdtri, xlogy

    pooled = hits.sum() / trials.sum()
    equal = float((xlogy(hits, pooled) + xlogy(trials - hits, 1 - pooled)).sum())
    spread = betaln(a[:, None] + hits, b[:, None] + trials - hits) - betaln(a, b)[:, None]
    return bool(2 * (spread.sum(axis=1).max() - equal) < chdtri(1, 2 * tail))


def _posterior(hits: FloatArray, trials: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Beta parameters (points,) on a grid and their posterior weights, which sum to 1.

    The grid is uniform in the logits of mean and correlation; it is laid over everything first and
    drawn in around what the data leave possible.
    """
    from scipy.special import betaln

    pairs, counts = np.unique(np.stack([hits, trials]), axis=1, return_counts=True)
    box = np.array([[-9.0, 9.0], [-14.0, 6.0]])
    for _ in range(_ROUNDS):
        axes = [np.linspace(low, high, _POINTS) for low, high in box]
        x, y = (grid.ravel() for grid in np.meshgrid(*axes, indexing="ij"))
        mean, same = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(-y))
        size = 1 / same - 1
        a, b = mean * size, (1 - mean) * size
        chance = betaln(a[:, None] + pairs[0], b[:, None] + pairs[1] - pairs[0])
        log = (chance - betaln(a, b)[:, None]) @ counts
        log += np.log(mean * (1 - mean)) + np.log(same * (1 - same))  # uniform before the logit
        kept = (log > log.max() - _NEGLIGIBLE).reshape(_POINTS, _POINTS)
        fresh = np.empty_like(box)
        for axis, line in enumerate(axes):
            there = np.flatnonzero(kept.any(axis=1 - axis))
            fresh[axis] = (
                line[max(there[0] - 1, 0)],
                line[min(there[-1] + 1, _POINTS - 1)],
            )
        if (
            np.ptp(fresh, axis=1).min() > 0.6 * np.ptp(box, axis=1).min()
            and (np.ptp(fresh, axis=1) > 0.6 * np.ptp(box, axis=1)).all()
        ):
            break
        box = fresh
    weight = np.exp(log - log.max())
    return a, b, weight / weight.sum()

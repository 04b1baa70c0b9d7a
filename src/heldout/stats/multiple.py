"""Many numbers at once: corrected p values and levels, all pairs of models, the worst slice, ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.bootstrap import Design, design
from heldout.stats.intervals import (
    FloatArray,
    Interval,
    check_level,
    clopper_pearson,
)
from heldout.stats.paired import accuracy_difference, mcnemar_exact, paired_difference


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
_GROUPS = 1024
_FEW_UNITS = 256


@dataclass(frozen=True, eq=False)
class PairTests:
    """Two-sided tests of no difference for all pairs of columns on the same images.

    ``difference``  (columns, columns): the mean of the row less that of the column
    ``p``           (columns, columns): of each pair alone
    ``limits``      of each pair at a tail: low and high (columns, columns), which leave out 0 where
                    ``p`` is at most the tail
    ``chance``      (draws, columns): what every column would show by chance, drawn jointly
    ``scale``       (columns, columns): how far the chance of two columns lies apart, its standard error
    """

    difference: FloatArray
    p: FloatArray
    limits: Callable[[float], tuple[FloatArray, FloatArray]]
    chance: Callable[[], npt.NDArray[Any]]
    scale: FloatArray

    @cached_property
    def _drawn(self) -> npt.NDArray[Any]:
        return self.chance()

    def smallest_p(self, pairs: npt.NDArray[np.bool_]) -> SmallestP:
        """The law of the smallest p among ``pairs`` (columns, columns), if none differs."""
        once = np.triu(pairs | pairs.T, 1)
        count = int(once.sum())
        if count < 2:
            return SmallestP(count, np.zeros(0))
        from scipy.special import ndtr

        drawn = np.ascontiguousarray(self._drawn.T)  # a hundred columns are four times as fast
        largest = np.zeros(drawn.shape[1])
        inverse = (1.0 / np.where(self.scale > 0, self.scale, np.inf)).astype(drawn.dtype)
        for column in np.flatnonzero(once.any(axis=1)):
            rivals = once[column]
            gaps = drawn[rivals]
            gaps -= drawn[column]
            np.abs(gaps, out=gaps)
            gaps *= inverse[column, rivals][:, None]
            np.maximum(largest, gaps.max(axis=0), out=largest)
        # Few clusters give few values of chance: what is equal but for rounding counts as reached.
        return SmallestP(count, np.sort(2.0 * ndtr(-largest * (1.0 + 1e-5))))


@dataclass(frozen=True, eq=False)
class SmallestP:
    """How small the smallest of ``count`` p values is by chance; ``draws`` are sorted."""

    count: int
    draws: FloatArray

    def chance(self, p: npt.ArrayLike) -> FloatArray:
        """The probability that it is at most ``p``: drawn, and never more than Bonferroni's."""
        alone = np.asarray(p, dtype=np.float64)
        if self.count < 2:
            return np.asarray(self.count * alone)
        below = np.searchsorted(self.draws, alone, side="right") + 1.0
        found: FloatArray = np.maximum(below / (len(self.draws) + 1.0), alone)
        return np.minimum(found, self.count * alone)


def joint_p(p: npt.ArrayLike, family: Sequence[SmallestP]) -> FloatArray:
    """``p`` corrected for all comparisons of a family: the chance that any of them is so small.

    Members of the family are sets of pairs on other images, or on other slices, of which nothing is
    assumed: their chances add up.

    >>> joint_p([0.01, 0.04], [SmallestP(1, np.zeros(0))] * 3).tolist()
    [0.03, 0.12]
    """
    alone = np.asarray(p, dtype=np.float64)
    return np.minimum(sum((part.chance(alone) for part in family), np.zeros(alone.shape)), 1.0)


def shared_tail(family: Sequence[SmallestP], level: float) -> float:
    """The largest p that is at most ``1 - level`` once it is corrected.

    Intervals at this tail hold together at ``level``, and agree with the corrected p values.

    >>> round(shared_tail([SmallestP(1, np.zeros(0))] * 5, 0.95), 9)
    0.01
    """
    tail = 1.0 - check_level(level)
    low, high = tail / max(1, sum(part.count for part in family)), tail
    if joint_p(high, family) <= tail:
        return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if joint_p(middle, family) <= tail else (low, middle)
    return low


def pair_tests(
    values: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    clusters: npt.ArrayLike | None = None,
    strata: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> PairTests:
    """Tests that two columns of ``values`` (n, columns) have one mean, for all pairs.

    Right and wrong of two columns on plain images: McNemar's mid-p and Tango's interval
    (:func:`~heldout.stats.paired.accuracy_difference`). Everything else: the score test, the sum of
    the differences of images (or clusters) over the root of their sum of squares, which is about
    standard normal if they are as likely to be negative as positive; its interval holds the
    differences that the same test does not reject. Of right and wrong this is McNemar's test with
    Tango's interval. Means and weights are as in
    :func:`~heldout.stats.bootstrap.bootstrap_mean`; ``bounds`` are those of one value.

    Chance is drawn by turning the signs of all differences of an image or cluster at once, which
    keeps what pairs have in common; it is exact for a dozen clusters and a hundred columns, where
    a normal law with the covariance of these clusters rejects half of the time.
    """
    data = np.asarray(values)
    n = len(data)
    plain = clusters is None and strata is None and weights is None and _binary(data)
    importance = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    alone = Design(n, None, None, np.zeros(1, np.intp), np.array([n]))
    layout = alone if plain else design(n, strata=strata, clusters=clusters)
    total = float(importance.sum())
    means = importance @ data.astype(np.float64) / total
    # Only differences count: without the mean over columns the products below lose no digits.
    sums = data - data.mean(axis=1, keepdims=True, dtype=np.float64)
    sums = layout.unit_sums(sums * importance[:, None])
    sizes = layout.unit_sums(importance)
    if strata is not None:
        sums, sizes = layout.residuals(sums), np.zeros(layout.units)
    difference = means[:, None] - means

    def chance() -> npt.NDArray[Any]:
        signs = rng.integers(0, 2, (_DRAWS, len(drawn)), dtype=np.int8).astype(np.float32) * 2 - 1
        return np.asarray(signs @ drawn.astype(np.float32))

    drawn = sums
    if layout.units > _FEW_UNITS and strata is None:
        drawn = sums - sizes[:, None] * (means - means.mean())
    if layout.units > _GROUPS:
        padded = np.zeros((-(-layout.units // _GROUPS) * _GROUPS, data.shape[1]))
        padded[: layout.units] = drawn
        drawn = padded.reshape(-1, _GROUPS, data.shape[1]).sum(axis=0)
    scale = np.sqrt(_squares(drawn))
    if plain:
        only, two = _only(data), data.shape[1] == 2
        apart = only + only.T

        def limits(tail: float) -> tuple[FloatArray, FloatArray]:
            level = 1.0 - tail
            pair = accuracy_difference(only, only.T, n, level=level).interval if two else None
            found = pair or paired_difference(only, only.T, n, level=level)
            return found.low, found.high

        # The law of the smallest p is drawn from sums: more than one pair is judged by its sum too.
        p = mcnemar_exact(only, only.T, mid_p=True) if two else _score_p(only - only.T, apart, n)
    else:
        squares = _squares(sums)
        across = sums.T @ sizes
        across = across[:, None] - across
        spread = None if bounds is None else bounds[1] - bounds[0]
        p = _score_p(difference * total, squares, layout.units)

        def limits(tail: float) -> tuple[FloatArray, FloatArray]:
            return _score_limits(
                difference * total, squares, across, sizes, total, tail, layout.units, spread
            )

    return PairTests(difference, p, limits, chance, scale)


def _binary(data: npt.NDArray[Any]) -> bool:
    return data.dtype == np.bool_ or bool(((data == 0) | (data == 1)).all())


def _only(data: npt.NDArray[Any]) -> FloatArray:
    """Images (columns, columns) that only the row gets right; all pairs from one product."""
    both = np.zeros((data.shape[1], data.shape[1]))
    for first in range(0, len(data), _ROWS):
        block = data[first : first + _ROWS].astype(np.float32)
        both += block.T @ block
    return np.asarray(np.diag(both)[:, None] - both)


def _squares(sums: FloatArray) -> FloatArray:
    """Sums of squared differences of all pairs of columns, 0 where only rounding is left."""
    products = sums.T @ sums
    pooled = np.diag(products)[:, None] + np.diag(products)
    found = pooled - 2.0 * products
    return np.where(found > 1e-12 * pooled, found, 0.0)


def _score_p(sums: FloatArray, squares: FloatArray, units: int) -> FloatArray:
    """Two-sided p of a score test; never below what turning the signs of all units allows."""
    from scipy.special import ndtr

    score = np.abs(sums) / np.sqrt(np.where(squares > 0, squares, np.inf))
    return np.where(squares > 0, np.maximum(2.0 * ndtr(-score), 2.0 ** (1.0 - units)), 1.0)


def _score_limits(
    sums: FloatArray,
    squares: FloatArray,
    across: FloatArray,
    sizes: FloatArray,
    total: float,
    tail: float,
    units: int,
    spread: float | None,
) -> tuple[FloatArray, FloatArray]:
    """The differences x that the score test does not reject, between ``spread`` and its negative.

    With x taken off every image, sums are ``sums - x total`` and squares are
    ``squares - 2 x across + x^2 sizes @ sizes``: the limits are the roots of a quadratic. Where a few
    units hold most images it opens the other way: the interval is then without limit, or has one on
    the side of 0 alone.
    """
    from scipy.special import ndtri

    most = np.inf if spread is None else spread
    if 2.0 ** (1.0 - units) > tail:
        return np.full(sums.shape, -most), np.full(sums.shape, most)
    c2 = float(ndtri(tail / 2.0)) ** 2
    lead = total * total - c2 * float(sizes @ sizes)
    half = sums * total - c2 * across
    at_zero = sums * sums - c2 * squares
    root = np.sqrt(np.maximum(half * half - lead * at_zero, 0.0))
    if lead > 0:
        low, high = (half - root) / lead, (half + root) / lead
    else:
        away, split = at_zero > 0, np.where(root > 0, root, 1.0)
        low = np.where(away & (sums > 0), at_zero / (half + split), -most)
        high = np.where(away & (sums < 0), at_zero / (half - split), most)
    if spread is not None:
        # Where nothing varies, allow for the share of units that may differ and was never drawn.
        value, unseen = sums / total, 1.0 - (tail / 2.0) ** (1.0 / units)
        still = high - low < 1e-9
        low = np.where(still, value - unseen * (value + spread), np.maximum(low, -spread))
        high = np.where(still, value + unseen * (spread - value), np.minimum(high, spread))
    return low, high


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
    level: float


def rank_intervals(
    correct: npt.ArrayLike,
    names: Sequence[str],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    clusters: npt.ArrayLike | None = None,
) -> Ranks:
    """Ranks by mean of ``correct`` (n, models), highest first, with simultaneous intervals.

    Equal means: the name that comes first in ascending order gets the better rank. A model's rank
    is at least one more than the number of models proven better, and at most the number of models
    less those proven worse (Mogstad et al. 2024). "Proven" is :func:`pair_tests`, all pairs
    corrected together by the law of their smallest p, step by step (Romano and Wolf 2005): what is
    proven is taken out, and the rest is looked at again.

    >>> right = np.zeros((100, 3))
    >>> right[:90, 0] = right[:50, 1] = right[:52, 2] = 1
    >>> ranks = rank_intervals(right, ["a", "b", "c"], rng=np.random.default_rng(0))
    >>> ranks.rank.tolist(), ranks.low.tolist(), ranks.high.tolist()
    ([1, 3, 2], [1, 2, 2], [1, 3, 3])
    """
    check_level(level)
    data = np.asarray(correct)
    if data.shape[0] == 0 or data.shape[1] == 0:
        raise NotApplicable("no images or no models to rank", fix="score at least one model")
    models = data.shape[1]
    value = data.mean(axis=0, dtype=np.float64)
    better = np.zeros((models, models), dtype=bool)
    left = ~np.eye(models, dtype=bool)
    if models > 1:
        tests = pair_tests(data, rng=rng, clusters=clusters, bounds=None)
        while left.any():
            proven = left & (tests.smallest_p(left).chance(tests.p) <= 1.0 - level)
            if not proven.any():
                break
            better |= proven & (tests.difference > 0)
            left &= ~proven
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
        level=level,
    )

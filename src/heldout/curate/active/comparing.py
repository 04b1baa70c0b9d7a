"""Intervals of curves and of their differences: over seeds, and over seeds and test images.

Every strategy starts from the same first labels at a seed and is tested on the same images, so
differences are taken pair by pair. Over seeds alone the interval says how another draw of first
labels would change the difference on these test images (t). Over seeds and images it also allows
for other test images of the same domains: both are drawn anew at once, crossed, images inside
their domains (the pigeonhole bootstrap; Owen, Annals of Applied Statistics 2007), and the interval
is the difference ± t × the standard deviation of the replicates. It is never narrower than that over
seeds warrants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.curate.active.efficiency import data_efficiency
from heldout.curate.active.problem import TEST
from heldout.curate.active.strategy import Strategy
from heldout.curate.active.study import Outcome
from heldout.stats.bootstrap import resample_weights
from heldout.stats.intervals import Interval, interval_from_error, t_quantile
from heldout.stats.paired import PairedDifference

RESAMPLED = ("accuracy", "ambient", "mean_of_domains", "worst_domain")
"""Metrics whose differences have intervals over seeds and images."""
ANY = "*"
SEEDS, CROSSED = "t over seeds", "bootstrap over seeds and images"


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its interval; None where one seed gives none."""

    value: float
    interval: Interval | None


def mean_over_seeds(values: np.ndarray, *, level: float = 0.95) -> Estimate:
    """The mean of ``values`` (seeds,) with its t interval."""
    value = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(value):
        return Estimate(value, None)
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    quantile = t_quantile(level, len(values) - 1)
    return Estimate(value, interval_from_error(value, error, quantile=quantile, level=level))


def paired_over_seeds(a: np.ndarray, b: np.ndarray, *, level: float = 0.95) -> PairedDifference:
    """The mean of ``a - b`` (seeds,), seed by seed: t interval, and p of no difference.

    Where all differences are equal, p is that of a sign test.
    """
    gaps = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if len(gaps) < 2:
        raise NotApplicable("one seed has no interval", fix="run more seeds")
    found = mean_over_seeds(gaps, level=level)
    if found.interval is None:
        raise NotApplicable("a difference that is no number", fix="leave this metric out")
    error = float(np.std(gaps, ddof=1)) / len(gaps) ** 0.5
    return PairedDifference(found.value, found.interval, _p(found.value, error, len(gaps)))


@dataclass(frozen=True, eq=False)
class Replicates:
    """Curves of every strategy under drawn seeds and images: ``[metric][strategy]`` (R, points)."""

    curves: dict[str, dict[str, np.ndarray]]
    seeds: int
    images: int
    """Test images of the smallest domain."""

    def difference(
        self,
        metric: str,
        strategy: str,
        other: str,
        gaps: np.ndarray,
        *,
        point: int | None = None,
        level: float = 0.95,
    ) -> PairedDifference:
        """The mean of the observed ``gaps`` (seeds,) of two curves' means, or of a point of them.

        Degrees of freedom are Satterthwaite's: seeds share of the variance what they show by
        themselves, images the rest; images have as many as the smallest domain allows.
        """
        both = self.curves[metric][strategy] - self.curves[metric][other]
        drawn = both.mean(axis=1) if point is None else both[:, point]
        value, error = float(np.mean(gaps)), float(drawn.std(ddof=1))
        of_seeds = float(np.var(gaps, ddof=1)) / len(gaps)
        of_images = max(error**2 - of_seeds, 0.0)
        spread = of_seeds**2 / (self.seeds - 1) + of_images**2 / max(self.images - 1, 1)
        degrees = (of_seeds + of_images) ** 2 / spread if spread > 0 else self.seeds - 1.0
        error = max(error, of_seeds**0.5)
        quantile = t_quantile(level, degrees)
        interval = interval_from_error(value, error, quantile=quantile, level=level)
        return PairedDifference(value, interval, _p(value, error, self.seeds, degrees))


def marginal_curves(
    strategies: Sequence[Strategy], curves: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Means over a grid: ``margin+*`` over all allocators, ``*+error`` over all selectors.

    ``curves`` by strategy's name. Empty unless every selector was run with every allocator, two or
    more of both. Such means differ less by chance than single strategies do.
    """
    selectors = list(dict.fromkeys(s.selector.name for s in strategies))
    allocators = list(dict.fromkeys(s.allocator.name for s in strategies))
    if min(len(selectors), len(allocators)) < 2 or len(strategies) != len(selectors) * len(
        allocators
    ):
        return {}
    found: dict[str, list[np.ndarray]] = {}
    for strategy in strategies:
        curve = curves[strategy.name]
        found.setdefault(f"{strategy.selector.name}+{ANY}", []).append(curve)
        found.setdefault(f"{ANY}+{strategy.allocator.name}", []).append(curve)
    return {name: np.mean(held, axis=0) for name, held in found.items()}


def resample(outcome: Outcome, *, replicates: int, rng: np.random.Generator) -> Replicates:
    """Draw seeds and test images anew, crossed, and measure every strategy on them."""
    problem, seeds = outcome.problem, len(outcome.seeds)
    if seeds < 2:
        raise NotApplicable("one seed has no interval", fix="run more seeds")
    test = problem.rows(TEST)
    groups = problem.domains[test]
    of_seeds = np.concatenate(list(resample_weights(rng, seeds, replicates=replicates)))
    of_images = np.concatenate(
        list(resample_weights(rng, len(test), replicates=replicates, strata=groups))
    )
    there = [g for g in range(len(problem.domain_names)) if (groups == g).any()]
    natural = problem.domain_sizes[there].astype(np.float64)
    tested = np.array([(groups == g).sum() for g in there], np.float64)
    found: dict[str, dict[str, np.ndarray]] = {metric: {} for metric in RESAMPLED}
    for name, by_seed in outcome.rounds.items():
        correct = np.array([[made.correct for made in by_seed[s]] for s in outcome.seeds])
        rates = np.stack(
            [_rates(correct[:, :, groups == g], of_images[:, groups == g]) for g in there]
        )  # (domains, seeds, points, replicates)
        summed = {
            "accuracy": np.tensordot(tested / tested.sum(), rates, 1),
            "mean_of_domains": rates.mean(axis=0),
            "worst_domain": rates.min(axis=0),
        }
        if natural.sum() > 0:
            summed["ambient"] = np.tensordot(natural / natural.sum(), rates, 1)
        for metric, values in summed.items():
            found[metric][name] = np.einsum("spr,rs->rp", values, of_seeds) / seeds
    for curves in found.values():
        curves |= marginal_curves(outcome.strategies, curves) if curves else {}
    return Replicates(found, seeds, int(tested.min()))


def efficiency_interval(
    labels: Sequence[int],
    mine: np.ndarray,
    theirs: np.ndarray,
    *,
    point: int,
    window: int,
    replicates: int,
    rng: np.random.Generator,
    level: float = 0.95,
) -> tuple[float, float, float]:
    """Data efficiency of the mean curves at a point, with a percentile interval over seeds.

    ``mine`` and ``theirs`` are (seeds, points), ``labels`` (points,). Infinity where the other does
    not get there.
    """

    def ratio(weights: np.ndarray) -> float:
        a, b = weights @ mine / len(mine), weights @ theirs / len(mine)
        return data_efficiency(labels, a, b, point=point, window=window)

    value = ratio(np.ones(len(mine)))
    if len(mine) < 2:
        return value, float("nan"), float("nan")
    weights = np.concatenate(list(resample_weights(rng, len(mine), replicates=replicates)))
    drawn = np.array([ratio(row) for row in weights.astype(np.float64)])
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail], method="nearest")
    return value, float(low), float(high)


def _rates(correct: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted shares of right images: (seeds, points, images), (R, images) -> (seeds, points, R)."""
    drawn = weights.astype(np.float64)
    rates: np.ndarray = (correct.astype(np.float64) @ drawn.T) / drawn.sum(axis=1)
    return rates


def _p(value: float, error: float, seeds: int, degrees: float | None = None) -> float:
    if error > 0:
        from scipy.special import stdtr

        free = seeds - 1 if degrees is None else degrees
        return float(2.0 * stdtr(free, -abs(value) / error))
    return 1.0 if value == 0 else float(min(1.0, 2.0 * 0.5**seeds))

"""Learning curves: their intervals, comparisons between strategies, and labels saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.records import Count
from heldout.curate.active.study import METRICS, Outcome, domain_accuracy, first_labels
from heldout.curate.active.task import TEST
from heldout.measure.score.records import EFFICIENCY, Learning, Record
from heldout.measure.score.slices import format_slice
from heldout.stats.bootstrap import resample_weights
from heldout.stats.intervals import Interval, interval_from_error, t_quantile
from heldout.stats.multiple import holm
from heldout.stats.paired import PairedDifference


def forward_mean(curve: np.ndarray, window: int) -> np.ndarray:
    """The mean of each point and those after it, ``window`` in all, (points - window + 1,).

    >>> forward_mean(np.array([1.0, 2.0, 3.0, 5.0]), 2).tolist()
    [1.5, 2.5, 4.0]
    """
    found: np.ndarray = np.lib.stride_tricks.sliding_window_view(curve, window).mean(axis=1)
    return found


def data_efficiency(
    at: Sequence[float] | np.ndarray,
    curve: np.ndarray,
    other: np.ndarray,
    *,
    point: int = -1,
    window: int = 1,
    interpolate: bool = True,
) -> float:
    """What ``other`` needs to reach the value of ``curve`` at ``point``, over what ``curve`` needed.

    ``at`` (points,) are labels, or numbers of rounds; both curves are smoothed by
    :func:`forward_mean` first. Above 1: ``curve`` needs fewer. Infinity where ``other`` never gets
    there. With ``interpolate`` the place lies between points, on a straight line; without, it is
    the first point above the value, as in the authors' notebooks (with ``at`` the rounds, a window
    of 5 and point 60).

    >>> labels = [100, 200, 300, 400]
    >>> data_efficiency(labels, np.array([0.5, 0.7, 0.8, 0.8]), np.array([0.5, 0.6, 0.7, 0.8]), point=1)
    1.5
    """
    mine, theirs = forward_mean(curve, window), forward_mean(other, window)
    places = np.asarray(at, np.float64)[: len(mine)]
    value = mine[point]
    reached = np.flatnonzero(theirs >= value if interpolate else theirs > value)
    if not len(reached):
        return float("inf")
    first = int(reached[0])
    place = places[first]
    if interpolate and first:
        rise = theirs[first] - theirs[first - 1]
        place -= (places[first] - places[first - 1]) * (theirs[first] - value) / rise
    return float(place / places[point])


RESAMPLED = ("accuracy", "ambient", "mean_of_domains", "worst_domain")
"""Metrics whose differences have intervals over seeds and images."""
LEVEL = 0.95
SEEDS, CROSSED = "t over seeds", "bootstrap over seeds and images"


def mean_over_seeds(values: np.ndarray) -> tuple[float, Interval | None]:
    """The mean of ``values`` (seeds,) with its t interval; None where one seed gives none."""
    value = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(value):
        return value, None
    return value, _interval(value, _error(values), len(values) - 1)


def _error(values: np.ndarray) -> float:
    """The standard error of a mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _interval(value: float, error: float, degrees: float) -> Interval:
    return interval_from_error(value, error, quantile=t_quantile(LEVEL, degrees), level=LEVEL)


def paired_over_seeds(gaps: np.ndarray) -> PairedDifference:
    """The mean of differences (seeds,), two or more: t interval, and p of no difference.

    Where all differences are equal, p is that of a sign test.
    """
    value, error, degrees = float(np.mean(gaps)), _error(gaps), len(gaps) - 1
    interval = _interval(value, error, degrees)
    return PairedDifference(value, interval, _p(value, error, degrees, len(gaps)))


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
        interval = _interval(value, error, degrees)
        return PairedDifference(value, interval, _p(value, error, degrees, self.seeds))


def resample(outcome: Outcome, *, replicates: int, rng: np.random.Generator) -> Replicates:
    """Draw seeds and test images anew, crossed, and measure every strategy on them."""
    problem, seeds = outcome.problem, len(outcome.seeds)
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
    return Replicates(found, seeds, int(tested.min()))


def _rates(correct: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted shares of right images: (seeds, points, images), (R, images) -> (seeds, points, R)."""
    drawn = weights.astype(np.float64)
    rates: np.ndarray = (correct.astype(np.float64) @ drawn.T) / drawn.sum(axis=1)
    return rates


def _p(value: float, error: float, degrees: float, seeds: int) -> float:
    """Two-sided, of no difference; where nothing varies, that of a sign test over the seeds."""
    if error > 0:
        from scipy.special import stdtr

        return float(2.0 * stdtr(degrees, -abs(value) / error))
    return 1.0 if value == 0 else float(min(1.0, 2.0 * 0.5**seeds))


SHARE = "label_share"
WINDOW = 3
POINT = 0.6
"""Data efficiency is taken after this share of the rounds, on means of ``WINDOW`` points."""


def study_records(
    outcome: Outcome,
    *,
    domain: str = "domain",
    replicates: int = 1000,
    seed: int = 0,
    testset_hash: str = "",
) -> list[Record]:
    """All that a study found; strategies are compared with the first.

    ``domain`` names the column whose values are the domains.
    """
    maker = _Maker(outcome, domain, testset_hash)
    compared = len(outcome.strategies) > 1
    records: list[Record] = []
    for metric in METRICS:
        records += maker.curves(metric, outcome.curves(metric))
    records += maker.domains()
    if len(outcome.seeds) > 1 and compared:
        drawn = resample(outcome, replicates=replicates, rng=np.random.default_rng(seed))
        for metric in METRICS:
            records += maker.differences(metric, drawn if metric in RESAMPLED else None)
    if compared and outcome.plan.rounds >= WINDOW:
        for metric in RESAMPLED:
            records += maker.efficiencies(metric)
    sizes = outcome.problem.domain_sizes.tolist()
    records += [
        Count(name=f"candidates {format_slice({domain: name})}", value=size, testset=maker.testset)
        for name, size in zip(outcome.problem.domain_names, sizes, strict=True)
    ]
    return records


class _Maker:
    """Makes records that share a test set and seeds."""

    def __init__(self, outcome: Outcome, domain: str, testset_hash: str) -> None:
        self.outcome, self.domain = outcome, domain
        self.base, *self.others = outcome.rounds
        self.testset = outcome.problem.name
        self.tested = len(outcome.problem.rows(TEST))
        self._hash = testset_hash

    def learning(self, strategy: str, metric: str, value: float, **more: object) -> Learning:
        finite = bool(np.isfinite(value))
        reason = None if finite else "no test images of some group"
        return Learning(
            **{  # type: ignore[arg-type]  # the keywords are the record's own
                "strategy": strategy,
                "testset": self.testset,
                "truth": self.outcome.problem.truth,
                "metric": metric,
                "n": self.tested,
                "seeds": len(self.outcome.seeds),
                "value": value if finite else None,
                "testset_hash": self._hash,
                "reason": reason,
                **more,
            }
        )

    def _mean(self, strategy: str, metric: str, values: np.ndarray, **more: object) -> Learning:
        value, interval = mean_over_seeds(values)
        if interval is not None:
            most = np.inf if metric == "loss" else 1.0
            more |= {
                "low": max(float(interval.low), 0.0),
                "high": min(float(interval.high), most),
                "interval": SEEDS,
                "level": LEVEL,
            }
        elif np.isfinite(value):
            more["reason"] = "one seed has no interval"
        return self.learning(strategy, metric, value, **more)

    def curves(self, metric: str, curves: dict[str, np.ndarray]) -> list[Learning]:
        made = []
        for name, values in curves.items():
            made += [
                self._mean(name, metric, values[:, point], labels=labels)
                for point, labels in enumerate(self.outcome.labels)
            ]
            made.append(self._mean(name, metric, values.mean(axis=1)))
        return made

    def domains(self) -> list[Learning]:
        """Accuracy of every domain along the curves, and its share of the labels so far."""
        problem = self.outcome.problem
        test = np.bincount(problem.domains[problem.rows(TEST)], minlength=len(problem.domain_names))
        made = []
        for name, by_seed in self.outcome.rounds.items():
            runs = [by_seed[seed] for seed in self.outcome.seeds]
            values = np.array([[domain_accuracy(r) for r in run] for run in runs])
            shares = self._shares(name)
            for place, domain in enumerate(problem.domain_names):
                where = format_slice({self.domain: domain})
                for point, labels in enumerate(self.outcome.labels):
                    at = {"slice": where, "labels": labels}
                    n = int(test[place])
                    made.append(self._mean(name, "accuracy", values[:, point, place], n=n, **at))
                    made.append(self._mean(name, SHARE, shares[:, point, place], n=n, **at))
        return made

    def _shares(self, name: str) -> np.ndarray:
        """Shares of the labels so far, (seeds, points, domains)."""
        problem, found = self.outcome.problem, []
        count = len(problem.domain_names)
        for seed in self.outcome.seeds:
            rows = first_labels(problem, self.outcome.plan.initial, seed=seed)
            first = np.bincount(problem.domains[rows], minlength=count)
            quotas = [made.quota for made in self.outcome.rounds[name][seed][:-1]]
            held = np.cumsum([first, *quotas], axis=0)
            found.append(held / held.sum(axis=1, keepdims=True))
        return np.array(found)

    def differences(self, metric: str, drawn: Replicates | None) -> list[Learning]:
        """Last points and means of curves against the baseline, paired; p adjusted over strategies."""
        curves = self.outcome.curves(metric)
        made: list[Learning] = []
        for point in (None, len(self.outcome.labels) - 1):
            values = {
                name: curve.mean(axis=1) if point is None else curve[:, point]
                for name, curve in curves.items()
            }
            if not all(np.isfinite(v).all() for v in values.values()):
                continue
            gaps = {name: values[name] - values[self.base] for name in self.others}
            kinds = [(SEEDS, [paired_over_seeds(each) for each in gaps.values()])]
            if drawn is not None:
                crossed = [
                    drawn.difference(metric, name, self.base, each, point=point)
                    for name, each in gaps.items()
                ]
                kinds.append((CROSSED, crossed))
            for kind, found in kinds:
                adjusted = holm([gap.p for gap in found]).tolist()
                made += [
                    self.learning(
                        name,
                        metric,
                        gap.difference,
                        labels=None if point is None else self.outcome.labels[point],
                        other=self.base,
                        low=float(gap.interval.low),
                        high=float(gap.interval.high),
                        interval=kind,
                        level=LEVEL,
                        p=gap.p,
                        adjusted_p=corrected,
                    )
                    for name, gap, corrected in zip(gaps, found, adjusted, strict=True)
                ]
        return made

    def efficiencies(self, metric: str) -> list[Learning]:
        """Labels that the baseline needs for what a strategy reaches, over those that it needed."""
        made = []
        labels, curves = self.outcome.labels, self.outcome.curves(metric)
        point = min(round(POINT * self.outcome.plan.rounds), len(labels) - WINDOW)
        means = {name: curve.mean(axis=0) for name, curve in curves.items()}
        for name in self.others:
            value = data_efficiency(
                labels, means[name], means[self.base], point=point, window=WINDOW
            )
            more: dict[str, object] = {"labels": labels[point], "other": self.base}
            if not np.isfinite(value):
                most = labels[-WINDOW] / labels[point]
                more["reason"] = f"{self.base} never gets there: above {most:.2f}"
            made.append(self.learning(name, f"{EFFICIENCY}_{metric}", value, **more))
        return made

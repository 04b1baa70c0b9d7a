"""A study as records: curves, their means, differences from a baseline, data efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from heldout.core.errors import NotFound
from heldout.curate.active.comparing import (
    ANY,
    CROSSED,
    RESAMPLED,
    SEEDS,
    Replicates,
    efficiency_interval,
    marginal_curves,
    mean_over_seeds,
    paired_over_seeds,
    resample,
)
from heldout.curate.active.measuring import ACCURACIES, domain_accuracy
from heldout.curate.active.problem import TEST
from heldout.curate.active.strategy import parse_strategy
from heldout.curate.active.study import Outcome
from heldout.measure.score.records import Count, Learning, Record
from heldout.measure.score.slices import format_slice
from heldout.stats.multiple import holm

CURVES = (*ACCURACIES, "loss")
EFFICIENCY = "efficiency"
SHARE = "label_share"
WINDOW = 3
POINT = 0.6
"""Data efficiency is taken after this share of the rounds, on means of ``WINDOW`` points."""
_ONE_SEED = "one seed has no interval"


def check_baseline(baseline: str | None, names: Sequence[str]) -> str:
    """The strategy to compare with: the one named, which must be among ``names``, or the first."""
    base = baseline or names[0]
    if base not in names:
        raise NotFound(
            f"no strategy {base!r} to compare with", fix=f"use one of {', '.join(names)}"
        )
    return base


def study_records(
    outcome: Outcome,
    *,
    baseline: str | None = None,
    domain: str = "domain",
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    testset_hash: str = "",
) -> list[Record]:
    """All that a study found. ``baseline`` is the strategy to compare with, the first by default.

    ``domain`` names the column whose values are the domains.
    """
    names = [strategy.name for strategy in outcome.strategies]
    base = check_baseline(baseline, names)
    maker = _Maker(outcome, base, domain, level, testset_hash)
    records: list[Record] = []
    for metric in CURVES:
        records += maker.curves(metric, outcome.curves(metric))
    records += maker.domains()
    if len(outcome.seeds) > 1 and len(names) > 1:
        drawn = resample(outcome, replicates=replicates, rng=np.random.default_rng(seed))
        for metric in CURVES:
            records += maker.differences(metric, drawn if metric in RESAMPLED else None)
    if len(names) > 1 and outcome.plan.rounds >= WINDOW:
        for metric in RESAMPLED:
            records += maker.efficiencies(metric, np.random.default_rng(seed + 1))
    sizes = outcome.problem.domain_sizes.tolist()
    records += [
        Count(name=f"candidates {format_slice({domain: name})}", value=size, testset=maker.testset)
        for name, size in zip(outcome.problem.domain_names, sizes, strict=True)
    ]
    return records


class _Maker:
    """Makes records that share a test set, seeds and a level."""

    def __init__(
        self, outcome: Outcome, base: str, domain: str, level: float, testset_hash: str
    ) -> None:
        self.outcome, self.base, self.domain, self.level = outcome, base, domain, level
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
        found = mean_over_seeds(values, level=self.level)
        if found.interval is None:
            if np.isfinite(found.value):
                more["reason"] = _ONE_SEED
        else:
            most = np.inf if metric == "loss" else 1.0
            more |= {
                "low": max(float(found.interval.low), 0.0),
                "high": min(float(found.interval.high), most),
                "interval": SEEDS,
                "level": self.level,
            }
        return self.learning(strategy, metric, found.value, **more)

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
            values = np.array([[domain_accuracy(r.cells) for r in run] for run in runs])
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
        from heldout.curate.active.rounds import first_labels

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
        """Last points and means of curves against the baseline, paired."""
        curves = self.outcome.curves(metric)
        curves = {**curves, **marginal_curves(self.outcome.strategies, curves)}
        made: list[Learning] = []
        for point in (None, len(self.outcome.labels) - 1):
            values = {
                name: curve.mean(axis=1) if point is None else curve[:, point]
                for name, curve in curves.items()
            }
            if not all(np.isfinite(v).all() for v in values.values()):
                continue
            labels = None if point is None else self.outcome.labels[point]
            for pairs in self._families(list(values)):
                made += self._family(metric, pairs, values, drawn, point, labels)
        return made

    def _families(self, names: Sequence[str]) -> list[list[tuple[str, str]]]:
        """What is compared with what; p values are adjusted inside each list.

        Every strategy with the baseline; of a grid, also every selector with the baseline's over
        all allocators, and every allocator with the baseline's over all selectors.
        """
        base = parse_strategy(self.base)
        selector, allocator = f"{base.selector.name}+{ANY}", f"{ANY}+{base.allocator.name}"
        single = [name for name in names if ANY not in name]
        return [
            [(name, other) for name in members if name != other]
            for members, other in (
                (single, self.base),
                ([name for name in names if name.endswith(f"+{ANY}")], selector),
                ([name for name in names if name.startswith(f"{ANY}+")], allocator),
            )
        ]

    def _family(
        self,
        metric: str,
        pairs: Sequence[tuple[str, str]],
        values: Mapping[str, np.ndarray],
        drawn: Replicates | None,
        point: int | None,
        labels: int | None,
    ) -> list[Learning]:
        if not pairs:
            return []
        paired = [paired_over_seeds(values[a], values[b], level=self.level) for a, b in pairs]
        kinds = [(SEEDS, paired)]
        if drawn is not None:
            crossed = [
                drawn.difference(metric, a, b, values[a] - values[b], point=point, level=self.level)
                for a, b in pairs
            ]
            kinds.append((CROSSED, crossed))
        made: list[Learning] = []
        for kind, found in kinds:
            adjusted = holm([gap.p for gap in found]).tolist()
            made += [
                self.learning(
                    name,
                    metric,
                    gap.difference,
                    labels=labels,
                    other=other,
                    low=float(gap.interval.low),
                    high=float(gap.interval.high),
                    interval=kind,
                    level=self.level,
                    p=gap.p,
                    adjusted_p=corrected,
                )
                for (name, other), gap, corrected in zip(pairs, found, adjusted, strict=True)
            ]
        return made

    def efficiencies(self, metric: str, rng: np.random.Generator) -> Sequence[Learning]:
        """Labels that the baseline needs for what a strategy reaches, over those that it needed."""
        made = []
        labels, curves = self.outcome.labels, self.outcome.curves(metric)
        point = min(round(POINT * self.outcome.plan.rounds), len(labels) - WINDOW)
        for name in self.outcome.rounds:
            if name == self.base:
                continue
            value, low, high = efficiency_interval(
                labels,
                curves[name],
                curves[self.base],
                point=point,
                window=WINDOW,
                replicates=200,
                rng=rng,
                level=self.level,
            )
            more: dict[str, object] = {}
            if not np.isfinite(value):
                most = labels[-WINDOW] / labels[point]
                more["reason"] = f"{self.base} never gets there: above {most:.2f}"
            if np.isfinite(low):
                more |= {"low": low, "interval": "bootstrap over seeds", "level": self.level}
            if np.isfinite(high):
                more["high"] = high
            made.append(
                self.learning(
                    name,
                    f"{EFFICIENCY}_{metric}",
                    value,
                    labels=labels[point],
                    other=self.base,
                    **more,
                )
            )
        return made

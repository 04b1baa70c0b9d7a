"""The report's section on spending labels: learning records of one test set, as tables and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from heldout.measure.score.records import Learning
from heldout.measure.score.slices import ALL, parse_slice
from heldout.show.wording import Cell, p_text, percent, points, points_range, range_text

CURVES = ("accuracy", "worst_domain")
"""Metrics that are drawn as curves and whose differences are listed."""
NAMES = {
    "accuracy": "accuracy",
    "ambient": "natural mix",
    "mean_of_domains": "mean of domains",
    "worst_domain": "worst domain",
    "worst_cell": "worst domain and class",
}
"""Metrics in the order of tables, as people read them."""
SHARE = "label_share"
MOST = 5
_ANY = "*"
_SURE = 0.05


@dataclass(frozen=True, eq=False)
class LearningSection:
    """All learning records of one test set under one truth."""

    testset: str
    truth: str
    records: Sequence[Learning]

    @property
    def key(self) -> str:
        """The group of the section's figures."""
        return f"{self.testset}\n{self.truth}"

    @cached_property
    def strategies(self) -> list[str]:
        """Strategies in order of first appearance, without means over a grid."""
        return list(dict.fromkeys(r.strategy for r in self.records if _ANY not in r.strategy))

    @cached_property
    def compared(self) -> list[Learning]:
        """Comparisons of two strategies over whole curves."""
        return [r for r in self.records if r.other is not None and r.labels is None]

    @cached_property
    def baseline(self) -> str | None:
        """The strategy that the others are compared with; None where nothing is compared."""
        found = (r.other for r in self.records if r.other is not None and _ANY not in r.other)
        return next(found, None)

    @cached_property
    def points(self) -> Mapping[tuple[str, str, str], Mapping[int | None, Learning]]:
        """By strategy, metric and slice: the record at each number of labels; None for the mean."""
        found: dict[tuple[str, str, str], dict[int | None, Learning]] = {}
        for r in self.records:
            if r.other is None:
                found.setdefault((r.strategy, r.metric, r.slice), {})[r.labels] = r
        return found

    @cached_property
    def labels(self) -> list[int]:
        """Numbers of labels, ascending."""
        return sorted({n for found in self.points.values() for n in found if n is not None})

    @cached_property
    def domain_slices(self) -> list[str]:
        """The slices of domains, in order of first appearance."""
        found = dict.fromkeys(r.slice for r in self.records)
        return [name for name in found if len(parse_slice(name)) == 1]

    def mean(self, strategy: str, metric: str) -> float:
        """The mean of a curve; minus infinity where there is none."""
        found = self.points.get((strategy, metric, ALL), {}).get(None)
        return float("-inf") if found is None or found.value is None else found.value

    @cached_property
    def shown(self) -> list[str]:
        """The strategies that figures show: the baseline, then the best of each metric in turn."""
        chosen = [self.baseline] if self.baseline else []
        ranked = [
            sorted(self.strategies, key=lambda s, m=metric: (-self.mean(s, m), s))  # type: ignore[misc]
            for metric in CURVES
        ]
        chosen += [name for several in zip(*ranked, strict=True) for name in several]
        return list(dict.fromkeys(chosen))[:MOST]

    @property
    def lede(self) -> str:
        """What was tried, in words."""
        first, last = (self.labels[0], self.labels[-1]) if self.labels else (0, 0)
        one = self.records[0]
        said = (
            f"{len(self.strategies)} strategies from {first:,} to {last:,} labels, "
            f"{one.seeds} seeds, {one.n:,} test images."
        )
        return said + (f" Compared with {self.baseline}, seed by seed." if self.baseline else "")

    @cached_property
    def columns(self) -> list[str]:
        """The metrics that are there, in the order of tables."""
        there = {r.metric for r in self.records}
        return [metric for metric in NAMES if metric in there]

    @cached_property
    def levels(self) -> list[tuple[str, list[Cell]]]:
        """One row per strategy: every metric of :attr:`columns` at the last point of the curve."""
        last = self.labels[-1] if self.labels else None
        return [
            (name, [_level(self.points.get((name, m, ALL), {}).get(last)) for m in self.columns])
            for name in self.strategies
        ]

    @cached_property
    def differences(self) -> list[tuple[str, str, list[Cell]]]:
        """One row per comparison of whole curves: strategy, what with, differences by metric."""
        found: dict[tuple[str, str], dict[str, Learning]] = {}
        for r in self.compared:
            if r.slice == ALL:
                # The last interval of a metric is the widest: over seeds and images.
                found.setdefault((r.strategy, str(r.other)), {})[r.metric] = r
        # Means over a grid first: they differ least by chance.
        ordered = sorted(found.items(), key=lambda item: _ANY not in item[0][0])
        return [
            (*pair, [_difference(cells.get(metric)) for metric in CURVES])
            for pair, cells in ordered
        ]

    @cached_property
    def interval(self) -> str:
        """How the intervals of differences were made."""
        kinds = [r.interval for r in reversed(self.compared) if r.interval]
        return next((kind for kind in kinds if "images" in kind), "t over seeds")


def learning_sections(records: Sequence[Learning]) -> list[LearningSection]:
    """Learning records by test set and truth, in order of first appearance."""
    groups: dict[tuple[str, str], list[Learning]] = {}
    for record in records:
        groups.setdefault((record.testset, record.truth), []).append(record)
    return [LearningSection(*key, members) for key, members in groups.items()]


def _level(record: Learning | None) -> Cell:
    if record is None or record.value is None:
        return Cell("–", title="" if record is None else record.reason or "")
    ends = range_text("accuracy", record.low, record.high)
    return Cell(percent(record.value), ends, record.value)


def _difference(record: Learning | None) -> Cell:
    if record is None or record.value is None:
        return Cell("–")
    sure = record.adjusted_p is not None and record.adjusted_p <= _SURE
    said = "" if record.p is None else f"p {p_text(record.p)}, adjusted {p_text(record.adjusted_p)}"
    return Cell(
        points(record.value), points_range(record.low, record.high), record.value, said, sure
    )

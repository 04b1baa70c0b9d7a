"""The report's section on spending labels: learning records of one test set, as tables and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heldout.measure.score.records import Learning
from heldout.measure.score.slices import ALL
from heldout.show.wording import PERCENT, Cell, p_text, points_cell, score_cell

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
MOST = 5
_ANY = "*"
_SURE = 0.05


class LearningSection:
    """All learning records of one test set under one truth.

    ``strategies``     in order of first appearance, without means over a grid
    ``baseline``       the strategy that the others are compared with; None where nothing is
    ``compared``       comparisons of two strategies over whole curves
    ``points``         by strategy, metric and slice: the record at each number of labels, and the
                       mean of the curve at None
    ``labels``         numbers of labels, ascending
    ``columns``        the metrics that are there, in the order of tables
    ``shown``          the strategies that figures show: the baseline, then the best of each metric
    """

    def __init__(self, testset: str, truth: str, records: Sequence[Learning]) -> None:
        self.testset, self.truth, self.records = testset, truth, records
        self.key = f"{testset}\n{truth}"
        others = [r.other for r in records if r.other is not None]
        self.baseline = next((name for name in others if _ANY not in name), None)
        self.compared = [r for r in records if r.other is not None and r.labels is None]
        self.points: dict[tuple[str, str, str], dict[int | None, Learning]] = {}
        for r in records:
            if r.other is None:
                self.points.setdefault((r.strategy, r.metric, r.slice), {})[r.labels] = r
        named = dict.fromkeys(r.strategy for r in records)
        self.strategies = [name for name in named if _ANY not in name]
        self.labels = sorted({n for found in self.points.values() for n in found if n is not None})
        there = {r.metric for r in records}
        self.columns = [metric for metric in NAMES if metric in there]
        ranked = [
            sorted(self.strategies, key=lambda s, m=metric: (-self.mean(s, m), s))  # type: ignore[misc]
            for metric in CURVES
        ]
        chosen = [name for several in zip(*ranked, strict=True) for name in several]
        first = [self.baseline] if self.baseline else []
        self.shown = list(dict.fromkeys(first + chosen))[:MOST]

    def mean(self, strategy: str, metric: str) -> float:
        """The mean of a curve; minus infinity where there is none."""
        found = self.points.get((strategy, metric, ALL), {}).get(None)
        return float("-inf") if found is None or found.value is None else found.value

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

    @property
    def levels(self) -> list[tuple[str, list[Cell]]]:
        """One row per strategy: every metric of :attr:`columns` at the last point of the curve."""
        last = self.labels[-1] if self.labels else None
        return [
            (name, [_level(self.points.get((name, m, ALL), {}).get(last)) for m in self.columns])
            for name in self.strategies
        ]

    @property
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

    @property
    def interval(self) -> str:
        """How the intervals of differences were made."""
        kinds = [r.interval for r in reversed(self.compared) if r.interval]
        return next((kind for kind in kinds if "images" in kind), "t over seeds")


def _level(record: Learning | None) -> Cell:
    if record is None or record.value is None:
        return Cell("–", title="" if record is None else record.reason or "")
    cell = score_cell(record, "accuracy")
    return replace(cell, text=cell.text.removesuffix(PERCENT))


def _difference(record: Learning | None) -> Cell:
    if record is None or record.value is None:
        return Cell("–")
    sure = record.adjusted_p is not None and record.adjusted_p <= _SURE
    said = "" if record.p is None else f"p {p_text(record.p)}, adjusted {p_text(record.adjusted_p)}"
    return replace(points_cell(record.value, record), title=said, sure=sure)

"""Strategies for spending labels as tables: where their curves end, and against the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heldout.cli.console import print_table
from heldout.measure.score.records import Learning, Record

_SHOWN = ("accuracy", "ambient", "mean_of_domains", "worst_domain", "worst_cell")
_COMPARED = ("accuracy", "mean_of_domains", "worst_domain")
_IMAGES = "images"


def show_learning(records: Sequence[Record]) -> None:
    """Two tables a test set: last points and means of curves; differences, paired."""
    found = [record for record in records if isinstance(record, Learning)]
    for testset in dict.fromkeys(record.testset for record in found):
        mine = [r for r in found if r.testset == testset and r.slice == "all"]
        _levels(testset, [r for r in mine if r.other is None])
        _differences(testset, [r for r in mine if r.other is not None])


def _levels(testset: str, records: Sequence[Learning]) -> None:
    if not records:
        return
    last = max(r.labels or 0 for r in records)
    cells = {(r.strategy, r.metric, r.labels): r for r in records}
    strategies = list(dict.fromkeys(r.strategy for r in records))
    metrics = [m for m in _SHOWN if any(r.metric == m for r in records)]
    for labels, what in ((last, f"at {last:,} labels"), (None, "mean of the curve")):
        print_table(
            f"{testset}, {what}, percent, over {records[0].seeds} seeds",
            ["strategy", *(metric.replace("_", " ") for metric in metrics)],
            [[s, *(_cell(cells.get((s, m, labels))) for m in metrics)] for s in strategies],
        )


def _differences(testset: str, records: Sequence[Learning]) -> None:
    shown = [r for r in records if r.metric in _COMPARED and r.labels is None]
    crossed = [r for r in shown if r.interval is not None and _IMAGES in r.interval] or shown
    if not crossed:
        return
    cells = {(r.strategy, r.metric): r for r in crossed}
    metrics = [m for m in _COMPARED if any(r.metric == m for r in crossed)]
    first = crossed[0]
    print_table(
        f"{testset}, mean of the curve minus that of {first.other}, points; {first.interval}; "
        "* adjusted p at most 0.05",
        ["strategy", *(metric.replace("_", " ") for metric in metrics)],
        [
            [name, *(_difference(cells.get((name, m))) for m in metrics)]
            for name in dict.fromkeys(r.strategy for r in crossed)
        ],
    )


def _cell(record: Learning | None) -> str:
    if record is None:
        return ""
    if record.value is None:
        return "–"
    if record.low is None or record.high is None:
        return f"{100 * record.value:.1f}"
    return f"{100 * record.value:.1f} ±{50 * (record.high - record.low):.1f}"


def _difference(record: Learning | None) -> str:
    if record is None or record.value is None:
        return ""
    mark = " *" if record.adjusted_p is not None and record.adjusted_p <= 0.05 else ""
    if record.low is None or record.high is None:
        return f"{100 * record.value:+.1f}{mark}"
    return f"{100 * record.value:+.1f} [{100 * record.low:+.1f}, {100 * record.high:+.1f}]{mark}"


def show_standing(rows: Sequence[Mapping[str, Any]], strategy: str) -> None:
    """How the domains stand, and what was chosen of each."""
    percents = ("error", "confidence")

    def text(name: str, value: object) -> str:
        if value is None:
            return "–"
        if name in percents and isinstance(value, float):
            return f"{100 * value:.1f}"
        return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"

    names = [name for name in rows[0] if name != "domain"] if rows else []
    print_table(
        f"next labels by {strategy}; error and confidence in percent",
        ["domain", *names],
        [[row["domain"], *(text(name, row[name]) for name in names)] for row in rows],
    )

"""Records as tables for a person: percent with intervals, one table a kind of record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from heldout.cli.console import print_table, say
from heldout.core.records import Count
from heldout.measure.score.records import Comparison, Fit, Record, Score, Summary, Tally
from heldout.measure.score.slices import parse_slice
from heldout.show.wording import is_share, merit

if TYPE_CHECKING:
    from pathlib import Path

    from heldout.measure.evaluation.prediction import FailedImage, Forecast


_ALL = "all"
_MOST_MODELS = 8


def show_tallies(records: Sequence[Tally]) -> None:
    """Mistakes on whole test sets: every category, and what people judged Major; models beside."""
    groups: dict[tuple[str, str], list[Tally]] = {}
    for record in records:
        if record.slice == _ALL and record.model is not None:
            groups.setdefault((record.testset, record.truth), []).append(record)
    for (testset, truth), found in groups.items():
        cells = {(r.category, r.model): r for r in found if (r.severity, r.basis) == (_ALL, _ALL)}
        major = {
            r.model: r for r in found if (r.category, r.severity, r.basis) == (_ALL, "Major", _ALL)
        }
        models = list(dict.fromkeys(r.model for r in found))
        categories = [c for c in dict.fromkeys(r.category for r in found) if c != _ALL]
        rows = [
            [
                name,
                *(_tally_cell(cells.get((name, model))) for model in models[:_MOST_MODELS]),
            ]
            for name in [*categories, _ALL]
        ]
        if major:
            rows.append(
                [
                    "judged Major",
                    *(_tally_cell(major.get(model)) for model in models[:_MOST_MODELS]),
                ]
            )
        more = len(models) - _MOST_MODELS
        print_table(
            f"mistakes on {testset}, truth {truth}: number, and percent of images"
            + (f" ({more} models more: --json)" if more > 0 else ""),
            ["category", *(str(model) for model in models[:_MOST_MODELS])],
            rows,
        )


def _tally_cell(record: Tally | None) -> str:
    if record is None:
        return ""
    share = "" if record.value is None else f" {100 * record.value:.2f}"
    if record.low is None or record.high is None:
        return f"{record.n:,}{share}"
    return f"{record.n:,}{share} [{100 * record.low:.2f}, {100 * record.high:.2f}]"


_SHOWN_FAILURES = 10
_MODELS_ACROSS = 4
PLACES = ("critical_value", "breaking_value", "rank_correlation")
"""Summaries that are values of the column or plain numbers, not shares."""


def number(value: float, metric: str) -> str:
    """A value as a person reads it: shares in percent, ranks and losses as they are."""
    if metric.endswith("_rank"):
        return f"{value:.0f}"
    return f"{100 * value:.2f}" if is_share(metric) else f"{value:.3f}"


def with_interval(record: Score) -> str:
    """A value with its interval, such as ``78.31 [77.95, 78.67]``."""
    value = number(record.value, record.metric)
    if record.low is None or record.high is None:
        return value
    return f"{value} [{number(record.low, record.metric)}, {number(record.high, record.metric)}]"


def show_records(records: Sequence[Record]) -> None:
    """All records, kind by kind."""
    show_scores([r for r in records if isinstance(r, Score)])
    show_summaries([r for r in records if isinstance(r, Summary)])
    show_tallies([r for r in records if isinstance(r, Tally)])
    show_comparisons([r for r in records if isinstance(r, Comparison)])
    show_fits([r for r in records if isinstance(r, Fit)])
    show_counts([r for r in records if isinstance(r, Count)])


def show_scores(records: Sequence[Score]) -> None:
    """One table for each test set, truth and slice group: models by metrics, best first."""
    groups: dict[tuple[str, str], list[Score]] = {}
    for record in records:
        groups.setdefault((record.testset, record.truth), []).append(record)
    for (testset, truth), members in groups.items():
        metrics = list(dict.fromkeys(r.metric for r in members))
        rows: dict[tuple[str, str], dict[str, Score]] = {}
        for record in members:
            rows.setdefault((record.model, record.slice), {})[record.metric] = record
        place = {
            name: number for number, name in enumerate(dict.fromkeys(r.slice for r in members))
        }
        order = sorted(
            rows,
            key=lambda key: (key[1] != "all", place[key[1]], -_first(rows[key], metrics)),
        )
        sliced = any(key[1] != "all" for key in order)
        print_table(
            f"{testset}, truth {truth}, percent where a share",
            ["model", *(["slice"] if sliced else []), "n", *metrics],
            [
                [
                    key[0],
                    *([unquote(key[1])] if sliced else []),
                    f"{max(r.n for r in rows[key].values()):,}",
                    *(with_interval(rows[key][m]) if m in rows[key] else "" for m in metrics),
                ]
                for key in order
            ],
            left=2 if sliced else 1,
        )


def show_summaries(records: Sequence[Summary]) -> None:
    """For each curve a row a number, raw above balanced, and a column a model."""
    groups: dict[tuple[str, str, str, str], list[Summary]] = {}
    for record in records:
        if record.model is not None:  # what holds for every model is said as a note
            key = (record.testset, record.truth, record.metric, record.columns)
            groups.setdefault(key, []).append(record)
    for (testset, _, metric, columns), members in groups.items():
        models = list(dict.fromkeys(r.model or "" for r in members))
        cells = {(r.name, r.support, r.model): summary_cell(r) for r in members}
        rows = sorted(
            dict.fromkeys((r.name, r.support) for r in members),
            key=lambda row: ([r.name for r in members].index(row[0]), row[1]),
        )
        for first in range(0, len(models), _MODELS_ACROSS):
            shown = models[first : first + _MODELS_ACROSS]
            print_table(
                f"{testset}, {metric} along {columns}, percent where a share",
                ["", "images", *shown],
                [
                    [
                        name.replace("_", " "),
                        support,
                        *(cells.get((name, support, m), "") for m in shown),
                    ]
                    for name, support in rows
                ],
                left=2,
            )


def summary_cell(record: Summary) -> str:
    """A summary with its interval: shares in percent, places as they are, and where it was found."""
    if record.value is None:
        return "–"
    place = record.name in PLACES

    def text(value: float) -> str:
        return f"{value:.3g}" if place else f"{100 * value:.1f}"

    found = text(record.value)
    if record.low is not None or record.high is not None:
        low = "…" if record.low is None else text(record.low)
        found += f" [{low}, {'…' if record.high is None else text(record.high)}]"
    if record.at is None:
        return found
    values = parse_slice(record.at).values() if "&" in record.columns else [record.at]
    return f"{found} at {', '.join(values)}"


def _first(row: dict[str, Score], metrics: list[str]) -> float:
    return next((merit(m, row[m].value) for m in metrics if m in row), 0.0)


def show_comparisons(records: Sequence[Comparison]) -> None:
    """Differences with intervals and p, of shares in points; kappas of error consistency apart."""
    for kappa, title in (
        (False, "differences (model minus other), in points where of shares"),
        (True, "error consistency"),
    ):
        chosen = [r for r in records if (r.metric == "error_consistency") == kappa]
        if not chosen:
            continue
        several = len({r.metric for r in chosen}) > 1
        rows = []
        for r in chosen:
            scale, form = (100, "+.2f") if is_share(r.metric) else (1, "+.3f")
            interval = ""
            if r.low is not None and r.high is not None:
                interval = f"[{scale * r.low:{form}}, {scale * r.high:{form}}]"
            value = f"{scale * r.difference:{form}}"
            p = "" if r.p is None else f"{r.p:.3g}"
            test = "" if kappa else r.test or ""
            names = [r.model, r.other, r.testset, *([r.metric] if several else []), r.slice]
            rows.append([*names, f"{r.n:,}", value, interval, p, test])
        heads = ["model", "other", "test set", *(["metric"] if several else []), "slice"]
        names = [*heads, "n", "kappa" if kappa else "difference", "interval", "p", "test"]
        print_table(title, names, rows, left=len(heads))


def show_fits(records: Sequence[Fit]) -> None:
    """Lines of new on original accuracy."""

    def cell(value: float, low: float | None, high: float | None) -> str:
        return f"{value:.3f}" + ("" if low is None or high is None else f" [{low:.3f}, {high:.3f}]")

    if records:
        print_table(
            "fits: accuracy on the test set against the baseline",
            ["test set", "baseline", "metric", "axes", "models", "slope", "intercept", "r2"],
            [
                [
                    r.testset, r.baseline, r.metric, r.axes, str(r.models),
                    cell(r.slope, r.slope_low, r.slope_high),
                    cell(r.intercept, r.intercept_low, r.intercept_high),
                    f"{r.r2:.4f}",
                ]
                for r in records
            ],
            left=4,
        )  # fmt: skip


def show_counts(records: Sequence[Count]) -> None:
    """Named counts."""
    if records:
        print_table(
            "counts",
            ["name", "model", "test set", "value"],
            [[r.name, r.model or "", r.testset or "", f"{r.value:,}"] for r in records],
            left=3,
        )


def show_plans(plans: Sequence[Forecast]) -> None:
    """What will run, on standard error: stored and pending models, images, disk, time."""
    from heldout.core.progress import format_seconds

    for item in plans:
        plan = item.plan
        if plan.stale:
            ran = ", ".join(dict.fromkeys(run.model for run in plan.stale))
            say(
                f"{plan.testset.name}: {plan.changed:,} of {plan.images:,} images have changed since "
                f"{ran} ran on them; they run again"
            )
        if plan.unknown:
            ran = ", ".join(plan.unknown)
            named = " -m ".join(plan.unknown)
            say(
                f"{plan.testset.name}: {ran} was stored before heldout recorded which bytes were read; "
                f"if images have changed since, heldout prune -t {plan.testset.name} -m {named} "
                "--delete lets it run again"
            )
        if not plan.pending:
            say(f"{plan.testset.name}: everything is stored ({len(plan.stored)} models)")
            continue
        names = ", ".join(entry.model.name for entry in plan.pending)
        done = f"; {item.done:,} were done before, going on from there" if item.done else ""
        time = "" if item.seconds is None else f", about {format_seconds(item.seconds)}"
        say(
            f"{plan.testset.name}: {len(plan.stored)} models stored, {len(plan.pending)} to run ({names}) "
            f"on {plan.images:,} images, about {plan.bytes / 1e6:,.1f} MB to store{time}{done}"
        )


def show_failures(failures: Sequence[FailedImage], to: Path) -> None:
    """Images without an output: the first ones on standard error, all of them in a CSV file."""
    from heldout.core.files import csv_text, write_text

    if not failures:
        to.unlink(missing_ok=True)
        return
    for failure in failures[:_SHOWN_FAILURES]:
        say(f"failed: {failure.line}")
    rows = [[f.testset, f.image_id, f.reason, ", ".join(f.models)] for f in failures]
    write_text(to, csv_text(["testset", "image_id", "reason", "models"], rows))
    more = len(failures) - _SHOWN_FAILURES
    say(f"{f'{more:,} more' if more > 0 else 'all of them'} in {to}; mended: --retry-failed")

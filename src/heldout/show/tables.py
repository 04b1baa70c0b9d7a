"""The tables and sentences of a report: main findings, models, slices, curves, searches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from heldout.measure.evaluation.headlines import statements
from heldout.measure.mistakes.panel import JUDGED
from heldout.measure.mistakes.tally import ALL, EXPLAINED_CATEGORIES, MAJOR
from heldout.measure.score.records import (
    DISCOVERED,
    DISCOVERED_P,
    DISCOVERED_REST,
    SEARCHED,
    Leak,
    Summary,
)
from heldout.measure.score.slices import (
    format_slice,
    number_of,
    parse_slice,
    value_words,
)
from heldout.show.mistakes import MistakeSection
from heldout.show.thumbnails import Example
from heldout.show.view import Change, ReportView, SlicePanel
from heldout.show.wording import (
    MINUS,
    PERCENT,
    Cell,
    count,
    metric_name,
    percent,
    plural,
    points,
    points_cell,
    range_text,
    score_cell,
    sentence,
    signed,
    value_text,
)

_MOST_SETS = 6
_MOST_STATED = 8
_MOST_TALLIES = 2
_MOST_ROWS = 12


# ---- findings ------------------------------------------------------------------------------------


class MainResult(NamedTuple):
    """One result: the number that leads, its unit, and the sentence around it."""

    number: str
    unit: str
    text: str


def findings(view: ReportView) -> list[MainResult]:
    """Scores or changes of whole sets, what may be stated of them, and mistakes."""
    found = [_change(view, changes) for changes in view.changes.values()][:_MOST_SETS]
    if not found:
        found = [_score(view, name) for name in view.testsets[:_MOST_SETS] if view.overall(name)]
    found += [MainResult(*one) for one in statements(view.data.records)][:_MOST_STATED]
    found += list(_leaks(view))
    # What proposals say of mistakes is below, with how often it is right; it does not lead.
    judged = (
        p for p in view.mistakes[:_MOST_TALLIES] if (t := p.get(p.models[0])) and not t.evidence
    )
    return found + [_mistakes(part) for part in judged if _explained(part)]


def _leaks(view: ReportView) -> Iterator[MainResult]:
    """How many images of a set are in a reference too, and what they add to the best score."""
    best: dict[tuple[str, str], Leak] = {}
    for leak in view.leaks:
        known = best.setdefault((leak.testset, leak.images), leak)
        if leak.value > known.value:
            best[leak.testset, leak.images] = leak
    for leak in best.values():
        near = (
            ", or near one of its images and nobody has looked"
            if "unresolved" in leak.images
            else ""
        )
        where = " or ".join(leak.references)
        text = f"of {plural(leak.n, 'image')} of {leak.testset} are in {where} too{near}."
        if leak.difference is not None:
            gap = points_cell(leak.difference, leak)
            text += f" They add {gap} points to the {metric_name(leak.metric)} of {leak.model}."
        yield MainResult(count(leak.left_out), "images", text)


def _change(view: ReportView, found: Sequence[Change]) -> MainResult:
    testset = found[0].testset
    mean = sum(change.difference for change in found) / len(found)
    of = found[0].model if len(found) == 1 else f"mean of {plural(len(found), 'model')}"
    known = [(c.low, c.high) for c in found if c.low is not None and c.high is not None]
    ends = ""
    if len(known) == len(
        found
    ):  # the mean of intervals holds for the mean, however models go together
        ends = " to ".join(points(sum(each) / len(each)) for each in zip(*known, strict=True))
    text = f"{sentence(metric_name(view.metric))} on {testset} less that on {view.baseline}: {of}"
    text += f"; interval {ends}." if ends else "."
    return MainResult(points(mean), "points", text)


def _score(view: ReportView, testset: str) -> MainResult:
    scores = list(view.overall(testset).values())
    low, high = (score_cell(end(scores, key=lambda s: s.value)) for end in (min, max))
    number, _, unit = high.text.partition("\N{NO-BREAK SPACE}")
    text = f"{metric_name(view.metric)} on {testset}, over {count(scores[0].n)} images"
    if len(scores) == 1:
        text = f"{scores[0].model}: {text}" + (f"; interval {high.ends}." if high.ends else ".")
        return MainResult(number, unit, text)
    number = f"{low.text.removesuffix(PERCENT)}–{number}"
    return MainResult(number, unit, f"{sentence(text)}: {plural(len(scores), 'model')}.")


def _explained(part: MistakeSection) -> int:
    """How many mistakes of the leading model something explains."""
    names = [name for name in part.categories if name in EXPLAINED_CATEGORIES]
    return sum(part.cell(part.models[0], name, ALL) for name in names)


def _mistakes(part: MistakeSection) -> MainResult:
    model = part.models[0]
    total, explained = part.cell(model, ALL, ALL), _explained(part)
    text = (
        f"Of the {plural(total, 'mistake')} of {model} on {part.testset}, {count(explained)} are "
        "fine-grained, or context or an unusual image explains them"
    )
    judged = part.get(model, basis=JUDGED)
    if judged is not None and judged.n:
        major = count(part.cell(model, ALL, MAJOR))
        text += f"; people judged {count(judged.n)}, and {major} to be Major"
    return MainResult(percent(explained / total), "%", f"{text}.")


# ---- models --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BoardCell:
    """One model on one test set.

    ``index`` finds the score among the report's scores, so the page can show where it is from;
    ``change`` is from the baseline, ``gain`` the ranks won, where the intervals prove that.
    """

    index: int
    score: Cell
    rank: int
    rank_ends: str
    change: Cell | None = None
    gain: int = 0


def leaderboard(view: ReportView) -> dict[str, dict[str, BoardCell]]:
    """By model, the best first, and test set: the headline score and its change from the baseline."""
    index = {id(score): place for place, score in enumerate(view.scores)}
    cells: dict[str, dict[str, BoardCell]] = {model: {} for model in view.models}
    for name in view.testsets:
        ranks = view.ranks(name, view.overall(name))
        spans = view.overall(name, metric=f"{view.metric}_rank")
        proven = view.stated("rank")
        moves = {change.model: change for change in view.changes.get(name, ())}
        for model, score in view.overall(name).items():
            cell, span, move = score_cell(score), spans.get(model), moves.get(model)
            cells[model][name] = BoardCell(
                index=index[id(score)],
                score=replace(cell, text=cell.text.removesuffix(PERCENT)),
                rank=move.new_rank if move else ranks[model],
                rank_ends=score_cell(span).ends if span else "",
                change=points_cell(move.difference, move) if move else None,
                gain=move.rank_gain if move and (name, model, ALL) in proven else 0,
            )
    return {model: found for model, found in cells.items() if found}


# ---- what stands with the figure of a column -----------------------------------------------------

_HEADS = {
    "image_mean": ("mean over images", "every image counts once"),
    "group_mean": ("mean over values", "every value counts once, however many images it has"),
    "class_mean": ("mean over classes", "every class counts once, its values likewise"),
    "area": ("area", "the curve’s mean height between its ends"),
    "critical_value": ("half of maximum from", "first value with half of the curve’s maximum"),
    "breaking_value": ("half of maximum until", "last value with half of the curve’s maximum"),
    "worst_value": (
        "lowest",
        "as observed; its interval allows for having looked at all values, and its place is named "
        "where it can be told from the rest",
    ),
    "worst_shrunk": (
        "lowest, read with all others",
        "what to expect on fresh images: small slices are pulled to the rest as far as chance goes",
    ),
    "spread": (
        "spread",
        "standard deviation of true accuracies over values, chance taken off; points",
    ),
    "slope": ("slope", "points of accuracy per unit of the number that values have"),
    "rank_correlation": ("rank correlation", "of accuracy with the number that values have"),
    "best_value": ("highest", "its interval allows for having looked at all values"),
    "flip_rate": ("flips", "share of steps to the next value where right turns wrong, or back"),
    "interaction": (
        "interaction",
        "the cell that departs most from the sum of its row and column, points; its interval allows "
        "for having looked at all cells",
    ),
    "centre_over_edge": ("centre over edge", "mean of inner cells less mean of outer ones, points"),
    "left_over_right": ("left over right", "mean of the left half less its mirror image, points"),
    "top_over_bottom": ("top over bottom", "mean of the upper half less its mirror image, points"),
}
_PLACES = ("critical_value", "breaking_value")
_DIFFERENCES = ("interaction", "centre_over_edge", "left_over_right", "top_over_bottom", "slope")


@dataclass(frozen=True)
class CurveTable:
    """One row per model and support; ``heads`` are names with what they mean."""

    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    left_out: int


@dataclass(frozen=True)
class CurveNotes:
    """What goes with the figure of columns that were read as a curve.

    ``strip`` are images along one column.
    """

    warnings: tuple[str, ...]
    table: CurveTable | None
    strip: tuple[Example, ...]


def curve_notes(view: ReportView) -> dict[tuple[str, tuple[str, ...]], CurveNotes]:
    """By test set and columns: what goes with the figure, for columns that were read as curves."""
    found = {}
    for panel in view.panels:
        if panel.summaries:
            key = (panel.testset, panel.columns)
            said = dict.fromkeys(r.reason for r in panel.summaries if r.model is None and r.reason)
            found[key] = CurveNotes(
                warnings=tuple(f"{sentence(text)}." for text in said),
                table=curve_table(view, panel),
                strip=tuple(e for e in view.data.examples if (e.testset, (e.column,)) == key),
            )
    return found


def curve_table(view: ReportView, panel: SlicePanel) -> CurveTable | None:
    """The summaries of a panel, best model first, balanced support below all images."""
    by_key = {(r.model, r.support, r.name): r for r in panel.summaries if r.model is not None}
    names = [name for name in _HEADS if any(name == key[2] for key in by_key)]
    if not names:
        return None
    first = min(
        (v for value in panel.values() if (v := number_of(value)) is not None), default=None
    )
    order = [model for model in view.models if model in panel.scores]
    shown = order if len(order) <= _MOST_ROWS else panel.shown
    rows = [
        (model, support, tuple(_cell(view, by_key.get((model, support, n)), first) for n in names))
        for model in shown
        for support in ("all", "balanced")
        if (model, support, names[0]) in by_key
    ]
    return CurveTable(tuple(_HEADS[name] for name in names), tuple(rows), len(order) - len(shown))


def _cell(view: ReportView, record: Summary | None, first: float | None) -> Cell:
    """``first`` is the column's first value: a curve that starts high was high before it, perhaps."""
    if record is None:
        return Cell("")
    value, low, high = record.value, record.low, record.high
    if value is None:
        return Cell("–", title=record.reason or "")
    text, ends = value_text(record.metric, value), range_text(record.metric, low, high)
    if record.name in _PLACES:
        before = "≤" if record.name == "critical_value" and value == first else ""
        text = f"{before}{_short(value)}"
        ends = "" if low is None and high is None else f"{_short(low)}–{_short(high)}"
    elif record.name == "rank_correlation":
        text = signed(value, digits=2)
        ends = (
            ""
            if low is None or high is None
            else f"{signed(low, digits=2)} to {signed(high, digits=2)}"
        )
    elif record.name == "spread":
        text = percent(value)
    elif record.name in _DIFFERENCES:
        cell = points_cell(value, record)
        text, ends = cell.text, cell.ends
    # Slopes and rank correlations are at the name of a number, not at a place.
    if record.at is not None and record.name not in ("slope", "rank_correlation"):
        column = record.columns.partition("@")[0]
        where = record.at if "&" in column else format_slice({column: record.at})
        told = (record.testset, record.model, where) in view.stated("slice")
        if record.name not in ("worst_value", "worst_shrunk") or told:
            text += f" at {_place(record)}"
    return Cell(text, ends, title=record.reason or "")


def _short(value: float | None) -> str:
    return "…" if value is None else f"{value:.3g}".replace("-", MINUS)


def _place(record: Summary) -> str:
    """Where a number was found: a value, or a slice of two columns as ``(0.5, 0)``."""
    at = record.at or ""
    if "&" not in record.columns:
        return value_words(at)
    return f"({', '.join(map(value_words, parse_slice(at).values()))})"


# ---- slices that a search found ------------------------------------------------------------------


class FoundSlice(NamedTuple):
    """One slice in which a model fails more than elsewhere."""

    text: str
    score: Summary
    rest: float | None
    p: float | None


class SearchTable(NamedTuple):
    """The slices that a search found for one model on one test set; ``about`` says how it searched."""

    testset: str
    model: str
    metric: str
    about: str
    slices: tuple[FoundSlice, ...]


def discoveries(view: ReportView) -> list[SearchTable]:
    """Every search among the records, in their order."""
    found: dict[tuple[str, str | None, str, str], list[Summary]] = {}
    for record in view.discovered:
        key = (record.testset, record.model, record.truth, record.metric)
        found.setdefault(key, []).append(record)
    tables = []
    for (testset, model, _, metric), records in found.items():
        values = {(record.name, record.at): record.value for record in records}
        slices = tuple(
            FoundSlice(
                view.slice_words(testset, record.at or ALL),
                record,
                values.get((DISCOVERED_REST, record.at)),
                values.get((DISCOVERED_P, record.at)),
            )
            for record in records
            if record.name == DISCOVERED
        )
        about = next((r.reason or "" for r in records if r.name == SEARCHED), "")
        tables.append(SearchTable(testset, model or "", metric, about, slices))
    return tables

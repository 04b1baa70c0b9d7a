"""What stands with the figure of a column: warnings, a table of summaries, example images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heldout.measure.score.records import Summary
from heldout.measure.score.slices import parse_slice
from heldout.show.data import Example, Headline
from heldout.show.panels import Panel, number, panels, value_words
from heldout.show.slice_parts import shown_models
from heldout.show.wording import MINUS, PERCENT, percent, points, range_text, signed, value_text

_MOST_ROWS = 12
_HEADS = {
    "image_mean": ("mean over images", "every image counts once"),
    "group_mean": ("mean over values", "every value counts once, however many images it has"),
    "class_mean": ("mean over classes", "every class counts once, its values likewise"),
    "area": ("area", "the curve’s mean height between its ends"),
    "critical_value": ("half of maximum from", "first value with half of the curve’s maximum"),
    "breaking_value": ("half of maximum until", "last value with half of the curve’s maximum"),
    "worst_value": ("worst", "its interval allows for having looked at all values"),
    "worst_shrunk": (
        "worst, read with all others",
        "what to expect on fresh images: small slices are pulled to the rest as far as chance goes",
    ),
    "spread": (
        "spread",
        "standard deviation of true accuracies over values, chance taken off; points",
    ),
    "slope": ("slope", "points of accuracy a unit of the number that values have"),
    "rank_correlation": ("rank correlation", "of accuracy with the number that values have"),
    "best_value": ("best", "its interval allows for having looked at all values"),
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
_PLAIN = ("rank_correlation",)
_DIFFERENCES = ("interaction", "centre_over_edge", "left_over_right", "top_over_bottom", "slope")


@dataclass(frozen=True)
class Cell:
    """One number of the table, its interval, and why it has none."""

    text: str
    ends: str = ""
    reason: str = ""


@dataclass(frozen=True)
class SummaryTable:
    """A row a model and support; ``heads`` are names with what they mean."""

    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...]
    left_out: int


@dataclass(frozen=True)
class PanelReading:
    """What stands with one figure.

    ``strip`` are images along one column; ``sheet`` images over two, row by row, None for a gap.
    """

    warnings: tuple[str, ...]
    table: SummaryTable | None
    strip: tuple[Example, ...]
    sheet: tuple[tuple[Example | None, ...], ...]


def panel_readings(headline: Headline) -> dict[tuple[str, tuple[str, ...]], PanelReading]:
    """By test set and columns: what stands with the figure, for columns that were read as curves."""
    found = {}
    for panel in panels(headline):
        if panel.has_reading:
            images = [
                example
                for example in headline.data.examples
                if example.testset == panel.testset and example.columns == panel.columns
            ]
            found[panel.testset, panel.columns] = PanelReading(
                warnings=_warnings(panel.summaries),
                table=summary_table(headline, panel),
                strip=tuple(images) if len(panel.columns) == 1 else (),
                sheet=_sheet(panel, images) if len(panel.columns) == 2 else (),
            )
    return found


def summary_table(headline: Headline, panel: Panel) -> SummaryTable | None:
    """The summaries of a panel, best model first, balanced support below all images."""
    records = [r for r in panel.summaries if r.model is not None and r.name in _HEADS]
    if not records:
        return None
    names = [name for name in _HEADS if any(r.name == name for r in records)]
    numbers = [place for value in panel.values() if (place := number(value)) is not None]
    first = min(numbers, default=None)
    order = [model for model in headline.models if model in panel.scores]
    shown = order if len(order) <= _MOST_ROWS else shown_models(headline, panel)
    by_key = {(r.model, r.support, r.name): r for r in records}
    rows = []
    for model in shown:
        for support in ("all", "balanced"):
            if (model, support, names[0]) in by_key:
                cells = tuple(_cell(by_key.get((model, support, name)), first) for name in names)
                rows.append((model, support, cells))
    return SummaryTable(tuple(_HEADS[name] for name in names), tuple(rows), len(order) - len(shown))


def _cell(record: Summary | None, first: float | None) -> Cell:
    """``first`` is the column's first value: a curve that starts high was high before it, perhaps."""
    if record is None:
        return Cell("")
    if record.value is None:
        return Cell("–", reason=record.reason or "")
    reason = record.reason or ""
    named = record.at is not None and record.name != "slope"  # whose place names the number
    where = f" at {_readable(record)}" if named else ""
    if record.name in _PLACES:
        before = "≤" if record.name == "critical_value" and record.value == first else ""
        text = f"{before}{_place(record.value)}"
        ends = ""
        if record.low is not None or record.high is not None:
            low = "…" if record.low is None else _place(record.low)
            ends = f"{low}–{'…' if record.high is None else _place(record.high)}"
        return Cell(text, ends, reason)
    if record.name in _PLAIN:
        known = record.low is not None and record.high is not None
        ends = f"{signed(record.low or 0, digits=2)} to {signed(record.high or 0, digits=2)}"
        return Cell(signed(record.value, digits=2), ends if known else "", reason)
    if record.name == "spread":
        ends = range_text(record.metric, record.low, record.high)
        return Cell(percent(record.value), ends, reason)
    if record.name in _DIFFERENCES:
        known = record.low is not None and record.high is not None
        ends = f"{points(record.low or 0)} to {points(record.high or 0)}" if known else ""
        return Cell(points(record.value) + where, ends, reason)
    ends = range_text(record.metric, record.low, record.high)
    if record.name == "flip_rate":
        return Cell(f"{percent(record.value)}{PERCENT}", ends, reason)
    return Cell(value_text(record.metric, record.value) + where, ends, reason)


def _place(value: float) -> str:
    return f"{value:.3g}".replace("-", MINUS)


def _readable(record: Summary) -> str:
    """Where a number was found: a value, or a slice of two columns as ``(0.5, 0)``."""
    at = record.at or ""
    if "&" not in record.columns:
        return value_words(at)
    return f"({', '.join(map(value_words, parse_slice(at).values()))})"


def _warnings(summaries: Sequence[Summary]) -> tuple[str, ...]:
    said = dict.fromkeys(r.reason for r in summaries if r.model is None and r.reason)
    return tuple(f"{text[0].upper()}{text[1:]}." for text in said)


def _sheet(panel: Panel, images: Sequence[Example]) -> tuple[tuple[Example | None, ...], ...]:
    """Images by their two values, as the heat map lays them out: across, then down."""
    across = 1 if panel.is_grid and panel.types[0].axis == "y" else 0
    by_values = {(e.values[across], e.values[1 - across]): e for e in images}
    columns = [v for v in panel.values(across) if any(key[0] == v for key in by_values)]
    rows = [v for v in panel.values(1 - across) if any(key[1] == v for key in by_values)]
    return tuple(tuple(by_values.get((x, y)) for x in columns) for y in rows)

"""Figures of mistakes and of learning curves: the rows and the words of each; charts.py draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from heldout.data.testset.columns import ColumnType
from heldout.measure.mistakes.panel import UNJUDGED
from heldout.measure.mistakes.tally import ALL, EXPLAINED, LENIENT, MINOR
from heldout.measure.score.records import Tally
from heldout.measure.score.slices import parse_slice, values_in_order
from heldout.show import charts
from heldout.show.charts import Figure, Row, figure, number
from heldout.show.learning import CURVES, NAMES, LearningSection
from heldout.show.mistakes import MistakeSection, category_colour
from heldout.show.wording import (
    count,
    interval_names,
    limits,
    metric_name,
    percent,
    score_cell,
    value_text,
)

MOST_VALUES = 24
_MOST_MODELS = 12
_MOST_FORGIVEN = 30
_SEVERITY_COLOURS = {
    "Major": charts.VERMILLION,
    "Minor": "#56a3d3",
    "Borderline": "#9fc7e6",
    "unclear": charts.PURPLE,
    UNJUDGED: "#c3cad1",
}
_STEPS = {
    "": "every mistake counts",
    MINOR: "fine-grained forgiven",
    EXPLAINED: "explained forgiven",
    LENIENT: "judged minor forgiven",
}

Bar = tuple[Row, Tally, Sequence[tuple[Row, int]], Row]
"""Where a bar is, its whole, its pieces (fields and counts), and what its end says."""


def mistake_figures(
    sections: Iterable[MistakeSection], columns: Mapping[str, Mapping[str, ColumnType]]
) -> Iterator[Figure]:
    """The figures of every section, in the order of the page; ``columns`` are types by test set."""
    for section in sections:
        yield category_figure(section)
        if section.base and any(section.forgiven.values()):
            yield forgiven_figure(section)
        for names in section.slices:
            if len(names) == 1:
                kind = columns.get(section.testset, {}).get(names[0])
                yield slice_figure(section, names[0], kind)


def _bars(bars: Iterable[Bar]) -> tuple[list[Row], list[Row], str]:
    """The pieces of bars as shares of images, their ends, and how intervals were made in words."""
    rows: list[Row] = []
    ends: list[Row] = []
    totals: list[Tally] = []
    for at, total, pieces, label in bars:
        start = 0.0
        for code, (fields, n) in enumerate(pieces):
            if n:
                end = start + n / total.of
                rows.append({**at, "series": code, "start": start, "end": end, **fields})
                start = end
        ends.append({**at, **limits(total.value or 0.0, total), **label})
        totals.append(total)
    how = interval_names(totals, " Intervals of the whole bar: {}.")
    reasons = sorted({total.reason for total in totals if total.reason})
    return rows, ends, how or (f" No intervals: {reasons[0]}." if reasons else "")


def category_figure(section: MistakeSection) -> Figure:
    """Bars of categories, cut by severity, for the models on show."""
    shown, names = section.shown, section.severities
    bars: list[Bar] = []
    for slot, model in enumerate(shown):
        for category in section.categories:
            total = section.get(model, category)
            if total is not None and total.of:
                cut = {name: section.cell(model, category, name) for name in names}
                pieces = [
                    ({"severity": name, "text": f"{count(n)} of {count(total.of)} images"}, n)
                    for name, n in cut.items()
                ]
                short = count(total.n)
                label = f"{short}  {model}" if len(shown) > 1 else short
                at = {"model": model, "slot": slot, "category": category}
                bars.append((at, total, pieces, {"label": label, "short": short}))
    rows, ends, how = _bars(bars)
    listed = (f"{c} {count(section.cell(shown[0], c, ALL))}" for c in section.categories)
    return figure(
        ("mistakes", section.testset, section.truth, "categories"),
        f"Bars of the mistakes of {', '.join(shown)} on {section.testset} by category, cut by "
        f"severity. {shown[0]}: {', '.join(listed)}.",
        group=section.key,
        title="Categories and severity",
        caption=f"Mistakes of each category as a share of images; numbers are mistakes.{how}",
        narrow=[{"below": 460, "set": {"layer.2.encoding.text.field": "short"}}],
        **charts.stacked_bars(
            rows,
            ends,
            "category",
            section.categories,
            {"model": "model", "category": "category", "severity": "severity", "text": "mistakes"},
            names=names,
            colours=[_SEVERITY_COLOURS.get(name, charts.PURPLE) for name in names],
            beside=len(shown),
        ),
    )


def forgiven_figure(section: MistakeSection) -> Figure:
    """Accuracy as it is, with fine-grained mistakes forgiven, and with all that are explained."""
    steps = {"": section.base} | {end: found for end, found in section.forgiven.items() if found}
    models = [model for model in section.models if model in section.base][:_MOST_FORGIVEN]
    metric = section.base[models[0]].metric
    rows: list[Row] = [
        {
            "model": model,
            "series": code,
            "step": _STEPS[ending],
            **limits(score.value, score),
            "text": str(score_cell(score, metric)),
        }
        for model in models
        for code, (ending, found) in enumerate(steps.items())
        if (score := found.get(model)) is not None
    ]
    name = metric_name(metric)
    values = [row["value"] for row in rows if row["model"] == models[0]]
    first, last = (value_text(metric, extreme(values)) for extreme in (min, max))
    every = [score for found in steps.values() for score in found.values()]
    return figure(
        ("mistakes", section.testset, section.truth, "forgiven"),
        f"Dot plot of {name} on {section.testset} with no mistakes forgiven and with some: "
        f"{models[0]} goes from {first} to {last}.",
        group=section.key,
        title="Accuracy with mistakes forgiven",
        caption="Fine-grained: classes that are alike, in or out of the label space. Explained: also "
        "context and unusual instances." + interval_names(every, " Intervals: {}."),
        **charts.dot_plot(
            rows,
            "model",
            models,
            {"model": "model", "step": "counted", "text": name},
            name,
            names=[_STEPS[ending] for ending in steps],
        ),
    )


def _tally_text(record: Tally) -> str:
    """A tally in words, with its interval."""
    share = "" if record.value is None else f", {score_cell(record, 'top1')}"
    return f"{count(record.n)} of {count(record.of)}{share}"


def _error_rate(found: Mapping[str, Tally]) -> float:
    """The share of images that are wrong, of one slice's tallies by category; 0 where unknown."""
    return found[ALL].value or 0.0 if ALL in found else 0.0


def slice_figure(section: MistakeSection, column: str, kind: ColumnType | None) -> Figure:
    """Mistakes of the chosen model by the values of one column, as bars."""
    slices = section.slices[column,]
    models = [model for model in section.models if model in slices][:_MOST_MODELS]
    lead = slices[models[0]]
    at = {name: parse_slice(name)[column] for model in models for name in slices[model]}
    every = values_in_order(at.values(), kind)
    worst = sorted(at, key=lambda name: (-_error_rate(lead.get(name, {})), name))
    kept = {at[name] for name in worst[:MOST_VALUES]}
    shown = [value for value in every if value in kept]
    rows, ends, how = _bars(
        (
            {"model": model, "at": at[name]},
            by[ALL],
            [
                ({"category": c, "text": _tally_text(by[c])}, by[c].n) if c in by else ({}, 0)
                for c in section.categories
            ],
            {"label": f"{count(by[ALL].n)} of {count(by[ALL].of)}"},
        )
        for model in models
        for name, by in slices[model].items()
        if ALL in by and by[ALL].of and at[name] in kept
    )
    cut = f" The {MOST_VALUES} values with the most mistakes, of {len(every)}."
    unit = f" ({kind.unit})" if kind is not None and kind.unit else ""
    rates = [_error_rate(found) for found in lead.values()]
    return figure(
        ("mistakes", section.testset, section.truth, "by", column),
        f"Bars of the share of images of {section.testset} that {models[0]} gets wrong by {column}, "
        f"cut by category: {percent(min(rates))} to {percent(max(rates))} %.",
        group=section.key,
        columns=(column,),
        title=f"By {column.replace('_', ' ')}{unit}",
        caption="Mistakes in each slice as a share of its images, cut by category."
        f"{how}{cut if len(every) > len(shown) else ''}",
        **charts.stacked_bars(
            rows,
            ends,
            "at",
            shown,
            {"model": "model", "at": column, "category": "category", "text": "mistakes"},
            names=section.categories,
            colours=[category_colour(name) for name in section.categories],
            chosen=models[0],
        ),
    )


# ---- learning curves -----------------------------------------------------------------------------


def learning_figures(sections: Iterable[LearningSection]) -> Iterator[Figure]:
    """Curves of accuracy and of the worst domain."""
    for section in sections:
        for metric in CURVES:
            if any(len(section.points.get((name, metric, ALL), {})) > 1 for name in section.shown):
                yield _learning_curves(section, metric)


def _learning_curves(section: LearningSection, metric: str) -> Figure:
    """One metric of the strategies on show, with bands."""
    rows: list[Row] = [
        {
            "labels": record.labels,
            "series": place,
            **limits(record.value, record),
            "text": str(score_cell(record, "accuracy")),
            "strategy": name,
        }
        for place, name in enumerate(section.shown)
        for record in section.points.get((name, metric, ALL), {}).values()
        if record.labels is not None and record.value is not None
    ]
    last = max(row["labels"] for row in rows)
    ends = [f"{row['strategy']} {row['text']}" for row in rows if row["labels"] == last]
    cut = (
        f" Shown are those with the highest curves of {len(section.strategies)}: chance has helped "
        "them too. All are in the tables."
    )
    axis, names = NAMES[metric], section.shown
    titles = {"strategy": "strategy", "labels": "labels", "text": axis}
    y = number("value", charts.percent_axis(axis), zero=False)
    x_axis = {"title": "labels", "tickCount": 8, "grid": False}
    return figure(
        ("learning", section.testset, section.truth, metric),
        f"Curves of {axis} on {section.testset} over the number of labels for {', '.join(names)}. At "
        f"{last:,} labels: {'; '.join(ends)}.",
        title=f"{axis.capitalize()} over labels",
        caption="Means over seeds with intervals; all start from the same labels."
        + (cut if len(section.strategies) > len(names) else ""),
        group=section.key,
        rows=rows,
        titles=titles,
        names=names,
        height=340,
        encoding={
            "x": number("labels", x_axis, zero=False, nice=False),
            "color": charts.series(names, charts.CATEGORIES),
        },
        layer=charts.curves(y, titles, {"shape": charts.series(names, charts.CATEGORY_SHAPES)}),
    )

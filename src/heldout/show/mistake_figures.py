"""Figures of mistakes and of learning curves: the rows and the words of each; charts.py draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from heldout.data.testset.columns import ColumnType
from heldout.measure.mistakes.panel import UNJUDGED
from heldout.measure.mistakes.tally import ALL, EXPLAINED, LENIENT, MINOR
from heldout.measure.score.records import Tally
from heldout.measure.score.slices import parse_slice
from heldout.show import charts, theme
from heldout.show.charts import Figure, Row, between, draw, number, slug
from heldout.show.learning import CURVES, NAMES, SHARE, LearningSection
from heldout.show.mistakes import MistakeSection, category_colour
from heldout.show.wording import (
    PERCENT,
    count,
    interval_names,
    limits,
    metric_name,
    percent,
    range_text,
    slice_text,
    value_text,
    values_in_order,
)

MOST_VALUES = 24
_MOST_MODELS = 12
_MOST_FORGIVEN = 30
_MOST_DOMAINS = 7
_SEVERITY_COLOURS = {
    "Major": theme.VERMILLION,
    "Minor": "#56a3d3",
    "Borderline": "#9fc7e6",
    "unclear": theme.PURPLE,
    UNJUDGED: "#c3cad1",
}
_STEPS = {
    "": ("every mistake counts", theme.INK),
    MINOR: ("fine-grained forgiven", theme.BLUE),
    EXPLAINED: ("explained forgiven", theme.GREEN),
    LENIENT: ("judged minor forgiven", "#c79a1e"),
}
_SHARE_AXIS = charts.percent_axis("share of images")

Types = Mapping[str, ColumnType]


def mistake_figures(
    sections: Iterable[MistakeSection], columns: Mapping[str, Types]
) -> Iterator[Figure]:
    """The figures of every section, in the order of the page; ``columns`` are types by test set."""
    for section in sections:
        types = columns.get(section.testset, {})
        yield category_figure(section)
        if section.base and any(section.forgiven.values()):
            yield forgiven_figure(section)
        for names in section.slices:
            if len(names) == 1:
                yield slice_figure(section, names[0], types)
            elif len(names) == 2:
                yield from grid_figure(section, names, types)


def _figure(
    section: MistakeSection,
    what: Sequence[str],
    *,
    title: str,
    caption: str,
    columns: tuple[str, ...] = (),
    **parts: Any,
) -> Figure:
    return Figure(
        name=slug("mistakes", section.testset, section.truth, *what),
        section="mistakes",
        group=section.key,
        title=title,
        caption=caption,
        columns=columns,
        spec=charts.chart(grows=True, **parts),
    )


def _pieces(at: Row, parts: Iterable[tuple[Row, int]], of: int) -> Iterator[Row]:
    """The pieces of one bar, one after the other: shares of ``of`` images; none for a count of 0."""
    start = 0.0
    for code, (fields, n) in enumerate(parts):
        if n:
            yield {**at, "series": code, "start": start, "end": start + n / of, **fields}
            start += n / of


def _intervals(totals: Sequence[Tally]) -> str:
    """How the intervals of whole bars were made, or why there are none."""
    names = interval_names(totals)
    if names:
        return f" Intervals of the whole bar: {names}."
    reasons = sorted({total.reason for total in totals if total.reason})
    return f" No intervals: {reasons[0]}." if reasons else ""


def category_figure(section: MistakeSection) -> Figure:
    """Bars of categories, cut by severity, for the models on show."""
    shown, names = section.shown, section.severities
    rows: list[Row] = []
    ends: list[Row] = []
    totals: list[Tally] = []
    for slot, model in enumerate(shown):
        for category in section.categories:
            total = section.get(model, category)
            if total is None or not total.of:
                continue
            totals.append(total)
            at = {"model": model, "slot": slot, "category": category}
            cut = {name: section.cell(model, category, name) for name in names}
            parts = [
                ({"severity": name, "text": f"{count(n)} of {count(total.of)} images"}, n)
                for name, n in cut.items()
            ]
            rows += _pieces(at, parts, total.of)
            short = count(total.n)
            label = f"{short}  {model}" if len(shown) > 1 else short
            ends.append({**at, **limits(total.value or 0.0, total), "label": label, "short": short})
    # The axis ends past the longest interval, with room for the label beside it.
    longest = max((end["high"] for end in ends), default=0.0) or 0.01
    room = round(longest * (1.35 if len(shown) > 1 else 1.12), 6)
    titles = {"model": "model", "category": "category", "severity": "severity", "text": "mistakes"}
    colours = [_SEVERITY_COLOURS.get(name, theme.PURPLE) for name in names]
    most = max(section.categories, key=lambda c: section.cell(shown[0], c, ALL), default="")
    return _figure(
        section,
        ["categories"],
        title="Categories and severity",
        caption="Mistakes of each category as a share of images; numbers are mistakes."
        + _intervals(totals),
        width=720,
        height=(12 + 17 * len(shown)) * max(1, len(section.categories)),
        titles=titles,
        names=names,
        narrow=[{"below": 460, "set": {"layer.2.encoding.text.field": "short"}}],
        description=f"Bars of the mistakes of {', '.join(shown)} on {section.testset} by category, "
        f"cut by severity. {most} is the most frequent for {shown[0]}: "
        f"{count(section.cell(shown[0], most, ALL))}.",
        encoding={
            "y": charts.rows_of_names("category", section.categories, paddingInner=0.3),
            "yOffset": charts.beside("slot", len(shown), paddingInner=0.18),
        },
        layer=charts.stacked_bars(
            number("value", {"domain": [0, room]}, axis=_SHARE_AXIS),
            titles,
            rows,
            ends,
            colour=charts.series(names, colours),
            labels=True,
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
            "step": _STEPS[ending][0],
            **limits(score.value, score),
            "text": value_text(metric, score.value)
            + range_text(metric, score.low, score.high, brackets=True),
        }
        for model in models
        for code, (ending, found) in enumerate(steps.items())
        if (score := found.get(model)) is not None
    ]
    spans: list[Row] = []
    for model in models:
        values = [row["value"] for row in rows if row["model"] == model]
        spans.append({"model": model, "from": min(values), "to": max(values)})
    titles = {"model": "model", "step": "counted", "text": metric_name(metric)}
    names, colours = zip(*(_STEPS[ending] for ending in steps), strict=True)
    axis = charts.percent_axis(metric_name(metric))
    x = number("value", {"zero": False, "padding": 12}, axis=axis)
    intervals = interval_names(score for found in steps.values() for score in found.values())
    start, end = (value_text(metric, spans[0][key]) for key in ("from", "to"))
    return _figure(
        section,
        ["forgiven"],
        title="Accuracy with mistakes forgiven",
        caption="Fine-grained: classes that are alike, in or out of the label space. Explained: also "
        "context and unusual instances." + (f" Intervals: {intervals}." if intervals else ""),
        width=520,
        height=30 * len(models) + 14,
        titles=titles,
        names=names,
        description=f"Dot plot of {metric_name(metric)} on {section.testset} with no mistakes "
        f"forgiven and with some: {models[0]} goes from {start} to {end}.",
        encoding={"y": charts.rows_of_names("model", models, grid=True)},
        layer=[
            draw(
                "rule",
                {"strokeWidth": 5, "color": theme.GRID},
                between("x", x, "from", "to"),
                spans,
            ),
            *charts.dots(
                x,
                titles,
                rows,
                colour=charts.series(names, colours),
                shape=charts.series(names, theme.SHAPES),
            ),
        ],
    )


def _tally_text(record: Tally) -> str:
    """A tally in words, with its interval."""
    share = "" if record.value is None else f", {percent(record.value)}{PERCENT}"
    ends = range_text("top1", record.low, record.high, brackets=True)
    return f"{count(record.n)} of {count(record.of)}{share}{ends}"


def _error_rate(found: Mapping[str, Tally]) -> float:
    """The share of images that are wrong, of one slice's tallies by category; 0 where unknown."""
    return found[ALL].value or 0.0 if ALL in found else 0.0


def _highest(found: Mapping[str, Mapping[str, Tally]]) -> str:
    """The slice with the largest share of mistakes, in words."""
    name = max(found, key=lambda name: (_error_rate(found[name]), name))
    return f"Highest: {slice_text(parse_slice(name))}, {percent(_error_rate(found[name]))} %."


def slice_figure(section: MistakeSection, column: str, types: Types) -> Figure:
    """Bars of the mistakes in each slice of a column, cut by category, of the chosen model."""
    slices = section.slices[column,]
    models = [model for model in section.models if model in slices][:_MOST_MODELS]
    lead = slices[models[0]]
    kind, categories = types.get(column), section.categories
    texts = {name: parse_slice(name)[column] for model in models for name in slices[model]}
    every = values = values_in_order(texts.values(), kind)
    if len(every) > MOST_VALUES:
        worst = sorted(texts, key=lambda name: (-_error_rate(lead.get(name, {})), name))
        kept = {texts[name] for name in worst[:MOST_VALUES]}
        values = [value for value in every if value in kept]
    rows: list[Row] = []
    ends: list[Row] = []
    totals: list[Tally] = []
    for model in models:
        for name, found in slices[model].items():
            total = found.get(ALL)
            if total is None or not total.of or texts[name] not in values:
                continue
            totals.append(total)
            at = {"model": model, "at": texts[name]}
            parts = [
                ({"category": c, "text": _tally_text(found[c])}, found[c].n)
                if c in found
                else ({}, 0)
                for c in categories
            ]
            rows += _pieces(at, parts, total.of)
            label = f"{count(total.n)} of {count(total.of)}"
            ends.append({**at, **limits(total.value or 0.0, total), "label": label})
    titles = {"model": "model", "at": column, "category": "category", "text": "mistakes"}
    unit = f" ({kind.unit})" if kind is not None and kind.unit else ""
    cut = f" The {MOST_VALUES} values with the most mistakes, of {len(every)}."
    return _figure(
        section,
        ["by", column],
        title=f"By {column.replace('_', ' ')}{unit}",
        caption="Mistakes in each slice as a share of its images, cut by category."
        + _intervals(totals)
        + (cut if len(every) > len(values) else ""),
        columns=(column,),
        width=520,
        height=26 * max(1, len(values)),
        titles=titles,
        names=categories,
        params={"names": categories, "chosen": models[0]},
        description=f"Bars of the share of images of {section.testset} that {models[0]} gets wrong "
        f"by {column}, cut by category. {_highest(lead)}",
        encoding={"y": charts.rows_of_names("at", values, paddingInner=0.26)},
        layer=charts.stacked_bars(
            number("value", axis=_SHARE_AXIS),
            titles,
            rows,
            ends,
            colour=charts.series(categories, [category_colour(name) for name in categories]),
            keep=charts.CHOSEN,
        ),
    )


def grid_figure(
    section: MistakeSection, columns: tuple[str, ...], types: Types
) -> Iterator[Figure]:
    """A heat map of the share of images that the chosen model gets wrong, over two columns.

    None where a column has too many values for one.
    """
    slices = section.slices[columns]
    models = [model for model in section.models if model in slices][:_MOST_MODELS]
    across, down = columns
    parts = {name: parse_slice(name) for model in models for name in slices[model]}
    xs, ys = (
        values_in_order((found[column] for found in parts.values()), types.get(column))
        for column in columns
    )
    if max(len(xs), len(ys)) > MOST_VALUES:
        return
    rows = []
    for model in models:
        for name, found in slices[model].items():
            total, at = found.get(ALL), parts[name]
            if total is None or not total.of:
                continue
            counted = [
                f"{category}: {count(found[category].n)}"
                for category in section.categories
                if category in found and found[category].n
            ]
            rows.append(
                {
                    "model": model,
                    "x": xs.index(at[across]),
                    "y": ys.index(at[down]),
                    "across": at[across],
                    "down": at[down],
                    "value": total.n / total.of,
                    "text": _tally_text(total),
                    "kinds": "; ".join(counted) or "none",
                }
            )
    titles = {
        "model": "model",
        "across": across,
        "down": down,
        "text": "mistakes",
        "kinds": "categories",
    }
    look = {"ticks": False, "grid": False, "labelColor": theme.INK}
    angle = 0 if max(map(len, xs)) <= 5 else -40
    yield _figure(
        section,
        ["by", across, down],
        title=f"By {across} × {down}".replace("_", " "),
        caption="Mistakes as a share of the images of each cell; point at one for its categories.",
        columns=columns,
        width=520,
        height=30 * max(1, len(ys)),
        titles=titles,
        params={"across": xs, "down": ys, "chosen": models[0]},
        description=f"Heat map of the share of images of {section.testset} that {models[0]} gets "
        f"wrong by {across} and {down}. {_highest(slices[models[0]])}",
        encoding={
            "x": charts.grid_axis("x", "across", len(xs), across, labelAngle=angle, **look),
            "y": charts.grid_axis("y", "down", len(ys), down, **look),
        },
        layer=[
            charts.cells(
                {"range": list(theme.SEQUENTIAL), "domainMin": 0},
                {"labelExpr": charts.PERCENT_LABEL, "gradientLength": 180, "tickCount": 5},
                titles,
                rows,
                charts.CHOSEN,
            )
        ],
    )


# ---- learning curves -----------------------------------------------------------------------------


def learning_figures(sections: Iterable[LearningSection]) -> Iterator[Figure]:
    """Curves of accuracy and of the worst domain; shares of labels by domain."""
    for section in sections:
        for metric in CURVES:
            found = [section.points.get((name, metric, ALL), {}) for name in section.shown]
            if any(len(points) > 1 for points in found):
                yield _learning_curves(section, metric)
        if section.domain_slices and len(section.labels) > 1:
            yield _label_shares(section)


def _learning_curves(section: LearningSection, metric: str) -> Figure:
    """One metric of the strategies on show, with bands."""
    keys = {name: (name, metric, ALL) for name in section.shown}
    rows = _learning_rows(section, keys)
    last = max(row["labels"] for row in rows)
    best = max((row for row in rows if row["labels"] == last), key=lambda row: float(row["value"]))
    cut = (
        f" Shown are those with the highest curves of {len(section.strategies)}: chance has helped "
        "them too. All are in the tables."
    )
    return _learning_figure(
        section,
        metric,
        rows,
        list(keys),
        title=f"{NAMES[metric].capitalize()} over labels",
        axis=NAMES[metric],
        key="strategy",
        caption="Means over seeds with intervals; all start from the same labels."
        + (cut if len(section.strategies) > len(keys) else ""),
        description=f"Curves of {NAMES[metric]} on {section.testset} over the number of labels for "
        f"{', '.join(keys)}. At {last:,} labels {best['strategy']} is highest: {best['text']}.",
    )


def _label_shares(section: LearningSection) -> Figure:
    """Where the labels of one strategy went: the share of each domain so far."""
    ranked = [name for name in section.shown if name != section.baseline] or section.shown
    strategy = max(ranked, key=lambda name: section.mean(name, "worst_domain"))
    keys = {
        next(iter(parse_slice(domain).values())): (strategy, SHARE, domain)
        for domain in section.domain_slices[:_MOST_DOMAINS]
    }
    return _learning_figure(
        section,
        SHARE,
        _learning_rows(section, keys),
        list(keys),
        title=f"Where the labels of {strategy} went",
        axis="share of labels so far",
        key="domain",
        caption="The strategy on show whose worst domain is best; means over seeds with intervals.",
        description=f"Share of each domain among the labels of {strategy} on {section.testset}.",
    )


def _learning_rows(section: LearningSection, keys: Mapping[str, tuple[str, str, str]]) -> list[Row]:
    """The points of one curve per name."""
    return [
        {
            "labels": record.labels,
            "series": place,
            **limits(record.value, record),
            "text": f"{percent(record.value)} %"
            + range_text("accuracy", record.low, record.high, brackets=True),
            "strategy": name,
        }
        for place, (name, key) in enumerate(keys.items())
        for record in section.points.get(key, {}).values()
        if record.labels is not None and record.value is not None
    ]


def _learning_figure(
    section: LearningSection,
    metric: str,
    rows: Sequence[Row],
    names: Sequence[str],
    *,
    title: str,
    axis: str,
    key: str,
    caption: str,
    description: str,
) -> Figure:
    titles = {"strategy": key, "labels": "labels", "text": axis}
    y = number("value", {"zero": metric == SHARE}, axis=charts.percent_axis(axis))
    x_axis = {"title": "labels", "tickCount": 8, "grid": False}
    return Figure(
        name=slug("learning", section.testset, section.truth, metric),
        section="learning",
        group=section.key,
        title=title,
        caption=caption,
        spec=charts.chart(
            width=720,
            height=340,
            titles=titles,
            names=names,
            description=description,
            rows=rows,
            encoding={
                "x": number("labels", {"zero": False, "nice": False}, axis=x_axis),
                "color": charts.series(names, theme.CATEGORIES),
            },
            layer=charts.curves(y, titles, shape=charts.series(names, theme.CATEGORY_SHAPES)),
        ),
    )

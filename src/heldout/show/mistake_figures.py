"""Figures of mistakes: categories by severity, by columns, and accuracy with some forgiven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from heldout.measure.mistakes.forgiving import EXPLAINED, LENIENT, MINOR
from heldout.measure.mistakes.tallying import ALL
from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.mistake_parts import (
    SECTION,
    SEVERITY_COLOURS,
    SHARE_AXIS,
    bar_end,
    end_layers,
    figure_group,
    interval_text,
    numbered,
)
from heldout.show.mistake_slice_figures import grid_figure, slice_figure
from heldout.show.mistakes import MistakePart
from heldout.show.wording import count, interval_names, metric_name, range_text, value_text


def mistake_figures(headline: Headline, parts: Sequence[MistakePart]) -> Iterator[Figure]:
    """The figures of every part, in the order of the page."""
    for part in parts:
        yield category_figure(part)
        if part.base and any(part.forgiven.values()):
            yield forgiven_figure(part)
        for columns in part.slices:
            if len(columns) == 1:
                yield slice_figure(headline, part, columns[0])
            elif len(columns) == 2:
                grid = grid_figure(headline, part, (columns[0], columns[1]))
                if grid is not None:
                    yield grid


def category_figure(part: MistakePart) -> Figure:
    """Bars of categories, cut by severity, for the models on show."""
    shown = part.shown
    rows, ends = [], []
    for slot, model in enumerate(shown):
        for category in part.categories:
            total = part.get(model, category)
            if total is None or not total.of:
                continue
            start = 0.0
            for code, severity in enumerate(part.severities):
                n = part.cell(model, category, severity)
                if n:
                    rows.append(
                        {
                            "model": model,
                            "slot": slot,
                            "category": category,
                            "series": code,
                            "start": start,
                            "end": start + n / total.of,
                            "severity": severity,
                            "text": f"{count(n)} of {count(total.of)} images",
                        }
                    )
                    start += n / total.of
            short = count(total.n)
            label = f"{short}  {model}" if len(shown) > 1 else short
            ends.append(
                bar_end(total, model)
                | {"category": category, "slot": slot, "label": label, "short": short}
            )
    titles = {"model": "model", "category": "category", "severity": "severity", "text": "mistakes"}
    names = list(part.severities)
    colour = numbered(names, [SEVERITY_COLOURS.get(name, theme.PURPLE) for name in names])
    y = {
        "field": "category",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": part.categories, "paddingInner": 0.3},
        "axis": {**theme.no_axis_line(), "labelColor": theme.INK},
    }
    offset = {
        "field": "slot",
        "type": "nominal",
        "scale": {"domain": list(range(len(shown))), "paddingInner": 0.18},
    }
    most = max(part.categories, key=lambda c: part.cell(shown[0], c, ALL), default="")
    return Figure(
        name=slug(SECTION, part.testset, part.truth, "categories"),
        section=SECTION,
        group=figure_group(part),
        title="Categories and severity",
        caption=(
            f"Mistakes of each category as a share of images; numbers are mistakes. "
            f"{interval_text(ends)}"
        ).strip(),
        spec=theme.base(
            width=720,
            height=(12 + 17 * len(shown)) * max(1, len(part.categories)),
            rows=True,
            titles=titles,
            names=names if len(names) > 1 else (),
            narrow=[{"below": 460, "set": {"layer.2.encoding.text.field": "short"}}],
            params=[{"name": "names", "value": names}],
            description=(
                f"Bars of the mistakes of {', '.join(shown)} on {part.testset} by category, cut by "
                f"severity. {most} is the most frequent for {shown[0]}: "
                f"{count(part.cell(shown[0], most, ALL))}."
            ),
            encoding={"y": y, "yOffset": offset},
            layer=[
                {
                    "data": theme.values(rows),
                    "mark": {"type": "bar", "opacity": 0.92},
                    "encoding": {
                        "x": {
                            "field": "start",
                            "type": "quantitative",
                            "axis": SHARE_AXIS,
                            "scale": {"domain": [0, _room(ends, labels=len(shown) > 1)]},
                        },
                        "x2": {"field": "end"},
                        "color": colour,
                        "tooltip": theme.tooltip(titles),
                    },
                },
                *end_layers(ends, label=True),
            ],
        ),
    )


def _room(ends: Sequence[dict[str, Any]], *, labels: bool) -> float:
    """Where the axis ends: past the longest interval, with room for what stands beside it."""
    longest = max((end["high"] for end in ends), default=0.0) or 0.01
    return round(longest * (1.35 if labels else 1.12), 6)


_STEPS = {
    "": "every mistake counts",
    MINOR: "fine-grained forgiven",
    EXPLAINED: "explained forgiven",
    LENIENT: "judged minor forgiven",
}


def forgiven_figure(part: MistakePart) -> Figure:
    """Accuracy as it is, with fine-grained mistakes forgiven, and with all that are explained."""
    metric = next(iter(part.base.values())).metric
    steps = ["", *(ending for ending in (MINOR, EXPLAINED, LENIENT) if part.forgiven[ending])]
    models = [model for model in part.models if model in part.base][:30]
    rows: list[dict[str, Any]] = []
    for model in models:
        for code, ending in enumerate(steps):
            score = part.base[model] if not ending else part.forgiven[ending].get(model)
            if score is None:
                continue
            ends = range_text(metric, score.low, score.high)
            rows.append(
                {
                    "model": model,
                    "series": code,
                    "step": _STEPS[ending],
                    "value": score.value,
                    "low": score.value if score.low is None else score.low,
                    "high": score.value if score.high is None else score.high,
                    "text": value_text(metric, score.value) + (f" ({ends})" if ends else ""),
                }
            )
    spans: list[dict[str, Any]] = [
        {
            "model": model,
            "from": min(row["value"] for row in rows if row["model"] == model),
            "to": max(row["value"] for row in rows if row["model"] == model),
        }
        for model in models
    ]
    titles = {"model": "model", "step": "counted", "text": metric_name(metric)}
    names = [_STEPS[ending] for ending in steps]
    colours = [theme.INK, theme.BLUE, theme.GREEN, "#c79a1e"][: len(steps)]
    colour = numbered(names, colours)
    shape = numbered(names, list(theme.SHAPES[: len(steps)]))
    x = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": False, "padding": 12},
        "axis": {**SHARE_AXIS, "title": metric_name(metric)},
    }
    every = list(part.base.values())
    every += [s for ending in steps[1:] for s in part.forgiven[ending].values()]
    best = models[0]
    return Figure(
        name=slug(SECTION, part.testset, part.truth, "forgiven"),
        section=SECTION,
        group=figure_group(part),
        title="Accuracy with mistakes forgiven",
        caption=(
            "Fine-grained: classes that are alike, in or out of the label space. Explained: also "
            "context and unusual instances."
            + (f" Intervals: {interval_names(every)}." if interval_names(every) else "")
        ),
        spec=theme.base(
            width=520,
            height=30 * len(models) + 14,
            rows=True,
            titles=titles,
            names=names,
            params=[{"name": "names", "value": names}],
            description=(
                f"Dot plot of {metric_name(metric)} on {part.testset} with no mistakes forgiven and "
                f"with some: {best} goes from {value_text(metric, spans[0]['from'])} to "
                f"{value_text(metric, spans[0]['to'])}."
            ),
            encoding={
                "y": {
                    "field": "model",
                    "type": "nominal",
                    "sort": None,
                    "scale": {"domain": models},
                    "axis": {**theme.no_axis_line(), "labelColor": theme.INK, "grid": True},
                }
            },
            layer=[
                {
                    "data": theme.values(spans),
                    "mark": {"type": "rule", "strokeWidth": 5, "color": theme.GRID},
                    "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}},
                },
                {
                    "data": theme.values(rows),
                    "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.55},
                    "encoding": {
                        "x": {**x, "field": "low"},
                        "x2": {"field": "high"},
                        "color": colour,
                    },
                },
                {
                    "data": theme.values(rows),
                    "mark": {"type": "point", "filled": True, "size": 58, "opacity": 1},
                    "encoding": {
                        "x": x,
                        "color": colour,
                        "shape": shape,
                        "tooltip": theme.tooltip(titles),
                    },
                },
            ],
        ),
    )

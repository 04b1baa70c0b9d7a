"""Figures of slices by column type: bars, curves, closed curves; heat maps for two columns."""

from __future__ import annotations

from collections.abc import Iterable

from heldout.report import theme
from heldout.report.data import Headline
from heldout.report.figure import Figure
from heldout.report.heat_map import heat_map
from heldout.report.panels import Panel, number, panels
from heldout.report.slice_parts import (
    SHOWN,
    column_title,
    overall_layer,
    panel_rows,
    shown_models,
    slice_figure,
    slice_titles,
    slots,
    value_axis,
)

MOST_BARS = 40
_RANGE = [
    {
        "aggregate": [
            {"op": "min", "field": "value", "as": "least"},
            {"op": "max", "field": "value", "as": "most"},
        ],
        "groupby": ["at"],
    }
]


def slice_figures(headline: Headline) -> Iterable[Figure]:
    """One figure for every panel of one or two columns that are not plain text."""
    for panel in panels(headline):
        kinds = [kind.kind for kind in panel.types]
        if "text" in kinds or len(kinds) > 2:
            continue
        if len(kinds) == 2:
            yield heat_map(headline, panel)
        elif kinds == ["circular"]:
            yield _curve(headline, panel, period=panel.types[0].period)
        elif kinds == ["categorical"]:
            yield _bars(headline, panel)
        else:
            yield _curve(headline, panel)


def _bars(headline: Headline, panel: Panel) -> Figure:
    values = panel.values()
    mean = {
        value: sum(s[(value,)].value for s in panel.scores.values() if (value,) in s)
        / sum((value,) in s for s in panel.scores.values())
        for value in values
    }
    if not panel.types[0].order:
        values = sorted(values, key=lambda v: (mean[v], v))
    kept = set(sorted(values, key=lambda v: (mean[v], v))[:MOST_BARS])
    dropped = len(values) - len(kept)
    values = [value for value in values if value in kept]
    shown = shown_models(headline, panel)
    titles = slice_titles(panel)
    x = {"field": "value", "type": "quantitative", "axis": value_axis(headline.metric)}
    y = {
        "field": "at",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": values, "paddingInner": 0.28},
        "axis": {**theme.no_axis_line(), "labelColor": theme.INK},
    }
    offset = {
        "field": "slot",
        "type": "nominal",
        "scale": {"domain": {"expr": "sequence(length(shown))"}},
    }
    colour = slots(theme.SLOTS, legend=len(panel.scores) > 1)
    layers: list[theme.Spec] = [
        {
            "transform": SHOWN,
            "encoding": {"yOffset": offset, "color": colour},
            "layer": [
                {
                    "mark": {"type": "bar", "opacity": 0.82, "cornerRadiusEnd": 1.5},
                    "encoding": {
                        "x": {**x, "scale": {"zero": True}},
                        "tooltip": theme.tooltip(titles),
                    },
                },
                {
                    "mark": {"type": "rule", "strokeWidth": 1.3},
                    "encoding": {
                        "x": {**x, "field": "low"},
                        "x2": {"field": "high"},
                        "color": {"value": theme.INK},
                    },
                },
            ],
        },
        overall_layer(headline, panel, "x"),
    ]
    extra = f" The {MOST_BARS} lowest of {len(values) + dropped} values." if dropped else ""
    return slice_figure(
        headline,
        panel,
        shown,
        titles=titles,
        height=(8 + 10 * len(shown)) * len(values),
        rows=True,
        data=theme.values(panel_rows(panel, values)),
        encoding={"y": y},
        layer=layers,
        extra=extra,
        form="Bars",
    )


def _curve(headline: Headline, panel: Panel, period: float | None = None) -> Figure:
    values = panel.values()
    numbers = [number(value) for value in values]
    numeric = None not in numbers and not panel.types[0].order
    rows = panel_rows(panel, values)
    x: theme.Spec = {"field": "at", "type": "ordinal", "sort": None, "scale": {"domain": values}}
    axis: theme.Spec = {
        "title": column_title(panel, 0),
        "grid": False,
        "labelAngle": 0,
        "labelOverlap": True,
    }
    if numeric:
        for row in rows:
            row["at"] = float(row["at"])
        x = {"field": "at", "type": "quantitative", "scale": {"zero": False, "nice": False}}
    extra = ""
    if numeric and period:
        start = min(row["at"] for row in rows)
        ends = [r for r in rows if r["at"] == start]
        done = {row["model"] for row in rows if row["at"] == start + period}
        rows += [row | {"at": start + period} for row in ends if row["model"] not in done]
        x["scale"] = {"domain": [start, start + period], "nice": False}
        axis["values"] = [round(start + period * quarter / 4, 6) for quarter in range(5)]
        extra = " The axis comes round: its right end repeats the left."
    x["axis"] = axis
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": False},
        "axis": value_axis(headline.metric),
    }
    shown = shown_models(headline, panel)
    titles = slice_titles(panel)
    colour = slots(theme.SLOTS, legend=len(panel.scores) > 1)
    order = {"field": "at", "type": "quantitative"} if numeric else None
    layers: list[theme.Spec] = []
    if len(panel.scores) > len(shown):
        layers.append(
            {
                "transform": _RANGE,
                "mark": {"type": "area", "color": "#8c959f", "opacity": 0.13},
                "encoding": {
                    "y": {**y, "field": "least"},
                    "y2": {"field": "most"},
                },
            }
        )
        extra += f" Grey: the range of all {len(panel.scores)} models."
    layers.append(
        {
            "transform": SHOWN,
            "encoding": {"color": colour},
            "layer": [
                {
                    "mark": {"type": "area", "opacity": 0.18},
                    "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
                },
                {
                    "mark": {"type": "line", "strokeWidth": 1.8},
                    "encoding": {"y": y, **({"order": order} if order else {})},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 36, "opacity": 1},
                    "encoding": {
                        "y": y,
                        "shape": slots(theme.SHAPES, legend=len(panel.scores) > 1),
                        "tooltip": theme.tooltip(titles),
                    },
                },
            ],
        }
    )
    layers.append(overall_layer(headline, panel, "y"))
    return slice_figure(
        headline,
        panel,
        shown,
        titles=titles,
        height=320,
        data=theme.values(rows),
        encoding={"x": x},
        layer=layers,
        extra=extra,
        form="Closed curve" if period else "Curve",
    )

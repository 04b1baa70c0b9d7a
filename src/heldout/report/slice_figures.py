"""Figures of slices by column type: bars, curves, closed curves and heat maps.

The models on show are a parameter of the figure (``shown``, at most four), so that the page can
change them without drawing anew; a still picture shows the best, a middle and the worst model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from heldout.report import theme
from heldout.report.data import Headline
from heldout.report.figure import Figure, slug
from heldout.report.panels import Panel, number, panels
from heldout.report.wording import (
    count,
    interval_names,
    is_share,
    metric_name,
    range_text,
    value_text,
)
from heldout.score.records import Score

MOST_BARS = 40
_MOST_NUMBERED_CELLS = 144
_SHOWN = [
    {"calculate": "indexof(shown, datum.model)", "as": "slot"},
    {"filter": "datum.slot >= 0"},
]

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
            yield _heat_map(headline, panel)
        elif kinds == ["circular"]:
            yield _curve(headline, panel, period=panel.types[0].period)
        elif kinds == ["categorical"]:
            yield _bars(headline, panel)
        else:
            yield _curve(headline, panel)


def shown_models(headline: Headline, panel: Panel) -> list[str]:
    """The best, a middle and the worst model of a panel, by their score on the whole test set."""
    overall = headline.overall(panel.testset)
    ranked = sorted(panel.scores, key=lambda m: (-overall[m].value if m in overall else 1.0, m))
    if len(ranked) <= 3:
        return ranked
    return [ranked[0], ranked[len(ranked) // 2], ranked[-1]]


def _rows(panel: Panel, values: Sequence[str]) -> list[dict[str, Any]]:
    return [
        _row(score) | {"at": value}
        for scores in panel.scores.values()
        for value in values
        if (score := scores.get((value,))) is not None
    ]


def _row(score: Score) -> dict[str, Any]:
    ends = range_text(score.metric, score.low, score.high)
    return {
        "model": score.model,
        "value": score.value,
        "low": score.value if score.low is None else score.low,
        "high": score.value if score.high is None else score.high,
        "text": value_text(score.metric, score.value) + (f" ({ends})" if ends else ""),
        "n": count(score.n),
    }


def _value_axis(metric: str, **options: Any) -> theme.Spec:
    label = "format(100 * datum.value, '.3~g') + ' %'" if is_share(metric) else "datum.label"
    return {"title": metric_name(metric), "labelExpr": label, "tickCount": 6, **options}


def _slots(field_range: Sequence[str], *, legend: bool) -> theme.Spec:
    return {
        "field": "slot",
        "type": "nominal",
        "scale": {"domain": list(range(len(theme.SLOTS))), "range": list(field_range)},
        "legend": {
            "title": None,
            "values": {"expr": "sequence(length(shown))"},
            "labelExpr": "shown[datum.value]",
            "columns": theme.LEGEND_COLUMNS,
        }
        if legend
        else None,
    }


def _overall_layer(headline: Headline, panel: Panel, channel: str) -> theme.Spec:
    """A dashed rule for each shown model: its score on the whole test set."""
    overall = headline.overall(panel.testset)
    rows = [{"model": m, "overall": overall[m].value} for m in panel.scores if m in overall]
    other = {"x": ("y", "yOffset"), "y": ("x", "xOffset")}[channel]
    return {
        "data": theme.values(rows),
        "transform": _SHOWN,
        "mark": {"type": "rule", "strokeDash": [3, 3], "opacity": 0.7, "strokeWidth": 1},
        "encoding": {
            channel: {"field": "overall", "type": "quantitative"},
            **dict.fromkeys(other),
            "color": _slots(theme.SLOTS, legend=len(panel.scores) > 1),
        },
    }


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
    x = {"field": "value", "type": "quantitative", "axis": _value_axis(headline.metric)}
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
    colour = _slots(theme.SLOTS, legend=len(panel.scores) > 1)
    layers: list[theme.Spec] = [
        {
            "transform": _SHOWN,
            "encoding": {"yOffset": offset, "color": colour},
            "layer": [
                {
                    "mark": {"type": "bar", "opacity": 0.82, "cornerRadiusEnd": 1.5},
                    "encoding": {
                        "x": {**x, "scale": {"zero": True}},
                        "tooltip": theme.tooltip(
                            model="model", at=panel.columns[0], text="score", n="images"
                        ),
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
        _overall_layer(headline, panel, "x"),
    ]
    extra = f" The {MOST_BARS} lowest of {len(values) + dropped} values." if dropped else ""
    return _figure(
        headline,
        panel,
        shown,
        values,
        height=(8 + 10 * len(shown)) * len(values),
        rows=True,
        data=theme.values(_rows(panel, values)),
        encoding={"y": y},
        layer=layers,
        extra=extra,
        form="Bars",
    )


def _curve(headline: Headline, panel: Panel, period: float | None = None) -> Figure:
    values = panel.values()
    numbers = [number(value) for value in values]
    numeric = None not in numbers and not panel.types[0].order
    rows = _rows(panel, values)
    unit = panel.types[0].unit
    title = panel.columns[0] + (f" ({unit})" if unit else "")
    x: theme.Spec = {"field": "at", "type": "ordinal", "sort": None, "scale": {"domain": values}}
    axis: theme.Spec = {"title": title, "grid": False, "labelAngle": 0, "labelOverlap": True}
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
        "axis": _value_axis(headline.metric),
    }
    shown = shown_models(headline, panel)
    colour = _slots(theme.SLOTS, legend=len(panel.scores) > 1)
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
            "transform": _SHOWN,
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
                        "shape": _slots(theme.SHAPES, legend=len(panel.scores) > 1),
                        "tooltip": theme.tooltip(
                            model="model", at=panel.columns[0], text="score", n="images"
                        ),
                    },
                },
            ],
        }
    )
    layers.append(_overall_layer(headline, panel, "y"))
    return _figure(
        headline,
        panel,
        shown,
        values,
        height=320,
        data=theme.values(rows),
        encoding={"x": x},
        layer=layers,
        extra=extra,
        form="Closed curve" if period else "Curve",
    )


def _heat_map(headline: Headline, panel: Panel) -> Figure:
    across, down = (1, 0) if panel.is_grid and panel.types[0].axis == "y" else (0, 1)
    x_values, y_values = panel.values(across), panel.values(down)
    rows = [
        _row(score) | {"at": values[across], "row": values[down]}
        for scores in panel.scores.values()
        for values, score in scores.items()
    ]
    position = {
        "x": {
            "field": "at",
            "type": "ordinal",
            "sort": None,
            "scale": {"domain": x_values, "padding": 0},
            "axis": {
                "title": _column_title(panel, across),
                "domain": False,
                "labelAngle": 0 if max(map(len, x_values)) <= 5 else -40,
            },
        },
        "y": {
            "field": "row",
            "type": "ordinal",
            "sort": None,
            "scale": {"domain": y_values, "padding": 0},
            "axis": {"title": _column_title(panel, down), "domain": False},
        },
    }
    numbers = {
        "mark": {"type": "text", "fontSize": 10.5},
        "encoding": {
            "text": {"field": "cell", "type": "nominal"},
            "color": {
                "condition": {
                    # White figures on the deep half of the scale, ink on the pale half.
                    "test": "datum.value > datum.least + 0.5 * (datum.most - datum.least)",
                    "value": "white",
                },
                "value": theme.INK,
            },
        },
    }
    cells = len(x_values) * len(y_values)
    for row in rows:
        row["cell"] = (
            f"{100 * row['value']:.0f}" if is_share(headline.metric) else f"{row['value']:.2f}"
        )
    legend = {
        "title": None,
        "orient": "right",
        "direction": "vertical",
        "gradientLength": 200,
        "gradientThickness": 10,
        "labelExpr": _value_axis(headline.metric)["labelExpr"],
        "tickCount": 5,
    }
    shown = shown_models(headline, panel)
    heading = f"{_title(panel)}: "
    return _figure(
        headline,
        panel,
        shown,
        [],
        height=max(180, min(440, 34 * len(y_values) + 40)),
        data=theme.values(rows),
        title={"text": {"expr": "heading + shown[0]"}, "fontSize": 12, "fontWeight": "normal"},
        transform=[
            {"filter": "datum.model === shown[0]"},
            {
                "joinaggregate": [
                    {"op": "min", "field": "value", "as": "least"},
                    {"op": "max", "field": "value", "as": "most"},
                ]
            },
        ],
        encoding=position,
        layer=[
            {
                "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1},
                "encoding": {
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "scale": {
                            "zero": False,
                            "range": list(theme.SEQUENTIAL),
                            "interpolate": "lab",
                        },
                        "legend": legend,
                    },
                    "tooltip": theme.tooltip(
                        model="model",
                        at=panel.columns[across],
                        row=panel.columns[down],
                        text="score",
                        n="images",
                    ),
                },
            },
            *([numbers] if cells <= _MOST_NUMBERED_CELLS else []),
        ],
        heading=heading,
        extra=" The first model on show is drawn; the scale spans its lowest to its highest cell.",
        form="Heat map",
    )


def _title(panel: Panel) -> str:
    """The columns; a grid by the name that its two axes share."""
    names = " × ".join(panel.columns)
    return f"{panel.types[0].grid} ({names})" if panel.is_grid else names


def _column_title(panel: Panel, position: int) -> str:
    unit = panel.types[position].unit
    return panel.columns[position] + (f" ({unit})" if unit else "")


def _figure(
    headline: Headline,
    panel: Panel,
    shown: Sequence[str],
    values: Sequence[str],
    *,
    height: int,
    form: str,
    extra: str,
    heading: str = "",
    **parts: Any,
) -> Figure:
    title = _title(panel)
    every = [score for scores in panel.scores.values() for score in scores.values()]
    overall = headline.overall(panel.testset)
    names = interval_names(every)
    caption = (f"Intervals: {names}." if names else "") + (
        " Dashed: the model on the whole set." if overall and form != "Heat map" else ""
    )
    lowest = min(every, key=lambda s: (s.value, s.slice))
    alt = (
        f"{form} of {metric_name(headline.metric)} on {panel.testset} by {title} for "
        f"{', '.join(shown)}. Lowest of all models: {value_text(lowest.metric, lowest.value)} "
        f"by {lowest.model} where {lowest.slice}."
    )
    params: list[theme.Spec] = [{"name": "shown", "value": list(shown)}]
    if heading:
        params.append({"name": "heading", "value": heading})
    return Figure(
        name=slug("slices", panel.testset, *panel.columns),
        section="slices",
        title=title,
        group=panel.testset,
        caption=(caption + extra).strip(),
        spec=theme.base(width=520, height=height, description=alt, params=params, **parts),
    )

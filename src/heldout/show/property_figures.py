"""Accuracy of slices against a number that they have, a point a slice and model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from heldout.measure.score.memberships import weighted_line
from heldout.measure.score.records import Summary
from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure
from heldout.show.panels import Panel, panels
from heldout.show.slice_parts import (
    SHOWN,
    overall_layer,
    score_row,
    shown_models,
    slice_figure,
    slots,
    value_axis,
)
from heldout.show.wording import points, signed


def property_figures(headline: Headline) -> Iterable[Figure]:
    """One figure for every number that the values of a column have."""
    for panel in panels(headline):
        for name in slice_properties(panel):
            yield _figure(headline, panel, name, slice_properties(panel)[name])


def slice_properties(panel: Panel) -> dict[str, dict[str, Summary]]:
    """By name and value: the numbers that slices have, whatever the model."""
    if len(panel.columns) != 1:
        return {}
    values = {value[0] for scores in panel.scores.values() for value in scores}
    found: dict[str, dict[str, Summary]] = {}
    for record in panel.summaries:
        if record.model is None and record.value is not None and record.at in values:
            found.setdefault(record.name, {})[str(record.at)] = record
    return found


def _figure(headline: Headline, panel: Panel, name: str, numbers: dict[str, Summary]) -> Figure:
    rows: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for model, scores in panel.scores.items():
        here = [(numbers[at[0]], score) for at, score in scores.items() if at[0] in numbers]
        rows += [
            score_row(score) | {"at": number.at, "x": number.value, "x_text": _number(number)}
            for number, score in here
        ]
        lines += _line(model, [(n.value or 0.0, s.value, s.n) for n, s in here])
    shown = shown_models(headline, panel)
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"zero": False},
        "axis": {"title": name.replace("_", " "), "grid": False},
    }
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": False},
        "axis": value_axis(headline.metric),
    }
    colour = slots(theme.SLOTS, legend=len(panel.scores) > 1)
    shape = slots(theme.SHAPES, legend=len(panel.scores) > 1)
    titles = {
        "model": "model",
        "at": panel.columns[0],
        "x_text": name.replace("_", " "),
        "text": "score",
        "n": "images",
    }
    layers: list[theme.Spec] = [
        {
            "transform": SHOWN,
            "mark": {"type": "rule", "opacity": 0.4, "strokeWidth": 1.2},
            "encoding": {
                "x": x,
                "y": {**y, "field": "low"},
                "y2": {"field": "high"},
                "color": colour,
            },
        },
        {
            "data": theme.values(lines),
            "transform": SHOWN,
            "mark": {"type": "line", "strokeWidth": 1.6, "opacity": 0.9},
            "encoding": {"x": x, "y": y, "color": colour, "detail": {"field": "model"}},
        },
        {
            "transform": SHOWN,
            "mark": {"type": "point", "filled": True, "size": 46, "opacity": 0.9},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "shape": shape,
                "tooltip": theme.tooltip(titles),
            },
        },
        overall_layer(headline, panel, "y"),
    ]
    return slice_figure(
        headline,
        panel,
        shown,
        titles=titles,
        height=340,
        data=theme.values(rows),
        layer=layers,
        variant=f"against {name.replace('_', ' ')}",
        extra=_slopes(panel, name, shown),
        form="Points",
    )


def _number(record: Summary) -> str:
    text = signed(record.value or 0.0, digits=3, plus=False)
    if record.low is None or record.high is None:
        return text
    return f"{text} ({signed(record.low, digits=3, plus=False)}–{record.high:.3f})"


def _line(model: str, at: list[tuple[float, float, int]]) -> list[dict[str, Any]]:
    """The two ends of a model's least-squares line, slices weighted by their images."""
    if len(at) < 3 or len({x for x, _, _ in at}) < 2:
        return []
    x, y, n = (np.array(part, dtype=np.float64) for part in zip(*at, strict=True))
    intercept, slope = weighted_line(x, y, n)
    return [
        {"model": model, "x": float(end), "value": intercept + slope * float(end)}
        for end in (x.min(), x.max())
    ]


def _slopes(panel: Panel, name: str, shown: list[str]) -> str:
    """The slopes of the models on show, in words."""
    found = []
    for record in panel.summaries:
        if record.name == "slope" and record.at == name and record.model in shown:
            if record.value is None:
                continue
            ends = ""
            if record.low is not None and record.high is not None:
                ends = f" ({points(record.low)} to {points(record.high)})"
            found.append(f"{record.model} {points(record.value)}{ends}")
    if not found:
        return ""
    return f" Points of accuracy a unit of {name.replace('_', ' ')}: {', '.join(found)}."

"""The look of every figure: colours, type and the Vega-Lite configuration.

Colours are Okabe and Ito's, which readers with any common colour blindness can tell apart; shapes
repeat what colours say. No user text ever becomes an expression: it stays in data values, titles
and parameter values, and field names are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # an identifier: never fetched
VL_VERSION = "6.4"

INK = "#1b1f24"
MUTED = "#57606a"
RULE = "#d0d7de"
GRID = "#eaeef2"
BLUE = "#0072b2"
VERMILLION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#a04c82"
SLOTS = (BLUE, VERMILLION, GREEN, PURPLE)
SHAPES = ("circle", "square", "triangle-up", "diamond")
CATEGORIES = (BLUE, VERMILLION, GREEN, PURPLE, "#b78a00", "#3f8fc4", "#5c5c5c")
CATEGORY_SHAPES = (*SHAPES, "triangle-down", "cross", "stroke")
# One hue from pale to deep, lightness falling evenly: reads in print and in grey.
SEQUENTIAL = ("#f1f6fb", "#c9dff0", "#94c0de", "#569bc7", "#1f73a9", "#0c4a78", "#052a4a")
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

LETTER = 6.3  # the mean width of a letter in a label, in pixels

CONFIG: Spec = {
    "font": FONT,
    "background": "white",
    "aria": False,  # a figure has one description, not one a mark
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": INK,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 5,
        "domainColor": RULE,
        "tickColor": RULE,
        "tickSize": 4,
        "gridColor": GRID,
        "labelLimit": 220,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": MUTED,
        "labelFontSize": 11.5,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "symbolSize": 70,
        "symbolOpacity": 1,
        "labelLimit": 260,
        "orient": "top",
        "direction": "horizontal",
        "columnPadding": 18,
        "offset": 10,
    },
    "title": {
        "anchor": "start",
        "color": INK,
        "fontSize": 13,
        "fontWeight": 600,
        "subtitleColor": MUTED,
        "subtitleFontSize": 11.5,
        "offset": 12,
    },
}


def base(
    *,
    width: int,
    height: int,
    description: str,
    square: bool = False,
    rows: bool = False,
    narrow: Sequence[Spec] = (),
    titles: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
    **parts: Any,
) -> Spec:
    """A top-level Vega-Lite specification in our look.

    ``height`` is that of the whole figure, or with ``rows`` that of the plot alone, which axes and
    legend then add to. ``names`` is what the legend lists, ``titles`` names the tooltip's fields.
    The page fits figures to their column: ``square`` keeps the height equal to the width, and
    ``narrow`` says what changes below a width, ``{"below": pixels, "set": {dotted path: value}}``.
    """
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": width,
        "height": height,
        "autosize": {"type": "fit-x" if rows else "fit", "contains": "padding"},
        "padding": 4,
        "usermeta": {
            "square": square,
            "narrow": list(narrow),
            "titles": dict(titles or {}),
            "names": list(names),
        },
        **parts,
        "config": {
            **CONFIG,
            "axis": {**CONFIG["axis"], "titleLimit": round(0.86 * width)},
            "legend": {**CONFIG["legend"], "columns": legend_columns(names, width)},
        },
    }


def legend_columns(names: Sequence[str], width: int) -> int:
    """How many names of a legend fit beside each other in a figure of that width."""
    widest = LETTER * max(map(len, names), default=1) + 44
    return max(1, int(0.68 * width / widest))


def values(rows: Sequence[Mapping[str, Any]]) -> Spec:
    """Inline data; floats to six decimals, which is finer than any pixel and keeps pages small."""
    return {
        "values": [
            {
                key: round(value, 6) if isinstance(value, float) else value
                for key, value in row.items()
            }
            for row in rows
        ]
    }


def tooltip(titles: Mapping[str, str]) -> list[Spec]:
    """A tooltip of these text fields; the page shows them under ``titles`` (see :func:`base`).

    Vega would build the titles into an expression; kept beside it, they stay plain text.
    """
    return [{"field": field, "type": "nominal"} for field in titles]


def series(names: Sequence[str]) -> tuple[Spec, Spec, Spec]:
    """Colour and shape by the number in the field ``series``, and the parameter that names them.

    Numbers, because Vega-Lite writes the domain of such a channel into an expression, where text
    from the data must never stand.
    """
    numbers = list(range(len(names)))
    legend = {"title": None, "labelExpr": "names[datum.value]"}
    channel: Spec = {
        "field": "series",
        "type": "nominal",
        "legend": legend if len(names) > 1 else None,
    }
    colour = {**channel, "scale": {"domain": numbers, "range": list(CATEGORIES[: len(names)])}}
    shape = {**channel, "scale": {"domain": numbers, "range": list(CATEGORY_SHAPES[: len(names)])}}
    return colour, shape, {"name": "names", "value": list(names)}


def no_axis_line() -> Spec:
    """An axis without line and ticks, for rows of names."""
    return {"domain": False, "ticks": False, "grid": False, "title": None}

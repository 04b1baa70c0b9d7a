"""The look of every figure: colours, shapes, type and the Vega-Lite configuration.

Colours are Okabe and Ito's, which readers with any common colour blindness can tell apart; shapes
repeat what colours say.
"""

from __future__ import annotations

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
SLOT_LOOKS = (SLOTS, SHAPES)
CATEGORIES = (BLUE, VERMILLION, GREEN, PURPLE, "#b78a00", "#3f8fc4", "#5c5c5c")
CATEGORY_SHAPES = (*SHAPES, "triangle-down", "cross", "stroke")
# One hue from pale to deep, lightness falling evenly: reads in print and in grey.
SEQUENTIAL = ("#f1f6fb", "#c9dff0", "#94c0de", "#569bc7", "#1f73a9", "#0c4a78", "#052a4a")
# Two hues that meet in grey at zero.
DIVERGING = ("#8f3d00", VERMILLION, "#f3b38a", "#f5f6f7", "#8fc1e0", BLUE, "#003f66")
FONT = "'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"

LETTER = 6.3  # the mean width of a letter in a label, in pixels

CONFIG: Spec = {
    "font": FONT,
    "background": "white",
    "aria": False,  # a figure has one description, not one a mark
    "view": {"stroke": None},
    "point": {"filled": True, "size": 46, "opacity": 1},
    "rule": {"strokeWidth": 1.5},
    "line": {"strokeWidth": 1.9},
    "area": {"opacity": 0.15},
    "bar": {"opacity": 0.9},
    "rect": {"stroke": "white", "strokeWidth": 1},
    "text": {"fontSize": 10.5},
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

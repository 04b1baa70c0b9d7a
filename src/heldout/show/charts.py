"""The five forms of charts, as Vega-Lite: dots, stacked bars, curves, heat maps, scatters.

Text from the data must never become part of a Vega expression. That rule is kept here: this module
writes every expression (axes.py those of tick labels), all of them constants over our own field
names. Names of models, test sets, columns and values stay in rows, titles, domains of positions and
values of parameters. Vega-Lite writes the domain of a colour, a shape or an offset into expressions
of its own, so those channels hold numbers, and a parameter names the numbers.

A form gives the parts of a chart, or its layers; :func:`figure` makes a figure of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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


Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
Titles = Mapping[str, str]
"""Names of the fields that a tooltip shows."""

SECTIONS = ("accuracy", "changes", "slices", "learning", "mistakes", "comparisons")
PERCENT_LABEL = "format(100 * datum.value, '.3~g') + ' %'"
SHOWN: list[Spec] = [
    {"calculate": "indexof(shown, datum.model)", "as": "slot"},
    {"filter": "datum.slot >= 0"},
]
"""Keeps the rows of the models in the parameter ``shown``, which the page changes."""
_CHOSEN: list[Spec] = [{"filter": "datum.model == chosen"}]
_LEAST_AND_MOST = [
    {"op": "min", "field": "value", "as": "least"},
    {"op": "max", "field": "value", "as": "most"},
]
_UNSAFE = re.compile(r"[^a-z0-9._]+")
_MOST_NUMBERED = 144


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a report.

    ``name``     unique in the report; also the file name without its ending
    ``section``  where the page shows it, one of :data:`SECTIONS`
    ``caption``  what is drawn and how the intervals were made
    ``spec``     Vega-Lite; its ``description`` is the text for readers who do not see the figure
    ``group``    what of the section it belongs to, such as a test set
    ``choice``   which of the group's alternatives this is, such as ``probit``; empty for none
    ``columns``  the columns that a figure of slices shows
    """

    name: str
    section: str
    title: str
    caption: str
    spec: Spec
    group: str = ""
    choice: str = ""
    columns: tuple[str, ...] = ()

    @property
    def alt(self) -> str:
        """What the figure shows, in words."""
        return str(self.spec["description"])


def slug(*parts: str) -> str:
    """A lower-case name that is safe as a file name and an HTML id.

    >>> slug("scatter", "ImageNetV2 / b-33")
    'scatter-imagenetv2-b-33'
    """
    text = "-".join(_UNSAFE.sub("-", part.lower()).strip("-.") for part in parts)
    return text.strip("-")[:120] or "figure"


def with_unique_names(figures: Iterable[Figure]) -> list[Figure]:
    """The figures, later ones of an equal name numbered: two test sets may have one slug."""
    found: dict[str, Figure] = {}
    for figure in figures:
        name, number = figure.name, 2
        while name in found:
            name, number = f"{figure.name}-{number}", number + 1
        found[name] = replace(figure, name=name)
    return list(found.values())


def figure(
    key: Sequence[str],
    alt: str,
    *,
    section: str = "",
    layer: Sequence[Spec],
    titles: Titles,
    height: int,
    width: int = 640,
    rows: Rows | None = None,
    names: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    narrow: Sequence[Spec] = (),
    square: bool = False,
    grows: bool = False,
    encoding: Spec | None = None,
    more: Spec | None = None,
    **words: Any,
) -> Figure:
    """A figure in our look.

    ``key``     the parts of its name, of which the first is its section unless that is given
    ``alt``     what it shows, for readers who do not see it; ``words`` are fields of :class:`Figure`
    ``rows``    the data that layers share
    ``names``   what the legend lists: also a parameter; ``params`` are further ones
    ``height``  of the whole figure, or with ``grows`` of the plot alone, to which axes and legend add
    ``square``  the page keeps the height equal to the width of its column
    ``narrow``  what changes below a width, ``{"below": pixels, "set": {dotted path: value}}``
    """
    listed = list(names) if len(names) > 1 else []
    widest = LETTER * max(map(len, listed), default=1) + 44
    known = {**({"names": list(names)} if names else {}), **(params or {})}
    spec = {
        "$schema": SCHEMA,
        "description": alt,
        "width": width,
        "height": height,
        "autosize": {"type": "fit-x" if grows else "fit", "contains": "padding"},
        "padding": 4,
        # Vega would build titles into an expression; beside the chart they stay text.
        "usermeta": {
            "square": square,
            "narrow": list(narrow),
            "titles": dict(titles),
            "names": listed,
        },
        "params": [{"name": name, "value": value} for name, value in known.items()],
        **({} if rows is None else {"data": values(rows)}),
        **({} if encoding is None else {"encoding": encoding}),
        **(more or {}),
        "layer": list(layer),
        "config": {
            **CONFIG,
            "axis": {**CONFIG["axis"], "titleLimit": round(0.86 * width)},
            "legend": {**CONFIG["legend"], "columns": max(1, int(0.68 * width / widest))},
        },
    }
    return Figure(name=slug(*key), section=section or key[0], spec=spec, **words)


# ---- layers and channels -------------------------------------------------------------------------


def values(rows: Rows) -> Spec:
    """Inline data; floats to six decimals, which is finer than any pixel and keeps pages small."""
    return {
        "values": [
            # Adding 0 takes the sign off a negative zero, which not every processor computes.
            {k: round(v, 6) + 0.0 if isinstance(v, float) else v for k, v in row.items()}
            for row in rows
        ]
    }


def draw(kind: str, look: Any = None, *, rows: Any = None, keep: Any = (), **channels: Any) -> Spec:
    """One layer: a mark, its look, and what its channels show; ``keep`` picks rows."""
    data = {} if rows is None else {"data": values(rows)}
    transform = {"transform": list(keep)} if keep else {}
    return {**data, **transform, "mark": {"type": kind, **(look or {})}, "encoding": channels}


def number(field: str, axis: Spec | None = None, **scale: Any) -> Spec:
    """A channel of numbers."""
    parts = {"axis": axis, "scale": scale}
    known = {key: part for key, part in parts.items() if part}
    return {"field": field, "type": "quantitative", **known}


def between(way: str, channel: Spec, low: str = "low", high: str = "high") -> Spec:
    """Two channels that reach from one field to another along ``x`` or ``y``."""
    return {way: {**channel, "field": low}, f"{way}2": {"field": high}}


def text(field: str) -> Spec:
    """A channel of text."""
    return {"field": field, "type": "nominal"}


def tooltip(titles: Titles) -> Spec:
    """What pointing at a mark shows: text fields, which the page lists under their titles."""
    return {"tooltip": [text(field) for field in titles]}


def percent_axis(title: str, **more: Any) -> Spec:
    """An axis of fractions, labelled in percent."""
    return {"title": title, "labelExpr": PERCENT_LABEL, "tickCount": 6, **more}


def by_number(field: str, count: int, looks: Sequence[str] = (), **more: Any) -> Spec:
    """A channel of whole numbers from 0: an offset, or with ``looks`` a colour or shape."""
    look = {"range": list(looks[:count])} if looks else {"paddingInner": 0.18}
    scale = {"domain": list(range(count)), **look}
    return {"field": field, "type": "nominal", "scale": scale, **more}


def series(names: Sequence[str], looks: Sequence[str]) -> Spec:
    """A colour or shape by the number in ``series``, which the parameter ``names`` names."""
    legend = {"title": None, "labelExpr": "names[datum.value]"} if len(names) > 1 else None
    return by_number("series", len(names), looks, legend=legend)


def slots(looks: Sequence[str], *, several: bool) -> Spec:
    """A colour or shape by place among the models on show; the legend names them."""
    legend = {
        "title": None,
        "values": {"expr": "sequence(length(shown))"},
        "labelExpr": "shown[datum.value]",
    }
    return by_number("slot", len(SLOTS), looks, legend=legend if several else None)


def names_down(field: str, order: Sequence[str], *, grid: bool = True) -> Spec:
    """The vertical channel of a chart with one row per name, the first on top."""
    return {
        "field": field,
        "type": "nominal",
        "sort": None,
        "scale": {"domain": list(order), **({} if grid else {"paddingInner": 0.28})},
        "axis": {
            "domain": False,
            "ticks": False,
            "grid": grid,
            "title": None,
            "labelColor": INK,
        },
    }


def rule_at(way: str, channel: Spec, look: Spec | None = None, **parts: Any) -> Spec:
    """A rule through the whole chart at a place along ``x`` or ``y``."""
    off = {"x": ("y", "yOffset"), "y": ("x", "xOffset")}[way]
    return draw("rule", look, **{way: channel}, **dict.fromkeys(off), **parts)


def zero_line(way: str, channel: Spec) -> Spec:
    """A rule at zero, for a chart of differences."""
    colour = {"value": MUTED}
    return rule_at(way, {**channel, "field": "zero"}, rows=[{"zero": 0}], color=colour)


def overall_line(way: str, rows: Rows, *, several: bool) -> Spec:
    """A dashed rule for each model on show, at the value in ``overall``."""
    look = {"strokeDash": [3, 3], "opacity": 0.7, "strokeWidth": 1}
    colour = slots(SLOTS, several=several)
    return rule_at(way, number("overall"), look, rows=rows, keep=SHOWN, color=colour)


# ---- dots with intervals -------------------------------------------------------------------------


def dot_plot(
    rows: Rows,
    down: str,
    order: Sequence[str],
    titles: Titles,
    axis: str,
    *,
    names: Sequence[str] = (),
    differences: bool = False,
) -> Spec:
    """One row of dots per name in ``down``, in the given order; a colour and shape per series.

    Values are shares, or ``differences`` in points: these have a line at zero, and the dots of one
    row are beside each other. Without series the colour says whether an interval leaves out zero.
    """
    sure = {"condition": {"test": "datum.sure", "value": BLUE}, "value": "#6e7781"}
    colour = series(names, CATEGORIES) if names else sure
    encoding: Spec = {"y": names_down(down, order), "color": colour}
    label = {} if differences else {"labelExpr": PERCENT_LABEL}
    x = number("value", {"title": axis, "orient": "top", "tickCount": 6, **label}, zero=differences)
    layers, height = [], 20
    if differences:
        layers, height = [zero_line("x", x)], 14 + 7 * max(1, len(names))
        encoding |= {"yOffset": by_number("series", len(names))} if names else {}
    shape = {"shape": series(names, CATEGORY_SHAPES)} if names else {}
    return {
        "rows": rows,
        "titles": titles,
        "names": names,
        "height": height * len(order),
        "grows": True,
        "encoding": encoding,
        "layer": [
            *layers,
            draw("rule", {"opacity": 0.55}, **between("x", x)),
            draw("point", x=x, **shape, **tooltip(titles)),
        ],
    }


# ---- bars ----------------------------------------------------------------------------------------


def stacked_bars(
    rows: Rows,
    ends: Rows,
    down: str,
    order: Sequence[str],
    titles: Titles,
    *,
    names: Sequence[str],
    colours: Sequence[str],
    beside: int = 0,
    chosen: str = "",
) -> Spec:
    """Bars of shares of images, cut into pieces from ``start`` to ``end``, a colour per series.

    ``ends``    the interval of each whole bar
    ``beside``  bars of one row, by the number in ``slot``; each has its ``label`` at its end
    ``chosen``  the model that is drawn; empty where all rows are
    """
    keep = _CHOSEN if chosen else ()
    x = number("value", percent_axis("share of images"))
    encoding = {"y": names_down(down, order, grid=False)}
    pieces = {**between("x", x, "start", "end"), "color": series(names, colours)}
    interval = draw("rule", {"color": INK}, rows=ends, keep=keep, **between("x", x))
    labels = []
    if beside:
        encoding["yOffset"] = by_number("slot", beside)
        # Room past the longest interval for the label beside it.
        longest = max((end["high"] for end in ends), default=0.0) or 0.01
        pieces["x"]["scale"] = {"domain": [0, round(longest * (1.35 if beside > 1 else 1.12), 6)]}
        look = {"align": "left", "dx": 6, "color": MUTED}
        high = {**x, "field": "high"}
        labels.append(draw("text", look, rows=ends, keep=keep, x=high, text=text("label")))
    return {
        "titles": titles,
        "names": names,
        "params": {"chosen": chosen} if chosen else {},
        "height": (9 + 17 * max(1, beside)) * max(1, len(order)),
        "grows": True,
        "encoding": encoding,
        "layer": [
            draw("bar", rows=rows, keep=keep, **pieces, **tooltip(titles)),
            interval,
            *labels,
        ],
    }


def grouped_bars(x: Spec, titles: Titles, *, several: bool) -> Spec:
    """For each model on show a bar to ``value`` with its interval, beside the others of its row."""
    offset = {**text("slot"), "scale": {"domain": {"expr": "sequence(length(shown))"}}}
    return {
        "transform": SHOWN,
        "encoding": {"yOffset": offset, "color": slots(SLOTS, several=several)},
        "layer": [
            draw("bar", x={**x, "scale": {"zero": True}}, **tooltip(titles)),
            draw("rule", color={"value": INK}, **between("x", x)),
        ],
    }


def strip_of_bars(x: Spec, rows: Rows, most: float, label: str) -> Spec:
    """Grey bars at the foot of a chart: ``images`` on a scale of their own that ends at ``most``."""
    height = {**number("images", domain=[0, most], nice=False), "axis": None}
    tip = tooltip({label: "", "n": ""})
    look = {"color": "#c6cdd5", "clip": True}
    return draw("bar", look, rows=rows, y=height, y2={"datum": 0}, **x, **tip)


# ---- curves with bands ---------------------------------------------------------------------------


def curves(
    y: Spec, titles: Titles, point: Spec, order: Spec | None = None, size: int = 34
) -> list[Spec]:
    """Bands from ``low`` to ``high``, lines through ``value``, and points.

    ``point`` are the points' own channels, ``order`` is that along which a line runs.
    """
    return [
        draw("area", **between("y", y)),
        draw("line", y=y, **(order or {})),
        draw("point", {"size": size}, y=y, **point, **tooltip(titles)),
    ]


def dashed_curve(y: Spec, titles: Titles, order: Spec) -> list[Spec]:
    """A dashed line through ``value``, with unseen points to point at for the numbers."""
    return [
        draw("line", {"strokeWidth": 1.5, "strokeDash": [5, 3]}, y=y, **order),
        draw("point", {"opacity": 0}, y=y, **tooltip(titles)),
    ]


def diamonds() -> list[Spec]:
    """A white diamond at ``at`` on a line from ``from`` to ``to``."""
    look = {"shape": "diamond", "size": 90, "fill": "white", "strokeWidth": 1.6}
    return [
        draw("rule", {"clip": True}, **between("x", number("at"), "from", "to")),
        draw("point", look, x=number("at")),
    ]


def range_of_models(y: Spec) -> Spec:
    """A grey band from the least to the most ``value`` of any model at each place."""
    spread = {"aggregate": _LEAST_AND_MOST, "groupby": ["at"]}
    return draw("area", {"color": "#8c959f"}, keep=[spread], **between("y", y, "least", "most"))


# ---- heat maps -----------------------------------------------------------------------------------


def heat_map(
    rows: Rows,
    across: Sequence[str],
    down: Sequence[str],
    titles: Titles,
    axes: tuple[str, str],
    scale: Spec,
    *,
    percent: bool = True,
    cells: str = "",
    crossed: bool = False,
) -> Spec:
    """Cells at the numbers ``x`` and ``y`` of ``across`` and ``down``, coloured by ``value``.

    ``scale``    that of the colours; there are two hues where its domain reaches below zero
    ``cells``    the field that cells are labelled with where they are few
    ``crossed``  cells without a row are crossed out, so that nobody takes them for low ones
    """
    height = max(100, max(16, min(34, 400 // len(down))) * len(down))
    tilted = max(map(len, across)) > 5
    diverging = scale.get("domain", [0])[0] < 0
    legend = {
        "title": None,
        "orient": "right",
        "direction": "vertical",
        "gradientLength": min(200, height),
        "gradientThickness": 10,
        "tickCount": 5,
        **({"labelExpr": PERCENT_LABEL} if percent else {}),
    }
    hues = DIVERGING if diverging else SEQUENTIAL
    colour = number("value", range=list(hues), interpolate="lab", **scale) | {"legend": legend}
    layers = [draw("rect", color=colour, **tooltip(titles))]
    there = {(row["x"], row["y"]) for row in rows}
    places = [(x, y) for y in range(len(down)) for x in range(len(across))]
    holes = [{"x": x, "y": y} for x, y in places if crossed and (x, y) not in there]
    if holes:
        cross = {"shape": "M-1,-1L1,1M-1,1L1,-1", "stroke": "#aab2bb", "strokeWidth": 1}
        marks = [{"type": "rect", "color": "#f3f4f6"}, {"type": "point", **cross}]
        layers.insert(0, {"data": values(holes), "layer": [{"mark": mark} for mark in marks]})
    narrow = []
    if cells and len(places) <= _MOST_NUMBERED:
        # White on the deep colours of the scale, ink on the pale ones.
        deep = "datum.value > datum.least + 0.5 * (datum.most - datum.least)"
        test = "abs(datum.value) > 0.62" if diverging else deep
        ink = {"condition": {"test": test, "value": "white"}, "value": INK}
        # Where cells are too narrow for their numbers, the colour alone speaks.
        hidden = {f"layer.{len(layers)}.mark.opacity": 0}
        narrow = [{"below": 24 * len(across) + 110, "set": hidden}]
        layers.append(draw("text", text=text(cells), color=ink))
    return {
        "rows": rows,
        "titles": titles,
        "params": {"across": across, "down": down},
        "height": height,
        "grows": True,
        "narrow": narrow,
        "encoding": {
            "x": _places(
                "x",
                "across[datum.value]",
                len(across),
                title=axes[0],
                labelAngle=-40 if tilted else 0,
                # A few tilted names have room, though the boxes around them overlap.
                labelOverlap=not tilted or len(across) > 12,
            ),
            "y": _places("y", "down[datum.value]", len(down), title=axes[1]),
        },
        "layer": layers,
    }


def _places(field: str, label: str, count: int, **axis: Any) -> Spec:
    """A channel of numbered places, which an expression over a parameter names."""
    return {
        "field": field,
        "type": "ordinal",
        "scale": {"domain": list(range(count)), "padding": 0},
        "axis": {"labelExpr": label, "domain": False, **axis},
    }


def first_shown() -> Spec:
    """A heat map of the first model on show, named after the parameter ``heading``."""
    return {
        "title": {"text": {"expr": "heading + shown[0]"}, "fontSize": 12, "fontWeight": "normal"},
        "transform": [
            {"filter": "datum.model === shown[0]"},
            {"joinaggregate": _LEAST_AND_MOST},
        ],
    }


# ---- scatters ------------------------------------------------------------------------------------


def line(ends: Rows, x: Spec, y: Spec, *, identity: bool = False) -> Spec:
    """A straight line between two ends: a fitted one, or dashed where both axes are equal."""
    look: Spec = {"color": VERMILLION, "strokeWidth": 1.5, "clip": True}
    if identity:
        look |= {"color": MUTED, "strokeDash": [5, 4]}
    return draw("line", look, rows=ends, x=x, y=y)


def band(rows: Rows, x: Spec, y: Spec) -> Spec:
    """The band of a fitted line, from ``y`` to ``y2``."""
    look = {"color": VERMILLION, "clip": True}
    return draw("area", look, rows=rows, x=x, **between("y", y, "y", "y2"))


def crossed_points(rows: Rows, x: Spec, y: Spec, titles: Titles) -> Spec:
    """Points with an interval each way, and names beside those that have one."""
    bar = {"color": BLUE, "opacity": 0.45, "strokeWidth": 1}
    label = {"color": INK, "limit": 170}
    halo = {"stroke": "white", "strokeWidth": 3, "strokeOpacity": 0.9}  # keeps names off the lines
    sides = {
        "label_left": {"align": "right", "dx": -7, "dy": -9},
        "label_right": {"align": "left", "dx": 7, "dy": 10},
    }
    return {
        "data": values(rows),
        "encoding": {"x": x},
        "layer": [
            draw("rule", bar, **between("y", y, "y_low", "y_high")),
            draw("rule", bar, **between("x", x, "x_low", "x_high"), y=y),
            draw("point", {"color": BLUE}, y=y, **tooltip(titles)),
            *(
                draw("text", {**label, **look, **side}, y=y, text=text(field))
                for look in (halo, {})
                for field, side in sides.items()
            ),
        ],
    }


def points(rows: Rows, x: Spec, y: Spec, titles: Titles, *, several: bool) -> list[Spec]:
    """For each model on show: points with a vertical interval; ``rows`` are the ends of lines."""
    colour, shape = (slots(looks, several=several) for looks in SLOT_LOOKS)
    at = {"keep": SHOWN, "x": x, "color": colour}
    return [
        draw("rule", {"opacity": 0.55}, **at, **between("y", y)),
        draw("line", rows=rows, **at, y=y, detail={"field": "model"}),
        draw("point", **at, y=y, shape=shape, **tooltip(titles)),
    ]

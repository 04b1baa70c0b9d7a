"""The six forms of charts, as Vega-Lite: dots, stacked bars, curves, heat maps, scatters, slopes.

Text from the data must never become part of a Vega expression. That rule is kept here: this module
writes every expression (axes.py those of tick labels), all of them constants over our own field
names. Names of models, test sets, columns and values stay in rows, titles, domains of positions and
values of parameters. Vega-Lite writes the domain of a colour, a shape or an offset into expressions
of its own, so those channels hold numbers, and a parameter names the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heldout.show import theme
from heldout.show.theme import Spec

Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]

PERCENT_LABEL = "format(100 * datum.value, '.3~g') + ' %'"
SHOWN: list[Spec] = [
    {"calculate": "indexof(shown, datum.model)", "as": "slot"},
    {"filter": "datum.slot >= 0"},
]
"""Keeps the rows of the models in the parameter ``shown``, which the page changes."""
CHOSEN: list[Spec] = [{"filter": "datum.model == chosen"}]
"""Keeps the rows of the one model in the parameter ``chosen``."""
SECTIONS = ("accuracy", "changes", "slices", "learning", "mistakes", "comparisons")
_UNSAFE = re.compile(r"[^a-z0-9._]+")
_INTERVAL = {"strokeWidth": 1.6, "opacity": 0.55}
_DOT = {"filled": True, "size": 48, "opacity": 1}
_WIDEST_NAMES = 150  # pixels for names on either side of slopes
_CELL = {"stroke": "white", "strokeWidth": 1}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a report.

    ``name``     unique in the report; also the file name without its ending
    ``section``  where the page shows it, one of :data:`SECTIONS`
    ``group``    what of the section it belongs to, such as a test set
    ``choice``   which of the group's alternatives this is, such as ``probit``; empty for none
    ``columns``  the columns that a figure of slices shows
    ``variant``  which figure of these columns this is, after the first; empty for the first
    ``caption``  what is drawn and how the intervals were made
    ``spec``     Vega-Lite; its ``description`` is the text for readers who do not see the figure
    """

    name: str
    section: str
    title: str
    caption: str
    spec: Spec
    group: str = ""
    choice: str = ""
    columns: tuple[str, ...] = ()
    variant: str = ""

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


# ---- a chart and its parts -----------------------------------------------------------------------


def chart(
    *,
    width: int,
    height: int,
    description: str,
    layer: Sequence[Spec],
    titles: Mapping[str, str],
    rows: Rows | None = None,
    names: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    narrow: Sequence[Spec] = (),
    square: bool = False,
    grows: bool = False,
    **parts: Any,
) -> Spec:
    """A top-level Vega-Lite specification in our look.

    ``rows``    the data that layers share; floats are cut to six decimals
    ``titles``  names of the tooltip's fields; ``names`` what the legend lists
    ``params``  named values for expressions; ``names`` becomes one unless it is given
    ``height``  of the whole figure, or with ``grows`` of the plot alone, to which axes and legend add
    ``square``  the page keeps the height equal to the width of its column
    ``narrow``  what changes below a width, ``{"below": pixels, "set": {dotted path: value}}``
    """
    listed = list(names) if len(names) > 1 else []
    widest = theme.LETTER * max(map(len, listed), default=1) + 44
    known = ({"names": list(names)} if names else {}) if params is None else params
    return {
        "$schema": theme.SCHEMA,
        "description": description,
        "width": width,
        "height": height,
        "autosize": {"type": "fit-x" if grows else "fit", "contains": "padding"},
        "padding": 4,
        "usermeta": {
            "square": square,
            "narrow": list(narrow),
            # Vega would build titles into an expression; beside the specification they are text.
            "titles": dict(titles),
            "names": listed,
        },
        **({} if rows is None else {"data": values(rows)}),
        **({"params": [{"name": k, "value": v} for k, v in known.items()]} if known else {}),
        **parts,
        "layer": list(layer),
        "config": {
            **theme.CONFIG,
            "axis": {**theme.CONFIG["axis"], "titleLimit": round(0.86 * width)},
            "legend": {**theme.CONFIG["legend"], "columns": max(1, int(0.68 * width / widest))},
        },
    }


def values(rows: Rows) -> Spec:
    """Inline data; floats to six decimals, which is finer than any pixel and keeps pages small."""
    return {
        "values": [
            {k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in rows
        ]
    }


def draw(
    kind: str,
    look: Spec,
    channels: Mapping[str, Any],
    rows: Rows | None = None,
    keep: Sequence[Spec] = (),
) -> Spec:
    """One layer: a mark, its look, and what its channels show; ``keep`` picks rows."""
    data = {} if rows is None else {"data": values(rows)}
    transform = {"transform": list(keep)} if keep else {}
    return {**data, **transform, "mark": {"type": kind, **look}, "encoding": dict(channels)}


def number(field: str, scale: Spec | None = None, **more: Any) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", **({"scale": scale} if scale else {}), **more}


def between(way: str, channel: Spec, low: str = "low", high: str = "high") -> Spec:
    """Two channels that reach from one field to another along ``x`` or ``y``."""
    return {way: {**channel, "field": low}, f"{way}2": {"field": high}}


def tooltip(titles: Mapping[str, str]) -> list[Spec]:
    """A tooltip of these text fields; the page shows them under their titles."""
    return [{"field": field, "type": "nominal"} for field in titles]


def text(field: str) -> Spec:
    """A channel of text."""
    return {"field": field, "type": "nominal"}


def percent_axis(title: str, **more: Any) -> Spec:
    """An axis of fractions, labelled in percent."""
    return {"title": title, "labelExpr": PERCENT_LABEL, "tickCount": 6, **more}


def rows_of_names(field: str, order: Sequence[str], *, grid: bool = False, **scale: Any) -> Spec:
    """The vertical channel of a chart with one row per name, the first on top."""
    axis = {"domain": False, "ticks": False, "grid": grid, "title": None, "labelColor": theme.INK}
    scale = {"domain": list(order), **scale}
    return {"field": field, "type": "nominal", "sort": None, "scale": scale, "axis": axis}


def beside(field: str, count: int, **scale: Any) -> Spec:
    """Marks of one row beside each other, by their number."""
    return {"field": field, "type": "nominal", "scale": {"domain": list(range(count)), **scale}}


def series(names: Sequence[str], looks: Sequence[str]) -> Spec:
    """A colour or shape by the number in ``series``, which the parameter ``names`` names."""
    return {
        "field": "series",
        "type": "nominal",
        "legend": {"title": None, "labelExpr": "names[datum.value]"} if len(names) > 1 else None,
        "scale": {"domain": list(range(len(names))), "range": list(looks[: len(names)])},
    }


def slots(looks: Sequence[str], *, legend: bool) -> Spec:
    """A colour or shape by place among the models on show; the legend names them."""
    listed = {
        "title": None,
        "values": {"expr": "sequence(length(shown))"},
        "labelExpr": "shown[datum.value]",
    }
    return {
        "field": "slot",
        "type": "nominal",
        "scale": {"domain": list(range(len(theme.SLOTS))), "range": list(looks)},
        "legend": listed if legend else None,
    }


def zero_line(way: str, channel: Spec) -> Spec:
    """A rule at zero, across a chart of differences."""
    off = {"x": ("y", "yOffset"), "y": ("x", "xOffset")}[way]
    channels = {way: {**channel, "field": "zero"}, **dict.fromkeys(off)}
    return draw("rule", {}, {**channels, "color": {"value": theme.MUTED}}, [{"zero": 0}])


def overall_line(rows: Rows, way: str, *, legend: bool) -> Spec:
    """A dashed rule for each model on show, at the value in ``overall``."""
    off = {"x": ("y", "yOffset"), "y": ("x", "xOffset")}[way]
    channels = {
        way: number("overall"),
        **dict.fromkeys(off),
        "color": slots(theme.SLOTS, legend=legend),
    }
    look = {"strokeDash": [3, 3], "opacity": 0.7, "strokeWidth": 1}
    return draw("rule", look, channels, rows, SHOWN)


# ---- dots with intervals -------------------------------------------------------------------------


def dot_plot(
    rows: Rows,
    x: Spec,
    down: str,
    order: Sequence[str],
    titles: Mapping[str, str],
    *,
    names: Sequence[str] = (),
    differences: bool = False,
    **frame: Any,
) -> Spec:
    """One row of dots per name in ``down``, in the given order; a colour and shape per series.

    ``differences`` have a line at zero, and the dots of one row stand beside each other; without
    series the colour says whether an interval leaves out zero.
    """
    y = rows_of_names(down, order, grid=True)
    encoding: Spec = {"y": y, "color": series(names, theme.CATEGORIES) if names else _SURE}
    if names and differences:
        encoding["yOffset"] = beside("series", len(names))
    shape = series(names, theme.CATEGORY_SHAPES) if names else None
    layers = [zero_line("x", x)] if differences else []
    return chart(
        width=720,
        grows=True,
        titles=titles,
        names=names,
        rows=rows,
        encoding=encoding,
        layer=layers + dots(x, titles, shape=shape),
        **frame,
    )


_SURE = {"condition": {"test": "datum.sure", "value": theme.BLUE}, "value": "#6e7781"}


def dots(
    x: Spec,
    titles: Mapping[str, str],
    rows: Rows | None = None,
    *,
    colour: Spec | None = None,
    shape: Spec | None = None,
) -> list[Spec]:
    """For each row an interval from ``low`` to ``high`` and a point at ``value``.

    ``colour`` is given where the chart does not set it for all.
    """
    own = {} if colour is None else {"color": colour}
    form = {} if shape is None else {"shape": shape}
    return [
        draw("rule", _INTERVAL, {**between("x", x), **own}, rows),
        draw("point", _DOT, {"x": x, **own, **form, "tooltip": tooltip(titles)}, rows),
    ]


# ---- bars ----------------------------------------------------------------------------------------


def stacked_bars(
    x: Spec,
    titles: Mapping[str, str],
    rows: Rows,
    ends: Rows,
    *,
    colour: Spec,
    labels: bool = False,
    keep: Sequence[Spec] = (),
) -> list[Spec]:
    """Bars cut into pieces from ``start`` to ``end``; the interval of each whole bar, and a label."""
    pieces = {**between("x", x, "start", "end"), "color": colour, "tooltip": tooltip(titles)}
    plain = {key: part for key, part in x.items() if key != "scale"}
    layers = [
        draw("bar", {"opacity": 0.92}, pieces, rows, keep),
        draw("rule", {"strokeWidth": 1.3, "color": theme.INK}, between("x", plain), ends, keep),
    ]
    if labels:
        look = {"align": "left", "dx": 6, "fontSize": 10.5, "color": theme.MUTED}
        beyond = {"x": {**plain, "field": "high"}, "text": text("label")}
        layers.append(draw("text", look, beyond, ends, keep))
    return layers


def grouped_bars(x: Spec, titles: Mapping[str, str], *, legend: bool) -> Spec:
    """For each model on show a bar to ``value`` with its interval, beside the others of its row."""
    offset = {
        "field": "slot",
        "type": "nominal",
        "scale": {"domain": {"expr": "sequence(length(shown))"}},
    }
    look = {"opacity": 0.82, "cornerRadiusEnd": 1.5}
    bar = {"x": {**x, "scale": {"zero": True}}, "tooltip": tooltip(titles)}
    interval = {**between("x", x), "color": {"value": theme.INK}}
    return {
        "transform": SHOWN,
        "encoding": {"yOffset": offset, "color": slots(theme.SLOTS, legend=legend)},
        "layer": [draw("bar", look, bar), draw("rule", {"strokeWidth": 1.3}, interval)],
    }


# ---- curves with bands ---------------------------------------------------------------------------


def curves(
    y: Spec,
    titles: Mapping[str, str],
    *,
    colour: Spec | None = None,
    shape: Spec | None = None,
    order: Spec | None = None,
    size: int = 34,
    opacity: float = 0.16,
) -> list[Spec]:
    """Bands from ``low`` to ``high``, lines through ``value``, and points.

    ``colour`` is given where the chart does not set it for all; then points are filled only where
    the row is ``sure``. ``order`` is the channel along which a line runs.
    """
    own = {} if colour is None else {"color": colour}
    point: Spec = {"y": y, "tooltip": tooltip(titles)}
    look: Spec = {"filled": True, "size": size, "opacity": 1}
    if colour is not None:
        look = {"size": 40, "strokeWidth": 1.5, "opacity": 1}
        fill = {"condition": {"test": "!datum.sure", "value": "white"}, **colour}
        point |= {"stroke": colour, "fill": fill}
    elif shape is not None:
        point["shape"] = shape
    return [
        draw("area", {"opacity": opacity}, {**between("y", y), **own}),
        draw("line", {"strokeWidth": 1.9}, {"y": y, **own, **(order or {})}),
        draw("point", look, point),
    ]


def range_of_models(y: Spec) -> Spec:
    """A grey band from the least to the most ``value`` of any model at each place."""
    spread = {
        "aggregate": [
            {"op": "min", "field": "value", "as": "least"},
            {"op": "max", "field": "value", "as": "most"},
        ],
        "groupby": ["at"],
    }
    look = {"color": "#8c959f", "opacity": 0.13}
    return draw("area", look, between("y", y, "least", "most"), keep=[spread])


def dashed_curve(y: Spec, titles: Mapping[str, str], order: Spec) -> list[Spec]:
    """A dashed line through ``value``, with unseen points to point at for the numbers."""
    return [
        draw("line", {"strokeWidth": 1.5, "strokeDash": [5, 3]}, {"y": y, **order}),
        draw("point", {**_DOT, "opacity": 0}, {"y": y, "tooltip": tooltip(titles)}),
    ]


def diamonds() -> list[Spec]:
    """A white diamond at ``at`` on a line from ``from`` to ``to``."""
    look = {"shape": "diamond", "size": 90, "fill": "white", "strokeWidth": 1.6, "opacity": 1}
    span = between("x", number("at"), "from", "to")
    return [
        draw("rule", {"strokeWidth": 1.2, "clip": True}, span),
        draw("point", look, {"x": number("at")}),
    ]


def strip_of_bars(x: Spec, rows: Rows, most: float, label: str) -> Spec:
    """Grey bars at the foot of a chart: ``images`` on a scale of their own that ends at ``most``."""
    height = number("images", {"domain": [0, most], "nice": False}, axis=None)
    channels = {**x, "y": height, "y2": {"datum": 0}, "tooltip": tooltip({label: "", "n": ""})}
    return draw("bar", {"color": "#c6cdd5", "clip": True}, channels, rows)


# ---- heat maps -----------------------------------------------------------------------------------


def grid_axis(field: str, texts: str, count: int, title: str | None, **axis: Any) -> Spec:
    """A channel of numbered rows or columns, which the parameter ``texts`` names."""
    return {
        "field": field,
        "type": "ordinal",
        "scale": {"domain": list(range(count)), "padding": 0},
        "axis": {
            "labelExpr": f"{_OURS[texts]}[datum.value]",
            "title": title,
            "domain": False,
            **axis,
        },
    }


_OURS = {"across": "across", "down": "down", "headings": "headings"}
"""Parameters that axes may name: never text from anywhere else."""


def cells(
    scale: Spec,
    legend: Spec,
    titles: Mapping[str, str],
    rows: Rows | None = None,
    keep: Sequence[Spec] = (),
) -> Spec:
    """Cells coloured by ``value``."""
    colour = number("value", {"interpolate": "lab", **scale})
    colour["legend"] = {"title": None, "gradientThickness": 10, **legend}
    return draw("rect", _CELL, {"color": colour, "tooltip": tooltip(titles)}, rows, keep)


def cell_numbers(field: str, *, diverging: bool = False) -> Spec:
    """The number of each cell: white on the deep colours of the scale, ink on the pale ones."""
    deep = (
        "abs(datum.value) > 0.62"
        if diverging
        else "datum.value > datum.least + 0.5 * (datum.most - datum.least)"
    )
    colour = {"condition": {"test": deep, "value": "white"}, "value": theme.INK}
    return draw("text", {"fontSize": 10.5}, {"text": text(field), "color": colour})


def first_shown(ends: tuple[float, float] | None) -> list[Spec]:
    """Keeps the first model on show; ``least`` and ``most`` are the ends of its scale, or ``ends``."""
    first: Spec = {"filter": "datum.model === shown[0]"}
    if ends is not None:
        low, high = map(float, ends)
        return [
            first,
            {"calculate": repr(low), "as": "least"},
            {"calculate": repr(high), "as": "most"},
        ]
    least = {"op": "min", "field": "value", "as": "least"}
    most = {"op": "max", "field": "value", "as": "most"}
    return [first, {"joinaggregate": [least, most]}]


def crossed_out(holes: Rows, *, small: bool) -> Spec:
    """Missing cells: pale and crossed out, so that nobody takes them for low ones."""
    cross = {
        "shape": "M-1,-1L1,1M-1,1L1,-1",
        "size": 12 if small else 60,
        "stroke": "#aab2bb",
        "strokeWidth": 1,
        "opacity": 1,
    }
    marks = [{"type": "rect", "color": "#f3f4f6", **_CELL}, {"type": "point", **cross}]
    return {"data": values(holes), "layer": [{"mark": mark} for mark in marks]}


def heading() -> Spec:
    """A title that names the first model on show after the parameter ``heading``."""
    return {"text": {"expr": "heading + shown[0]"}, "fontSize": 12, "fontWeight": "normal"}


# ---- scatters ------------------------------------------------------------------------------------


def line(ends: Rows, x: Spec, y: Spec, *, identity: bool = False) -> Spec:
    """A straight line between two ends: a fitted one, or dashed where both axes are equal."""
    look: Spec = {"color": theme.VERMILLION, "strokeWidth": 1.5, "clip": True}
    if identity:
        look |= {"color": theme.MUTED, "strokeWidth": 1.2, "strokeDash": [5, 4]}
    return draw("line", look, {"x": x, "y": y}, ends)


def band(rows: Rows, x: Spec, y: Spec) -> Spec:
    """The band of a fitted line, from ``y`` to ``y2``."""
    look = {"color": theme.VERMILLION, "opacity": 0.16, "clip": True}
    return draw("area", look, {"x": x, "y": y, "y2": {"field": "y2"}}, rows)


def crossed_points(rows: Rows, x: Spec, y: Spec, titles: Mapping[str, str]) -> Spec:
    """Points with an interval each way, and names beside those that have one."""
    bar = {"color": theme.BLUE, "opacity": 0.45, "strokeWidth": 1}
    dot = {**_DOT, "color": theme.BLUE, "opacity": 0.9, "stroke": "white", "strokeWidth": 0.6}
    label = {"fontSize": 10.5, "color": theme.INK, "limit": 170}
    halo = {"stroke": "white", "strokeWidth": 3, "strokeOpacity": 0.9}  # keeps names off the lines
    sides = {
        "label_left": {"align": "right", "dx": -7, "dy": -9},
        "label_right": {"align": "left", "dx": 7, "dy": 10},
    }
    text_y = number("y", y["scale"])
    return {
        "data": values(rows),
        "encoding": {"x": x},
        "layer": [
            draw("rule", bar, between("y", y, "y_low", "y_high")),
            draw("rule", bar, {**between("x", x, "x_low", "x_high"), "y": y}),
            draw("point", dot, {"y": y, "tooltip": tooltip(titles)}),
            *(
                draw("text", {**label, **look, **side}, {"y": text_y, "text": text(field)})
                for look in (halo, {})
                for field, side in sides.items()
            ),
        ],
    }


def points(x: Spec, y: Spec, titles: Mapping[str, str], lines: Rows, *, legend: bool) -> list[Spec]:
    """For each model on show: points with a vertical interval, and the ends of its line."""
    at = {"x": x, "color": slots(theme.SLOTS, legend=legend)}
    dot = {"y": y, "shape": slots(theme.SHAPES, legend=legend), "tooltip": tooltip(titles)}
    return [
        draw("rule", {"opacity": 0.4, "strokeWidth": 1.2}, {**at, **between("y", y)}, None, SHOWN),
        draw(
            "line",
            {"strokeWidth": 1.6, "opacity": 0.9},
            {**at, "y": y, "detail": {"field": "model"}},
            lines,
            SHOWN,
        ),
        draw("point", {**_DOT, "opacity": 0.9}, {**at, **dot}, None, SHOWN),
    ]


# ---- slopes --------------------------------------------------------------------------------------


def slopes(
    rows: Rows,
    sets: Sequence[str],
    models: Sequence[str],
    titles: Mapping[str, str],
    **frame: Any,
) -> Spec:
    """One line per model from set to set, by its ``place``: the first on top.

    ``move`` is ``rises``, ``falls`` or ``others``; ``left`` and ``right`` hold the names at the two
    ends. Names overhang the ends by a fixed width, so that the chart can make room for them.
    """
    heads = [_two_lines(name) for name in sets]
    widest = theme.LETTER * max(len(part) for lines in heads for part in lines)
    overhang = min(_WIDEST_NAMES, theme.LETTER * max(map(len, models))) + 12
    wide = round((widest + 8) * (len(sets) - 1) + 2 * overhang)  # below it, headings collide
    tilted = {"labelAngle": -38, "labelAlign": "left"}
    axis = {
        "orient": "top",
        "domain": False,
        "ticks": False,
        "title": None,
        "labelColor": theme.INK,
        "labelLimit": 130,
        "labelOverlap": False,
        "labelAngle": 0,
        "labelAlign": "center",
        "labelExpr": "headings[datum.value]",
        "labelLineHeight": 13,
        "labelPadding": 20,
        **(tilted if wide > 720 else {}),
    }
    places = {"domain": [0.5, len(models) + 0.5], "reverse": True, "nice": False}
    looks = {"rises": theme.BLUE, "falls": theme.VERMILLION, "others": "#a3acb5"}
    colour = {
        "field": "move",
        "type": "nominal",
        "scale": {"domain": list(looks), "range": list(looks.values())},
        "legend": None,
    }
    width = {
        "condition": [
            {"param": "over", "empty": False, "value": 3},
            {"test": "datum.move != 'others'", "value": 2.2},
        ],
        "value": 1.1,
    }
    ink = {
        "condition": [
            {"test": "datum.move == 'rises'", "value": theme.BLUE},
            {"test": "datum.move == 'falls'", "value": theme.VERMILLION},
        ],
        "value": theme.INK,
    }
    label = {"fontSize": 11, "limit": {"expr": "labelWidth"}}
    near = {"type": "point", "fields": ["line"], "on": "pointerover", "clear": "pointerout"}
    lines = draw(
        "line",
        {"interpolate": "linear", "strokeCap": "round"},
        {"detail": {"field": "line"}, "color": colour, "strokeWidth": width},
    )
    return chart(
        width=720,
        height=max(160, 17 * len(models) + 30),
        titles=titles,
        narrow=[
            {
                "below": wide,
                "set": {f"encoding.x.axis.{key}": value for key, value in tilted.items()},
            },
            {"below": 520, "set": {"params.0.value": 84}},
        ],
        params={"labelWidth": _WIDEST_NAMES, "headings": heads},
        rows=rows,
        encoding={
            "x": {
                "field": "set",
                "type": "ordinal",
                "scale": {"domain": list(range(len(sets))), "padding": 0},
                "axis": axis,
            },
            "y": number("place", places, axis=None),
        },
        layer=[
            {"params": [{"name": "over", "select": near}], **lines},
            draw("point", {**_DOT, "size": 34}, {"color": colour, "tooltip": tooltip(titles)}),
            *(
                draw("text", {**label, "align": align, "dx": dx}, {"text": text(end), "color": ink})
                for end, align, dx in (("left", "right", -9), ("right", "left", 9))
            ),
        ],
        **frame,
    )


def _two_lines(name: str) -> list[str]:
    """A name in two lines, a long one broken after the hyphen or space nearest its middle.

    A short name takes the lower line, next to the marks.
    """
    cuts = [place + 1 for place, letter in enumerate(name[:-1]) if letter in "-_ "]
    if len(name) <= 16 or not cuts:
        return ["", name]
    cut = min(cuts, key=lambda place: (abs(place - len(name) / 2), place))
    return [name[:cut].rstrip(), name[cut:]]

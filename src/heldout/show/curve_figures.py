"""Curves along an ordered or circular column: raw and balanced, with the images behind each value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from heldout.measure.score.records import Score
from heldout.show import theme
from heldout.show.axes import ticks
from heldout.show.curve_axis import CurveAxis
from heldout.show.data import Headline
from heldout.show.figure import Figure
from heldout.show.panels import Panel, Values
from heldout.show.slice_parts import (
    SHOWN,
    column_title,
    overall_layer,
    score_row,
    shown_models,
    slice_figure,
    slice_titles,
    slots,
    value_axis,
)
from heldout.show.wording import count, is_share

_STRIP = 0.15  # the part of the height that the bars of images take
_SHARE = 0.5
_RANGE = [
    {
        "aggregate": [
            {"op": "min", "field": "value", "as": "least"},
            {"op": "max", "field": "value", "as": "most"},
        ],
        "groupby": ["at"],
    }
]


def curve_figures(headline: Headline, panel: Panel) -> Iterable[Figure]:
    """The curve; of a circular column also relative to each model's own maximum."""
    axis = CurveAxis(tuple(panel.values()), panel.types[0], column_title(panel, 0))
    yield _curve(headline, panel, axis, panel.scores, relative=False)
    tops = {m: max(s.value for s in scores.values()) for m, scores in panel.scores.items()}
    if axis.closes and is_share(headline.metric) and all(top > 0 for top in tops.values()):
        yield _curve(headline, panel, axis, panel.scores, relative=True)


def _curve(
    headline: Headline,
    panel: Panel,
    axis: CurveAxis,
    scores: Mapping[str, Mapping[Values, Score]],
    *,
    relative: bool,
) -> Figure:
    rows = axis.laid(_rows(scores, relative=relative))
    shown = shown_models(headline, panel)
    titles = slice_titles(panel, field="at" if axis.places is None else "value_text")
    low = min(min(row["low"], row["value"]) for row in rows)
    high = max(max(row["high"], row["value"]) for row in rows)
    strip = panel.has_reading
    y = _height(headline, low, high, strip=strip, relative=relative)
    colour = slots(theme.SLOTS, legend=len(scores) > 1)
    order = {"order": {"field": "at", "type": "quantitative"}} if axis.places else {}
    layers: list[theme.Spec] = []
    extra = ""
    if len(scores) > len(shown):
        layers.append(
            {
                "transform": _RANGE,
                "mark": {"type": "area", "color": "#8c959f", "opacity": 0.13},
                "encoding": {"y": {**y, "field": "least"}, "y2": {"field": "most"}},
            }
        )
        extra += f" Grey: the range of all {len(scores)} models."
    main: list[theme.Spec] = [
        {
            "mark": {"type": "area", "opacity": 0.16},
            "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "line", "strokeWidth": 1.9},
            "encoding": {"y": y, **order},
        },
        {
            "mark": {"type": "point", "filled": True, "size": _dot(len(axis.values)), "opacity": 1},
            "encoding": {
                "y": y,
                "shape": slots(theme.SHAPES, legend=len(scores) > 1),
                "tooltip": theme.tooltip(titles),
            },
        },
    ]
    layers.append({"transform": SHOWN, "encoding": {"color": colour}, "layer": main})
    if panel.balanced and not relative:
        layers.append(_balanced(panel, axis, y, colour, order, titles))
        extra += " Dashed: only the units that are there at every value."
    if not relative:
        crossing = _crossings(panel, axis, y, colour)
        if crossing is not None:
            layers.append(crossing)
            extra += " Diamond: half of the maximum; its line is the interval."
        if not strip:
            layers.append(overall_layer(headline, panel, "y"))
    if axis.closes:
        extra += " The axis comes round: its right end repeats the left."
    if relative:
        extra += (
            " Each model is divided by its own highest value, whose chance is not in the bands."
        )
    parts: dict[str, Any] = {"layer": layers}
    if strip:
        most = max(score.n for by_value in scores.values() for score in by_value.values())
        parts = {
            "layer": [_images(panel, axis, scores, most), {"layer": layers}],
            "resolve": {"scale": {"y": "independent"}},
        }
        extra += f" Grey bars: images at each value, {count(most)} at most."
    form = "Closed curve" if axis.closes else "Curve"
    return slice_figure(
        headline,
        panel,
        shown,
        titles=titles,
        height=340 if strip else 320,
        data=theme.values(rows),
        encoding={"x": axis.channel()},
        extra=extra,
        form=form if not relative else f"{form}, relative to the maximum,",
        variant="relative" if relative else "",
        overall=not strip and not relative,
        **parts,
    )


def _rows(scores: Mapping[str, Mapping[Values, Score]], *, relative: bool) -> list[dict[str, Any]]:
    rows = []
    for by_value in scores.values():
        top = max(score.value for score in by_value.values()) if relative else 1.0
        for (value,), score in by_value.items():
            row = score_row(score) | {"at": value}
            rows.append(row | {key: row[key] / top for key in ("value", "low", "high")})
    return rows


def _dot(values: int) -> int:
    """Smaller points where there are many."""
    return 34 if values <= 24 else 16 if values <= 60 else 7


def _height(
    headline: Headline, low: float, high: float, *, strip: bool, relative: bool
) -> theme.Spec:
    """The vertical axis; with a strip of bars its lower part is kept free for them."""
    axis = value_axis(headline.metric)
    if relative:
        axis["title"] = "share of the model’s own maximum"
    scale: theme.Spec = {"zero": False}
    if strip and is_share(headline.metric):
        low, high = max(low, 0.0), min(high, 1.0) if not relative else high
        high = high if high > low else low + 0.1
        low = 0.0 if low < 0.25 * high else low
        axis["values"] = [round(tick, 6) for tick in ticks("linear", low, high, most=6)]
        scale = {
            "domain": [low - (high - low) * _STRIP / (1 - _STRIP), high + 0.02 * (high - low)],
            "nice": False,
        }
    return {"field": "value", "type": "quantitative", "scale": scale, "axis": axis}


def _images(
    panel: Panel, axis: CurveAxis, scores: Mapping[str, Mapping[Values, Score]], most: int
) -> theme.Spec:
    """Bars under the curve: how many images each value has."""
    images: dict[str, int] = {}
    for by_value in scores.values():
        for (value,), score in by_value.items():
            images[value] = max(score.n, images.get(value, 0))
    rows = axis.laid([{"at": value, "images": n} for value, n in images.items()])
    for row in rows:
        row["n"] = count(row["images"])
        if axis.places is not None:
            row["at"], row["to"] = axis.bar(row["at"])
    x = axis.channel()
    return {
        "data": theme.values(rows),
        "mark": {"type": "bar", "color": "#c6cdd5", "clip": True},
        "encoding": {
            "x": x,
            **({"x2": {"field": "to"}} if axis.places is not None else {}),
            "y": {
                "field": "images",
                "type": "quantitative",
                "scale": {"domain": [0, most / (_STRIP * 0.8)], "nice": False},
                "axis": None,
            },
            "y2": {"datum": 0},
            "tooltip": theme.tooltip(
                {"value_text" if axis.places is not None else "at": "", "n": ""}
            ),
        },
    }


def _balanced(
    panel: Panel,
    axis: CurveAxis,
    y: theme.Spec,
    colour: theme.Spec,
    order: theme.Spec,
    titles: Mapping[str, str],
) -> theme.Spec:
    return {
        "data": theme.values(axis.laid(_rows(panel.balanced, relative=False))),
        "transform": SHOWN,
        "encoding": {"color": colour},
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 1.5, "strokeDash": [5, 3]},
                "encoding": {"y": y, **order},
            },
            {
                # Nothing to see: the place to point at for the numbers.
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0},
                "encoding": {"y": y, "tooltip": theme.tooltip(titles)},
            },
        ],
    }


def _crossings(
    panel: Panel, axis: CurveAxis, y: theme.Spec, colour: theme.Spec
) -> theme.Spec | None:
    """Where each model has half of its maximum: a diamond, and the interval as a line."""
    if axis.places is None or axis.closes:
        return None
    first, last = axis.ends
    rows = []
    for record in panel.summaries:
        if record.name != "critical_value" or record.support != "all" or record.value is None:
            continue
        if record.model is None or record.model not in panel.scores or axis.starts_at(record.value):
            continue
        top = max(score.value for score in panel.scores[record.model].values())
        row = {"model": record.model, "at": record.value, "value": _SHARE * top}
        known = record.low is not None or record.high is not None
        row["from"] = record.value if not known else first if record.low is None else record.low
        row["to"] = record.value if not known else last if record.high is None else record.high
        rows.append(row)
    if not rows:
        return None
    return {
        "data": theme.values(rows),
        "transform": SHOWN,
        "encoding": {"color": colour, "y": y},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.2, "clip": True},
                "encoding": {"x": {"field": "from", "type": "quantitative"}, "x2": {"field": "to"}},
            },
            {
                "mark": {
                    "type": "point",
                    "shape": "diamond",
                    "size": 90,
                    "fill": "white",
                    "strokeWidth": 1.6,
                    "opacity": 1,
                },
                "encoding": {"x": {"field": "at", "type": "quantitative"}},
            },
        ],
    }

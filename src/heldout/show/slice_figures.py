"""Figures of slices by column type: bars, curves, closed curves; heat maps for two columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from heldout.show import theme
from heldout.show.curve_figures import curve_figures
from heldout.show.data import Headline
from heldout.show.figure import Figure
from heldout.show.heat_map import heat_map
from heldout.show.panels import Panel, panels, value_words
from heldout.show.slice_parts import (
    SHOWN,
    overall_layer,
    panel_rows,
    shown_models,
    slice_figure,
    slice_titles,
    slots,
    value_axis,
)
from heldout.show.wording import higher_is_better, merit

T = TypeVar("T")
MOST_BARS = 40
MOST_SHEETS = 8
"""Values of the third column of three, above which nobody would look at all sheets."""


def slice_figures(headline: Headline) -> Iterable[Figure]:
    """One figure for every panel of one or two columns; of three, one a value of the shortest.

    Columns of plain text have none.
    """
    for panel in panels(headline):
        kinds = [kind.kind for kind in panel.types]
        if "text" in kinds or len(kinds) > 3:
            continue
        if len(kinds) == 3:
            yield from _sheets(headline, panel)
        elif len(kinds) == 2:
            yield heat_map(headline, panel)
        elif kinds == ["categorical"]:
            yield _bars(headline, panel)
        else:
            yield from curve_figures(headline, panel)


def _sheets(headline: Headline, panel: Panel) -> Iterable[Figure]:
    """Three columns: a heat map of two for each value of the third, all on one scale of colours."""
    third = min(range(3), key=lambda place: (len(panel.values(place)), -place))
    values = panel.values(third)
    if len(values) > MOST_SHEETS:
        return
    every = [score.value for scores in panel.scores.values() for score in scores.values()]
    ends = (min(every), max(every))
    places = tuple(panel.values(place) for place in range(3) if place != third)
    for value in values:
        sheet = Panel(
            testset=panel.testset,
            columns=_without(panel.columns, third),
            types=_without(panel.types, third),
            scores={
                model: {
                    _without(at, third): score for at, score in scores.items() if at[third] == value
                }
                for model, scores in panel.scores.items()
            },
        )
        words = f"{panel.columns[third]} {value_words(value)}"
        yield heat_map(
            headline,
            sheet,
            variant=words,
            of=panel.columns,
            places=(places[0], places[1]),
            ends=ends,
        )


def _without(items: tuple[T, ...], place: int) -> tuple[T, ...]:
    return items[:place] + items[place + 1 :]


def _bars(headline: Headline, panel: Panel) -> Figure:
    values = panel.values()
    mean = {
        value: sum(s[(value,)].value for s in panel.scores.values() if (value,) in s)
        / sum((value,) in s for s in panel.scores.values())
        for value in values
    }
    worst_first = sorted(values, key=lambda v: (merit(headline.metric, mean[v]), v))
    if not panel.types[0].order:
        values = worst_first
    kept = set(worst_first[:MOST_BARS])
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
    end = "lowest" if higher_is_better(headline.metric) else "highest"
    extra = f" The {MOST_BARS} {end} of {len(values) + dropped} values." if dropped else ""
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

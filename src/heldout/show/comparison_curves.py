"""Two models along a column: their difference at every value, with intervals."""

from __future__ import annotations

from collections.abc import Iterable

from heldout.measure.score.records import Comparison
from heldout.measure.score.slices import ALL, parse_slice
from heldout.show import theme
from heldout.show.curve_axis import CurveAxis
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.panels import Panel, panels
from heldout.show.slice_parts import column_title
from heldout.show.wording import is_share, metric_name, p_text, points

_MOST_PAIRS = 4
_SURE = 0.05


def comparison_curves(headline: Headline) -> Iterable[Figure]:
    """For each single ordered or circular column: the differences of pairs of models along it."""
    known = {
        (panel.testset, panel.columns[0]): panel
        for panel in panels(headline)
        if len(panel.columns) == 1 and panel.types[0].kind in ("ordered", "circular", "grid")
    }
    groups: dict[tuple[str, str, str], dict[tuple[str, str], dict[str, Comparison]]] = {}
    for comparison in headline.comparisons:
        if comparison.slice == ALL or not is_share(comparison.metric):
            continue
        parts = parse_slice(comparison.slice)
        if len(parts) == 1:
            ((column, value),) = parts.items()
            if (comparison.testset, column) in known:
                pairs = groups.setdefault((comparison.testset, comparison.metric, column), {})
                pair = (comparison.model, comparison.other)
                pairs.setdefault(pair, {})[value] = comparison
    for (testset, metric, column), pairs in groups.items():
        shown = dict(list(pairs.items())[:_MOST_PAIRS])
        yield _figure(known[testset, column], metric, shown, len(pairs) - len(shown))


def _figure(
    panel: Panel,
    metric: str,
    pairs: dict[tuple[str, str], dict[str, Comparison]],
    left_out: int,
) -> Figure:
    column = panel.columns[0]
    axis = CurveAxis(tuple(panel.values()), panel.types[0], column_title(panel, 0))
    names = [f"{model} − {other}" for model, other in pairs]
    rows = [
        {
            "at": value,
            "model": names[number],
            "series": number,
            "value": 100 * c.difference,
            "low": 100 * (c.difference if c.low is None else c.low),
            "high": 100 * (c.difference if c.high is None else c.high),
            "sure": c.p is not None and c.p < _SURE,
            "text": f"{points(c.difference)} points"
            + (
                "" if c.low is None or c.high is None else f" ({points(c.low)} to {points(c.high)})"
            ),
            "p": p_text(c.p) or "none",
        }
        for number, by_value in enumerate(pairs.values())
        for value, c in by_value.items()
    ]
    colour, _, parameter = theme.series(names)
    field = "at" if axis.places is None else "value_text"
    titles = {"model": "models", field: column, "text": "difference", "p": "p"}
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": True},
        "axis": {"title": f"difference in {metric_name(metric)} (points)", "tickCount": 6},
    }
    order = {"order": {"field": "at", "type": "quantitative"}} if axis.places else {}
    every = [c for by_value in pairs.values() for c in by_value.values()]
    tests = sorted({c.test for c in every if c.test})
    widest = max(every, key=lambda c: abs(c.difference))
    return Figure(
        name=slug("comparisons", panel.testset, metric, column),
        section="comparisons",
        title=f"{metric_name(metric)} on {panel.testset} along {column}",
        group=panel.testset,
        caption="First model minus second, with the interval of each value by itself. Filled: p below "
        f"{_SURE:g} after the correction for all values."
        + (f" Test: {', '.join(tests)}." if tests else "")
        + (f" {left_out} more pairs are in the table." if left_out else ""),
        spec=theme.base(
            width=720,
            height=300,
            titles=titles,
            names=names,
            description=(
                f"Differences in {metric_name(metric)} on {panel.testset} along {column} for "
                f"{', '.join(names)}; widest: {points(widest.difference)} points where "
                f"{widest.slice}."
            ),
            data=theme.values(axis.laid(rows)),
            params=[parameter],
            encoding={"x": axis.channel()},
            layer=[
                {
                    "data": {"values": [{"zero": 0}]},
                    "mark": {"type": "rule", "color": theme.MUTED},
                    "encoding": {
                        "y": {**y, "field": "zero"},
                        "x": None,
                    },
                },
                {
                    "mark": {"type": "area", "opacity": 0.15},
                    "encoding": {
                        "y": {**y, "field": "low"},
                        "y2": {"field": "high"},
                        "color": colour,
                    },
                },
                {
                    "mark": {"type": "line", "strokeWidth": 1.8},
                    "encoding": {"y": y, "color": colour, **order},
                },
                {
                    "mark": {"type": "point", "size": 40, "strokeWidth": 1.5, "opacity": 1},
                    "encoding": {
                        "y": y,
                        "stroke": colour,
                        "fill": {"condition": {"test": "!datum.sure", "value": "white"}, **colour},
                        "tooltip": theme.tooltip(titles),
                    },
                },
            ],
        ),
    )

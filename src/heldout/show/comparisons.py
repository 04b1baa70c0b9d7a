"""Differences between two models on the same images, with intervals and p-values."""

from __future__ import annotations

from collections.abc import Iterable

from heldout.measure.score.records import Comparison
from heldout.measure.score.slices import ALL
from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.wording import is_share, metric_name, p_text, plural, points

_MOST_ROWS = 60
_TITLES = {"pair": "models", "text": "difference", "p": "p"}


def comparison_figures(headline: Headline) -> Iterable[Figure]:
    """For each test set and metric that is a share: a row a pair of models, largest gain first."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in headline.comparisons:
        if comparison.slice == ALL and is_share(comparison.metric):
            groups.setdefault((comparison.testset, comparison.metric), []).append(comparison)
    for (testset, metric), group in groups.items():
        yield _figure(testset, metric, group)


def _figure(testset: str, metric: str, group: list[Comparison]) -> Figure:
    ordered = sorted(group, key=lambda c: (-c.difference, c.model, c.other))
    kept = sorted(ordered, key=lambda c: -abs(c.difference))[:_MOST_ROWS]
    ordered = [c for c in ordered if c in kept]
    rows = [
        {
            "pair": f"{c.model} − {c.other}",
            "value": 100 * c.difference,
            "low": 100 * (c.difference if c.low is None else c.low),
            "high": 100 * (c.difference if c.high is None else c.high),
            "sure": c.low is not None and c.high is not None and (c.low > 0 or c.high < 0),
            "text": f"{points(c.difference, digits=2)} points"
            + (
                ""
                if c.low is None or c.high is None
                else f" ({points(c.low, digits=2)} to {points(c.high, digits=2)})"
            ),
            "p": p_text(c.p) or "none",
        }
        for c in ordered
    ]
    x = {
        "type": "quantitative",
        "scale": {"zero": True},
        "axis": {
            "title": f"difference in {metric_name(metric)} (points)",
            "orient": "top",
            "tickCount": 6,
        },
    }
    colour = {
        "condition": {"test": "datum.sure", "value": theme.BLUE},
        "value": "#6e7781",
    }
    cut = f" The {len(ordered)} largest of {len(group)}." if len(group) > len(ordered) else ""
    tests = sorted({c.test for c in ordered if c.test})
    return Figure(
        name=slug("comparisons", testset, metric),
        section="comparisons",
        title=f"{metric_name(metric)} on {testset}",
        group=testset,
        caption="First model minus second; blue where the interval leaves out zero."
        + (f" Test: {', '.join(tests)}." if tests else "")
        + cut,
        spec=theme.base(
            width=720,
            height=22 * len(rows),
            rows=True,
            titles=_TITLES,
            description=(
                f"Differences in {metric_name(metric)} on {testset} for "
                f"{plural(len(group), 'pair')} of models; largest: {rows[0]['pair']}, "
                f"{rows[0]['text']}."
            ),
            data=theme.values(rows),
            encoding={
                "y": {
                    "field": "pair",
                    "type": "nominal",
                    "sort": None,
                    "scale": {"domain": [row["pair"] for row in rows]},
                    "axis": {**theme.no_axis_line(), "grid": True, "labelColor": theme.INK},
                }
            },
            layer=[
                {
                    "data": {"values": [{"zero": 0}]},
                    "mark": {"type": "rule", "color": theme.MUTED},
                    "encoding": {"x": {**x, "field": "zero"}, "y": None},
                },
                {
                    "mark": {"type": "rule", "strokeWidth": 1.8},
                    "encoding": {
                        "x": {**x, "field": "low"},
                        "x2": {"field": "high"},
                        "color": colour,
                    },
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 52, "opacity": 1},
                    "encoding": {
                        "x": {**x, "field": "value"},
                        "color": colour,
                        "tooltip": theme.tooltip(_TITLES),
                    },
                },
            ],
        ),
    )

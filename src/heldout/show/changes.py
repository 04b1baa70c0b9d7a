"""From the baseline to each new test set: how far every model falls, and where it then ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from heldout.measure.score.records import Score
from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.ranks import ranks
from heldout.show.wording import interval_names, merit, metric_name, plural, points, value_text

_TITLES = {
    "model": "model",
    "testset": "test set",
    "text": "change",
    "old": "baseline",
    "new": "new",
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One model from the baseline to a new test set; ranks count from 1, ties share the better.

    ``difference`` is new minus baseline, in fractions, with an interval where both scores have
    one.
    """

    model: str
    testset: str
    old: Score
    new: Score
    difference: float
    low: float | None
    high: float | None
    old_rank: int
    new_rank: int

    @property
    def rank_gain(self) -> int:
        """How many ranks the model climbs; negative when it falls."""
        return self.old_rank - self.new_rank


def difference_interval(old: Score, new: Score) -> tuple[float | None, float | None]:
    """The interval of ``new − old`` for scores on different images.

    Newcombe's (1998) method 10, square-and-add: each side takes the distance to the nearer end of
    one interval and to the farther end of the other, ``d − √((p₁−l₁)² + (u₂−p₂)²)`` and
    ``d + √((u₁−p₁)² + (p₂−l₂)²)``. It asks that the two test sets share no images.
    """
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return None, None
    difference = new.value - old.value
    low = difference - math.hypot(new.value - new.low, old.high - old.value)
    high = difference + math.hypot(new.high - new.value, old.value - old.low)
    return low, high


def changes(headline: Headline, testset: str) -> list[Change]:
    """Every model that has both scores, best on the baseline first; ranks are among these."""
    if headline.baseline is None:
        return []
    old, new = headline.overall(headline.baseline), headline.overall(testset)
    models = [model for model in headline.models if model in old and model in new]
    old_ranks = ranks({m: merit(headline.metric, old[m].value) for m in models})
    new_ranks = ranks({m: merit(headline.metric, new[m].value) for m in models})
    found = []
    for model in models:
        low, high = difference_interval(old[model], new[model])
        found.append(
            Change(
                model=model,
                testset=testset,
                old=old[model],
                new=new[model],
                difference=new[model].value - old[model].value,
                low=low,
                high=high,
                old_rank=old_ranks[model],
                new_rank=new_ranks[model],
            )
        )
    return found


def change_figure(
    headline: Headline, by_set: Mapping[str, list[Change]], *, number: int = 1
) -> Figure:
    """A dot plot of every model's change on a few test sets; ``number`` tells figures apart."""
    sets = list(by_set)
    found = [change for group in by_set.values() for change in group]
    totals: dict[str, list[float]] = {}
    for change in found:
        totals.setdefault(change.model, []).append(change.difference)
    order = sorted(totals, key=lambda m: (-sum(totals[m]) / len(totals[m]), m))
    rows = [
        {
            "model": c.model,
            "testset": c.testset,
            "series": sets.index(c.testset),
            "value": 100 * c.difference,
            "low": 100 * (c.difference if c.low is None else c.low),
            "high": 100 * (c.difference if c.high is None else c.high),
            "text": f"{points(c.difference, digits=2)} points"
            + (
                "" if c.low is None or c.high is None else f" ({points(c.low)} to {points(c.high)})"
            ),
            "old": value_text(c.old.metric, c.old.value),
            "new": value_text(c.new.metric, c.new.value),
        }
        for c in found
    ]
    mean = {name: sum(c.difference for c in group) / len(group) for name, group in by_set.items()}
    step = 13 + 6 * len(sets)
    colour, shape, names_param = theme.series(sets)
    y = {
        "field": "model",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": order},
        "axis": {**theme.no_axis_line(), "labelColor": theme.INK, "grid": True},
    }
    offset = {"field": "series", "type": "nominal", "scale": {"domain": list(range(len(sets)))}}
    x = {"field": "value", "type": "quantitative", "scale": {"zero": True}}
    axis = {"title": "change (points)", "orient": "top", "tickCount": 6}
    spread = "; ".join(f"{name} {points(value)} on average" for name, value in mean.items())
    names = interval_names([s for c in found for s in (c.old, c.new)])
    return Figure(
        name=slug("changes", *([str(number)] if number > 1 else [])),
        section="changes",
        title=f"Change from {headline.baseline}",
        caption=(
            f"New minus baseline, {metric_name(headline.metric)}; models in order of their mean "
            "change."
            + (f" Intervals: Newcombe's square-and-add of the two ({names})." if names else "")
        ),
        spec=theme.base(
            width=720,
            height=step * len(order),
            rows=True,
            titles=_TITLES,
            params=[names_param],
            names=sets if len(sets) > 1 else (),
            description=(
                f"Dot plot of the change in {metric_name(headline.metric)} of "
                f"{plural(len(order), 'model')} from {headline.baseline}: {spread}. "
                f"Highest: {order[0]}; lowest: {order[-1]}."
            ),
            data=theme.values(rows),
            encoding={"y": y, "yOffset": offset, "color": colour},
            layer=[
                {
                    "data": {"values": [{"zero": 0}]},
                    "mark": {"type": "rule", "color": theme.MUTED, "strokeWidth": 1},
                    "encoding": {
                        "x": {"field": "zero", "type": "quantitative", "axis": axis},
                        "y": None,
                        "yOffset": None,
                        "color": {"value": theme.MUTED},
                    },
                },
                {
                    "mark": {"type": "rule", "strokeWidth": 1.6, "opacity": 0.55},
                    "encoding": {
                        "x": {**x, "field": "low", "axis": axis},
                        "x2": {"field": "high"},
                    },
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 44, "opacity": 1},
                    "encoding": {
                        "x": {**x, "axis": axis},
                        "shape": shape,
                        "tooltip": theme.tooltip(_TITLES),
                    },
                },
            ],
        ),
    )

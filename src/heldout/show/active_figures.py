"""Learning curves: a metric over the number of labels, and where the labels went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from heldout.measure.score.records import Learning
from heldout.measure.score.slices import ALL, parse_slice
from heldout.show import theme
from heldout.show.active_parts import CURVES, NAMES, SHARE, LearningPart
from heldout.show.figure import Figure, slug
from heldout.show.wording import percent

SECTION = "learning"


def learning_figures(parts: Sequence[LearningPart]) -> Iterator[Figure]:
    """Curves of accuracy and of the worst domain; shares of labels by domain."""
    for part in parts:
        for metric in CURVES:
            found = [part.points.get((name, metric, ALL), {}) for name in part.shown]
            if any(len(points) > 1 for points in found):
                yield curve_figure(part, metric)
        if part.domain_slices and len(part.labels) > 1:
            yield share_figure(part)


def curve_figure(part: LearningPart, metric: str) -> Figure:
    """One metric of the strategies on show, with bands."""
    names = part.shown
    rows = [
        _row(record, number) | {"strategy": name}
        for number, name in enumerate(names)
        for record in part.points.get((name, metric, ALL), {}).values()
        if record.labels is not None and record.value is not None
    ]
    last = max(row["labels"] for row in rows)
    best = max((row for row in rows if row["labels"] == last), key=lambda row: row["value"])
    left = len(part.strategies) - len(names)
    return _figure(
        part,
        metric,
        rows,
        names,
        title=f"{NAMES[metric].capitalize()} over labels",
        axis=f"{NAMES[metric]}",
        caption="Means over seeds with intervals; all start from the same labels."
        + (
            f" Shown are those with the highest curves of {len(part.strategies)}: chance has helped "
            "them too. All are in the tables."
            if left
            else ""
        ),
        description=(
            f"Curves of {NAMES[metric]} on {part.testset} over the number of labels for "
            f"{', '.join(names)}. At {last:,} labels {best['strategy']} is highest: {best['text']}."
        ),
        key="strategy",
    )


def share_figure(part: LearningPart) -> Figure:
    """Where the labels of one strategy went: the share of each domain so far."""
    ranked = [name for name in part.shown if name != part.baseline] or part.shown
    strategy = max(ranked, key=lambda name: part.mean(name, "worst_domain"))
    names = [next(iter(parse_slice(domain).values())) for domain in part.domain_slices][:7]
    rows = [
        _row(record, number) | {"strategy": names[number]}
        for number, domain in enumerate(part.domain_slices[:7])
        for record in part.points.get((strategy, SHARE, domain), {}).values()
        if record.labels is not None and record.value is not None
    ]
    return _figure(
        part,
        SHARE,
        rows,
        names,
        title=f"Where the labels of {strategy} went",
        axis="share of labels so far",
        caption="The strategy on show whose worst domain is best; means over seeds with intervals.",
        description=f"Share of each domain among the labels of {strategy} on {part.testset}.",
        key="domain",
    )


def _row(record: Learning, number: int) -> dict[str, Any]:
    value = record.value or 0.0
    low = value if record.low is None else record.low
    high = value if record.high is None else record.high
    ends = "" if record.low is None else f" ({percent(low)}–{percent(high)})"
    return {
        "labels": record.labels,
        "series": number,
        "value": value,
        "low": low,
        "high": high,
        "text": f"{percent(value)} %{ends}",
    }


def _figure(
    part: LearningPart,
    metric: str,
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    *,
    title: str,
    axis: str,
    caption: str,
    description: str,
    key: str,
) -> Figure:
    colour, shape, parameter = theme.series(names)
    titles = {"strategy": key, "labels": "labels", "text": axis}
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": metric == SHARE},
        "axis": {
            "title": axis,
            "labelExpr": "format(100 * datum.value, '.3~g') + ' %'",
            "tickCount": 6,
        },
    }
    x = {
        "field": "labels",
        "type": "quantitative",
        "scale": {"zero": False, "nice": False},
        "axis": {"title": "labels", "tickCount": 8, "grid": False},
    }
    return Figure(
        name=slug(SECTION, part.testset, part.truth, metric),
        section=SECTION,
        group=f"{part.testset} {part.truth}",
        title=title,
        caption=caption,
        spec=theme.base(
            width=720,
            height=340,
            titles=titles,
            names=names,
            description=description,
            data=theme.values(rows),
            params=[parameter],
            encoding={"x": x, "color": colour},
            layer=[
                {
                    "mark": {"type": "area", "opacity": 0.1},
                    "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
                },
                {"mark": {"type": "line", "strokeWidth": 1.9}, "encoding": {"y": y}},
                {
                    "mark": {"type": "point", "filled": True, "size": 34, "opacity": 1},
                    "encoding": {"y": y, "shape": shape, "tooltip": theme.tooltip(titles)},
                },
            ],
        ),
    )

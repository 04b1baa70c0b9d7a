"""All models on one test set, a row a model and a mark a metric: for reports without a baseline."""

from __future__ import annotations

from collections.abc import Iterable

from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.wording import (
    forgives,
    interval_names,
    is_share,
    metric_name,
    plural,
    range_text,
    value_text,
)

_MOST_METRICS = 7


def overview_figures(headline: Headline) -> Iterable[Figure]:
    """For each test set that no scatter shows: every model's scores that are shares.

    Scores that forgive mistakes have a figure of their own, beside the mistakes.
    """
    covered = {*headline.new_testsets, headline.baseline} if headline.new_testsets else set()
    for testset in headline.testsets:
        if testset not in covered:
            metrics = [
                metric
                for metric in (
                    headline.metric,
                    *(m for m in headline.metrics if m != headline.metric),
                )
                if is_share(metric)
                and not forgives(metric)
                and headline.overall(testset, metric=metric)
            ][:_MOST_METRICS]
            if metrics:
                yield _figure(headline, testset, metrics)


def _figure(headline: Headline, testset: str, metrics: list[str]) -> Figure:
    scores = [s for metric in metrics for s in headline.overall(testset, metric=metric).values()]
    lead = headline.overall(testset, metric=metrics[0])
    models = sorted(
        {score.model for score in scores},
        key=lambda m: (-lead[m].value if m in lead else 1.0, m),
    )
    names = [metric_name(metric) for metric in metrics]
    rows = [
        {
            "model": s.model,
            "metric": metric_name(s.metric),
            "series": metrics.index(s.metric),
            "value": s.value,
            "low": s.value if s.low is None else s.low,
            "high": s.value if s.high is None else s.high,
            "text": " ".join(
                filter(None, [value_text(s.metric, s.value), range_text(s.metric, s.low, s.high)])
            ),
        }
        for s in scores
    ]
    colour, shape, names_param = theme.series(names)
    axis = {
        "title": names[0] if len(names) == 1 else "score",
        "orient": "top",
        "labelExpr": "format(100 * datum.value, '.3~g') + ' %'",
        "tickCount": 6,
    }
    x = {"type": "quantitative", "scale": {"zero": False}, "axis": axis}
    titles = {"model": "model", "metric": "metric", "text": "score"}
    best = models[0]
    intervals = interval_names(scores)
    return Figure(
        name=slug("scores", testset),
        section="accuracy",
        title=testset,
        group=testset,
        caption=f"Models in order of {names[0]}."
        + (f" Intervals: {intervals}." if intervals else ""),
        spec=theme.base(
            width=720,
            height=20 * len(models),
            rows=True,
            titles=titles,
            params=[names_param],
            names=names if len(names) > 1 else (),
            description=(
                f"Dot plot of {', '.join(names)} of {plural(len(models), 'model')} on {testset}. "
                f"Highest {names[0]}: {best}"
                + (f", {value_text(metrics[0], lead[best].value)}." if best in lead else ".")
            ),
            data=theme.values(rows),
            encoding={
                "y": {
                    "field": "model",
                    "type": "nominal",
                    "sort": None,
                    "scale": {"domain": models},
                    "axis": {**theme.no_axis_line(), "grid": True, "labelColor": theme.INK},
                },
                "color": colour,
            },
            layer=[
                {
                    "mark": {"type": "rule", "strokeWidth": 1.6, "opacity": 0.55},
                    "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 48, "opacity": 1},
                    "encoding": {
                        "x": {**x, "field": "value"},
                        "shape": shape,
                        "tooltip": theme.tooltip(titles),
                    },
                },
            ],
        ),
    )

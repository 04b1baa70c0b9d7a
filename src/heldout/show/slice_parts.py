"""What all figures of slices share: the models on show, their colours, rows and words.

The models on show are a parameter of the figure (``shown``, at most four), so that the page can
change them; a still picture shows the best, a middle and the worst model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heldout.measure.score.records import Score
from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.panels import Panel
from heldout.show.wording import (
    count,
    interval_names,
    is_share,
    merit,
    metric_name,
    range_text,
    value_text,
)

SHOWN: list[theme.Spec] = [
    {"calculate": "indexof(shown, datum.model)", "as": "slot"},
    {"filter": "datum.slot >= 0"},
]


def shown_models(headline: Headline, panel: Panel) -> list[str]:
    """The best, a middle and the worst model of a panel, by their score on the whole test set."""
    overall = headline.overall(panel.testset)
    place = {m: merit(headline.metric, score.value) for m, score in overall.items()}
    ranked = sorted(panel.scores, key=lambda m: (m not in place, -place.get(m, 0.0), m))
    if len(ranked) <= 3:
        return ranked
    return [ranked[0], ranked[len(ranked) // 2], ranked[-1]]


def panel_rows(panel: Panel, values: Sequence[str]) -> list[dict[str, Any]]:
    """The scores of a one-column panel, a row a model and value."""
    return [
        score_row(score) | {"at": value}
        for scores in panel.scores.values()
        for value in values
        if (score := scores.get((value,))) is not None
    ]


def score_row(score: Score) -> dict[str, Any]:
    """One score as a row of figure data."""
    ends = range_text(score.metric, score.low, score.high)
    return {
        "model": score.model,
        "value": score.value,
        "low": score.value if score.low is None else score.low,
        "high": score.value if score.high is None else score.high,
        "text": value_text(score.metric, score.value) + (f" ({ends})" if ends else ""),
        "n": count(score.n),
    }


def value_axis(metric: str, **options: Any) -> theme.Spec:
    """The axis of the metric: percent for shares."""
    label = "format(100 * datum.value, '.3~g') + ' %'" if is_share(metric) else "datum.label"
    return {"title": metric_name(metric), "labelExpr": label, "tickCount": 6, **options}


def slots(field_range: Sequence[str], *, legend: bool) -> theme.Spec:
    """A colour or shape by place among the models on show; the legend names them."""
    return {
        "field": "slot",
        "type": "nominal",
        "scale": {"domain": list(range(len(theme.SLOTS))), "range": list(field_range)},
        "legend": {
            "title": None,
            "values": {"expr": "sequence(length(shown))"},
            "labelExpr": "shown[datum.value]",
        }
        if legend
        else None,
    }


def overall_layer(headline: Headline, panel: Panel, channel: str) -> theme.Spec:
    """A dashed rule for each shown model: its score on the whole test set."""
    overall = headline.overall(panel.testset)
    rows = [{"model": m, "overall": overall[m].value} for m in panel.scores if m in overall]
    other = {"x": ("y", "yOffset"), "y": ("x", "xOffset")}[channel]
    return {
        "data": theme.values(rows),
        "transform": SHOWN,
        "mark": {"type": "rule", "strokeDash": [3, 3], "opacity": 0.7, "strokeWidth": 1},
        "encoding": {
            channel: {"field": "overall", "type": "quantitative"},
            **dict.fromkeys(other),
            "color": slots(theme.SLOTS, legend=len(panel.scores) > 1),
        },
    }


def panel_title(panel: Panel) -> str:
    """The columns; a grid by the name that its two axes share."""
    names = " × ".join(panel.columns)
    return f"{panel.types[0].grid} ({names})" if panel.is_grid else names


def column_title(panel: Panel, position: int) -> str:
    """A column with its unit."""
    unit = panel.types[position].unit
    return panel.columns[position] + (f" ({unit})" if unit else "")


def slice_titles(
    panel: Panel, across: int = 0, down: int | None = None, *, field: str = "at"
) -> dict[str, str]:
    """The names of the tooltip's fields, the columns' own among them; ``field`` holds the value."""
    rows = {} if down is None else {"row": panel.columns[down]}
    return {
        "model": "model",
        field: panel.columns[across],
        **rows,
        "text": "score",
        "n": "images",
    }


def slice_figure(
    headline: Headline,
    panel: Panel,
    shown: Sequence[str],
    *,
    height: int,
    form: str,
    extra: str,
    values: Mapping[str, Any] | None = None,
    variant: str = "",
    columns: tuple[str, ...] = (),
    overall: bool = True,
    **parts: Any,
) -> Figure:
    """A panel's figure; ``form`` opens its description, ``extra`` ends its caption.

    ``values`` are further parameters; ``parts`` the data, encoding and layers. ``variant`` names a
    second figure of a panel, ``columns`` those by which figures stand together, ``overall`` says
    whether the whole set's score is drawn.
    """
    title = panel_title(panel) + (f", {variant}" if variant else "")
    every = [score for scores in panel.scores.values() for score in scores.values()]
    names = interval_names(every)
    whole = overall and form != "Heat map" and headline.overall(panel.testset)
    caption = (f"Intervals: {names}." if names else "") + (
        " Dashed: the model on the whole set." if whole else ""
    )
    if not names and every[0].reason:
        caption = f"No intervals: {every[0].reason}."
    lowest = min(every, key=lambda s: (s.value, s.slice))
    alt = (
        f"{form} of {metric_name(headline.metric)} on {panel.testset} by {title} for "
        f"{', '.join(shown)}. Lowest of all models: {value_text(lowest.metric, lowest.value)} "
        f"by {lowest.model} where {lowest.slice}."
    )
    params = [
        {"name": name, "value": value}
        for name, value in ({"shown": list(shown)} | dict(values or {})).items()
    ]
    return Figure(
        name=slug("slices", panel.testset, *panel.columns, *([variant] if variant else [])),
        section="slices",
        title=title,
        group=panel.testset,
        columns=columns or panel.columns,
        variant=variant,
        caption=(caption + extra).strip(),
        spec=theme.base(
            width=520,
            height=height,
            description=alt,
            params=params,
            names=shown if len(panel.scores) > 1 and form != "Heat map" else (),
            **parts,
        ),
    )

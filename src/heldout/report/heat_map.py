"""Two columns at once: a heat map, for the axes of a grid or any other pair of columns."""

from __future__ import annotations

from heldout.report import theme
from heldout.report.data import Headline
from heldout.report.figure import Figure
from heldout.report.panels import Panel
from heldout.report.slice_parts import (
    column_title,
    panel_title,
    score_row,
    shown_models,
    slice_figure,
    slice_titles,
    value_axis,
)
from heldout.report.wording import is_share

_MOST_NUMBERED_CELLS = 144


def heat_map(headline: Headline, panel: Panel) -> Figure:
    """The first model on show, a cell a pair of values; y grows downwards, as in an image."""
    across, down = (1, 0) if panel.is_grid and panel.types[0].axis == "y" else (0, 1)
    x_values, y_values = panel.values(across), panel.values(down)
    rows = [
        score_row(score)
        | {"at": values[across], "row": values[down]}
        | {"x": x_values.index(values[across]), "y": y_values.index(values[down])}
        for scores in panel.scores.values()
        for values, score in scores.items()
    ]
    position = {
        "x": {
            "field": "x",
            "type": "ordinal",
            "scale": {"domain": list(range(len(x_values))), "padding": 0},
            "axis": {
                "labelExpr": "across[datum.value]",
                "title": column_title(panel, across),
                "domain": False,
                "labelAngle": 0 if max(map(len, x_values)) <= 5 else -40,
            },
        },
        "y": {
            "field": "y",
            "type": "ordinal",
            "scale": {"domain": list(range(len(y_values))), "padding": 0},
            "axis": {
                "labelExpr": "down[datum.value]",
                "title": column_title(panel, down),
                "domain": False,
            },
        },
    }
    numbers = {
        "mark": {"type": "text", "fontSize": 10.5},
        "encoding": {
            "text": {"field": "cell", "type": "nominal"},
            "color": {
                "condition": {
                    # White figures on the deep half of the scale, ink on the pale half.
                    "test": "datum.value > datum.least + 0.5 * (datum.most - datum.least)",
                    "value": "white",
                },
                "value": theme.INK,
            },
        },
    }
    cells = len(x_values) * len(y_values)
    for row in rows:
        row["cell"] = (
            f"{100 * row['value']:.0f}" if is_share(headline.metric) else f"{row['value']:.2f}"
        )
    height = max(180, min(440, 34 * len(y_values) + 40))
    legend = {
        "title": None,
        "orient": "right",
        "direction": "vertical",
        "gradientLength": min(200, height - 80),  # title and axis take the rest
        "gradientThickness": 10,
        "labelExpr": value_axis(headline.metric)["labelExpr"],
        "tickCount": 5,
    }
    shown = shown_models(headline, panel)
    titles = slice_titles(panel, across, down)
    return slice_figure(
        headline,
        panel,
        shown,
        titles=titles,
        height=height,
        data=theme.values(rows),
        title={"text": {"expr": "heading + shown[0]"}, "fontSize": 12, "fontWeight": "normal"},
        transform=[
            {"filter": "datum.model === shown[0]"},
            {
                "joinaggregate": [
                    {"op": "min", "field": "value", "as": "least"},
                    {"op": "max", "field": "value", "as": "most"},
                ]
            },
        ],
        encoding=position,
        layer=[
            {
                "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1},
                "encoding": {
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "scale": {
                            "zero": False,
                            "range": list(theme.SEQUENTIAL),
                            "interpolate": "lab",
                        },
                        "legend": legend,
                    },
                    "tooltip": theme.tooltip(titles),
                },
            },
            *([numbers] if cells <= _MOST_NUMBERED_CELLS else []),
        ],
        values={"heading": f"{panel_title(panel)}: ", "across": x_values, "down": y_values},
        extra=" The first model on show is drawn; the scale spans its lowest to its highest cell.",
        form="Heat map",
    )

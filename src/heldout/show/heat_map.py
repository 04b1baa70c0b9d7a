"""Two columns at once: a heat map, for the axes of a grid or any other pair of columns."""

from __future__ import annotations

from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure
from heldout.show.panels import Panel, value_words
from heldout.show.slice_parts import (
    column_title,
    panel_title,
    score_row,
    shown_models,
    slice_figure,
    slice_titles,
    value_axis,
)
from heldout.show.wording import higher_is_better, is_share, merit

_MOST_NUMBERED_CELLS = 144
_MOST_ACROSS = 12
_MOST_VALUES = 40
_LEAN = 0.64  # the height of a name at 40 degrees, as a share of its length


def heat_map(
    headline: Headline,
    panel: Panel,
    *,
    variant: str = "",
    of: tuple[str, ...] = (),
    places: tuple[list[str], list[str]] | None = None,
    ends: tuple[float, float] | None = None,
) -> Figure:
    """The first model on show, a cell a pair of values; y grows downwards, as in an image.

    ``variant``  names one of several maps of the columns ``of``; ``places`` are their common values
                 of the two columns, and ``ends`` those of their common scale
    """
    across, down = (1, 0) if panel.is_grid and panel.types[0].axis == "y" else (0, 1)
    values = [panel.values(0), panel.values(1)] if places is None else list(places)
    if not panel.is_grid and len(values[0]) > max(len(values[1]), _MOST_ACROSS):
        across, down = 1, 0  # long lists of names read better downwards
    x_values, y_values = (_worst(headline, panel, place, values[place]) for place in (across, down))
    shown_x, shown_y = set(x_values), set(y_values)
    end = "lowest" if higher_is_better(headline.metric) else "highest"
    left_out = [
        f" The {_MOST_VALUES} {end} of {len(values[place])} values of {panel.columns[place]}."
        for place in (across, down)
        if len(values[place]) > len((x_values, y_values)[place == down])
    ]
    rows = [
        score_row(score)
        | {"at": at[across], "row": at[down]}
        | {"x": x_values.index(at[across]), "y": y_values.index(at[down])}
        for scores in panel.scores.values()
        for at, score in scores.items()
        if at[across] in shown_x and at[down] in shown_y
    ]
    tilted = max(map(len, x_values)) > 5
    position = {
        "x": {
            "field": "x",
            "type": "ordinal",
            "scale": {"domain": list(range(len(x_values))), "padding": 0},
            "axis": {
                "labelExpr": "across[datum.value]",
                "title": column_title(panel, across),
                "domain": False,
                "labelAngle": -40 if tilted else 0,
                # A few tilted names have room, though the boxes around them overlap.
                "labelOverlap": not tilted or len(x_values) > _MOST_ACROSS,
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
    numbered = cells <= _MOST_NUMBERED_CELLS
    for row in rows:
        row["cell"] = (
            f"{100 * row['value']:.0f}" if is_share(headline.metric) else f"{row['value']:.2f}"
        )
    tall = 440 if panel.is_grid else 16 * len(y_values) + 110
    height = max(180, min(max(440, tall), 34 * len(y_values) + 40))
    if tilted:  # names that lean on the cells take their height, not that of the cells
        height += round(_LEAN * min(220, theme.LETTER * max(map(len, x_values))))
    legend = {
        "title": None,
        "orient": "right",
        "direction": "vertical",
        "gradientLength": min(200, height - 80),  # title and axis take the rest
        "gradientThickness": 10,
        "labelExpr": value_axis(headline.metric)["labelExpr"],
        "tickCount": 5,
    }
    missing = _holes(panel, across, x_values, y_values)
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
            *_scale(ends),
        ],
        encoding=position,
        narrow=_without_numbers(len(x_values), 1 + bool(missing)) if numbered else (),
        square=panel.is_grid and 0.5 <= len(x_values) / len(y_values) <= 2,
        layer=[
            *([_crosses(missing, cells)] if missing else []),
            {
                "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1},
                "encoding": {
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "scale": {
                            "zero": False,
                            **({} if ends is None else {"domain": list(ends)}),
                            "range": list(theme.SEQUENTIAL),
                            "interpolate": "lab",
                        },
                        "legend": legend,
                    },
                    "tooltip": theme.tooltip(titles),
                },
            },
            *([numbers] if numbered else []),
        ],
        values={
            "heading": f"{panel_title(panel)}{variant and ', '}{variant}: ",
            "across": [value_words(value) for value in x_values],
            "down": [value_words(value) for value in y_values],
        },
        variant=variant,
        columns=of or panel.columns,
        extra=" The first model on show is drawn; the scale spans "
        + (
            "its lowest to its highest cell."
            if ends is None
            else f"the lowest to the highest cell of {' × '.join(of)}, of all models."
        )
        + (" Crossed out: no images." if missing else "")
        + "".join(left_out),
        form="Heat map",
    )


def _scale(ends: tuple[float, float] | None) -> list[theme.Spec]:
    """Columns ``least`` and ``most`` of the rows: the ends of the scale of colours."""
    if ends is not None:
        return [
            {"calculate": str(end), "as": name}
            for name, end in zip(("least", "most"), ends, strict=True)
        ]
    return [
        {
            "joinaggregate": [
                {"op": "min", "field": "value", "as": "least"},
                {"op": "max", "field": "value", "as": "most"},
            ]
        }
    ]


def _worst(headline: Headline, panel: Panel, position: int, values: list[str]) -> list[str]:
    """The values of a column in their order; of many names only those with the worst scores."""
    if len(values) <= _MOST_VALUES or panel.types[position].kind != "categorical":
        return values
    sums: dict[str, list[float]] = {}
    for scores in panel.scores.values():
        for at, score in scores.items():
            total = sums.setdefault(at[position], [0.0, 0.0])
            total[0] += score.value * score.n
            total[1] += score.n
    mean = {value: total[0] / max(total[1], 1.0) for value, total in sums.items()}
    order = sorted(mean, key=lambda value: (merit(headline.metric, mean[value]), value))
    kept = set(order[:_MOST_VALUES])
    return [value for value in values if value in kept]


def _without_numbers(columns: int, layer: int) -> list[theme.Spec]:
    """Where cells are too narrow for their numbers, the colour alone speaks."""
    return [{"below": 24 * columns + 110, "set": {f"layer.{layer}.mark.opacity": 0}}]


def _holes(panel: Panel, across: int, x_values: list[str], y_values: list[str]) -> list[theme.Spec]:
    """Cells that no model has a score for, by their places."""
    there = {values for scores in panel.scores.values() for values in scores}
    return [
        {"x": x, "y": y}
        for y, below in enumerate(y_values)
        for x, beside in enumerate(x_values)
        if ((beside, below) if across == 0 else (below, beside)) not in there
    ]


def _crosses(holes: list[theme.Spec], cells: int) -> theme.Spec:
    """Missing cells: pale and crossed out, so that nobody takes them for low ones."""
    return {
        "data": theme.values(holes),
        "layer": [
            {"mark": {"type": "rect", "color": "#f3f4f6", "stroke": "white", "strokeWidth": 1}},
            {
                "mark": {
                    "type": "point",
                    "shape": "M-1,-1L1,1M-1,1L1,-1",
                    "size": 60 if cells <= _MOST_NUMBERED_CELLS else 12,
                    "stroke": "#aab2bb",
                    "strokeWidth": 1,
                    "opacity": 1,
                }
            },
        ],
    }

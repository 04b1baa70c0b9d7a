"""Figures of mistakes by columns: bars cut by category, and heat maps for two columns."""

from __future__ import annotations

from heldout.data.testset.columns import ColumnType
from heldout.measure.mistakes.tallying import ALL
from heldout.measure.score.slices import parse_slice
from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.mistake_parts import (
    MOST_MODELS,
    MOST_VALUES,
    SECTION,
    SHARE_AXIS,
    bar_end,
    category_colour,
    end_layers,
    error_rate,
    figure_group,
    interval_text,
    numbered,
    tally_text,
)
from heldout.show.mistakes import MistakePart
from heldout.show.panels import in_order, slice_text
from heldout.show.wording import count, percent


def slice_figure(headline: Headline, part: MistakePart, column: str) -> Figure:
    """Bars of the mistakes in each slice of a column, cut by category, of the chosen model."""
    by_model = part.slices[(column,)]
    models = [model for model in part.models if model in by_model][:MOST_MODELS]
    kind = headline.data.columns.get(part.testset, {}).get(column)
    names = sorted({name for model in models for name in by_model[model]})
    texts = {name: parse_slice(name)[column] for name in names}
    values = in_order(texts.values(), kind or ColumnType(kind="categorical"))
    left_out = len(values) - MOST_VALUES
    if left_out > 0:
        worst = sorted(names, key=lambda name: (-error_rate(by_model[models[0]].get(name)), name))
        kept = {texts[name] for name in worst[:MOST_VALUES]}
        values = [value for value in values if value in kept]
    categories = part.categories
    rows, ends = [], []
    for model in models:
        for name, found in by_model[model].items():
            total = found.get(ALL)
            if total is None or not total.of or texts[name] not in values:
                continue
            start = 0.0
            for code, category in enumerate(categories):
                record = found.get(category)
                if record is None or not record.n:
                    continue
                rows.append(
                    {
                        "model": model,
                        "at": texts[name],
                        "series": code,
                        "category": category,
                        "start": start,
                        "end": start + record.n / total.of,
                        "text": tally_text(record),
                    }
                )
                start += record.n / total.of
            label = f"{count(total.n)} of {count(total.of)}"
            ends.append(bar_end(total, model) | {"at": texts[name], "label": label})
    titles = {"model": "model", "at": column, "category": "category", "text": "mistakes"}
    colour = numbered(categories, [category_colour(name) for name in categories])
    unit = f" ({kind.unit})" if kind is not None and kind.unit else ""
    chosen: list[theme.Spec] = [{"filter": "datum.model == chosen"}]
    y = {
        "field": "at",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": values, "paddingInner": 0.26},
        "axis": {**theme.no_axis_line(), "labelColor": theme.INK},
    }
    title = f"{column.replace('_', ' ')}{unit}"
    lead = by_model[models[0]]
    highest = max(lead, key=lambda name: (error_rate(lead[name]), name))
    said = f" The {MOST_VALUES} values with the most mistakes, of {len(values) + left_out}."
    return Figure(
        name=slug(SECTION, part.testset, part.truth, "by", column),
        section=SECTION,
        group=figure_group(part),
        columns=(column,),
        title=f"By {title}",
        caption=(
            "Mistakes in each slice as a share of its images, cut by category. "
            f"{interval_text(ends)}{said if left_out > 0 else ''}"
        ).strip(),
        spec=theme.base(
            width=520,
            height=26 * max(1, len(values)),
            rows=True,
            titles=titles,
            names=categories if len(categories) > 1 else (),
            params=[
                {"name": "names", "value": list(categories)},
                {"name": "chosen", "value": models[0]},
            ],
            description=(
                f"Bars of the share of images of {part.testset} that {models[0]} gets wrong by "
                f"{column}, cut by category. Highest: {slice_text(parse_slice(highest))}, "
                f"{percent(error_rate(lead[highest]))} %."
            ),
            encoding={"y": y},
            layer=[
                {
                    "data": theme.values(rows),
                    "transform": chosen,
                    "mark": {"type": "bar", "opacity": 0.92},
                    "encoding": {
                        "x": {"field": "start", "type": "quantitative", "axis": SHARE_AXIS},
                        "x2": {"field": "end"},
                        "color": colour,
                        "tooltip": theme.tooltip(titles),
                    },
                },
                *end_layers(ends, label=False, transform=chosen),
            ],
        ),
    )


def grid_figure(headline: Headline, part: MistakePart, columns: tuple[str, str]) -> Figure | None:
    """A heat map of the share of images that the chosen model gets wrong, over two columns.

    None where a column has too many values for one. Cells stand by number, which parameters name:
    text from the data must not be the key of anything that is drawn twice.
    """
    by_model = part.slices[columns]
    models = [model for model in part.models if model in by_model][:MOST_MODELS]
    across, down = columns
    known = headline.data.columns.get(part.testset, {})
    plain = ColumnType(kind="categorical")
    parts = {name: parse_slice(name) for model in models for name in by_model[model]}
    values = {
        column: in_order((found[column] for found in parts.values()), known.get(column, plain))
        for column in columns
    }
    if max(map(len, values.values())) > MOST_VALUES:
        return None
    rows = []
    for model in models:
        for name, found in by_model[model].items():
            total = found.get(ALL)
            if total is None or not total.of:
                continue
            counted = [
                f"{category}: {count(found[category].n)}"
                for category in part.categories
                if category in found and found[category].n
            ]
            rows.append(
                {
                    "model": model,
                    "x": values[across].index(parts[name][across]),
                    "y": values[down].index(parts[name][down]),
                    "across": parts[name][across],
                    "down": parts[name][down],
                    "value": total.n / total.of,
                    "text": tally_text(total),
                    "kinds": "; ".join(counted) or "none",
                }
            )
    titles = {
        "model": "model",
        "across": across,
        "down": down,
        "text": "mistakes",
        "kinds": "categories",
    }
    lead = by_model[models[0]]
    highest = max(lead, key=lambda name: (error_rate(lead[name]), name))
    widest = max(map(len, values[across]))

    def axis(column: str, texts: str, angle: int) -> theme.Spec:
        return {
            **theme.no_axis_line(),
            "title": column,
            "labelExpr": f"{texts}[datum.value]",
            "labelColor": theme.INK,
            "labelAngle": angle,
        }

    return Figure(
        name=slug(SECTION, part.testset, part.truth, "by", across, down),
        section=SECTION,
        group=figure_group(part),
        columns=columns,
        title=f"By {across} × {down}".replace("_", " "),
        caption="Mistakes as a share of the images of each cell; point at one for its categories.",
        spec=theme.base(
            width=520,
            height=30 * max(1, len(values[down])),
            rows=True,
            titles=titles,
            params=[
                {"name": "across", "value": values[across]},
                {"name": "down", "value": values[down]},
                {"name": "chosen", "value": models[0]},
            ],
            description=(
                f"Heat map of the share of images of {part.testset} that {models[0]} gets wrong by "
                f"{across} and {down}. Highest: {slice_text(parse_slice(highest))}, "
                f"{percent(error_rate(lead[highest]))} %."
            ),
            encoding={
                "x": {
                    "field": "x",
                    "type": "ordinal",
                    "scale": {"domain": list(range(len(values[across]))), "padding": 0},
                    "axis": axis(across, "across", 0 if widest <= 5 else -40),
                },
                "y": {
                    "field": "y",
                    "type": "ordinal",
                    "scale": {"domain": list(range(len(values[down]))), "padding": 0},
                    "axis": axis(down, "down", 0),
                },
            },
            layer=[
                {
                    "data": theme.values(rows),
                    "transform": [{"filter": "datum.model == chosen"}],
                    "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1},
                    "encoding": {
                        "color": {
                            "field": "value",
                            "type": "quantitative",
                            "scale": {
                                "range": list(theme.SEQUENTIAL),
                                "interpolate": "lab",
                                "domainMin": 0,
                            },
                            "legend": {
                                "title": None,
                                "labelExpr": SHARE_AXIS["labelExpr"],
                                "gradientLength": 180,
                                "gradientThickness": 10,
                                "tickCount": 5,
                            },
                        },
                        "tooltip": theme.tooltip(titles),
                    },
                }
            ],
        ),
    )

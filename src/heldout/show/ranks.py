"""Where every model ranks on the baseline and on each new test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heldout.show import theme
from heldout.show.data import Headline
from heldout.show.figure import Figure
from heldout.show.wording import merit, metric_name, value_text

_WIDEST_NAMES = 150  # pixels for model names on either side
_NARROW_NAMES = 84
_LONG_NAME = 16
_WIDTH = 720
_PHONE = 520
_TILTED = {"encoding.x.axis.labelAngle": -38, "encoding.x.axis.labelAlign": "left"}
_TITLES = {"model": "model", "testset": "test set", "rank": "rank", "value": "score"}


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """By name: 1 plus the number of strictly larger values, so ties share the better rank.

    >>> ranks({"a": 0.7, "b": 0.9, "c": 0.7, "d": 0.1})
    {'a': 2, 'b': 1, 'c': 2, 'd': 4}
    """
    first: dict[float, int] = {}
    for position, value in enumerate(sorted(values.values(), reverse=True), start=1):
        first.setdefault(value, position)
    return {name: first[value] for name, value in values.items()}


def rank_figure(headline: Headline, testsets: Sequence[str]) -> Figure:
    """Ranks from the baseline through every new test set, the widest movers in colour."""
    sets = [str(headline.baseline), *testsets]
    models = [m for m in headline.models if all(m in headline.overall(name) for name in sets)]
    places: dict[str, dict[str, int]] = {}
    shown: dict[str, dict[str, int]] = {}
    for name in sets:
        scores = {m: merit(headline.metric, headline.overall(name)[m].value) for m in models}
        ordered = sorted(models, key=lambda m, s=scores: (-s[m], m))  # type: ignore[misc]
        places[name] = {model: place for place, model in enumerate(ordered, start=1)}
        shown[name] = ranks(scores)
    gain = {
        model: sum(shown[sets[0]][model] - shown[name][model] for name in sets[1:])
        / (len(sets) - 1)
        for model in models
    }
    ordered = sorted(models, key=lambda m: (gain[m], m))
    falling = [m for m in ordered[:3] if gain[m] <= -1]
    rising = [m for m in ordered[-3:] if gain[m] >= 1]
    rows = [
        {
            "line": line,
            "model": model,
            "set": number,
            "testset": name,
            "place": places[name][model],
            "move": "rises" if model in rising else "falls" if model in falling else "others",
            "rank": f"{shown[name][model]} of {len(models)}",
            "value": value_text(headline.metric, headline.overall(name)[model].value),
            "left": model if name == sets[0] else "",
            "right": model if name == sets[-1] else "",
        }
        for line, model in enumerate(models)
        for number, name in enumerate(sets)
    ]
    widest = theme.LETTER * max(len(text) for name in sets for text in _lines(name))
    names_wide = min(_WIDEST_NAMES, theme.LETTER * max(map(len, models))) + 12
    wide = round((widest + 8) * (len(sets) - 1) + 2 * names_wide)  # below it, headings collide
    x = {
        "field": "set",
        "type": "ordinal",
        # Names overhang the ends by a fixed width, so the figure can make room for them.
        "scale": {"domain": list(range(len(sets))), "padding": 0},
        "axis": {
            "orient": "top",
            "domain": False,
            "ticks": False,
            "title": None,
            "labelColor": theme.INK,
            "labelLimit": 130,
            "labelOverlap": False,
            "labelAngle": 0 if wide <= _WIDTH else -38,
            "labelAlign": "center" if wide <= _WIDTH else "left",
            "labelExpr": "headings[datum.value]",
            "labelLineHeight": 13,
            "labelPadding": 20,
        },
    }
    y = {
        "field": "place",
        "type": "quantitative",
        "scale": {"domain": [0.5, len(models) + 0.5], "reverse": True, "nice": False},
        "axis": None,
    }
    colour = {
        "field": "move",
        "type": "nominal",
        "scale": {
            "domain": ["rises", "falls", "others"],
            "range": [theme.BLUE, theme.VERMILLION, "#a3acb5"],
        },
        "legend": None,
    }
    over = {"param": "over", "empty": False}
    lift = {"condition": [{**over, "value": 3}, {"test": "datum.move != 'others'", "value": 2.2}]}
    label = {"type": "text", "fontSize": 11, "limit": {"expr": "labelWidth"}}
    ink = {
        "condition": [
            {"test": "datum.move == 'rises'", "value": theme.BLUE},
            {"test": "datum.move == 'falls'", "value": theme.VERMILLION},
        ],
        "value": theme.INK,
    }
    moves = (
        ("rising: " + ", ".join(reversed(rising)) + ". " if rising else "")
        + ("falling: " + ", ".join(falling) + "." if falling else "")
    ).strip()
    return Figure(
        name="ranks",
        section="changes",
        title="Ranks",
        caption=(
            f"Rank by {metric_name(headline.metric)} among the {len(models)} models on every set; "
            "in colour the three that rise and fall most on average. Hover to follow a model."
        ),
        spec=theme.base(
            width=_WIDTH,
            height=max(160, 17 * len(models) + 30),
            description=(
                f"Lines from each model's rank on {sets[0]} to its rank on {', '.join(sets[1:])}; "
                f"{moves or 'no model moves by more than a rank on average.'}"
            ),
            titles=_TITLES,
            narrow=[
                {"below": wide, "set": _TILTED},
                {"below": _PHONE, "set": {"params.0.value": _NARROW_NAMES}},
            ],
            params=[
                {"name": "labelWidth", "value": _WIDEST_NAMES},
                {"name": "headings", "value": [_lines(name) for name in sets]},
            ],
            data=theme.values(rows),
            encoding={"x": x, "y": y},
            layer=[
                {
                    "params": [
                        {
                            "name": "over",
                            "select": {
                                "type": "point",
                                "fields": ["line"],
                                "on": "pointerover",
                                "clear": "pointerout",
                            },
                        }
                    ],
                    "mark": {"type": "line", "interpolate": "linear", "strokeCap": "round"},
                    "encoding": {
                        "detail": {"field": "line"},
                        "color": colour,
                        "strokeWidth": {**lift, "value": 1.1},
                    },
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 34, "opacity": 1},
                    "encoding": {
                        "color": colour,
                        "tooltip": theme.tooltip(_TITLES),
                    },
                },
                _name_layer(label | {"align": "right", "dx": -9}, "left", ink),
                _name_layer(label | {"align": "left", "dx": 9}, "right", ink),
            ],
        ),
    )


def _lines(name: str) -> list[str]:
    """A name in two lines, a long one broken after the hyphen or space nearest its middle.

    A short name takes the lower line, next to the ranks.
    """
    cuts = [place + 1 for place, letter in enumerate(name[:-1]) if letter in "-_ "]
    if len(name) <= _LONG_NAME or not cuts:
        return ["", name]
    cut = min(cuts, key=lambda place: (abs(place - len(name) / 2), place))
    return [name[:cut].rstrip(), name[cut:]]


def _name_layer(mark: theme.Spec, field: str, ink: theme.Spec) -> theme.Spec:
    return {
        "mark": mark,
        "encoding": {"text": {"field": field, "type": "nominal"}, "color": ink},
    }

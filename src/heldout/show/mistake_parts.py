"""What all figures of mistakes share: colours, axes, the ends of bars, words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heldout.data.judgements.questions import CATEGORIES
from heldout.measure.mistakes.categories import (
    FINE_GRAINED,
    NO_MISTAKE,
    NON_PROTOTYPICAL,
    OTHER,
    SPURIOUS,
)
from heldout.measure.mistakes.kinds import NO_CLASS, NO_OUTPUT, UNJUDGED
from heldout.measure.mistakes.tallying import ALL
from heldout.measure.score.records import Tally
from heldout.show import theme
from heldout.show.mistakes import MistakePart
from heldout.show.wording import PERCENT, count, percent, range_text

SECTION = "mistakes"
MOST_VALUES = 24
MOST_MODELS = 12
_PALE = ("#9fc7e6", "#c6dcec")
# Blue where classes are alike, green and ochre where something else explains, vermillion where
# nothing does: a bar's colours say how bad it is before its length does.
CATEGORY_COLOURS: Mapping[str, str] = {
    NO_MISTAKE: "#b6bfc8",
    FINE_GRAINED: theme.BLUE,
    CATEGORIES[1]: "#56a3d3",
    CATEGORIES[2]: _PALE[0],
    NON_PROTOTYPICAL: theme.GREEN,
    SPURIOUS: "#c79a1e",
    OTHER: theme.VERMILLION,
    NO_OUTPUT: "#5c5c5c",
    NO_CLASS: "#8a8f96",
}
SEVERITY_COLOURS: Mapping[str, str] = {
    "Major": theme.VERMILLION,
    "Minor": "#56a3d3",
    "Borderline": _PALE[0],
    "unclear": theme.PURPLE,
    UNJUDGED: "#c3cad1",
}
SHARE_AXIS = {
    "title": "share of images",
    "labelExpr": "format(100 * datum.value, '.3~g') + ' %'",
    "tickCount": 6,
}


def figure_group(part: MistakePart) -> str:
    """What the figures of one part share: its test set and truth."""
    return f"{part.testset}\n{part.truth}"


def category_colour(name: str) -> str:
    """The colour of a category, everywhere on the page."""
    return CATEGORY_COLOURS.get(name, theme.PURPLE)


def numbered(names: Sequence[str], given: Sequence[str]) -> theme.Spec:
    """A colour or shape by the number in ``series``, which the parameter ``names`` names."""
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": list(range(len(names))), "range": list(given)},
        "legend": {"title": None, "labelExpr": "names[datum.value]"} if len(names) > 1 else None,
    }


def bar_end(record: Tally, model: str) -> dict[str, Any]:
    """Where a bar ends, with its interval."""
    value = record.value or 0.0
    return {
        "model": model,
        "value": value,
        "low": value if record.low is None else record.low,
        "high": value if record.high is None else record.high,
        "method": record.interval or "",
        "level": record.level or 0.0,
        "why": record.reason or "",
    }


def end_layers(
    ends: Sequence[Mapping[str, Any]], *, label: bool, transform: Sequence[theme.Spec] = ()
) -> list[theme.Spec]:
    """The intervals of whole bars, and what stands beside each."""
    data = theme.values(
        [{k: v for k, v in end.items() if k not in ("method", "level", "why")} for end in ends]
    )
    more = {"transform": list(transform)} if transform else {}
    layers: list[theme.Spec] = [
        {
            "data": data,
            **more,
            "mark": {"type": "rule", "strokeWidth": 1.3, "color": theme.INK},
            "encoding": {
                "x": {"field": "low", "type": "quantitative", "axis": SHARE_AXIS},
                "x2": {"field": "high"},
            },
        }
    ]
    if label:
        layers.append(
            {
                "data": data,
                **more,
                "mark": {
                    "type": "text",
                    "align": "left",
                    "dx": 6,
                    "fontSize": 10.5,
                    "color": theme.MUTED,
                },
                "encoding": {
                    "x": {"field": "high", "type": "quantitative", "axis": SHARE_AXIS},
                    "text": {"field": "label", "type": "nominal"},
                },
            }
        )
    return layers


def error_rate(found: Any) -> float:
    """The share of images that are wrong, of one slice's tallies by category; 0 where unknown."""
    record = found.get(ALL) if isinstance(found, Mapping) else None
    return 0.0 if record is None or record.value is None else float(record.value)


def tally_text(record: Tally) -> str:
    """A tally in words, with its interval."""
    share = "" if record.value is None else f", {percent(record.value)}{PERCENT}"
    ends = range_text("top1", record.low, record.high)
    return f"{count(record.n)} of {count(record.of)}{share}" + (f" ({ends})" if ends else "")


def interval_text(ends: Sequence[Mapping[str, Any]]) -> str:
    """How the intervals of whole bars were made, or why there are none."""
    names = sorted({(e["level"], e["method"]) for e in ends if e["method"]})
    if names:
        said = ", ".join(f"{100 * level:.4g}{PERCENT} {_method(name)}" for level, name in names)
        return f"Intervals of the whole bar: {said}."
    reasons = sorted({e["why"] for e in ends if e["why"]})
    return f"No intervals: {reasons[0]}." if reasons else ""


def _method(name: str) -> str:
    plain = {"wilson": "Wilson", "cluster-wilson": "Wilson over clusters"}
    return plain.get(name, name)

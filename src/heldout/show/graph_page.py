"""A graph as a page that a person can use, and as a still picture; one file each, nothing loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.core.files import write_bytes, write_text
from heldout.show.embed import environment, script_hash, script_json, static
from heldout.show.graph_data import GraphData, Node, NodeScore
from heldout.show.graph_layout import Layout, layout
from heldout.show.graph_svg import (
    ABOVE,
    BELOW,
    MIDDLE,
    community_colours,
    graph_words,
    marks,
    render_svg,
    score_middle,
    score_spread,
)
from heldout.show.wording import count, is_share, metric_name, plain_digits

Format = Literal["html", "svg", "png"]
FORMATS: tuple[Format, ...] = ("html", "svg", "png")
DISTANCES = ("", "jensen-shannon")
"""Distances that the page can compute from the members of nodes; the first is none."""


def write_graph(
    data: GraphData, path: Path, format: Format | None = None, *, model: str | None = None
) -> None:
    """Write the graph to ``path``: an interactive page, an SVG or a PNG; by its ending if not told.

    The same data give the same bytes. ``model`` colours a still picture by that model's scores; the
    page offers every model. A page loads nothing and runs no script but its own.
    """
    chosen = format or path.suffix.removeprefix(".").lower()
    if chosen not in FORMATS:
        raise UserError(
            f"no graph format {chosen or path.name!r}", fix=f"use one of {', '.join(FORMATS)}"
        )
    if model is not None and model not in data.models:
        raise UserError(
            f"no node has a score of {model}", fix=f"there is {', '.join(data.models) or 'none'}"
        )
    if chosen == "html":
        write_text(path, render_graph(data))
        return
    svg = render_svg(data, layout(data), model=model)
    if chosen == "svg":
        write_text(path, svg)
        return
    vl = require("vl_convert", extra="figures", purpose="drawing a graph as PNG")
    write_bytes(path, bytes(vl.svg_to_png(svg, scale=2)))


def render_graph(data: GraphData) -> str:
    """The page's HTML."""
    from markupsafe import Markup

    if data.distance not in DISTANCES:
        raise UserError(
            f"the page knows no distance {data.distance!r}",
            fix=f"use one of {', '.join(filter(None, DISTANCES))}",
        )
    places, script = layout(data), static("dom.js") + static("graph.js")
    policy = (
        f"default-src 'none'; script-src {script_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page: str = (
        environment()
        .get_template("graph.html.j2")
        .render(
            data=data,
            layout=places,
            policy=policy,
            about=graph_words(data),
            style=Markup(static("graph.css")),
            script=Markup(script),  # ours, as packaged; its hash stands in the policy
            marks=Markup(marks(data, places, community_colours(data))),  # escaped where it is made
            payload=script_json(_payload(data, places)),
            count=count,
        )
    )
    return page


def _payload(data: GraphData, places: Layout) -> dict[str, Any]:
    """What the script needs, small: members as differences, scores as short lists."""
    return {
        "nodes": [_node(data, places, place, node) for place, node in enumerate(data.nodes)],
        "edges": [[edge.a, edge.b, round(edge.weight, 4)] for edge in data.edges],
        "communities": [list(group) for group in data.communities],
        "colours": community_colours(data),
        "ramp": [BELOW, MIDDLE, ABOVE],
        "models": [
            {
                "name": model,
                "middle": round(score_middle(data, model), 6),
                "spread": round(score_spread(data, model), 6),
                "known": model in data.overall,
            }
            for model in data.models
        ],
        "metric": metric_name(data.metric),
        "share": is_share(data.metric),
        "digits": plain_digits(data.metric),
        "images": list(data.images),
        "thumbnails": {str(place): uri for place, uri in sorted(data.thumbnails.items())},
        "distance": data.distance,
        "weight": data.weight,
        "size": [places.width, places.height],
    }


def _node(data: GraphData, places: Layout, place: int, node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "label": node.label,
        "size": node.size,
        "at": [float(places.x[place]), float(places.y[place]), float(places.radius[place])],
        "scores": {model: _score(score) for model, score in node.scores.items()},
        "traits": [
            [trait.label, _r(trait.lift), _r(trait.low), _r(trait.high)] for trait in node.traits
        ],
        "nearest": [[other.node, _r(other.distance)] for other in node.nearest],
        "farthest": [[other.node, _r(other.distance)] for other in node.farthest],
        "members": _steps(sorted(node.members)),
    }


def _score(score: NodeScore) -> list[float | None]:
    return [_r(score.value), _r(score.low), _r(score.high), score.n]


def _r(value: float | None) -> float | None:
    """Six decimals: finer than anything that is shown."""
    return None if value is None else round(float(value), 6)


def _steps(members: Sequence[int]) -> list[int]:
    """Rising places as their differences, which are short to write."""
    return [b - a for a, b in pairwise([0, *map(int, members)])]

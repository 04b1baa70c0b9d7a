"""A drawn graph: sets of images as nodes, their overlaps as edges; as a page, an SVG or a PNG.

Every word from the data is escaped; nothing is loaded, and a page runs no script but its own.

Communities are drawn as islands, no two names over one another: boxes of node and name are put down
one by one, first those that are joined to most, each at the free place nearest to the middle of its
neighbours; the communities are then placed in the same way as boxes of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.core.files import write_bytes, write_text
from heldout.curate.contexts.describe import Lift
from heldout.measure.score.records import Score
from heldout.show import charts
from heldout.show.embed import render, script_json
from heldout.show.wording import count, is_share, metric_name, plain_digits, plural

LARGEST, SMALLEST = 26.0, 5.0
"""Radii of the largest node and of the smallest that is still drawn."""
LETTER, LINE = 6.4, 15.0
"""Mean width of a letter of a name, and the height of a line, at the size of names."""
LONGEST_NAME = 24
_GAP = 7.0
_ISLAND_GAP = 30.0
_MARGIN = 24.0
_TURNS = 4096
_ASPECT = 1.45  # pictures are wider than high
_GOLDEN_ANGLE = 2.399963229728653  # no two rays of a spiral alike


@dataclass(frozen=True, eq=False)
class GraphLayout:
    """Places of nodes, in pixels of a picture ``width`` by ``height``.

    ``x``, ``y``, ``radius``  float64 (n,)
    ``islands``  by the number of each community of two or more: the corners of its outline, float64
                 (corners, 2)
    ``shelf``    left and top of the rows of nodes without any edge, or None
    """

    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    width: float
    height: float
    islands: Mapping[int, np.ndarray]
    shelf: tuple[float, float] | None


def short_name(text: str) -> str:
    """A name as the picture shows it.

    >>> short_name("a very long name that nobody reads")
    'a very long name that n…'
    """
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def place_nodes(
    nodes: Sequence[Node],
    edges: Sequence[tuple[int, int, float]],
    communities: Sequence[Sequence[int]],
) -> GraphLayout:
    """The places of all nodes: the same for the same graph, on any machine.

    ``communities`` hold every node once, by place.
    """
    weights = np.zeros((len(nodes), len(nodes)))
    for a, b, weight in edges:
        weights[a, b] = weights[b, a] = weight
    size = np.array([node.size for node in nodes], dtype=np.float64)
    radius = np.maximum(SMALLEST, LARGEST * np.sqrt(size / max(size.max(), 1.0)))
    names = np.array([LETTER * len(short_name(node.label)) for node in nodes])
    half = np.stack([np.maximum(radius, names / 2) + _GAP, radius + LINE / 2 + _GAP / 2], axis=1)
    groups = [np.array(group) for group in communities]
    islands = [g for g in groups if len(g) > 1 or weights[g[0]].any()]
    alone = [int(g[0]) for g in groups if len(g) == 1 and not weights[g[0]].any()]
    places = np.zeros((len(size), 2))
    boxes = np.zeros((len(islands), 2))
    for number, group in enumerate(islands):
        inside = _settled(weights[np.ix_(group, group)], half[group])
        centre, boxes[number] = _bounds(inside, half[group])
        places[group] = inside - centre
    between = np.array([[weights[np.ix_(a, b)].sum() for b in islands] for a in islands])
    for centre, group in zip(_settled(between, boxes + _ISLAND_GAP / 2), islands, strict=True):
        places[group] += centre
    shelf = _shelve(places, half, islands, alone) if alone else None
    low = (places - half).min(axis=0) - _MARGIN
    high = (places + half).max(axis=0) + _MARGIN
    places = np.round(places - low, 1)
    width, height = np.round(high - low, 1).tolist()
    return GraphLayout(
        places[:, 0],
        # A name hangs below its node: the node is half a line above the middle of the two.
        np.round(places[:, 1] - LINE / 2, 1),
        np.round(radius, 2),
        width,
        height,
        {k: _corners(places[g], half[g]) for k, g in enumerate(groups) if len(g) > 1},
        None if shelf is None else (round(shelf[0] - low[0], 1), round(shelf[1] - low[1], 1)),
    )


def _settled(weights: np.ndarray, half: np.ndarray) -> np.ndarray:
    """The middles (n, 2) of boxes of half sizes ``half``, near those that they are joined to."""
    found = np.zeros_like(half)
    turns = np.arange(_TURNS)
    # Points that fill an ellipse evenly from its middle outwards.
    rays = np.stack(
        [_ASPECT * np.cos(turns * _GOLDEN_ANGLE), np.sin(turns * _GOLDEN_ANGLE)], axis=1
    )
    spiral = rays * np.sqrt(turns)[:, None] * (0.5 * half.min(initial=_ISLAND_GAP))
    down: list[int] = []
    left = list(range(len(half)))
    while left:
        # Next is what the boxes that are down pull most; of equals what is joined to most.
        pull = weights[:, down].sum(axis=1)
        node = max(left, key=lambda i: (pull[i], weights[i].sum(), -i))
        left.remove(node)
        near = weights[node, down] @ found[down] / (pull[node] or 1.0)
        room = half[down] + half[node] - 1e-9
        for start in range(0, _TURNS, 64):
            tried = near + spiral[start : start + 64]
            across = np.abs(tried[:, None, :] - found[down][None])
            free = np.flatnonzero(~(across < room).all(axis=2).any(axis=1))
            if len(free):
                found[node] = tried[free[0]]
                break
        else:  # nowhere near: to the right of everything
            found[node, 0] = (found[down] + half[down])[:, 0].max() + half[node, 0]
        down.append(node)
    return found


def _shelve(
    places: np.ndarray, half: np.ndarray, islands: Sequence[np.ndarray], alone: Sequence[int]
) -> tuple[float, float]:
    """Put nodes without any edge in rows below everything else; where these begin."""
    left, bottom = 0.0, 0.0
    wide = math.sqrt(_ASPECT * 1.2 * float((4 * half[alone].prod(axis=1)).sum()))
    if islands:
        rest = np.concatenate(islands)
        centre, size = _bounds(places[rest], half[rest])
        left, bottom = (centre + size * [-1, 1]).tolist()
        wide, bottom = 2 * float(size[0]), bottom + _ISLAND_GAP + LINE
    x, y, row = left, bottom, 0.0
    for node in sorted(alone, key=lambda i: (-half[i, 1], i)):
        if x > left and x + 2 * half[node, 0] > left + wide:
            x, y, row = left, y + row, 0.0
        places[node] = (x + half[node, 0], y + half[node, 1])
        x += 2 * half[node, 0]
        row = max(row, 2 * half[node, 1])
    return left, bottom


def _bounds(places: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The middle and half the size of the box around some boxes."""
    low, high = (places - half).min(axis=0), (places + half).max(axis=0)
    return (low + high) / 2, (high - low) / 2


def _corners(places: np.ndarray, half: np.ndarray) -> np.ndarray:
    """The corners of the box around some boxes, in order."""
    centre, size = _bounds(places, half)
    corners = centre + size * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return np.asarray(np.round(corners, 1))


FORMATS = ("html", "svg", "png")
PALETTE = (
    charts.BLUE,
    charts.VERMILLION,
    charts.GREEN,
    charts.PURPLE,
    "#b78a00",
    "#3f8fc4",
    "#8c5a2b",
    "#4f9d3a",
    "#c0506a",
    "#6b6ecf",
)
ALONE = "#8c959f"
"""The colour of a node that is a community of its own."""
BELOW, MIDDLE, ABOVE = charts.VERMILLION, "#d9dde2", charts.BLUE
"""Colours of scores below, at and above a model's score on everything."""
_STYLE = f"""
text{{font-family:{charts.FONT};fill:{charts.INK}}}
.name{{font-size:12px;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}}
.quiet{{fill:{charts.MUTED};font-size:11.5px}}
.island path{{stroke-width:14;stroke-linejoin:round;opacity:.11}}
.island text{{font-size:11px;font-weight:700;letter-spacing:.02em}}
.edge{{stroke:#7d8790;stroke-opacity:.42;stroke-linecap:round}}
.node circle{{stroke:#fff;stroke-width:1.5}}
"""
_HEAD, _FOOT = 64.0, 56.0


# ---- what is drawn -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Node:
    """One set of images.

    ``name``       unique in the graph; ``label`` is what the picture shows
    ``size``       its images
    ``community``  which group of the graph it belongs to
    ``scores``     by model
    ``traits``     contexts that it has more of than the class, the surest first
    ``nearest``, ``farthest``  other nodes by place and how far they are, the most extreme first
    ``members``    places of its images in :attr:`GraphData.images`; empty where not known
    """

    name: str
    label: str
    size: int
    community: int = 0
    scores: Mapping[str, Score] = field(default_factory=dict)
    traits: Sequence[Lift] = ()
    nearest: Sequence[tuple[int, float]] = ()
    farthest: Sequence[tuple[int, float]] = ()
    members: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class GraphData:
    """Everything a drawn graph shows; nothing is read from anywhere else.

    ``edges``       two nodes, by place, and the weight of their overlap
    ``threshold``   the smallest weight that is drawn
    ``weight``      what an edge's weight is, in words
    ``images``      ids of all images of the nodes; empty where they are not known
    ``thumbnails``  small copies of some of them, by place, as data URIs
    ``overall``     each model's score on all images together
    ``metric``      what the scores are
    """

    title: str
    nodes: Sequence[Node]
    edges: Sequence[tuple[int, int, float]] = ()
    threshold: float = 0.0
    weight: str = "overlap"
    images: Sequence[str] = ()
    thumbnails: Mapping[int, str] = field(default_factory=dict)
    overall: Mapping[str, Score] = field(default_factory=dict)
    metric: str = "top1"

    def __post_init__(self) -> None:
        if not self.nodes:
            raise UserError("a graph without nodes", fix="lower the smallest size of a node")

    @property
    def models(self) -> list[str]:
        """Every model that some node has a score of, in order of first appearance."""
        return list(dict.fromkeys(model for node in self.nodes for model in node.scores))

    @cached_property
    def communities(self) -> list[tuple[int, ...]]:
        """Places of the nodes of each community: larger ones first, then by number."""
        groups: dict[int, list[int]] = {}
        for place, node in enumerate(self.nodes):
            groups.setdefault(node.community, []).append(place)
        order = sorted(groups, key=lambda number: (-len(groups[number]), number))
        return [tuple(groups[number]) for number in order]

    @cached_property
    def layout(self) -> GraphLayout:
        """Where the nodes are."""
        return place_nodes(self.nodes, self.edges, self.communities)

    @property
    def words(self) -> str:
        """The graph in one line: nodes, edges, communities."""
        groups = sum(len(group) > 1 for group in self.communities)
        return (
            f"{plural(len(self.nodes), 'node')}, {plural(len(self.edges), 'edge')} of {self.weight} "
            f"{self.threshold:g} or more, {groups} "
            f"{'community' if groups == 1 else 'communities'} of two or more"
        )

    def middle(self, model: str) -> float:
        """A model's score that is neither good nor bad: on everything, else the mean of nodes."""
        if model in self.overall:
            return self.overall[model].value
        known = [node.scores[model] for node in self.nodes if model in node.scores]
        return sum(score.value * score.n for score in known) / max(1, sum(s.n for s in known))

    def spread(self, model: str) -> float:
        """How far from the middle the colours reach their ends."""
        known = [node.scores[model].value for node in self.nodes if model in node.scores]
        return max([abs(value - self.middle(model)) for value in known], default=0.0) or 1.0


# ---- files ---------------------------------------------------------------------------------------


def write_graph(data: GraphData, path: Path) -> None:
    """Write the graph to ``path``: an interactive page, an SVG or a PNG, by its ending.

    The same data give the same bytes. Pictures are coloured by community; the page also by the scores
    of every model.
    """
    chosen = path.suffix.removeprefix(".").lower()
    if chosen not in FORMATS:
        raise UserError(
            f"no graph format {chosen or path.name!r}", fix=f"use one of {', '.join(FORMATS)}"
        )
    if chosen == "html":
        write_text(path, render_graph(data))
    elif chosen == "svg":
        write_text(path, render_svg(data))
    else:
        vl = require("vl_convert", extra="figures", purpose="drawing a graph as PNG")
        write_bytes(path, bytes(vl.svg_to_png(render_svg(data), scale=2)))


def render_graph(data: GraphData) -> str:
    """The page's HTML."""
    from markupsafe import Markup

    return render(
        "graph.html.j2",
        "graph.css",
        ("dom.js", "graph.js"),
        data=data,
        marks=Markup(_marks(data, community_colours(data))),  # escaped where it is made
        payload=script_json(_payload(data)),
    )


def _payload(data: GraphData) -> dict[str, Any]:
    """What the script needs, small: members as differences, scores as short lists."""
    at = data.layout
    return {
        "nodes": [
            {
                "name": node.name,
                "label": node.label,
                "size": node.size,
                "at": [float(at.x[place]), float(at.y[place]), float(at.radius[place])],
                "scores": {m: [*_r(s.value, s.low, s.high), s.n] for m, s in node.scores.items()},
                "traits": [[t.context, *_r(t.lift, t.low, t.high)] for t in node.traits],
                "nearest": [[other, *_r(distance)] for other, distance in node.nearest],
                "farthest": [[other, *_r(distance)] for other, distance in node.farthest],
                # Rising places as their differences, which are short to write.
                "members": [b - a for a, b in pairwise([0, *sorted(map(int, node.members))])],
            }
            for place, node in enumerate(data.nodes)
        ],
        "edges": [[a, b, round(weight, 4)] for a, b, weight in data.edges],
        "communities": [list(group) for group in data.communities],
        "colours": community_colours(data),
        "ramp": [BELOW, MIDDLE, ABOVE],
        "models": [
            {
                "name": model,
                "middle": round(data.middle(model), 6),
                "spread": round(data.spread(model), 6),
                "known": model in data.overall,
            }
            for model in data.models
        ],
        "metric": metric_name(data.metric),
        "share": is_share(data.metric),
        "digits": plain_digits(data.metric),
        "images": list(data.images),
        "thumbnails": {str(place): uri for place, uri in sorted(data.thumbnails.items())},
        "weight": data.weight,
        "size": [at.width, at.height],
    }


def _r(*values: float | None) -> list[float | None]:
    """Six decimals: finer than anything that is shown."""
    return [None if value is None else round(float(value), 6) for value in values]


# ---- colours -------------------------------------------------------------------------------------


def community_colours(data: GraphData) -> list[str]:
    """A colour for each node: that of its community, grey for one that is alone."""
    colours = [ALONE] * len(data.nodes)
    for number, group in enumerate(data.communities):
        for place in group:
            if len(group) > 1:
                colours[place] = PALETTE[number % len(PALETTE)]
    return colours


# ---- SVG -----------------------------------------------------------------------------------------


def render_svg(data: GraphData) -> str:
    """The graph as one SVG file, coloured by community, with its key."""
    width = max(data.layout.width, 560.0)
    height = data.layout.height + _HEAD + _FOOT
    shift = (width - data.layout.width) / 2
    title, about = escape(data.title), escape(data.words)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img" aria-labelledby="title about">\n'
        f'<title id="title">{title}</title><desc id="about">{about}</desc>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="24" y="32" style="font-size:17px;font-weight:700">{title}</text>\n'
        f'<text x="24" y="52" class="quiet">{about}</text>\n'
        f'<g transform="translate({_n(shift)} {_n(_HEAD)})">\n'
        f"{_marks(data, community_colours(data))}\n</g>\n"
        f'<g transform="translate(24 {_n(height - 26)})">{_key(data)}</g>\n'
        "</svg>\n"
    )


def _marks(data: GraphData, colours: Sequence[str]) -> str:
    """Outlines, edges and nodes with their names, as SVG elements."""
    at, found = data.layout, []
    for number, corners in at.islands.items():
        colour = PALETTE[number % len(PALETTE)]
        path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in corners) + "Z"
        left, top = corners[0]
        found.append(
            f'<g class="island" data-community="{number}"><path d="{path}" fill="{colour}" '
            f'stroke="{colour}"/><text x="{_n(left)}" y="{_n(top + 4)}" fill="{colour}" '
            f'style="fill:{colour}">{number + 1}</text></g>'
        )
    for place, (a, b, weight) in sorted(enumerate(data.edges), key=lambda edge: edge[1][2]):
        found.append(
            f'<line class="edge" data-edge="{place}" '
            f'x1="{_n(at.x[a])}" y1="{_n(at.y[a])}" '
            f'x2="{_n(at.x[b])}" y2="{_n(at.y[b])}" '
            f'stroke-width="{_n(_edge_width(data, weight))}"/>'
        )
    # Small nodes last, so that none hides under a large one.
    for place in sorted(range(len(data.nodes)), key=lambda i: (-at.radius[i], i)):
        node, x, y, radius = data.nodes[place], at.x[place], at.y[place], at.radius[place]
        said = escape(f"{node.name}: {plural(node.size, 'image')}")
        found.append(
            f'<g class="node" data-node="{place}"><title>{said}</title><circle class="body" '
            f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{colours[place]}"/>'
            f'<text class="name" x="{_n(x)}" y="{_n(y + radius)}" dy="1.05em">'
            f"{escape(short_name(node.label))}</text></g>"
        )
    if at.shelf is not None and data.edges:
        x, y = at.shelf
        found.append(
            f'<text class="quiet" x="{_n(x + 8)}" y="{_n(y - 4)}">no {escape(data.weight)} of '
            f"{data.threshold:g} or more</text>"
        )
    return "\n".join(found)


def _edge_width(data: GraphData, weight: float) -> float:
    """The width of a line: a hair at the threshold, five pixels at a weight of 1."""
    part = (weight - data.threshold) / max(1e-9, 1 - data.threshold)
    return 0.8 + 4.2 * max(0.0, min(1.0, part))


def _key(data: GraphData) -> str:
    """What sizes, lines and colours mean."""
    sizes = [node.size for node in data.nodes]
    r = data.layout.radius.max()
    x = 1.2 * r + 200
    parts = [
        f'<circle cx="{_n(r * 0.6)}" cy="-4" r="{_n(r * 0.6)}" fill="none" stroke="{ALONE}"/>'
        f'<text class="quiet" x="{_n(r * 1.2 + 8)}" y="0">area: images, {count(min(sizes))} to '
        f"{count(max(sizes))}</text>"
        f'<text class="quiet" x="{_n(x)}" y="0">line: {escape(data.weight)}</text>'
    ]
    x += charts.LETTER * (len(data.weight) + 6) + 12
    for weight in (data.threshold, 1.0):
        parts.append(
            f'<line class="edge" x1="{_n(x)}" x2="{_n(x + 26)}" y1="-4" y2="-4" '
            f'stroke-width="{_n(_edge_width(data, weight))}"/>'
            f'<text class="quiet" x="{_n(x + 32)}" y="0">{weight:g}</text>'
        )
        x += 66
    return "".join(parts)


def _n(value: float) -> str:
    """A coordinate: one decimal, no more than a file needs."""
    return f"{float(value):.1f}".removesuffix(".0")

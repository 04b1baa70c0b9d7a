"""A graph as SVG: the whole picture for a file, and the same marks for the page.

Every word from the data is escaped; nothing in the file is loaded or run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from heldout.show import theme
from heldout.show.graph_data import GraphData, Node
from heldout.show.graph_layout import Layout, short_name
from heldout.show.wording import count, is_share, metric_name, plural, value_text

PALETTE = (
    theme.BLUE,
    theme.VERMILLION,
    theme.GREEN,
    theme.PURPLE,
    "#b78a00",
    "#3f8fc4",
    "#8c5a2b",
    "#4f9d3a",
    "#c0506a",
    "#6b6ecf",
)
ALONE = "#8c959f"
"""The colour of a node that is a community of its own."""
BELOW, MIDDLE, ABOVE = theme.VERMILLION, "#d9dde2", theme.BLUE
"""Colours of scores below, at and above a model's score on everything."""
_STYLE = f"""
text{{font-family:{theme.FONT};fill:{theme.INK}}}
.name{{font-size:12px;text-anchor:middle;paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}}
.quiet{{fill:{theme.MUTED};font-size:11.5px}}
.island path{{stroke-width:14;stroke-linejoin:round;opacity:.11}}
.island text{{font-size:11px;font-weight:700;letter-spacing:.02em}}
.edge{{stroke:#7d8790;stroke-opacity:.42;stroke-linecap:round}}
.node circle{{stroke:#fff;stroke-width:1.5}}
.scored .island path{{fill:{ALONE};stroke:{ALONE}}}
"""
_HEAD, _FOOT = 64.0, 56.0


def community_colours(data: GraphData) -> list[str]:
    """A colour for each node: that of its community, grey for one that stands alone."""
    colours = [ALONE] * len(data.nodes)
    for number, group in enumerate(data.communities):
        if len(group) > 1:
            for place in group:
                colours[place] = PALETTE[number % len(PALETTE)]
    return colours


def score_colours(data: GraphData, model: str) -> list[str]:
    """A colour for each node by one model's score; grey where it has none."""
    return [
        MIDDLE if model not in node.scores else score_colour(data, model, node.scores[model].value)
        for node in data.nodes
    ]


def score_colour(data: GraphData, model: str, value: float) -> str:
    """The colour of a score: how far below or above the middle it is."""
    part = (value - score_middle(data, model)) / score_spread(data, model)
    return mixed(MIDDLE, ABOVE if part > 0 else BELOW, min(1.0, abs(part)))


def score_ends(data: GraphData, model: str) -> tuple[float, float]:
    """The scores at the two ends of the colours; a share stays between 0 and 1."""
    middle, spread = score_middle(data, model), score_spread(data, model)
    low, high = middle - spread, middle + spread
    return (max(0.0, low), min(1.0, high)) if is_share(data.metric) else (low, high)


def score_middle(data: GraphData, model: str) -> float:
    """The score that is neither good nor bad: the model's on everything, else the mean of nodes."""
    if model in data.overall:
        return data.overall[model].value
    known = [node.scores[model] for node in data.nodes if model in node.scores]
    return sum(score.value * score.n for score in known) / max(1, sum(s.n for s in known))


def score_spread(data: GraphData, model: str) -> float:
    """How far from the middle the colours reach their ends."""
    middle = score_middle(data, model)
    known = [node.scores[model].value for node in data.nodes if model in node.scores]
    return max([abs(value - middle) for value in known], default=0.0) or 1.0


def mixed(first: str, second: str, part: float) -> str:
    """A colour between two, ``part`` of the way from the first.

    >>> mixed("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in pairs)


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def marks(data: GraphData, layout: Layout, colours: Sequence[str]) -> str:
    """Outlines, edges and nodes with their names, as SVG elements."""
    parts = [*_islands(data, layout), *_edges(data, layout), *_nodes(data, layout, colours)]
    if layout.shelf is not None and data.edges:
        x, y = layout.shelf
        parts.append(
            f'<text class="quiet" x="{_n(x + 8)}" y="{_n(y - 4)}">no {escape(data.weight)} of '
            f"{data.threshold:g} or more</text>"
        )
    return "\n".join(parts)


def _islands(data: GraphData, layout: Layout) -> Iterable[str]:
    numbers = {frozenset(group): number for number, group in enumerate(data.communities)}
    for group, corners in layout.islands:
        number = numbers[frozenset(group)]
        colour = PALETTE[number % len(PALETTE)]
        path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in corners) + "Z"
        left, top = corners[:, 0].min(), corners[:, 1].min()
        at = float(corners[corners[:, 1] < top + 1][:, 0].min())
        yield (
            f'<g class="island" data-community="{number}"><path d="{path}" fill="{colour}" '
            f'stroke="{colour}"/><text x="{_n(max(at, left))}" y="{_n(top + 4)}" fill="{colour}" '
            f'style="fill:{colour}">{number + 1}</text></g>'
        )


def _edges(data: GraphData, layout: Layout) -> Iterable[str]:
    order = sorted(range(len(data.edges)), key=lambda i: (data.edges[i].weight, i))
    for place in order:
        edge = data.edges[place]
        yield (
            f'<line class="edge" data-edge="{place}" x1="{_n(layout.x[edge.a])}" '
            f'y1="{_n(layout.y[edge.a])}" x2="{_n(layout.x[edge.b])}" '
            f'y2="{_n(layout.y[edge.b])}" stroke-width="{_n(edge_width(data, edge.weight))}"/>'
        )


def edge_width(data: GraphData, weight: float) -> float:
    """The width of a line: a hair at the threshold, five pixels at a weight of 1."""
    part = (weight - data.threshold) / max(1e-9, 1 - data.threshold)
    return 0.8 + 4.2 * max(0.0, min(1.0, part))


def _nodes(data: GraphData, layout: Layout, colours: Sequence[str]) -> Iterable[str]:
    # Small nodes last, so that none hides under a large one.
    for place in sorted(range(len(data.nodes)), key=lambda i: (-layout.radius[i], i)):
        node, x, y = data.nodes[place], layout.x[place], layout.y[place]
        said = escape(describe(node))
        yield (
            f'<g class="node" data-node="{place}"><title>{said}</title><circle class="body" '
            f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(layout.radius[place])}" fill="{colours[place]}"/>'
            f'<text class="name" x="{_n(x)}" y="{_n(y + layout.radius[place])}" dy="1.05em">'
            f"{escape(short_name(node.label))}</text></g>"
        )


def describe(node: Node) -> str:
    """A node in one line, for those who do not see it."""
    return f"{node.name}: {plural(node.size, 'image')}"


def graph_words(data: GraphData) -> str:
    """The graph in one line: nodes, edges, communities."""
    groups = sum(len(group) > 1 for group in data.communities)
    return (
        f"{plural(len(data.nodes), 'node')}, {plural(len(data.edges), 'edge')} of {data.weight} "
        f"{data.threshold:g} or more, {groups} "
        f"{'community' if groups == 1 else 'communities'} of two or more"
    )


def render_svg(data: GraphData, layout: Layout, *, model: str | None = None) -> str:
    """The graph as one SVG file, coloured by community or by a model's score, with its key."""
    colours = community_colours(data) if model is None else score_colours(data, model)
    width = max(layout.width, 560.0)
    height = layout.height + _HEAD + _FOOT + (0.0 if model is None else 28.0)
    shift = (width - layout.width) / 2
    scored = "" if model is None else ' class="scored"'
    title, about = escape(data.title), escape(graph_words(data))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'width="{_n(width)}" height="{_n(height)}" role="img" aria-labelledby="title about">\n'
        f'<title id="title">{title}</title><desc id="about">{about}</desc>\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect width="100%" height="100%" fill="#fff"/>\n'
        f'<text x="24" y="32" style="font-size:17px;font-weight:700">{title}</text>\n'
        f'<text x="24" y="52" class="quiet">{about}</text>\n'
        f'<g transform="translate({_n(shift)} {_n(_HEAD)})"{scored}>\n'
        f"{marks(data, layout, colours)}\n</g>\n"
        f'<g transform="translate(24 {_n(height - 26)})">{_key(data, layout, model)}</g>\n'
        "</svg>\n"
    )


def _key(data: GraphData, layout: Layout, model: str | None) -> str:
    """What sizes, lines and colours mean."""
    sizes = [node.size for node in data.nodes]
    largest, smallest = max(range(len(sizes)), key=sizes.__getitem__), min(sizes)
    r = layout.radius[largest]
    parts = [
        f'<circle cx="{_n(r * 0.6)}" cy="-4" r="{_n(r * 0.6)}" fill="none" stroke="{ALONE}"/>'
        f'<text class="quiet" x="{_n(r * 1.2 + 8)}" y="0">area: images, {count(smallest)} to '
        f"{count(sizes[largest])}</text>"
    ]
    x = 1.2 * r + 200
    parts.append(f'<text class="quiet" x="{_n(x)}" y="0">line: {escape(data.weight)}</text>')
    x += theme.LETTER * (len(data.weight) + 6) + 12
    for weight in (data.threshold, 1.0):
        parts.append(
            f'<line class="edge" x1="{_n(x)}" x2="{_n(x + 26)}" y1="-4" y2="-4" '
            f'stroke-width="{_n(edge_width(data, weight))}"/>'
            f'<text class="quiet" x="{_n(x + 32)}" y="0">{weight:g}</text>'
        )
        x += 66
    if model is not None:
        low, high = score_ends(data, model)
        ends = f"{value_text(data.metric, low)} to {value_text(data.metric, high)}"
        for number in range(5):
            colour = score_colour(data, model, low + number / 4 * (high - low))
            parts.append(
                f'<rect x="{_n(22 * number)}" y="-42" width="22" height="11" fill="{colour}"/>'
            )
        parts.append(
            f'<text class="quiet" x="120" y="-32">{escape(model)}, {metric_name(data.metric)}: '
            f"{escape(ends)}</text>"
        )
    return "".join(parts)


def _n(value: float) -> str:
    """A coordinate: one decimal, no more than a file needs."""
    return f"{float(value):.1f}".removesuffix(".0")

"""Where the nodes of a graph stand: communities as islands, no two names over one another.

Each community is laid out by forces (Fruchterman and Reingold 1991) and then pushed apart until no
two boxes of node and name touch; the communities are then placed in the same way as boxes of their
own. Nothing is random: nodes start on a spiral in order of degree. The number of steps falls as
pairs grow, so that the work is bounded and a layout costs less than the graph it shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from heldout.show.graph_data import GraphData

LARGEST, SMALLEST = 26.0, 5.0
"""Radii of the largest node and of the least that is still drawn."""
LETTER, LINE = 6.4, 15.0
"""Mean width of a letter of a name, and the height of a line, at the size of names."""
LONGEST_NAME = 24
_GAP = 7.0
_ISLAND_GAP = 30.0
_PAIRS = 4_000_000  # pairs times steps of one call of forces: a fraction of a second
_STEPS = 60
_TURNS = 4096
_ASPECT = 1.45  # pictures are wider than high


@dataclass(frozen=True, eq=False)
class Layout:
    """Places of nodes, in pixels of a picture ``width`` by ``height``.

    ``x``, ``y``, ``radius``  float64 (n,)
    ``islands``  for each community of two or more: its nodes, and the corners of its outline,
                 float64 (corners, 2)
    ``shelf``    left and top of the rows of nodes without any edge, or None
    """

    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    width: float
    height: float
    islands: tuple[tuple[tuple[int, ...], np.ndarray], ...]
    shelf: tuple[float, float] | None = None


def short_name(text: str) -> str:
    """A name as the picture shows it.

    >>> short_name("a very long name that nobody reads")
    'a very long name that n…'
    """
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def layout(data: GraphData) -> Layout:
    """The places of all nodes: the same for the same graph, on any machine."""
    sizes = np.array([max(node.size, 0) for node in data.nodes], dtype=np.float64)
    radius = np.maximum(SMALLEST, LARGEST * np.sqrt(sizes / max(sizes.max(), 1.0)))
    names = np.array([LETTER * len(short_name(node.label)) for node in data.nodes])
    half = np.stack([np.maximum(radius, names / 2) + _GAP, radius + LINE / 2 + _GAP / 2], axis=1)
    weights = data.weights
    islands = [np.array(group) for group in data.communities]
    alone = [g for g in islands if len(g) == 1 and not weights[g[0]].any()]
    islands = [g for g in islands if not (len(g) == 1 and not weights[g[0]].any())]
    places = np.zeros((len(sizes), 2))
    for group in islands:
        places[group] = _inside(weights[np.ix_(group, group)], half[group])
    boxes = np.array([_box(places[g], half[g]) for g in islands]).reshape(-1, 4)
    for group, box in zip(islands, boxes, strict=True):
        places[group] -= (box[:2] + box[2:]) / 2
    if islands:
        between = np.array([[weights[np.ix_(a, b)].sum() for b in islands] for a in islands])
        np.fill_diagonal(between, 0.0)
        centres = _closer(_inside(between, _halves(boxes) + _ISLAND_GAP / 2), boxes)
        for number, group in enumerate(islands):
            places[group] = centres[number] + _turned(number, islands, places, centres, weights)
        # Turning may have made an island wider; the last word on overlap is with the whole picture.
        boxes = np.array([_box(places[g], half[g]) for g in islands])
        moved = _apart((boxes[:, :2] + boxes[:, 2:]) / 2, _halves(boxes) + _ISLAND_GAP / 2)
        for number, group in enumerate(islands):
            places[group] += moved[number] - (boxes[number, :2] + boxes[number, 2:]) / 2
    shelf = _shelve(places, half, islands, alone)
    margin = 24.0
    low = (places - half).min(axis=0) - margin
    high = (places + half).max(axis=0) + margin
    places = np.round(places - low, 1)
    outlines = tuple(
        (tuple(int(i) for i in g), _outline(places[g], half[g])) for g in islands if len(g) > 1
    )
    width, height = (float(v) for v in np.round(high - low, 1))
    # A name hangs below its node: the node stands half a line above the middle of the two.
    return Layout(
        np.round(places[:, 0], 1),
        np.round(places[:, 1] - LINE / 2, 1),
        np.round(radius, 2),
        width,
        height,
        outlines,
        None if shelf is None else (round(shelf[0] - low[0], 1), round(shelf[1] - low[1], 1)),
    )


def _inside(weights: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Boxes (n, 2) of half sizes ``half`` near those that they are joined to, none overlapping."""
    n = len(half)
    if n == 1:
        return np.zeros((1, 2))
    order = np.argsort(-weights.sum(axis=1), kind="stable")
    turn = np.arange(n) * 2.399963229728653  # the golden angle: no two rays alike
    places = np.empty((n, 2))
    places[order] = np.stack([np.cos(turn), np.sin(turn)], axis=1) * np.sqrt(
        np.arange(n)[:, None] + 0.5
    )
    steps = min(_STEPS, _PAIRS // (n * n))
    for step in range(steps):
        places = _pulled(places, weights, 0.8 * (1 - step / steps) + 0.02)
    span = np.ptp(places, axis=0).clip(1e-9)
    room = 1.25 * float((4 * half[:, 0] * half[:, 1]).sum())
    wide = np.array([np.sqrt(room * _ASPECT), np.sqrt(room / _ASPECT)])
    return _apart(places * np.minimum(wide / span, wide.max() / span.max() * _ASPECT), half)


def _pulled(places: np.ndarray, weights: np.ndarray, heat: float) -> np.ndarray:
    """One step of forces: all repel by 1/d, the joined attract by d², everything sinks inwards."""
    across = places[:, None, :] - places[None, :, :]
    squared = np.einsum("ijk,ijk->ij", across, across)
    np.fill_diagonal(squared, 1.0)
    pull = 1.0 / squared - weights * np.sqrt(squared)
    force = np.einsum("ij,ijk->ik", pull, across) - 0.06 * places
    length = np.sqrt(np.einsum("ik,ik->i", force, force)).clip(1e-12)
    return np.asarray(places + force * (np.minimum(length, heat) / length)[:, None])


def _apart(places: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Push overlapping boxes apart along the axis of least overlap; then settle what is left."""
    n = len(places)
    places = places.copy()
    room = half[:, None, :] + half[None, :, :]
    for _ in range(min(_STEPS, _PAIRS // (n * n))):
        across = places[:, None, :] - places[None, :, :]
        over = room - np.abs(across)
        clash = (over > 1e-6).all(axis=2)
        np.fill_diagonal(clash, False)
        if not clash.any():
            return places
        by_x = over[..., 0] < over[..., 1]
        # Equal places part by their order; 0.55 of the overlap, so that a pair is free in one step.
        side = np.where(
            across == 0,
            np.sign(np.subtract.outer(np.arange(n), np.arange(n)))[..., None],
            np.sign(across),
        )
        step = 0.55 * over * side * clash[..., None]
        step[..., 0] *= by_x
        step[..., 1] *= ~by_x
        crowd = np.maximum(1.0, 0.5 * clash.sum(axis=1))[:, None]
        places += step.sum(axis=1) / crowd
    return _settled(places, half)


def _settled(places: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Boxes put down one by one from the middle, each at the free place nearest to its own."""
    found = places.copy()
    order = np.argsort(np.square(places - places.mean(axis=0)).sum(axis=1), kind="stable")
    step = 0.8 * half.min(axis=0)
    rounds = np.arange(_TURNS)
    turn = rounds * 2.399963229728653
    spiral = np.stack([np.cos(turn), np.sin(turn)], axis=1) * np.sqrt(rounds)[:, None] * step
    for number, node in enumerate(order):
        down = order[:number]
        there = found[down]
        room = half[down] + half[node] - 1e-9
        for start in range(0, _TURNS, 64):
            tried = places[node] + spiral[start : start + 64]
            across = np.abs(tried[:, None, :] - there[None, :, :])
            free = np.flatnonzero(~(across < room[None]).all(axis=2).any(axis=1))
            if len(free):
                found[node] = tried[free[0]]
                break
        else:  # nowhere near: to the right of everything
            right = (there + half[down])[:, 0].max()
            found[node] = (right + half[node, 0], places[node, 1])
    return found


def _closer(centres: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Islands drawn together: of a few shrunken starts, the one that ends in the least picture."""
    half = _halves(boxes) + _ISLAND_GAP / 2

    def room(places: np.ndarray) -> float:
        box = _box(places, half)
        wide, high = float(box[2] - box[0]), float(box[3] - box[1])
        return max(wide, _ASPECT * high) ** 2 + wide * high

    tries = [_apart(centres * factor, half) for factor in (1.0, 0.7, 0.5, 0.35, 0.2)]
    return min(tries, key=lambda places: round(room(places), 3))


def _turned(
    number: int,
    islands: list[np.ndarray],
    places: np.ndarray,
    centres: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """An island's places turned by a half or mirrored so that its lines to others are short."""
    group = islands[number]
    out = np.zeros((len(group), 2))
    for other, nodes in enumerate(islands):
        if other != number:
            pull = weights[np.ix_(group, nodes)].sum(axis=1)
            out += pull[:, None] * (centres[other] - centres[number])[None, :]
    own = places[group]
    # Of the four ways that keep the island's box: the one whose nodes lean most to where they pull.
    ways = [np.array([sx, sy]) for sx in (1.0, -1.0) for sy in (1.0, -1.0)]
    best = max(range(4), key=lambda way: (round(float((own * ways[way] * out).sum()), 6), -way))
    return np.asarray(own * ways[best])


def _shelve(
    places: np.ndarray, half: np.ndarray, islands: list[np.ndarray], alone: list[np.ndarray]
) -> tuple[float, float] | None:
    """Nodes without any edge stand in rows below everything else; where these begin."""
    if not alone:
        return None
    nodes = sorted((int(group[0]) for group in alone), key=lambda i: (-half[i, 1], i))
    if islands:
        rest = np.concatenate(islands)
        left, bottom = (
            (places[rest] - half[rest])[:, 0].min(),
            (places[rest] + half[rest])[:, 1].max(),
        )
        wide = (places[rest] + half[rest])[:, 0].max() - left
        bottom += _ISLAND_GAP + LINE
    else:
        left, bottom = 0.0, 0.0
        wide = math.sqrt(_ASPECT * 1.2 * float((4 * half[nodes].prod(axis=1)).sum()))
    x, y, row = left, bottom, 0.0
    for node in nodes:
        if x > left and x + 2 * half[node, 0] > left + wide:
            x, y, row = left, y + row, 0.0
        places[node] = (x + half[node, 0], y + half[node, 1])
        x += 2 * half[node, 0]
        row = max(row, 2 * half[node, 1])
    return float(left), float(bottom)


def _box(places: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Left, top, right, bottom of some boxes together."""
    return np.concatenate([(places - half).min(axis=0), (places + half).max(axis=0)])


def _halves(boxes: np.ndarray) -> np.ndarray:
    return np.asarray((boxes[:, 2:] - boxes[:, :2]) / 2)


def _outline(places: np.ndarray, half: np.ndarray) -> np.ndarray:
    """The convex outline of some boxes, corners in order (Andrew's monotone chain)."""
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], dtype=np.float64)
    corners = (places[:, None, :] + half[:, None, :] * signs[None]).reshape(-1, 2)
    points = sorted({(float(x), float(y)) for x, y in np.round(corners, 1)})

    def chain(path: list[tuple[float, float]]) -> list[tuple[float, float]]:
        kept: list[tuple[float, float]] = []
        for point in path:
            while len(kept) > 1 and _cross(kept[-2], kept[-1], point) <= 0:
                kept.pop()
            kept.append(point)
        return kept[:-1]

    return np.array(chain(points) + chain(points[::-1]))


def _cross(o: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> float:
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])

"""Where the nodes of a graph stand: communities as islands, no two names over one another.

Each community is laid out by forces (Fruchterman and Reingold 1991) and then pushed apart until no
two boxes of node and name touch; the communities are then placed in the same way as boxes of their
own. Nothing is random: nodes start on a spiral in order of degree. The number of steps falls as
pairs grow, so that the work is bounded and a layout costs less than the graph it shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

LARGEST, SMALLEST = 26.0, 5.0
"""Radii of the largest node and of the smallest that is still drawn."""
LETTER, LINE = 6.4, 15.0
"""Mean width of a letter of a name, and the height of a line, at the size of names."""
LONGEST_NAME = 24
_GAP = 7.0
_ISLAND_GAP = 30.0
_MARGIN = 24.0
_PAIRS = 4_000_000  # pairs times steps of one call of forces: a fraction of a second
_STEPS = 60
_TURNS = 4096
_ASPECT = 1.45  # pictures are wider than high
_GOLDEN_ANGLE = 2.399963229728653  # no two rays of a spiral alike


@dataclass(frozen=True, eq=False)
class Layout:
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
    sizes: Sequence[int],
    labels: Sequence[str],
    weights: np.ndarray,
    communities: Sequence[Sequence[int]],
) -> Layout:
    """The places of all nodes: the same for the same graph, on any machine.

    ``weights`` is a symmetric matrix, float64 (n, n), zero where there is no edge; ``communities``
    hold every node once.
    """
    size = np.maximum(np.array(sizes, dtype=np.float64), 0)
    radius = np.maximum(SMALLEST, LARGEST * np.sqrt(size / max(size.max(), 1.0)))
    names = np.array([LETTER * len(short_name(label)) for label in labels])
    half = np.stack([np.maximum(radius, names / 2) + _GAP, radius + LINE / 2 + _GAP / 2], axis=1)
    groups = [np.array(group) for group in communities]
    islands = [g for g in groups if len(g) > 1 or weights[g[0]].any()]
    alone = [int(g[0]) for g in groups if len(g) == 1 and not weights[g[0]].any()]
    places = np.zeros((len(size), 2))
    if islands:
        _place_islands(places, half, weights, islands)
    shelf = _shelve(places, half, islands, alone) if alone else None
    low = (places - half).min(axis=0) - _MARGIN
    high = (places + half).max(axis=0) + _MARGIN
    places = np.round(places - low, 1)
    width, height = np.round(high - low, 1).tolist()
    return Layout(
        places[:, 0],
        # A name hangs below its node: the node is half a line above the middle of the two.
        np.round(places[:, 1] - LINE / 2, 1),
        np.round(radius, 2),
        width,
        height,
        {k: _corners(places[g], half[g]) for k, g in enumerate(groups) if len(g) > 1},
        None if shelf is None else (round(shelf[0] - low[0], 1), round(shelf[1] - low[1], 1)),
    )


def _place_islands(
    places: np.ndarray, half: np.ndarray, weights: np.ndarray, islands: Sequence[np.ndarray]
) -> None:
    """Fill in the places of all nodes of some islands."""
    boxes = np.zeros((len(islands), 2))
    for number, group in enumerate(islands):
        inside = _inside(weights[np.ix_(group, group)], half[group])
        centre, boxes[number] = _bounds(inside, half[group])
        places[group] = inside - centre
    between = np.array([[weights[np.ix_(a, b)].sum() for b in islands] for a in islands])
    np.fill_diagonal(between, 0.0)
    centres = _inside(between, boxes + _ISLAND_GAP / 2, 0.3)
    for centre, group in zip(centres, islands, strict=True):
        places[group] += centre


def _inside(weights: np.ndarray, half: np.ndarray, spread: float = 1.0) -> np.ndarray:
    """Boxes (n, 2) of half sizes ``half`` near those that they are joined to, none overlapping."""
    n = len(half)
    if n == 1:
        return np.zeros((1, 2))
    places = np.empty((n, 2))
    places[np.argsort(-weights.sum(axis=1), kind="stable")] = _spiral(np.arange(n), 0.5)
    steps = min(_STEPS, _PAIRS // (n * n))
    for step in range(steps):
        places = _pulled(places, weights, 0.8 * (1 - step / steps) + 0.02)
    span = np.ptp(places, axis=0).clip(1e-9)
    room = 1.25 * float((4 * half[:, 0] * half[:, 1]).sum())
    wide = np.array([np.sqrt(room * _ASPECT), np.sqrt(room / _ASPECT)])
    scale = np.minimum(wide / span, wide.max() / span.max() * _ASPECT)
    return _settled(spread * scale * places, half, spread)


def _spiral(turns: np.ndarray, start: float = 0.0) -> np.ndarray:
    """Points that fill a disc evenly from its middle outwards."""
    turn = turns * _GOLDEN_ANGLE
    rays = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return np.asarray(rays * np.sqrt(turns + start)[:, None])


def _pulled(places: np.ndarray, weights: np.ndarray, heat: float) -> np.ndarray:
    """One step of forces: all repel by 1/d, the joined attract by d², everything sinks inwards."""
    across = places[:, None, :] - places[None, :, :]
    squared = np.einsum("ijk,ijk->ij", across, across)
    np.fill_diagonal(squared, 1.0)
    pull = 1.0 / squared - weights * np.sqrt(squared)
    force = np.einsum("ij,ijk->ik", pull, across) - 0.06 * places
    length = np.sqrt(np.einsum("ik,ik->i", force, force)).clip(1e-12)
    return np.asarray(places + force * (np.minimum(length, heat) / length)[:, None])


def _settled(places: np.ndarray, half: np.ndarray, spread: float) -> np.ndarray:
    """Boxes put down one by one from the middle, each at the free place nearest to its own."""
    found = places.copy()
    order = np.argsort(np.square(places - places.mean(axis=0)).sum(axis=1), kind="stable")
    spiral = _spiral(np.arange(_TURNS)) * (0.8 * spread * half.min(axis=0))
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

"""How far off a mistake is: distance between guess and class on the hierarchy of labels.

Two measures, both 0 for a right guess and larger for a worse one:

``path distance``  the fewest steps from the guess up to a common ancestor and down to the class
``LCA height``     the height of the lowest common ancestor of guess and class, which is the most
                   steps from it down to a class of the label space (Deng et al. 2010)

The hierarchy is WordNet's where all classes stand in it, else the label space's own parents.
With several correct labels the nearest counts. An image without an output gets the largest
distance that any guess could have had.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from heldout.core.errors import LabelError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy, SpaceDistances

if TYPE_CHECKING:
    from heldout.measure.score.hits import Truth
    from heldout.measure.score.metrics import Guesses


class Rows(Protocol):
    """Something that gives the distances from one class to all classes."""

    def row(self, position: int) -> np.ndarray:
        """Distances (classes,) from the class at ``position``."""
        ...


class LcaHeights:
    """Height of the lowest common ancestor of any two classes of a label space, a row at a time.

    An ancestor is always higher than what stands below it, so the lowest common ancestor (or, of
    several, the lowest of them) is the common ancestor of least height.
    """

    def __init__(self, space: LabelSpace, hierarchy: Hierarchy) -> None:
        self._up = [tuple(hierarchy.distances_up(item.node)) for item in space]
        self._below: dict[str, list[int]] = {}
        for position, above in enumerate(self._up):
            for node in above:
                self._below.setdefault(node, []).append(position)
        self._height = _heights(self._below, hierarchy)
        # Several roots have no common ancestor: a virtual one stands a step over the highest.
        self._top = 1 + max(self._height.values())

    def row(self, position: int) -> np.ndarray:
        """Heights (classes,) of the lowest common ancestor with the class at ``position``; itself 0."""
        heights = np.full(len(self._up), self._top, dtype=np.int64)
        for node in self._up[position]:
            below = self._below[node]
            heights[below] = np.minimum(heights[below], self._height[node])
        heights[position] = 0  # also where other classes of the space stand below this one
        return heights


def _heights(nodes: dict[str, list[int]], hierarchy: Hierarchy) -> dict[str, int]:
    """The most steps from each node down to a class, over nodes that have a class at or below them."""
    waiting = {node: sum(child in nodes for child in hierarchy.children(node)) for node in nodes}
    ready = [node for node, count in waiting.items() if not count]
    height = dict.fromkeys(nodes, 0)
    while ready:
        node = ready.pop()
        for parent in hierarchy.parents(node):
            height[parent] = max(height[parent], height[node] + 1)
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    return height


def hierarchy_of(space: LabelSpace) -> Hierarchy:
    """The hierarchy in which a label space's classes stand."""
    wordnet = Hierarchy.wordnet()
    if all(item.node in wordnet for item in space):
        return wordnet
    if any(item.parents for item in space):
        return Hierarchy.from_label_space(space)
    raise LabelError(
        f"the classes of {space.name} stand in no hierarchy",
        fix="give its classes their WordNet ids, or parents",
    )


@lru_cache(maxsize=4)
def path_distances(space: LabelSpace) -> Rows:
    """Path distances of a label space, kept for the next model."""
    return SpaceDistances(space, hierarchy_of(space))


@lru_cache(maxsize=4)
def lca_heights(space: LabelSpace) -> Rows:
    """LCA heights of a label space, kept for the next model."""
    return LcaHeights(space, hierarchy_of(space))


def distance_rows(measure: Callable[[LabelSpace], Rows]) -> Callable[[Truth, Guesses], np.ndarray]:
    """Values a row: the distance from the first guess to the nearest correct label."""

    def values(truth: Truth, guesses: Guesses) -> np.ndarray:
        distances = measure(guesses.space)
        rows, labels = truth.correct.pairs()
        first = guesses.topk[:, 0]
        nearest = np.full(len(truth), np.inf)
        farthest = np.full(len(truth), np.inf)
        order = np.argsort(labels, kind="stable")
        present, starts = np.unique(labels[order], return_index=True)
        for label, pairs in zip(present, np.split(order, starts[1:]), strict=True):
            mine, row = rows[pairs], distances.row(int(label))
            nearest[mine] = np.minimum(nearest[mine], row[first[mine]])
            farthest[mine] = np.minimum(farthest[mine], row.max())
        return np.where(first >= 0, nearest, farthest)

    return values

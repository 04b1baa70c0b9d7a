"""How close classes stand in a hierarchy."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from heldout.core.errors import LabelError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy, SpaceDistances

EQUAL, OVER, UNDER, APART = 0, 1, 2, 3
"""How one class stands to another: at the same node, over it, under it, none of these."""


class Closeness:
    """Lowest common ancestors and path distances between classes of a label space.

    The size of a pair is the number of classes at or under its lowest common ancestor: 2 for two
    classes that share a node with no other, all classes for two that have nothing in common. Of several
    lowest common ancestors the one of fewest classes counts. Classes that do not stand in the
    hierarchy have no closeness.
    """

    def __init__(self, space: LabelSpace, hierarchy: Hierarchy) -> None:
        self.space, self.hierarchy = space, hierarchy
        inside = [item.id for item in space if item.node in hierarchy]
        if not inside:
            raise LabelError(
                f"no class of {space.name} stands in {hierarchy.name}",
                fix="give its classes their WordNet ids or parents, or do without a hierarchy",
            )
        self._positions = space.indices(inside)
        self._place = np.full(len(space), -1, dtype=np.int64)
        self._place[self._positions] = np.arange(len(inside))
        part = space if len(inside) == len(space) else space.subset(space.name, inside)
        self._distances = SpaceDistances(part, hierarchy)
        self._up = [hierarchy.distances_up(item.node) for item in part]
        below: dict[str, list[int]] = {}
        for place, above in enumerate(self._up):
            for node in above:
                below.setdefault(node, []).append(place)
        self._below = {node: np.array(places) for node, places in below.items()}
        self._nodes = sorted(self._below)
        self._code = {node: code for code, node in enumerate(self._nodes)}

    def of_pairs(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For class indices ``a`` (n,) and ``b`` (n,): size, path distance, and code of the node.

        Size and distance are NaN, and the code is -1, where one of the two has no place in the
        hierarchy; the code is -1 too where the two have no common ancestor.
        """
        size = np.full(len(a), np.nan)
        steps = np.full(len(a), np.nan)
        nodes = np.full(len(a), -1, dtype=np.int64)
        left, right = self._place[a], self._place[b]
        known = np.flatnonzero((left >= 0) & (right >= 0))
        if not len(known):
            return size, steps, nodes
        order = known[np.argsort(left[known], kind="stable")]
        present, starts = np.unique(left[order], return_index=True)
        for place, mine in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            sizes, codes = self._sizes(place)
            others = right[mine]
            size[mine], nodes[mine] = sizes[others], codes[others]
            steps[mine] = self._distances.row(place)[others]
        return size, steps, nodes

    def _sizes(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        sizes = np.full(len(self._up), len(self._up), dtype=np.float64)
        codes = np.full(len(self._up), -1, dtype=np.int64)
        up = self._up[place]
        # Largest first, and of equal ones the farthest: what stands lower overwrites the higher.
        for node in sorted(up, key=lambda n: (-len(self._below[n]), -up[n], n)):
            below = self._below[node]
            sizes[below], codes[below] = len(below), self._code[node]
        return sizes, codes

    def node(self, code: int) -> str:
        """The node of a code."""
        return self._nodes[code]

    def relations(self, a: np.ndarray, b: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """How each class of ``a`` (n,) stands to that of ``b``, by the nodes of :meth:`of_pairs`."""
        one, other = self._own_codes[a], self._own_codes[b]
        known = nodes >= 0
        found = np.full(len(a), APART, dtype=np.int64)
        found[known & (nodes == other)] = UNDER
        found[known & (nodes == one)] = OVER
        found[known & (one == other)] = EQUAL
        return found

    @cached_property
    def _own_codes(self) -> np.ndarray:
        return np.array([self._code.get(item.node, -1) for item in self.space], dtype=np.int64)

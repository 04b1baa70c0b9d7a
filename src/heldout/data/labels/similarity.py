"""Path distances over a whole label space, and the most similar classes of a class.

The measure is :meth:`Hierarchy.path_distance`; here it is computed for all pairs at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import LabelError
from heldout.data.labels.hierarchy import Hierarchy
from heldout.data.labels.label_space import LabelSpace


class SpaceDistances:
    """Path distances between all classes of a label space, a row at a time or at once.

    For every node that lies over some class it keeps those classes and their steps below it. A row
    is then a minimum over the few nodes above one class, so memory grows with classes times depth:
    ImageNet-21k's 21,843 rows need no 21,843 x 23,548 table.
    """

    def __init__(self, space: LabelSpace, hierarchy: Hierarchy | None = None) -> None:
        """The hierarchy is WordNet's unless another is given."""
        self.space = space
        self.hierarchy = Hierarchy.wordnet() if hierarchy is None else hierarchy
        self._up: list[dict[str, int]] = []
        for item in space:
            if item.node not in self.hierarchy:
                raise LabelError(
                    f"class {item.id!r} of {space.name} is not a node of {self.hierarchy.name}",
                    fix="give its wnid, or a hierarchy that holds it",
                )
            self._up.append(self.hierarchy.distances_up(item.node))
        below: dict[str, tuple[list[int], list[int]]] = {}
        for position, up in enumerate(self._up):
            for node, steps in up.items():
                positions, distances = below.setdefault(node, ([], []))
                positions.append(position)
                distances.append(steps)
        self._below = {
            node: (np.array(positions), np.array(distances, dtype=np.int16))
            for node, (positions, distances) in below.items()
        }
        roots = set(self.hierarchy.roots)
        self._depths = np.array(
            [min(up[node] for node in up if node in roots) for up in self._up], dtype=np.int16
        )

    def row(self, position: int) -> NDArray[np.int16]:
        """Distances from the class at ``position`` to all classes, shape (n,)."""
        row: NDArray[np.int16] = self._depths[position] + self._depths + np.int16(2)
        for node, steps in self._up[position].items():
            positions, distances = self._below[node]
            row[positions] = np.minimum(row[positions], distances + np.int16(steps))
        return row

    def matrix(self) -> NDArray[np.int16]:
        """All distances, shape (n, n), symmetric, zero on the diagonal."""
        return np.stack([self.row(position) for position in range(len(self.space))])

    def most_similar(self, class_id: str, k: int) -> tuple[str, ...]:
        """Ids of the ``k`` classes nearest to a class, itself first.

        Nearest by path distance. Ties, which are many, go to the class that comes first in the
        label space. On ImageNet-1k with k = 21 this equals ImageNetV2's table in every row and
        rank.
        """
        position = self.space.index(class_id)
        if not 1 <= k <= len(self.space):
            raise LabelError(
                f"{k} most similar classes of {self.space.name}",
                fix=f"ask for 1 to {len(self.space)}",
            )
        row = self.row(position)
        row[position] = -1  # itself first, even where another class stands at the same node
        return tuple(self.space.ids[other] for other in np.argsort(row, kind="stable")[:k])

"""Groups of classes for a first look: organisms, artifacts, and the rest.

A group is a node of the hierarchy and the classes under it; what stands under none is ``other``.
The two built-in nodes are those of M. Peychev et al., "Automated classification of model errors on
ImageNet", NeurIPS 2023: 410, 522 and 68 of ImageNet-1k's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import LabelError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy
from heldout.measure.score.truth import Truth

ORGANISM, ARTIFACT = "n00004475", "n00021939"
NODES: Mapping[str, str] = {"organism": ORGANISM, "artifact": ARTIFACT}
REST = "other"


@dataclass(frozen=True, eq=False)
class Groups:
    """Which groups the classes of a label space are in.

    ``names``    the groups, ``other`` last
    ``members``  bool (classes, groups); a class under two nodes is in both groups
    """

    space: LabelSpace
    names: tuple[str, ...]
    members: np.ndarray

    def of_class(self, class_id: str) -> tuple[str, ...]:
        """The groups of one class."""
        row = self.members[self.space.index(class_id)]
        return tuple(name for name, inside in zip(self.names, row, strict=True) if inside)

    def of_truth(self, truth: Truth) -> np.ndarray:
        """Which groups each row of a truth is in by its correct and unclear labels; bool (n, groups)."""
        found = np.zeros((len(truth), len(self.names)), dtype=bool)
        for lists in (truth.correct, truth.unclear):
            rows, labels = lists.pairs()
            np.logical_or.at(found, rows, self.members[labels])
        return found


def groups_of(
    space: LabelSpace,
    *,
    nodes: Mapping[str, str] = NODES,
    hierarchy: Hierarchy | None = None,
) -> Groups:
    """The groups of a label space: the classes under each of ``nodes``, and ``other``.

    The hierarchy is WordNet's unless another is given. A class that does not stand in it is
    ``other``; if no class does, there are no groups to speak of and that is an error.
    """
    tree = Hierarchy.wordnet() if hierarchy is None else hierarchy
    for name, node in nodes.items():
        if node not in tree:
            raise LabelError(
                f"the node {node!r} of group {name} is not in {tree.name}", fix="mend the groups"
            )
    above = [set(tree.distances_up(item.node)) if item.node in tree else set() for item in space]
    if not any(above):
        raise LabelError(
            f"no class of {space.name} stands in {tree.name}",
            fix="give its classes their WordNet ids, or a hierarchy that holds them",
        )
    inside = np.array([[node in up for node in nodes.values()] for up in above], dtype=bool)
    inside = inside.reshape(len(space), len(nodes))
    rest = ~inside.any(axis=1, keepdims=True)
    return Groups(space, (*nodes, REST), np.hstack([inside, rest]))

"""Knowledge: what is known about classes and images beside the mistakes themselves.

Every part may be absent; what needs it is then not said. Nothing here is about one label space: a
hierarchy, a superclass file, other models' predictions and a truth of several labels are data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from heldout.core.errors import LabelError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.superclasses import Superclasses
from heldout.data.labels.wordnet import Hierarchy
from heldout.measure.mistakes.affinity import Affinity, PairCounts, from_cooccurrence
from heldout.measure.mistakes.closeness import Closeness
from heldout.measure.mistakes.collapse import Collapse
from heldout.measure.mistakes.cooccurrence import Cooccurrence
from heldout.measure.mistakes.peers import Peers

if TYPE_CHECKING:
    from heldout.measure.mistakes.out_of_vocabulary import OutOfVocabulary


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """What proposals are made from.

    ``space``         the label space of the test set
    ``collapse``      classes that also count as right where another does
    ``hierarchy``     who stands under whom
    ``superclasses``  groups of classes that are alike
    ``affinity``      how alike classes look to models
    ``peers``         what other models say of the images
    ``cooccurrence``  which classes are seen together
    ``prototypes``    image id to how typical the image is of its class; any scale, larger is more
                      typical (a selection frequency, a similarity to the class's mean)
    ``outsiders``     image-text similarities to things that are no classes
    """

    space: LabelSpace
    collapse: Collapse | None = None
    hierarchy: Hierarchy | None = None
    superclasses: Superclasses | None = None
    affinity: Affinity | None = None
    peers: Peers | None = None
    cooccurrence: Cooccurrence | None = None
    prototypes: Mapping[str, float] | None = None
    outsiders: OutOfVocabulary | None = None

    def __post_init__(self) -> None:
        parts = {
            "superclasses": self.superclasses,
            "affinity": self.affinity,
            "peers": self.peers,
            "co-occurrence": self.cooccurrence,
        }
        for name, part in parts.items():
            other = getattr(part, "space", self.space)
            if other.fingerprint != self.space.fingerprint:
                raise LabelError(
                    f"the {name} are about {other.name}, the mistakes about {self.space.name}",
                    fix="give knowledge about the same classes",
                )

    @cached_property
    def closeness(self) -> Closeness | None:
        """Closeness in the hierarchy; None without one."""
        return None if self.hierarchy is None else Closeness(self.space, self.hierarchy)

    @cached_property
    def together(self) -> PairCounts | None:
        """Co-occurrence as counts of pairs; None without any."""
        return None if self.cooccurrence is None else from_cooccurrence(self.cooccurrence)

    @cached_property
    def typicality(self) -> Mapping[str, float] | None:
        """Each image's rank among the prototypes, 0 the least typical to 1; None without any."""
        if self.prototypes is None:
            return None
        values = np.array(list(self.prototypes.values()), dtype=np.float64)
        ordered = np.sort(values)
        low = np.searchsorted(ordered, values, side="left")
        high = np.searchsorted(ordered, values, side="right")
        ranks = (low + high - 1) / 2 / max(1, len(values) - 1)
        return dict(zip(self.prototypes, ranks.tolist(), strict=True))

    @cached_property
    def node_names(self) -> Mapping[str, str]:
        """What nodes of the hierarchy are called: classes by their names, WordNet's by its own."""
        return names_of_nodes(self.space, self.hierarchy)


def names_of_nodes(space: LabelSpace, hierarchy: Hierarchy | None) -> Mapping[str, str]:
    """What nodes are called: those of WordNet's hierarchy by WordNet, classes by their own names."""
    names: dict[str, str] = {}
    if hierarchy is Hierarchy.wordnet():
        names = {item.id: item.name for item in LabelSpace.load("wordnet-nodes")}
    return names | {item.node: item.name for item in space}


def hierarchy_for(space: LabelSpace) -> Hierarchy | None:
    """The hierarchy that a label space stands in; None where it stands in none.

    WordNet where all classes do, else the classes' own parents, else WordNet for those that do: the
    others have no closeness.
    """
    wordnet = Hierarchy.wordnet()
    inside = [item.node in wordnet for item in space]
    if not all(inside) and any(item.parents for item in space):
        return Hierarchy.from_label_space(space)
    return wordnet if any(inside) else None

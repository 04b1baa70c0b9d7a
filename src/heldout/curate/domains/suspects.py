"""Classes whose names mislead an image–text model: people of a place, and words of several senses.

A *demonym* (Jordanian, Icelander) says where a photograph was taken and not what it shows: WordNet has
them under ``inhabitant``. A *homonym* has other senses, and photographs of those get its label: a word
with several nouns in WordNet, or a text that another class of the label space has as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy, WordNetNouns

INHABITANT = "n09620078"
"""WordNet 3.0: inhabitant, habitant, dweller, denizen, indweller."""


@dataclass(frozen=True)
class Suspicion:
    """What is suspicious about a class's name.

    ``demonym``  it stands for people of a place
    ``senses``   other nouns of WordNet that its first name stands for
    ``twins``    classes of the label space with the very same names
    """

    demonym: bool
    senses: int
    twins: tuple[str, ...]

    @property
    def text(self) -> str:
        """In words; empty where nothing is suspicious."""
        parts = [
            "people of a place" if self.demonym else "",
            f"{self.senses} other senses" if self.senses else "",
            f"also {', '.join(self.twins)}" if self.twins else "",
        ]
        return "; ".join(part for part in parts if part)

    @property
    def homonym(self) -> bool:
        """Whether the name stands for other things too."""
        return bool(self.senses or self.twins)


def suspicions(classes: Sequence[str], space: LabelSpace) -> dict[str, Suspicion]:
    """What is suspicious about each class; classes without a WordNet id have only their names."""
    hierarchy = Hierarchy.wordnet()
    nouns = WordNetNouns.built_in()
    same: dict[tuple[str, ...], list[str]] = {}
    for item in space:
        if item.names:
            same.setdefault(item.names, []).append(item.id)
    found = {}
    for class_id in classes:
        item = space.get(class_id)
        node = item.wnid or class_id
        senses = set(nouns.synsets(item.name)) - {node} if item.wnid else set()
        found[class_id] = Suspicion(
            demonym=node in hierarchy and hierarchy.is_under(node, INHABITANT),
            senses=len(senses),
            twins=tuple(other for other in same.get(item.names, ()) if other != class_id),
        )
    return found

"""Confusions before and after: which pairs of classes a new model confuses less, and which more."""

from __future__ import annotations

from dataclasses import dataclass

from heldout.measure.mistakes.confusions import confusions
from heldout.measure.mistakes.verdicts import Verdicts


@dataclass(frozen=True, kw_only=True)
class ConfusionChange:
    """Two classes, and how often the old and the new model confuse them."""

    first_id: str
    first_name: str
    second_id: str
    second_name: str
    old: int
    new: int

    @property
    def difference(self) -> int:
        """New less old: below zero is better."""
        return self.new - self.old


def confusion_changes(
    verdicts: Verdicts, old: str, new: str, *, directed: bool = False
) -> list[ConfusionChange]:
    """Pairs whose counts differ, the largest differences first, then in the label space's order."""
    counts: dict[tuple[int, int], list[int]] = {}
    for place, model in enumerate((old, new)):
        found = confusions(verdicts, model, directed=directed)
        rows = zip(found.first.tolist(), found.second.tolist(), found.n.tolist(), strict=True)
        for first, second, n in rows:
            counts.setdefault((first, second), [0, 0])[place] = n
    classes = verdicts.truth.space.classes
    order = sorted(counts, key=lambda pair: (-abs(counts[pair][1] - counts[pair][0]), pair))
    return [
        ConfusionChange(
            first_id=classes[first].id,
            first_name=classes[first].name,
            second_id=classes[second].id,
            second_name=classes[second].name,
            old=counts[first, second][0],
            new=counts[first, second][1],
        )
        for first, second in order
        if counts[first, second][0] != counts[first, second][1]
    ]

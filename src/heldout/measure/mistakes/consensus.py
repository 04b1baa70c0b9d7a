"""Consensus of models: which images all of them miss, and what they say there instead.

An image that every model misses is either hard or labelled wrongly. Where most of them agree on
another class, look at the label first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.measure.mistakes.verdicts import Verdicts
from heldout.stats.intervals import wilson

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class ModelConsensus:
    """How many models miss each image of a truth.

    ``misses``     int64 (n,): models that are wrong on the row
    ``histogram``  int64 (models + 1,): rows that 0, 1, … all models miss
    """

    verdicts: Verdicts
    misses: np.ndarray
    histogram: np.ndarray

    @property
    def models(self) -> int:
        """How many models there are."""
        return len(self.verdicts.models)

    @property
    def missed_by_all(self) -> int:
        """Rows that every model misses."""
        return int(self.histogram[-1])

    @property
    def right_by_all(self) -> int:
        """Rows on which every model is right."""
        return int(self.histogram[0])

    def missed_by(self, at_least: int) -> np.ndarray:
        """Rows that at least so many models miss; int64."""
        return np.flatnonzero(self.misses >= at_least)

    def share_missed_by_all(self, *, level: float = LEVEL) -> tuple[float, float, float]:
        """The share of rows that every model misses, with its Wilson interval: value, low, high."""
        limits = wilson(self.missed_by_all, len(self.misses), level=level)
        return self.missed_by_all / len(self.misses), float(limits.low), float(limits.high)


@dataclass(frozen=True)
class Suspect:
    """An image that models miss together, and the class that most of them give instead.

    ``original``   class id of its own label, or None
    ``acceptable`` class ids that the truth takes as right
    ``majority``   class id that most of the wrong models give, the first in the label space among
                   equals; None where none of them has an output
    ``votes``      models that give it; ``missed_by`` models that are wrong, of ``models``
    ``classes``    how many different classes the wrong models give
    """

    image_id: str
    original: str | None
    acceptable: tuple[str, ...]
    majority: str | None
    votes: int
    missed_by: int
    models: int
    classes: int


def model_consensus(verdicts: Verdicts) -> ModelConsensus:
    """How many models miss each image."""
    misses = verdicts.wrong.sum(axis=1)
    return ModelConsensus(verdicts, misses, np.bincount(misses, minlength=len(verdicts.models) + 1))


def suspects(found: ModelConsensus, *, at_least: int | None = None) -> list[Suspect]:
    """Images that at least so many models miss (all of them by default), to look at their labels.

    Those on which most models agree on one other class come first, then those that more models miss,
    then by image id.
    """
    verdicts = found.verdicts
    wanted = found.models if at_least is None else at_least
    if not 1 <= wanted <= found.models:
        raise UserError(
            f"at least {wanted} of {found.models} models", fix=f"give 1 to {found.models}"
        )
    rows = found.missed_by(wanted)
    majority, votes, classes = _majorities(verdicts, rows)
    truth, ids = verdicts.truth, verdicts.truth.space.ids
    listed = [(part.starts, part.values) for part in (truth.correct, truth.unclear)]
    made = []
    for place, row in enumerate(rows.tolist()):
        label, other = int(truth.labels[row]), int(majority[place])
        acceptable = dict.fromkeys(
            int(value)
            for starts, values in listed
            for value in values[starts[row] : starts[row + 1]]
        )
        made.append(
            Suspect(
                image_id=verdicts.image_ids[row],
                original=ids[label] if label >= 0 else None,
                acceptable=tuple(ids[value] for value in acceptable),
                majority=ids[other] if other >= 0 else None,
                votes=int(votes[place]),
                missed_by=int(found.misses[row]),
                models=found.models,
                classes=int(classes[place]),
            )
        )
    return sorted(made, key=lambda s: (-s.votes, -s.missed_by, s.image_id))


def _majorities(verdicts: Verdicts, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row the class that most wrong models give, its votes, and how many classes there are."""
    size = len(verdicts.truth.space)
    guesses = np.where(verdicts.wrong[rows], verdicts.guesses[rows], -1).astype(np.int64)
    where, models = np.nonzero(guesses >= 0)
    keys, votes = np.unique(where * size + guesses[where, models], return_counts=True)
    place, said = np.divmod(keys, size)
    order = np.lexsort((said, -votes, place))
    place, said, votes = place[order], said[order], votes[order]
    first = np.flatnonzero(np.r_[True, np.diff(place) != 0][: len(place)])
    majority = np.full(len(rows), -1, dtype=np.int64)
    best = np.zeros(len(rows), dtype=np.int64)
    majority[place[first]], best[place[first]] = said[first], votes[first]
    return majority, best, np.bincount(place, minlength=len(rows))

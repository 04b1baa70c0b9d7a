"""A study of mistakes: verdicts on some models, and the kind of every mistake among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heldout.core.errors import LabelError, UserError
from heldout.measure.mistakes.categories import OTHER
from heldout.measure.mistakes.groups import Groups, groups_of
from heldout.measure.mistakes.kinds import NO_CLASS, NO_OUTPUT, Key, Kind
from heldout.measure.mistakes.mistake import Mistake
from heldout.measure.mistakes.verdicts import NOTHING, RIGHT, Verdicts, rows_of
from heldout.measure.score.measure import Measured
from heldout.measure.score.slices import partitions


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """The mistakes of some models under one truth, each with its kind.

    ``mistakes``  the wrong (image, prediction) pairs of any model
    ``kinds``     by (image, prediction): the kind of each
    """

    verdicts: Verdicts
    mistakes: tuple[Mistake, ...]
    kinds: dict[Key, Kind]

    @cached_property
    def images(self) -> np.ndarray:
        """The row of the images table of every image that counts, each once; int64 (images,)."""
        return np.unique(self.verdicts.truth.rows)

    @cached_property
    def firsts(self) -> np.ndarray:
        """The first row of the verdicts of each image; int64 (images,)."""
        return np.unique(self.verdicts.truth.rows, return_index=True)[1]

    @cached_property
    def table(self) -> tuple[Kind, ...]:
        """The distinct kinds, for :attr:`codes`; those of failed outputs come last."""
        return tuple(self._coded[0])

    @cached_property
    def codes(self) -> np.ndarray:
        """The kind of mistake of each image and model, -1 where it is right; int32 (images, models).

        A guess that is wrong by one of an image's rows and right by another is no mistake of the
        image.
        """
        return self._coded[1]

    @cached_property
    def _coded(self) -> tuple[list[Kind], np.ndarray]:
        verdicts = self.verdicts
        ids, names = verdicts.truth.space.ids, verdicts.image_ids
        table: dict[tuple[str, ...], int] = {}
        kinds: list[Kind] = []

        def code(kind: Kind) -> int:
            key = (kind.category, kind.severity, kind.basis)
            if key not in table:
                table[key] = len(kinds)
                kinds.append(replace(kind, evidence=(), major=None, reviewers=0))
            return table[key]

        found = np.full((len(self.firsts), len(verdicts.models)), -1, dtype=np.int32)
        guesses, states = verdicts.guesses[self.firsts], verdicts.states[self.firsts]
        known = {key: code(kind) for key, kind in self.kinds.items()}
        wrong = ~self._right
        for place, m in np.argwhere(wrong & (guesses >= 0)).tolist():
            key = (names[self.firsts[place]], ids[guesses[place, m]])
            if key not in known:
                known[key] = code(Kind(category=OTHER))
            found[place, m] = known[key]
        none, failed = wrong & (guesses < 0), states == NOTHING
        for name, where in ((NO_OUTPUT, none & failed), (NO_CLASS, none & ~failed)):
            if where.any():
                found[where] = code(Kind(category=name))
        return kinds, found

    @cached_property
    def _right(self) -> np.ndarray:
        """Whether a guess is right by some row of its image; bool (images, models)."""
        right = self.verdicts.states == RIGHT
        if len(self.firsts) == len(right):
            return np.asarray(right[self.firsts])
        found = np.zeros((len(self.firsts), right.shape[1]), dtype=bool)
        np.logical_or.at(found, self._places, right)
        return found

    @cached_property
    def _places(self) -> np.ndarray:
        """For every row of the verdicts: the place of its image in :attr:`images`."""
        return np.searchsorted(self.images, self.verdicts.truth.rows)

    def row_kinds(self) -> np.ndarray:
        """The codes of :attr:`codes` at every row of the verdicts, -1 where that row is right."""
        return np.where(self.verdicts.wrong, self.codes[self._places], -1)

    def slices(self, by: Sequence[str]) -> list[dict[str, np.ndarray]]:
        """For each column: slice name to the images in it, as places in :attr:`images`."""
        return [
            {name: np.unique(self._places[rows]) for name, rows in partition.slices().items()}
            for partition in partitions(self.measured, by)
        ]

    @cached_property
    def measured(self) -> Measured:
        """The verdicts as a measurement of hits, for what reads one."""
        return self.verdicts.measured()

    @cached_property
    def groups(self) -> Groups | None:
        """Organism, artifact and other, where classes stand in WordNet; None where none does."""
        try:
            return groups_of(self.verdicts.truth.space)
        except LabelError:
            return None

    @cached_property
    def group_images(self) -> dict[str, np.ndarray]:
        """By group: its images, as places in :attr:`images`; an image is in those of all its labels."""
        if self.groups is None:
            return {}
        inside = self.groups.of_truth(self.verdicts.truth)
        found = {
            name: np.unique(self._places[inside[:, column]])
            for column, name in enumerate(self.groups.names)
        }
        return {name: images for name, images in found.items() if len(images)}


def joined(parts: Sequence[Verdicts]) -> Verdicts:
    """Verdicts of one truth on several lists of models, as verdicts on all of them."""
    if not parts:
        raise UserError("no models to look at", fix="name some with --model")
    first = parts[0]
    return replace(
        first,
        models=tuple(model for part in parts for model in part.models),
        hashes=tuple(value for part in parts for value in part.hashes),
        guesses=np.concatenate([part.guesses for part in parts], axis=1),
        states=np.concatenate([part.states for part in parts], axis=1),
    )


def without_images(verdicts: Verdicts, images: Iterable[int]) -> Verdicts:
    """The verdicts without some images, given by their rows of the images table."""
    kept = np.flatnonzero(~np.isin(verdicts.truth.rows, list(images)))
    return replace(
        verdicts,
        truth=rows_of(verdicts.truth, kept),
        guesses=verdicts.guesses[kept],
        states=verdicts.states[kept],
        left_out=verdicts.left_out + len(verdicts) - len(kept),
    )

"""Mistakes: wrong (image, prediction) pairs, each once, with the models that make it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from heldout.measure.mistakes.verdicts import WRONG, Verdicts


@dataclass(frozen=True)
class Mistake:
    """One wrong (image, prediction) pair.

    ``prediction``  class id
    ``acceptable``  class ids that would have been right, correct or unclear, the original label first
                    where it is one of them
    ``original``    class id of the image's own label, or None where it has none
    ``models``      who makes this mistake, in the order in which they were looked at
    ``reviewed``    whether the truth calls the prediction wrong; False where nobody has looked. Under
                    a truth without reviews every mistake counts as reviewed.
    """

    image_id: str
    prediction: str
    acceptable: tuple[str, ...]
    original: str | None
    models: tuple[str, ...]
    reviewed: bool


def mistakes_of(verdicts: Verdicts) -> tuple[Mistake, ...]:
    """Every wrong (image, prediction) pair of any model, sorted by both.

    Images without an output have no prediction and are not among them, nor are guesses that are no
    class of the set. An image with several rows in the truth has their labels together: a pair that
    is right by one of them is no mistake.
    """
    space = verdicts.truth.space
    rows, models = np.nonzero(verdicts.wrong & (verdicts.guesses >= 0))
    guesses = verdicts.guesses[rows, models].astype(np.int64)
    order = np.argsort(rows * len(space) + guesses, kind="stable")
    rows, models, guesses = rows[order], models[order], guesses[order]
    first = np.flatnonzero(np.r_[True, np.diff(rows * len(space) + guesses) != 0][: len(rows)])
    states = verdicts.states[rows[first], models[first]]
    ids, images, labels = space.ids, verdicts.image_ids, verdicts.truth.labels
    acceptable = _Acceptable(verdicts)
    found: dict[tuple[str, str], Mistake] = {}
    ends = np.r_[first, len(rows)][1:].tolist()
    names = [verdicts.models[m] for m in models.tolist()]
    for begin, end, row, guess, state in zip(
        first.tolist(),
        ends,
        rows[first].tolist(),
        guesses[first].tolist(),
        states.tolist(),
        strict=True,
    ):
        label = int(labels[row])
        mistake = Mistake(
            image_id=images[row],
            prediction=ids[guess],
            acceptable=acceptable.of(row),
            original=ids[label] if label >= 0 else None,
            models=tuple(names[begin:end]),
            reviewed=state == WRONG,
        )
        key = (mistake.image_id, mistake.prediction)
        found[key] = _joined(found[key], mistake) if key in found else mistake
    if len(set(images)) < len(images):
        found = _right_nowhere(found, verdicts, acceptable)
    return tuple(found[key] for key in sorted(found))


class _Acceptable:
    """The acceptable class ids of a row, made once a row."""

    def __init__(self, verdicts: Verdicts) -> None:
        truth = verdicts.truth
        self._ids, self._labels = truth.space.ids, truth.labels
        self._lists = [
            (part.starts.tolist(), part.values.tolist()) for part in (truth.correct, truth.unclear)
        ]
        self._known: dict[int, tuple[str, ...]] = {}

    def of(self, row: int) -> tuple[str, ...]:
        """Correct labels, then unclear ones, each once; the original first where it is there."""
        if row not in self._known:
            listed = dict.fromkeys(
                value
                for starts, values in self._lists
                for value in values[starts[row] : starts[row + 1]]
            )
            label = int(self._labels[row])
            if label in listed:
                listed = {label: None, **listed}
            self._known[row] = tuple(self._ids[value] for value in listed)
        return self._known[row]


def _joined(one: Mistake, other: Mistake) -> Mistake:
    return replace(
        one,
        acceptable=tuple(dict.fromkeys((*one.acceptable, *other.acceptable))),
        models=tuple(dict.fromkeys((*one.models, *other.models))),
        reviewed=one.reviewed or other.reviewed,
    )


def _right_nowhere(
    found: dict[tuple[str, str], Mistake], verdicts: Verdicts, acceptable: _Acceptable
) -> dict[tuple[str, str], Mistake]:
    """For images with several rows: all their labels together, and only pairs that are in none."""
    together: dict[str, dict[str, None]] = {}
    for row, image in enumerate(verdicts.image_ids):
        together.setdefault(image, {}).update(dict.fromkeys(acceptable.of(row)))
    return {
        key: replace(mistake, acceptable=tuple(together[mistake.image_id]))
        for key, mistake in found.items()
        if mistake.prediction not in together[mistake.image_id]
    }

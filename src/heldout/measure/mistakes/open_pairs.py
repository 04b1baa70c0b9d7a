"""Open pairs: predictions that count as errors only because nobody has looked at them.

Under a truth that reviewers made, these are predictions in none of its lists. Under one class an
image, every error is open: the other label may be right as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.files import canonical_json
from heldout.data.testset.rowhash import row_hash, uniform
from heldout.measure.mistakes.acceptability import acceptability, standing_odds
from heldout.measure.mistakes.rulings import Key, Ruling
from heldout.measure.mistakes.verdicts import UNREVIEWED, WRONG, Verdicts
from heldout.stats.prediction_powered import drawing_order

AVERAGES = ("images", "classes")
_FLOOR = 0.02  # what is thought certain is still looked at now and then


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenPairs:
    """Every open (image, prediction) pair of some models.

    ``rows``, ``classes``  int64 (pairs,): row of the verdicts, class index; sorted by both
    ``made``               bool (pairs, models): who predicts it
    ``weights``            float64 (rows,): what a row counts for in the accuracy; they sum to one
    ``odds``               float64 (pairs,): the probability that the prediction is acceptable, as
                           far as these models and the truth's own lists tell
    ``keys``               float64 (pairs,): the order in which to ask, smallest first; a pair's key
                           never depends on the models
    ``sizes``              float64 (pairs,): what the keys were divided by
    ``design``             12 hexadecimal digits: truth, average and seed from which keys follow
    """

    verdicts: Verdicts
    rows: np.ndarray
    classes: np.ndarray
    made: np.ndarray
    weights: np.ndarray
    odds: np.ndarray
    keys: np.ndarray
    sizes: np.ndarray
    design: str

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def pairs(self) -> tuple[Key, ...]:
        """(image id, class id) of every pair."""
        images, ids = self.verdicts.image_ids, self.verdicts.truth.space.ids
        return tuple(
            (images[row], ids[label])
            for row, label in zip(self.rows.tolist(), self.classes.tolist(), strict=True)
        )

    def answers(self, rulings: Mapping[Key, Ruling]) -> tuple[np.ndarray, np.ndarray]:
        """What a panel says: float64 (pairs,), 1 accepted, 0 wrong, NaN open; and which were drawn.

        Drawn are pairs that were asked from this queue. The others came another way: they are
        known, and say nothing about the rest.
        """
        values = np.full(len(self), np.nan)
        drawn = np.zeros(len(self), dtype=bool)
        for place, key in enumerate(self.pairs):
            ruling = rulings.get(key)
            if ruling is not None:
                values[place] = float(ruling.accepted)
                drawn[place] = self.design in ruling.queues
        return values, drawn


def open_pairs(verdicts: Verdicts, *, average: str = "classes", seed: int = 0) -> OpenPairs:
    """The open pairs of all models of ``verdicts``, and the order in which to ask about them.

    ``average``  ``classes`` weighs images so that every class counts the same, ``images`` equally

    The order is random, so that answers tell about what was not asked, and yet pairs that matter
    more come earlier: their sizes follow their weight and how unsure the truth's own lists leave
    one about them.
    """
    state = UNREVIEWED if verdicts.reviewed else WRONG
    rows, models = np.nonzero((verdicts.states == state) & (verdicts.guesses >= 0))
    guesses = verdicts.guesses[rows, models].astype(np.int64)
    width = len(verdicts.truth.space)
    codes, place = np.unique(rows * width + guesses, return_inverse=True)
    made = np.zeros((len(codes), len(verdicts.models)), dtype=bool)
    made[place.reshape(-1), models] = True
    rows, classes = np.divmod(codes, width)
    weights = row_weights(verdicts, average)
    design = _design(verdicts, average, seed)
    settled = standing_odds(verdicts, rows, classes)
    sizes = weights[rows] * len(weights) * np.sqrt(settled * (1.0 - settled) + _FLOOR)
    images, ids = verdicts.image_ids, verdicts.truth.space.ids
    names = [
        f"{design}\t{images[row]}\t{ids[label]}"
        for row, label in zip(rows.tolist(), classes.tolist(), strict=True)
    ]
    chance = uniform(row_hash(names, seed=seed))
    return OpenPairs(
        verdicts=verdicts,
        rows=rows,
        classes=classes,
        made=made,
        weights=weights,
        odds=acceptability(verdicts, rows, classes),
        keys=drawing_order(chance, sizes),
        sizes=sizes,
        design=design,
    )


def row_weights(verdicts: Verdicts, average: str) -> np.ndarray:
    """What each row counts for in an accuracy, float64 (rows,), summing to one.

    An average over classes needs a class for every row; classes without any row do not count, as
    :func:`empty_classes` says.
    """
    if average not in AVERAGES:
        raise UserError(f"no average {average!r}", fix=f"use {' or '.join(AVERAGES)}")
    n = len(verdicts)
    if average == "images":
        return np.full(n, 1.0 / n)
    labels = verdicts.truth.labels
    if (labels < 0).any():
        raise NotApplicable(
            f"an average over classes, and truth {verdicts.truth.name} of {verdicts.testset.name} "
            "has images without a class",
            fix="average over images",
        )
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(sizes) * sizes[codes.reshape(-1)]))


def empty_classes(verdicts: Verdicts) -> tuple[str, ...]:
    """The classes of the label space without a row that counts."""
    counts = np.bincount(
        verdicts.truth.labels[verdicts.truth.labels >= 0], minlength=len(verdicts.truth.space)
    )
    return tuple(verdicts.truth.space.ids[place] for place in np.flatnonzero(counts == 0).tolist())


def _design(verdicts: Verdicts, average: str, seed: int) -> str:
    card = verdicts.testset.card
    parts = [
        "order 1",
        card.images_hash,
        card.tables.get(f"truth/{verdicts.truth.name}", verdicts.truth.name),
        verdicts.label_map,
        average,
        seed,
    ]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:12]

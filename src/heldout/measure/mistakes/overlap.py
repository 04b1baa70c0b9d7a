"""Overlap: what two models, or two versions of one, get wrong together and apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from heldout.core.errors import UserError
from heldout.measure.mistakes.verdicts import Verdicts
from heldout.stats.intervals import wilson

LEVEL = 0.95
Change = Literal["fixed", "new", "shared"]
CHANGES: tuple[Change, ...] = ("fixed", "new", "shared")


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Mistakes of two models on the same n images.

    ``shared``    both are wrong; ``same`` of these give the same class
    ``expected``  how many both would miss if their mistakes had nothing to do with each other
    ``kappa``     agreement on right and wrong beyond that, from -1 to 1: the error consistency of
                  :mod:`heldout.measure.score.compare`; None where both are always right, or always wrong
    ``share``     shared of ``wrong``: of the first model's mistakes those that the other also makes,
                  with its Wilson interval
    """

    model: str
    other: str
    n: int
    wrong: int
    other_wrong: int
    shared: int
    same: int
    expected: float
    kappa: float | None
    share: float | None
    low: float | None
    high: float | None


def overlaps(
    verdicts: Verdicts,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    level: float = LEVEL,
) -> list[Overlap]:
    """The overlap of pairs of models; of all pairs by default."""
    if len(verdicts.models) < 2:
        raise UserError(f"{verdicts.models[0]} is one model", fix="name at least two")
    found = []
    for model, other in pairs if pairs is not None else combinations(verdicts.models, 2):
        a, b = verdicts.position(model), verdicts.position(other)
        wrong, other_wrong = verdicts.wrong[:, a], verdicts.wrong[:, b]
        shared = wrong & other_wrong
        same = shared & _same_guess(verdicts, a, b)
        count, others, together = int(wrong.sum()), int(other_wrong.sum()), int(shared.sum())
        limits = wilson(together, count, level=level) if count else None
        found.append(
            Overlap(
                model=model,
                other=other,
                n=len(verdicts),
                wrong=count,
                other_wrong=others,
                shared=together,
                same=int(same.sum()),
                expected=count * others / len(verdicts),
                kappa=_kappa(len(verdicts), count, others, together),
                share=together / count if count else None,
                low=None if limits is None else float(limits.low),
                high=None if limits is None else float(limits.high),
            )
        )
    return found


def _kappa(n: int, wrong: int, other: int, shared: int) -> float | None:
    """Cohen's kappa of being wrong; None where chance explains all agreement."""
    if wrong + other in (0, 2 * n):
        return None
    observed = (n - wrong - other + 2 * shared) / n
    expected = (wrong * other + (n - wrong) * (n - other)) / n**2
    return (observed - expected) / (1 - expected)


def _same_guess(verdicts: Verdicts, a: int, b: int) -> np.ndarray:
    guesses = verdicts.guesses
    return np.asarray((guesses[:, a] == guesses[:, b]) & (guesses[:, a] >= 0))


@dataclass(frozen=True, eq=False)
class Changes:
    """What became of mistakes between an old and a new model, on the same images.

    ``fixed``, ``new``, ``shared``  int64: rows of the verdicts that only the old model misses, only
                    the new one, both
    ``same``        bool (shared,): whether both give the same class there
    """

    verdicts: Verdicts
    old: str
    new_model: str
    fixed: np.ndarray
    new: np.ndarray
    shared: np.ndarray
    same: np.ndarray

    def rows(self, change: Change) -> np.ndarray:
        """The rows of one kind of change."""
        found: np.ndarray = getattr(self, change)
        return found


@dataclass(frozen=True)
class ChangedImage:
    """One image that at least one of two models misses; class ids, None where there is no class."""

    image_id: str
    change: Change
    original: str | None
    old_prediction: str | None
    new_prediction: str | None


def changes(verdicts: Verdicts, old: str, new: str) -> Changes:
    """What the new model fixes, what it breaks, and what both miss."""
    if old == new:
        raise UserError(f"{old} is compared with itself", fix="name two models")
    a, b = verdicts.position(old), verdicts.position(new)
    before, after = verdicts.wrong[:, a], verdicts.wrong[:, b]
    shared = np.flatnonzero(before & after)
    return Changes(
        verdicts,
        old,
        new,
        np.flatnonzero(before & ~after),
        np.flatnonzero(~before & after),
        shared,
        _same_guess(verdicts, a, b)[shared],
    )


def changed_images(found: Changes) -> list[ChangedImage]:
    """Every image that either model misses: fixed ones first, then new ones, then shared, by id."""
    verdicts, ids = found.verdicts, found.verdicts.truth.space.ids
    a, b = verdicts.position(found.old), verdicts.position(found.new_model)

    def name(index: int) -> str | None:
        return ids[index] if index >= 0 else None

    return [
        ChangedImage(
            image_id=verdicts.image_ids[row],
            change=change,
            original=name(int(verdicts.truth.labels[row])),
            old_prediction=name(int(verdicts.guesses[row, a])),
            new_prediction=name(int(verdicts.guesses[row, b])),
        )
        for change in CHANGES
        for row in found.rows(change).tolist()
    ]

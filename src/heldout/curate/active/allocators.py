"""Allocators: how many of the next labels each domain gets.

================================ ===================================================================
``none``                         no quotas: the selector chooses among all candidates
``ambient``                      in proportion to the domain's share of the pool
``uniform``                      equal parts
``loss``, ``error``              in proportion to its loss, its error rate, on validation images
``exp-loss``                     in proportion to exp(loss)
``estimated-error``              in proportion to the error rate that ATC expects of its candidates
``worst``                        all to the domain of the highest error rate
``interpolate:A``                A of the budget as ``worst``, 1 - A as ``uniform``; A is 0.5 if left out
``least-labelled``               one after the other to the domain with fewest labels so far
``lowest-confidence``            all to the domain whose candidates are least confident on average
``lowest-confidence:validation`` the same by its validation images
================================ ===================================================================

The budget is met exactly, and a domain never gets more than it has left. Where a number does not
exist (no validation image of the domain) it is null: in proportions it counts as the mean of the
others, in orders it comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.quotas import in_order, levelling, proportional

ALLOCATORS = (
    "none",
    "ambient",
    "uniform",
    "loss",
    "error",
    "exp-loss",
    "estimated-error",
    "worst",
    "interpolate",
    "least-labelled",
    "lowest-confidence",
)
NEED_VALIDATION = ("loss", "error", "exp-loss", "estimated-error", "worst", "interpolate")
_ALPHA = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """What is known of every domain before an allocation, each (g,); NaN where there is no number.

    ``sizes``      images of the domain in the pool, labelled or not
    ``labelled``   those of them that have a label
    ``capacities`` those that can still be chosen
    ``errors``, ``losses``   on validation images
    ``confidences``, ``validation_confidences``  mean of the highest probability
    ``estimated_errors``     what ATC expects of the candidates
    """

    names: Sequence[str]
    sizes: np.ndarray
    labelled: np.ndarray
    capacities: np.ndarray
    errors: np.ndarray
    losses: np.ndarray
    confidences: np.ndarray
    validation_confidences: np.ndarray
    estimated_errors: np.ndarray


@dataclass(frozen=True)
class Allocator:
    """An allocator by name, with its argument where it takes one."""

    kind: str
    alpha: float = _ALPHA
    on_validation: bool = False

    @property
    def name(self) -> str:
        """The text that :func:`parse_allocator` reads."""
        if self.kind == "interpolate" and self.alpha != _ALPHA:
            return f"interpolate:{self.alpha:g}"
        if self.kind == "lowest-confidence" and self.on_validation:
            return "lowest-confidence:validation"
        return self.kind

    @property
    def needs_validation(self) -> bool:
        """Whether labelled images are needed that were not trained on."""
        return self.kind in NEED_VALIDATION or self.on_validation

    def __call__(self, standing: Standing, budget: int) -> np.ndarray | None:
        """The quota of every domain, int64 (g,); None where there are no quotas."""
        room = standing.capacities
        if self.kind == "none":
            return None
        if self.kind == "least-labelled":
            return levelling(standing.labelled, room, budget)
        if self.kind == "worst":
            return in_order(_descending(standing.errors, "an error rate"), room, budget)
        if self.kind == "lowest-confidence":
            chosen = standing.validation_confidences if self.on_validation else standing.confidences
            return in_order(_descending(-chosen, "a confidence"), room, budget)
        return proportional(self._weights(standing), room, budget)

    def _weights(self, standing: Standing) -> np.ndarray:
        if self.kind == "ambient":
            return np.asarray(standing.sizes, np.float64)
        if self.kind == "uniform":
            return np.ones(len(standing.sizes))
        if self.kind == "loss":
            return _known(standing.losses, "a loss")
        if self.kind == "error":
            return _known(standing.errors, "an error rate")
        if self.kind == "exp-loss":
            losses = _known(standing.losses, "a loss")
            scaled: np.ndarray = np.exp(losses - losses.max())  # only proportions matter
            return scaled
        if self.kind == "estimated-error":
            return _known(standing.estimated_errors, "an estimated error rate")
        if self.kind == "interpolate":
            weights = np.full(len(standing.sizes), (1.0 - self.alpha) / len(standing.sizes))
            open_ = np.asarray(standing.capacities) > 0
            order = [g for g in _descending(standing.errors, "an error rate") if open_[g]]
            if order:
                weights[order[0]] += self.alpha
            return weights
        raise UserError(f"no allocator {self.kind!r}", fix=f"use one of {', '.join(ALLOCATORS)}")


def parse_allocator(text: str) -> Allocator:
    """The allocator that a text names.

    >>> parse_allocator("interpolate:0.25")
    Allocator(kind='interpolate', alpha=0.25, on_validation=False)
    """
    kind, _, rest = text.partition(":")
    if kind not in ALLOCATORS:
        raise UserError(f"no allocator {text!r}", fix=f"use one of {', '.join(ALLOCATORS)}")
    if kind == "interpolate" and rest:
        try:
            alpha = float(rest)
        except ValueError:
            alpha = -1.0
        if not 0 <= alpha <= 1:
            raise UserError(f"{text!r}: {rest!r} is no share", fix="give 0 to 1: interpolate:0.25")
        return Allocator(kind, alpha)
    if kind == "lowest-confidence" and rest == "validation":
        return Allocator(kind, on_validation=True)
    if rest:
        raise UserError(f"allocator {kind} takes no {rest!r}", fix=f"write {kind}")
    return Allocator(kind)


def _known(values: np.ndarray, what: str) -> np.ndarray:
    """The values, those that do not exist replaced by the mean of the others."""
    numbers = np.asarray(values, np.float64)
    there = np.isfinite(numbers)
    if not there.any():
        raise _nothing(what)
    return np.where(there, numbers, numbers[there].mean())


def _descending(values: np.ndarray, what: str) -> np.ndarray:
    """Groups from the highest value down; equal ones in their order, those without a value last."""
    numbers = np.asarray(values, np.float64)
    if not np.isfinite(numbers).any():
        raise _nothing(what)
    order: np.ndarray = np.argsort(np.where(np.isfinite(numbers), -numbers, np.inf), kind="stable")
    return order


def _nothing(what: str) -> NotApplicable:
    return NotApplicable(
        f"no domain has {what}", fix="label some images for validation, or allocate by uniform"
    )

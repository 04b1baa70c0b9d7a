"""Metrics: what counts as a hit, which images count, and how hits are averaged.

A metric is data: which rows of a truth it includes, a value for each row, and whether rows are
averaged at once (``images``) or a class at a time and then over classes (``classes``). Intervals,
slices, comparisons and fits are then the same code for every metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from heldout.errors import UserError
from heldout.score.calibration import brier_rows, nll_rows
from heldout.score.hits import Truth

Average = Literal["images", "classes"]


@dataclass(frozen=True, eq=False)
class Guesses:
    """One model's outputs laid beside a truth's rows, in the truth's label space.

    ``topk``    int (n, k), best first, -1 where there is no (mapped) class
    ``logits``  float (n, classes) or None
    ``unknown`` rows whose best class of the set is not among the stored top k
    """

    topk: np.ndarray
    logits: np.ndarray | None = None
    unknown: int = 0


@dataclass(frozen=True)
class Metric:
    """One metric. ``plain`` says that a value is a hit or a miss, so that exact intervals apply."""

    name: str
    include: Callable[[Truth], np.ndarray]
    values: Callable[[Truth, Guesses], np.ndarray]
    about: str
    average: Average = "images"
    plain: bool = True
    needs_logits: bool = False
    higher_is_better: bool = True
    ranks: int = 1


def has_label(truth: Truth) -> np.ndarray:
    """Rows with at least one correct label."""
    return truth.correct.lengths > 0


def not_problematic(truth: Truth) -> np.ndarray:
    """Rows that reviewers did not set aside."""
    return ~truth.problematic


def every_row(truth: Truth) -> np.ndarray:
    """All rows."""
    return np.ones(len(truth), dtype=bool)


def within(k: int) -> Callable[[Truth, Guesses], np.ndarray]:
    """A hit if any of the first ``k`` guesses is a correct label."""

    def values(truth: Truth, guesses: Guesses) -> np.ndarray:
        found: np.ndarray = truth.correct.contain(guesses.topk[:, :k]).any(axis=1)
        return found

    return values


def in_correct(truth: Truth, guesses: Guesses) -> np.ndarray:
    """A hit if the first guess is a correct label."""
    return truth.correct.contain(guesses.topk[:, 0])


def accepted(truth: Truth, guesses: Guesses) -> np.ndarray:
    """A hit if the first guess is a correct or an unclear label."""
    return in_correct(truth, guesses) | truth.unclear.contain(guesses.topk[:, 0])


def unreviewed(truth: Truth, guesses: Guesses) -> np.ndarray:
    """Whether nobody has judged the first guess: it is in no list of its image."""
    known = accepted(truth, guesses) | truth.wrong.contain(guesses.topk[:, 0])
    return ~known & (guesses.topk[:, 0] >= 0)


def accepted_or_unreviewed(truth: Truth, guesses: Guesses) -> np.ndarray:
    """A hit unless a reviewer called the first guess wrong: the upper bound."""
    return accepted(truth, guesses) | unreviewed(truth, guesses)


def _mla(name: str, values: Callable[[Truth, Guesses], np.ndarray], about: str, average: Average) -> Metric:
    return Metric(name, not_problematic, values, about, average)


_METRICS = (
    Metric("mean_per_class", has_label, within(1), "top-1, averaged a class at a time", "classes"),
    Metric("real", has_label, in_correct, "top-1 is one of the ReaL labels; images without any are left out"),
    _mla("mla", accepted, "multi-label accuracy: correct or unclear, mean per class", "classes"),
    _mla("mla_micro", accepted, "multi-label accuracy averaged over images", "images"),
    _mla("mla_correct_only", in_correct, "multi-label accuracy, unclear labels counted as wrong", "classes"),
    _mla("mla_upper", accepted_or_unreviewed, "multi-label accuracy if every unreviewed prediction were right", "classes"),
    Metric("accepted", every_row, accepted, "share with a correct or unclear top-1, no image left out (ImageNet-M)"),
    Metric(
        "nll", has_label, nll_rows, "negative log-likelihood of the class, nats", plain=False,
        needs_logits=True, higher_is_better=False,
    ),
    Metric(
        "brier", has_label, brier_rows, "Brier score over all classes, 0 to 2", plain=False,
        needs_logits=True, higher_is_better=False,
    ),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def get_metric(name: str) -> Metric:
    """A metric by name: ``top1``, ``top5``, any ``top<k>``, or one of :data:`METRICS`.

    >>> get_metric("top3").about
    'one of the first 3 guesses is correct'
    """
    if match := re.fullmatch(r"top([1-9]\d*)", name):
        k = int(match[1])
        about = "the first guess is correct" if k == 1 else f"one of the first {k} guesses is correct"
        return Metric(name, has_label, within(k), about, ranks=k)
    if name not in METRICS:
        raise UserError(f"no metric {name!r}", fix=f"there are top1, top5, top<k>, ece, {', '.join(METRICS)}")
    return METRICS[name]

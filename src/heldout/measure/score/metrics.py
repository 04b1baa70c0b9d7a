"""Metrics: what counts as a hit, which images count, and how hits are averaged.

A metric is data: which rows of a truth it includes, a value for each row, and how values become
one number. Intervals, slices, comparisons and fits are then the same code for every metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.score.calibration import (
    Bins,
    brier_rows,
    confidence_rows,
    log_sum_exp,
    nll_rows,
)
from heldout.measure.score.hierarchical import distance_rows, lca_heights, path_distances
from heldout.measure.score.hits import Truth

Average = Literal["images", "classes"]
Group = Literal["class", "guess"]


@dataclass(frozen=True, eq=False)
class Guesses:
    """One model's outputs laid beside a truth's rows, in the label space in which they are judged.

    ``topk``    int (n, k), best first, -1 where there is no (mapped) class
    ``space``   the label space of ``topk`` and ``logits``
    ``logits``  float (n, classes), zero in rows without an output; or None
    ``failed``  bool (n,): rows without an output
    ``known``   int (n,): how many leading ranks are certain; None where all are
    """

    topk: np.ndarray
    space: LabelSpace
    logits: np.ndarray | None = None
    failed: np.ndarray | None = None
    known: np.ndarray | None = None

    @property
    def needed_logits(self) -> np.ndarray:
        """The logits, for a metric that cannot do without."""
        if self.logits is None:
            raise NotApplicable(
                "calibration needs logits, and these predictions keep only their top k",
                fix="predict or import with logits",
            )
        return self.logits

    @cached_property
    def normaliser(self) -> np.ndarray:
        """log of the summed exponentials of each row of logits; float64 (n,)."""
        return log_sum_exp(self.needed_logits)

    def unknown(self, ranks: int) -> np.ndarray:
        """Rows whose best ``ranks`` classes are not all on file; bool (n,)."""
        if self.known is None:
            return np.zeros(len(self.topk), dtype=bool)
        return np.asarray(self.known < min(ranks, len(self.space)))


Values = Callable[[Truth, Guesses], np.ndarray]


@dataclass(frozen=True)
class Metric:
    """One metric.

    ``plain``       a value is a hit or a miss
    ``average``     over images at once, or a class at a time and then over classes
    ``weighted``    images count by the set's column ``weight``
    ``bins``        an expected calibration error: values are hit less confidence, summed in bins
    ``per_class``   a score for each class in place of one: of the images of a class, or of those
                    guessed to be of it
    ``reviewed``    unreviewed first guesses count as wrong, and their number is told
    ``ranks``       how many guesses it looks at
    """

    name: str
    include: Callable[[Truth], np.ndarray]
    values: Values
    about: str
    average: Average = "images"
    plain: bool = True
    needs_logits: bool = False
    higher_is_better: bool = True
    ranks: int = 1
    weighted: bool = False
    bins: Bins | None = None
    per_class: Group | None = None
    reviewed: bool = False

    @property
    def counted(self) -> bool:
        """Whether the score is k of n images, so that exact intervals and tests apply."""
        return self.plain and self.average == "images" and not self.weighted and not self.per_class


def has_label(truth: Truth) -> np.ndarray:
    """Rows with at least one correct label."""
    return truth.correct.lengths > 0


def has_class_and_label(truth: Truth) -> np.ndarray:
    """Rows with a class of their own and at least one correct label."""
    return has_label(truth) & (truth.labels >= 0)


def not_problematic(truth: Truth) -> np.ndarray:
    """Rows that reviewers did not set aside."""
    return ~truth.problematic


def every_row(truth: Truth) -> np.ndarray:
    """All rows."""
    return np.ones(len(truth), dtype=bool)


def within(k: int) -> Values:
    """A hit if any of the first ``k`` guesses is a correct label."""

    def values(truth: Truth, guesses: Guesses) -> np.ndarray:
        return np.asarray(truth.correct.contain(guesses.topk[:, :k]).any(axis=1))

    return values


def in_correct(truth: Truth, guesses: Guesses) -> np.ndarray:
    """A hit if the first guess is a correct label."""
    return truth.correct.contain(guesses.topk[:, 0])


def accepted(truth: Truth, guesses: Guesses) -> np.ndarray:
    """A hit if the first guess is a correct or an unclear label."""
    return np.asarray(in_correct(truth, guesses) | truth.unclear.contain(guesses.topk[:, 0]))


def unreviewed(truth: Truth, guesses: Guesses) -> np.ndarray:
    """Whether nobody has judged the first guess: it is in no list of its image."""
    known = accepted(truth, guesses) | truth.wrong.contain(guesses.topk[:, 0])
    return np.asarray(~known & (guesses.topk[:, 0] >= 0))


def accepted_or_unreviewed(truth: Truth, guesses: Guesses) -> np.ndarray:
    """A hit unless a reviewer called the first guess wrong: the upper bound."""
    return np.asarray(accepted(truth, guesses) | unreviewed(truth, guesses))


def hit_less_confidence(truth: Truth, guesses: Guesses) -> np.ndarray:
    """1 for a hit, 0 for a miss, less the probability of the first guess."""
    return np.asarray(in_correct(truth, guesses) - confidence_rows(guesses))


def _mla(name: str, values: Values, about: str, average: Average) -> Metric:
    return Metric(name, not_problematic, values, about, average, reviewed=True)


def _loss(name: str, values: Values, about: str, *, logits: bool) -> Metric:
    return Metric(
        name, has_label, values, about, plain=False, needs_logits=logits, higher_is_better=False
    )


def _ece(name: str, bins: Bins) -> Metric:
    about = f"expected calibration error of the first guess, {bins.about}"
    return replace(_loss(name, hit_less_confidence, about, logits=True), bins=bins)


_METRICS = (
    Metric("mean_per_class", has_label, within(1), "top-1, averaged a class at a time", "classes"),
    Metric(
        "recall",
        has_class_and_label,
        in_correct,
        "of the images of a class, the share whose first guess is correct",
        per_class="class",
    ),
    Metric(
        "precision",
        has_class_and_label,
        in_correct,
        "of the images first guessed to be of a class, the share for which that is correct",
        per_class="guess",
    ),
    Metric(
        "real",
        has_label,
        in_correct,
        "top-1 is one of the ReaL labels; images without any are left out",
    ),
    _mla("mla", accepted, "multi-label accuracy: correct or unclear, mean per class", "classes"),
    _mla("mla_micro", accepted, "multi-label accuracy averaged over images", "images"),
    _mla(
        "mla_correct_only",
        in_correct,
        "multi-label accuracy, unclear labels counted as wrong",
        "classes",
    ),
    _mla(
        "mla_upper",
        accepted_or_unreviewed,
        "multi-label accuracy if every unreviewed prediction were right",
        "classes",
    ),
    Metric(
        "accepted",
        every_row,
        accepted,
        "share with a correct or unclear top-1, no image left out (ImageNet-M)",
    ),
    _loss("nll", nll_rows, "negative log-likelihood of the class, nats", logits=True),
    _loss("brier", brier_rows, "Brier score over all classes, 0 to 2", logits=True),
    _loss(
        "hierarchical_distance",
        distance_rows(path_distances),
        "mean steps on the hierarchy between first guess and class",
        logits=False,
    ),
    _loss(
        "lca_height",
        distance_rows(lca_heights),
        "mean height of the lowest common ancestor of first guess and class",
        logits=False,
    ),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
FAMILIES = ("top<k>", "ece", "ece_mass", "ece<bins>", "ece<bins>_mass", "<metric>_weighted")
"""Names with a number or a suffix of the user's choice."""


def get_metric(name: str) -> Metric:
    """A metric by name: one of :data:`METRICS` or of :data:`FAMILIES`.

    >>> get_metric("top3").about
    'one of the first 3 guesses is correct'
    >>> get_metric("ece20_mass").about
    'expected calibration error of the first guess, 20 bins of equal mass'
    """
    if name in METRICS:
        return METRICS[name]
    if match := re.fullmatch(r"top([1-9]\d{0,5})", name):
        k = int(match[1])
        about = (
            "the first guess is correct" if k == 1 else f"one of the first {k} guesses is correct"
        )
        return Metric(name, has_label, within(k), about, ranks=k)
    if match := re.fullmatch(r"ece([1-9]\d{0,3})?(_mass)?", name):
        return _ece(name, Bins(int(match[1] or Bins.count), "mass" if match[2] else "width"))
    if name.endswith("_weighted"):
        base = get_metric(name.removesuffix("_weighted"))
        if base.average == "images" and not (base.bins or base.per_class or base.weighted):
            about = f"{base.about}; images count by their weight"
            return replace(base, name=name, weighted=True, about=about)
        raise UserError(
            f"{base.name} cannot be weighted", fix="weight a metric that averages over images"
        )
    raise UserError(f"no metric {name!r}", fix=f"there are {', '.join((*FAMILIES, *METRICS))}")

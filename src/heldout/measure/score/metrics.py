"""Metrics: what counts as a hit, which images count, and how values are averaged.

A metric is data: which rows of a truth it includes, a value for each row, and how values become
one number. Intervals, slices, comparisons and fits are then the same code for every metric.

Calibration (negative log-likelihood, Brier score, expected calibration error) is computed in float64
from the logits as stored, a block of rows at a time and in the log domain: finite logits give a
finite loss. An image without an output is judged as the uniform prediction over the K classes, and
as wrong.

How far off a mistake is, is the fewest steps on the hierarchy of labels up to a common ancestor and
down to the class, 0 for a right prediction. The hierarchy is WordNet's where all classes are in it,
else the label space's own parents. With several correct labels the nearest counts; an image without
an output gets the largest distance of any prediction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Literal

import numpy as np

from heldout.core.errors import LabelError, UserError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy, SpaceDistances
from heldout.measure.score.truth import BLOCK, RankedPredictions, Truth

BINS = 15
"""Bins of confidence of the expected calibration error."""


def bin_codes(confidence: np.ndarray) -> np.ndarray:
    """The bin of each confidence: equal widths of (0, 1], the right end inside (Guo et al. 2017).

    >>> bin_codes(np.array([0.0, 1 / 15, 0.07, 1.0])).tolist()
    [0, 0, 1, 14]
    """
    # The edges themselves are compared: a product such as 0.1 * 3 rounds past its edge.
    return np.searchsorted(np.arange(1, BINS) / BINS, confidence, side="left")


def nll_rows(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """-log p(class) per row, in nats; with several correct labels, of their summed probability.

    A label that its list repeats counts once.
    """
    rows, labels = truth.correct.pairs()
    picked = guesses.needed_logits[rows, labels].astype(np.float64)
    starts = np.searchsorted(rows, np.arange(len(truth)))
    some = np.diff(np.append(starts, len(rows))) > 0
    loss = np.full(len(truth), np.inf)
    if some.any():
        first = starts[some]
        top = np.maximum.reduceat(picked, first)
        sizes = np.diff(np.append(first, len(rows)))
        with np.errstate(divide="ignore", invalid="ignore"):  # all of them -inf: probability zero
            mass = np.add.reduceat(np.exp(picked - np.repeat(top, sizes)), first)
            right = np.where(np.isneginf(top), -np.inf, top + np.log(mass))
        # The part is never more than the whole; rounding may say so by a last digit.
        loss[some] = np.maximum(guesses.normaliser[some] - right, 0.0)
    return loss


def brier_rows(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """Squared distance between probabilities and the truth, spread evenly over correct labels."""
    logits, normaliser = guesses.needed_logits, guesses.normaliser
    squares = np.empty(len(truth))
    for start in range(0, len(truth), BLOCK):
        part = slice(start, start + BLOCK)
        logp = logits[part].astype(np.float64) - normaliser[part, None]
        squares[part] = np.exp(2 * logp).sum(axis=1)
    rows, labels = truth.correct.pairs()
    lengths = np.maximum(np.bincount(rows, minlength=len(truth)), 1)
    p = np.exp(logits[rows, labels].astype(np.float64) - normaliser[rows])
    cross = np.bincount(rows, p, minlength=len(truth)) / lengths
    return np.asarray(squares - 2 * cross + 1 / lengths)


def confidence_rows(guesses: RankedPredictions) -> np.ndarray:
    """The probability of the top-1 prediction; float64 (n,)."""
    logits = guesses.needed_logits
    top = np.concatenate(
        [logits[s : s + BLOCK].max(axis=1).astype(np.float64) for s in range(0, len(logits), BLOCK)]
        or [np.empty(0)]
    )
    return np.asarray(np.minimum(np.exp(top - guesses.normaliser), 1.0))


_CELLS = 1 << 21  # probabilities that are held at once, whatever the number of classes


def classwise_rows(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """What each row adds to the classwise calibration error, the mean over images; float64 (n, 2).

    The error is the mean over classes, and the sum over bins of a class's probability, of
    ``|sum of (target - probability)| / n``, the target spread evenly over correct labels (Kull et al.
    2019). A row adds its own target less probability, with the sign of the sum that it is part of.

    The second column adds up to ``n^2`` times the variance that the first has too much: the sign of
    a sum m errors from 0 changes from set to set, and the variance of ``|N(m, 1)|`` is below 1 by
    ``(E|N(m, 1)|)^2 - m^2``; with m a tenth larger than found, that is too much by 6 % at most.
    Residuals of K classes add up to 0: their squares go together by 1 / (K - 1).
    """
    logits, normaliser = guesses.needed_logits, guesses.normaliser
    from heldout.stats.calibration import absolute_noise

    n, classes = logits.shape
    rows, labels = truth.correct.pairs()
    lengths = np.bincount(rows, minlength=n)
    counted = lengths > 0
    # An image of several rows counts once, as it does in the mean.
    weights = counted / np.maximum(np.bincount(truth.rows, counted), 1)[truth.rows]
    step = max(1, _CELLS // classes)

    def blocks() -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Rows, and of each class and row the cell (class and bin) and target less probability."""
        for start in range(0, n, step):
            part = slice(start, start + step)
            p = np.minimum(np.exp(logits[part].astype(np.float64) - normaliser[part, None]), 1.0)
            cells = bin_codes(p) + BINS * np.arange(classes)
            first, last = np.searchsorted(rows, (start, start + step))
            right = rows[first:last]
            np.negative(p, out=p)
            p[right - start, labels[first:last]] += 1 / lengths[right]
            yield part, cells, p

    sums, squares, expected = np.zeros((3, classes * BINS))
    for part, cells, gaps in blocks():
        at, size = cells.ravel(), np.abs(gaps)
        # A target less p is p or 1 - p from 0: their product is the variance that p means.
        for total, given in ((sums, gaps), (squares, size * size), (expected, size * (1 - size))):
            total += np.bincount(at, (given * weights[part, None]).ravel(), len(sums))
    some = (expected > 0.25) & (squares > 0)  # where hardly an answer is expected nothing is normal
    m = 1.1 * np.abs(sums) / np.sqrt(np.where(some, squares, 1.0))
    signs, less = np.sign(sums), some * (np.square(m + absolute_noise(m)) - np.square(m))
    values = np.empty((n, 2))
    for part, cells, gaps in blocks():
        values[part, 0] = np.einsum("ij,ij->i", signs[cells], gaps) / classes
        values[part, 1] = np.einsum("ij,ij,ij->i", less[cells], gaps, gaps)
    values[:, 1] /= classes * max(classes - 1, 1)
    return values


def hierarchy_of(space: LabelSpace) -> Hierarchy:
    """The hierarchy of a label space's classes."""
    wordnet = Hierarchy.wordnet()
    if all(item.node in wordnet for item in space):
        return wordnet
    if any(item.parents for item in space):
        return Hierarchy.from_label_space(space)
    raise LabelError(
        f"the classes of {space.name} are in no hierarchy",
        fix="give its classes their WordNet ids, or parents",
    )


@lru_cache(maxsize=4)
def path_distances(space: LabelSpace) -> SpaceDistances:
    """Path distances of a label space, kept for the next model."""
    return SpaceDistances(space, hierarchy_of(space))


def distance_rows(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """The path distance from the top-1 prediction to the nearest correct label, per row."""
    distances = path_distances(guesses.space)
    rows, labels = truth.correct.pairs()
    first = guesses.topk[:, 0]
    nearest = np.full(len(truth), np.inf)
    farthest = np.full(len(truth), np.inf)
    order = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[order], return_index=True)
    for label, pairs in zip(present, np.split(order, starts[1:]), strict=True):
        mine, row = rows[pairs], distances.row(int(label))
        nearest[mine] = np.minimum(nearest[mine], row[first[mine]])
        farthest[mine] = np.minimum(farthest[mine], row.max())
    return np.where(first >= 0, nearest, farthest)


Average = Literal["images", "classes"]
Group = Literal["class", "guess"]
Values = Callable[[Truth, RankedPredictions], np.ndarray]


@dataclass(frozen=True)
class Metric:
    """One metric.

    ``plain``       a value is a hit or a miss
    ``average``     over images at once, or a class at a time and then over classes
    ``weighted``    images count by the set's column ``weight``
    ``binned``      an expected calibration error: values are hit less confidence, summed in bins
    ``debiased``    the same, less what noise adds to it
    ``classwise``   the same of every class's probability, then over classes: values add up to that
                    of all images only, so there are no slices
    ``per_class``   a score for each class in place of one: of the images of a class, or of those
                    predicted to be of it
    ``reviewed``    unreviewed top-1 predictions count as wrong, and their number is reported
    ``ranks``       how many guesses it looks at
    ``forgives``    which mistakes count as hits: ``minor``, ``explained``, ``judged_minor``; then
                    the name ends with it
    """

    name: str
    include: Callable[[Truth], np.ndarray]
    values: Values
    average: Average = "images"
    plain: bool = True
    needs_logits: bool = False
    higher_is_better: bool = True
    ranks: int = 1
    weighted: bool = False
    binned: bool = False
    debiased: bool = False
    classwise: bool = False
    per_class: Group | None = None
    reviewed: bool = False
    forgives: str = ""

    @property
    def subject(self) -> dict[str, str]:
        """The fields of a record that say which number it is."""
        if not self.forgives:
            return {"metric": self.name}
        return {"metric": self.name.removesuffix(f"_{self.forgives}"), "statistic": self.forgives}

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

    def values(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
        return np.asarray(truth.correct.contain(guesses.topk[:, :k]).any(axis=1))

    return values


def in_correct(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """A hit if the top-1 prediction is a correct label."""
    return truth.correct.contain(guesses.topk[:, 0])


def accepted(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """A hit if the top-1 prediction is a correct or an unclear label."""
    return np.asarray(in_correct(truth, guesses) | truth.unclear.contain(guesses.topk[:, 0]))


def unreviewed(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """Whether nobody has judged the top-1 prediction: it is in no list of its image."""
    known = accepted(truth, guesses) | truth.wrong.contain(guesses.topk[:, 0])
    return np.asarray(~known & (guesses.topk[:, 0] >= 0))


def accepted_or_unreviewed(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """A hit unless a reviewer called the top-1 prediction wrong: the upper bound."""
    return np.asarray(accepted(truth, guesses) | unreviewed(truth, guesses))


def hit_less_confidence(truth: Truth, guesses: RankedPredictions) -> np.ndarray:
    """1 for a hit, 0 for a miss, less the probability of the top-1 prediction."""
    return np.asarray(in_correct(truth, guesses) - confidence_rows(guesses))


def _mla(name: str, values: Values, average: Average = "classes") -> Metric:
    return Metric(name, not_problematic, values, average, reviewed=True)


def _loss(
    name: str,
    values: Values,
    *,
    logits: bool = True,
    binned: bool = False,
    debiased: bool = False,
    classwise: bool = False,
) -> Metric:
    return Metric(
        name,
        has_label,
        values,
        plain=False,
        needs_logits=logits,
        higher_is_better=False,
        binned=binned,
        debiased=debiased,
        classwise=classwise,
    )


_METRICS = (
    Metric("mean_per_class", has_label, in_correct, "classes"),
    Metric("recall", has_class_and_label, in_correct, per_class="class"),
    Metric("precision", has_class_and_label, in_correct, per_class="guess"),
    Metric("real", has_label, in_correct),
    _mla("mla", accepted),
    _mla("mla_micro", accepted, "images"),
    _mla("mla_correct_only", in_correct),
    _mla("mla_upper", accepted_or_unreviewed),
    Metric("accepted", every_row, accepted),  # as ImageNet-M is reported
    _loss("nll", nll_rows),
    _loss("brier", brier_rows),
    _loss("ece", hit_less_confidence, binned=True),
    _loss("ece_debiased", hit_less_confidence, binned=True, debiased=True),
    _loss("ece_classwise", classwise_rows, binned=True, classwise=True),
    _loss("hierarchical_distance", distance_rows, logits=False),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
FAMILIES = ("top<k>", "<metric>_weighted")
"""Names with a number or a suffix of the user's choice."""


def get_metric(name: str) -> Metric:
    """A metric by name: one of :data:`METRICS` or of :data:`FAMILIES`.

    >>> get_metric("top3").ranks
    3
    """
    if name in METRICS:
        return METRICS[name]
    if match := re.fullmatch(r"top([1-9]\d{0,5})", name):
        k = int(match[1])
        return Metric(name, has_label, within(k), ranks=k)
    if name.endswith("_weighted"):
        base = get_metric(name.removesuffix("_weighted"))
        if base.average == "images" and not (base.binned or base.per_class or base.weighted):
            return replace(base, name=name, weighted=True)
        raise UserError(
            f"{base.name} cannot be weighted", fix="weight a metric that averages over images"
        )
    raise UserError(f"no metric {name!r}", fix=f"there are {', '.join((*FAMILIES, *METRICS))}")


# Metrics that the scorer does not know and that are not shares: shown as they are, not as percent.
_PLAIN = frozenset({"perplexity", "kappa", "error_consistency"})


@cache
def _known(name: str) -> Metric | None:
    try:
        return get_metric(name)
    except UserError:
        return None


def is_share(name: str) -> bool:
    """Whether a metric is a share, so that a person reads it in percent.

    >>> is_share("top1_weighted"), is_share("ece"), is_share("nll")
    (True, True, False)
    """
    known = _known(name)
    if known is None:
        return name not in _PLAIN
    return known.plain or known.binned


def merit(name: str, value: float) -> float:
    """The value, or its negative where lower is better: larger is always better.

    >>> merit("top1", 0.7), merit("nll", 1.5), merit("ece", 0.1)
    (0.7, -1.5, -0.1)
    """
    known = _known(name)
    return value if known is None or known.higher_is_better else -value

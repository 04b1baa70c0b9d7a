"""Quality: how well proposed categories agree with what people judged.

Accuracy says little where one category is most of all: always proposing it already scores well. So
there is kappa, recall and precision of every category, and the table of who is taken for whom, beside
baselines. Everything is tested on mistakes whose images no part of the training has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.errors import NotApplicable
from heldout.stats import MINIMUM_CLUSTERS, Interval, bootstrap_statistic, wilson

LEVEL = 0.95
REPLICATES = 2000


@dataclass(frozen=True, kw_only=True)
class CategoryQuality:
    """How well one category is proposed.

    ``judged``     mistakes that people put there; ``proposed`` so many proposals; ``both`` of them
                   right. Recall is both / judged, precision both / proposed, each with its Wilson
                   interval; None where there is nothing to divide by
    """

    category: str
    judged: int
    proposed: int
    both: int
    recall: float | None
    recall_low: float | None
    recall_high: float | None
    precision: float | None
    precision_low: float | None
    precision_high: float | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Agreement:
    """Proposed against judged categories.

    ``table``  judged category to proposed category to count
    ``kappa``  None where all answers are the same and chance explains everything
    """

    n: int
    images: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    level: float
    categories: tuple[CategoryQuality, ...]
    table: dict[str, dict[str, int]]


def agreement(
    judged: Sequence[str],
    proposed: Sequence[str],
    images: Sequence[str],
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Agreement:
    """Compare proposed categories (n,) with judged ones; mistakes of one image are drawn together."""
    n = len(judged)
    _, clusters = np.unique(np.array(images), return_inverse=True)
    _check_images(len(set(images)))
    names = sorted({*judged, *proposed})
    place = {name: code for code, name in enumerate(names)}
    rows = np.array([place[name] for name in judged])
    columns = np.array([place[name] for name in proposed])
    cells = rows * len(names) + columns
    counts = np.bincount(cells, minlength=len(names) ** 2).reshape(len(names), len(names))

    def both(weights: np.ndarray) -> np.ndarray:
        table = np.bincount(cells, weights=weights, minlength=len(names) ** 2)
        table = table.reshape(len(names), len(names))
        return np.array([kappa_of(table), np.trace(table) / table.sum()])

    value = kappa_of(counts)
    estimate = bootstrap_statistic(
        both,
        n,
        rng=np.random.default_rng(seed),
        replicates=replicates,
        level=level,
        clusters=clusters.reshape(-1),
        takes="weights",
        bounds=(-1.0, 1.0),
    )
    low, high = estimate.interval.low, estimate.interval.high
    return Agreement(
        n=n,
        images=int(clusters.max()) + 1,
        accuracy=float(np.trace(counts) / n),
        accuracy_low=float(max(low[1], 0.0)),
        accuracy_high=float(high[1]),
        kappa=value if np.ptp(rows) or np.ptp(columns) else None,
        kappa_low=float(low[0]) if np.ptp(columns) else value,
        kappa_high=float(high[0]) if np.ptp(columns) else value,
        level=level,
        categories=tuple(_category(name, counts, place[name], level) for name in names),
        table={
            name: {
                other: int(counts[place[name], place[other]])
                for other in names
                if counts[place[name], place[other]]
            }
            for name in names
            if counts[place[name]].any()
        },
    )


def _check_images(n: int) -> None:
    if n < MINIMUM_CLUSTERS:
        raise NotApplicable(
            f"judged mistakes on {n} images are too few for an interval",
            fix=f"judge mistakes on at least {MINIMUM_CLUSTERS}",
        )


def kappa_of(table: np.ndarray) -> float:
    """Cohen's kappa of a table (judged, proposed) of counts or weights; 0 where chance is certain."""
    total = table.sum()
    expected = float((table.sum(axis=1) * table.sum(axis=0)).sum() / total**2)
    if expected >= 1.0:
        return 0.0
    return float((np.trace(table) / total - expected) / (1.0 - expected))


def _category(name: str, counts: np.ndarray, place: int, level: float) -> CategoryQuality:
    judged, proposed = int(counts[place].sum()), int(counts[:, place].sum())
    both = int(counts[place, place])
    recall = wilson(both, judged, level=level) if judged else None
    precision = wilson(both, proposed, level=level) if proposed else None
    return CategoryQuality(
        category=name,
        judged=judged,
        proposed=proposed,
        both=both,
        recall=both / judged if judged else None,
        recall_low=_end(recall, "low"),
        recall_high=_end(recall, "high"),
        precision=both / proposed if proposed else None,
        precision_low=_end(precision, "low"),
        precision_high=_end(precision, "high"),
    )


def _end(interval: Interval | None, side: str) -> float | None:
    return None if interval is None else float(getattr(interval, side))


@dataclass(frozen=True, kw_only=True)
class SeverityQuality:
    """How well the probability of Major tells Major from other mistakes.

    ``auc``       chance that a Major mistake gets the higher of two probabilities; a half is chance
    ``brier``     mean squared error of the probability; ``brier_base`` that of the share of Major
                  among the training mistakes, given to every mistake
    ``suggested`` mistakes for which a severity was suggested, ``suggested_right`` of them as judged;
                  ``suggested_base`` would be if every one got the training's more frequent severity
    """

    n: int
    major: int
    auc: float
    auc_low: float
    auc_high: float
    brier: float
    brier_base: float
    suggested: int
    suggested_right: int
    suggested_base: int
    level: float


def severity_quality(
    major: np.ndarray,
    probability: np.ndarray,
    base: np.ndarray,
    suggestions: Sequence[bool | None],
    images: Sequence[str],
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> SeverityQuality:
    """Compare probabilities of Major (n,) with the judged answer (bool (n,)).

    ``base`` (n,) are the shares of Major in training; ``suggestions`` say Major (True), not Major, or
    nothing.
    """
    truth = np.asarray(major, dtype=bool)
    if truth.all() or not truth.any():
        raise NotApplicable("all mistakes have one severity", fix="judge more of them")
    _check_images(len(set(images)))
    _, clusters = np.unique(np.array(images), return_inverse=True)
    estimate = bootstrap_statistic(
        lambda weights: weighted_auc(truth, probability, weights),
        len(truth),
        rng=np.random.default_rng(seed),
        replicates=replicates,
        level=level,
        clusters=clusters.reshape(-1),
        takes="weights",
        bounds=(0.0, 1.0),
    )
    said = [
        (bool(t), s, b > 0.5)
        for t, s, b in zip(truth.tolist(), suggestions, base.tolist(), strict=True)
        if s is not None
    ]
    return SeverityQuality(
        n=len(truth),
        major=int(truth.sum()),
        auc=float(estimate.value),
        auc_low=float(estimate.interval.low),
        auc_high=float(estimate.interval.high),
        brier=float(np.mean((probability - truth) ** 2)),
        brier_base=float(np.mean((base - truth) ** 2)),
        suggested=len(said),
        suggested_right=sum(t == s for t, s, _ in said),
        suggested_base=sum(t == b for t, _, b in said),
        level=level,
    )


def weighted_auc(truth: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> float:
    """Area under the curve, ties counted half; a half where one side has no weight.

    >>> weighted_auc(np.array([True, False, True]), np.array([0.9, 0.4, 0.4]), np.ones(3))
    0.75
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) != 0])
    yes = np.add.reduceat(np.where(truth, weights, 0.0)[order], starts)
    no = np.add.reduceat(np.where(truth, 0.0, weights)[order], starts)
    total = yes.sum() * no.sum()
    if total <= 0:
        return 0.5
    below = np.concatenate([[0.0], np.cumsum(no)[:-1]])
    return float((yes * (below + 0.5 * no)).sum() / total)

"""Quality: how well proposed categories agree with what people judged, by cross-validation.

Accuracy says little where one category is most of all: always proposing it already scores well. So
there is kappa, beside the most frequent category. Everything is tested on mistakes whose images no part
of the training has seen. ``benchmarks/mistake_categories.py`` compares more methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.mistakes.categories import (
    MAJOR,
    NO_MISTAKE,
    grouped_folds,
    learn,
    major_or_less,
)
from heldout.measure.mistakes.evidence import EvidenceTable
from heldout.measure.mistakes.verdicts import Key
from heldout.stats.bootstrap import MINIMUM_CLUSTERS, BootstrapEstimate, bootstrap_statistic

LEVEL = 0.95
REPLICATES = 2000
FOLDS = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class CategoryAgreement:
    """Proposed against judged categories.

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


def agreement(
    judged: Sequence[str],
    proposed: Sequence[str],
    images: Sequence[str],
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> CategoryAgreement:
    """Compare proposed categories (n,) with judged ones; mistakes of one image are drawn together."""
    if len(set(images)) < MINIMUM_CLUSTERS:
        raise NotApplicable(
            f"judged mistakes on {len(set(images))} images are too few for an interval",
            fix=f"judge mistakes on at least {MINIMUM_CLUSTERS}",
        )
    names = sorted({*judged, *proposed})
    rows, columns = (np.array([names.index(name) for name in side]) for side in (judged, proposed))

    def counted(weights: np.ndarray) -> np.ndarray:
        cells = np.bincount(rows * len(names) + columns, weights, minlength=len(names) ** 2)
        return cells.reshape(len(names), len(names))

    def both(weights: np.ndarray) -> np.ndarray:
        table = counted(weights)
        return np.array([kappa_of(table), np.trace(table) / table.sum()])

    value, accuracy = both(np.ones(len(judged))).tolist()
    estimate = _drawn(both, images, (-1.0, 1.0), seed, replicates, level)
    low, high = estimate.interval.low, estimate.interval.high
    return CategoryAgreement(
        n=len(judged),
        images=len(set(images)),
        accuracy=accuracy,
        accuracy_low=float(max(low[1], 0.0)),
        accuracy_high=float(high[1]),
        kappa=value if np.ptp(rows) or np.ptp(columns) else None,
        kappa_low=float(low[0]) if np.ptp(columns) else value,
        kappa_high=float(high[0]) if np.ptp(columns) else value,
        level=level,
    )


def _drawn(
    statistic: Callable[[np.ndarray], np.ndarray | float],
    images: Sequence[str],
    bounds: tuple[float, float],
    seed: int,
    replicates: int,
    level: float,
) -> BootstrapEstimate:
    """A statistic of weights with its interval; mistakes of one image are drawn together."""
    return bootstrap_statistic(
        statistic,
        len(images),
        rng=np.random.default_rng(seed),
        replicates=replicates,
        level=level,
        clusters=np.unique(np.array(images), return_inverse=True)[1].reshape(-1),
        takes="weights",
        bounds=bounds,
    )


@dataclass(frozen=True, kw_only=True)
class SeverityQuality:
    """How well the probability of Major tells Major from other mistakes.

    ``auc``  chance that a Major mistake gets the higher of two probabilities; a half is chance
    """

    n: int
    major: int
    auc: float
    auc_low: float
    auc_high: float
    level: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Quality:
    """Proposals tested on mistakes that they were not made from.

    ``majority``  agreement of always proposing the most frequent category of the training mistakes
    ``severity``  None where severity could not be learned
    """

    folds: int
    learned: CategoryAgreement
    majority: CategoryAgreement
    severity: SeverityQuality | None


@dataclass(frozen=True, eq=False)
class JudgedMistakes:
    """JudgedMistakes mistakes with their evidence: ``answers`` are category and severity of each."""

    table: EvidenceTable
    answers: list[tuple[str, str]]

    @classmethod
    def of(cls, table: EvidenceTable, verdicts: Mapping[Key, tuple[str, str]]) -> JudgedMistakes:
        """The judged mistakes of a table, in order of image and prediction, whatever theirs was."""
        keys = table.mistakes.keys
        rows = sorted((r for r, key in enumerate(keys) if key in verdicts), key=keys.__getitem__)
        return cls(table.take(rows), [verdicts[keys[row]] for row in rows])

    def take(self, chosen: np.ndarray) -> JudgedMistakes:
        """Only some of them."""
        rows = np.flatnonzero(chosen).tolist()
        return JudgedMistakes(self.table.take(rows), [self.answers[row] for row in rows])

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def categories(self) -> list[str]:
        """The category of each."""
        return [category for category, _ in self.answers]

    @property
    def severities(self) -> list[str]:
        """The severity of each."""
        return [severity for _, severity in self.answers]

    @property
    def images(self) -> tuple[str, ...]:
        """The image of each."""
        return self.table.mistakes.image_ids

    def folds(self, folds: int, seed: int) -> np.ndarray:
        """The fold of each, (n,); mistakes of one image are in one fold."""
        rng = np.random.default_rng(seed)
        return grouped_folds(self.images, self.categories, folds, rng=rng)


def cross_validate(
    table: EvidenceTable,
    verdicts: Mapping[Key, tuple[str, str]],
    *,
    folds: int = FOLDS,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Quality:
    """Test proposals for judged mistakes by cross-validation over images.

    Each fold's mistakes are proposed from the other folds alone; whatever is tuned is tuned inside
    these.
    """
    judged = JudgedMistakes.of(table, verdicts)
    if len(judged) < 2 * folds:
        raise NotApplicable(
            f"{len(judged)} judged mistakes are too few for {folds} folds",
            fix="judge more, or ask for fewer --folds",
        )
    parts = judged.folds(folds, seed)
    learned = np.empty(len(judged), dtype=object)
    majority = np.empty(len(judged), dtype=object)
    major = np.empty(len(judged))
    for fold in range(folds):
        out = parts == fold
        train, test = judged.take(~out), judged.take(out)
        learned[out] = learned_categories(train, test, seed)
        majority[out] = majority_category(train)
        major[out] = major_probabilities(train, test, seed)
    drawn = (seed, replicates, level)
    return Quality(
        folds=folds,
        learned=agreement(judged.categories, learned.tolist(), judged.images, *drawn),
        majority=agreement(judged.categories, majority.tolist(), judged.images, *drawn),
        severity=severity_quality(judged, major, *drawn),
    )


def majority_category(train: JudgedMistakes) -> str:
    """The most frequent category; of equal ones the first by name."""
    return max(sorted(set(train.categories)), key=train.categories.count)


def learned_categories(train: JudgedMistakes, test: JudgedMistakes, seed: int) -> list[str]:
    """Categories of the test mistakes, learned from the others."""
    learned = learn(train.table, train.categories, seed=seed)
    chosen = learned.choose(learned.probabilities(test.table)).tolist()
    return [
        NO_MISTAKE if same else learned.answers[place]
        for place, same in zip(chosen, test.table.collapsed.tolist(), strict=True)
    ]


def major_probabilities(train: JudgedMistakes, test: JudgedMistakes, seed: int) -> np.ndarray:
    """Probabilities of Major of the test mistakes, (n,); NaN where too few can be learned from."""
    try:
        learned = learn(train.table, major_or_less(train.severities), seed=seed)
    except NotApplicable:
        return np.full(len(test), np.nan)
    return learned.interval(test.table)[0]


def severity_quality(
    judged: JudgedMistakes,
    major: np.ndarray,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> SeverityQuality | None:
    """How well probabilities (n,) tell Major mistakes; None where that cannot be said."""
    truth = np.array([severity == MAJOR for severity in judged.severities])
    few = len(set(judged.images)) < MINIMUM_CLUSTERS
    if few or np.isnan(major).any() or truth.all() or not truth.any():
        return None

    def auc(weights: np.ndarray) -> float:
        return weighted_auc(truth, major, weights)

    estimate = _drawn(auc, judged.images, (0.0, 1.0), seed, replicates, level)
    return SeverityQuality(
        n=len(truth),
        major=int(truth.sum()),
        auc=float(estimate.value),
        auc_low=float(estimate.interval.low),
        auc_high=float(estimate.interval.high),
        level=level,
    )


def kappa_of(table: np.ndarray) -> float:
    """Cohen's kappa of a table (judged, proposed) of counts or weights; 0 where chance is certain."""
    total = table.sum()
    expected = float((table.sum(axis=1) * table.sum(axis=0)).sum() / total**2)
    if expected >= 1.0:
        return 0.0
    return float((np.trace(table) / total - expected) / (1.0 - expected))


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

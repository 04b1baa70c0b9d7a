"""Quality: how well proposed categories agree with what people judged, by cross-validation.

Accuracy says little where one category is most of all: always proposing it already scores well. So
there is kappa, beside the most frequent category. Everything is tested on mistakes whose images no part
of the training has seen. ``benchmarks/mistake_categories.py`` compares more methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.mistakes.categories import (
    FEWEST,
    MAJOR,
    NO_MISTAKE,
    grouped_folds,
    learn,
    learn_severity,
    rows_of_table,
)
from heldout.measure.mistakes.evidence import EvidenceTable
from heldout.stats.bootstrap import MINIMUM_CLUSTERS, bootstrap_statistic

LEVEL = 0.95
REPLICATES = 2000
FOLDS = 10
Key = tuple[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Agreement:
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
    learned: Agreement
    majority: Agreement
    severity: SeverityQuality | None


@dataclass(frozen=True, eq=False)
class Judged:
    """Judged mistakes with their evidence, one entry per mistake in each field."""

    table: EvidenceTable
    categories: list[str]
    severities: list[str]
    images: list[str]

    @classmethod
    def of(cls, table: EvidenceTable, verdicts: Mapping[Key, tuple[str, str]]) -> Judged:
        """The judged mistakes of a table, in order of image and prediction, whatever theirs was."""
        keys = [(m.image_id, m.prediction) for m in table.mistakes]
        rows = sorted((r for r, key in enumerate(keys) if key in verdicts), key=lambda r: keys[r])
        answers = [verdicts[keys[row]] for row in rows]
        return cls(
            rows_of_table(table, rows),
            [category for category, _ in answers],
            [severity for _, severity in answers],
            [keys[row][0] for row in rows],
        )

    def take(self, chosen: np.ndarray) -> Judged:
        """Only some of them."""
        rows = np.flatnonzero(chosen).tolist()
        return Judged(
            rows_of_table(self.table, rows),
            [self.categories[row] for row in rows],
            [self.severities[row] for row in rows],
            [self.images[row] for row in rows],
        )

    def __len__(self) -> int:
        return len(self.categories)


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
    judged = Judged.of(table, verdicts)
    if len(judged) < 2 * folds:
        raise NotApplicable(
            f"{len(judged)} judged mistakes are too few for {folds} folds",
            fix="judge more, or ask for fewer --folds",
        )
    parts = fold_of_each(judged, folds, seed)
    learned = np.empty(len(judged), dtype=object)
    majority = np.empty(len(judged), dtype=object)
    major = MajorProbabilities(len(judged))
    for fold in range(folds):
        out = parts == fold
        train, test = judged.take(~out), judged.take(out)
        learned[out] = learned_categories(train, test, seed)
        majority[out] = majority_category(train)
        major.fill(out, train, test, seed)

    def agreed(proposed: np.ndarray) -> Agreement:
        return agreement(
            judged.categories,
            proposed.tolist(),
            judged.images,
            seed=seed,
            replicates=replicates,
            level=level,
        )

    return Quality(
        folds=folds,
        learned=agreed(learned),
        majority=agreed(majority),
        severity=major.quality(judged, seed=seed, replicates=replicates, level=level),
    )


def fold_of_each(judged: Judged, folds: int, seed: int) -> np.ndarray:
    """The fold of each mistake, (n,); mistakes of one image are in one fold."""
    rng = np.random.default_rng(seed)
    return grouped_folds(judged.images, judged.categories, folds, rng=rng)


def majority_category(train: Judged) -> str:
    """The most frequent category; of equal ones the first by name."""
    return max(sorted(set(train.categories)), key=train.categories.count)


def learned_categories(train: Judged, test: Judged, seed: int) -> list[str]:
    """Categories of the test mistakes, learned from the others."""
    learned = learn(train.table, train.categories, seed=seed)
    chosen = learned.choose(learned.probabilities(test.table)).tolist()
    names = [learned.categories[place] for place in chosen]
    collapsed = test.table.collapsed.tolist()
    return [NO_MISTAKE if same else name for name, same in zip(names, collapsed, strict=True)]


class MajorProbabilities:
    """Probabilities of Major, filled fold by fold."""

    def __init__(self, n: int) -> None:
        self.values = np.full(n, np.nan)

    def fill(self, out: np.ndarray, train: Judged, test: Judged, seed: int) -> None:
        """Those of the mistakes ``out``, which are the test; nothing where too few can be learned from."""
        kinds, values = train.table.features()
        major = [severity == MAJOR for severity in train.severities]
        if min(sum(major), len(major) - sum(major)) < FEWEST:
            return
        model = learn_severity(kinds, values, train.images, train.severities, seed=seed)
        self.values[out] = model.suggest(test.table)[0]

    def quality(
        self,
        judged: Judged,
        *,
        seed: int = 0,
        replicates: int = REPLICATES,
        level: float = LEVEL,
    ) -> SeverityQuality | None:
        """How well they tell Major mistakes; None where that cannot be said."""
        truth = np.array([severity == MAJOR for severity in judged.severities])
        _, clusters = np.unique(np.array(judged.images), return_inverse=True)
        few = len(set(judged.images)) < MINIMUM_CLUSTERS
        if few or np.isnan(self.values).any() or truth.all() or not truth.any():
            return None
        estimate = bootstrap_statistic(
            lambda weights: weighted_auc(truth, self.values, weights),
            len(truth),
            rng=np.random.default_rng(seed),
            replicates=replicates,
            level=level,
            clusters=clusters.reshape(-1),
            takes="weights",
            bounds=(0.0, 1.0),
        )
        return SeverityQuality(
            n=len(truth),
            major=int(truth.sum()),
            auc=float(estimate.value),
            auc_low=float(estimate.interval.low),
            auc_high=float(estimate.interval.high),
            level=level,
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

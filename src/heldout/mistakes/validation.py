"""Validation: proposals for judged mistakes that nothing was tuned on, beside baselines.

``majority``     the most frequent category of the training mistakes, always
``rules``        the thresholds that come along, without looking at any judgement
``tuned rules``  thresholds, and the category of what no rule explains, chosen on the training mistakes
``learned``      the regression; its ridge and balance are chosen inside the training mistakes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from heldout.errors import NotApplicable
from heldout.mistakes.categories import NO_MISTAKE, OTHER
from heldout.mistakes.evidence import EvidenceTable
from heldout.mistakes.folds import grouped_folds
from heldout.mistakes.learning import FEWEST, learn
from heldout.mistakes.proposals import rows_of_table
from heldout.mistakes.quality import (
    LEVEL,
    REPLICATES,
    Agreement,
    SeverityQuality,
    agreement,
    kappa_of,
    severity_quality,
)
from heldout.mistakes.rules import Rules, rule_categories
from heldout.mistakes.severity import MAJOR, learn_severity, suggested
from heldout.stats import MINIMUM_CLUSTERS

METHODS = ("majority", "rules", "tuned rules", "learned")
FOLDS = 10
Key = tuple[str, str]
_GRID = {
    "lca_size": (2.0, 5.0, 10.0, 25.0, 50.0, 100.0),
    "affinity": (0.05, 0.1, 0.2, 0.3, 0.5),
    "cooccurrence": (1.0, 2.0, 5.0),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Validation:
    """Proposals tested on mistakes that they were not made from.

    ``test``        how: ``cross-validation``, or the name of a second list of mistakes
    ``methods``     agreement by method
    ``kappas``      the learned method's kappa over several partitions into folds; empty where there
                    is but one way to test
    ``severity``    None where severity could not be learned
    ``left_out``    mistakes of the test that were left out, because training has seen their images
    """

    test: str
    folds: int
    trained: int
    methods: Mapping[str, Agreement]
    kappas: tuple[float, ...] = ()
    severity: SeverityQuality | None = None
    left_out: int = 0


@dataclass(frozen=True, eq=False)
class _Judged:
    table: EvidenceTable
    categories: list[str]
    severities: list[str]
    images: list[str]

    @classmethod
    def of(cls, table: EvidenceTable, verdicts: Mapping[Key, tuple[str, str]]) -> _Judged:
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

    def take(self, chosen: np.ndarray) -> _Judged:
        rows = np.flatnonzero(chosen).tolist()
        return _Judged(
            rows_of_table(self.table, rows),
            [self.categories[row] for row in rows],
            [self.severities[row] for row in rows],
            [self.images[row] for row in rows],
        )

    def __len__(self) -> int:
        return len(self.categories)


@dataclass(frozen=True)
class _Drawing:
    """How intervals are drawn."""

    seed: int
    replicates: int
    level: float

    def agreement(self, judged: _Judged, proposed: Sequence[str]) -> Agreement:
        return agreement(
            judged.categories,
            proposed,
            judged.images,
            seed=self.seed,
            replicates=self.replicates,
            level=self.level,
        )


def cross_validate(
    table: EvidenceTable,
    verdicts: Mapping[Key, tuple[str, str]],
    *,
    folds: int = FOLDS,
    partitions: int = 5,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Validation:
    """Test proposals for judged mistakes by cross-validation over images.

    Each fold's mistakes are proposed from the other folds alone; whatever is tuned is tuned inside
    these. ``partitions`` further ways to cut folds say how much hangs on the cut.
    """
    judged = _Judged.of(table, verdicts)
    if len(judged) < 2 * folds:
        raise NotApplicable(
            f"{len(judged)} judged mistakes are too few for {folds} folds",
            fix="judge more, or ask for fewer --folds",
        )
    parts = _parts(judged, folds, seed)
    found: dict[str, list[str]] = {name: [""] * len(judged) for name in METHODS}
    major = _Major.empty(len(judged))
    for fold in range(folds):
        out = parts == fold
        train, test = judged.take(~out), judged.take(out)
        for name, answers in _proposed(train, test, seed).items():
            for row, answer in zip(np.flatnonzero(out).tolist(), answers, strict=True):
                found[name][row] = answer
        major.fill(out, train, test, seed)
    kappas = [_learned_kappa(judged, folds, seed + 1 + turn) for turn in range(partitions)]
    drawn = _Drawing(seed, replicates, level)
    return Validation(
        test="cross-validation",
        folds=folds,
        trained=len(judged),
        methods={name: drawn.agreement(judged, answers) for name, answers in found.items()},
        kappas=tuple(kappas),
        severity=major.quality(judged, drawn),
    )


def validate_on(
    table: EvidenceTable,
    verdicts: Mapping[Key, tuple[str, str]],
    second: EvidenceTable,
    second_verdicts: Mapping[Key, tuple[str, str]],
    *,
    name: str,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Validation:
    """Train on all judged mistakes of ``table``; test on those of ``second`` whose images are not there."""
    train, test = _Judged.of(table, verdicts), _Judged.of(second, second_verdicts)
    seen = set(train.images)
    fresh = np.array([image not in seen for image in test.images], dtype=bool)
    kept = test.take(fresh)
    if len(set(kept.images)) < MINIMUM_CLUSTERS:
        raise NotApplicable(
            f"{name} has {len(kept)} judged mistakes on images that training has not seen",
            fix=f"give a list with at least {MINIMUM_CLUSTERS} such images",
        )
    major = _Major.empty(len(kept))
    major.fill(np.ones(len(kept), dtype=bool), train, kept, seed)
    drawn = _Drawing(seed, replicates, level)
    return Validation(
        test=name,
        folds=1,
        trained=len(train),
        methods={
            method: drawn.agreement(kept, answers)
            for method, answers in _proposed(train, kept, seed).items()
        },
        severity=major.quality(kept, drawn),
        left_out=len(test) - len(kept),
    )


def _parts(judged: _Judged, folds: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return grouped_folds(judged.images, judged.categories, folds, rng=rng)


def _proposed(train: _Judged, test: _Judged, seed: int) -> dict[str, list[str]]:
    count = {name: train.categories.count(name) for name in sorted(set(train.categories))}
    majority = max(count, key=lambda name: count[name])
    rules, fallback = tuned_rules(train.table, train.categories)
    return {
        "majority": [majority] * len(test),
        "rules": list(rule_categories(test.table)),
        "tuned rules": _with_fallback(rule_categories(test.table, rules), fallback),
        "learned": _learned(train, test, seed),
    }


def _learned(train: _Judged, test: _Judged, seed: int) -> list[str]:
    learned = learn(train.table, train.categories, seed=seed)
    chosen = learned.choose(learned.probabilities(test.table)).tolist()
    names = [learned.categories[place] for place in chosen]
    collapsed = test.table.collapsed.tolist()
    return [NO_MISTAKE if same else name for name, same in zip(names, collapsed, strict=True)]


def _learned_kappa(judged: _Judged, folds: int, seed: int) -> float:
    parts = _parts(judged, folds, seed)
    names = sorted({*judged.categories, NO_MISTAKE})
    counts = np.zeros((len(names), len(names)))
    for fold in range(folds):
        out = parts == fold
        test = judged.take(out)
        guessed = _learned(judged.take(~out), test, seed)
        for mine, theirs in zip(test.categories, guessed, strict=True):
            counts[names.index(mine), names.index(theirs)] += 1
    return kappa_of(counts)


def tuned_rules(table: EvidenceTable, categories: Sequence[str]) -> tuple[Rules, str]:
    """Thresholds and the category of what no rule explains, of highest kappa on judged mistakes.

    Of equal ones the first of the grid.
    """
    names = sorted({*categories, OTHER})
    best: tuple[float, Rules, str] | None = None
    for values in product(*_GRID.values()):
        rules = Rules(**dict(zip(_GRID, values, strict=True)))
        given = rule_categories(table, rules)
        for fallback in names:
            guessed = _with_fallback(given, fallback)
            value = _kappa(categories, guessed)
            if best is None or value > best[0] + 1e-12:
                best = (value, rules, fallback)
    if best is None:
        raise NotApplicable("no judged mistakes to tune rules on", fix="judge some")
    return best[1], best[2]


def _with_fallback(categories: Sequence[str], fallback: str) -> list[str]:
    return [fallback if name == OTHER else name for name in categories]


def _kappa(judged: Sequence[str], proposed: Sequence[str]) -> float:
    names = sorted({*judged, *proposed})
    place = {name: code for code, name in enumerate(names)}
    cells = np.array(
        [place[a] * len(names) + place[b] for a, b in zip(judged, proposed, strict=True)]
    )
    counts = np.bincount(cells, minlength=len(names) ** 2)
    return kappa_of(counts.reshape(len(names), len(names)))


@dataclass(eq=False)
class _Major:
    """Probabilities of Major, filled fold by fold."""

    probability: np.ndarray
    base: np.ndarray
    suggestions: list[bool | None]

    @classmethod
    def empty(cls, n: int) -> _Major:
        return cls(np.full(n, np.nan), np.full(n, np.nan), [None] * n)

    def fill(self, out: np.ndarray, train: _Judged, test: _Judged, seed: int) -> None:
        kinds, values = train.table.features()
        major = [severity == MAJOR for severity in train.severities]
        if min(sum(major), len(major) - sum(major)) < FEWEST:
            return
        model = learn_severity(kinds, values, train.images, train.severities, seed=seed)
        probability, low, high = model.suggest(test.table)
        self.probability[out], self.base[out] = probability, model.share
        for place, row in enumerate(np.flatnonzero(out).tolist()):
            said = suggested(float(low[place]), float(high[place]))
            self.suggestions[row] = None if said is None else said == MAJOR

    def quality(self, judged: _Judged, drawn: _Drawing) -> SeverityQuality | None:
        truth = np.array([severity == MAJOR for severity in judged.severities])
        few = len(set(judged.images)) < MINIMUM_CLUSTERS
        if few or np.isnan(self.probability).any() or truth.all() or not truth.any():
            return None
        return severity_quality(
            truth,
            self.probability,
            self.base,
            self.suggestions,
            judged.images,
            seed=drawn.seed,
            replicates=drawn.replicates,
            level=drawn.level,
        )

"""How mistake categories are proposed, method by method: the study behind ``mistakes propose``.

``majority``     the most frequent category of the training mistakes, always
``rules``        the thresholds that come along, without looking at any judgement
``tuned rules``  thresholds, and the category of what no rule explains, chosen on the training mistakes
``learned``      the regression; its ridge and balance are chosen inside the training mistakes

Cross-validated over images on ViT-3B's published mistakes, with further partitions into folds; then
learned from all of them and tested on the images of a second list that are not among theirs.

Run: ``python benchmarks/mistake_categories.py`` with the published data at ../shared/data (or
``--data FOLDER``). Writes benchmarks/results/mistake_categories.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.mistakes.categories import (
    MAJOR,
    NO_MISTAKE,
    ORDER,
    OTHER,
    Rules,
    first_that_holds,
    grouped_folds,
    learn,
    major_or_less,
    strengths,
)
from heldout.measure.mistakes.evidence import EvidenceTable, evidence_table
from heldout.measure.mistakes.verdicts import Key
from heldout.stats.bootstrap import MINIMUM_CLUSTERS, BootstrapEstimate, bootstrap_statistic
from heldout.stats.intervals import wilson
from machine import describe, write_result

SET = "imagenet-validation-original"
METHODS = ("majority", "rules", "tuned rules", "learned")
PARTITIONS = 5
FOLDS = 10
LEVEL = 0.95
REPLICATES = 2000
_GRID = {
    "lca_size": (2.0, 5.0, 10.0, 25.0, 50.0, 100.0),
    "affinity": (0.05, 0.1, 0.2, 0.3, 0.5),
    "cooccurrence": (1.0, 2.0, 5.0),
}


@dataclass(frozen=True, eq=False)
class JudgedMistakes:
    """Judged mistakes with their evidence: ``answers`` are category and severity of each."""

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


def rule_categories(table: EvidenceTable, rules: Rules | None = None) -> tuple[str, ...]:
    """The category that the rules give each mistake."""
    return tuple(ORDER[place] for place in first_that_holds(strengths(table, rules)).tolist())


def tuned_rules(table: EvidenceTable, categories: Sequence[str]) -> tuple[Rules, str]:
    """Thresholds and the category of what no rule explains, of highest kappa on judged mistakes.

    Of equal ones the first of the grid.
    """
    names = sorted({*categories, OTHER})
    best = (-2.0, Rules(), OTHER)
    for values in product(*_GRID.values()):
        rules = Rules(**dict(zip(_GRID, values, strict=True)))
        given = rule_categories(table, rules)
        for fallback in names:
            value = kappa_of(counted(categories, with_fallback(given, fallback))[1])
            if value > best[0] + 1e-12:
                best = (value, rules, fallback)
    return best[1], best[2]


def with_fallback(categories: Sequence[str], fallback: str) -> list[str]:
    """Another name for what no rule explains."""
    return [fallback if name == OTHER else name for name in categories]


def counted(judged: Sequence[str], proposed: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Categories, and how often each judged one was proposed as each."""
    names = sorted({*judged, *proposed})
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for mine, theirs in zip(judged, proposed, strict=True):
        counts[names.index(mine), names.index(theirs)] += 1
    return names, counts


def proposed_by(train: JudgedMistakes, test: JudgedMistakes, seed: int) -> dict[str, list[str]]:
    """What every method says of the test mistakes."""
    rules, fallback = tuned_rules(train.table, train.categories)
    return {
        "majority": [majority_category(train)] * len(test),
        "rules": list(rule_categories(test.table)),
        "tuned rules": with_fallback(rule_categories(test.table, rules), fallback),
        "learned": learned_categories(train, test, seed),
    }


def cross_validated(judged: JudgedMistakes, seed: int) -> tuple[dict[str, list[str]], np.ndarray]:
    """What every method says of mistakes that it was not made from."""
    parts = judged.folds(FOLDS, seed)
    found: dict[str, list[str]] = {name: [""] * len(judged) for name in METHODS}
    major = np.empty(len(judged))
    for fold in range(FOLDS):
        out = parts == fold
        train, test = judged.take(~out), judged.take(out)
        for name, answers in proposed_by(train, test, seed).items():
            for row, answer in zip(np.flatnonzero(out).tolist(), answers, strict=True):
                found[name][row] = answer
        major[out] = major_probabilities(train, test, seed)
    return found, major


def learned_kappa(judged: JudgedMistakes, seed: int) -> float:
    """The learned method's kappa over one more partition."""
    parts = judged.folds(FOLDS, seed)
    answers = [""] * len(judged)
    for fold in range(FOLDS):
        out = parts == fold
        given = learned_categories(judged.take(~out), judged.take(out), seed)
        for row, answer in zip(np.flatnonzero(out).tolist(), given, strict=True):
            answers[row] = answer
    return kappa_of(counted(judged.categories, answers)[1])


def section(
    title: str, judged: JudgedMistakes, found: Mapping[str, Sequence[str]], major: np.ndarray
) -> list[str]:
    """The tables of one test."""
    lines = [f"## {title}", "", "| method | agree | kappa |", "|---|---:|---|"]
    for name, answers in found.items():
        item = agreement(judged.categories, answers, judged.images)
        ends = f"[{item.kappa_low:.2f}, {item.kappa_high:.2f}]"
        lines.append(f"| {name} | {item.accuracy:.1%} | {item.kappa or 0.0:.3f} {ends} |")
    names, counts = counted(judged.categories, found["learned"])
    lines += ["", "| learned | judged | recall | precision |", "|---|---:|---|---:|"]
    for place, name in enumerate(names):
        all_judged, all_proposed = int(counts[place].sum()), int(counts[:, place].sum())
        both = int(counts[place, place])
        recall, precision = "", ""
        if all_judged:
            ends_of = wilson(both, all_judged)
            recall = f"{both / all_judged:.0%} [{ends_of.low:.0%}, {ends_of.high:.0%}]"
        if all_proposed:
            precision = f"{both / all_proposed:.0%}"
        lines.append(f"| {name} | {all_judged} | {recall} | {precision} |")
    lines += ["", f"| judged | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    lines += [
        f"| {name} | {' | '.join(map(str, counts[place]))} |"
        for place, name in enumerate(names)
        if counts[place].any()
    ]
    severity = severity_quality(judged, major)
    if severity is not None:
        lines += [
            "",
            f"Severity: {severity.major} of {severity.n} Major, AUC {severity.auc:.3f} "
            f"[{severity.auc_low:.2f}, {severity.auc_high:.2f}].",
        ]
    return [*lines, ""]


def gathered(place: Path, data: Path, seed: int) -> tuple[JudgedMistakes, JudgedMistakes, int]:
    """The judged mistakes of the first list, those of the second on other images, and how many not."""
    from heldout.cli.app import invoke
    from heldout.core.context import Context
    from heldout.measure.mistakes.inputs import read_inputs
    from heldout.measure.mistakes.requests import ProposeRequest
    from heldout.measure.mistakes.review_verbs import gathered as knowledge_of
    from heldout.measure.mistakes.review_verbs import judged_answers, located

    published, mistakes = data / "imagenetv2", data / "mistakes"
    order = published / "datasets" / f"{SET}.json"
    os.chdir(place)
    for arguments in (
        ("import", "testset", order),
        ("import", "truth", mistakes / "multilabel.csv", "-t", SET, "--name", "multilabel"),
        ("import", "truth", mistakes / "real/real.json", "-t", SET, "--name", "real"),
        ("import", "predictions", published / "predictions" / SET, "-t", SET, "--order", order),
    ):
        if invoke([str(argument) for argument in arguments]):
            raise SystemExit(f"{arguments[1]} could not be imported")
    request = ProposeRequest(testset=SET, truth="multilabel", peers=("all",), seen_together="real")
    inputs = read_inputs(request, Context())
    files = [f"{name}_mistakes.json" for name in ("vit3b", "greedy_soups")]
    lists = [judged_answers(inputs, [str(mistakes / name)])[name] for name in files]
    found = [located(inputs, verdicts, where="published") for verdicts in lists]
    knowledge = knowledge_of(inputs, request, found)
    first, second = (
        JudgedMistakes.of(evidence_table(group, knowledge), verdicts)
        for group, verdicts in zip(found, lists, strict=True)
    )
    seen = set(first.images)
    fresh = second.take(np.array([image not in seen for image in second.images]))
    return first, fresh, len(second) - len(fresh)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path.cwd()
        first, fresh, left_out = gathered(Path(folder), options.data.resolve(), options.seed)
        os.chdir(home)
    found, major = cross_validated(first, options.seed)
    lines = ["# Proposed mistake categories", "", f"{describe('numpy')}.", ""]
    lines += section(f"ViT-3B, cross-validation in {FOLDS} folds", first, found, major)
    kappas = [learned_kappa(first, options.seed + 1 + turn) for turn in range(PARTITIONS)]
    lines += [f"{PARTITIONS} other partitions: kappa {min(kappas):.3f} to {max(kappas):.3f}.", ""]
    later = major_probabilities(first, fresh, options.seed)
    title = f"Greedy Soups, {left_out} mistakes on the first list's images left out"
    lines += section(title, fresh, proposed_by(first, fresh, options.seed), later)
    write_result("mistake_categories", "\n".join(lines))


if __name__ == "__main__":
    main()

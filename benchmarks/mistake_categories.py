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
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from heldout.measure.mistakes.categories import OTHER, Rules, rule_categories
from heldout.measure.mistakes.evidence import EvidenceTable, evidence_table
from heldout.measure.mistakes.quality import (
    FOLDS,
    JudgedMistakes,
    agreement,
    kappa_of,
    learned_categories,
    major_probabilities,
    majority_category,
    severity_quality,
)
from heldout.stats.intervals import wilson
from machine import describe, write_result

SET = "imagenet-validation-original"
METHODS = ("majority", "rules", "tuned rules", "learned")
PARTITIONS = 5
_GRID = {
    "lca_size": (2.0, 5.0, 10.0, 25.0, 50.0, 100.0),
    "affinity": (0.05, 0.1, 0.2, 0.3, 0.5),
    "cooccurrence": (1.0, 2.0, 5.0),
}


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
    from heldout.measure.mistakes.requests import Propose
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
    request = Propose(testset=SET, truth="multilabel")
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

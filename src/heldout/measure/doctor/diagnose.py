"""Diagnosis: every check on a test set and on the models that were run on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.doctor.alignment import (
    AlignedOutputs,
    align,
    align_array,
    judged_by,
    single_labels,
)
from heldout.measure.doctor.findings import Finding
from heldout.measure.doctor.id_checks import (
    Step,
    check_known,
    check_permuted,
    check_range,
    check_reversed,
)
from heldout.measure.doctor.output_checks import (
    check_chance,
    check_collapse,
    check_perfect,
    check_rows,
    check_spaces,
)
from heldout.measure.doctor.significance import ALPHA, p_better
from heldout.measure.doctor.testset_checks import check_classes, check_files, check_folders
from heldout.models.predictions import Predictions

MOST_IDS = 1 << 17
"""Ids above this are not treated as class ids."""


def diagnose(
    testset: TestSet,
    predictions: Predictions | Iterable[Predictions] = (),
    *,
    truth: str | None = None,
    cheap: bool = False,
    hashes: Mapping[str, str] | None = None,
) -> list[Finding]:
    """What is wrong with a test set, and with models' outputs on it; worst first.

    Predictions may come from a generator: each is dropped before the next is asked for.

    ``truth``  the truth to judge by; the first single-label one by default
    ``cheap``  leave out what is seldom wrong and takes long: files, and exchanged classes of
               models that are otherwise right
    ``hashes`` hashes of the models' outputs by name, where they are known already
    """
    models = [predictions] if isinstance(predictions, Predictions) else predictions
    labels = single_labels(testset, truth)
    findings = [] if cheap else check_files(testset, labels)
    findings += check_classes(testset, judged_by(testset, truth))
    findings += check_folders(testset, labels)
    by_model: list[list[Finding]] = []
    outputs: list[tuple[str, str]] = []
    for model in models:
        case = align(testset, model, labels=labels)
        by_model.append(diagnose_case(case, cheap=cheap))
        outputs.append((model.model, (hashes or {}).get(model.model) or model.hash))
    findings += [finding for found in _blamed(by_model) for finding in found]
    findings += _same_outputs(testset, outputs)
    return worst_first(findings)


def diagnose_array(
    testset: TestSet,
    topk: Any,
    *,
    model: str = "outputs",
    order: str = "testset",
    label_space: LabelSpace | None = None,
    truth: str | None = None,
    cheap: bool = False,
) -> list[Finding]:
    """What is wrong with an array of class ids that may be too wrong to import; worst first.

    ``topk``         int (n,) or (n, k), best first, ids perhaps outside the label space
    ``order``        the order that its rows are said to have, as for importing
    ``label_space``  in which its ids are said to be; the test set's by default
    """
    case = align_array(
        testset, topk, model=model, order=order, label_space=label_space, truth=truth
    )
    return worst_first(diagnose_case(case, cheap=cheap))


def diagnose_case(case: AlignedOutputs, *, cheap: bool = False) -> list[Finding]:
    """Every check on one model. Each looks at the outputs as earlier repairs leave them."""
    # Ids far beyond any list of classes, such as numbers of images, mean no class whatever is tried.
    positions = min(int(case.topk.max(initial=-1)) + 1, MOST_IDS)
    if positions > len(case.relabel):
        more = np.full(positions - len(case.relabel), -1, dtype=np.int64)
        case = case.reread(np.concatenate([case.relabel, more]))
    findings, case = check_range(case)
    if case.ranks < case.topk.shape[1]:  # few classes: the first ranks must be the best ones
        found, case = check_reversed(case)
        findings += found
    found, case = _miscounted_or_misordered(case)
    findings += found
    most_hit = 2 * int(case.hits().sum()) > case.n
    if case.n and not (cheap and most_hit):
        found, case = check_permuted(case)
        findings += found
    found, case = check_reversed(case)
    findings += found
    collapsed = check_collapse(case)
    findings += collapsed
    if not any(finding.code == "constant-predictions" for finding in collapsed):
        findings += check_chance(case)
    findings += check_perfect(case)
    if all(f.relabel is None for f in findings):
        findings += check_spaces(case)  # of ids that mean what they say
    return findings


def _miscounted_or_misordered(case: AlignedOutputs) -> Step:
    """Known miscounts of classes and known orders of rows, the better explanation first.

    In a set that is sorted by class, rows in another order of classes and miscounted classes are
    the same thing seen twice: then the classes are named, and the evidence says so.
    """
    if 2 * int(case.hits().sum()) > case.n:
        return check_known(case)
    by_rows, rows_case = check_rows(case)
    by_ids, ids_case = check_known(case)
    if by_rows and by_ids and p_better(rows_case.hits(), ids_case.hits()) >= ALPHA:
        order = str(by_rows[0].evidence["order"])
        by_ids = [replace(f, evidence={**f.evidence, "or_rows_in_order": order}) for f in by_ids]
        return by_ids, ids_case
    if by_rows:
        more, last = check_known(rows_case)
        return by_rows + more, last
    return by_ids, ids_case


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings, then notes; in the order found within each."""
    rank = {"error": 0, "warning": 1, "note": 2}
    return sorted(findings, key=lambda finding: rank[finding.severity])


def _blamed(by_model: Sequence[list[Finding]]) -> list[list[Finding]]:
    """Where several models all need the same relabelling, the test set is the likelier culprit."""
    relabels = [[f.relabel for f in found if f.relabel is not None] for found in by_model]
    if len(by_model) < 2 or any(len(found) != 1 for found in relabels):
        return list(by_model)
    if not all(np.array_equal(found[0], relabels[0][0]) for found in relabels):
        return list(by_model)
    text = f"; all {len(by_model)} models show it, so the labels of the test set are at fault"

    def blamed(f: Finding) -> Finding:
        if f.relabel is None:
            return f
        return replace(f, message=f.message + text, evidence=f.evidence | {"models": len(by_model)})

    return [[blamed(f) for f in found] for found in by_model]


def _same_outputs(testset: TestSet, outputs: Sequence[tuple[str, str]]) -> list[Finding]:
    """Models of different names with equal outputs on every image; ``outputs`` name and hash."""
    first: dict[str, str] = {}
    findings = []
    for model, digest in outputs:
        known = first.setdefault(digest, model)
        if known != model:
            findings.append(
                Finding(
                    "same-outputs",
                    f"{model} and {known} have the same outputs on all {len(testset):,} images",
                    {"n": len(testset), "other": known},
                    "check that each file is of the model that it is named after",
                    testset.name,
                    model,
                )
            )
    return findings

"""Diagnosis: every check on a test set and on the models that were run on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from heldout.core.errors import MismatchError, UserError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.doctor.alignment import (
    AlignedOutputs,
    align,
    rows_in_order,
    shared_reading,
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
    check_perfect,
    check_probabilities,
    check_rows,
    check_spaces,
)
from heldout.measure.doctor.significance import ALPHA, p_better
from heldout.measure.doctor.testset_checks import check_folders
from heldout.models.predictions import Predictions

MOST_IDS = 1 << 17
"""Ids above this are not treated as class ids."""


def diagnose(
    testset: TestSet,
    predictions: Predictions | Iterable[Predictions] = (),
    *,
    truth: str | None = None,
    cheap: bool = False,
) -> list[Finding]:
    """What is wrong with a test set, and with models' outputs on it; worst first.

    Predictions may come from a generator: each is dropped before the next is asked for.

    ``truth``  the truth to judge by; the first single-label one by default
    ``cheap``  leave out what is seldom wrong and takes long: exchanged classes of models that are
               otherwise right
    """
    models = [predictions] if isinstance(predictions, Predictions) else predictions
    labels = single_labels(testset, truth)
    findings = check_folders(testset, labels)
    first: dict[str, str] = {}  # the model whose outputs are seen first, by their hash
    same = []
    for model in models:
        case = align(testset, model, labels=labels)
        findings += diagnose_case(case, cheap=cheap)
        if model.logits is not None:
            findings += check_probabilities(model.logits, testset=testset.name, model=model.model)
        known = first.setdefault(model.hash, model.model)
        if known != model.model:
            same.append(
                case.finding(
                    "same-outputs",
                    f"{model.model} and {known} have the same outputs on all {len(testset):,} images",
                    {"n": len(testset), "other": known},
                    "check that each file is of the model that it is named after",
                )
            )
    return worst_first([*findings, *same])


def diagnose_array(
    testset: TestSet,
    topk: Any,
    *,
    model: str = "outputs",
    order: str = "testset",
    label_space: LabelSpace | None = None,
    truth: str | None = None,
) -> list[Finding]:
    """What is wrong with an array of class ids that may be too wrong to import; worst first.

    ``topk``         int (n,) or (n, k), best first, ids perhaps outside the label space
    ``order``        the order that its rows are said to have, as for importing
    ``label_space``  in which its ids are said to be; the test set's by default
    """
    values = np.asarray(topk)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not np.issubdtype(values.dtype, np.integer):
        raise UserError(
            f"outputs of {model} have shape {values.shape} and type {values.dtype}",
            fix="give class ids: whole numbers, one row per image",
        )
    stated = rows_in_order(testset, order)
    if len(values) != len(stated):
        raise MismatchError(
            f"outputs of {model} have {len(values)} rows, the order {order!r} of {testset.name} "
            f"has {len(stated)} images",
            fix="these are outputs on another set",
        )
    space = label_space or testset.label_space
    laid = np.full((len(testset), values.shape[1]), -1, np.int64)
    laid[stated[stated >= 0]] = values[stated >= 0]
    case = AlignedOutputs(
        testset=testset,
        model=model,
        labels=single_labels(testset, truth),
        topk=laid,
        space=space,
        relabel=shared_reading(space, testset.label_space),
        order=order,
    )
    return worst_first(diagnose_case(case))


def diagnose_case(case: AlignedOutputs, *, cheap: bool = False) -> list[Finding]:
    """Every check on one model. Each looks at the outputs as earlier findings read them."""
    # Ids far beyond any list of classes, such as numbers of images, mean no class whatever is tried.
    positions = min(int(case.topk.max(initial=-1)) + 1, MOST_IDS)
    if positions > len(case.relabel):
        more = np.full(positions - len(case.relabel), -1, dtype=np.int64)
        case = case.reread(np.concatenate([case.relabel, more]))
    plain = case.relabel
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
    findings += check_chance(case)
    findings += check_perfect(case)
    if case.relabel is plain:
        findings += check_spaces(case)  # of ids that mean what they say
    return findings


def _miscounted_or_misordered(case: AlignedOutputs) -> Step:
    """Known miscounts of classes and known orders of rows, the better explanation first.

    In a set that is sorted by class, rows in another order of classes and miscounted classes are
    the same thing seen twice: then the classes are named.
    """
    if 2 * int(case.hits().sum()) > case.n:
        return check_known(case)
    by_rows, rows_case = check_rows(case)
    by_ids, ids_case = check_known(case)
    if by_ids and p_better(rows_case.hits(), ids_case.hits()) >= ALPHA:
        return by_ids, ids_case
    more, last = check_known(rows_case) if by_rows else ([], case)
    return by_rows + more, last


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings, then notes; in the order found within each."""
    rank = {"error": 0, "warning": 1, "note": 2}
    return sorted(findings, key=lambda finding: rank[finding.severity])

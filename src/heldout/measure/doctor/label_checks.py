"""Checks of class ids: reversed columns, miscounted classes, other label spaces, permutations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heldout.measure.doctor.case import Case, read
from heldout.measure.doctor.evidence import (
    ALPHA,
    beats,
    by_chance,
    expected_hits,
    first_hits,
    hits_of,
)
from heldout.measure.doctor.finding import Evidence, Finding, Repair, percent
from heldout.measure.doctor.permutation import FEW, MANY, find_permutations, sure
from heldout.measure.doctor.readings import Reading, known_readings
from heldout.models.predictions.arrays import looks_reversed

Step = tuple[list[Finding], Case]
"""Findings, and the case as it would be after their repairs: later checks look at that."""

FLOOR = 0.1
"""Share of the images that a reading must hit before it is taken for the right one."""
SURE_OF_KNOWN = 0.15
"""As ``sure`` of :mod:`heldout.measure.doctor.permutation`, for known orders of many classes: few to try."""


def check_reversed(case: Case, *, alpha: float = ALPHA) -> Step:
    """Columns stored worst first."""
    if not looks_reversed(case.guesses, case.labels, alpha=alpha):
        return [], case
    first, last = case.accuracy(), case.accuracy(column=-1)
    finding = case.finding(
        "reversed-topk",
        f"the first column is right for {percent(first)} of the images, the last for "
        f"{percent(last)}: columns are stored worst first",
        evidence={"n": case.n, "top1_as_given": first, "top1_repaired": last},
        fix="import the file again without --no-repair, which turns such columns round",
        repair=Repair(reverse=True),
    )
    return [finding], case.turned()


def check_range(case: Case) -> Step:
    """Ids that the label space does not have; the other checks say what they mean."""
    outside = (case.topk >= len(case.space)) | (case.topk < -1)
    if not outside.any():
        return [], case
    largest = int(case.topk.max())
    finding = case.finding(
        "ids-out-of-range",
        f"{int(outside.any(axis=1).sum()):,} of {len(case.topk):,} rows have class ids "
        f"outside 0..{len(case.space) - 1}, up to {largest}",
        evidence={
            "rows": int(outside.any(axis=1).sum()),
            "smallest": int(case.topk.min()),
            "largest": largest,
            "classes": len(case.space),
        },
        fix="name the model's label space with --classes, or mend the ids as the next finding says",
    )
    return [finding], case


def check_known(case: Case, *, alpha: float = ALPHA) -> Step:
    """Ids that are counted in a known wrong way."""
    readings = known_readings(
        case.space, case.testset.label_space, case.labels, positions=len(case.relabel)
    )
    both_ends = case.ranks == case.topk.shape[1]
    outer = case.topk[:, [0, -1]]
    given = int(first_hits(case.guesses, case.labels, both_ends=both_ends).sum())
    best: tuple[int, Reading, float] | None = None
    for reading in readings:
        first = first_hits(read(outer, reading.relabel), case.labels, both_ends=both_ends)
        if int(first.sum()) <= given:
            continue  # it cannot beat the reading as given
        guesses = read(case.topk, reading.relabel)
        total = int(hits_of(guesses[:, : case.ranks], case.labels).sum())
        if best is not None and total <= best[0]:
            continue
        p = beats(guesses, case.guesses, case.labels, ranks=case.ranks)
        if p < alpha / len(readings) and believable(case, guesses, alpha=alpha / len(readings)):
            best = (total, reading, p)
    if best is None:
        return [], case
    _, reading, p = best
    return [miscounted(case, reading, p)], case.reread(reading.relabel)


def believable(case: Case, guesses: np.ndarray, *, alpha: float) -> bool:
    """Whether the hits of a reading are no accident, and enough for a model to be behind them."""
    here = case.labelled
    total = int(hits_of(guesses[:, : case.ranks], case.labels).sum())
    expected = expected_hits(
        case.labels[here], guesses[here][:, : case.ranks], classes=case.classes
    )
    if total < FLOOR * case.n or by_chance(total, expected) >= alpha:
        return False
    floor = SURE_OF_KNOWN if case.classes >= MANY else sure(case.classes)
    first = int(hits_of(guesses[:, :1], case.labels).sum())
    return case.ranks > 1 or first >= floor * case.n


def miscounted(case: Case, reading: Reading, p: float) -> Finding:
    """The finding that class ids are counted as ``reading`` says."""
    before, after = case.accuracy(), case.accuracy(reading.relabel)
    changed = int((reading.relabel != case.relabel).sum())
    return case.finding(
        reading.code,
        f"{reading.what}; top-1 is {percent(before)} as given and {percent(after)} read so",
        evidence={
            "n": case.n,
            "top1_as_given": before,
            "top1_repaired": after,
            "ids_changed": changed,
            "side": reading.side,
            "p": p,
        },
        fix=case.repair_advice(reading.hint),
        repair=Repair(relabel=reading.relabel),
    )


def check_permuted(case: Case, *, alpha: float = ALPHA) -> Step:
    """Ids in an order that is not known, or classes that stand in each other's place."""
    found = find_permutations(case, alpha=alpha)
    if not found:
        return [], case
    permutation = found[0]
    before, after = case.accuracy(), case.accuracy(permutation.relabel)
    ids = [case.testset.label_space.classes[c] for c in permutation.moved]
    evidence: Evidence = {
        "n": case.n,
        "top1_as_given": before,
        "top1_repaired": after,
        "top1_on_other_half": permutation.crossed,
        "classes_moved": len(ids),
        "p": permutation.p,
    }
    present = len(np.unique(case.labels[case.labelled]))
    few = len(ids) <= max(2, FEW * present)
    if few:
        named = ", ".join(f"{item.id} ({item.name})" for item in ids[:6])
        more = f" and {len(ids) - 6} more" if len(ids) > 6 else ""
        message = f"{named}{more} stand in each other's place"
        evidence["classes"] = " ".join(item.id for item in ids)
        hint = "look for a join by name, as names are not unique"
    else:
        message = f"class ids are in another order: {len(ids):,} of {present:,} classes move"
        hint = "find the list of classes that the model was trained with"
    finding = case.finding(
        "swapped-classes" if few else "permuted-labels",
        f"{message}; top-1 is {percent(before)} as given, {percent(after)} in the fitted "
        f"order, {percent(permutation.crossed)} on images that the order was not fitted to",
        evidence=evidence,
        fix=case.repair_advice(hint),
        repair=Repair(relabel=permutation.relabel),
    )
    return [finding], case.reread(permutation.relabel)


def same_relabel(findings: Sequence[Finding]) -> bool:
    """Whether all findings repair class ids in the same way."""
    repairs = [finding.repair.relabel for finding in findings if finding.repair is not None]
    first = repairs[0] if repairs else None
    return first is not None and all(
        other is not None and np.array_equal(other, first) for other in repairs
    )

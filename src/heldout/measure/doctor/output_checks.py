"""Checks of rows and of outputs as a whole: other order, at chance, perfect, foreign classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heldout.data.labels import PUBLISHED_SUBSETS, LabelSpace, subset_map
from heldout.data.testset.card import CHOSEN_FOR_MISTAKES
from heldout.measure.doctor.alignment import AlignedOutputs, rows_in_order
from heldout.measure.doctor.findings import Finding, percent
from heldout.measure.doctor.id_checks import Step, believable
from heldout.measure.doctor.significance import ALPHA, above_chance, expected_hits, p_better_twice
from heldout.models.adapters.model import look_like_probabilities
from heldout.models.predictions.import_arrays import SUM_TOLERANCE

ORDERS = {
    "testset": "the test set's own order",
    "name": "the order of file names",
    "class": "the order of classes, then file names, as an image folder is read",
}
"""The orders that importing knows by name."""


def check_rows(case: AlignedOutputs) -> Step:
    """Rows in another order: under it, far more images are hit."""
    if 2 * int(case.hits().sum()) > case.n:
        return [], case  # most rows hit their own image
    stated = rows_in_order(case.testset, case.order)
    if len(stated) != len(case.topk) or (stated < 0).any():
        return [], case  # rows of other images are among them
    candidates: dict[str, AlignedOutputs] = {}
    seen = {stated.tobytes()}
    for name in ORDERS:
        order = rows_in_order(case.testset, name)
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            topk = np.empty_like(case.topk)
            topk[order] = case.topk[stated]
            candidates[name] = replace(case, topk=topk, order=name)
    found = []
    for name, other in candidates.items():
        p = p_better_twice(other.guesses, case.guesses, case.labels, ranks=case.ranks)
        level = ALPHA / len(candidates)
        if p < level and believable(other, other.guesses, alpha=level):
            found.append((int(other.hits().sum()), name, p))
    if not found:
        return [], case
    _, name, p = max(found)
    before, after = case.accuracy(), candidates[name].accuracy()
    finding = case.finding(
        "rows-in-other-order",
        f"rows are in {ORDERS[name]}: top-1 is {percent(before)} as given and "
        f"{percent(after)} in that order",
        {"n": case.n, "top1_as_given": before, "top1_repaired": after, "order": name, "p": p},
        f"heldout import predictions FILE -t {case.testset.name} --order {name}",
    )
    return [finding], candidates[name]


MINIMUM = 30
"""Images below which nothing is said about accuracy."""
NOT_CHANCE = 0.01
"""At chance: random pairing gives as many hits with at least this probability."""
MOST = 0.9
"""Below this share of the label space's classes, a test set is one of a subset."""
PERFECT = 100
"""Images from which a perfect score is suspicious."""


def check_chance(case: AlignedOutputs) -> list[Finding]:
    """No more hits than pairing predictions with images at random gives, as one class for all does.

    A set that was chosen for what models get wrong says nothing of the kind.
    """
    card = case.testset.card
    if card.truths.get(card.default_truth, {}).get(CHOSEN_FOR_MISTAKES):
        return []
    here = case.labelled
    if case.n < MINIMUM or len(np.unique(case.labels[here])) < 2:
        return []
    first = case.guesses[here, 0]
    hits = int((first == case.labels[here]).sum())
    expected = expected_hits(case.labels[here], first, classes=case.classes)
    p = above_chance(case.labels[here], first, classes=case.classes)
    if p < NOT_CHANCE:
        return []
    if first[0] >= 0 and (first == first[0]).all():
        item = case.testset.label_space.classes[first[0]]
        return [
            case.finding(
                "constant-predictions",
                f"every image is predicted to be {item.id} ({item.name})",
                {"n": case.n, "class": item.id},
                "check that the weights were loaded and that images differ when they reach the model",
            )
        ]
    return [
        case.finding(
            "at-chance",
            f"top-1 is {percent(hits / case.n)}, guessing gives {percent(expected / case.n)}",
            {"n": case.n, "hits": hits, "expected": expected, "p": p},
            "check that these are predictions of these images: their order, the checkpoint, "
            "preprocessing",
        )
    ]


def check_perfect(case: AlignedOutputs) -> list[Finding]:
    """Every image right: the outputs may have been made from the labels."""
    several = len(np.unique(case.labels[case.labelled])) > 1
    if case.n < PERFECT or not several or case.accuracy() < 1.0:
        return []
    return [
        case.finding(
            "perfect-score",
            f"all {case.n:,} images are right",
            {"n": case.n, "top1_as_given": 1.0},
            "check that the outputs are a model's and not the labels, and that the model was "
            "not trained on these images",
        )
    ]


def check_probabilities(logits: np.ndarray, *, testset: str, model: str) -> list[Finding]:
    """Probabilities where logits are stored, of which NLL, Brier and calibration take the softmax."""
    kept = logits[np.isfinite(logits).all(axis=1)].astype(np.float32)
    if not len(kept) or not look_like_probabilities(kept, tolerance=SUM_TOLERANCE):
        return []
    return [
        Finding(
            "probabilities",
            "its logits are probabilities: every row is at least 0 and sums to 1",
            {"n": len(kept)},
            f"heldout import predictions FILE -t {testset} --name {model} --replace stores logarithms",
            testset,
            model,
        )
    ]


def check_spaces(case: AlignedOutputs) -> list[Finding]:
    """Model and test set with different classes: both readings, with their accuracies."""
    here = case.labelled
    present = np.unique(case.labels[here])
    target = case.testset.label_space
    same = case.space.fingerprint == target.fingerprint
    if case.n == 0 or (same and len(present) >= MOST * len(target)):
        return []
    names = [target.ids[index] for index in present]
    accepted = [class_id for class_id in names if class_id in case.space]
    if not accepted:
        return [
            case.finding(
                "label-space-differs",
                f"no class of {case.testset.name} is in the model's label space {case.space.name}",
                {"classes": len(present), "model_classes": len(case.space)},
                "name the model's label space with --classes, or a label map with --label-map",
            )
        ]
    readings = _two_readings(case, accepted)
    published = next(
        (name for name in PUBLISHED_SUBSETS if set(names) <= set(LabelSpace.load(name).ids)), None
    )
    message = (
        f"the test set has {len(present):,} classes, the model {len(case.space):,}: top-1 is "
        f"{percent(readings['top1_full'])} over all of them (full) and "
        f"{percent(readings['top1_restricted'])} over those of the set (restricted)"
    )
    fix = "say which: --label-map subset:restricted or --label-map subset:full"
    if same:
        own = "folders (or a JSON file of its classes)" if published is None else published
        fix = (
            f"scores of this set are full; for restricted ones import it with --classes {own}, under "
            "another --name, and score that with --label-map subset:restricted"
        )
    return [
        case.finding(
            "subset-of-classes" if same else "label-space-differs",
            message,
            {
                "n": case.n,
                "classes": len(present),
                "model_classes": len(case.space),
                **readings,
            },
            fix,
        )
    ]


def _two_readings(case: AlignedOutputs, accepted: list[str]) -> dict[str, float]:
    """Top-1 over all the model's classes and over the set's; what top-k cannot tell is counted."""
    small = LabelSpace.from_ids("present", accepted)
    full = subset_map(case.space, small, reading="full")
    target = case.testset.label_space
    place = np.full(len(target) + 1, -1, dtype=np.int64)
    for index, class_id in enumerate(small.ids):
        place[target.index(class_id)] = index
    rows = case.labelled & (place[case.labels] >= 0)
    inside = np.where(case.topk[rows] < len(case.space), case.topk[rows], -1).clip(min=-1)
    truth = place[case.labels[rows]]
    restricted = full.restrict_topk(inside)
    return {
        "top1_full": float(full.judge_topk(inside, truth)[:, 0].sum()) / case.n,
        "top1_restricted": float(restricted.hits(truth)[:, 0].sum()) / case.n,
        "unknown_restricted": int(restricted.unknown(1).sum()),
    }

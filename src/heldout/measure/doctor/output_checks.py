"""Checks of rows and of outputs as a whole: other order, collapsed, at chance, perfect, foreign classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heldout.data.labels import PUBLISHED_SUBSETS, LabelSpace, subset_map
from heldout.data.testset import TestSet
from heldout.data.testset.card import CHOSEN_FOR_MISTAKES
from heldout.measure.doctor.alignment import AlignedOutputs, read
from heldout.measure.doctor.findings import Evidence, Finding, Repair, percent
from heldout.measure.doctor.id_checks import Step, believable
from heldout.measure.doctor.significance import ALPHA, above_chance, expected_hits, p_better_twice
from heldout.models.predictions.import_arrays import NAMED

ORDERS = {
    "testset": "the test set's own order",
    "name": "the order of file names",
    "class": "the order of classes, then file names, as an image folder is read",
    "class-text": "the order of class numbers sorted as text, then file names",
    "class-name": "the order of class names, then file names",
}
"""Orders that are tried. Importing knows the first three by name."""


def orders_of(testset: TestSet, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of the test set in each known order, int64 (n,); images without a class come last."""
    ids: list[str] = testset.image_ids.to_pylist()
    files = np.argsort(
        np.array([image.rsplit("/", 1)[-1] for image in ids], dtype=str), kind="stable"
    )
    space = testset.label_space
    k = len(space)
    keys = {
        "class": np.arange(k + 1),
        "class-text": _ranks([str(index) for index in range(k)]),
        "class-name": _ranks([item.name for item in space]),
    }
    orders = {"testset": np.arange(len(ids)), "name": files}
    for name, rank in keys.items():
        of_rows = rank[np.where(labels >= 0, labels, k)]
        orders[name] = files[np.argsort(of_rows[files], kind="stable")]
    return orders


def _ranks(keys: Sequence[str]) -> np.ndarray:
    """The place of each class when sorted by key, with one more for images without a class."""
    ranks = np.empty(len(keys) + 1, dtype=np.int64)
    ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    ranks[-1] = len(keys)
    return ranks


def check_rows(case: AlignedOutputs) -> Step:
    """Rows in another order: under it, far more images are hit."""
    stated = _stated(case)
    if 2 * int(case.hits().sum()) > case.n or len(stated) != len(case.topk):
        return [], case  # most rows hit their own image, or rows of other images are among them
    candidates: dict[str, tuple[np.ndarray, AlignedOutputs]] = {}
    seen = {stated.tobytes()}
    for name, order in orders_of(case.testset, case.labels).items():
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            topk = np.empty_like(case.topk)
            topk[order] = case.topk[stated]
            candidates[name] = order, replace(case, topk=topk, stated=None)
    found = []
    for name, (_, other) in candidates.items():
        p = p_better_twice(other.guesses, case.guesses, case.labels, ranks=case.ranks)
        level = ALPHA / len(candidates)
        if p < level and believable(other, other.guesses, alpha=level):
            found.append((int(other.hits().sum()), name, p))
    if not found:
        return [], case
    _, name, p = max(found)
    order, other = candidates[name]
    before, after = case.accuracy(), other.accuracy()
    ids = case.testset.image_ids.to_pylist()
    finding = case.finding(
        "rows-in-other-order",
        f"rows are in {ORDERS[name]}: top-1 is {percent(before)} as given and "
        f"{percent(after)} in that order",
        {"n": case.n, "top1_as_given": before, "top1_repaired": after, "order": name, "p": p},
        f"heldout import predictions FILE -t {case.testset.name} --order {name}"
        if name in NAMED
        else f"import the file with --order and the ids in {ORDERS[name]}",
        Repair(order=tuple(ids[row] for row in order)),
    )
    return [finding], other


def _stated(case: AlignedOutputs) -> np.ndarray:
    """Rows of the test set in the order that the file was said to have."""
    if case.stated is None:
        return np.arange(len(case.topk))
    place = {image: row for row, image in enumerate(case.testset.image_ids.to_pylist())}
    return np.array([place[image] for image in case.stated if image in place], dtype=np.int64)


def neighbours_agree(case: AlignedOutputs) -> tuple[float, float]:
    """How often two rows in succession have the same top-1 prediction, and how often chance gives that.

    Rows that were made class by class agree with their neighbours; in a test set that is not
    sorted by class, that shows that rows and images do not belong together.
    """
    first = read(case.topk[_stated(case), :1], case.relabel)[:, 0]
    if len(first) < 2:
        return 0.0, 0.0
    shares = np.bincount(first[first >= 0], minlength=case.classes) / len(first)
    same = (first[1:] == first[:-1]) & (first[1:] >= 0)
    return float(same.mean()), float((shares**2).sum())


MINIMUM = 30
"""Images below which nothing is said about accuracy."""
NOT_CHANCE = 0.01
"""At chance: random pairing gives as many hits with at least this probability."""
SWALLOWED = 0.25
"""Share of the predictions from which one class may be called swallowing."""
TOO_OFTEN = 4.0
"""How many times its share of the labels a swallowing class has."""
MOST = 0.9
"""Below this share of the label space's classes, a test set is one of a subset."""
PERFECT = 100
"""Images from which a perfect score is suspicious."""


def check_collapse(case: AlignedOutputs) -> list[Finding]:
    """One class for every image, or for far too many of them."""
    first = case.guesses[case.labelled, 0]
    labels = case.labels[case.labelled]
    # A class that the test set does not have is an answer too; a failed image is none.
    answered = int((case.topk[case.labelled, 0] >= 0).sum())
    if answered < MINIMUM or len(np.unique(labels)) < 2:
        return []
    counts = np.bincount(first[first >= 0], minlength=case.classes)
    most = int(counts.argmax())
    share = float(counts[most] / answered)
    theirs = float((labels == most).mean())
    item = case.testset.label_space.classes[most]
    evidence: Evidence = {
        "n": case.n,
        "class": item.id,
        "share_of_predictions": share,
        "share_of_labels": theirs,
        "classes_predicted": int((counts > 0).sum()),
    }
    if share == 1.0:
        return [
            case.finding(
                "constant-predictions",
                f"every image is predicted to be {item.id} ({item.name})",
                evidence,
                "check that the weights were loaded and that images differ when they reach "
                "the model",
            )
        ]
    if share >= SWALLOWED and share >= TOO_OFTEN * theirs:
        return [
            case.finding(
                "swallowing-class",
                f"{percent(share)} of the predictions are {item.id} ({item.name}), which is "
                f"the class of {percent(theirs)} of the images",
                evidence,
                "check preprocessing (value range, mean and standard deviation, channel order) "
                "and that the last layer was loaded",
            )
        ]
    return []


def check_chance(case: AlignedOutputs) -> list[Finding]:
    """No more hits than pairing predictions with images at random gives.

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
    agree, by_luck = neighbours_agree(case)
    sorted_rows = agree > 10 * by_luck and agree > 0.1
    hint = (
        f"{percent(agree)} of the rows agree with the row before, where chance gives "
        f"{percent(by_luck)}: they were made class by class, so name their order with --order"
        if sorted_rows
        else "check that these are predictions of these images: their order, the checkpoint, "
        "preprocessing"
    )
    return [
        case.finding(
            "at-chance",
            f"top-1 is {percent(hits / case.n)}, guessing gives {percent(expected / case.n)}",
            {
                "n": case.n,
                "hits": hits,
                "expected": expected,
                "p": p,
                "neighbours_agree": agree,
                "neighbours_by_chance": by_luck,
            },
            hint,
        )
    ]


def check_perfect(case: AlignedOutputs) -> list[Finding]:
    """Every image right: the outputs may have been made from the labels."""
    if case.n < PERFECT or len(np.unique(case.labels[case.labelled])) < 2:
        return []
    if case.accuracy() < 1.0:
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
    theirs = (
        f"; the authors of {published} use {PUBLISHED_SUBSETS[published]}"
        if published is not None and len(LabelSpace.load(published)) < len(case.space)
        else ""
    )
    message = (
        f"the test set has {len(present):,} classes, the model {len(case.space):,}: top-1 is "
        f"{percent(readings['top1_full'])} over all of them (full) and "
        f"{percent(readings['top1_restricted'])} over those of the set (restricted){theirs}"
    )
    fix = "say which: --label-map subset:restricted or --label-map subset:full"
    if same:
        list_of_classes = "a file of its classes" if published is None else published
        fix = (
            "scores of this set are full; for restricted ones import the test set with --classes "
            f"{list_of_classes}, and score with --label-map subset:restricted"
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

"""Checks of rows: outputs that belong to the images in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heldout.data.testset import TestSet
from heldout.measure.doctor.case import Case, read
from heldout.measure.doctor.evidence import ALPHA, beats
from heldout.measure.doctor.finding import Finding, Repair, percent
from heldout.measure.doctor.label_checks import Step, believable
from heldout.models.predictions.orders import NAMED

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


def check_rows(case: Case, *, alpha: float = ALPHA) -> Step:
    """Rows in another order: under it, far more images are hit."""
    if 2 * int(case.hits().sum()) > case.n:
        return [], case  # most rows hit their own image
    candidates = _reordered(case)
    found = [
        (int(mended.hits().sum()), name)
        for name, mended in candidates.items()
        if beats(mended.guesses, case.guesses, case.labels, ranks=case.ranks)
        < alpha / len(candidates)
        and believable(mended, mended.guesses, alpha=alpha / len(candidates))
    ]
    if not found:
        return [], case
    name = max(found)[1]
    return [_misordered(case, name, candidates[name])], candidates[name]


def _reordered(case: Case) -> dict[str, Case]:
    """The case with its rows laid out in each other known order, equal layouts once."""
    stated = _stated(case)
    if len(stated) != len(case.topk):
        return {}
    found: dict[str, Case] = {}
    seen = {stated.tobytes()}
    for name, order in orders_of(case.testset, case.labels).items():
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            topk = np.empty_like(case.topk)
            topk[order] = case.topk[stated]
            found[name] = replace(case, topk=topk, stated=None)
    return found


def _misordered(case: Case, name: str, mended: Case) -> Finding:
    before, after = case.accuracy(), mended.accuracy()
    ids = case.testset.image_ids.to_pylist()
    order = orders_of(case.testset, case.labels)[name]
    return case.finding(
        "rows-in-other-order",
        f"rows are in {ORDERS[name]}: top-1 is {percent(before)} as given and "
        f"{percent(after)} in that order",
        evidence={
            "n": case.n,
            "top1_as_given": before,
            "top1_repaired": after,
            "order": name,
            "p": beats(mended.guesses, case.guesses, case.labels, ranks=case.ranks),
        },
        fix=f"heldout import predictions FILE -t {case.testset.name} --order {name}"
        if name in NAMED
        else case.repair_advice(f"import the file with --order and the ids in {ORDERS[name]}"),
        repair=Repair(order=tuple(ids[row] for row in order)),
    )


def _stated(case: Case) -> np.ndarray:
    """Rows of the test set in the order that the file was said to have."""
    if case.stated is None:
        return np.arange(len(case.topk))
    place = {image: row for row, image in enumerate(case.testset.image_ids.to_pylist())}
    return np.array([place[image] for image in case.stated if image in place], dtype=np.int64)


def neighbours_agree(case: Case) -> tuple[float, float]:
    """How often two rows in succession have the same first guess, and how often chance gives that.

    Rows that were made class by class agree with their neighbours; in a test set that is not
    sorted by class, that shows that rows and images do not belong together.
    """
    first = read(case.topk[_stated(case), :1], case.relabel)[:, 0]
    if len(first) < 2:
        return 0.0, 0.0
    shares = np.bincount(first[first >= 0], minlength=case.classes) / len(first)
    same = (first[1:] == first[:-1]) & (first[1:] >= 0)
    return float(same.mean()), float((shares**2).sum())

"""Generated test sets and models that are right in a known share of images, and defects of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heldout.data.labels import LabelSpace
from heldout.data.labels.label_space import Class
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.models.predictions import Predictions


def space_of(classes: int) -> LabelSpace:
    """Classes whose names are in another order than their ids, as ImageNet's are."""
    order = np.random.default_rng(classes).permutation(classes)
    return LabelSpace(
        f"things-{classes}",
        tuple(Class(f"t{i:04d}", (f"name {order[i]:04d}", f"other {i}")) for i in range(classes)),
    )


def set_of(
    labels: Sequence[int],
    space: LabelSpace,
    *,
    ids: Sequence[str] | None = None,
    **columns: Any,
) -> TestSet:
    names = list(ids) if ids is not None else [_name(i) for i in range(len(labels))]
    classes = [space.ids[label] for label in labels]
    return make_testset(
        Card(name="things", label_space=space.name, truths={"original": {"kind": "single"}}),
        images=image_table({"image_id": names, **columns}),
        truths={"original": truth_table(names, classes)},
        label_space=space,
    )


def _name(row: int) -> str:
    """File names whose order has nothing to do with the order of rows."""
    return f"{(row * 2654435761) % 2**32:08x}-{row}.jpg"


def balanced(classes: int, each: int, *, seed: int = 0, sort: bool = False) -> np.ndarray:
    labels = np.repeat(np.arange(classes), each)
    return labels if sort else np.random.default_rng(seed).permutation(labels)


def outputs(
    labels: np.ndarray, classes: int, *, k: int = 5, accuracy: float = 0.7, seed: int = 0
) -> np.ndarray:
    """Top-k of a model: the label at rank 1 with ``accuracy``, else often soon after; the other
    ranks are look-alikes, classes near the label, so that confusions are systematic as real ones are.
    """
    rng = np.random.default_rng(seed)
    k = min(k, classes)
    n = len(labels)
    distance = np.abs(np.arange(classes)[None, :] - labels[:, None])
    distance = np.minimum(distance, classes - distance)
    scores = rng.random((n, classes)) + 0.5 / (1 + distance)
    scores[np.arange(n), labels] = -1.0
    order = np.argsort(-scores, axis=1)[:, :k]
    rank = np.where(rng.random(n) < accuracy, 0, rng.geometric(0.15, n))
    held = rank < k
    for row in np.flatnonzero(held):
        order[row] = np.insert(order[row], rank[row], labels[row])[:k]
    return order.astype(np.int32)


def predictions(
    testset: TestSet, topk: np.ndarray, *, model: str = "model", **more: Any
) -> Predictions:
    return Predictions(
        model=model,
        image_ids=testset.image_ids,
        topk=np.ascontiguousarray(topk).astype(np.int32),
        label_space=more.pop("label_space", testset.label_space),
        **more,
    )

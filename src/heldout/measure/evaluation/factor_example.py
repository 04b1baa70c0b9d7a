"""A generated set that varies one thing on purpose, with simulated models.

Nothing here is a measurement. Objects of many shapes stand on backgrounds at growing sizes; those
that no longer fit are left out, as real builders of such sets do, so that the largest sizes show
other objects than the smallest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, ColumnType, TestSet, image_table, make_testset, truth_table
from heldout.models.predictions import Predictions, top_k

SIZES = tuple(round(0.05 * step, 2) for step in range(1, 21))
FACTOR_MODELS = {"oak": 0.16, "ash": 0.24, "yew": 0.3}
"""Simulated models, with the size at which they are right about half of the time."""

_FITS = 1.108  # size times aspect at which 95 % of a centred box are still inside
_BACKGROUNDS = 2


def factor_testset(*, objects: int = 40, seed: int = 0) -> TestSet:
    """Objects on two backgrounds each, at every size that they fit into the image."""
    rng = np.random.default_rng([seed, objects])
    space = LabelSpace.load("cifar-10")
    aspects = 1 + 0.09 * (np.arange(objects) % len(space)) * rng.uniform(0.6, 1.0, objects)
    rows = [
        (o, b, size)
        for o in range(objects)
        for b in range(_BACKGROUNDS)
        for size in SIZES
        if size * aspects[o] <= _FITS
    ]
    ids = [f"{o:03d}-{b}-{size:.2f}" for o, b, size in rows]
    card = Card(
        name="example-sizes",
        label_space=space.name,
        recipe={"name": "example", "parameters": {"objects": objects}, "seed": seed},
        counts={"images": len(rows)},
        columns={
            "object": ColumnType(kind="categorical"),
            "background": ColumnType(kind="categorical"),
            "size": ColumnType(kind="ordered", unit="share of the image"),
        },
        truths={"original": {"kind": "single", "source": "generated"}},
        factors=("size",),
        clusters="object",
        units=("object", "background"),
        notes=("generated: not a measurement",),
    )
    columns: dict[str, list[Any]] = {
        "image_id": ids,
        "source": ["generated"] * len(rows),
        "licence": ["CC0-1.0"] * len(rows),
        "object": [f"object-{o:03d}" for o, _, _ in rows],
        "background": [f"background-{b}" for _, b, _ in rows],
        "size": [size for _, _, size in rows],
    }
    labels = [space.ids[o % len(space)] for o, _, _ in rows]
    return make_testset(
        card,
        images=image_table(columns),
        truths={"original": truth_table(ids, labels)},
        label_space=space,
    )


def factor_predictions(testset: TestSet, model: str, *, seed: int = 0) -> Predictions:
    """Simulated logits: small objects are hard, and every object is a little easier or harder."""
    rng = np.random.default_rng([seed, *model.encode()])
    objects = testset.images["object"].to_pylist()
    number = np.array([int(name.rpartition("-")[2]) for name in objects])
    size = np.array(testset.images["size"].to_pylist())
    ease = rng.standard_normal(number.max() + 1)[number]
    chance = 0.95 / (1 + np.exp(-14 * (size - FACTOR_MODELS[model]) - 0.8 * ease))
    classes = len(testset.label_space)
    label = number % classes
    guess = np.where(rng.random(len(number)) < chance, label, (label + 1) % classes)
    logits = rng.normal(0, 0.3, (len(number), classes))
    logits[np.arange(len(number)), guess] += 3.0
    values = logits.astype(np.float16)
    return Predictions(
        model=model,
        image_ids=testset.image_ids,
        topk=top_k(values.astype(np.float32)),
        logits=values,
        label_space=testset.label_space,
        identity={"simulated": model, "seed": seed},
    )

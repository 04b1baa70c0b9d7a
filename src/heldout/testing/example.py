"""Small test sets with predictions, generated: for documentation, examples and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heldout.core.workspace import Workspace
from heldout.data.labels import LabelSpace
from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    save,
    truth_table,
)
from heldout.models.predictions import Predictions, PredictionStore, top_k

NAMES = ("example-original", "example-shifted")
MODELS = {"oak": 3.2, "elm": 2.8, "ash": 2.4, "fir": 2.0, "yew": 1.5}
"""Simulated models with their skill: how far the right logit stands above the others on average."""

_LIGHT = ("day", "dusk", "night")
_CONTEXTS = ("indoors", "street", "water", "grass")


def example_testset(name: str, *, images: int = 2000, shift: float = 0.0) -> TestSet:
    """A generated test set; ``shift`` moves its images towards night and small objects."""
    rng = np.random.default_rng([0, *name.encode()])
    space = LabelSpace.load("cifar-10")
    ids = [f"{name}/{i:05d}" for i in range(images)]
    labels = np.arange(images) % len(space)
    dark = np.array([3.0, 1.5, 1.0 + 6.0 * shift])
    columns = {
        "image_id": ids,
        "source": ["generated"] * images,
        "licence": ["CC0-1.0"] * images,
        "light": rng.choice(_LIGHT, images, p=dark / dark.sum()).tolist(),
        "size": (rng.choice(np.arange(1, 6), images, p=_small(shift)) / 5).round(2).tolist(),
        "angle": rng.choice(np.arange(0, 360, 45), images).tolist(),
        "x": (rng.integers(0, 5, images) / 4).tolist(),
        "y": (rng.integers(0, 5, images) / 4).tolist(),
        "photographer": [f"p{k:03d}" for k in rng.integers(0, 150, images)],
    }
    types = {
        "light": ColumnType(kind="categorical", order=_LIGHT),
        "size": ColumnType(kind="ordered", unit="share of the image"),
        "angle": ColumnType(kind="circular", unit="degrees", period=360),
        "x": ColumnType(kind="grid", grid="location", axis="x"),
        "y": ColumnType(kind="grid", grid="location", axis="y"),
        "photographer": ColumnType(kind="categorical"),
        "context": ColumnType(kind="categorical", multi=True),
    }
    members = [
        (image, "context", context)
        for image, row in zip(ids, rng.random((images, len(_CONTEXTS))) < 0.35, strict=True)
        for context, inside in zip(_CONTEXTS, row, strict=True)
        if inside
    ]
    card = Card(
        name=name,
        label_space=space.name,
        recipe={"name": "example", "parameters": {"images": images, "shift": shift}, "seed": 0},
        counts={"images": images, "classes": len(space)},
        columns=types,
        truths={"original": {"kind": "single", "source": "generated"}},
        notes=("generated: not a measurement",),
    )
    return make_testset(
        card,
        images=image_table(columns),
        truths={"original": truth_table(ids, [space.ids[k] for k in labels])},
        label_space=space,
        memberships=membership_table(members),
    )


def _small(shift: float) -> np.ndarray:
    """Probabilities of five sizes, the small ones likelier under a shift."""
    weights = np.exp(-shift * np.arange(5))
    probabilities: np.ndarray = weights / weights.sum()
    return probabilities


def example_predictions(testset: TestSet, model: str) -> Predictions:
    """Simulated logits: night, small objects, steep angles and corners cost every model something."""
    rng = np.random.default_rng([0, *model.encode(), *testset.name.encode()])
    table = testset.images
    size = np.array(table["size"].to_pylist())
    light = np.array([_LIGHT.index(value) for value in table["light"].to_pylist()])
    angle = np.deg2rad(np.array(table["angle"].to_pylist()))
    corner = np.hypot(*(np.array(table[axis].to_pylist()) - 0.5 for axis in "xy"))
    margin = (
        MODELS[model]
        - 0.7 * light
        - 1.6 * np.maximum(0.5 - size, 0)
        - 0.5 * (1 - np.cos(angle))
        - 0.9 * corner
    )
    labels = np.arange(len(testset)) % len(testset.label_space)
    logits = rng.normal(0, 1, (len(testset), len(testset.label_space)))
    logits[np.arange(len(testset)), labels] += margin
    return _predictions(testset, model, 2.0 * logits)


def _predictions(testset: TestSet, model: str, logits: np.ndarray) -> Predictions:
    values = logits.astype(np.float16)
    return Predictions(
        model=model,
        image_ids=testset.image_ids,
        topk=top_k(values.astype(np.float32)),
        logits=values,
        label_space=testset.label_space,
        identity={"simulated": model, "seed": 0},
    )


def make_example(workspace: Workspace, *, images: int = 2000) -> Sequence[TestSet]:
    """Write both generated test sets and all simulated predictions into a workspace."""
    store = PredictionStore(workspace.predictions)
    made = []
    for name, shift in zip(NAMES, (0.0, 0.5), strict=True):
        testset = save(example_testset(name, images=images, shift=shift), workspace.testsets / name)
        for model in MODELS:
            predictions = replace(example_predictions(testset, model), run=store.owner(testset))
            store.write(predictions, images_hash=testset.card.images_hash)
        made.append(testset)
    return made


SIZES = tuple(round(0.05 * step, 2) for step in range(1, 21))
FACTOR_MODELS = {"oak": 0.16, "ash": 0.24, "yew": 0.3}
"""Simulated models, with the size at which they are right about half of the time."""

_FITS = 1.108  # size times aspect at which 95 % of a centred box are still inside
_OBJECTS, _BACKGROUNDS = 40, 2


def factor_testset() -> TestSet:
    """Objects on two backgrounds each, at every size that they fit into the image."""
    rng = np.random.default_rng([0, _OBJECTS])
    space = LabelSpace.load("cifar-10")
    aspects = 1 + 0.09 * (np.arange(_OBJECTS) % len(space)) * rng.uniform(0.6, 1.0, _OBJECTS)
    rows = [
        (o, b, size)
        for o in range(_OBJECTS)
        for b in range(_BACKGROUNDS)
        for size in SIZES
        if size * aspects[o] <= _FITS
    ]
    ids = [f"{o:03d}-{b}-{size:.2f}" for o, b, size in rows]
    card = Card(
        name="example-sizes",
        label_space=space.name,
        recipe={"name": "example", "parameters": {"objects": _OBJECTS}, "seed": 0},
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


def factor_predictions(testset: TestSet, model: str) -> Predictions:
    """Simulated logits: small objects are hard, and every object is a little easier or harder."""
    rng = np.random.default_rng([0, *model.encode()])
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
    return _predictions(testset, model, logits)

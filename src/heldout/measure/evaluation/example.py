"""A generated evaluation: two test sets with columns of every type and simulated models.

Nothing here is a measurement. It shows the whole path, from tables to a report, on a machine that
has neither images nor models, and serves tests and documentation as an example.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def example_testset(name: str, *, images: int = 2000, seed: int = 0, shift: float = 0.0) -> TestSet:
    """A generated test set; ``shift`` moves its images towards night and small objects."""
    rng = np.random.default_rng([seed, *name.encode()])
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
        recipe={"name": "example", "parameters": {"images": images, "shift": shift}, "seed": seed},
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


def example_predictions(testset: TestSet, model: str, *, seed: int = 0) -> Predictions:
    """Simulated logits: night, small objects, steep angles and corners cost every model something."""
    rng = np.random.default_rng([seed, *model.encode(), *testset.name.encode()])
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
    values = (2.0 * logits).astype(np.float16)
    return Predictions(
        model=model,
        image_ids=testset.image_ids,
        topk=top_k(values.astype(np.float32)),
        logits=values,
        label_space=testset.label_space,
        identity={"simulated": model, "seed": seed},
    )


def make_example(workspace: Workspace, *, images: int = 2000, seed: int = 0) -> Sequence[TestSet]:
    """Write both generated test sets and all simulated predictions into a workspace."""
    store = PredictionStore(workspace.predictions)
    made = []
    for name, shift in zip(NAMES, (0.0, 0.5), strict=True):
        testset = save(
            example_testset(name, images=images, seed=seed, shift=shift), workspace.testsets / name
        )
        for model in MODELS:
            store.write(
                example_predictions(testset, model, seed=seed), images_hash=testset.card.images_hash
            )
        made.append(testset)
    return made

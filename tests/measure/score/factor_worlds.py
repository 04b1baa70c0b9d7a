"""Generated sets that vary something on purpose: objects on backgrounds, along any factors.

Every image is a plain dictionary first, so that oracles can read it with loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, ColumnType, TestSet, image_table, make_testset, truth_table
from heldout.measure.score.measure import Measured, measure
from heldout.models.predictions import Predictions

from .worlds import space_of

SIZE = ColumnType(kind="ordered")
ANGLE = ColumnType(kind="circular", period=360, unit="degrees")
X = ColumnType(kind="grid", grid="location", axis="x")
Y = ColumnType(kind="grid", grid="location", axis="y")
NAME = ColumnType(kind="categorical")
TYPES = {"size": SIZE, "angle": ANGLE, "x": X, "y": Y}
"""The types of usual factors, unless a world gives its own."""


@dataclass(frozen=True)
class FactorWorld:
    """Images as dictionaries, with ``right[model][image]``, and the set that holds them."""

    images: tuple[dict[str, Any], ...]
    right: Mapping[str, np.ndarray]
    testset: TestSet
    predictions: tuple[Predictions, ...]

    def measured(self, metric: str = "top1") -> Measured:
        return measure(self.testset, self.predictions, metrics=[metric])[0]

    def rows(self, model: str, **values: Any) -> list[bool]:
        """What a model got right among the images with these values."""
        return [
            bool(self.right[model][i])
            for i, image in enumerate(self.images)
            if all(image[column] == value for column, value in values.items())
        ]


def factor_world(
    factors: Mapping[str, Sequence[Any]],
    chance: Callable[[Mapping[str, Any], np.ndarray], float],
    *,
    types: Mapping[str, ColumnType] | None = None,
    objects: int = 12,
    backgrounds: int = 2,
    classes: int = 4,
    models: Sequence[str] = ("oak", "yew"),
    keep: Callable[[Mapping[str, Any]], bool] = lambda image: True,
    seed: int = 0,
    shuffle: bool = True,
    declared: bool = True,
    factor_entries: Sequence[str] | None = None,
    name: str = "made-factors",
    space: LabelSpace | None = None,
    space_labels: Sequence[int] | None = None,
) -> FactorWorld:
    """All combinations of objects, backgrounds and ``factors`` that ``keep`` keeps.

    ``chance(image, ease)`` is the probability that a model is right: ``ease[0]`` is how easy the
    object is for the model (standard normal, the same at all values), ``ease[1]`` the model's
    number. Object ``o`` is of class ``o % classes``.
    """
    if types is None:
        types = {factor: TYPES[factor] for factor in factors if factor in TYPES}
    rng = np.random.default_rng(seed)
    ease = rng.standard_normal((len(models), objects))
    images = []
    for number, values in enumerate(product(range(objects), range(backgrounds), *factors.values())):
        image = {
            "image_id": f"{number:06d}",
            "object": f"object {values[0]}",
            "background": f"background {values[1]}",
            "label": values[0] % classes,
            **dict(zip(factors, values[2:], strict=True)),
        }
        if keep(image):
            images.append(image)
    if shuffle:
        images = [images[i] for i in rng.permutation(len(images))]
    right = {
        model: np.array(
            [
                rng.random() < chance(image, np.array([ease[m, _object(image)], m]))
                for image in images
            ]
        )
        for m, model in enumerate(models)
    }
    space = space or space_of(classes + 1)
    labels = list(space_labels) if space_labels is not None else list(range(classes))
    ids = [image["image_id"] for image in images]
    columns = {key: [image[key] for image in images] for key in ("object", "background", *factors)}
    testset = make_testset(
        Card(
            name=name,
            label_space=space.name,
            truths={"original": {"kind": "single"}},
            columns={"object": NAME, "background": NAME, **types},
            factors=tuple(factor_entries or factors) if declared else (),
            clusters="object" if declared else None,
            units=("object", "background") if declared else (),
        ),
        images=image_table({"image_id": ids, **columns}),
        truths={"original": truth_table(ids, [space.ids[labels[i["label"]]] for i in images])},
        label_space=space,
    )
    predictions = []
    for model in models:
        guess = [
            labels[image["label"]] if hit else labels[(image["label"] + 1) % classes]
            for image, hit in zip(images, right[model], strict=True)
        ]
        predictions.append(
            Predictions(
                model=model,
                image_ids=pa.array(ids, pa.string()),
                topk=np.array(guess, dtype=np.int32)[:, None],
                label_space=space,
            )
        )
    return FactorWorld(tuple(images), right, testset, tuple(predictions))


def _object(image: Mapping[str, Any]) -> int:
    return int(image["object"].split()[1])


def rising(image: Mapping[str, Any], ease: np.ndarray) -> float:
    """Larger objects are easier, and some objects are easier than others."""
    return float(np.clip(1.6 * image["size"] + 0.15 * ease[0], 0.02, 0.98))


def size_world(**options: Any) -> FactorWorld:
    """Sizes 0.1 to 0.8; wide objects (the odd ones) do not fit above 0.6."""
    sizes = [round(0.1 * i, 1) for i in range(1, 9)]
    chosen = {
        "types": {"size": SIZE},
        "keep": lambda image: image["size"] <= 0.6 or int(image["object"].split()[1]) % 2 == 0,
        **options,
    }
    return factor_world({"size": sizes}, rising, **chosen)

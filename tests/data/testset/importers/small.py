"""Small sets and images for the importers' tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table

IMAGENET = LabelSpace.load("imagenet-1k")


def picture(seed: int, *, size: tuple[int, int] = (7, 5)) -> bytes:
    """A small random JPEG file, width x height."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def lay(root: Path, paths: Sequence[str]) -> Path:
    """Images at these paths below ``root``."""
    for seed, path in enumerate(paths):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(picture(seed))
    return root


def val(number: int) -> str:
    """The file name of a validation image."""
    return f"ILSVRC2012_val_{number:08d}.JPEG"


def plain_set(
    ids: Sequence[str], classes: Sequence[int], *, name: str = "val", space: LabelSpace = IMAGENET
) -> TestSet:
    """A set without files: ids with their class indices."""
    return make_testset(
        Card(name=name, label_space=space.name, truths={"original": {"kind": "single"}}),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, [space.ids[index] for index in classes])},
        label_space=space,
    )

"""Small generated test sets, with and without image files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import (
    Card,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    truth_table,
)
from heldout.data.testset.testset import save

SPACE = LabelSpace(
    "pets",
    (
        Class("cat", ("cat", "house cat")),
        Class("dog", ("dog",)),
        Class("crane-bird", ("crane", "wading bird")),
        Class("crane-lift", ("crane",)),
    ),
)


def picture(seed: int, *, size: tuple[int, int] = (8, 6), form: str = "JPEG") -> bytes:
    """The bytes of a small random image."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


def build_set(name: str = "pets-a-1", **changes: Any) -> TestSet:
    """A set without image files: six images, two truths, three columns, one membership."""
    ids = ["i1", "i2", "ü/3 «x»", "i4", "i5", "i6"]
    columns: dict[str, Any] = {
        "image_id": ids,
        "source": ["candidate"] * 6,
        "licence": ["CC-BY-4.0", "CC0", "CC-BY-4.0", "CC-BY-4.0", "CC-BY-NC-2.0", "CC0"],
        "attribution": ["Ann", None, "Bö", "Ann | Co", "Cy", None],
        "domain": ["a", "b", "a", None, "b", "a"],
        "size": [0.1, 0.25, 1.0, 3.0, None, 0.5],
        "level": [1, 2, 3, 4, 5, 6],
    }
    classes = ["cat", "cat", "dog", "dog", "crane-bird", "crane-lift"]
    fields: dict[str, Any] = {
        "card": Card(
            name=name,
            label_space="pets",
            recipe={"name": "made", "parameters": {"k": 2}, "seed": 7},
            truths={"original": {"kind": "single"}},
            citation="Lee, Kim: A Set of Pets, CVPR 2024",
        ),
        "images": image_table(columns),
        "truths": {
            "original": truth_table(ids, classes),
            "multi": truth_table(
                ids,
                classes,
                correct=[["cat"], ["cat", "dog"], ["dog"], [], ["crane-bird"], ["crane-lift"]],
                wrong=[[], [], ["cat"], ["dog"], [], []],
                problematic=[False, False, False, True, False, False],
            ),
        },
        "label_space": SPACE,
        "memberships": membership_table(
            [("i1", "context", "grass"), ("i1", "context", "water"), ("i4", "context", "grass")]
        ),
    } | changes
    return make_testset(fields.pop("card"), **fields)


def build_photo_set(folder: Path, name: str = "photos-1", *, licence: str = "CC0") -> TestSet:
    """A saved set with image files: two images a class, in ``images/``."""
    classes = [label for label in SPACE.ids for _ in range(2)]
    data = [picture(n, form="PNG" if n == 3 else "JPEG") for n in range(len(classes))]
    paths = [f"{label}/{n}.{'png' if n == 3 else 'jpg'}" for n, label in enumerate(classes)]
    root = folder / name / "images"
    ids = [f"p{n}" for n in range(len(classes))]
    columns = {
        "image_id": ids,
        "path": paths,
        "sha256": [hashlib.sha256(item).hexdigest() for item in data],
        "width": [8] * len(data),
        "height": [6] * len(data),
        "licence": [licence] * len(data),
        "attribution": [f"Author {n}" for n in range(len(data))],
        "domain": ["in", "out"] * 4,
    }
    made = make_testset(
        Card(name=name, label_space="pets", images_root="images"),
        images=image_table(columns),
        truths={"original": truth_table(ids, classes)},
        label_space=SPACE,
    )
    saved = save(made, folder / name)
    for path, item in zip(paths, data, strict=True):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(item)
    return saved


@pytest.fixture
def pets() -> TestSet:
    """A set without image files; see :func:`build_set`."""
    return build_set()


@pytest.fixture
def make_pets() -> Callable[..., TestSet]:
    """:func:`build_set` itself, for sets that differ in something."""
    return build_set


@pytest.fixture
def photos(tmp_path: Path) -> TestSet:
    """A saved set with eight image files."""
    return build_photo_set(tmp_path / "sets")


@pytest.fixture
def make_photos() -> Callable[..., TestSet]:
    """:func:`build_photo_set` itself."""
    return build_photo_set


@pytest.fixture
def make_picture() -> Callable[..., bytes]:
    """:func:`picture` itself."""
    return picture

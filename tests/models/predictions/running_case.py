"""A small test set of real image files and a slow, deterministic model; used by several processes."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from heldout.core.files import sha256_text
from heldout.core.workspace import Workspace
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, TestSet, image_table, make_testset, save, truth_table
from heldout.models.adapters.model import ModelOutput

SPACE = LabelSpace.from_ids("colours", ["red", "green", "blue", "grey"])


class ColourModel:
    """Logits from mean colours; ``version`` stands for another checkpoint."""

    def __init__(
        self, name: str = "colour", *, size: int = 8, version: int = 1, pause: float = 0.0
    ) -> None:
        self.name = name
        self.label_space = SPACE
        geometry = Geometry(
            resize_height=size + 2, resize_width=size + 2, crop_height=size, crop_width=size
        )
        self.preprocessing = Preprocessing(geometry=geometry)
        self.identity = {"version": version}
        self.pause = pause
        self.calls = 0
        self._version = version

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        import time

        time.sleep(self.pause)
        self.calls += 1
        means = pixels.astype(np.float32).mean(axis=(1, 2)) / 255 * self._version
        grey = 0.9 - np.abs(means - means.mean(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
        return ModelOutput(np.concatenate([means, grey], axis=1), means)


def make_set(
    root: Path,
    *,
    images: int = 150,
    name: str = "colours-1",
    broken: tuple[int, ...] = (7,),
    hashed: bool = True,
) -> TestSet:
    """Write image files and a test set over them; files in ``broken`` are cut short.

    ``hashed``  whether the set has the SHA-256 of its images, whole ones
    """
    rng = np.random.default_rng(0)
    folder = root / "files"
    folder.mkdir(parents=True, exist_ok=True)
    ids, digests, labels = [], [], []
    for i in range(images):
        label = i % 4
        base = np.full((12 + i % 5, 10 + i % 7, 3), 60.0)
        base[..., label if label < 3 else slice(None)] = 200.0
        handle = io.BytesIO()
        noisy = np.clip(base + rng.normal(0, 20, base.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(handle, "PNG" if i % 3 else "JPEG", quality=90)
        data = handle.getvalue()
        path = folder / f"{i:04d}.img"
        path.write_bytes(data[: 40 if i in broken else None])
        ids.append(path.name)
        digests.append(hashlib.sha256(data).hexdigest() if hashed else None)
        labels.append(SPACE.ids[label])
    card = Card(
        name=name,
        label_space=SPACE.name,
        counts={"images": images},
        truths={"original": {"kind": "single"}},
        images_root="../../files",
    )
    table = image_table({"image_id": ids, "path": ids, "sha256": digests})
    made = make_testset(
        card, images=table, truths={"original": truth_table(ids, labels)}, label_space=SPACE
    )
    return save(made, Workspace(root).testsets / name)


def stored(root: Path) -> dict[str, str]:
    """Every file of the store with its content's hash; run.json without what may differ."""
    found = {}
    for path in sorted((root / "predictions").rglob("*")):
        if path.is_file():
            text = repr(path.read_bytes())
            if path.name == "run.json":
                text = json.dumps(json.loads(path.read_text()), sort_keys=True)
            found[path.relative_to(root).as_posix()] = sha256_text(text)
    return found

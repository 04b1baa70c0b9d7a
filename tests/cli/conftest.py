"""Running the command line in this process, and small published-shape folders to run it on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from heldout.cli.app import invoke


class Ran(NamedTuple):
    """One run of the command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``heldout`` with arguments."""

    def runner(*arguments: object) -> Ran:
        capsys.readouterr()
        code = invoke([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return runner


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A small folder of ImageNetV2's published layout: 5 classes, two sets, 4 models."""
    return write_published(tmp_path / "published")


def write_published(root: Path, *, classes: int = 5, per_class: int = 40) -> Path:
    rng = np.random.default_rng(7)
    wnids = [f"n{10_000_000 + 7 * i:08d}" for i in range(classes)]
    info = [
        {"cid": i, "wnid": w, "synset": [f"thing {i}"], "gloss": ""} for i, w in enumerate(wnids)
    ]
    write(root / "metadata/class_info.json", info)
    for place, name in enumerate(("imagenet-validation-original", "new-set-1")):
        rows = [[f"{name}-{i:04d}", wnids[i % classes]] for i in range(classes * per_class)]
        rng.shuffle(rows)
        write(root / f"datasets/{name}.json", {"image_filenames": rows, "seed": 1})
        labels = np.array([wnids.index(wnid) for _, wnid in rows])
        for model, skill in {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}.items():
            top = np.stack([rng.permutation(classes) for _ in labels])
            for i, label in enumerate(labels):
                if rng.random() < skill - 0.1 * place:
                    j = int(np.flatnonzero(top[i] == label)[0])
                    top[i, [0, j]] = top[i, [j, 0]]
            folder = root / "predictions" / name
            folder.mkdir(parents=True, exist_ok=True)
            np.save(folder / f"{model}.npy", top.astype(np.int16))
    return root


def write(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path

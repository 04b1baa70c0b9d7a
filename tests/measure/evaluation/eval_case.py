"""Three small test sets of image files, models that count their calls, and what a store holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from heldout.core.workspace import Workspace
from heldout.data.testset import TestSet
from tests.models.predictions.running_case import ColourModel, make_set

SETS = ("colours-1", "colours-2", "colours-3")
MODEL_FILE = """
from pathlib import Path

from tests.models.predictions.running_case import ColourModel

LOG = Path(__file__).with_name("calls.log")


class Counted(ColourModel):
    def __call__(self, pixels):
        with LOG.open("a") as log:
            log.write(f"{self.name}\\n")
        return super().__call__(pixels)


a = Counted("a")
b = Counted("b", size=6, version=2)
c = Counted("c", version=3)
slow = Counted("slow", pause=PAUSE)
"""


def three_sets(root: Path, *, broken: tuple[int, ...] = ()) -> list[TestSet]:
    """Sets of 40, 50 and 60 images; files that two of them share are equal."""
    return [
        make_set(root, images=40 + 10 * place, name=name, broken=broken)
        for place, name in enumerate(SETS)
    ]


def three_models(version: int = 1) -> list[ColourModel]:
    return [
        ColourModel("a", version=version),
        ColourModel("b", size=6, version=2),
        ColourModel("c", version=3),
    ]


def model_file(folder: Path, *, pause: float = 0.0) -> Path:
    """Write ``models.py`` with models a, b, c and slow, which log every call."""
    path = folder / "models.py"
    path.write_text(MODEL_FILE.replace("PAUSE", str(pause)))
    return path


def calls(folder: Path) -> list[str]:
    """The calls that models of :func:`model_file` have had so far."""
    log = folder / "calls.log"
    return log.read_text().split() if log.exists() else []


def snapshot(workspace: Workspace) -> dict[str, tuple[bytes, int]]:
    """Every file of the store: its bytes, and when it was last written."""
    return {
        path.relative_to(workspace.root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(workspace.predictions.rglob("*"))
        if path.is_file()
    }


def logits_file(path: Path, testset: TestSet, *, seed: int = 0) -> Path:
    """A ``.npy`` of logits, a row an image of the set, right in about two thirds of them."""
    rng = np.random.default_rng(seed)
    truth = {row["image_id"]: row["class_id"] for row in testset.truth().to_pylist()}
    labels = [testset.label_space.index(truth[name]) for name in testset.image_ids.to_pylist()]
    logits = rng.normal(0, 1, (len(testset), len(testset.label_space))).astype(np.float32)
    logits[np.arange(len(labels)), labels] += 1.5
    np.save(path, logits)
    return path

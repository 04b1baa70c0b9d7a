"""What textual arguments mean: label maps and policies named on a command line or in a run file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.errors import UserError
from heldout.labels import LabelMap, LabelSpace, load_label_map, subset_map
from heldout.predictions import PredictionStore
from heldout.testset import TestSet, find_testset
from heldout.workspace import Workspace

ABSENT_CLASSES = ("error", "skip")


def check_absent_classes(value: str) -> str:
    """``error`` or ``skip``."""
    if value not in ABSENT_CLASSES:
        raise UserError(f"--absent-classes {value!r}", fix="use error or skip")
    return value


def label_map_argument(
    text: str | None,
    testsets: Sequence[str],
    models: Sequence[str],
    *,
    workspace: Workspace | Path | str | None = None,
) -> LabelMap | None:
    """The label map that an argument names; ``subset:restricted`` and ``subset:full`` fit the test set."""
    if text is None or text == "identity":
        return None
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    testset = find_testset(place, testsets[0])
    source = _model_space(testset, models, place)
    if text in ("subset:restricted", "subset:full"):
        reading = "restricted" if text.endswith("restricted") else "full"
        return subset_map(source, testset.label_space, reading=reading)  # type: ignore[arg-type]
    return load_label_map(text, source=source)


def _model_space(testset: TestSet, models: Sequence[str], workspace: Workspace) -> LabelSpace:
    store = PredictionStore(workspace.predictions)
    runs = store.select(testset.card.images_hash, models, testset=testset.name)
    return store.read(runs[0]).label_space

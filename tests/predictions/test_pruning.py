from __future__ import annotations

import shutil
from pathlib import Path

from heldout.evaluation.example import make_example
from heldout.predictions import PredictionStore
from heldout.predictions.pruning import find_waste, remove
from heldout.workspace import Workspace


def test_only_what_is_not_wanted_goes(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    original, shifted = make_example(workspace, images=50)
    assert find_waste(workspace) == []
    left = workspace.predictions / original.card.images_hash[:12] / ".tmp-0-oak"
    left.mkdir()
    (left / "part").write_bytes(b"x" * 10)
    job = workspace.runs / "predict-ab-cd"
    job.mkdir(parents=True)
    shutil.rmtree(workspace.testsets / shifted.name)
    waste = find_waste(workspace, models=["o*"])
    assert {w.folder.name.partition("@")[0] for w in waste} == {
        ".tmp-0-oak", "oak", shifted.card.images_hash[:12], "predict-ab-cd",
    }  # fmt: skip
    assert remove(waste) == sum(w.bytes for w in waste) > 0
    assert find_waste(workspace, models=["o*"]) == []
    store = PredictionStore(workspace.predictions)
    assert {run.model for run in store.runs(original.card.images_hash)} == {
        "ash",
        "elm",
        "fir",
        "yew",
    }


def test_models_of_one_set(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    make_example(workspace, images=50)
    waste = find_waste(workspace, models=["*"], testset="example-shifted")
    assert len(waste) == 5 and all("example-shifted" in w.reason for w in waste)

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from heldout.core.engine import JobResults
from heldout.core.engine.results import working
from heldout.core.files import atomic_folder
from heldout.core.workspace import Workspace
from heldout.data.testset import save
from heldout.data.testset.subset import subset
from heldout.models.predictions import PredictionStore
from heldout.models.predictions.prune import find_waste, remove
from heldout.testing.example import example_predictions, example_testset, make_example


def test_only_what_is_not_wanted_goes(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    original, shifted = make_example(workspace, images=50)
    assert find_waste(workspace) == []
    (tmp_path / ".tmp-notes").touch()  # somebody else's
    os.utime(tmp_path / ".tmp-notes", (0, 0))
    name = f".tmp-{'0' * 32}-oak"
    left = workspace.predictions / original.card.images_hash[:12] / name
    left.mkdir()
    (left / "part").write_bytes(b"x" * 10)
    os.utime(left, (0, 0))
    # Its part was written just now, and another machine's locks may not be known to this one.
    assert find_waste(workspace) == []
    os.utime(left / "part", (0, 0))
    job = workspace.runs / "predict-ab-cd"
    job.mkdir(parents=True)
    shutil.rmtree(workspace.testsets / shifted.name)
    waste = find_waste(workspace, models=["o*"])
    assert {w.folder.name.partition("@")[0] for w in waste} == {
        name, "oak", shifted.card.images_hash[:12], "predict-ab-cd",
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


def test_work_in_progress_stays(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    job = JobResults(workspace.runs / "predict-ab-cd")
    with working(job):
        assert find_waste(workspace) == []
    assert [waste.folder for waste in find_waste(workspace)] == [job.folder]


def test_an_interrupted_removal_leaves_nothing_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    original, _ = make_example(workspace, images=50)
    store = PredictionStore(workspace.predictions)
    before = {run.model for run in store.runs(original.card.images_hash)}

    def killed(path: Path) -> None:
        next(Path(path).glob("part-*")).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        remove(find_waste(workspace, models=["oak"], testset=original.name))
    monkeypatch.undo()
    left = store.runs(original.card.images_hash)
    assert {run.model for run in left} == before - {"oak"}
    assert [waste.reason for waste in find_waste(workspace)] == ["left by an interrupted write"]


def test_models_of_one_set(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    make_example(workspace, images=50)
    waste = find_waste(workspace, models=["*"], testset="example-shifted")
    assert len(waste) == 5 and all("example-shifted" in w.reason for w in waste)


def test_samples_and_sets_elsewhere_keep_their_predictions(tmp_path: Path) -> None:
    """Nothing says that they are not wanted: they go where they are named."""
    workspace = Workspace(tmp_path / "w")
    store = PredictionStore(workspace.predictions)
    original, _ = make_example(workspace, images=50)
    sample = subset(original, original.image_ids.to_pylist()[:20], name="sample", recipe={})
    sample = replace(sample, folder=original.folder)  # as eval --limit makes it
    elsewhere = save(example_testset("far", images=30, shift=0.1), tmp_path / "far")
    for testset in (sample, elsewhere):
        made = example_predictions(testset, "oak")
        store.write(replace(made, run=store.owner(testset)), images_hash=testset.card.images_hash)
    assert find_waste(workspace) == []
    asked = find_waste(workspace, models=["oak"])
    assert {item.folder.parent.name for item in asked} == {
        one.name for one in workspace.predictions.iterdir()
    }
    remove(asked)
    assert store.runs(sample.card.images_hash) == store.runs(elsewhere.card.images_hash) == []


def test_what_a_live_process_writes_stays_and_the_only_copy_too(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    original, _ = make_example(workspace, images=50)
    with atomic_folder(workspace.pools / "new") as temporary:
        (temporary / "half").touch()
        assert find_waste(workspace) == []
        copy = temporary.with_name(f"{temporary.name}er")
        shutil.copytree(temporary, copy)  # what a killed process leaves is locked by nobody
        assert [waste.folder for waste in find_waste(workspace)] == [copy]
        remove(find_waste(workspace))
        assert temporary.exists() and not copy.exists()
    aside = workspace.testsets / f"{temporary.name.rpartition('-')[0]}-old-moved"
    (workspace.testsets / original.name).rename(aside)
    os.utime(aside, (0, 0))
    assert aside not in [waste.folder for waste in find_waste(workspace)]

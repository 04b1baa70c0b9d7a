from __future__ import annotations

from pathlib import Path

import numpy as np

from heldout.core.workspace import Workspace
from heldout.models.predictions import PredictionStore
from heldout.models.predictions import import_predictions as batch
from heldout.models.predictions.import_predictions import import_predictions

from .running_case import SPACE, make_set


def test_logits_beyond_half_precision_stay_numbers(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=12, broken=())
    logits = np.random.default_rng(0).normal(size=(12, len(SPACE))).astype(np.float32) * 1e6
    path = tmp_path / "big.npy"
    np.save(path, logits)
    made = import_predictions(path, testset)
    assert made.logits is not None and np.isfinite(made.logits).all()
    np.testing.assert_array_equal(made.topk[:, 0], logits.argmax(axis=1))


def test_logits_of_several_files_are_stored_without_holding_them_all(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=40, broken=())
    folder = tmp_path / testset.name
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "abc":
        np.save(folder / f"{name}.npy", rng.normal(size=(40, len(SPACE))).astype(np.float32))
    place = Workspace(tmp_path)
    found = batch.import_files([folder], workspace=place)
    assert found.counts == {testset.name: 3}
    assert all(made.logits is None for made in found.predictions)
    store = PredictionStore(place.predictions)
    for run in store.runs(testset.card.images_hash):
        logits = np.load(folder / f"{run.model}.npy").astype(np.float16)
        np.testing.assert_array_equal(store.read(run).logits, logits)


def test_folders_with_the_same_sets_add_up(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=10, broken=())
    for name in "ab":
        (tmp_path / name / testset.name).mkdir(parents=True)
        values = np.random.default_rng(ord(name)).normal(size=(10, len(SPACE)))
        np.save(tmp_path / name / testset.name / f"{name}.npy", values.astype(np.float32))
    found = batch.import_files([tmp_path / "a", tmp_path / "b"], workspace=Workspace(tmp_path))
    assert found.counts == {testset.name: 2}

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.core.workspace import Workspace
from heldout.data.testset import save
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


def test_many_logits_are_stored_without_holding_them_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testset = make_set(tmp_path, images=40, broken=())
    folder = tmp_path / testset.name
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "abc":
        np.save(folder / f"{name}.npy", rng.normal(size=(40, len(SPACE))).astype(np.float32))
    hashes = []
    for held in (1 << 30, 400, 0):
        monkeypatch.setattr(batch, "HELD_BYTES", held)
        place = Workspace(tmp_path / str(held))
        save(testset, place.testsets / testset.name)
        assert batch.import_files([folder], workspace=place).counts == {testset.name: 3}
        store = PredictionStore(place.predictions)
        runs = store.runs(testset.card.images_hash)
        assert all(store.read(run).logits is not None for run in runs)
        hashes.append([run.run["predictions_hash"] for run in runs])
    assert hashes[0] == hashes[1] == hashes[2] and len(set(hashes[0])) == 3


def test_folders_with_the_same_sets_add_up(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=10, broken=())
    for name in "ab":
        (tmp_path / name / testset.name).mkdir(parents=True)
        values = np.random.default_rng(ord(name)).normal(size=(10, len(SPACE)))
        np.save(tmp_path / name / testset.name / f"{name}.npy", values.astype(np.float32))
    found = batch.import_files([tmp_path / "a", tmp_path / "b"], workspace=Workspace(tmp_path))
    assert found.counts == {testset.name: 2}

"""A second look at failed images ends where an undisturbed run would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heldout import verbs
from heldout.core.errors import UserError
from heldout.core.workspace import Workspace
from heldout.data.testset import TestSet
from heldout.measure.evaluation.prediction import predict_all
from heldout.models.predictions import PredictionStore
from tests.models.predictions.running_case import ColourModel, make_set

GONE = (3, 7, 20)


def models() -> list[ColourModel]:
    return [ColourModel("a"), ColourModel("b", size=6, version=2)]


def hide(testset: TestSet, rows: tuple[int, ...]) -> dict[Path, bytes]:
    """Take image files away; where they were, and what they held."""
    names = testset.images["path"].to_pylist()
    paths = [testset.images_folder() / names[row] for row in rows]
    kept = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    return kept


@pytest.mark.parametrize("options", [{}, {"keep": "topk"}])
def test_files_that_are_back_are_predicted_and_nothing_else(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    testset = make_set(tmp_path / "set", images=40, name="colours", broken=())
    whole, place = Workspace(tmp_path / "whole"), Workspace(tmp_path / "place")
    (expected,) = predict_all([testset], models(), workspace=whole, **options)
    gone = hide(testset, GONE)
    (first,) = predict_all([testset], models(), workspace=place, **options)
    assert first.failed == len(GONE)
    path, data = gone.popitem()
    path.write_bytes(data)
    some = models()
    (second,) = predict_all([testset], some, workspace=place, retry=True, **options)
    assert second.failed == len(GONE) - 1
    assert [model.calls for model in some] == [1, 1]  # one image in one batch
    for path, data in gone.items():
        path.write_bytes(data)
    (third,) = predict_all([testset], models(), workspace=place, retry=True, **options)
    assert third.failed == 0 and third.failures() == []
    for a, b in zip(third.runs, expected.runs, strict=True):
        assert a.run["predictions_hash"] == b.run["predictions_hash"]
        assert PredictionStore(place.predictions).read(a).hash == a.run["predictions_hash"]
    # Nothing but the runs themselves is left.
    assert len(list(place.predictions.glob("*/*"))) == 2
    idle = models()
    predict_all([testset], idle, workspace=place, retry=True, **options)
    assert [model.calls for model in idle] == [0, 0]


def test_what_is_still_gone_stays_failed(tmp_path: Path) -> None:
    testset = make_set(tmp_path / "set", images=40, name="colours", broken=())
    place = Workspace(tmp_path / "place")
    hide(testset, GONE)
    (first,) = predict_all([testset], models(), workspace=place)
    (again,) = predict_all([testset], models(), workspace=place, retry=True)
    assert [run.run for run in again.runs] == [run.run for run in first.runs]
    with pytest.raises(UserError, match="shard and retry_failed exclude each other"):
        verbs.predict(models(), testset, workspace=place, retry_failed=True, shard="1/2")

"""Tests of :mod:`heldout.models.predictions.run_models`."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.core.engine import Shard
from heldout.core.errors import HeldoutError, NotApplicable
from heldout.core.workspace import Workspace
from heldout.data.images import BadImage
from heldout.data.images.preprocessing import Geometry, pixels_of
from heldout.data.testset import load
from heldout.models.adapters import ModelOutput
from heldout.models.predictions import Predictions, PredictionStore, StoredRun, run_models, top_k
from heldout.models.predictions.pixels import image_files, load_pixels
from heldout.models.predictions.run_models import (
    PredictWork,
    pack,
    plan_predictions,
    predict,
    prediction_units,
    unit_images,
    unpack,
)

from .running_case import ColourModel, make_set, stored

# running


def test_outputs_equal_a_plain_loop(tmp_path: Path) -> None:
    testset = make_set(tmp_path)
    models = [ColourModel("a"), ColourModel("b", size=6, version=2)]
    runs = predict(testset, models, workspace=Workspace(tmp_path))
    assert [run.model for run in runs] == ["a", "b"]
    files = image_files(testset)
    for run, model in zip(runs, models, strict=True):
        made = PredictionStore(tmp_path / "predictions").read(run)
        assert set(made.failures) == {7} and made.failures[7].startswith(("broken", "truncated"))
        for row in range(len(testset)):
            if row == 7:
                assert (made.topk[row] == -1).all()
                continue
            pixels = load_pixels(files, row, [model.preprocessing.geometry])
            answer = model(pixels[model.preprocessing.geometry.key][None])  # type: ignore[index]
            assert made.logits is not None
            np.testing.assert_array_equal(made.logits[row], answer.logits[0].astype(np.float16))
            assert made.topk[row].tolist() == top_k(answer.logits)[0].tolist()


@pytest.mark.parametrize(("workers", "batch"), [(1, 1), (1, 64), (3, 7), (8, 16)])
def test_neither_workers_nor_batches_change_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, batch: int
) -> None:
    for name, threads, images in (("one", 2, 16), ("two", workers, batch)):
        monkeypatch.setattr(run_models, "BATCH", images)
        testset = make_set(tmp_path / name)
        predict(testset, [ColourModel()], workspace=Workspace(tmp_path / name), workers=threads)
    assert stored(tmp_path / "one") == stored(tmp_path / "two")


def test_the_second_run_predicts_nothing(tmp_path: Path) -> None:
    testset = make_set(tmp_path)
    workspace = Workspace(tmp_path)
    first = ColourModel()
    predict(testset, [first], workspace=workspace)
    again = ColourModel()
    runs = predict(testset, [again], workspace=workspace)
    assert first.calls > 0 and again.calls == 0 and len(runs) == 1
    assert not plan_predictions(testset, [again], workspace=workspace).pending
    other = ColourModel(version=2)
    predict(testset, [other], workspace=workspace)
    assert other.calls > 0, "another checkpoint of one name never reuses a result"
    new_preprocessing = ColourModel(size=7)
    predict(testset, [new_preprocessing], workspace=workspace)
    assert new_preprocessing.calls > 0


def test_each_image_is_read_once_for_all_models(tmp_path: Path) -> None:
    testset = make_set(tmp_path, broken=())
    from heldout.data.images import FolderSource

    opened: list[str] = []

    class Counting:
        def __init__(self) -> None:
            self.source = FolderSource(tmp_path / "files")

        def ids(self) -> object:
            return self.source.ids()

        def open(self, image_id: str) -> object:
            opened.append(image_id)
            return self.source.open(image_id)

    models = [ColourModel("a"), ColourModel("b", version=2), ColourModel("c", size=6)]
    predict(testset, models, workspace=Workspace(tmp_path), images=Counting())  # type: ignore[arg-type]
    assert sorted(opened) == testset.image_ids.to_pylist()


def test_shards_make_one_whole(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for root in (whole, parts):
        make_set(root, images=400)
    predict(load(whole / "testsets/colours-1"), [ColourModel()], workspace=Workspace(whole))
    testset = load(parts / "testsets/colours-1")
    for index in (3, 1, 2):
        runs = predict(testset, [ColourModel()], workspace=Workspace(parts), shard=Shard(index, 3))
        assert len(runs) == (1 if index == 2 else 0)
    assert stored(whole) == stored(parts)


def test_top_k_alone_is_small_and_stated(tmp_path: Path) -> None:
    testset = make_set(tmp_path)
    (run,) = predict(testset, [ColourModel()], workspace=Workspace(tmp_path), keep="topk")
    assert run.run["keeps"] == "topk"
    (full,) = predict(testset, [ColourModel()], workspace=Workspace(tmp_path))
    assert full.run["keeps"] == "logits" and full.folder == run.folder


def test_a_run_that_holds_more_will_do(tmp_path: Path) -> None:
    testset, place = make_set(tmp_path), Workspace(tmp_path)
    (full,) = predict(testset, [ColourModel()], workspace=place)
    (again,) = predict(testset, [ColourModel()], workspace=place, keep="topk")
    assert again.folder == full.folder
    assert not plan_predictions(testset, [ColourModel()], workspace=place, keep="topk").pending


def test_no_image_at_all_is_refused(tmp_path: Path) -> None:
    testset = make_set(tmp_path)
    (tmp_path / "empty").mkdir()
    models = [ColourModel("a"), ColourModel("b")]
    with pytest.raises(NotApplicable, match="none of the 150 images"):
        predict(testset, models, workspace=Workspace(tmp_path), images=tmp_path / "empty")
    # Told where the images are, the next run does not go on from what was never read.
    runs = predict(testset, models, workspace=Workspace(tmp_path))
    assert [run.run["failed"] for run in runs] == [1, 1]


def test_a_set_without_images_is_refused(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=0)
    with pytest.raises(NotApplicable, match="colours-1 has no images"):
        predict(testset, [ColourModel()], workspace=Workspace(tmp_path))


class Stopped(ColourModel):
    """Ends the run, as Ctrl-C would, after some calls."""

    def __init__(self, name: str, *, after: int, **options: int) -> None:
        super().__init__(name, **options)
        self.after = after

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        if self.calls == self.after:
            raise KeyboardInterrupt
        return super().__call__(pixels)


@pytest.mark.parametrize("again", [["a"], ["b"], ["b", "a"], ["a", "b", "c"]])
def test_other_models_go_on_from_what_is_there(tmp_path: Path, again: list[str]) -> None:
    versions = {"a": 1, "b": 2, "c": 3}
    for name in ("whole", "stopped"):
        make_set(tmp_path / name)
    testset, place = load(tmp_path / "stopped/testsets/colours-1"), Workspace(tmp_path / "stopped")
    first = [ColourModel("a"), Stopped("b", after=10, version=2)]
    with pytest.raises(KeyboardInterrupt):
        predict(testset, first, workspace=place, workers=1)
    done = {"a": first[0].calls, "b": first[1].calls, "c": 0}
    assert done["a"] > done["b"] == 10
    models = [ColourModel(name, version=versions[name]) for name in again]
    predict(testset, models, workspace=place, workers=1)
    units = -(-150 // 8)
    assert {model.name: model.calls for model in models} == {m: units - done[m] for m in again}
    whole = load(tmp_path / "whole/testsets/colours-1")
    fresh = [ColourModel(name, version=versions[name]) for name in again]
    predict(whole, fresh, workspace=Workspace(tmp_path / "whole"))
    assert stored(tmp_path / "whole") == stored(tmp_path / "stopped")
    left = {"a", "b"} - set(again)
    assert len(list(place.runs.glob("predict-*"))) == len(left)


def test_stopped_between_two_models_nothing_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testset, place = make_set(tmp_path), Workspace(tmp_path)
    write = PredictionStore.write

    def stops(self: PredictionStore, made: Predictions, **options: Any) -> StoredRun:
        if made.model == "b":
            raise KeyboardInterrupt
        return write(self, made, **options)

    monkeypatch.setattr(PredictionStore, "write", stops)
    with pytest.raises(KeyboardInterrupt):
        predict(testset, [ColourModel("a"), ColourModel("b", version=2)], workspace=place)
    monkeypatch.undo()
    models = [ColourModel("a"), ColourModel("b", version=2)]
    runs = predict(testset, models, workspace=place)
    assert [run.model for run in runs] == ["a", "b"]
    assert [model.calls for model in models] == [0, 0]


def test_a_model_that_breaks_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    testset, place = make_set(tmp_path), Workspace(tmp_path)

    class Broken(ColourModel):
        def __call__(self, pixels: np.ndarray) -> ModelOutput:
            raise RuntimeError("no such operator")

    with pytest.raises(HeldoutError, match="no such operator"):
        predict(testset, [ColourModel("a"), Broken("b")], workspace=place)
    assert stored(tmp_path) == {}
    alone = ColourModel("a")
    (run,) = predict(testset, [alone], workspace=place)
    assert alone.calls == 0 and run.run["failed"] == 1


def test_results_that_vanish_are_an_error_and_no_silence(tmp_path: Path) -> None:
    testset, place = make_set(tmp_path), Workspace(tmp_path)

    class Vandal(ColourModel):
        def __call__(self, pixels: np.ndarray) -> ModelOutput:
            if self.calls == 5:
                for job in place.runs.iterdir():
                    shutil.rmtree(job / "results")
            return super().__call__(pixels)

    with pytest.raises(HeldoutError, match="removed while"):
        predict(testset, [Vandal()], workspace=place, workers=1)
    assert len(predict(testset, [ColourModel()], workspace=place)) == 1


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.models.predictions.running_case import ColourModel
from heldout.models.predictions.run_models import predict
from heldout.data.testset import load
from heldout.core.workspace import Workspace
root = Path(sys.argv[1])
print("ready", flush=True)
models = [ColourModel("a", pause=0.004), ColourModel("b", size=6, version=2)]
predict(load(root / "testsets/colours-1"), models, workspace=Workspace(root), workers=2)
"""


def test_killed_twenty_times_the_store_is_the_same(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    for name in ("whole", "killed"):
        make_set(tmp_path / name, images=1500)
    command = [sys.executable, "-c", KILLED]
    subprocess.run([*command, str(tmp_path / "whole"), str(root)], check=True, capture_output=True)
    rng = random.Random(3)
    kills = 0
    for _ in range(20):
        child = subprocess.Popen(
            [*command, str(tmp_path / "killed"), str(root)], stdout=subprocess.PIPE
        )
        if child.stdout is None:
            raise RuntimeError("no pipe")
        child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.08))
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        child.wait()
        child.stdout.close()
    assert kills == 20
    subprocess.run([*command, str(tmp_path / "killed"), str(root)], check=True, capture_output=True)
    assert stored(tmp_path / "whole") == stored(tmp_path / "killed")
    assert not list((tmp_path / "killed/runs").glob("predict-*"))


def test_two_processes_on_one_store(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    for name in ("one", "two"):
        make_set(tmp_path / name, images=600)
    command = [sys.executable, "-c", KILLED]
    subprocess.run([*command, str(tmp_path / "one"), str(root)], check=True, capture_output=True)
    both = [
        subprocess.Popen([*command, str(tmp_path / "two"), str(root)], stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [child.wait() for child in both] == [0, 0]
    assert stored(tmp_path / "one") == stored(tmp_path / "two")


def test_answers_that_are_no_numbers_fail_with_a_reason(tmp_path: Path) -> None:
    testset = make_set(tmp_path, broken=())

    class Sick(ColourModel):
        def __call__(self, pixels: np.ndarray) -> ModelOutput:
            answer = super().__call__(pixels)
            answer.logits[answer.logits[:, 0] > 0.7] = np.nan
            answer.logits[:, 3] = 1e9  # beyond float16: kept as its largest value, not as infinity
            return answer

    alone = make_set(tmp_path / "alone", broken=())
    (healthy,) = predict(alone, [ColourModel("well")], workspace=Workspace(tmp_path / "alone"))
    run, beside = predict(testset, [Sick(), ColourModel("well")], workspace=Workspace(tmp_path))
    assert beside.run["predictions_hash"] == healthy.run["predictions_hash"]
    assert beside.run["failed"] == 0, "one model's trouble is not another's"
    made = PredictionStore(tmp_path / "predictions").read(run)
    assert 0 < len(made.failures) < len(testset)
    assert all(reason.startswith("not finite: colour") for reason in made.failures.values())
    assert made.logits is not None and np.isfinite(made.logits).all()
    good = [row for row in range(len(testset)) if row not in made.failures]
    assert (made.topk[good, 0] == 3).all() and (made.topk[list(made.failures)] == -1).all()


# units


@given(st.integers(0, 3_000_000))
def test_the_size_of_units(images: int) -> None:
    fewest, most = 8, 64
    size = unit_images(images)
    assert fewest <= size <= most and size % fewest == 0
    assert size <= unit_images(images + 1)
    # The last unit of a worker is a small share of a job, except where units are as small as can be.
    assert size == fewest or size <= images / 128


@pytest.mark.parametrize("images", [1, 8, 9, 150])
def test_units_cover_every_row_once_and_depend_on_nothing_else(tmp_path: Path, images: int) -> None:
    testset = make_set(tmp_path, images=images, broken=())
    units = prediction_units(testset, image_files(testset))
    rows = [row for unit in units for row in range(unit.payload.start, unit.payload.stop)]
    assert rows == list(range(images))
    assert len({unit.key for unit in units}) == len(units)
    assert [unit.payload.key for unit in units] == [unit.key for unit in units]
    assert units == prediction_units(testset, image_files(testset))


def test_no_two_models_keep_their_results_in_one_folder(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=10)
    models = [
        ColourModel("a"), ColourModel("b"), ColourModel("a", version=2), ColourModel("a", size=6),
    ]  # fmt: skip
    plan = plan_predictions(testset, models, workspace=Workspace(tmp_path))
    assert len({entry.job for entry in plan.pending}) == len(models)


def turned(width: int, height: int) -> bytes:
    """A JPEG with an EXIF orientation: its left side goes up."""
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    handle = io.BytesIO()
    Image.fromarray(values).save(handle, "JPEG", exif=exif, quality=95)
    return handle.getvalue()


def test_geometries_of_one_image_are_those_of_each_alone(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=1, broken=())
    files = image_files(testset)
    data = turned(40, 30)
    (tmp_path / "files" / files.names[0]).write_bytes(data)
    geometries = [
        Geometry(resize_height=20, crop_height=16, crop_width=16, exif=exif, interpolation=way)
        for exif in (False, True)
        for way in ("bilinear", "bicubic")
    ]
    found = load_pixels(files, 0, geometries)
    assert not isinstance(found, BadImage) and len(found) == len(geometries)
    for geometry in geometries:
        np.testing.assert_array_equal(found[geometry.key], pixels_of(data, geometry))
    upright, as_stored = (pixels_of(data, geometry) for geometry in geometries[1::2])
    assert not np.array_equal(upright, as_stored)


def test_a_line_that_would_be_blown_up_is_an_image_that_fails(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=1, broken=())
    files = image_files(testset)
    handle = io.BytesIO()
    Image.new("RGB", (1, 60_000)).save(handle, "PNG")
    (tmp_path / "files" / files.names[0]).write_bytes(handle.getvalue())
    found = load_pixels(files, 0, [Geometry()])  # resized it would be 256 x 15,360,000
    assert isinstance(found, BadImage) and found.trouble == "too large"


@pytest.mark.parametrize("keep", ["logits", "topk"])
def test_what_is_packed_comes_back(tmp_path: Path, keep: str) -> None:
    testset = make_set(tmp_path, images=20, broken=(3,))
    models = [ColourModel("a"), ColourModel("b", size=6, version=2)]
    work = PredictWork(image_files(testset), models, keep)
    rows = list(work.predict(0, 20))
    assert [set(model.failures) for model in rows] == [{3}, {3}]
    if keep == "logits":  # or places could be confused unseen
        first, second = (model.logits for model in rows)
        assert not np.array_equal(first, second)  # type: ignore[arg-type]
    (second_alone,) = work.predict(0, 20, [1])
    assert pack(second_alone) == pack(rows[1]) != pack(rows[0])
    for expected in rows:
        mine = unpack(io.BytesIO(pack(expected)))
        assert mine.failures == expected.failures and mine.digests == expected.digests
        np.testing.assert_array_equal(mine.topk, expected.topk)
        assert (mine.logits is not None) == (keep == "logits")
        if keep == "logits":
            np.testing.assert_array_equal(mine.logits, expected.logits)

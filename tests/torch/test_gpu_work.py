"""The GPU path as the work of a prediction job: the results of the plain path, whatever happens."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from heldout.errors import HeldoutError
from heldout.images import MemorySource
from heldout.images.preprocessing import Geometry, Preprocessing
from heldout.labels import LabelSpace
from heldout.models.torch_model import TorchModel
from heldout.predictions import PredictionStore, running
from heldout.predictions.gpu import Settings
from heldout.predictions.gpu import work as gpu_work
from heldout.predictions.gpu.work import GpuWork, gpu_unit_images, runs_on_gpu
from heldout.predictions.pixels import ImageFiles
from heldout.predictions.units import PredictWork, unpack
from heldout.testset import Card, image_table, make_testset, truth_table
from heldout.workspace import Workspace

GEOMETRY = Geometry(resize_height=40, crop_height=32, crop_width=32)
SPACE = LabelSpace.from_ids("tens", [f"c{i}" for i in range(10)])
SETTINGS = Settings(
    batch=32, decoders=("pillow", "pillow"), readers=2, processes=2, slots=3,
    slot_bytes=1 << 13, sample=150,
)  # fmt: skip
COUNT, BROKEN = 300, 50


def photo(number: int) -> bytes:
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    out = io.BytesIO()
    coarse.resize((60, 50), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return b"not an image" if number == BROKEN else out.getvalue()


@pytest.fixture(scope="module")
def files() -> ImageFiles:
    names = [f"{i:04d}.jpg" for i in range(COUNT)]
    source = MemorySource({name: photo(i) for i, name in enumerate(names)})
    return ImageFiles(source, names, [None] * COUNT)


def model(seed: int) -> TorchModel:
    torch.manual_seed(seed)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, 4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 49, 10),
    )  # fmt: skip
    return TorchModel(
        layers,
        name=f"m{seed}",
        label_space=SPACE,
        preprocessing=Preprocessing(geometry=GEOMETRY),
        identity={"seed": seed},
        classifier=layers[3],
    )


def on_cpu(files: ImageFiles, models: list[TorchModel], notes: Path, **more: Any) -> GpuWork:
    options: dict[str, Any] = {"devices": ["cpu"], "settings": SETTINGS, "precision": "bfloat16"}
    return GpuWork(files, models, notes=notes, **{**options, **more})


def test_results_are_those_of_the_plain_path(files: ImageFiles, tmp_path: Path) -> None:
    models = [model(0), model(1)]
    plain = PredictWork(files, models)
    with on_cpu(files, models, tmp_path / "notes.json") as work:
        for start, stop in ((0, 128), (128, COUNT)):
            expected, found = plain((start, stop)), work((start, stop))
            for place in range(2):
                a, b = unpack(expected, place), unpack(found, place)
                np.testing.assert_array_equal(a.topk[:, 0], b.topk[:, 0])
                np.testing.assert_allclose(a.logits, b.logits, atol=0.05)
                assert a.failures == b.failures
        assert work.record(1)["precision"] == "bfloat16"
        assert 0 < work.record(1)["recheck"]["rechecked"] < 0.6
    assert (tmp_path / "notes.json").is_file()
    assert models[0](np.zeros((1, 32, 32, 3), np.uint8)).features is not None  # its hook is back


def test_several_devices_share_the_units(files: ImageFiles, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    models = [model(0)]
    ranges = [(start, start + 60) for start in range(0, COUNT, 60)]
    with on_cpu(files, models, tmp_path / "one.json") as work:
        expected = [work(part) for part in ranges]
    with (
        on_cpu(files, models, tmp_path / "two.json", devices=["cpu", "cpu"]) as work,
        ThreadPoolExecutor(work.workers) as pool,
    ):
        found = list(pool.map(work, ranges))
        assert all(place.pipeline is not None for place in work._places)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_array_equal(unpack(a, 0).topk[:, 0], unpack(b, 0).topk[:, 0])


def test_a_resumed_job_uses_the_thresholds_of_the_first(files: ImageFiles, tmp_path: Path) -> None:
    models, notes = [model(0)], tmp_path / "notes.json"
    with on_cpu(files, models, notes) as work:
        first = work((0, COUNT))
        calibrations = work._places[0].pipeline.calibrations  # type: ignore[union-attr]
    with on_cpu(files, models, notes) as again:
        assert again((0, COUNT)) == first
        assert again._places[0].pipeline.calibrations == calibrations  # type: ignore[union-attr]
        assert again._places[0].pipeline._learning is None  # type: ignore[union-attr]


def test_fast_and_topk(files: ImageFiles, tmp_path: Path) -> None:
    with on_cpu(files, [model(0)], tmp_path / "n.json", fast=True, keep="topk") as work:
        found = unpack(work((0, 64)), 0)
        assert found.logits is None and found.topk.shape == (64, 5)
        assert "may differ" in work.record(0)["recheck"]
    assert not (tmp_path / "n.json").exists()


class Hungry(torch.nn.Module):
    """Has memory for so many images at a time."""

    room = 0

    def forward(self, images: Any) -> Any:
        if len(images) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return images.float().mean((2, 3))


def hungry(room: int) -> TorchModel:
    module = Hungry()
    module.room = room
    return TorchModel(
        module,
        name="hungry",
        label_space=LabelSpace.from_ids("rgb", ["r", "g", "b"]),
        preprocessing=Preprocessing(geometry=GEOMETRY),
        identity={},
    )


def test_out_of_memory_halves_the_batch(files: ImageFiles, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    plain = PredictWork(files, [hungry(1000)])
    with (
        on_cpu(files, [hungry(9)], tmp_path / "n.json", fast=True) as work,
        ThreadPoolExecutor(3) as pool,
    ):
        ranges = [(0, 100), (100, 200), (200, COUNT)]
        for part, found in zip(ranges, pool.map(work, ranges), strict=True):
            np.testing.assert_array_equal(unpack(found, 0).topk, unpack(plain(part), 0).topk)
        assert work._places[0].batch == 8


def test_a_model_that_never_fits_is_a_fault(files: ImageFiles, tmp_path: Path) -> None:
    with (
        on_cpu(files, [hungry(0)], tmp_path / "n.json", fast=True) as work,
        pytest.raises(HeldoutError, match="one image at a time"),
    ):
        work((0, 64))


def test_predict_runs_and_stores_what_the_plain_path_stores(
    files: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = list(files.names)
    testset = make_testset(
        Card(name="photos-1", label_space=SPACE.name),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, ["c0"] * COUNT)},
        label_space=SPACE,
    )
    models = [model(0), model(1)]
    plain = Workspace(tmp_path / "plain")
    running.predict(testset, models, workspace=plain, images=files.source)

    class OnCpu(GpuWork):
        def __init__(self, *given: Any, **options: Any) -> None:
            more = {"devices": ["cpu"], "settings": SETTINGS, "precision": "bfloat16"}
            super().__init__(*given, **{**options, **more})

    gpu = Workspace(tmp_path / "gpu")
    monkeypatch.setattr(running, "GpuWork", OnCpu)
    monkeypatch.setattr(running, "runs_on_gpu", lambda model: True)
    made = running.predict(testset, models, workspace=gpu, images=files.source)
    assert [run.run["precision"] for run in made] == ["bfloat16"] * 2
    assert not list(gpu.runs.iterdir()) or not list(gpu.runs.glob("predict-*"))
    for run in PredictionStore(plain.predictions).runs(testset.card.images_hash):
        (twin,) = [other for other in made if other.model == run.model]
        assert twin.folder.name == run.folder.name  # filed under the same key
        a = PredictionStore(plain.predictions).read(run)
        b = PredictionStore(gpu.predictions).read(twin)
        np.testing.assert_array_equal(a.topk[:, 0], b.topk[:, 0])
        assert a.failures == b.failures
    ask = {"workspace": gpu, "images": files.source}
    assert running.predict(testset, models, fast=True, **ask) == made  # exact ones will do
    another = [model(2)]
    (fast,) = running.predict(testset, another, fast=True, **ask)
    assert "may differ" in fast.run["recheck"]
    (exact,) = running.predict(testset, another, **ask)  # but not the other way round
    assert exact.folder != fast.folder


def test_which_models_take_this_path() -> None:
    plain = model(0)
    assert not runs_on_gpu(plain)
    plain.device = "cuda:1"
    assert runs_on_gpu(plain)
    assert gpu_work.devices_of([plain]) == ("cuda:1",)
    plain.preprocessing = replace(plain.preprocessing, layout="NHWC")
    assert not runs_on_gpu(plain)
    assert [gpu_unit_images(n) for n in (1, 5000, 10**6)] == [256, 512, 4096]

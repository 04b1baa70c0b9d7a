"""The GPU path as the work of a prediction job: the results of the plain path, whatever happens."""

from __future__ import annotations

import io
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from heldout.core.errors import HeldoutError
from heldout.core.workspace import Workspace
from heldout.data.images import FolderSource, MemorySource
from heldout.data.images import sources as image_source
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, image_table, make_testset, truth_table
from heldout.models.adapters.torch_model import TorchModel
from heldout.models.gpu import predictor as gpu_work
from heldout.models.gpu.batch import Settings
from heldout.models.gpu.pipeline import Pipeline
from heldout.models.gpu.predictor import GpuPredictor
from heldout.models.predictions import PredictionStore
from heldout.models.predictions import run_models as running
from heldout.models.predictions.pixels import ImageFiles
from heldout.models.predictions.run_models import PredictWork, pack
from tests.torch.gpu_case import DEVICE

pytestmark = pytest.mark.usefixtures("device_decodes")

GEOMETRY = Geometry(resize_height=40, crop_height=32, crop_width=32)
SPACE = LabelSpace.from_ids("tens", [f"c{i}" for i in range(10)])
SETTINGS = Settings(precision="bfloat16",
    batch=32, readers=2, pillow=2, slots=3,
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


def on_device(
    files: ImageFiles, models: list[TorchModel], folder: Path, **more: Any
) -> closing[GpuPredictor]:
    options: dict[str, Any] = {"devices": [DEVICE], "settings": SETTINGS, **more}
    notes = [folder / f"{model.name}.json" for model in models]
    return closing(GpuPredictor(files, models, notes=notes, **options))


def test_results_are_those_of_the_plain_path(files: ImageFiles, tmp_path: Path) -> None:
    models = [model(0), model(1)]
    plain = PredictWork(files, models)
    with on_device(replace(files, seen={}), models, tmp_path) as work:
        for start, stop in ((0, 128), (128, COUNT)):
            expected, found = plain.predict(start, stop), work.predict(start, stop)
            for a, b in zip(expected, found, strict=True):
                np.testing.assert_array_equal(a.topk[:, 0], b.topk[:, 0])
                np.testing.assert_allclose(a.logits, b.logits, atol=0.05)
                assert a.failures == b.failures and a.digests == b.digests
                assert sum(digest is None for digest in b.digests) == len(b.failures)
        assert work.record(1)["precision"] == "bfloat16"
        assert 0 < work.record(1)["recheck"]["rechecked"] < 0.6
        (second,) = work.predict(0, 64, [1])
        np.testing.assert_array_equal(second.topk, work.predict(0, 64)[1].topk)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m0.json", "m1.json"]
    assert models[0](np.zeros((1, 32, 32, 3), np.uint8)).features is not None  # its hook is back


def test_several_devices_share_the_units(files: ImageFiles, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    models = [model(0)]
    starts = range(0, COUNT, 60)
    with on_device(files, models, tmp_path / "one") as work:
        expected = [work.predict(start, start + 60) for start in starts]
    with (
        on_device(files, models, tmp_path / "two", devices=[DEVICE, DEVICE]) as work,
        ThreadPoolExecutor(work.workers) as pool,
    ):
        found = list(pool.map(lambda start: work.predict(start, start + 60), starts))
        assert all(place.pipeline is not None for place in work._places)
    for (a,), (b,) in zip(expected, found, strict=True):
        np.testing.assert_array_equal(a.topk[:, 0], b.topk[:, 0])


def test_a_resumed_job_uses_the_thresholds_of_the_first(files: ImageFiles, tmp_path: Path) -> None:
    models = [model(0)]
    with on_device(files, models, tmp_path) as work:
        (first,) = work.predict(0, COUNT)
        calibrations = work._places[0].pipeline.rechecker.calibrations  # type: ignore[union-attr]
    with on_device(files, models, tmp_path) as again:
        (second,) = again.predict(0, COUNT)
        assert pack(second) == pack(first)
        assert again._places[0].pipeline.rechecker.calibrations == calibrations  # type: ignore[union-attr]
        assert again._places[0].pipeline._learning is None  # type: ignore[union-attr]


def test_top_k_alone(files: ImageFiles, tmp_path: Path) -> None:
    with on_device(files, [model(0)], tmp_path, keep="topk") as work:
        (found,) = work.predict(0, 64)
        assert found.logits is None and found.topk.shape == (64, 5)


class Hungry(torch.nn.Module):
    """Has memory for ``room`` images at a time."""

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
        on_device(files, [hungry(9)], tmp_path) as work,
        ThreadPoolExecutor(3) as pool,
    ):
        starts = range(0, COUNT, 100)
        made = pool.map(lambda start: work.predict(start, start + 100), starts)
        for start, (found,) in zip(starts, made, strict=True):
            (expected,) = plain.predict(start, start + 100)
            np.testing.assert_array_equal(found.topk[:, 0], expected.topk[:, 0])
        assert work._places[0].batch == 8


def test_no_pipeline_is_made_before_the_last_has_let_go(
    files: ImageFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    alive, most = [0], [0]

    class Counted(Pipeline):
        def __init__(self, *given: Any, **options: Any) -> None:
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            super().__init__(*given, **options)

        def close(self) -> None:
            time.sleep(0.2)
            super().close()
            alive[0] -= 1

    monkeypatch.setattr(gpu_work, "Pipeline", Counted)
    with (
        on_device(files, [hungry(9)], tmp_path) as work,
        ThreadPoolExecutor(3) as pool,
    ):
        list(pool.map(lambda start: work.predict(start, start + 100), range(0, COUNT, 100)))
        assert work._places[0].batch == 8
    assert most == [1]


class Unreachable:
    """A store that goes away."""

    def __init__(self, source: MemorySource, after: str) -> None:
        self.source, self.after = source, after

    def ids(self) -> Any:
        return self.source.ids()

    def open(self, image_id: str) -> Any:
        if image_id > self.after:
            raise ConnectionError("the store is gone")
        return self.source.open(image_id)


def test_a_store_that_goes_away_is_a_fault_and_no_failed_image(
    files: ImageFiles, tmp_path: Path
) -> None:
    gone = replace(files, source=Unreachable(files.source, "0200.jpg"))  # type: ignore[arg-type]
    with (
        on_device(gone, [model(0)], tmp_path) as work,
        pytest.raises(ConnectionError, match="the store is gone"),
    ):
        work.predict(190, 230)


def test_a_fault_in_the_sample_is_not_the_fault_of_what_comes_after(
    files: ImageFiles, tmp_path: Path
) -> None:
    gone = Unreachable(files.source, "0200.jpg")  # type: ignore[arg-type]
    with on_device(replace(files, source=gone), [model(0)], tmp_path) as work:  # type: ignore[arg-type]
        with pytest.raises(ConnectionError, match="the store is gone"):
            work.predict(0, 64)
        gone.after = "9"
        (found,) = work.predict(0, 64)
    (expected,) = PredictWork(files, [model(0)]).predict(0, 64)
    np.testing.assert_array_equal(found.topk[:, 0], expected.topk[:, 0])
    assert set(found.failures) == {BROKEN}


def test_names_that_leave_the_folder_and_huge_files_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg", "../c.jpg"):
        (folder / name).write_bytes(photo(1))
    (folder / "b.jpg").write_bytes(photo(1) + bytes(20_000))
    monkeypatch.setattr(image_source, "MAX_IMAGE_BYTES", 20_000)
    names = ["a.jpg", "b.jpg", "../c.jpg"]
    for some in (names, names[:2]):
        files = ImageFiles(FolderSource(folder), some, [None] * len(some))
        (expected,) = PredictWork(files, [model(0)]).predict(0, len(some))
        with on_device(files, [model(0)], tmp_path / str(len(some))) as work:
            (found,) = work.predict(0, len(some))
        assert sorted(found.failures) == sorted(expected.failures) == list(range(1, len(some)))
        assert all(reason.startswith("unreadable: ") for reason in found.failures.values())


def test_a_model_that_never_fits_is_a_fault(files: ImageFiles, tmp_path: Path) -> None:
    with (
        on_device(files, [hungry(0)], tmp_path) as work,
        pytest.raises(HeldoutError, match="one image at a time"),
    ):
        work.predict(0, 64)


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

    class OnDevice(GpuPredictor):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options, settings=SETTINGS, devices=[DEVICE])

    gpu = Workspace(tmp_path / "gpu")
    monkeypatch.setattr(gpu_work, "GpuPredictor", OnDevice)
    monkeypatch.setattr(running, "runs_on_gpu", lambda model: True)
    made = running.predict(testset, models, workspace=gpu, images=files.source)
    assert [run.run["precision"] for run in made] == ["bfloat16"] * 2
    assert not list(gpu.runs.iterdir())
    for run in PredictionStore(plain.predictions).runs(testset.card.images_hash):
        (twin,) = [other for other in made if other.model == run.model]
        assert twin.folder.name == run.folder.name  # filed under the same key
        a = PredictionStore(plain.predictions).read(run)
        b = PredictionStore(gpu.predictions).read(twin)
        np.testing.assert_array_equal(a.topk[:, 0], b.topk[:, 0])
        assert a.failures == b.failures
    ask = {"workspace": gpu, "images": files.source}
    assert running.predict(testset, models, **ask) == made


def test_which_models_take_this_path() -> None:
    plain = model(0)
    assert not running.runs_on_gpu(plain)
    plain.device = "cuda:1"
    assert running.runs_on_gpu(plain)
    assert gpu_work.devices_of([plain]) == ("cuda:1",)
    plain.preprocessing = replace(plain.preprocessing, layout="NHWC")
    assert not running.runs_on_gpu(plain)
    assert [running.unit_images(n, on_gpu=True) for n in (1, 5000, 10**6)] == [256, 512, 4096]

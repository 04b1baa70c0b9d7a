"""What only a GPU shows: its decoder's pixels, its memory, a real lack of it. Elsewhere these tests do
not exist (conftest.py)."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from heldout.data.images import MemorySource
from heldout.data.images.preprocessing import Geometry, Preprocessing, pixels_of
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.models.adapters.torch_model import TorchModel
from heldout.models.gpu.decode import fill, stream_decoder
from heldout.models.gpu.pillow_workers import PillowWorkers
from heldout.models.gpu.predictor import GpuPredictor
from heldout.models.gpu.read import HostBatch, read_part
from heldout.models.predictions.pixels import ImageFiles
from heldout.models.predictions.run_models import PredictWork, pack
from tests.torch.gpu_case import DEVICE, reads_of

GEOMETRY = Geometry(resize_height=256, crop_height=224, crop_width=224)
SPACE = LabelSpace.from_ids("thousand", [f"c{i:03d}" for i in range(1000)])


def photo(number: int, **how: Any) -> bytes:
    """A JPEG of some 200 to 600 pixels a side, with structure at all scales."""
    rng = np.random.default_rng(number)
    height, width = (int(v) for v in rng.integers(200, 600, 2))
    total = np.zeros((height, width, 3), np.float32)
    for cells, amplitude in ((3, 90), (20, 50), (90, 25)):
        grid = rng.normal(0, 1, (cells, cells, 3)).astype(np.float32)
        for c in range(3):
            layer = Image.fromarray(np.ascontiguousarray(grid[..., c]))
            total[..., c] += amplitude * np.asarray(layer.resize((width, height)))
    image = Image.fromarray(np.clip(total + 128, 0, 255).astype(np.uint8))
    mode = how.pop("mode", "RGB")
    out = io.BytesIO()
    image.convert(mode).save(out, "JPEG", **{"quality": 90, **how})
    return out.getvalue()


KINDS: dict[str, dict[str, Any]] = {
    "4:2:0": {"subsampling": 2},
    "4:2:2": {"subsampling": 1},
    "4:4:4": {"subsampling": 0},
    "grey": {"mode": "L"},
    "quality 30": {"quality": 30},
    "quality 100": {"quality": 100},
    "own Huffman tables": {"optimize": True},
    "restart markers": {"restart_marker_blocks": 3},
    "progressive": {"progressive": True},
    "CMYK": {"mode": "CMYK"},
}


def device_pixels(data: list[bytes], geometry: Geometry) -> tuple[np.ndarray, dict[int, str]]:
    """Pixels as a lane of the pipeline makes them, and what failed."""
    names = [str(i) for i in range(len(data))]
    reads = reads_of(MemorySource(dict(zip(names, data, strict=True))), names)
    pool = PillowWorkers(geometry, threads=2)
    slot = HostBatch(len(data), size=sum(map(len, data)) + 64 * len(data), pinned=True)
    read_part(
        slot, reads, range(len(data)), range(len(data)), (0, slot.buffer.numel()), pool
    )  # fmt: skip
    lane = stream_decoder(geometry, DEVICE)
    shape = (len(data), geometry.crop_height, geometry.crop_width, 3)
    pixels = torch.zeros(shape, dtype=torch.uint8, device=DEVICE)
    torch.cuda.synchronize()
    fill(lane, slot, pixels, pool)
    lane.stream.record().wait()
    found = pixels.cpu().numpy()
    failures = dict(slot.failures)
    lane.close()
    pool.close()
    return found, failures


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("kind", KINDS)
def test_pixels_are_pillows(kind: str, interpolation: Any) -> None:
    geometry = Geometry(
        resize_height=256, crop_height=224, crop_width=224, interpolation=interpolation
    )
    data = [photo(i, **KINDS[kind]) for i in range(12)]
    found, failures = device_pixels(data, geometry)
    assert not failures
    for place, one in enumerate(data):
        np.testing.assert_array_equal(found[place], pixels_of(one, geometry))


def test_damaged_streams_fail_or_give_pixels() -> None:
    """Whatever is in a stream whose header is sound: the device goes on, and its neighbours are right.

    What the engines make of damaged bits is theirs to say; Pillow's pixels may differ there.
    """
    rng = np.random.default_rng(0)
    sound = [photo(i) for i in range(48)]
    data = list(sound)
    damaged = sorted(rng.choice(48, 16, replace=False).tolist())
    for place in damaged:
        body = bytearray(data[place])
        start = body.index(b"\xff\xda") + 14
        for at in rng.integers(start, len(body) - 2, 20):
            body[at] = int(rng.integers(0, 256))
        data[place] = bytes(body)
    found, failures = device_pixels(data, GEOMETRY)
    for place in set(range(48)) - set(damaged):
        assert place not in failures
        np.testing.assert_array_equal(found[place], pixels_of(data[place], GEOMETRY))
    again, _ = device_pixels(sound, GEOMETRY)
    for place in range(48):
        np.testing.assert_array_equal(again[place], pixels_of(sound[place], GEOMETRY))


@pytest.fixture(scope="module")
def files() -> ImageFiles:
    names = [f"{i:05d}.jpg" for i in range(1500)]
    with ThreadPoolExecutor(16) as pool:
        data = list(pool.map(photo, range(300)))
    source = MemorySource({name: data[i % 300] for i, name in enumerate(names)})
    return ImageFiles(source, names, [None] * len(names))


def resnet(seed: int = 0, name: str = "resnet18") -> TorchModel:
    from torchvision import models

    torch.manual_seed(seed)
    module = getattr(models, name)(weights=None).eval()
    return TorchModel(
        module,
        name=f"{name}-{seed}",
        label_space=SPACE,
        preprocessing=Preprocessing(geometry=GEOMETRY),
        identity={"seed": seed},
        device=DEVICE,
    )


def notes(folder: Path, models: list[TorchModel]) -> list[Path]:
    return [folder / f"{model.name}.json" for model in models]


def test_pipelines_give_their_memory_back(files: ImageFiles, tmp_path: Path) -> None:
    """Also nvJPEG's, which torch does not count."""
    models = [resnet()]
    free, held = [], []
    for turn in range(6):
        with closing(
            GpuPredictor(files, models, notes=notes(tmp_path / str(turn), models))
        ) as work:
            work.predict(0, 600)
        del work
        gc.collect()
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info()[0])
        held.append(torch.cuda.memory_allocated())
    assert held[-1] <= held[1]
    assert free[1] - free[-1] < 64 << 20


def test_a_real_lack_of_memory_halves_the_batch(files: ImageFiles, tmp_path: Path) -> None:
    models = [resnet(0, "resnet50")]
    with closing(GpuPredictor(files, models, notes=notes(tmp_path / "all", models))) as work:
        (expected,) = work.predict(0, 600)
        assert work._places[0].batch == 256
    del work
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    base = torch.cuda.memory_reserved()
    try:
        torch.cuda.set_per_process_memory_fraction((base + (900 << 20)) / total)
        with (
            closing(GpuPredictor(files, models, notes=notes(tmp_path / "few", models))) as work,
            ThreadPoolExecutor(3) as pool,
        ):
            made = list(pool.map(lambda start: work.predict(start, start + 200), (0, 200, 400)))
            assert work._places[0].batch < 256
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    found = np.concatenate([rows.topk[:, 0] for (rows,) in made])
    assert (found != expected.topk[:, 0]).mean() <= 0.005
    assert not any(rows.failures for (rows,) in made)


def test_two_runs_give_the_same_bytes(files: ImageFiles, tmp_path: Path) -> None:
    """Whichever near ties meet in a float32 batch."""
    models = [resnet(0), resnet(1)]
    packed = []
    for turn in range(3):
        with (
            closing(GpuPredictor(files, models, notes=notes(tmp_path / "same", models))) as work,
            ThreadPoolExecutor(3) as pool,
        ):
            starts = range(0, 1500, 500)
            made = list(pool.map(lambda start: work.predict(start, start + 500), starts))
        packed.append([pack(rows) for part in made for rows in part])
        assert turn == 0 or packed[-1] == packed[0]


def test_answers_are_those_of_the_plain_path(files: ImageFiles, tmp_path: Path) -> None:
    models = [resnet(3)]
    few = ImageFiles(files.source, files.names[:300], files.digests[:300])
    (expected,) = PredictWork(few, models).predict(0, 300)
    with closing(GpuPredictor(few, models, notes=notes(tmp_path, models))) as work:
        (found,) = work.predict(0, 300)
    assert (found.topk[:, 0] != expected.topk[:, 0]).sum() <= 1


JOB = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from heldout.models.predictions.run_models import predict
from heldout.core.workspace import Workspace
from tests.torch.test_gpu_cuda import job_set, resnet
predict(job_set(), [resnet(0), resnet(1)], workspace=Workspace(Path(sys.argv[1])), images=sys.argv[2])
"""


def job_set() -> TestSet:
    ids = [f"{i:05d}.jpg" for i in range(6000)]
    return make_testset(
        Card(name="made-1", label_space=SPACE.name),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, ["c000"] * len(ids))},
        label_space=SPACE,
    )


def job(workspace: Path, images: Path) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "src")]
    return subprocess.Popen([sys.executable, "-c", JOB, str(workspace), str(images), *paths])


def test_killed_jobs_end_in_the_same_bytes(files: ImageFiles, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for i in range(6000):
        (images / f"{i:05d}.jpg").write_bytes(photo_of(files, i))
    stored = {}
    for name in ("whole", "killed"):
        workspace = tmp_path / name
        if name == "killed":
            # Each time it is killed as soon as there is one more part than before.
            for parts in (2, 8, 14):
                running = job(workspace, images)
                while (
                    len(list(workspace.glob("runs/*/results/*/*"))) < parts
                    and running.poll() is None
                ):
                    time.sleep(0.005)
                assert running.poll() is None, "it was done before it could be killed"
                running.kill()
                running.wait()
        assert job(workspace, images).wait() == 0
        stored[name] = {
            str(path.relative_to(workspace)): path.read_bytes()
            for path in sorted((workspace / "predictions").rglob("*"))
            if path.is_file() and path.name != "run.json"
        }
    assert len(stored["whole"]) >= 4
    assert stored["killed"] == stored["whole"]


def photo_of(files: ImageFiles, number: int) -> bytes:
    with files.source.open(files.names[number % len(files.names)]) as file:
        return file.read()

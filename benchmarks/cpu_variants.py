"""The variants that ``predict_cpu.py`` measures; each is a process of its own.

    python benchmarks/cpu_variants.py KIND MODEL FOLDER PHOTOS COUNT

It prepares and warms up, prints a line when it is ready, and then answers each line on its input
with one round's numbers, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from cpu_cases import (  # noqa: E402
    CORES,
    heldout_model,
    listed,
    testset,
    torch_module,
    torch_transform,
)

BATCH = 16
STAGES = ("read", "decode", "resize and crop", "normalise", "inference")

Round = Callable[[], dict[str, Any]]


def measured(job: Callable[[], Any], others: Iterable[int] = ()) -> dict[str, float]:
    """One job: seconds on the clock (``wall``), seconds of CPU time (``cpu``) of this process and of
    ``others``, and the share of the cores that programs beside them took meanwhile (``taken``)."""
    pids = list(others)
    cpu = time.process_time() + sum(map(cpu_seconds, pids))
    busy = busy_seconds()
    began = time.perf_counter()
    job()
    wall = time.perf_counter() - began
    busy = busy_seconds() - busy
    cpu = time.process_time() + sum(map(cpu_seconds, pids)) - cpu
    return {"wall": wall, "cpu": cpu, "taken": max(busy - cpu, 0.0) / (wall * CORES)}


def busy_seconds() -> float:
    """CPU time of all programs since the machine started."""
    user, nice, system, _, _, irq, soft, steal = map(
        int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def variant_heldout(name: str, folder: Path, photos: Path, count: int) -> Round:
    """``predict`` from nothing to the store."""
    from heldout.core.workspace import Workspace
    from heldout.models.predictions.run_models import predict
    from heldout.models.predictions.store import PredictionStore

    images = testset(photos, count)
    model = heldout_model(name, folder)

    def once() -> dict[str, Any]:
        workspace = Workspace(folder / f"workspace-{name}")
        found = measured(
            lambda: predict(images, [model], workspace=workspace, images=photos, workers=CORES)
        )
        if not (folder / f"{name}-heldout.npy").exists():
            store = PredictionStore(workspace.predictions)
            (run,) = store.runs(images.card.images_hash)
            np.save(folder / f"{name}-heldout.npy", store.read(run).logits[: 4 * BATCH])
        shutil.rmtree(workspace.root)
        return found

    once()
    return once


class Photos:
    """The peer's dataset: what every evaluation script has."""

    def __init__(self, files: Sequence[Path], transform: Any) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> Any:
        from PIL import Image

        return self.transform(Image.open(self.files[place]).convert("RGB"))


def variant_torch(name: str, folder: Path, photos: Path, count: int) -> Round:
    """A DataLoader and torch, in the faster memory layout."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(CORES)
    transform = torch_transform(heldout_model(name, folder).preprocessing)
    formats = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    modules = {
        kind: torch_module(name, folder).to(memory_format=way) for kind, way in formats.items()
    }
    dataset = Photos(listed(photos, count), transform)
    batch = torch.stack([dataset[place] for place in range(BATCH)])
    alone: dict[str, float] = {}
    with torch.inference_mode():
        for _ in range(4):
            for kind, module in modules.items():
                values = batch.to(memory_format=formats[kind])
                took = measured(lambda m=module, v=values: m(v))["wall"]
                alone[kind] = min(took, alone.get(kind, took))
    best = min(alone, key=lambda kind: alone[kind])
    module = modules[best]
    loader = DataLoader(
        dataset, batch_size=BATCH, num_workers=CORES, persistent_workers=True, shuffle=False
    )

    def predict_all() -> None:
        logits = []
        with torch.inference_mode():
            for values in loader:
                logits.append(module(values.to(memory_format=formats[best])))
        if not (folder / f"{name}-torch.npy").exists():
            np.save(folder / f"{name}-torch.npy", torch.cat(logits)[: 4 * BATCH].numpy())

    predict_all()  # starts the workers, so that their CPU time can be counted
    pids = [worker.pid for worker in loader._iterator._workers]

    def once() -> dict[str, Any]:
        rates = {kind: BATCH / seconds for kind, seconds in alone.items()}
        return measured(predict_all, pids) | {"layout": best, "alone": rates}

    return once


def variant_stages(name: str, folder: Path, photos: Path, count: int) -> Round:
    """CPU seconds of each stage alone in one thread: the libraries' plain calls, and heldout's.

    The floor takes the lesser of the two, stage by stage. A slow model runs on every fourth file.
    """
    import io

    from PIL import Image

    from heldout.data.images.decode import decode
    from heldout.data.images.preprocessing import apply_geometry, crop_starts, resized
    from heldout.models.adapters.efficientnet_lite import onnx_bytes
    from heldout.models.adapters.model import model_input
    from heldout.models.adapters.onnx import MICRO_BATCH, Session

    files = list(dict.fromkeys(listed(photos, count)))[:: 1 if name == "lite0" else 4]
    preprocessing = heldout_model(name, folder).preprocessing
    geometry = preprocessing.geometry
    graph: Any = onnx_bytes("lite0") if name == "lite0" else folder / f"{name}.onnx"
    session = Session(graph, purpose="the benchmark")
    resampling = Image.Resampling[geometry.interpolation.upper()]
    scale = np.float32(preprocessing.scale)
    mean, std = (np.float32(v) for v in (preprocessing.mean, preprocessing.std))

    def plain_decode(data: bytes) -> Any:
        return Image.open(io.BytesIO(data)).convert("RGB")

    def plain_resize(image: Any) -> np.ndarray:
        height, width = map(int, resized(image.height, image.width, geometry))
        left = int(crop_starts(width, geometry.crop_width))
        top = int(crop_starts(height, geometry.crop_height))
        box = (left, top, left + geometry.crop_width, top + geometry.crop_height)
        return np.asarray(image.resize((width, height), resampling).crop(box))

    def plain_values(pixels: np.ndarray) -> np.ndarray:
        values = ((pixels.astype(np.float32) / scale) - mean) / std
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))

    def run(values: np.ndarray) -> Any:
        return session.run({session.inputs[0].name: values}, ["logits"])

    def once() -> dict[str, Any]:
        seconds = {who: dict.fromkeys(STAGES, 0.0) for who in ("plain", "ours")}

        def timed(who: str, stage: str, job: Callable[[Any], Any], items: list[Any]) -> list[Any]:
            began = time.thread_time()
            made = [job(item) for item in items]
            seconds[who][stage] += (time.thread_time() - began) / len(files)
            return made

        for start in range(0, len(files), BATCH):  # a batch at a time, so that memory stays warm
            data = timed("ours", "read", Path.read_bytes, files[start : start + BATCH])
            timed("plain", "decode", plain_decode, data)
            images = timed("ours", "decode", decode, data)
            timed("plain", "resize and crop", plain_resize, images)
            pixels = timed("ours", "resize and crop", lambda i: apply_geometry(i, geometry), images)
            parts = range(0, len(pixels), MICRO_BATCH)
            stacks = [np.stack(pixels[at : at + MICRO_BATCH]) for at in parts]
            timed("plain", "normalise", plain_values, stacks)
            values = timed("ours", "normalise", lambda s: model_input(s, preprocessing), stacks)
            timed("ours", "inference", run, values)
        for stage in ("read", "inference"):  # there is one way only
            seconds["plain"][stage] = seconds["ours"][stage]
        return seconds

    once()
    return once


def variant_second(name: str, folder: Path, photos: Path, count: int) -> Round:
    """One model, two that share the geometry, the second alone."""
    from concurrent.futures import ThreadPoolExecutor

    from heldout.core.workspace import Workspace
    from heldout.models.predictions.pixels import image_files, load_pixels
    from heldout.models.predictions.run_models import predict

    images = testset(photos, count)
    first, second = heldout_model(name, folder), heldout_model("second", folder)
    geometry = first.preprocessing.geometry
    files = image_files(images, photos)
    pixels = [load_pixels(files, row, [geometry])[geometry.key] for row in range(count)]
    batches = [np.stack(pixels[at : at + 8]) for at in range(0, count, 8)]

    def fresh(models: list[Any]) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return measured(
                lambda: predict(
                    images,
                    models,
                    workspace=Workspace(Path(place)),
                    images=photos,
                    workers=CORES,
                )
            )

    def alone() -> dict[str, float]:
        with ThreadPoolExecutor(CORES) as pool:
            return measured(lambda: list(pool.map(second, batches)))

    def once() -> dict[str, Any]:
        return {
            "one": fresh([first]),
            "two": fresh([first, second]),
            "alone": alone(),
        }

    once()
    return once


VARIANTS = {
    "heldout": variant_heldout,
    "torch": variant_torch,
    "stages": variant_stages,
    "second": variant_second,
}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    kind, name, folder, photos, count = sys.argv[1:]
    once = VARIANTS[kind](name, Path(folder), Path(photos), int(count))
    print("{}", file=replies, flush=True)
    for _ in sys.stdin:
        print(json.dumps(once()), file=replies, flush=True)


if __name__ == "__main__":
    main()

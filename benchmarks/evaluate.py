"""From published files to the paper's tables: time, memory, and how both grow.

Claims: all models of the ImageNetV2 folder on four sets (top-1, top-5, intervals, ranks, fits)
under 10 s and 1 GB on 2 cores; multi-label and ReaL under 10 s more; linear in models x images.

The floor is what must be read: the arrays themselves. The peer is the obvious script (NumPy and
JSON, no intervals, no checks, no store), run in the same rounds, interleaved.

Run: ``python benchmarks/evaluate.py`` with the published data at ../shared/data (or
``--data FOLDER``). Writes benchmarks/results/evaluate.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from machine import describe, write_result

SETS = ("imagenet-validation-original", "imagenetv2-a-44", "imagenetv2-b-33", "imagenetv2-c-12")


def plain_script(data: Path) -> None:
    """The peer: accuracies by the shortest code that is right, nothing else."""
    cid = {
        row["wnid"]: row["cid"]
        for row in json.loads((data / "metadata/class_info.json").read_text())
    }
    for name in SETS:
        rows = json.loads((data / f"datasets/{name}.json").read_text())["image_filenames"]
        labels = np.array([cid[wnid] for _, wnid in rows])
        for path in sorted((data / "predictions" / name).glob("*.npy")):
            top = np.load(path)
            (top[:, 0] == labels).mean()
            (top == labels[:, None]).any(axis=1).mean()


def child(arguments: list[str]) -> tuple[float, float]:
    """Seconds and peak MB of one process of its own."""
    start = time.perf_counter()
    pid = os.posix_spawn(
        arguments[0], arguments, os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )  # fmt: skip
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(arguments)} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def grown(data: Path, folder: Path, *, models: int, images: int) -> Path:
    """A folder of the published layout with more or fewer models and images."""
    target = folder / f"grown-{models}-{images}"
    info = json.loads((data / "metadata/class_info.json").read_text())
    wnids = [row["wnid"] for row in info]
    (target / "metadata").mkdir(parents=True)
    (target / "datasets").mkdir()
    (target / "metadata/class_info.json").write_text(json.dumps(info))
    rng = np.random.default_rng(0)
    for name, n in (("imagenet-validation-original", images), ("new-1", images // 5)):
        labels = np.arange(n) % 1000
        rows = [[f"{name}_{i:08d}", wnids[k]] for i, k in enumerate(labels)]
        (target / "datasets" / f"{name}.json").write_text(json.dumps({"image_filenames": rows}))
        (target / "predictions" / name).mkdir(parents=True)
        for m in range(models):
            right = rng.random(n) < 0.5 + 0.4 * m / models
            first = np.where(right, labels, (labels + 1) % 1000)
            top = (first[:, None] + np.array([0, 2, 4, 6, 8])) % 1000
            np.save(target / "predictions" / name / f"m{m:03d}.npy", top.astype(np.int16))
    return target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", type=Path)
    options = parser.parse_args()
    if options.plain:
        plain_script(options.plain)
        return
    heldout = str(Path(sys.executable).parent / "heldout")
    imagenetv2 = options.data / "imagenetv2"
    jobs = {
        "plain script: accuracies only": lambda ws: [sys.executable, __file__, "--plain", str(imagenetv2)],
        "heldout reproduce imagenetv2 (with report)": lambda ws: [
            heldout, "run", "imagenetv2", "--set", f"data={imagenetv2!s}", "--json", "-w", ws,
        ],
        "the same again (everything stored)": lambda ws: [
            heldout, "run", "imagenetv2", "--set", f"data={imagenetv2!s}", "--json", "-w", ws,
        ],
        "heldout reproduce mistakes, in the same workspace": lambda ws: [
            heldout, "run", "mistakes", "--set", f"data={options.data / 'mistakes'!s}", "--json", "-w", ws,
            "--predictions", str(imagenetv2 / "predictions/imagenet-validation-original"),
            "--order", str(imagenetv2 / "datasets/imagenet-validation-original.json"),
        ],
    }  # fmt: skip
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for name, arguments in jobs.items():
                seen[name].append(child(arguments(f"{folder}/ws{number}")))
        growth = []
        for models, images in (
            (11, 25_000),
            (22, 25_000),
            (44, 25_000),
            (22, 50_000),
            (22, 100_000),
        ):
            data = grown(imagenetv2, Path(folder), models=models, images=images)
            command = [heldout, "run", "imagenetv2", "--set", f"data={data!s}", "--json", "-w"]
            runs = [child([*command, f"{folder}/g{models}-{images}-{i}"]) for i in range(3)]
            growth.append(
                (models, images, statistics.median(s for s, _ in runs), max(m for _, m in runs))
            )
    base = statistics.median(s for s, _ in seen["plain script: accuracies only"])
    lines = [
        "# From published files to the paper's tables",
        "",
        f"{describe('numpy', 'pyarrow', 'scipy')}. {options.rounds} rounds, interleaved;",
        "a fresh process and a fresh workspace a round. 22 models, 80,000 images, 88 files.",
        "",
        "| job | seconds (median) | worst | peak MB | times the plain script |",
        "|---|---|---|---|---|",
    ]
    for name, runs in seen.items():
        times = [s for s, _ in runs]
        lines.append(
            f"| {name} | {statistics.median(times):.2f} | {max(times):.2f} | {max(m for _, m in runs):.0f} "
            f"| {statistics.median(times) / base:.1f} |"
        )
    lines += ["", "How it grows (generated folders, two sets, median of 3):", ""]
    lines += ["| models | images (original + new) | seconds | peak MB |", "|---|---|---|---|"]
    lines += [f"| {m} | {n + n // 5:,} | {s:.2f} | {p:.0f} |" for m, n, s, p in growth]
    write_result("evaluate", "\n".join(lines) + "\n")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()

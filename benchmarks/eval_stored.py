"""``heldout eval`` over stored logits: 50,000 images, 1,000 classes, 22 models; beside another commit.

Claim: faster and in less memory than before the one evaluation (commit 65c6755). Each version imports
the same arrays into a workspace of its own, then the runs alternate.

Run: ``python benchmarks/eval_stored.py --other CHECKOUT/src``, a checkout of the other commit (for
65c6755, typer must be installed). Writes benchmarks/results/eval_stored.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from heldout.data.labels import LabelSpace
from machine import describe, write_result

OURS = Path(__file__).parents[1] / "src"
START = "import sys; from heldout.cli import main; sys.argv[0] = 'heldout'; main()"


def heldout(source: Path, workspace: Path, *arguments: str) -> tuple[float, float]:
    """Seconds and peak MB of one command of the version in ``source``."""
    environment = {**os.environ, "PYTHONPATH": str(source), "HELDOUT_WORKSPACE": str(workspace)}
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    start = time.perf_counter()
    words = [sys.executable, "-c", START, *arguments]
    pid = os.posix_spawn(sys.executable, words, environment, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"heldout {' '.join(arguments)} of {source} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def prepare(folder: Path, images: int, models: int) -> None:
    """A table of images with labels, and one array of logits for each model."""
    rng = np.random.default_rng(0)
    ids = LabelSpace.load("imagenet-1k").ids
    labels = rng.integers(0, len(ids), images)
    rows = [f"image{i:06d},{ids[label]}" for i, label in enumerate(labels)]
    (folder / "set.csv").write_text("image_id,class_id\n" + "\n".join(rows) + "\n")
    for model in range(models):
        logits = rng.standard_normal((images, len(ids)), dtype=np.float32)
        logits[np.arange(images), labels] += 2.5 + model / 20 + rng.standard_normal(images)
        np.save(folder / f"m{model:02d}.npy", logits.astype(np.float16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--other", type=Path, required=True, help="folder src of another checkout")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--models", type=int, default=22)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    versions = {"before": asked.other.resolve(), "now": OURS}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, asked.images, asked.models)
        commands = {}
        for name, source in versions.items():
            space = folder / name
            table = ("import", "testset", str(folder / "set.csv"), "--classes", "imagenet-1k")
            heldout(source, space, *table, "--name", "val")
            for model in range(asked.models):
                path = folder / f"m{model:02d}.npy"
                heldout(source, space, "import", "predictions", str(path), "-t", "val")
            named = [f"m{model:02d}" for model in range(asked.models)]
            if name == "before":  # it took folders of stored runs, not their names
                named = [f"predictions:{run}" for run in sorted(space.glob("predictions/*/*@*"))]
            models = [word for model in named for word in ("-m", model)]
            commands[name] = (
                source,
                space,
                "eval",
                *models,
                "-t",
                "val",
                "-o",
                str(space / "r.html"),
            )
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in versions}
        for _ in range(asked.rounds):
            for name, (source, space, *arguments) in commands.items():
                found[name].append(heldout(source, space, *arguments))
                print(name, found[name][-1], flush=True)
    rows = {
        name: [statistics.median(column) for column in zip(*runs, strict=True)]
        for name, runs in found.items()
    }
    before, now = rows["before"], rows["now"]
    write_result(
        "eval_stored",
        "# eval over stored logits\n\n"
        f"{describe()}. {asked.images:,} images, 1,000 classes, {asked.models} models with float16 "
        f"logits; {asked.rounds} rounds, interleaved, medians, report included.\n\n"
        "| | seconds | peak MB |\n|---|---:|---:|\n"
        f"| commit 65c6755 | {before[0]:.1f} | {before[1]:,.0f} |\n"
        f"| now | {now[0]:.1f} | {now[1]:,.0f} |\n"
        f"| now over before | {now[0] / before[0]:.2f} | {now[1] / before[1]:.2f} |\n",
    )


if __name__ == "__main__":
    main()

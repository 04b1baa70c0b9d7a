"""Zero-shot assignment against its own matrix product, and ``conse`` on real photographs.

product   the cosines of a block of 512 images with all classes by numpy.matmul into one buffer:
          nothing is looked at, so no assignment by this library can be faster
assign    heldout.curate.zero_shot.assign.assign_blocks: labels, ties, margins, top 5, softmax@1
memory    the peak of a process of its own that assigns everything
photos    the shared photographs (likely training images of the classifier; a check and no more)
          against all 21,843 classes, and against those that the classifier was not trained on

Class vectors are MiniLM's of all WordNet texts; image vectors are drawn as ConSE makes them, ten
class vectors with falling weights, and some noise. Product and assignment take turns, block by
block, so that other work on the machine meets both alike.

    python benchmarks/zero_shot.py [--images 100000] [--workspace FOLDER] [--photos FOLDER] [--write]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.core.workspace import Workspace
from heldout.curate.pool_images import folder_pool
from heldout.curate.zero_shot.assign import BLOCK, assign, assign_blocks, class_vectors
from heldout.curate.zero_shot.class_texts import ClassPrompts, class_embeddings
from heldout.data.labels import Hierarchy, LabelSpace
from heldout.models.adapters import load_encoder
from heldout.models.embeddings import embed
from machine import describe, write_result

PHOTOS = Path(__file__).parent.parent.parent / "shared" / "data" / "photos"
_TURN = 8
"""Blocks that one side does before it is the other's turn."""


@dataclass(frozen=True)
class Timed:
    """Wall and CPU seconds of both sides over the same images."""

    product: float
    assign: float
    product_cpu: float
    assign_cpu: float
    flop: float


def image_vectors(classes: np.ndarray, n: int, *, seed: int = 0) -> np.ndarray:
    """Vectors like those of ConSE, float32 (n, d): ten classes with falling weights, and noise."""
    generator = np.random.default_rng(seed)
    made = np.empty((n, classes.shape[1]), np.float32)
    for start in range(0, n, 4096):
        rows = min(4096, n - start)
        weights = np.sort(generator.dirichlet([0.15] * 10, rows), axis=1)[:, ::-1]
        chosen = generator.integers(0, len(classes), (rows, 10))
        mixed = (weights[:, :, None] * classes[chosen]).sum(axis=1)
        mixed += generator.normal(0, 0.005, mixed.shape)
        made[start : start + rows] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return made


def compare(images: np.ndarray, classes: np.ndarray) -> Timed:
    """Product and assignment in turns over the same blocks."""
    space = class_vectors(classes)
    buffer = np.empty((BLOCK, len(space.rows)), np.float32)
    blocks = assign_blocks(images, space, k=5, temperatures=[1.0])
    seconds = {"product": [0.0, 0.0], "assign": [0.0, 0.0]}
    turns = range(0, len(images), _TURN * BLOCK)
    for number, start in enumerate(turns):
        stop = min(start + _TURN * BLOCK, len(images))
        order = ("product", "assign") if number % 2 else ("assign", "product")
        for side in order:
            wall, cpu = time.perf_counter(), time.process_time()
            if side == "assign":
                for _ in range(start, stop, BLOCK):
                    next(blocks)
            else:
                for at in range(start, stop, BLOCK):
                    part = images[at : min(at + BLOCK, stop)]
                    np.matmul(part, space.rows.T, out=buffer[: len(part)])
            seconds[side][0] += time.perf_counter() - wall
            seconds[side][1] += time.process_time() - cpu
    blocks.close()  # type: ignore[attr-defined]
    return Timed(
        seconds["product"][0],
        seconds["assign"][0],
        seconds["product"][1],
        seconds["assign"][1],
        2.0 * len(images) * len(space.rows) * images.shape[1],
    )


def peak_memory(images: Path, classes: Path) -> tuple[float, int]:
    """Peak megabytes of a process that assigns everything from files, and how many labels it found."""
    made = subprocess.run(
        [sys.executable, __file__, "--assign-only", str(images), str(classes)],
        check=True,
        capture_output=True,
        text=True,
    )
    megabytes, labels = made.stdout.split()
    return float(megabytes), int(labels)


def assign_only(images: Path, classes: Path) -> None:
    """Assign all images of a file, keep nothing, and print the process's own peak and a count."""
    space = class_vectors(np.load(classes))
    found: set[int] = set()
    for part in assign_blocks(np.load(images, mmap_mode="r"), space, k=5, temperatures=[1.0]):
        found.update(part.label.tolist())
    # Not ru_maxrss: that begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    print(peak / 1000, len(found))


def relation(truth: str, label: str, tied: list[str], hierarchy: Hierarchy) -> str:
    """How a label stands to the truth, over WordNet."""
    if label == truth:
        return "same"
    if truth in tied:
        return "tied"
    if truth not in hierarchy or label not in hierarchy:
        return "unknown"
    if hierarchy.is_under(truth, label):
        return "above"
    return "below" if hierarchy.is_under(label, truth) else "elsewhere"


def photo_lines(folder: Path, encoder_name: str, workspace: Workspace) -> list[str]:
    """Agreement of labels with the photographs' own classes, as rows of a table."""
    encoder = load_encoder(encoder_name)
    space = LabelSpace.load("imagenet-21k")
    hierarchy = Hierarchy.wordnet()
    vectors = embed(folder_pool(folder), encoder, workspace=workspace).vectors
    truths = [path.name.split("_")[0] for path in sorted(folder.iterdir())]
    matrix = class_embeddings(encoder, ClassPrompts(space), workspace=workspace).vectors
    trained = set(LabelSpace.load("imagenet-1k").ids)
    lines = []
    for what, kept in (
        ("all 21,843 classes", np.arange(len(space))),
        (
            "without the 1,000 trained",
            np.array([i for i, name in enumerate(space.ids) if name not in trained]),
        ),
    ):
        ids = [space.ids[place] for place in kept]
        found = assign(vectors, class_vectors(matrix[kept]), k=5, temperatures=[1.0])
        ties: list[list[str]] = [[] for _ in truths]
        for row, place in found.ties:
            ties[row].append(ids[place])
        labels = [ids[i] for i in found.label]
        agreed = Counter(
            relation(*each, hierarchy) for each in zip(truths, labels, ties, strict=True)
        )
        top5 = sum(t in {ids[i] for i in row} for t, row in zip(truths, found.topk, strict=True))
        n = len(truths)
        lines.append(
            f"| {encoder.name}, {what} | {n} | {agreed['same'] / n:.1%} | {agreed['tied'] / n:.1%} | "
            f"{agreed['above'] / n:.1%} | {agreed['below'] / n:.1%} | {top5 / n:.1%} | "
            f"{found.cosine.mean():.3f} |"
        )
    return lines


def cost_section(timed: Timed, peak: float, labels: int, *, shape: tuple[int, int, int]) -> str:
    """What assignment took beside its product."""
    n, classes, d = shape
    walls, cpus = (timed.product, timed.assign), (timed.product_cpu, timed.assign_cpu)
    names = ("matrix product alone", "assignment")
    rows = [
        f"| {name} | {wall:.1f} | {cpu:.1f} | {timed.flop / wall / 1e9:.0f} |"
        for name, wall, cpu in zip(names, walls, cpus, strict=True)
    ]
    rows.append(f"| times the product | {walls[1] / walls[0]:.2f} | {cpus[1] / cpus[0]:.2f} | |")
    machine = describe("numpy", "onnxruntime", "tokenizers")
    return "\n".join(
        [
            "# What zero-shot assignment costs",
            "",
            f"{n:,} images × {classes:,} classes × {d} numbers: top 5, ties, margins and the sum of "
            f"softmax@1. Load {os.getloadavg()[0]:.1f}.",
            f"{machine}. Made by `benchmarks/zero_shot.py`.",
            "",
            "| | wall, s | CPU, s | GFLOP/s |",
            "|---|---:|---:|---:|",
            *rows,
            "",
            f"Peak memory of a process that does it from files: {peak:,.0f} MB. {labels:,} classes "
            f"were assigned; all cosines would be {4e-9 * n * classes:.1f} GB.",
        ]
    )


def photo_section(folder: Path, encoders: Sequence[str], workspace: Workspace) -> str:
    """Labels of real photographs."""
    return "\n".join(
        [
            "## Photographs",
            "",
            "Labels against the photographs' classes: the same, tied with it (another class of the "
            "same text), above it, below it.",
            "",
            "| | photos | same | tied | above | below | in top 5 | mean cosine |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *(line for name in encoders for line in photo_lines(folder, name, workspace)),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--photos", type=Path, default=PHOTOS)
    parser.add_argument("--encoders", nargs="*", default=["conse"])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--assign-only", nargs=2, type=Path)
    options = parser.parse_args()
    if options.assign_only:
        assign_only(*options.assign_only)
        return
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(options.workspace or Path(folder) / "w")
        encoder = load_encoder("conse")
        prompts = ClassPrompts(LabelSpace.load("imagenet-21k"))
        classes = np.array(class_embeddings(encoder, prompts, workspace=workspace).vectors)
        images = image_vectors(classes, options.images)
        np.save(Path(folder) / "images.npy", images)
        np.save(Path(folder) / "classes.npy", classes)
        timed = compare(images, classes)
        peak, labels = peak_memory(Path(folder) / "images.npy", Path(folder) / "classes.npy")
        sections = [
            cost_section(timed, peak, labels, shape=(len(images), *classes.shape)),
        ]
        if options.photos.is_dir():
            sections.append(photo_section(options.photos, options.encoders, workspace))
    text = "\n\n".join(sections) + "\n"
    if options.write:
        write_result("zero_shot", text)
    else:
        print(text)


if __name__ == "__main__":
    main()

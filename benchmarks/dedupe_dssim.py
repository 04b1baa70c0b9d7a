"""DSSIM of 300 × 300 photographs on CPUs beside scikit-image, pair by pair.

Claims: at least 50 times scikit-image in CPU seconds, with the bound 0.25 of a search and without any,
and the same 30 nearest. Two hundred photographs and a hundred photographs of PACS are compared with
other ones of PACS, sketches and paintings among them in the last row, and with altered copies of
themselves. scikit-image is timed on pairs drawn at random, between our runs, and one process of it on
one core; its lists are computed for the first ``--lists`` candidates.

    python benchmarks/dedupe_dssim.py [--rounds 3] [--lists 10] [--quick]

needs ../shared/data/photos and ../shared/data/pacs; writes benchmarks/results/dedupe_dssim.md.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from heldout.curate.dedupe.dssim import nearest_dssim
from heldout.curate.dedupe.nearest import Nearest

DATA = Path(__file__).parents[2] / "shared" / "data"
K, BOUND, LEAST = 30, 0.25, 50
COLUMNS = (
    "job", "bound", "threads", "µs of CPU a pair", "µs a pair", "found",
    "times scikit-image (CPU)", "times scikit-image (wall)",
)  # fmt: skip


def pixels(images: list[Image.Image]) -> np.ndarray:
    """The vectors that a search compares: 256 × 256, aspect not kept."""
    small = [image.convert("RGB").resize((256, 256), Image.Resampling.BILINEAR) for image in images]
    return np.stack([np.asarray(image).reshape(-1) for image in small])


def altered(image: Image.Image, number: int) -> Image.Image:
    """A copy as people make them: brighter, cropped, rescaled, mirrored."""
    image, (width, height) = image.convert("RGB"), image.size
    match number % 4:
        case 0:
            return ImageEnhance.Brightness(image).enhance(1.2)
        case 1:
            edge = (width // 60, height // 60)
            return image.crop((*edge, width - edge[0], height - edge[1]))
        case 2:
            return image.resize((width // 3, height // 3))
        case _:
            return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def jobs(side: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Candidates and references of each job."""
    photos = [Image.open(file) for file in sorted((DATA / "photos").glob("*.JPEG"))]
    pacs = [Image.open(file) for file in sorted((DATA / "pacs" / "photo").rglob("*.jpg"))]
    drawn = [
        Image.open(file)
        for style in ("sketch", "cartoon", "art_painting")
        for file in sorted((DATA / "pacs" / style).rglob("*.jpg"))
    ]
    images = (photos[: side * 2 // 3] + pacs)[:side]
    copies = [altered(image, number) for number, image in enumerate(images[: side // 3])]
    others = pacs[::-1][: side - len(copies)]
    drawn = drawn[:: max(1, len(drawn) // (2 * side))]
    return {
        "photographs": (pixels(images), pixels(copies + others)),
        "drawings": (pixels(drawn[:side]), pixels(drawn[side : 2 * side])),
    }


def scikit_image(one: np.ndarray, other: np.ndarray) -> float:
    from skimage.metrics import structural_similarity

    images = (image.reshape(256, 256, 3) for image in (one, other))
    ssim = structural_similarity(*images, win_size=35, channel_axis=2, data_range=255)
    return float(1 - ssim) / 2


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds of all threads, seconds on the clock, and the result."""
    before, start = os.times(), time.perf_counter()
    result = work()
    seconds, after = time.perf_counter() - start, os.times()
    return after.user + after.system - before.user - before.system, seconds, result


def same_lists(found: Nearest, distances: np.ndarray, bound: float) -> bool:
    """Whether the lists are the nearest by scikit-image's distances, up to ties in its rounding."""
    for rows, near, line in zip(found.rows, found.distances, distances, strict=False):
        order = np.argsort(line, kind="stable")[:K]
        order = order[line[order] <= bound]
        count = len(order)
        if (rows >= 0).sum() != count or np.abs(near[:count] - line[order]).max(initial=0) > 1e-9:
            return False
        if (np.abs(line[rows[:count]] - line[order]) > 1e-9).any():
            return False
    return True


def rows(rounds: int = 3, lists: int = 10, side: int = 300) -> list[tuple[str, ...]]:
    """The lines of the table, each as long as ``COLUMNS``; a wrong list is an error."""
    generator = np.random.default_rng(0)
    table = []
    for name, (ours, theirs) in jobs(side).items():
        nearest_dssim(ours[:1], theirs[:1], 1, device="cpu")  # compiles, or loads what was compiled
        exact = np.array([[scikit_image(one, other) for other in theirs] for one in ours[:lists]])
        variants = [(bound, threads) for bound in (BOUND, math.inf) for threads in (1, 2)]
        times: dict[tuple[float, int], list[tuple[float, float]]] = {v: [] for v in variants}
        peer = []
        found: dict[tuple[float, int], Nearest] = {}
        for _ in range(rounds):
            for bound, threads in variants:
                drawn = generator.integers(0, side, (20, 2))
                cpu, clock, _ = timed(
                    lambda d=drawn, x=ours, y=theirs: [scikit_image(x[i], y[j]) for i, j in d]
                )
                peer.append((cpu / 20, clock / 20))
                cpu, clock, result = timed(
                    partial(
                        nearest_dssim, ours, theirs, K, bound=bound, device="cpu", threads=threads
                    )
                )
                times[bound, threads].append((cpu, clock))
                found[bound, threads] = result
                if not same_lists(result, exact, bound):
                    raise SystemExit(f"{name}, bound {bound}: lists differ from scikit-image's")
        whole = found[math.inf, 1]
        for near in found.values():
            inside = (near.rows >= 0) & (whole.distances <= BOUND)
            if not (near.rows[inside] == whole.rows[inside]).all():
                raise SystemExit(f"{name}: lists differ with the bound")
        peer_cpu, peer_clock = (statistics.median(part) for part in zip(*peer, strict=True))
        for (bound, threads), measured in times.items():
            cpu, clock = (statistics.median(part) / side**2 for part in zip(*measured, strict=True))
            table.append(
                (
                    f"{name}, {side} × {side}",
                    "none" if bound == math.inf else f"{bound}",
                    f"{threads}",
                    f"{cpu * 1e6:.1f}",
                    f"{clock * 1e6:.1f}",
                    f"{(found[bound, threads].rows >= 0).sum():,}",
                    f"{peer_cpu / cpu:.0f}",
                    f"{peer_clock / clock:.0f}",
                )
            )
        table.append(
            (
                f"{name}, scikit-image", "none", "1", f"{peer_cpu * 1e6:,.0f}",
                f"{peer_clock * 1e6:,.0f}", "", "1", "1",
            )
        )  # fmt: skip
    return table


def main() -> None:
    from machine import describe, write_result

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lists", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="60 × 60 images")
    asked = parser.parse_args()
    lines = rows(asked.rounds, asked.lists, 60 if asked.quick else 300)
    text = [
        "# DSSIM on CPUs",
        "",
        f"{describe('numpy', 'numba', 'scikit-image')}. Medians of {asked.rounds} interleaved rounds "
        f"(`benchmarks/dedupe_dssim.py`); the {K} nearest. The lists of the first {asked.lists} candidates "
        "equal scikit-image's, all others those without a bound.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
        *("| " + " | ".join(line) + " |" for line in lines),
    ]
    slow = [line for line in lines if line[5] and float(line[6]) < LEAST]
    text += [
        "",
        f"Claim of at least {LEAST} times scikit-image: {'missed' if slow else 'met'}.",
        "",
    ]
    write_result("dedupe_dssim", "\n".join(text))


if __name__ == "__main__":
    main()

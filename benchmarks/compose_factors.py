"""What each factor beyond SI-SCORE costs: CPU milliseconds an image of 512 x 512.

One object over 35 % of the image (its box 303 pixels square), generated, on a generated
background. A row's time is that of the whole image with the factor, less that of the same image
without, median of interleaved rounds; then what its measured column adds.

Run: ``python benchmarks/compose_factors.py``; writes benchmarks/results/compose_factors.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np

from heldout.curate.compose.factors import Factors, Layers, finish
from heldout.curate.compose.plan import ImagePlan, Value, place
from heldout.testing.compose import InMemoryInputs
from machine import describe, write_result

SIZE = 512
OBJECT = 303
REPEATS = 5


def inputs() -> InMemoryInputs:
    rng = np.random.default_rng(0)
    ys, xs = np.mgrid[:OBJECT, :OBJECT] / OBJECT * 2 - 1
    alpha = np.where(np.hypot(xs, ys - 0.3 * xs**2) < 0.9, 255, 0)
    cutouts = [
        np.dstack([rng.integers(0, 256, (OBJECT, OBJECT, 3)), alpha]).astype(np.uint8)
        for _ in range(3)
    ]
    backgrounds = [rng.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8) for _ in range(3)]
    return InMemoryInputs(
        cutouts=cutouts,
        cutout_classes=["a", "b", "c"],
        backgrounds=backgrounds,
        background_classes=["a", "b", "c"],
    )


def shot(values: dict[str, Value], number: int, known: Factors) -> ImagePlan:
    size, frame = (OBJECT, OBJECT), (SIZE, SIZE)
    box, warp = place(size, frame, x=0.5, y=0.5, values=values, factors=known)
    at = {"x": 0.5, "y": 0.5, "area": 0.35, "rotation": 0.0, "inside": 1.0}
    return ImagePlan(
        number=number, foreground=0, background=0, width=SIZE, height=SIZE,
        sprite=size, box=box, warp=warp, values=values, seed=number, **at,
    )  # fmt: skip


def seconds(
    values: dict[str, Value], keys: list[str], stock: InMemoryInputs, known: Factors
) -> float:
    one = shot(values, 1, known)
    layers = Layers(stock.cutout(0), *one.box[:2], stock.background(0, SIZE, SIZE))
    start = time.process_time()
    for _ in range(REPEATS):
        finish(layers, one, stock, factors=known, keys=keys)
    return (time.process_time() - start) / REPEATS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    stock, known = inputs(), Factors.load()
    bare = Factors({one.key: replace(one, measured="") for one in known})
    cases: list[tuple[str, dict[str, Value]]] = []
    for one in known:
        if one.needs or one.stage.name in ("PLAN", "ENCODING"):
            continue
        if one.key in ("occlusion", "blending", "texture", "variant"):
            words = {"occlusion": ("bars", "patches", "border", "cutout")}.get(one.key, one.values)
            for word in words:
                if word in ("hard", "own", "original"):
                    continue
                values = (
                    {"occlusion": 0.5, "occlusion_kind": word}
                    if one.key == "occlusion"
                    else {one.key: word}
                )
                cases.append((f"{one.key} = {word}", values))
        else:
            usual = [v for v in one.values if v != one.neutral]
            value = usual[len(usual) // 2]
            cases.append((f"{one.key} = {value}", {one.key: value}))
    times: dict[str, list[tuple[float, float]]] = {}
    for turn in range(rounds + 1):
        for name, values in cases:
            plain = seconds({}, [], stock, bare)
            alone = seconds(values, [], stock, bare)
            with_measure = seconds(values, [], stock, known)
            if turn:  # the first round warms tables up
                times.setdefault(name, []).append((alone - plain, with_measure - alone))
    base = statistics.median(seconds({}, [], stock, bare) for _ in range(rounds))
    lines = [
        "# What each factor beyond SI-SCORE costs",
        "",
        f"{describe('numpy', 'opencv-python-headless', 'numba')}. CPU milliseconds an image of "
        f"{SIZE} x {SIZE}, medians of {rounds} interleaved rounds (`benchmarks/compose_factors.py`). A "
        f"plain image through the stages: {base * 1000:.1f} ms.",
        "",
        "| factor | ms | its measured column, ms |",
        "|---|---:|---:|",
    ]
    for name, pairs in times.items():
        cost, measure = (statistics.median(p[i] for p in pairs) * 1000 for i in (0, 1))
        lines.append(f"| `{name}` | {max(cost, 0):.1f} | {max(measure, 0):.1f} |")
    write_result("compose_factors", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""DSSIM on one GPU: pairs of photographs a second, and the CPU's bits.

Two steps, since a machine with a GPU need not have the photographs, nor numba:

    python benchmarks/dedupe_dssim_gpu.py --prepare FILE.npz    (CPU: photographs and their distances)
    python benchmarks/dedupe_dssim_gpu.py FILE.npz              (GPU: compares, then measures)

The second writes dedupe_dssim_gpu.md and .json into ``$OUT`` (else benchmarks/results). It ends with an
error if a total or a list differs from the CPU's in one bit. Measured are 512 × 512 photographs (those
of the file, mirrored and turned), as a search compares them in one unit of work: with the bound 0.25 and
without, transfers included, and the two steps apart.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from heldout.curate.dedupe.dssim import CpuPairs, TorchPairs, nearest_dssim

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
OUT = Path(os.environ.get("OUT") or Path(__file__).parent / "results")
# A rehearsal without a GPU runs the same steps on the CPU, far smaller.
REHEARSAL = bool(os.environ.get("DSSIM_GPU_REHEARSAL"))
DEVICE, SIDE, K = ("cpu", 24, 30) if REHEARSAL else ("cuda", 512, 30)
BOUNDS = (0.25, math.inf)


def prepare(file: Path, count: int) -> None:
    """Photographs, some of them altered copies, with the CPU's totals and lists."""
    from PIL import Image

    from dedupe import altered, pixels

    photos = [Image.open(name) for name in sorted((DATA / "photos").glob("*.JPEG"))]
    images = pixels(photos[: count * 3 // 4])
    copies = pixels([altered(photo, i) for i, photo in enumerate(photos[: count // 4])])
    images = np.concatenate([images, copies])
    rough = np.random.default_rng(0).integers(0, 256, images[:2].shape, np.uint8)
    images = np.concatenate([images, rough, rough * 0, rough * 0 + 255, rough // 255 * 255])
    pairs = CpuPairs(*(images.reshape(-1, 256, 768),) * 2, 2)
    n, m = np.divmod(np.arange(len(images) ** 2), len(images))
    values: dict[str, np.ndarray] = {"totals": pairs.totals(n, m, np.full(len(n), -math.inf))}
    for bound in BOUNDS:
        near = nearest_dssim(images, images, K, bound=bound, device="cpu")
        values |= {f"rows {bound}": near.rows, f"distances {bound}": near.distances}
    np.savez_compressed(file, images=images, **values)


def check(known: Any) -> int:
    """Compare with the CPU; the number of pairs."""
    images = known["images"][: 10 if REHEARSAL else None]
    side = len(known["images"])
    n, m = np.divmod(np.arange(len(images) * side), side)
    pairs = TorchPairs(*(part.reshape(-1, 256, 768) for part in (images, known["images"])), DEVICE)
    totals = pairs.totals(n, m, np.full(len(n), -math.inf))
    if not np.array_equal(totals, known["totals"][: len(n)]):
        raise SystemExit("totals differ from the CPU's")
    if not (pairs.ceilings.ravel() >= totals / 2.0**40 - 1e-6).all():
        raise SystemExit("a pair is above its ceiling")
    for bound in BOUNDS:
        near = nearest_dssim(
            images, known["images"], K, bound=bound, device="auto" if REHEARSAL else DEVICE
        )
        for name, found in (("rows", near.rows), ("distances", near.distances)):
            if found.tobytes() != known[f"{name} {bound}"][: len(images)].tobytes():
                raise SystemExit(
                    f"{name} of the lists with the bound {bound} differ from the CPU's"
                )
    return len(n)


def seconds(work: Callable[[], Any], rounds: int = 5) -> float:
    """Median time of some calls after one that is not counted; results are on the host by then."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(images: np.ndarray) -> list[tuple[str, int, float]]:
    """What was done, how many pairs, seconds."""
    whole = images.reshape(-1, 256, 256, 3)
    turned = [whole[:, ::-1], whole[:, :, ::-1], whole[:, ::-1, ::-1], whole.transpose(0, 2, 1, 3)]
    side = np.concatenate([*turned, whole]).reshape(-1, 256 * 768)
    ours, theirs = np.array(side[:SIDE]), np.array(side[-SIDE:])
    pairs = SIDE * SIDE
    table = []
    for bound in BOUNDS:
        run = seconds(
            lambda b=bound: nearest_dssim(
                ours, theirs, K, bound=b, device="auto" if REHEARSAL else DEVICE
            ),
            5 if bound < 1 else 3,
        )
        what = f"{K} nearest, " + (f"bound {bound}" if bound < 1 else "no bound")
        table.append((what, pairs, run))
    shaped = [part.reshape(-1, 256, 768) for part in (ours, theirs)]
    table.append(
        ("transfer, tables and ceilings", pairs, seconds(lambda: TorchPairs(*shaped, DEVICE)))
    )
    compared = TorchPairs(*shaped, DEVICE)
    for bound in BOUNDS:
        n, m = np.nonzero(compared.ceilings >= (1 - 2 * bound) * 3 * 222**2)
        least = np.zeros(len(n))
        what = "totals of pairs " + ("that the bound leaves" if bound < 1 else "without a bound")
        run = seconds(lambda n=n, m=m, least=least: compared.totals(n, m, least), 3)
        table.append((what, len(n), run))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--count", type=int, default=160)
    asked = parser.parse_args()
    if asked.prepare:
        prepare(asked.file, asked.count)
        return
    import torch

    device = "the CPU" if REHEARSAL else torch.cuda.get_device_name()
    with np.load(asked.file) as archive:
        known = dict(archive)
    same = check(known)
    print(f"{same:,} totals and all lists equal the CPU's", flush=True)
    table = measure(known["images"])
    lines = [
        "# DSSIM on a GPU",
        "",
        f"{device}, torch {torch.__version__}. {SIDE} × {SIDE} photographs of 256 × 256, medians "
        "(`benchmarks/dedupe_dssim_gpu.py`); transfers from host memory are included in the first three "
        f"lines. {same:,} totals and the {K} nearest with and without the bound equal the CPU's, bit for "
        "bit.",
        "",
        "| step | pairs | seconds | pairs a second |",
        "|---|---:|---:|---:|",
        *(f"| {w} | {n:,} | {t:.3f} | {n / t:,.0f} |" for w, n, t in table),
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "dedupe_dssim_gpu.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    facts = {"schema_version": 1, "device": device, "equal_totals": same, "steps": table}
    (OUT / "dedupe_dssim_gpu.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

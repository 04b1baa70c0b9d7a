"""The nearest vectors on one GPU: exact 30-NN of 50,000 × 1.28 million × 4,096, and of pixels.

Claims: features in at most 1.5 s without transfers, at 50 % or more of the rate of half-precision
matrix products measured in the same run; 1,000 candidates have the lists of a float64 search.

Needs torch 2.8 or later and a CUDA GPU with 64 GB. Run: ``python benchmarks/dedupe_gpu.py``; it writes
``dedupe_gpu.md`` into ``$OUT`` (else benchmarks/results). ``--check`` runs it small, on the CPU.

The data are made on the device from a seed. ``ReLU``: like features after a ReLU, of 1,000 classes
of different norms, references sorted by class; ``normal``: without any structure, where distances
differ least and the bound decides worst. Of the candidates a third are references with noise, and a
few are references. What is timed starts with float32 tensors on the device and ends with rows and
distances there: norms, centring, conversion to half precision, products, selection, exact distances.

The oracle: 1,000 candidates by products in float64, k + 32 kept, their distances computed by NumPy as
they are defined, sorted by distance and row; the next distance kept must be farther than the k-th.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from heldout.curate.dedupe.nearest import TorchArrays, halves, nearest, search  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
K = 30
Say = Callable[[str], None]


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of each round, after one that is not counted."""
    found = []
    for _ in range(rounds + 1):
        synchronize()
        began = time.perf_counter()
        work()
        synchronize()
        found.append(time.perf_counter() - began)
    return found[1:]


def half_product(ours: Any, theirs: Any) -> Any:
    if CUDA:
        return torch.mm(ours, theirs.T, out_dtype=torch.float32)
    return ours.float() @ theirs.float().T


def ceiling(n: int, m: int, d: int, rounds: int) -> dict[str, float]:
    """Operations per second of products of halves: into halves, and into float32."""
    x, y = (torch.randn(size, d, device=DEVICE).half() for size in (n, m))
    count = 2 * n * m * d
    return {
        "into halves": count / min(seconds(lambda: x @ y.T, rounds)),
        "into float32": count / min(seconds(lambda: half_product(x, y), rounds)),
    }


def int_ceiling(n: int, m: int, d: int, rounds: int) -> float:
    """Operations per second of products of int8."""
    x, y = (torch.randint(-128, 128, (size, d), device=DEVICE, dtype=torch.int8) for size in (n, m))
    return 2 * n * m * d / min(seconds(lambda: torch._int_mm(x, y.T), rounds))


def features(kind: str, n: int, m: int, d: int) -> tuple[Any, Any]:
    """Candidates and references, float32."""
    made = torch.Generator(DEVICE).manual_seed(20)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=made, device=DEVICE)

    classes, step = normal(1000, d), max(m // 64, 1)
    strength = normal(1000).mul(0.3).exp()

    def vectors(labels: Any) -> Any:
        values = normal(len(labels), d)
        if kind == "ReLU":
            values = values.add_(classes[labels]).sub_(0.5).relu_().mul_(strength[labels, None])
        return values

    references = torch.empty((m, d), device=DEVICE)
    for start in range(0, m, step):
        stop = min(start + step, m)
        references[start:stop] = vectors(torch.arange(start, stop, device=DEVICE) * 1000 // m)
    candidates = vectors(torch.randint(0, 1000, (n,), generator=made, device=DEVICE))
    planted = torch.randint(0, m, (n // 3,), generator=made, device=DEVICE)
    candidates[: n // 3] = references[planted] + normal(n // 3, d) * 0.05
    candidates[:16] = references[planted[:16]]
    references[5 * m // 8] = candidates[3]  # a second copy: a tie
    return candidates, references


class Stages(TorchArrays):
    """Times what takes long; each is waited for, so that the sum is a little more than the whole."""

    def __init__(self, device: str, memory: int) -> None:
        super().__init__(device, memory)
        self.spent: dict[str, float] = defaultdict(float)
        self.pairs = 0


def _timed(name: str) -> Callable[..., Any]:
    def method(self: Stages, *given: Any) -> Any:
        synchronize()
        began = time.perf_counter()
        made = getattr(TorchArrays, name)(self, *given)
        synchronize()
        self.spent[name] += time.perf_counter() - began
        if name == "exact":
            self.pairs += len(made)
        return made

    return method


STAGES = {
    "squares": "norms",
    "ready": "centred, in halves",
    "product": "products",
    "peaks": "largest of each group",
    "largest": "k largest",
    "nonzero": "pairs above the limit",
    "exact": "exact distances",
    "sort": "sorts",
}
for _name in STAGES:
    setattr(Stages, _name, _timed(_name))


def run(arrays: TorchArrays, x: Any, y: Any) -> tuple[Any, Any]:
    with arrays.context():
        return search(arrays, x, y, K)


def plain(x: Any, y: Any, wide: int = 65_536) -> None:
    """Products of halves and topk, nothing exact: what is usually done."""
    a, best = x.half(), None
    for start in range(0, len(y), wide):
        block = y[start : start + wide].half()
        norms = block.float().square().sum(1) / 2
        for part, rows in enumerate(a.split(16_384)):
            scores = half_product(rows, block).sub_(norms)
            found = scores.topk(min(K, scores.shape[1])).values
            if best is None:
                best = {}
            before = best.get(part)
            if before is not None:
                found = torch.cat([before, found], 1).topk(K).values
            best[part] = found


def wrong(
    x: Any, y: Any, rows: Any, distances: Any, some: Any, dtype: Any
) -> tuple[int, int, float]:
    """Lists and distances that are not the oracle's, and how many of its lists were undecided.

    ``dtype`` is that of the products that choose ``K + 32`` of all references.
    """
    queries = x[some].to(dtype)
    best_scores, best_rows = None, None
    step = 16_384
    for start in range(0, len(y), step):
        block = y[start : start + step].to(dtype)
        scores = queries @ block.T - (block * block).sum(1) / 2
        places = torch.arange(start, start + len(block), device=DEVICE).expand_as(scores)
        if best_scores is not None:
            scores = torch.cat([best_scores, scores], 1)
            places = torch.cat([best_rows, places], 1)
        found = scores.topk(min(K + 32, scores.shape[1]))
        best_scores, best_rows = found.values, places.gather(1, found.indices)
    bad, undecided, worst = 0, 0, 0.0
    ours, theirs = rows[some].cpu().numpy(), distances[some].cpu().numpy()
    for i, row in enumerate(some.tolist()):
        chosen = best_rows[i].cpu().numpy()
        values = y[best_rows[i]].cpu().numpy().astype(np.float64) - x[row].cpu().numpy()
        values *= values
        exact = halves(values).copy()
        order = np.lexsort((chosen, exact))
        expected = chosen[order][:K]
        undecided += bool(exact[order][K - 1] >= exact[order][-1] > 0)
        bad += not np.array_equal(expected, ours[i])
        worst = max(worst, float(np.abs(exact[order][:K] - theirs[i]).max()))
    return bad, undecided, worst


def pixels(n: int, m: int, d: int) -> tuple[Any, Any]:
    made = torch.Generator(DEVICE).manual_seed(21)

    def values(count: int) -> Any:
        found = torch.empty((count, d), dtype=torch.uint8, device=DEVICE)
        for part in found.split(4096):
            part.copy_(torch.randint(0, 256, part.shape, generator=made, device=DEVICE))
        return found

    x, y = values(n), values(m)
    x[: n // 4] = y[7 : 7 + n // 4]
    x[: n // 8] //= 2
    return x, y


def wrong_pixels(x: Any, y: Any, rows: Any, distances: Any, count: int) -> int:
    """Lists that are not those of products in float64, which are exact there."""
    bad, queries = 0, x[:count]
    found = torch.zeros((count, len(y)), dtype=torch.float64, device=DEVICE)
    for start in range(0, x.shape[1], 8192):
        part = slice(start, start + 8192)
        a = queries[:, part].double()
        for first in range(0, len(y), 16_384):
            b = y[first : first + 16_384, part].double()
            found[:, first : first + 16_384] += (
                (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * (a @ b.T)
            )
    values, order = (each.cpu().numpy() for each in found.sort(dim=1, stable=True))
    for i in range(count):
        same = np.array_equal(order[i, :K], rows[i].cpu().numpy())
        bad += not (same and np.array_equal(values[i, :K], distances[i].cpu().numpy()))
    return bad


def free() -> int:
    return torch.cuda.mem_get_info()[0] // 2 if CUDA else 20_000_000


def transfers(rows: int, d: int) -> float:
    """Gigabytes per second from an ordinary array to the device, as ``nearest`` takes them."""
    array = np.ones((rows, d), np.float32)
    return (
        array.nbytes
        / 1e9
        / statistics.median(seconds(lambda: torch.from_numpy(array).to(DEVICE), 3))
    )


def repeated(arrays: TorchArrays, x: Any, y: Any, rounds: int) -> tuple[list[float], list[Any]]:
    """Seconds of each search, and what all found."""
    found: list[Any] = []
    return seconds(lambda: found.append(run(arrays, x, y)), rounds), found


def feature_part(kind: str, n: int, m: int, d: int, top: float, rounds: int, say: Say) -> None:
    x, y = features(kind, n, m, d)
    times, found = repeated(TorchArrays(DEVICE.type, free()), x, y, rounds)
    first = found[0]
    same = all(torch.equal(first[0], r) and torch.equal(first[1], e) for r, e in found)
    stages = Stages(DEVICE.type, free())
    run(stages, x, y)
    loop = min(seconds(lambda: plain(x, y), 2))
    took, count = statistics.median(times), 2 * n * m * d
    say(
        f"\n## {kind}: {n:,} × {m:,} × {d:,}, {K} nearest\n\n"
        f"{took:.3f} s, the median of {rounds} ({min(times):.3f} to {max(times):.3f}): "
        f"{count / took / 1e12:.0f} TFLOP/s, {count / took / top:.0%} of {top / 1e12:.0f}. "
        f"A plain loop of products and topk, not exact: {loop:.3f} s. "
        f"All rounds gave the same bits: {same}."
    )
    say(f"\nExact distances computed for each candidate: {stages.pairs / n:.1f}.")
    say("\n| stage | s |\n|---|---:|")
    for stage, label in STAGES.items():
        say(f"| {label} | {stages.spent[stage]:.3f} |")
    generator = torch.Generator().manual_seed(1)
    checked = min(1000, n)
    some = torch.cat([torch.arange(20), torch.randperm(n, generator=generator)[: checked - 20]])
    for dtype in (torch.float64, torch.float32):
        bad, undecided, worst = wrong(x, y, *first, some.to(DEVICE), dtype)
        say(
            f"\n{checked:,} candidates against a search in {str(dtype)[6:]}: {bad} lists differ, "
            f"{undecided} it could not decide, distances differ by {worst:g} at most."
        )


def pixel_part(n: int, m: int, d: int, top: float, say: Say) -> None:
    x, y = pixels(n, m, d)
    times, found = repeated(TorchArrays(DEVICE.type, free()), x, y, 3)
    took, count = statistics.median(times), 2 * n * m * d
    checked = min(64, n)
    bad = wrong_pixels(x, y, *found[0], checked)
    say(
        f"\n## Pixels: {n:,} × {m:,} × {d:,}, {K} nearest\n\n{took:.3f} s, the median of 3: "
        f"{count / took / 1e12:.0f} TOP/s, {count / took / top:.0%} of {top / 1e12:.0f} measured "
        f"for products of int8. {checked} candidates against exact products in float64: "
        f"{bad} lists or distances differ."
    )


def devices_part(say: Say) -> None:
    """``nearest`` on the device against every distance computed by NumPy as it is defined."""
    made = np.random.default_rng(3)
    x, y = (made.standard_normal((size, 300), dtype=np.float32) for size in (200, 3000))
    y[100:200] = x[:100]
    for sides in ((x, y), [(side * 40 + 128).clip(0, 255).astype(np.uint8) for side in (x, y)]):
        ours, theirs = (side.astype(np.float64) for side in sides)
        distances = np.stack([halves((theirs - one) ** 2).copy() for one in ours])
        rows = np.argsort(distances, axis=1, kind="stable")[:, :K]
        found = nearest(*sides, K, device=DEVICE.type)
        same = (found.rows.tobytes(), found.distances.tobytes()) == (
            rows.tobytes(),
            np.take_along_axis(distances, rows, axis=1).tobytes(),
        )
        say(f"\nThe same bytes as NumPy's for every pair, {sides[0].dtype}: {same}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="small, on the CPU")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    small = asked.check
    if not small and not CUDA:
        raise SystemExit("torch finds no CUDA device: use --check for a small run on the CPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    place = Path(os.environ.get("OUT", ROOT / "benchmarks" / "results")) / "dedupe_gpu.md"
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)
        if not small:
            place.write_text("\n".join(lines) + "\n", encoding="utf-8")

    name = torch.cuda.get_device_name() if CUDA else "CPU"
    say(
        f"# Nearest vectors on one GPU\n\n{name}, torch {torch.__version__}, numpy {np.__version__}."
    )
    n, m, d = (300, 5_000, 200) if small else (50_000, 1_280_000, 4096)
    shapes = [(256, 512, 256)] if small else [(8192, 8192, 8192), (12_500, 60_000, 4096)]
    rates = {shape: ceiling(*shape, 2 if small else 10) for shape in shapes}
    top = max(max(rate.values()) for rate in rates.values())
    say("\nProducts of halves on random data, TFLOP/s, the best of ten:\n")
    for shape, rate in rates.items():
        listed = ", ".join(f"{kind} {value / 1e12:.0f}" for kind, value in rate.items())
        say(f"- {' × '.join(f'{size:,}' for size in shape)}: {listed}")
    inputs, speed = (n + m) * d * 4 / 1e9, transfers(64 if small else 250_000, d)
    say(
        f"\nTransfer from ordinary memory: {speed:.1f} GB/s, so the inputs below, {inputs:.1f} GB, "
        f"take {inputs / speed:.1f} s."
    )
    for kind in ("ReLU", "normal"):
        feature_part(kind, n, m, d, top, asked.rounds, say)
        if CUDA:
            torch.cuda.empty_cache()
    n, m, d = (100, 500, 3000) if small else (4096, 65_536, 196_608)
    shapes = [(256, 512, 256)] if small else [(8192, 8192, 8192), (4096, 65_536, 98_304)]
    top = max(int_ceiling(*shape, 2 if small else 5) for shape in shapes)
    if CUDA:
        torch.cuda.empty_cache()
    pixel_part(n, m, d, top, say)
    devices_part(say)


if __name__ == "__main__":
    main()

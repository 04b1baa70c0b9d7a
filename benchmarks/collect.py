"""What reading a scene-graph file of GQA's size costs: as a stream, and beside loading it whole.

Claims: the file (113,018 images, 1,702 names, about 470 MB) becomes a pool in less memory than a
quarter of what ``json.load`` alone needs, and in no more time.

pool    heldout's reader: stream, memberships, tables
walk    the stream alone: every image decoded and dropped
load    ``json.load`` of the whole file: what a reader without a stream must do first

Each measurement is a process of its own; rounds are interleaved; medians of CPU seconds, and the
peak of resident memory. Files go to memory where there is a folder for that.

    python benchmarks/collect.py [--images N] [--rounds 3] [--print]

writes benchmarks/results/collect.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gqa_like import IMAGES, Shape, write_gqa_like
from machine import describe, write_result

METHODS = ("pool", "walk", "load")
_MEMORY = Path("/dev/shm")


def measure(method: str, path: Path) -> dict[str, float]:
    """Run one method in this process."""
    start = time.process_time()
    found = 0
    if method == "load":
        with path.open("rb") as handle:
            found = len(json.load(handle))
    elif method == "walk":
        from heldout.data.published.json_stream import documents, open_json

        for document in documents(path):
            with open_json(document) as stream:
                for _ in stream.members():
                    stream.value()
                    found += 1
    else:
        from heldout.data.importing.pools import read_metadata

        found = len(read_metadata("gqa", path))
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "peak": peak, "images": found}


def run(method: str, path: Path) -> dict[str, float]:
    """Run one method in a process of its own."""
    command = [sys.executable, __file__, "--method", method, "--path", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    """Generate the files, measure, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--print", action="store_true", help="write no file")
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.method:
        print(json.dumps(measure(arguments.method, arguments.path)))
        return
    folder = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        plain, packed = Path(temporary) / "graphs.json", Path(temporary) / "graphs.zip"
        for path in (plain, packed):
            write_gqa_like(path, Shape(images=arguments.images))
        cases = [(method, plain) for method in METHODS] + [("pool", packed)]
        seen: dict[tuple[str, Path], list[dict[str, float]]] = {case: [] for case in cases}
        for _ in range(arguments.rounds):
            for case in cases:
                seen[case].append(run(*case))
        size = plain.stat().st_size / 1e6
    lines = [
        "# Reading scene graphs",
        "",
        f"{describe('pyarrow')}. {arguments.images:,} images, {size:,.0f} MB of JSON, medians of "
        f"{arguments.rounds} interleaved rounds (`benchmarks/collect.py`).",
        "",
        "| | CPU seconds | MB/s | peak memory, MB |",
        "|---|---|---|---|",
    ]
    for (method, path), runs in seen.items():
        counted = {run["images"] for run in runs}
        if counted != {arguments.images}:
            raise SystemExit(f"{method} read {counted} images")
        seconds = statistics.median(run["seconds"] for run in runs)
        peak = statistics.median(run["peak"] for run in runs)
        name = f"{method}, from .zip" if path.suffix == ".zip" else method
        lines.append(f"| {name} | {seconds:.1f} | {size / seconds:,.0f} | {peak:,.0f} |")
    text = "\n".join(lines) + "\n"
    if arguments.print:
        print(text)
    else:
        write_result("collect", text)


if __name__ == "__main__":
    main()

"""What the engine costs: trivial units a second, by executor, beside bare concurrent.futures.

Four columns an executor, run in turn and repeated:

bare      concurrent.futures alone (a plain loop for serial); results are returned and dropped
stored    the same, and each result is written as the engine writes it, with nothing else
engine    heldout.core.engine.run: keys checked, results stored, progress counted, able to resume
again     heldout.core.engine.run a second time, when every result is there

The difference between stored and engine is the engine's own cost. The difference between bare and
stored is what a result that survives a power cut costs (one fsync a unit). On a disk that wait
hides everything else, so the same is measured in a folder held in memory where there is one.

    python benchmarks/engine_overhead.py [--units 2000] [--repeats 5] [--write]
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from heldout.core.engine import Job, Unit, make_executor, run, unit_key
from heldout.core.files import write_bytes

RESULT = Path(__file__).with_name("results") / "engine.md"
MEMORY = Path("/dev/shm")
WORKERS = 2


def work(payload: int) -> bytes:
    return payload.to_bytes(8, "little")


def work_and_store(item: tuple[int, str]) -> None:
    write_bytes(Path(item[1]), work(item[0]))


def pool(name: str) -> Executor:
    if name == "threads":
        return ThreadPoolExecutor(WORKERS)
    return ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn"))


def consume(name: str, function: Callable[..., object], items: Iterable[object]) -> None:
    if name == "serial":
        for item in items:
            function(item)
        return
    with pool(name) as started:
        for future in [started.submit(function, item) for item in items]:
            future.result()


def measure(name: str, count: int, place: str | None) -> dict[str, float]:
    """Seconds of each column for one executor."""
    units = [Unit(unit_key("bench-1", n=n), n) for n in range(count)]
    seconds = {}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        root = Path(folder)
        stored = [(u.payload, str(root / "plain" / u.key[:2] / u.key)) for u in units]
        job = Job(name="bench", work=work)
        columns: dict[str, Callable[[], object]] = {
            "bare": lambda: consume(name, work, range(count)),
            "stored": lambda: consume(name, work_and_store, stored),
            "engine": lambda: run(
                job, units, runs=root, executor=make_executor(name, workers=WORKERS)
            ),
            "again": lambda: run(
                job, units, runs=root, executor=make_executor(name, workers=WORKERS)
            ),
        }
        for column, function in columns.items():
            began = time.perf_counter()
            function()
            seconds[column] = time.perf_counter() - began
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    names = ("serial", "threads", "processes")
    places: dict[str, str | None] = {"disk": None}
    if MEMORY.is_dir():
        places["memory"] = str(MEMORY)
    rows = [(name, place) for place in places for name in names]
    rounds: dict[tuple[str, str], list[dict[str, float]]] = {row: [] for row in rows}
    for _ in range(options.repeats):
        for name, place in rows:
            rounds[name, place].append(measure(name, options.units, places[place]))
    lines = [
        "# What the engine costs a unit",
        "",
        f"{options.units:,} trivial units, {WORKERS} workers, best of {options.repeats} "
        "interleaved rounds (others use the machine); pools are started inside the measured time.",
        f"{len(os.sched_getaffinity(0))} shared cores, {platform.machine()}, Python "
        f"{platform.python_version()}, {platform.system()}, load {os.getloadavg()[0]:.0f}. "
        "Made by `benchmarks/engine_overhead.py`.",
        "",
        "| executor | folder | bare, units/s | stored, units/s | engine, units/s | again, units/s "
        "| engine ÷ stored, time | own cost, µs a unit |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        best = {column: min(each[column] for each in rounds[row]) for column in rounds[row][0]}
        ratio = best["engine"] / best["stored"]
        cost = best["engine"] - best["stored"]
        speeds = " | ".join(f"{options.units / best[column]:,.0f}" for column in best)
        own = f"{1e6 * cost / options.units:,.0f}"
        lines.append(f"| {row[0]} | {row[1]} | {speeds} | {ratio:.2f} | {own} |")
    lines += [
        "",
        "- bare: `concurrent.futures` (a plain loop for serial), results dropped.",
        "- stored: the same, each result written atomically with `fsync`, nothing else.",
        "- engine: `heldout.core.engine.run` from nothing. again: the same call when all is there.",
        "- On disk the waits for `fsync` vary by more than the own cost: read that from the memory rows.",
    ]
    text = "\n".join(lines) + "\n"
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

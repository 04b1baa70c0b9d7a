"""Files with something wrong in them: what every command that reads them does; one table.

    python -m benchmarks.malformed_files

Of 2,000 spoiled JSON and TOML files, and 1,000 of every other format, each must end in exit 0, in one
line of error (exit 2), or in what the verb reports of images and files (exit 1 of ``verify`` and
``doctor``, 3, 4). Anything else is listed, and the exit code of this script is 1.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.machine import describe, write_result
from tests.cli.malformed import Outcome, readings, trials
from tests.golden.data import WORLDS

_ROOM = 6 << 30  # beyond what is mapped at the start: what a header claims must not be taken
_DOCUMENTS = (".json", ".toml", ".jsonl")


def limit_memory() -> None:
    lines = Path("/proc/self/status").read_text().splitlines()
    mapped = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (mapped + _ROOM,) * 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the trials")
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    options = parser.parse_args()
    part = 20 if options.quick else 1
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        found = []
        for world in options.worlds:
            (place / world).mkdir()
            found += readings(world, place / world)
        limit_memory()
        documents = [r for r in found if Path(r.file).suffix in _DOCUMENTS]
        others = [r for r in found if Path(r.file).suffix not in _DOCUMENTS]
        for some, n in ((documents, 2000), (others, 1000)):
            outcomes += trials(some, n // part, seed=options.seed, place=place)
    verbs = {" ".join(r.command.split()[:2]) for r in found}
    lines = ["# Malformed files", "", f"{describe('msgspec', 'numpy', 'pyarrow')}.", ""]
    lines += [
        f"{len(outcomes):,} trials, seed {options.seed}: {len(found):,} pairs of a command and a file "
        f"that it reads, {len({r.kind for r in found})} kinds of file, {len(verbs)} verbs and kinds "
        "of verbs. `faults` are tracebacks, hangs, Python warnings, and exit 1 of a verb that "
        "does not report so.",
        "",
        "| ending | trials | exit 0 | one line, exit 2 | exit 1, 3 or 4 | faults |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    endings: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        endings.setdefault(Path(outcome.reading.file).suffix or "none", []).append(outcome)
    for ending, some in [*sorted(endings.items()), ("all", outcomes)]:
        codes = Counter("fault" if one.fault else str(one.code) for one in some)
        reported = sum(codes[code] for code in "134")
        cells = [len(some), codes["0"], codes["2"], reported, codes["fault"]]
        lines.append(f"| {ending} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    write_result("malformed_files", "\n".join([*lines, ""]))
    faults = [one for one in outcomes if one.fault]
    for one in faults:
        print(f"\n== {one.reading.command}\n{one.reading.file}: {one.what}\n{one.fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

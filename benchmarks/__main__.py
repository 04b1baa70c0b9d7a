"""``make bench``: every benchmark that the package's own requirements can run, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "startup.py",
    "engine_overhead.py",
    "evaluate.py",
    "interval_coverage.py",
    "selection_bias.py",
    "compose.py",
    "collect.py",
    "contexts.py",
    "mistakes.py",
    "zero_shot.py",
    "domains.py",
    "active.py",
    "kills.py",
)


def main() -> None:
    for script in SCRIPTS:
        print(f"== {script}", flush=True)
        subprocess.run([sys.executable, str(Path(__file__).parent / script)], check=True)


if __name__ == "__main__":
    main()

"""How small the core is: install time and size, import time, ``heldout --help``.

Claims: ``heldout --help`` under 0.4 s; torch is never in the core. Installs the package and its
pinned core requirements into a fresh environment. Run: ``python benchmarks/startup.py``; writes
benchmarks/results/startup.md.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe, write_result

ROOT = Path(__file__).parents[1]


def seconds(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        python, heldout = str(venv / "bin/python"), str(venv / "bin/heldout")
        empty = size(venv)
        pip = (python, "-m", "pip", "install", "--quiet", "--no-cache-dir")
        install = seconds(*pip, "--require-hashes", "-r", str(ROOT / "requirements/core.txt"))
        install += seconds(*pip, "--no-deps", str(ROOT))
        installed = size(venv)
        package = size(next(venv.glob("lib/python*/site-packages/heldout")))
        jobs = {
            "python -c pass": (python, "-c", "pass"),
            "import heldout": (python, "-c", "import heldout"),
            "heldout --help": (heldout, "--help"),
            "heldout score --help": (heldout, "score", "--help"),
            "import heldout; heldout.evaluate": (python, "-c", "import heldout; heldout.evaluate"),
        }
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(15):
            for name, arguments in jobs.items():
                times[name].append(seconds(*arguments))
    lines = [
        "# Size and start-up of the core",
        "",
        f"{describe()}. Fresh environment, pinned requirements; 15 rounds, interleaved.",
        "",
        "| what | value |",
        "|---|---|",
        f"| installing heldout and its requirements, no cache | {install:.0f} s |",
        f"| size of the requirements | {installed - empty - package:.0f} MB |",
        f"| size of heldout itself | {package:.1f} MB |",
        *(
            f"| `{name}` | {statistics.median(v):.2f} s (worst {max(v):.2f}) |"
            for name, v in times.items()
        ),
    ]
    write_result("startup", "\n".join(lines) + "\n")


def size(folder: Path) -> float:
    return (
        sum(
            path.stat().st_size
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        )
        / 1e6
    )


if __name__ == "__main__":
    main()

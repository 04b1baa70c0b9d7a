"""A description of the machine, for the head of every committed table."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def describe(*packages: str) -> str:
    """Processor, cores, Python and package versions on one line."""
    model = platform.processor() or "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}" + (
        f", {versions}" if versions else ""
    )


def write_result(name: str, text: str) -> None:
    """Print a result and write it to ``benchmarks/results/<name>.md``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)

"""Jobs that are killed, and jobs that work at once: the benchmark in small, in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/kills.py"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


def play(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_killed_jobs_end_in_the_same_bytes_and_leave_nothing() -> None:
    jobs = ["import testset", "import truth", "import predictions", "predict", "build compose"]
    play("--kills", 14, "--rounds", 0, "--only", *jobs, "export folders", "cutout")


def test_writers_at_once_lose_nothing_and_agree() -> None:
    play(
        *("--kills", 0, "--rounds", 1, "--only"),
        "import truth a, import truth b",
        "import truth, import testset --replace",
        "import testset, four times the same",
        "import judgements, contradictory",
        "import judgements, two contradictory queues",
        "import predictions --replace, two files",
        "build compose, four times the same",
        "build compose, one request into two folders",
    )

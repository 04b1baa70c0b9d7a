"""The mutation tester, on a package of one module whose tests check one of its two functions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "mutate.py"
MODULE = '''
def checked(x: "int | None", limit: int = 3) -> bool:
    """Says whether 1 + 1 is small."""
    return x < limit


def unchecked(values):
    return f"{1 + 1}", values[1:]
'''
TESTS = """
from thing.module import checked, unchecked

def test_checked():
    assert [checked(x) for x in (2, 3, 4)] == [True, False, False]

def test_unchecked():
    unchecked("abc")
"""


def mutate(
    folder: Path, *options: str, results: str = "results.jsonl"
) -> tuple[str, dict[tuple[int, str], str]]:
    """What is printed, and the outcome of each change by line and new text."""
    run = [sys.executable, str(folder / "tools/mutate.py"), "src/thing", "--tests", "tests"]
    run += ["--results", results, "--jobs", "1", "--count", "100", *options]
    done = subprocess.run(run, cwd=folder, check=True, capture_output=True, text=True)
    lines = (folder / results).read_text(encoding="utf-8").splitlines()[1:]
    rows = [json.loads(line) for line in lines]
    assert len({row["id"] for row in rows}) == len(rows), "no mutant is tried twice"
    return done.stdout, {(row["line"], row["new"]): row["outcome"] for row in rows}


def test_a_change_is_killed_where_a_test_checks_it(tmp_path: Path) -> None:
    for path, text in {"src/thing/module.py": MODULE, "tests/test_module.py": TESTS}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOL, tmp_path / "tools")
    printed, outcomes = mutate(tmp_path)
    assert outcomes == {
        (2, "(4)"): "killed",
        (4, "(None)"): "killed",
        (4, "(x <= limit)"): "killed",
        (4, "(x >= limit)"): "killed",
        (8, "(None)"): "survived",
        (8, "(1 + 1)"): "survived",
        (8, "(2)"): "survived",
    }
    assert "noticed: 4 of 7, 57.1%" in printed
    assert "thing/module.py:8  survived\n  - 1\n  + (2)" in printed
    assert (tmp_path / "src/thing/module.py").read_text(encoding="utf-8") == MODULE
    again, _ = mutate(tmp_path)
    assert "noticed: 4 of 7" in again
    assert "running the tests once" not in again
    more = TESTS.replace('unchecked("abc")', 'assert unchecked("abc") == ("2", "bc")')
    (tmp_path / "tests/test_module.py").write_text(more, encoding="utf-8")
    printed, outcomes = mutate(tmp_path, "--again", "results.jsonl", results="again.jsonl")
    assert set(outcomes) == {(8, "(None)"), (8, "(1 + 1)"), (8, "(2)")}, (
        "what survived, and no more"
    )
    assert "noticed: 7 of 7" in printed

"""The counter of code, on a repository of a few files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "size.py"
FRONT = '''"""A package.

Of one function.
"""


def half(x):  # a comment
    """Half of it."""
    return x / 2
'''
# one token for the f-string, in every version of Python
WING = 'def name(x):\n    return f"{x!r} and {len(x) + 1:>{x}}"\n'


def git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)


def size(repository: Path, *arguments: str) -> dict[str, list[str]]:
    """The printed rows: their name and their cells."""
    run = [sys.executable, str(TOOL), *arguments]
    done = subprocess.run(run, cwd=repository, check=True, capture_output=True, text=True)
    rows = (line.rsplit(maxsplit=7) for line in done.stdout.splitlines()[1:] if "bytes" not in line)
    return {row[0].strip(): row[1:] for row in rows if row}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for path, text in {
        "src/heldout/__init__.py": FRONT,
        "src/heldout/stats/deep/er.py": WING,
        "src/heldout/page.html.j2": "<p>",
        "tests/test_it.py": "assert True\n",
        "elsewhere/not_counted.py": "x = 1\n",
        ".gitignore": "ignored.py\n",
        "src/heldout/ignored.py": "x = 1\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def test_a_commit_is_counted_by_wing(repository: Path) -> None:
    rows = size(repository, "HEAD")
    # docstring; def half ( x ) : docstring; return x / 2
    assert rows["front"] == ["12", "9", "4", "1", "1", "5", "1"]
    # def name ( x ) : return and one string
    assert rows["stats"] == ["8", "2", "2", "1", "1", "0", "0"]
    assert rows["src/heldout"] == ["20", "11", "6", "2", "2", "5", "1"]
    assert rows["tests"] == ["2", "1", "1", "1", "0", "0", "0"]
    assert rows["together"] == ["22", "12", "7", "3", "2", "5", "1"]
    assert rows[".html"] == ["3"]


def test_the_working_tree_and_a_difference(repository: Path) -> None:
    (repository / "src/heldout/stats/deep/er.py").unlink()
    (repository / "src/heldout/stats/new.py").write_text("x = 1\n", encoding="utf-8")
    (repository / "src/heldout/page.html.j2").write_text("<p></p>", encoding="utf-8")
    assert size(repository)["stats"] == ["3", "1", "1", "1", "0", "0", "0"]
    assert size(repository, "HEAD")["stats"][0] == "8"
    rows = size(repository, "HEAD", ".")
    assert rows["stats"] == ["-5", "-1", "-1", "+0", "-1", "+0", "+0"]
    assert rows["front"] == ["+0"] * 7
    assert rows[".html"] == ["+4"]


def test_a_commit_that_does_not_exist_is_refused(repository: Path) -> None:
    run = [sys.executable, str(TOOL), "no-such-commit"]
    done = subprocess.run(run, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no-such-commit" in done.stderr
    assert "Traceback" not in done.stderr

"""The map of the package agrees with the tree, and every dotted name in the project resolves."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Groups of entry points: plug-ins register under these names, whatever the folders are called.
GROUPS = {"heldout.models", "heldout.recipes", "heldout.factors", "heldout.executors"}
# Names of files and keys that only look like modules.
NOT_MODULES = {"heldout.toml", "heldout.annotation"}
_DOTTED = re.compile(r"(?<![\w./-])heldout(?:\.[A-Za-z_]\w*)+(?![\w(]*\.git)")
_PLACES = ("src", "tests", "benchmarks", "docs", "examples", "tools", "*.md", "*.toml")
_SUFFIXES = {".py", ".md", ".toml", ".cff", ".j2", ".html"}


def test_the_map_is_that_of_the_tree() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "map.py"), "--check"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_every_module_says_what_is_in_it() -> None:
    page = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    silent = [line for line in page.splitlines() if re.fullmatch(r"\| `\w+` \| +\|", line)]
    assert silent == []


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *_PLACES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    history = {ROOT / "CHANGELOG.md"}  # may name what has gone
    return [
        path
        for path in paths
        if path.suffix in _SUFFIXES
        and path.is_file()
        and path not in history
        and "decisions" not in path.parts
        and path != Path(__file__)
    ]


def _resolves(name: str) -> bool:
    if name in GROUPS | NOT_MODULES:
        return True
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError as error:
            if error.name is not None and not error.name.startswith("heldout"):
                return True  # there, but needs a library that is not installed here
            continue
        for attribute in parts[size:]:
            if not hasattr(found, attribute):
                return size > 1 and attribute == parts[-1] and attribute in {"toml", "json", "py"}
            found = getattr(found, attribute)
        return True
    return False


def test_every_dotted_name_of_ours_resolves() -> None:
    wrong: dict[str, str] = {}
    seen: dict[str, bool] = {}
    for path in _tracked():
        for match in _DOTTED.finditer(path.read_text(encoding="utf-8")):
            name = match.group().rstrip(".")
            if name not in seen:
                seen[name] = _resolves(name)
            if not seen[name]:
                wrong.setdefault(name, path.relative_to(ROOT).as_posix())
    assert wrong == {}


@pytest.mark.parametrize("name", ["heldout.nothing", "heldout.core.nothing"])
def test_a_name_that_is_not_there_is_noticed(name: str) -> None:
    assert not _resolves(name)

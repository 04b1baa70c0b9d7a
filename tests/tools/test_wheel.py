"""The wheel holds the tracked files of the package, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


def selected(root: Path) -> set[str]:
    """The files that the build backend puts into a wheel, by their paths there."""
    files = WheelBuilder(str(root)).recurse_included_files()
    return {file.distribution_path for file in files}


def tracked() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return {name.removeprefix("src/") for name in listed.split("\0") if name}


def test_the_wheel_has_the_tracked_files() -> None:
    assert selected(ROOT) == tracked()


def test_a_file_that_is_ignored_would_be_missed(tmp_path: Path) -> None:
    """The selection is the backend's own: it leaves out what ``.gitignore`` names, as ``build/``."""
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (tmp_path / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    for name in ("heldout/__init__.py", "heldout/build/lost.py", "heldout/kept.toml"):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert selected(tmp_path) == {"heldout/__init__.py", "heldout/kept.toml"}

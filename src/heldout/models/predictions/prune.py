"""What in a workspace takes room and is not needed any more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from heldout.core.engine.results import is_worked_on, remove_job
from heldout.core.files import is_temporary, left_over, remove_folder
from heldout.core.records import Table
from heldout.core.workspace import Workspace
from heldout.data.testset import list_testsets
from heldout.models.predictions.store import OWNER, PredictionStore

RESTING = 3600.0
"""Seconds without a write after which a temporary file or folder of which nobody can tell who
owns it is nobody's any more."""
_LEFT, _JOB = ".tmp-*", "predict-"


@dataclass(frozen=True)
class Waste:
    """A folder that may go, why, and how much room it takes."""

    record: ClassVar[str] = "waste"
    table: ClassVar[Table] = Table("", ("folder", "why=reason", "size"), rows=40)
    folder: Path
    reason: str
    bytes: int

    @property
    def size(self) -> str:
        """The room it takes, for a person."""
        return f"{self.bytes / 1e6:,.1f} MB"


def find_waste(
    workspace: Workspace, *, models: Sequence[str] = (), testset: str | None = None
) -> list[Waste]:
    """What may be pruned: leftovers of interrupted writes, predictions on images that a test set of
    the workspace had and none has now, unfinished prediction jobs that nobody works on; and, where
    asked, stored models by glob.

    ``testset`` narrows ``models`` to one set. Predictions of a sample (``--limit``), and those of a
    set that lies elsewhere, go only where they are asked for.
    """
    cards = {entry.card.images_hash[:12]: entry.card.name for entry in list_testsets(workspace)}
    groups, jobs = _folders(workspace.predictions), _folders(workspace.runs)
    inside = (
        "testsets", "pools", "predictions", "embeddings", "duplicates", "calibrations", "runs",
        "ledger", "fetched",
    )  # fmt: skip
    left = [p for name in inside for p in sorted((workspace.root / name).rglob(_LEFT))]
    found = [
        _waste(path, "left by an interrupted write")
        for path in (*sorted(workspace.root.glob(_LEFT)), *left)
        if not any(map(is_temporary, path.parents)) and _is_left(path)
    ]
    store = PredictionStore(workspace.predictions)
    for group in groups:
        name, runs = cards.get(group.name), store.runs(group.name)
        if name is None and runs and all(OWNER in run.run for run in runs):
            found.append(_waste(group, "predictions on images that no test set here has"))
        elif models and testset in (None, name):
            on = name or "a sample or a set elsewhere"
            found += [
                _waste(run.folder, f"{run.model} on {on}, as asked")
                for run in runs
                if any(run.matches(glob) for glob in models)
            ]
    found += [
        _waste(job, "unfinished predictions; the same command would go on from them")
        for job in jobs
        if job.name.startswith(_JOB) and not is_worked_on(job)
    ]
    return found


def remove(waste: Sequence[Waste]) -> int:
    """Remove folders; returns the bytes that were freed."""
    for item in waste:
        if is_temporary(item.folder):
            with left_over(item.folder) as left:
                if left is not False:
                    remove_folder(item.folder)
        elif item.folder.name.startswith(_JOB):
            remove_job(item.folder)
        else:
            remove_folder(item.folder)
    return sum(item.bytes for item in waste)


def _folders(place: Path) -> list[Path]:
    paths = sorted(place.iterdir()) if place.is_dir() else []
    return [path for path in paths if path.is_dir() and not is_temporary(path)]


def _is_left(path: Path) -> bool:
    """Whether nobody owns what is temporary; where nobody can tell, whether it has rested."""
    with left_over(path) as left:
        return time.time() - _touched(path) > RESTING if left is None else left


def _touched(path: Path) -> float:
    """When something in a file or folder was last written; now, if it changes under our eyes."""
    try:
        return max(part.stat().st_mtime for part in (path, *path.rglob("*")))
    except FileNotFoundError:
        return time.time()


def _waste(path: Path, reason: str) -> Waste:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return Waste(path, reason, sum(p.stat().st_size for p in files))

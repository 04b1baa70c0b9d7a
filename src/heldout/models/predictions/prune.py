"""What in a workspace takes room and is not needed any more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from heldout.core.engine.results import is_worked_on
from heldout.core.files import is_temporary, remove_folder
from heldout.core.records import Table
from heldout.core.workspace import Workspace
from heldout.data.testset import list_testsets
from heldout.models.predictions.store import PredictionStore

RESTING = 3600.0
"""Seconds without a write after which a temporary file or folder is nobody's any more."""


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
    """What may be pruned: leftovers of interrupted writes, predictions on images that no test set of
    the workspace has, unfinished prediction jobs that nobody works on; and, where asked, stored
    models by glob.

    ``testset`` narrows ``models`` to one set. What was written to within the last hour is no
    leftover: somebody may be at it.
    """
    cards = {entry.card.images_hash[:12]: entry.card.name for entry in list_testsets(workspace)}
    groups, jobs = _entries(workspace.predictions), _entries(workspace.runs)
    places = (workspace.testsets, workspace.predictions, *groups, workspace.runs, workspace.ledger)
    found = [
        _waste(path, "left by an interrupted write")
        for place in places
        for path in _entries(place, temporary=True)
        if time.time() - _touched(path) > RESTING
    ]
    for group in groups:
        if group.name not in cards:
            found.append(_waste(group, "predictions on images that no test set here has"))
        elif models and testset in (None, cards[group.name]):
            for run in PredictionStore(workspace.predictions).runs(group.name):
                if any(run.matches(glob) for glob in models):
                    found.append(
                        _waste(run.folder, f"{run.model} on {cards[group.name]}, as asked")
                    )
    found += [
        _waste(job, "unfinished predictions; the same command would go on from them")
        for job in jobs
        if job.name.startswith("predict-") and not is_worked_on(job)
    ]
    return found


def remove(waste: Sequence[Waste]) -> int:
    """Remove folders; returns the bytes that were freed."""
    for item in waste:
        if item.folder.is_dir():
            remove_folder(item.folder)
        else:
            item.folder.unlink(missing_ok=True)
    return sum(item.bytes for item in waste)


def _entries(place: Path, *, temporary: bool = False) -> list[Path]:
    """The folders of a place, or what is temporary in it."""
    paths = sorted(place.iterdir()) if place.is_dir() else []
    return [
        p for p in paths if (is_temporary(p) if temporary else p.is_dir() and not is_temporary(p))
    ]


def _touched(path: Path) -> float:
    """When something in a file or folder was last written; now, if it changes under our eyes."""
    try:
        return max(part.stat().st_mtime for part in (path, *path.rglob("*")))
    except FileNotFoundError:
        return time.time()


def _waste(path: Path, reason: str) -> Waste:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return Waste(path, reason, sum(p.stat().st_size for p in files))

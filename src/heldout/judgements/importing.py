"""Importing judgements: our own files, and the shapes in which others published theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from heldout.errors import BadFile, UserError
from heldout.files import existing_file
from heldout.judgements.judgement import Judgement
from heldout.judgements.published.imagenetv2 import (
    read_blacklist,
    read_class_reviews,
    read_near_duplicates,
)
from heldout.judgements.published.label_errors import read_label_errors
from heldout.judgements.published.mistakes import read_mistakes
from heldout.judgements.store import Added, JudgementStore
from heldout.workspace import Workspace

TABLES = (".jsonl", ".csv", ".parquet")
_PUBLISHED: dict[str, Callable[[Path], Iterable[Judgement]]] = {
    "class-reviews": read_class_reviews,
    "blacklist": read_blacklist,
    "near-duplicates": read_near_duplicates,
    "label-errors": read_label_errors,
    "mistakes": read_mistakes,
}
FORMATS = ("table", *_PUBLISHED)
_BY_NAME = (
    ("_review", "class-reviews"),
    ("blacklist", "blacklist"),
    ("near_duplicates", "near-duplicates"),
    ("label_errors", "label-errors"),
    ("mistakes", "mistakes"),
)


def judgement_format(path: Path) -> str:
    """The format of a file of judgements, told from its ending and its published name."""
    existing_file(path, "file of judgements")
    if path.suffix.lower() in TABLES:
        return "table"
    for part, form in _BY_NAME:
        if part in path.stem:
            return form
    raise BadFile(path, "is of no known shape", fix=f"name its --format: {', '.join(FORMATS)}")


def import_judgement_file(path: Path, workspace: Workspace, *, form: str = "auto") -> Added:
    """Add the judgements of a file to the workspace's table; known ones are not added again."""
    chosen = judgement_format(path) if form == "auto" else form
    if chosen not in FORMATS:
        raise UserError(f"no format {chosen!r}", fix=f"use one of {', '.join(FORMATS)}")
    with JudgementStore(workspace.judgements) as store:
        if chosen == "table":
            return store.import_file(path)
        return store.add(_PUBLISHED[chosen](path))

"""A workspace: the folder that holds test sets, pools, predictions, judgements and runs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import UserError

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True)
class Workspace:
    """Paths of a workspace. Folders are made when something is first written to them."""

    root: Path

    @classmethod
    def find(cls, path: Workspace | str | os.PathLike[str] | None = None) -> Workspace:
        """The workspace named by ``path``, else by ``HELDOUT_WORKSPACE``, else the current folder."""
        if isinstance(path, Workspace):
            return path
        return cls(Path(path or os.environ.get("HELDOUT_WORKSPACE") or "."))

    @property
    def testsets(self) -> Path:
        """Where test sets live."""
        return self.root / "testsets"

    @property
    def pools(self) -> Path:
        """Where pools of candidates live."""
        return self.root / "pools"

    @property
    def predictions(self) -> Path:
        """Where predictions live."""
        return self.root / "predictions"

    @property
    def runs(self) -> Path:
        """Where reports, records and resumable work live."""
        return self.root / "runs"

    @property
    def ledger(self) -> Path:
        """Where it is kept which bytes image files held when they were last read."""
        return self.root / "ledger"

    @property
    def judgements(self) -> str | Path:
        """Where judgements are: the address ``HELDOUT_JUDGEMENTS``, else an SQLite file in the folder."""
        return os.environ.get("HELDOUT_JUDGEMENTS") or self.root / "judgements.db"


def slug(text: str) -> str:
    """A name that is safe as a folder: letters, digits, dot, underscore and hyphen.

    >>> slug("ViT B/16 (augreg)")
    'ViT-B-16-augreg'
    """
    made = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    if not made:
        raise UserError(
            f"{text!r} cannot be made a name", fix="use letters, digits, '.', '_' or '-'"
        )
    return made


def check_slug(name: str, what: str) -> str:
    """``name`` if it is a slug, else a user error."""
    if not _SLUG.match(name):
        raise UserError(
            f"{name!r} is not a name for {what}",
            fix=f"use letters, digits, '.', '_' or '-', such as {slug(name or 'x')}",
        )
    return name

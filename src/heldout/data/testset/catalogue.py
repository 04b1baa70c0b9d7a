"""Test sets of a workspace: by name, by published alias, or by path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import NotFound, UserError
from heldout.core.files import is_temporary
from heldout.core.workspace import Workspace
from heldout.data.testset.card import Card
from heldout.data.testset.specs import opener_of
from heldout.data.testset.testset import TestSet, load


@dataclass(frozen=True)
class Entry:
    """One test set of a workspace, its card read and its tables not."""

    folder: Path
    card: Card


def list_testsets(workspace: Workspace) -> list[Entry]:
    """All test sets of a workspace, by name."""
    if not workspace.testsets.is_dir():
        return []
    return [
        Entry(folder, Card.read(folder / "card.json"))
        for folder in sorted(workspace.testsets.iterdir())
        if not is_temporary(folder) and (folder / "card.json").is_file()
    ]


def find_folder(workspace: Workspace, name: str) -> Path:
    """The folder that an argument means: a name, an alias, or a path to a test set's folder.

    A folder of that name is taken even if its card is missing or broken, so that ``verify`` can
    say what is wrong with it.
    """
    for folder in (workspace.testsets / name, Path(name)):
        if folder.is_dir() and (
            folder.parent == workspace.testsets or (folder / "card.json").is_file()
        ):
            return folder
    entries = list_testsets(workspace)
    matches = [entry for entry in entries if name in entry.card.aliases]
    if len(matches) > 1:
        names = ", ".join(entry.card.name for entry in matches)
        raise UserError(f"{name!r} is an alias of {names}", fix="use one of these names")
    if matches:
        return matches[0].folder
    known = ", ".join(entry.card.name for entry in entries)
    raise NotFound(
        f"no test set {name!r} in {workspace.testsets}",
        fix=f"there is {known}" if known else "import one with heldout import testset",
    )


def find_testset(workspace: Workspace, name: str) -> TestSet:
    """The test set that an argument means.

    A name, an alias, a path to a test set's folder, or a spec such as ``compose:FILE.toml``, whose
    set is made in memory.
    """
    opener = opener_of(name)
    if opener is not None:
        return opener(workspace, name.partition(":")[2])
    return load(find_folder(workspace, name))

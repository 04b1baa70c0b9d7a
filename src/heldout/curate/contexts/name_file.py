"""A file of subset names, one a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file
from heldout.curate.contexts.names import SubsetName, parse_subset


@dataclass(frozen=True, eq=False)
class SubsetNames:
    """The subsets of a file in its order, and notes on lines that were not taken."""

    subsets: Mapping[str, SubsetName]
    notes: tuple[str, ...] = ()


def read_subset_names(path: Path) -> SubsetNames:
    """Read a file of names; empty lines do not count, and a name that is there twice counts once.

    Lines that are no ``subject(context)`` are left out with a note; a file of nothing else is
    refused.
    """
    try:
        text = existing_file(path, "file of subset names").read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    found: dict[str, SubsetName] = {}
    repeated: list[int] = []
    foreign: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if not name:
            continue
        if name in found:
            repeated.append(number)
            continue
        try:
            found[name] = parse_subset(name)
        except UserError:
            foreign.append(number)
    if not found:
        raise BadFile(path, "holds no names of subsets", fix="write subject(context), one a line")
    notes = []
    if repeated:
        notes.append(f"{path}: {len(repeated)} names are there twice (first in line {repeated[0]})")
    if foreign:
        notes.append(
            f"{path}: {len(foreign)} lines are no subject(context) and are left out "
            f"(first line {foreign[0]})"
        )
    return SubsetNames(found, tuple(notes))

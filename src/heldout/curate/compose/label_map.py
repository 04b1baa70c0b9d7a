"""Which class a folder of cut-outs stands for: SI-SCORE's names, a user's own map, or itself.

The 112 names are those of SI-SCORE with their ImageNet-1k index; 61 of them are in the published
sets.
"""

from __future__ import annotations

import csv
import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import existing_file
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.siscore import released_names, siscore_names

__all__ = [
    "FOLDERS",
    "SISCORE",
    "FolderClasses",
    "folder_classes",
    "read_map",
    "released_names",
    "siscore_names",
]

SISCORE = "siscore"
FOLDERS = "folders"


@dataclass(frozen=True, eq=False)
class FolderClasses:
    """What folders stand for: a label space, and the class ids of each, the first its class."""

    label_space: LabelSpace
    classes: Mapping[str, tuple[str, ...]]


def folder_classes(
    folders: Sequence[str], *, labels: str = SISCORE, classes: str = "imagenet-1k"
) -> FolderClasses:
    """The classes of folders, all of them known, or a user's error that names the unknown ones.

    ``labels``   ``siscore``: SI-SCORE's names, then ids and names of ``classes``; ``folders``: each
                 folder is a class of its own label space; a TOML, JSON or CSV file that maps
                 names to class ids (or to lists of them, the first of which is the class)
    ``classes``  the label space that ids are of: a built-in name, or a JSON file
    """
    if labels == FOLDERS:
        space = LabelSpace(FOLDERS, tuple(Class(name, (name,)) for name in sorted(folders)))
        return FolderClasses(space, {name: (name,) for name in folders})
    space = LabelSpace.load(classes)
    if labels == SISCORE:
        known = _siscore(space)
    else:
        known = _checked(read_map(Path(labels)), space, labels)
    found: dict[str, tuple[str, ...]] = {}
    unknown: list[str] = []
    for name in sorted(folders):
        ids = known.get(name) or (_of_space(name, space) if labels == SISCORE else None)
        if ids:
            found[name] = ids
        else:
            unknown.append(name)
    if unknown:
        raise LabelError(_unknown(unknown, sorted(known), labels), fix=_fix(labels))
    return FolderClasses(space, found)


def _siscore(space: LabelSpace) -> dict[str, tuple[str, ...]]:
    """SI-SCORE's names as ids of a label space that has ImageNet-1k's classes, else none."""
    ids = LabelSpace.load("imagenet-1k").ids
    return {
        name: (ids[entry.index],)
        for name, entry in siscore_names().items()
        if ids[entry.index] in space
    }


def _of_space(name: str, space: LabelSpace) -> tuple[str, ...] | None:
    """The class that a label space itself knows by this id, WordNet id or unique name."""
    if name in space:
        return (name,)
    try:
        return (space.by_name(name).id,)
    except LabelError:
        return None


def _unknown(unknown: Sequence[str], known: Sequence[str], labels: str) -> str:
    shown = []
    for name in unknown[:5]:
        near = difflib.get_close_matches(name, known, 3)
        shown.append(f"{name!r}" + (f" (near: {', '.join(near)})" if near else ""))
    more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    what = "folder has a name" if len(unknown) == 1 else "folders have names"
    return f"{len(unknown)} {what} that {labels} does not know: {', '.join(shown)}{more}"


def _fix(labels: str) -> str:
    if labels == SISCORE:
        return "rename the folder, give --labels FILE, or --labels folders for a space of its own"
    return f"add it to {labels}"


def read_map(path: Path) -> dict[str, Any]:
    """A user's map of names to class ids: TOML or JSON (name -> id or list), or CSV (name,id)."""
    existing_file(path, "label map")
    ending = path.suffix.lower()
    try:
        if ending == ".csv":
            return _read_csv(path)
        if ending == ".toml":
            value: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        elif ending == ".json":
            value = json.loads(path.read_text(encoding="utf-8"))
        else:
            raise UserError(f"{path} is no label map", fix="give a .toml, .json or .csv file")
    except (ValueError, UnicodeDecodeError) as error:
        raise BadFile(path, f"cannot be read ({error})", fix="mend the file") from None
    if isinstance(value, dict):
        value.pop("schema_version", None)
        if isinstance(value.get("classes"), dict):
            value = value["classes"]
    if not isinstance(value, dict):
        raise BadFile(path, "maps no names to classes", fix='write "name": "class id"')
    return value


def _read_csv(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as handle:
        rows = [row for row in csv.reader(handle) if row]
    if rows and rows[0][0].strip().lower() in ("name", "folder", "class", "label"):
        rows = rows[1:]
    found: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 1):
        if len(row) < 2 or not row[1].strip():
            raise BadFile(path, f"row {number} has no class id", fix="write name,class id")
        found.setdefault(row[0].strip(), []).extend(c.strip() for c in row[1:] if c.strip())
    return found


def _checked(given: Mapping[str, Any], space: LabelSpace, where: str) -> dict[str, tuple[str, ...]]:
    """The map with every value as ids of ``space``; a number is a place in it, as in logits."""
    found: dict[str, tuple[str, ...]] = {}
    for name, value in given.items():
        ids = []
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, bool) or not isinstance(item, int | str):
                raise BadFile(where, f"{name!r} has the class {item!r}", fix="give an id")
            if isinstance(item, str) and item in space:
                ids.append(item)
                continue
            place = int(item) if isinstance(item, int) or item.isdecimal() else -1
            if 0 <= place < len(space):
                ids.append(space.ids[place])
            elif isinstance(item, str) and (named := _of_space(item, space)):
                ids.extend(named)
            else:
                raise BadFile(
                    where,
                    f"{name!r} has the class {item!r}, which {space.name} does not have",
                    fix="give an id, a place or a name of that label space (--classes)",
                )
        if not ids:
            raise BadFile(where, f"{name!r} has no class", fix="give one")
        found[name] = tuple(dict.fromkeys(ids))
    return found

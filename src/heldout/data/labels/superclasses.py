"""Superclasses: named groups of classes of one label space that are alike, and the files of them.

========  ====================================================================================
JSON      ``{"terrier": ["n02093256", …], …}``, or that object under ``superclasses``; or
          ``[["n02093256", …], …]`` without names
CSV       columns ``superclass`` and ``class`` (or ``class_id``), one class a row
========  ====================================================================================

A class is written as its id, its position in the label space, or a name that only it has. A node of
WordNet that is no class stands for all classes under it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import existing_file, read_json, write_json
from heldout.data.labels.label_map import refuse_repeated_keys
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy

SCHEMA_VERSION = 1
_CLASS_COLUMNS = ("class", "class_id")


@dataclass(frozen=True, eq=False)
class Superclasses:
    """Named groups of classes; a class may be in several or in none.

    ``groups``  name to class ids, in the order given
    """

    space: LabelSpace
    groups: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        for name, ids in self.groups.items():
            for class_id in ids:
                if class_id not in self.space:
                    raise LabelError(
                        f"superclass {name!r} has {class_id!r}, which is no class of {self.space.name}",
                        fix="use ids of its classes",
                    )

    def __len__(self) -> int:
        return len(self.groups)

    @cached_property
    def codes(self) -> np.ndarray:
        """int32 (classes, most groups of a class): the groups of each class, then -1."""
        mine: list[list[int]] = [[] for _ in self.space]
        for code, ids in enumerate(self.groups.values()):
            for class_id in dict.fromkeys(ids):
                mine[self.space.index(class_id)].append(code)
        width = max(1, max(len(codes) for codes in mine))
        return np.array([codes + [-1] * (width - len(codes)) for codes in mine], dtype=np.int32)

    def common(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A superclass that holds both of two classes: its place in ``groups``, -1 for none.

        ``a``, ``b`` are class indices (n,). Of several, the first in the file.
        """
        left, right = self.codes[a], self.codes[b]
        same = (left[:, :, None] == right[:, None, :]).any(axis=2) & (left >= 0)
        far = np.iinfo(np.int32).max
        first = np.where(same, left, far).min(axis=1)
        return np.where(first == far, -1, first)

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        groups = {name: list(ids) for name, ids in self.groups.items()}
        write_json(path, {"schema_version": SCHEMA_VERSION, "superclasses": groups})


def read_superclasses(path: Path, *, label_space: LabelSpace) -> Superclasses:
    """The superclasses of a JSON or CSV file."""
    existing_file(path, "superclass file")
    named = _csv_groups(path) if path.suffix.lower() == ".csv" else _json_groups(path)
    if not named:
        raise BadFile(path, "names no superclass", fix="list classes under their superclass")
    groups = {}
    for name, entries in named.items():
        found: dict[str, None] = {}
        for entry in entries:
            found.update(dict.fromkeys(_classes(entry, label_space, path)))
        groups[name] = tuple(found)
    return Superclasses(label_space, groups)


def _json_groups(path: Path) -> dict[str, list[Any]]:
    value = read_json(path)
    try:
        refuse_repeated_keys(path)
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None
    if isinstance(value, dict) and isinstance(value.get("superclasses"), dict | list):
        value = value["superclasses"]
    if isinstance(value, list):
        value = {f"superclass-{number}": entries for number, entries in enumerate(value, 1)}
    if not isinstance(value, dict):
        raise BadFile(path, "is no object or list of superclasses", fix='{"name": ["class", …]}')
    value.pop("schema_version", None)
    groups: dict[str, list[Any]] = {}
    for name, entries in value.items():
        listed = entries if isinstance(entries, list) else [entries]
        if not listed or not all(
            isinstance(e, str | int) and not isinstance(e, bool) for e in listed
        ):
            raise BadFile(
                path, f"superclass {name!r} is no list of classes", fix='{"name": ["class", …]}'
            )
        groups[str(name)] = listed
    return groups


def _csv_groups(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            names = reader.fieldnames or []
            column = next((name for name in _CLASS_COLUMNS if name in names), None)
            if column is None or "superclass" not in names:
                raise BadFile(
                    path,
                    f"has the columns {', '.join(names) or 'none'}",
                    fix="it needs superclass and class",
                )
            groups: dict[str, list[Any]] = {}
            for row in reader:
                name, entry = (row["superclass"] or "").strip(), (row[column] or "").strip()
                if not name or not entry:
                    raise BadFile(
                        path, f"line {reader.line_num} has an empty cell", fix="fill or drop it"
                    )
                groups.setdefault(name, []).append(entry)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadFile(path, f"is not a CSV table ({error})", fix="give UTF-8 text") from None
    return groups


def _classes(entry: str | int, space: LabelSpace, path: Path) -> Iterable[str]:
    text = str(entry)
    if isinstance(entry, int) and text in space and space.index(text) != entry:
        raise BadFile(
            path,
            f"has class {entry}, which is {text!r} by id and {space.ids[entry]!r} by position"
            if entry < len(space)
            else f"has class {entry}, {space.name} has {len(space)}",
            fix=f'write the id as a text: "{text}"',
        )
    if text in space:
        return (text,)
    if text.isascii() and text.isdigit():
        if int(text) >= len(space):
            raise BadFile(
                path, f"has class {text}, {space.name} has {len(space)}", fix="count from 0"
            )
        return (space.ids[int(text)],)
    tree = Hierarchy.wordnet()
    if text in tree:
        return tree.leaves(text, space)
    try:
        return (space.by_name(text).id,)
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None

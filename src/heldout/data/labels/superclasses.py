"""Superclasses: named groups of classes of one label space that are alike, and the files of them.

========  ====================================================================================
JSON      ``{"terrier": ["n02093256", …], …}``, or that object under ``superclasses``; or
          ``[["n02093256", …], …]`` without names
table     CSV, TSV, JSON lines or Parquet with the columns ``superclass`` and ``class`` (or
          ``class_id``), one class per row
========  ====================================================================================

A class is written as its id, its position in the label space, or a name that only it has. A node of
WordNet that is not a class means all classes under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import read_json
from heldout.core.tables import SUFFIXES, read_table_file, require_column
from heldout.data.labels.label_space import LabelSpace, class_finder
from heldout.data.labels.wordnet import Hierarchy

_Entry = str | int
_Entries = _Entry | list[_Entry]


@dataclass(frozen=True, eq=False)
class Superclasses:
    """Named groups of classes; a class may be in several or in none.

    ``groups``  name to class ids, in the order given
    """

    space: LabelSpace
    groups: Mapping[str, tuple[str, ...]]

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
        """A superclass that has both of two classes: its place in ``groups``, -1 for none.

        ``a``, ``b`` are class indices (n,). Of several, the first in the file.
        """
        left, right = self.codes[a], self.codes[b]
        same = (left[:, :, None] == right[:, None, :]).any(axis=2) & (left >= 0)
        far = np.iinfo(np.int32).max
        first = np.where(same, left, far).min(axis=1)
        return np.where(first == far, -1, first)


def read_superclasses(path: Path, *, label_space: LabelSpace) -> Superclasses:
    """The superclasses of a JSON file or of a table."""
    return Superclasses(label_space, read_groups(path, label_space))


def read_groups(
    path: Path, space: LabelSpace, *, group: str = "superclass", member: str = "class"
) -> dict[str, tuple[str, ...]]:
    """Named groups of classes from a JSON file or a table, as the head of the module says.

    ``group``, ``member``  what the two columns of a table are called
    """
    table = path.suffix.lower() in SUFFIXES
    named: Mapping[str, _Entries] = (
        _table_groups(path, group, member) if table else _json_groups(path, group)
    )
    groups = {}
    for name, entries in named.items():
        found: dict[str, None] = {}
        for entry in entries if isinstance(entries, list) else [entries]:
            try:
                found.update(dict.fromkeys(named_classes(entry, space)))
            except LabelError as error:
                raise BadFile(path, error.message, fix=error.fix) from None
        if not found:
            raise BadFile(path, f"{group} {name!r} has no classes", fix="list its classes")
        groups[name] = tuple(found)
    if not groups:
        raise BadFile(path, f"names no {group}", fix=f"list classes under their {group}")
    return groups


def _json_groups(path: Path, group: str) -> dict[str, _Entries]:
    value = read_json(path, unique_keys=True)
    if isinstance(value, dict):
        value.pop("schema_version", None)
        if isinstance(value.get("superclasses"), dict | list):
            value = value["superclasses"]
    if isinstance(value, list):
        value = {f"{group}-{number}": entries for number, entries in enumerate(value, 1)}
    try:
        return msgspec.convert(value, dict[str, _Entries])
    except msgspec.ValidationError as error:
        fix = 'write {"name": ["class", …]}'
        raise BadFile(path, f"is not a {group} file ({error})", fix=fix) from None


def _table_groups(path: Path, group: str, member: str) -> dict[str, list[_Entry]]:
    table = read_table_file(path)
    column = "class_id" if "class_id" in table.column_names else member
    names = require_column(table, group, path, f"the {group}").to_pylist()
    entries = require_column(table, column, path, "the class").to_pylist()
    groups: dict[str, list[_Entry]] = {}
    for row, (name, entry) in enumerate(zip(names, entries, strict=True), 1):
        if name is None or entry is None:
            raise BadFile(path, f"row {row} has an empty cell", fix="fill or drop it")
        groups.setdefault(str(name).strip(), []).append(entry)
    return groups


def named_classes(entry: str | int, space: LabelSpace) -> Iterable[str]:
    """The ids of the class, or of the classes under the node of WordNet, that a file names."""
    text = str(entry).strip()
    if text in space:
        if isinstance(entry, int) and space.index(text) != entry:
            raise LabelError(
                f"{entry} is the class {text!r} by id and another by position",
                fix=f'write the id as a text: "{text}"',
            )
        return (text,)
    if text.isascii() and text.isdigit():
        return (class_finder(space, "index")(text).id,)
    tree = Hierarchy.wordnet()
    return tree.leaves(text, space) if text in tree else (space.by_name(text).id,)

"""Collapse tables: classes that also count as right where another class does.

Some pairs of classes are one thing under two names (sunglass, sunglasses), or one contains the other
(a malamute is a husky). A table lists for a class the further ones that an image of it may be called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import existing_file, read_json
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.score.truth import LabelLists, Truth

BUILT_IN = ("imagenet-1k",)

# Positions in ImageNet-1k: 21 classes. M. Peychev et al., "Automated classification of model errors on
# ImageNet", NeurIPS 2023.
_CONTAINED = {249: 248, 250: 248, 385: 101, 386: 101, 504: 968, 482: 848, 435: 876}
_SYNONYMS = ((836, 837), (638, 639), (657, 744), (620, 681), (664, 782), (356, 357, 358, 359))


@dataclass(frozen=True)
class Collapse:
    """For some class ids, the further ids that count as right where the class does.

    One step only, and directed: that a coffee mug may be called a cup does not make every cup a mug.
    """

    name: str
    also: Mapping[str, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.also)

    def pairs(self) -> set[tuple[str, str]]:
        """(class, what it may also be called), each once."""
        return {(key, other) for key, others in self.also.items() for other in others}

    def widen(self, truth: Truth) -> Truth:
        """A truth whose correct and unclear lists also hold what their labels may be called."""
        space = truth.space
        entries = [[c] for c in range(len(space))]
        for key, others in self.also.items():
            if key in space:
                entries[space.index(key)] += [space.index(o) for o in others if o in space]
        starts = np.concatenate([[0], np.cumsum([len(entry) for entry in entries])])
        values = np.array([value for entry in entries for value in entry], dtype=np.int64)

        def widened(lists: LabelLists) -> LabelLists:
            return lists.expanded(starts, values, len(space))

        return replace(truth, correct=widened(truth.correct), unclear=widened(truth.unclear))


def load_collapse(name_or_path: str | Path, *, label_space: LabelSpace) -> Collapse:
    """A built-in table by name, or a JSON or TOML file; its classes are checked.

    A file is an object ``{class: class or [classes]}``, or has that object under ``also``, and may
    give ``synonyms``: lists of classes that all count for each other. Classes are ids, positions in
    the label space, or names that only one class has.
    """
    text = str(name_or_path)
    if text in BUILT_IN:
        return _built_in(text, label_space)
    path = Path(name_or_path)
    if path.suffix not in (".json", ".toml"):
        raise UserError(
            f"no collapse table {text!r}",
            fix=f"use {', '.join(BUILT_IN)}, or a .json or .toml file",
        )
    value = _document(existing_file(path, "collapse table"))
    also = value.get("also", {} if "synonyms" in value else value)
    synonyms = value.get("synonyms", [])
    if not isinstance(also, dict) or not isinstance(synonyms, list):
        raise BadFile(path, "is no table of classes", fix='write {"also": {"mug": ["cup"]}}')
    found: dict[str, dict[str, None]] = {}

    def add(key: object, others: object) -> None:
        mine = _class_id(key, label_space, path)
        for other in others if isinstance(others, list) else [others]:
            theirs = _class_id(other, label_space, path)
            if theirs != mine:
                found.setdefault(mine, {})[theirs] = None

    for key, others in also.items():
        if key != "schema_version":
            add(key, others)
    for group in synonyms:
        if not isinstance(group, list) or len(group) < 2:
            raise BadFile(path, f"has the synonyms {group!r}", fix="list at least two classes")
        for key in group:
            add(key, group)
    if not found:
        raise BadFile(path, "names no classes", fix='write {"also": {"mug": ["cup"]}}')
    return Collapse(path.stem, {key: tuple(others) for key, others in sorted(found.items())})


def _built_in(name: str, label_space: LabelSpace) -> Collapse:
    ids = LabelSpace.load("imagenet-1k").ids
    also: dict[str, tuple[str, ...]] = {
        ids[key]: (ids[other],) for key, other in _CONTAINED.items()
    }
    for group in _SYNONYMS:
        for key in group:
            also[ids[key]] = tuple(ids[other] for other in group if other != key)
    # A set of some of the classes keeps what is about them.
    known = {
        key: others
        for key, given in sorted(also.items())
        if key in label_space and (others := tuple(o for o in given if o in label_space))
    }
    if not known:
        raise LabelError(
            f"collapse table {name} is about no class of {label_space.name}", fix="give a file"
        )
    return Collapse(name, known)


def _document(path: Path) -> dict[str, Any]:
    if path.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadFile(path, f"is not TOML ({error})", fix="mend it") from None
    value = read_json(path)
    if not isinstance(value, dict):
        raise BadFile(path, "is not a JSON object", fix='write {"also": {"mug": ["cup"]}}')
    return value


def _class_id(value: object, space: LabelSpace, path: Path) -> str:
    """A class by id, by position (a number, or digits as text), or by a name that is its own."""
    text = str(value)
    if isinstance(value, str) and value in space:
        return value
    if not isinstance(value, bool) and text.isascii() and text.isdigit() and int(text) < len(space):
        return space.ids[int(text)]
    try:
        return space.by_name(text).id
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None

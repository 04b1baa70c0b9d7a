"""A class as files name it: by id, by WordNet id, by index, or by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from heldout.core.errors import BadFile, LabelError
from heldout.data.labels.label_space import Class, LabelSpace, folded, listed

LabelKind = Literal["id", "wnid", "index", "name"]
LABEL_KINDS: tuple[LabelKind, ...] = ("id", "wnid", "index", "name")
ClassFinder = Callable[[object], Class]


def class_finder(label_space: LabelSpace, label_kind: LabelKind) -> ClassFinder:
    """A function from a value of a file to the class it names; it raises :class:`LabelError`.

    ``id``     the class's id, exactly
    ``wnid``   its WordNet id
    ``index``  its position, a whole number or its digits, never sorted as text
    ``name``   its name or a synonym, without case; or all its names joined by ``, ``, as
               published lists write them. A name that fits several classes is refused.
    """
    if label_kind == "id":
        return lambda value: label_space.get(str(value))
    if label_kind == "index":
        return lambda value: _by_index(value, label_space)
    if label_kind == "wnid":
        nouns: dict[str, list[Class]] = {}
        for item in label_space:
            if item.wnid:
                nouns.setdefault(item.wnid, []).append(item)
        return lambda value: _by_wnid(str(value), nouns, label_space)
    if label_kind == "name":
        joined: dict[str, list[Class]] = {}
        for item in label_space:
            if len(item.names) > 1:
                joined.setdefault(folded(", ".join(item.names)), []).append(item)
        return lambda value: _by_name(str(value), joined, label_space)
    raise LabelError(
        f"{label_kind!r} is no way to name a class", fix=f"use {', '.join(LABEL_KINDS)}"
    )


def _by_wnid(text: str, nouns: dict[str, list[Class]], label_space: LabelSpace) -> Class:
    found = nouns.get(text, [])
    if len(found) > 1:
        raise LabelError(
            f"WordNet id {text!r} fits {len(found)} classes of {label_space.name}: {listed(found)}",
            fix="use the id",
        )
    if not found:
        raise LabelError(
            f"{label_space.name} has no class with WordNet id {text!r}",
            fix="WordNet ids are n and eight digits; name the right label space",
        )
    return found[0]


def _by_name(text: str, joined: dict[str, list[Class]], label_space: LabelSpace) -> Class:
    found = joined.get(folded(text), [])
    return found[0] if len(found) == 1 else label_space.by_name(text)


def _by_index(value: object, label_space: LabelSpace) -> Class:
    text = "" if isinstance(value, bool) or not isinstance(value, int | str) else str(value).strip()
    if not (text.isascii() and text.isdigit()):
        raise LabelError(f"{value!r} is not a class index", fix="give a whole number from 0")
    index = int(text)
    if index >= len(label_space):
        hint = "indices may start at 1: subtract 1, or " if index == len(label_space) else ""
        raise LabelError(
            f"class index {index} is outside 0..{len(label_space) - 1} of {label_space.name}",
            fix=f"{hint}name the right label space",
        )
    return label_space.classes[index]


def class_ids_of(
    values: Sequence[object],
    *,
    label_space: LabelSpace,
    label_kind: LabelKind,
    path: Path,
    rows: Sequence[int] | None = None,
) -> list[str]:
    """The class id of every value of a file's column; the first that names no class is refused.

    ``rows``  the row of each value in the file, from 0, where that is not its place in ``values``
    """
    find = class_finder(label_space, label_kind)
    known: dict[tuple[type, object], str] = {}
    ids: list[str] = []
    for place, value in enumerate(values):
        row = (place if rows is None else rows[place]) + 1
        if value is None:
            raise BadFile(path, f"row {row} has no class", fix="give every row a class")
        if isinstance(value, list | dict):
            raise BadFile(
                path,
                f"row {row} has {str(value)[:40]} for a class",
                fix="give one class, and others that are right in a list correct",
            )
        key = (type(value), value)  # True equals 1 as a key, and is no index
        if key not in known:
            try:
                known[key] = find(value).id
            except LabelError as error:
                raise BadFile(path, f"row {row}: {error.message}", fix=error.fix) from None
        ids.append(known[key])
    return ids

"""Classes and label spaces: what a classifier's output positions, or a test set's labels, mean."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import canonical_json, read_versioned_json, sha256_text, write_json
from heldout.core.workspace import check_slug

SCHEMA_VERSION = 1
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Class:
    """One category.

    ``id``       what files and records call it; unique in its label space
    ``names``    what people call it, the usual name first; *not* unique in a label space
    ``wnid``     its noun in WordNet 3.0 (``n`` and eight digits), or None where none is known
    ``gloss``    what it means, in a sentence
    ``parents``  ids of the nodes directly above it in the hierarchy
    """

    id: str
    names: tuple[str, ...] = ()
    wnid: str | None = None
    gloss: str = ""
    parents: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The usual name, or the id of a class without names."""
        return self.names[0] if self.names else self.id

    @property
    def node(self) -> str:
        """Where the class stands in a hierarchy: its WordNet id, or its own id without one."""
        return self.wnid or self.id

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, without the fields that are empty."""
        fields: dict[str, Any] = {
            "id": self.id,
            "names": list(self.names),
            "wnid": self.wnid,
            "gloss": self.gloss,
            "parents": list(self.parents),
        }
        return {key: value for key, value in fields.items() if value}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Class:
        """The class that :meth:`to_dict` wrote; a field of the wrong type is a user's error."""
        unknown = sorted(set(value) - {"id", "names", "wnid", "gloss", "parents"})
        if unknown:
            raise LabelError(f"a class has the unknown field {unknown[0]!r}", fix="remove it")
        if not isinstance(value.get("id"), str):
            raise LabelError("a class has no id", fix='give each class "id": "some text"')
        class_id: str = value["id"]
        for key in ("names", "parents"):
            items = value.get(key, [])
            if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
                raise LabelError(
                    f"{key} of class {class_id!r} is not a list of texts", fix="mend it"
                )
        for key in ("wnid", "gloss"):
            if not isinstance(value.get(key) or "", str):
                raise LabelError(f"{key} of class {class_id!r} is not a text", fix="mend it")
        return cls(
            class_id,
            tuple(value.get("names", [])),
            value.get("wnid") or None,
            value.get("gloss") or "",
            tuple(value.get("parents", [])),
        )


def folded(name: str) -> str:
    """A name as names are compared: without case, underscores as spaces, spaces single.

    Letters with accents are one character, however they were typed (Unicode's form NFC).

    >>> folded("Great_White  shark") == folded("great white shark")
    True
    """
    return unicodedata.normalize("NFC", " ".join(name.replace("_", " ").split()).casefold())


def checked_name(name: str, what: str) -> str:
    """``name`` if it may name a label space or map, else a :class:`LabelError`."""
    try:
        return check_slug(name, what)
    except UserError as error:
        raise LabelError(error.message, fix=error.fix) from None


def listed(classes: Sequence[Class]) -> str:
    """A few classes for a message: ``n02012849 (crane), n03126707 (crane)``."""
    shown = ", ".join(f"{c.id} ({c.name})" for c in classes[:_SHOWN])
    return shown + (f" and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else "")


@dataclass(frozen=True, eq=False)
class LabelSpace:
    """An ordered list of classes; a class's position is its index in logits and top-k.

    Ids are unique, names are not: join by id. Two label spaces are equal if name and classes are;
    predictions may be exchanged between label spaces of equal :attr:`fingerprint`.
    """

    name: str
    classes: tuple[Class, ...]

    def __post_init__(self) -> None:
        checked_name(self.name, "a label space")
        if not self.classes:
            raise LabelError(f"label space {self.name} has no classes", fix="give it at least one")
        seen: set[str] = set()
        for item in self.classes:
            if not item.id or item.id != item.id.strip() or not item.id.isprintable():
                raise LabelError(
                    f"label space {self.name}: {item.id!r} is no class id",
                    fix="use printable text without spaces around it",
                )
            if item.id in seen:
                raise LabelError(
                    f"label space {self.name}: class {item.id!r} is there twice",
                    fix="keep each id once",
                )
            seen.add(item.id)
            if not all(name.strip("_ ") for name in item.names):
                raise LabelError(
                    f"label space {self.name}: class {item.id!r} has an empty name",
                    fix="remove that name",
                )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelSpace):
            return NotImplemented
        return self is other or (self.name == other.name and self.classes == other.classes)

    def __hash__(self) -> int:
        return hash((self.name, self.fingerprint))

    def __len__(self) -> int:
        return len(self.classes)

    def __iter__(self) -> Iterator[Class]:
        return iter(self.classes)

    def __contains__(self, class_id: object) -> bool:
        return class_id in self._positions

    def __repr__(self) -> str:
        return f"LabelSpace({self.name!r}, {len(self)} classes)"

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids in order."""
        return tuple(item.id for item in self.classes)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the ordered ids: which class stands at which index, whatever the names."""
        return sha256_text(canonical_json(list(self.ids)))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {class_id: position for position, class_id in enumerate(self.ids)}

    @cached_property
    def _by_folded_name(self) -> dict[str, tuple[Class, ...]]:
        found: dict[str, list[Class]] = {}
        for item in self.classes:
            for name in dict.fromkeys(folded(name) for name in item.names):
                found.setdefault(name, []).append(item)
        return {name: tuple(items) for name, items in found.items()}

    def index(self, class_id: str) -> int:
        """The position of a class, by id only."""
        try:
            return self._positions[class_id]
        except (KeyError, TypeError):
            raise LabelError(
                f"{class_id!r} is not a class of {self.name}", fix=self._hint(str(class_id))
            ) from None

    def indices(self, class_ids: Iterable[str]) -> NDArray[np.int64]:
        """The positions of many classes, shape (n,)."""
        return np.fromiter((self.index(class_id) for class_id in class_ids), dtype=np.int64)

    def get(self, class_id: str) -> Class:
        """The class of an id."""
        return self.classes[self.index(class_id)]

    def _hint(self, text: str) -> str:
        named = self._by_folded_name.get(folded(text), ())
        if named:
            return f"that is a name; the id is {listed(named)}"
        near = self.find(text) if folded(text) else ()
        return f"did you mean {listed(near)}" if near else f"ids look like {self.classes[0].id}"

    def by_name(self, name: str) -> Class:
        """The one class with this name or synonym, compared without case.

        Names are not unique: ImageNet-1k has two ``crane`` and two ``maillot``, and ``Cardigan``
        is a dog while ``cardigan`` is a sweater. A name that fits several classes is refused.
        """
        found = self._by_folded_name.get(folded(name), ())
        if len(found) == 1:
            return found[0]
        if found:
            raise LabelError(
                f"the name {name!r} fits {len(found)} classes of {self.name}: {listed(found)}",
                fix="use the id",
            )
        raise LabelError(f"{self.name} has no class named {name!r}", fix=self._hint(name))

    def ambiguous_names(self) -> dict[str, tuple[str, ...]]:
        """Every name (as compared) that several classes share, with their ids, sorted by name."""
        return {
            name: tuple(item.id for item in items)
            for name, items in sorted(self._by_folded_name.items())
            if len(items) > 1
        }

    def find(self, text: str) -> tuple[Class, ...]:
        """Classes whose id, names or gloss hold ``text``, without case.

        Best first: the whole id or a whole name, then whole words of a name, then part of an id
        or name, then part of the gloss; in the order of the label space within each.
        """
        wanted = folded(text)
        if not wanted:
            raise LabelError("nothing to search for", fix="give some text")
        ranks: tuple[list[Class], ...] = ([], [], [], [])
        for item in self.classes:
            titles = [folded(item.id), *map(folded, item.names)]
            if wanted in titles:
                ranks[0].append(item)
            elif any(f" {wanted} " in f" {title} " for title in titles):
                ranks[1].append(item)
            elif any(wanted in title for title in titles):
                ranks[2].append(item)
            elif wanted in folded(item.gloss):
                ranks[3].append(item)
        return tuple(item for rank in ranks for item in rank)

    def subset(self, name: str, class_ids: Iterable[str]) -> LabelSpace:
        """A label space of some of these classes, in the order given."""
        return LabelSpace(name, tuple(self.get(class_id) for class_id in class_ids))

    @classmethod
    def from_ids(cls, name: str, ids: Iterable[str]) -> LabelSpace:
        """A label space of bare ids, without names or meaning."""
        return cls(name, tuple(Class(class_id) for class_id in ids))

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object with ``schema_version`` and ``fingerprint``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "label_space",
            "name": self.name,
            "fingerprint": self.fingerprint,
            "classes": [item.to_dict() for item in self.classes],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> LabelSpace:
        """The label space that :meth:`to_dict` wrote; its fingerprint is checked if present."""
        name, classes = value.get("name"), value.get("classes")
        if not isinstance(name, str) or not isinstance(classes, list):
            raise LabelError("a label space needs a name and a list of classes", fix="add them")
        if not all(isinstance(item, dict) for item in classes):
            raise LabelError(f"label space {name}: a class is not an object", fix="mend it")
        space = cls(name, tuple(Class.from_dict(item) for item in classes))
        if value.get("fingerprint", space.fingerprint) != space.fingerprint:
            raise LabelError(
                f"label space {name}: ids or their order do not fit its fingerprint",
                fix="restore the file, or remove the fingerprint if the change is meant",
            )
        return space

    def write(self, path: str | Path) -> None:
        """Write a JSON file that :meth:`read` reads."""
        write_json(Path(path), self.to_dict())

    @classmethod
    def read(cls, path: str | Path) -> LabelSpace:
        """Read a JSON file of a label space."""
        value = read_versioned_json(Path(path), version=SCHEMA_VERSION)
        try:
            return cls.from_dict(value)
        except LabelError as error:
            raise BadFile(path, error.message, fix=error.fix) from None

    @classmethod
    def load(cls, name_or_path: str | Path) -> LabelSpace:
        """A built-in label space by name, or a JSON file by path."""
        from heldout.data.labels.wordnet import BUILT_IN, load_built_in

        text = os.fspath(name_or_path)
        if text in BUILT_IN:
            return load_built_in(text)
        if isinstance(name_or_path, Path) or text.endswith(".json") or Path(text).is_file():
            return cls.read(text)
        raise LabelError(
            f"no label space named {text!r}",
            fix=f"use a JSON file or one of {', '.join(BUILT_IN)}",
        )


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

"""Classes and label spaces: what a classifier's output positions, or a test set's labels, mean."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from heldout.core import schema
from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.core.workspace import check_slug

_SHOWN = 5
_WEB = re.compile(r'https?://[^\s"<>]+\Z')
LabelKind = Literal["id", "wnid", "index", "name"]
LABEL_KINDS: tuple[LabelKind, ...] = get_args(LabelKind)
ClassFinder = Callable[[object], "Class"]


class Class(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One category.

    ``id``       what files and records call it; unique in its label space
    ``names``    what people call it, the usual name first; *not* unique in a label space
    ``wnid``     its noun in WordNet 3.0 (``n`` and eight digits), or None where none is known
    ``gloss``    what it means, in a sentence
    ``parents``  ids of the nodes directly above it in the hierarchy

    What people who search for images of it, or label them, are given beside the names:

    ``search_terms``  what is searched for, instead of the names
    ``links``         pages about it, on the web
    ``examples``      addresses of images that show it, on the web
    ``similar``       ids of classes that it is easily taken for, the most similar first
    """

    id: str
    names: tuple[str, ...] = ()
    wnid: str | None = None
    gloss: str = ""
    parents: tuple[str, ...] = ()
    search_terms: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The usual name, or the id of a class without names."""
        return self.names[0] if self.names else self.id

    @property
    def node(self) -> str:
        """The node of the class in a hierarchy: its WordNet id, or its own id without one."""
        return self.wnid or self.id

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, without the fields that are empty."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class LabelSpaceFile(schema.Document, frozen=True, kw_only=True):
    """The JSON file of a label space."""

    schema_version: int = 1
    kind: Literal["label_space"] = "label_space"
    name: str
    fingerprint: str | None = None
    classes: list[Class]

    def label_space(self) -> LabelSpace:
        """The label space; its ids are checked against the fingerprint where there is one."""
        space = LabelSpace(self.name, tuple(self.classes))
        if self.fingerprint not in (None, space.fingerprint):
            raise LabelError(
                f"label space {self.name}: the ids or their order do not fit its fingerprint",
                fix="restore the file, or remove the fingerprint if the change is intended",
            )
        return space


def folded(name: str) -> str:
    """A name as names are compared: without case, underscores as spaces, spaces single.

    Letters with accents are one character, however they were typed (Unicode's form NFC).

    >>> folded("Great_White  shark") == folded("great white shark")
    True
    """
    return unicodedata.normalize("NFC", " ".join(name.replace("_", " ").split()).casefold())


def listed(classes: Sequence[Class]) -> str:
    """A few classes for a message: ``n02012849 (crane), n03126707 (crane)``."""
    shown = ", ".join(f"{c.id} ({c.name})" for c in classes[:_SHOWN])
    return shown + (f" and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else "")


@dataclass(frozen=True)
class LabelSpace:
    """An ordered list of classes; a class's position is its index in logits and top-k.

    Ids are unique, names are not: join by id. Two label spaces are equal if name and classes are;
    predictions may be exchanged between label spaces of equal :attr:`fingerprint`.
    """

    name: str
    classes: tuple[Class, ...]

    def __post_init__(self) -> None:
        check_slug(self.name, "a label space")
        if not self.classes:
            raise LabelError(f"label space {self.name} has no classes", fix="give it at least one")
        for place, item in enumerate(self.classes):
            if not item.id or item.id != item.id.strip() or not item.id.isprintable():
                problem, fix = "is not a class id", "use printable text without spaces around it"
            elif self._positions[item.id] != place:
                problem, fix = "is there twice", "keep each id once"
            elif not all(name.strip("_ ") for name in item.names):
                problem, fix = "has an empty name", "remove that name"
            elif not all(map(str.strip, item.search_terms)):
                problem, fix = "has an empty search term", "remove it"
            elif unsafe := [a for a in (*item.links, *item.examples) if not _WEB.match(a)]:
                # They are put into pages that workers see: javascript: is an address too.
                problem, fix = f"has the link {unsafe[0]!r}", "write https://… or http://…"
            elif item.id in item.similar:
                problem, fix = "is similar to itself", "name other classes"
            else:
                continue
            raise LabelError(f"label space {self.name}: class {item.id!r} {problem}", fix=fix)

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
        """SHA-256 of the ordered ids: which class is at which index, whatever the names."""
        return sha256_text(canonical_json(list(self.ids)))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {class_id: position for position, class_id in enumerate(self.ids)}

    @cached_property
    def _by_folded_name(self) -> dict[str, list[Class]]:
        return _grouped((folded(name), item) for item in self.classes for name in item.names)

    def index(self, class_id: str) -> int:
        """The position of a class, by id only."""
        try:
            return self._positions[class_id]
        except (KeyError, TypeError):
            raise LabelError(
                f"{class_id!r:.80} is not a class of {self.name}", fix=self._hint(str(class_id))
            ) from None

    def indices(self, class_ids: Iterable[str]) -> NDArray[np.int64]:
        """The positions of many classes, shape (n,)."""
        return np.fromiter((self.index(class_id) for class_id in class_ids), dtype=np.int64)

    def get(self, class_id: str) -> Class:
        """The class of an id."""
        return self.classes[self.index(class_id)]

    def _hint(self, text: str) -> str:
        if named := self._by_folded_name.get(folded(text)):
            return f"that is a name; the id is {listed(named)}"
        near = self.find(text) if folded(text) else ()
        return f"did you mean {listed(near)}" if near else f"ids look like {self.classes[0].id}"

    def by_name(self, name: str) -> Class:
        """The one class with this name or synonym, compared without case.

        Names are not unique: ImageNet-1k has two ``crane`` and two ``maillot``, and ``Cardigan``
        is a dog while ``cardigan`` is a sweater. A name that fits several classes is refused.
        """
        found = self._by_folded_name.get(folded(name), [])
        if len(found) == 1:
            return found[0]
        if found:
            raise LabelError(
                f"the name {name!r} fits {len(found)} classes of {self.name}: {listed(found)}",
                fix="use the id",
            )
        raise LabelError(f"{self.name} has no class named {name!r:.80}", fix=self._hint(name))

    def find(self, text: str) -> tuple[Class, ...]:
        """Classes whose id, names or gloss contain ``text``, without case.

        Best first: the whole id or a whole name, then whole words of a name, then part of an id
        or name, then part of the gloss; in the order of the label space within each.
        """
        wanted = folded(text)
        if not wanted:
            raise LabelError("nothing to search for", fix="give some text")
        found: list[tuple[int, Class]] = []
        for item in self.classes:
            titles = [folded(item.id), *map(folded, item.names)]
            tests = (
                wanted in titles,
                any(f" {wanted} " in f" {title} " for title in titles),
                any(wanted in title for title in titles),
                wanted in folded(item.gloss),
            )
            if any(tests):
                found.append((tests.index(True), item))
        return tuple(item for _, item in sorted(found, key=lambda pair: pair[0]))

    def subset(self, name: str, class_ids: Iterable[str]) -> LabelSpace:
        """A label space of some of these classes, in the order given."""
        return LabelSpace(name, tuple(self.get(class_id) for class_id in class_ids))

    @classmethod
    def from_ids(cls, name: str, ids: Iterable[str]) -> LabelSpace:
        """A label space of bare ids, without names or meaning."""
        return cls(name, tuple(Class(class_id) for class_id in ids))

    def file(self) -> LabelSpaceFile:
        """What :meth:`write` writes."""
        return LabelSpaceFile(
            name=self.name, fingerprint=self.fingerprint, classes=list(self.classes)
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object with ``schema_version`` and ``fingerprint``."""
        plain: dict[str, Any] = msgspec.to_builtins(self.file())
        return plain

    def write(self, path: str | Path) -> None:
        """Write a JSON file that :meth:`read` reads."""
        schema.write(Path(path), self.file())

    @classmethod
    def read(cls, path: str | Path) -> LabelSpace:
        """Read a JSON file of a label space."""
        file = schema.read(Path(path), LabelSpaceFile, fix="correct the file")
        try:
            return file.label_space()
        except UserError as error:
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


def _grouped(pairs: Iterable[tuple[str, Class]]) -> dict[str, list[Class]]:
    """Classes by a text; a class that has the same text twice counts once."""
    found: dict[str, list[Class]] = {}
    for text, item in pairs:
        group = found.setdefault(text, [])
        if not group or group[-1] is not item:
            group.append(item)
    return found


def class_finder(label_space: LabelSpace, label_kind: LabelKind) -> ClassFinder:
    """A function from a value of a file to the class it names; it raises :class:`LabelError`.

    ``id``     the class's id, exactly
    ``wnid``   its WordNet id
    ``index``  its position, a whole number or its digits, never sorted as text
    ``name``   its name or a synonym, without case; or all its names joined by ``, ``, as
               published lists write them. A name that fits several classes is refused.
    """
    space = label_space
    if label_kind == "id":
        return lambda value: space.get(str(value))
    if label_kind == "index":
        return lambda value: space.classes[_index(value, space)]
    if label_kind == "wnid":
        nouns = _grouped((item.wnid, item) for item in space if item.wnid)

        def by_wnid(value: object) -> Class:
            found = nouns.get(str(value), [])
            if len(found) == 1:
                return found[0]
            raise LabelError(
                f"{len(found) or 'no'} classes of {space.name} have the WordNet id {str(value)!r}"
                + (f": {listed(found)}" if found else ""),
                fix="WordNet ids are n and eight digits; name the right label space, or use ids",
            )

        return by_wnid
    if label_kind == "name":
        several = (item for item in space if len(item.names) > 1)
        joined = _grouped((folded(", ".join(item.names)), item) for item in several)

        def by_name(value: object) -> Class:
            found = joined.get(folded(str(value)), [])
            return found[0] if len(found) == 1 else space.by_name(str(value))

        return by_name
    raise LabelError(
        f"{label_kind!r} is not a way to name a class", fix=f"use {', '.join(LABEL_KINDS)}"
    )


def _index(value: object, space: LabelSpace) -> int:
    text = "" if isinstance(value, bool) or not isinstance(value, int | str) else str(value).strip()
    if not (text.isascii() and text.isdigit()):
        raise LabelError(f"{value!r} is not a class index", fix="give a whole number ≥ 0")
    index = int(text)
    if index >= len(space):
        hint = "indices may start at 1: subtract 1, or " if index == len(space) else ""
        raise LabelError(
            f"class index {index} is outside 0..{len(space) - 1} of {space.name}",
            fix=f"{hint}name the right label space",
        )
    return index


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
        if value is None or isinstance(value, list | dict):
            raise BadFile(
                path,
                f"row {row} has {'no class' if value is None else f'{str(value)[:40]} for a class'}",
                fix="give every row one class, and others that are right in a list correct",
            )
        key = (type(value), value)  # True equals 1 as a key, and is not an index
        if key not in known:
            try:
                known[key] = find(value).id
            except LabelError as error:
                raise BadFile(path, f"row {row}: {error.message}", fix=error.fix) from None
        ids.append(known[key])
    return ids

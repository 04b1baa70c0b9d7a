"""Which class each folder of images means, under one way of naming for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from heldout.core.errors import BadFile, LabelError
from heldout.data.labels.label_space import ClassFinder, LabelKind, LabelSpace, class_finder

_WORDS: dict[LabelKind, str] = {
    "wnid": "WordNet id",
    "id": "class id",
    "name": "class name",
    "index": "class index",
}


@dataclass(frozen=True)
class FolderNaming:
    """How folders are named: ``classes`` maps each folder's path to its class id.

    ``others``  maps it to the parts of the path that do not name the class, outermost first
    """

    kind: LabelKind
    classes: dict[str, str]
    note: str
    others: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Reading:
    """All folders read one way: the class of each, or why it has none.

    ``named``  how many folders have a part that names a class, or several parts that do
    """

    kind: LabelKind
    classes: dict[str, str]
    problems: dict[str, str]
    named: int
    others: dict[str, tuple[str, ...]]


def read_folder_names(
    folders: Sequence[str],
    *,
    label_space: LabelSpace,
    names: Literal["auto"] | LabelKind,
    path: Path,
) -> FolderNaming:
    """The class of each folder; its path is POSIX, and exactly one part of it must name a class.

    With ``names="auto"`` the way of naming that fits all folders is taken: WordNet ids, class
    ids, names, then indices. Two ways that both fit and disagree are refused, and so are folders
    that are named in different ways.
    """
    distinct = sorted(set(folders))
    if names != "auto":
        reading = _read(distinct, label_space, names)
        if reading.problems:
            raise _refusal(reading, label_space, path)
        told = f"class folders are named by {_WORDS[names]}, as told"
        return FolderNaming(names, reading.classes, told, reading.others)
    readings = [_read(distinct, label_space, kind) for kind in _WORDS]
    fitting = [reading for reading in readings if not reading.problems]
    if not fitting:
        raise _mixed(readings, distinct, path) or _refusal(_best(readings), label_space, path)
    chosen = fitting[0]
    for other in fitting[1:]:
        for folder in distinct:
            if chosen.classes[folder] != other.classes[folder]:
                raise BadFile(
                    path,
                    f"folder {folder!r} is class {chosen.classes[folder]} by "
                    f"{_WORDS[chosen.kind]} and {other.classes[folder]} by {_WORDS[other.kind]}",
                    fix=f"say which: names {chosen.kind!r} or {other.kind!r}",
                )
    note = (
        f"class folders are named by {_WORDS[chosen.kind]}, found by looking at all {len(distinct)}"
    )
    return FolderNaming(chosen.kind, chosen.classes, note, chosen.others)


def _read(folders: Sequence[str], label_space: LabelSpace, kind: LabelKind) -> _Reading:
    find = class_finder(label_space, kind)
    parts: dict[str, str | LabelError] = {}
    classes: dict[str, str] = {}
    problems: dict[str, str] = {}
    others: dict[str, tuple[str, ...]] = {}
    doubtful = 0
    for folder in folders:
        here = folder.split("/")
        for part in here:
            if part not in parts:
                parts[part] = _class_or_error(find, part)
        named = [part for part in here if isinstance(parts[part], str)]
        if len(named) == 1:
            classes[folder] = str(parts[named[0]])
            others[folder] = tuple(part for part in here if part != named[0])
        elif named:
            doubtful += 1
            problems[folder] = (
                f"folder {folder!r} has two parts that name a class: {' and '.join(named)}"
            )
        else:
            # The innermost part is what most likely was meant to name the class.
            problems[folder] = f"folder {folder!r}: {_message(parts[here[-1]])}"
    return _Reading(kind, classes, problems, len(classes) + doubtful, others)


def _class_or_error(find: ClassFinder, part: str) -> str | LabelError:
    found: list[str | LabelError] = []
    # As it is, and as an export escapes what no folder may be called, such as a/b.
    for text in dict.fromkeys((part, unquote(part))):
        try:
            found.append(find(text).id)
        except LabelError as error:
            found.append(error)
    named = sorted({item for item in found if isinstance(item, str)})
    if len(named) > 1:
        both = " and ".join(map(repr, named))
        return LabelError(f"folder {part!r} fits the classes {both}", fix="rename it, or the class")
    return named[0] if named else found[0]


def _message(found: str | LabelError) -> str:
    return f"{found.message} ({found.fix})" if isinstance(found, LabelError) else found


def _best(readings: Sequence[_Reading]) -> _Reading:
    return max(readings, key=lambda reading: (reading.named, reading.kind == "name"))


def _refusal(reading: _Reading, label_space: LabelSpace, path: Path) -> BadFile:
    folder = next(iter(reading.problems))
    others = len(reading.problems) - 1
    more = f", and {others} more folders" if others else ""
    return BadFile(
        path,
        f"{reading.problems[folder]}{more}, read by {_WORDS[reading.kind]} in {label_space.name}",
        fix="rename or move such folders, say how they are named, or name the right label space",
    )


def _mixed(readings: Sequence[_Reading], folders: Sequence[str], path: Path) -> BadFile | None:
    """The error for folders that each name a class, but not in one way; else None."""
    ways: dict[str, LabelKind] = {}
    for folder in folders:
        kinds = [reading.kind for reading in readings if folder in reading.classes]
        if not kinds:
            return None
        ways[folder] = kinds[0]
    first = folders[0]
    for folder in folders:
        if ways[folder] != ways[first]:
            return BadFile(
                path,
                f"mixes ways to name class folders: {first!r} is a {_WORDS[ways[first]]}, "
                f"{folder!r} a {_WORDS[ways[folder]]}",
                fix="name all of them in one way",
            )
    return None

"""The photographs of a source: found by name, with the class and the credit of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TypedDict

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.cutouts.cutout import (
    Outline,
    Problem,
    Subject,
    Subjects,
    class_folder,
    sorted_subjects,
)
from heldout.curate.cutouts.masks import MaskFile, MaskIndex, OwnAlpha, object_numbers
from heldout.data.images.sources import FolderSource

_LICENCE = re.compile(r"creativecommons\.org/licenses/(by(?:-nc)?(?:-sa|-nd)?)/([0-9.]+)")
_PUBLIC_DOMAIN = re.compile(r"creativecommons\.org/publicdomain/zero/([0-9.]+)")

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "file": ("file", "filename", "file_name", "photo", "image", "image_id", "imageid", "path"),
    "class": ("class", "class_name", "label", "category"),
    "licence": ("licence", "license"),
    "attribution": ("attribution", "author", "credit"),
    "title": ("title",),
    "source": ("source", "originallandingurl", "landing_url", "url"),
}
"""What the columns of a table of photographs may be called; OpenImages' names are among them."""


@dataclass(frozen=True)
class Facts:
    """What is known of a photograph beside its pixels; empty where it is not."""

    class_name: str = ""
    licence: str = ""
    attribution: str = ""
    source: str = ""


@dataclass(frozen=True)
class Photographs:
    """Ids of photographs, and what is known of them.

    ``class_name``, ``licence`` and ``attribution`` hold where ``facts`` state nothing.
    """

    ids: Sequence[str]
    facts: Mapping[str, Facts] = field(default_factory=dict)
    class_name: str = ""
    licence: str = ""
    attribution: str = ""

    def class_of(self, photo: str) -> str:
        """The class of a photograph: as its table states, as given for all, or its first folder."""
        stated = self.facts.get(photo, Facts()).class_name or self.class_name
        if stated:
            return class_folder(stated)
        folder, slash, _ = photo.partition("/")
        if not slash:
            raise UserError(
                f"{photo} lies in no folder of a class",
                fix="lay photos in folders by class, or give --class NAME or --table FILE.csv",
            )
        return class_folder(folder)

    def credit_of(self, photo: str) -> Credit:
        """Licence, attribution and source of a photograph."""
        stated = self.facts.get(photo, Facts())
        return Credit(
            licence=stated.licence or self.licence,
            attribution=stated.attribution or self.attribution,
            source=stated.source,
        )


def licence_name(*stated: object) -> str:
    """One name for a licence from its address, its name, or both: SPDX's where it is known.

    >>> licence_name("https://creativecommons.org/licenses/by-nc-sa/2.0/")
    'CC-BY-NC-SA-2.0'
    >>> licence_name("http://flickr.com/commons/usage/", "No known copyright restrictions")
    'No known copyright restrictions'
    """
    texts = [" ".join(text.split()) for text in stated if isinstance(text, str) and text.strip()]
    for text in texts:
        if found := _LICENCE.search(text.lower()):
            return f"CC-{found[1].upper()}-{found[2]}"
        if found := _PUBLIC_DOMAIN.search(text.lower()):
            return f"CC0-{found[1]}"
    return texts[-1] if texts else ""


class Credit(TypedDict):
    """Whose a photograph is; empty where it is not known."""

    licence: str
    attribution: str
    source: str


class Finder:
    """Finds the photograph that a file of annotations means: by path, file name, or name alone."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = frozenset(ids)
        self._by_name: dict[str, list[str]] = {}
        for photo in ids:
            path = PurePosixPath(photo)
            for key in dict.fromkeys((path.name, path.stem)):
                self._by_name.setdefault(key, []).append(photo)

    def find(self, name: str) -> str | None:
        """The id that ``name`` means, or None; one that could mean several is a user's error."""
        if name in self._ids:
            return name
        found = self._by_name.get(PurePosixPath(name).name, [])
        if len(found) > 1:
            raise UserError(
                f"{name} may be {found[0]} or {found[1]}",
                fix="give the path from the photos' folder",
            )
        return found[0] if found else None


def read_photo_table(path: Path, ids: Sequence[str]) -> dict[str, Facts]:
    """Classes and credits from a CSV with a column ``file`` and any of class, licence, attribution."""
    finder = Finder(ids)
    facts: dict[str, Facts] = {}
    for row in read_csv(path, needed=("file",)):
        photo = finder.find(row["file"])
        if photo is None:
            continue  # a table may well list more photographs than are cut out
        parts = (row.get("title", ""), row.get("attribution", ""))
        made = Facts(
            class_name=row.get("class", ""),
            licence=licence_name(row.get("licence", "")),
            attribution=", ".join(part for part in parts if part),
            source=row.get("source", ""),
        )
        if facts.setdefault(photo, made) != made:
            raise BadFile(path, f"states two things of {photo}", fix="leave one row of it")
    if not facts and ids:
        raise BadFile(path, "names none of the photos", fix="check its column file")
    return facts


def read_csv(path: Path, *, needed: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a CSV file by our names of its columns; a missing column is a user's error."""
    rows = raw_csv(path)
    if not rows:
        raise BadFile(path, "has no rows", fix="give a header line and one line a photo")
    names = {name.strip().lower(): name for name in rows[0]}
    found: dict[str, str] = {}
    for ours, known in _COLUMNS.items():
        match = next((names[name] for name in known if name in names), None)
        if match is not None:
            found[ours] = match
    missing = [name for name in needed if name not in found]
    if missing:
        raise BadFile(path, f"has no column {missing[0]!r}", fix=f"it has {', '.join(rows[0])}")
    return [{ours: row[theirs].strip() for ours, theirs in found.items()} for row in rows]


def raw_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file as they are; a row of another length than the header is a user's error."""
    import csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.reader(handle)
            header = next(reader, [])
            rows = []
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise BadFile(
                        path,
                        f"line {reader.line_num} has {len(cells)} cells, the header {len(header)}",
                        fix="correct the line",
                    )
                rows.append(dict(zip(header, cells, strict=True)))
    except FileNotFoundError:
        raise NotFound(f"no table at {path}", fix="check the path") from None
    except (UnicodeDecodeError, csv.Error, IsADirectoryError) as error:
        raise BadFile(path, f"is no CSV file ({error})", fix="save it as CSV in UTF-8") from None
    return rows


def whole_photos(photographs: Photographs, *, own_alpha: bool = False) -> Subjects:
    """One subject a photograph: found by a segmenter, or by the photograph's own alpha."""
    outline: Outline | None = OwnAlpha() if own_alpha else None
    names = cutout_names(photographs.ids)
    return sorted_subjects(
        [_subject(photographs, photo, names[photo], outline) for photo in photographs.ids]
    )


def masked_photos(
    photographs: Photographs, masks: Path, *, instances: bool = False, resize: bool = False
) -> Subjects:
    """A subject for every mask of every photograph; ``instances``: masks number their objects."""
    index = MaskIndex(FolderSource(masks).ids())
    names = cutout_names(photographs.ids)
    subjects: list[Subject] = []
    failures: list[Problem] = []
    skipped: list[Problem] = []
    for photo in photographs.ids:
        found = index.of(photo)
        if not found:
            skipped.append(Problem(photo, "", f"no mask in {masks.name}"))
        outlines: list[tuple[str, MaskFile]] = []
        for file in found:
            suffix = "" if len(found) == 1 else f"_{PurePosixPath(file).stem}"
            if not instances:
                outlines.append((suffix, MaskFile.of(masks / file, resize=resize)))
                continue
            try:
                numbers = object_numbers(masks / file)
            except UserError as error:
                failures.append(Problem(photo, file, error.line))
                continue
            if not numbers:
                skipped.append(Problem(photo, file, "no object in the mask"))
            whole = MaskFile.of(masks / file, resize=resize)
            outlines += [(f"{suffix}_{number}", replace(whole, value=number)) for number in numbers]
        subjects += [
            _subject(photographs, photo, names[photo] + suffix, outline)
            for suffix, outline in outlines
        ]
    return sorted_subjects(subjects, failures=failures, skipped=skipped)


def cutout_names(ids: Sequence[str]) -> dict[str, str]:
    """A file name for the cut-out of each photograph: its own without ending, where that is clear.

    >>> cutout_names(["a/x.jpg", "a/x.png", "a/y.jpg"])
    {'a/x.jpg': 'x_jpg', 'a/x.png': 'x_png', 'a/y.jpg': 'y'}
    """
    count: dict[str, int] = {}
    for photo in ids:
        key = PurePosixPath(photo).with_suffix("").as_posix()
        count[key] = count.get(key, 0) + 1
    made = {}
    for photo in ids:
        path = PurePosixPath(photo)
        alone = count[path.with_suffix("").as_posix()] == 1
        stem = path.stem if alone else f"{path.stem}_{path.suffix.removeprefix('.')}"
        inner = path.parts[1:-1]  # folders below the class: two of them may hold one name
        made[photo] = "-".join((*inner, stem))
    return made


def _subject(photographs: Photographs, photo: str, name: str, outline: Outline | None) -> Subject:
    return Subject(
        photo=photo,
        class_name=photographs.class_of(photo),
        name=name,
        outline=outline,
        **photographs.credit_of(photo),
    )

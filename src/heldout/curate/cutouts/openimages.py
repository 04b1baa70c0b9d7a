"""OpenImages: mask PNGs with their CSV of segmentations, and CSVs of boxes.

Masks are stored smaller or larger than the photographs; each is brought to its photograph's size.
Classes are machine ids such as ``/m/01g317``; ``class-descriptions*.csv`` names them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.cutouts.cutout import (
    Box,
    Problem,
    Subject,
    Subjects,
    class_folder,
    sorted_subjects,
)
from heldout.curate.cutouts.masks import MaskFile
from heldout.curate.cutouts.photographs import Finder, Photographs, raw_csv
from heldout.data.images.sources import FolderSource

_SEGMENTATION = ("MaskPath", "ImageID", "LabelName")
_BOXES = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax")


def openimages_subjects(
    path: Path,
    masks: Path,
    photographs: Photographs,
    *,
    class_names: Path | None = None,
    classes: Sequence[str] = (),
    allow_missing: bool = False,
) -> Subjects:
    """A subject for every row of a CSV of segmentations (``MaskPath, ImageID, LabelName, …``)."""
    rows = _rows(path, _SEGMENTATION)
    files = {PurePosixPath(file).name: file for file in FolderSource(masks).ids()}
    reader = _Reader(path, photographs, class_names, classes, allow_missing)
    for row in rows:
        photo, class_name = reader.place(row)
        if photo is None:
            continue
        file = files.get(PurePosixPath(row["MaskPath"]).name)
        if file is None:
            reader.failures.append(
                Problem(photo, row["MaskPath"], f"the mask is not in {masks.name}")
            )
            continue
        outline = MaskFile.of(masks / file, resize=True)
        reader.add(photo, class_name, PurePosixPath(file).stem, outline=outline)
    return reader.subjects_of_all()


def openimages_boxes(
    path: Path,
    photographs: Photographs,
    *,
    class_names: Path | None = None,
    classes: Sequence[str] = (),
    allow_missing: bool = False,
) -> Subjects:
    """A subject for every box of a CSV of boxes; a segmenter finds the object in each.

    Boxes around groups of objects (``IsGroupOf`` 1) are skipped.
    """
    rows = _rows(path, _BOXES)
    reader = _Reader(path, photographs, class_names, classes, allow_missing)
    count: dict[str, int] = {}
    for row in rows:
        photo, class_name = reader.place(row)
        if photo is None:
            continue
        count[photo] = count.get(photo, 0) + 1
        label = f"box {count[photo]}"
        if row.get("IsGroupOf") == "1":
            reader.skipped.append(Problem(photo, label, "a group, not one object"))
            continue
        try:
            box = _box(row)
        except UserError as error:
            reader.failures.append(Problem(photo, label, error.line))
            continue
        reader.add(photo, class_name, f"{PurePosixPath(photo).stem}_{count[photo]}", box=box)
    return reader.subjects_of_all()


class _Reader:
    """What the two kinds of CSV share: photographs, classes, and what is left out."""

    def __init__(
        self,
        path: Path,
        photographs: Photographs,
        class_names: Path | None,
        classes: Sequence[str],
        allow_missing: bool,
    ) -> None:
        self._path = path
        self._photographs = photographs
        self._finder = Finder(photographs.ids)
        self._names = {} if class_names is None else read_class_names(class_names)
        self._classes = classes
        self._allow_missing = allow_missing
        self._subjects: list[Subject] = []
        self._used: set[str] = set()
        self.failures: list[Problem] = []
        self.skipped: list[Problem] = []

    def place(self, row: Mapping[str, str]) -> tuple[str | None, str]:
        """The photograph and class of a row; None where it is left out."""
        class_name = self._class(row["LabelName"])
        if self._classes and class_name not in self._classes:
            return None, ""
        photo = self._finder.find(row["ImageID"])
        if photo is None:
            missing = Problem(row["ImageID"], row.get("MaskPath", ""), "the photo is not there")
            (self.skipped if self._allow_missing else self.failures).append(missing)
            return None, ""
        self._used.add(photo)
        return photo, class_name

    def add(
        self,
        photo: str,
        class_name: str,
        name: str,
        *,
        outline: MaskFile | None = None,
        box: Box | None = None,
    ) -> None:
        self._subjects.append(
            Subject(
                photo=photo,
                class_name=class_name,
                name=name,
                outline=outline,
                box=box,
                **self._photographs.credit_of(photo),
            )
        )

    def subjects_of_all(self) -> Subjects:
        empty = [
            Problem(photo, "", "no object is annotated")
            for photo in self._photographs.ids
            if photo not in self._used
        ]
        return sorted_subjects(
            self._subjects, failures=self.failures, skipped=[*self.skipped, *empty]
        )

    def _class(self, label: str) -> str:
        name = self._names.get(label, "" if label.startswith("/") else label)
        if not name:
            raise BadFile(
                self._path,
                f"has the class {label}, whose name is not known",
                fix="give --class-names class-descriptions-boxable.csv",
            )
        return class_folder(name)


def read_class_names(path: Path) -> dict[str, str]:
    """Names of classes by machine id, from a CSV of ``id,name`` with or without a header."""
    import csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = [row for row in csv.reader(handle) if row]
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(f"no table of class names at {path}", fix="check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadFile(path, f"is no CSV file ({error})", fix="save it as CSV in UTF-8") from None
    if any(len(row) < 2 for row in rows):
        raise BadFile(path, "has lines without a name", fix="write id,name")
    return {row[0].strip(): row[1].strip() for row in rows}


def _rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    rows = raw_csv(path)
    missing = [name for name in needed if rows and name not in rows[0]]
    if not rows or missing:
        what = f"has no column {missing[0]!r}" if missing else "has no rows"
        raise BadFile(path, what, fix=f"give the CSV of OpenImages with {', '.join(needed)}")
    return rows


def _box(row: Mapping[str, str]) -> Box:
    try:
        left, right, top, bottom = (float(row[key]) for key in ("XMin", "XMax", "YMin", "YMax"))
    except ValueError:
        raise UserError("a side of its box is no number", fix="correct it") from None
    if not all(map(math.isfinite, (left, right, top, bottom))) or left >= right or top >= bottom:
        raise UserError(f"its box goes from {left:g} to {right:g}", fix="correct it")
    return Box(left, top, right - left, bottom - top, relative=True)

"""Files of COCO annotations: which objects of which photographs, in which class, by whose licence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from heldout.core.errors import BadFile, UserError
from heldout.core.files import read_json
from heldout.curate.cutouts.coco import Polygons, RunLengths
from heldout.curate.cutouts.cutout import (
    Box,
    Outline,
    Problem,
    Subject,
    Subjects,
    class_folder,
    sorted_subjects,
)
from heldout.curate.cutouts.photographs import Finder, Photographs, licence_name


def coco_subjects(
    path: Path,
    photographs: Photographs,
    *,
    classes: Sequence[str] = (),
    boxes: bool = False,
    allow_missing: bool = False,
) -> Subjects:
    """A subject for every object of a file of COCO annotations.

    ``classes``        only these; all by default
    ``boxes``          take the boxes only; a segmenter finds the object in each
    ``allow_missing``  photographs that are not there are skipped instead of failed

    Crowds (``iscrowd``) are skipped: they are no single object.
    """
    value = read_json(path)
    images = _records(path, value, "images")
    names = _categories(path, _records(path, value, "categories"), classes)
    listed = value.get("licenses")
    licences = {
        _whole(path, entry, "id"): licence_name(entry.get("url"), entry.get("name"))
        for entry in (listed if isinstance(listed, list) else ())
        if isinstance(entry, dict)
    }
    found = _photos(path, images, photographs.ids)
    subjects: list[Subject] = []
    failures: list[Problem] = []
    skipped: list[Problem] = []
    used: set[str] = set()
    for entry in _records(path, value, "annotations"):
        label = f"annotation {entry.get('id')}"
        image = images.get(_whole(path, entry, "image_id"))
        if image is None:
            failures.append(Problem("", label, f"its image {entry['image_id']} is not in the file"))
            continue
        category = _whole(path, entry, "category_id")
        if category not in names:
            if not classes:
                failures.append(
                    Problem(str(image["file_name"]), label, f"there is no category {category}")
                )
            continue
        photo = found[image["id"]]
        if photo is None:
            missing = Problem(str(image["file_name"]), label, "the photo is not there")
            (skipped if allow_missing else failures).append(missing)
            continue
        used.add(photo)
        if entry.get("iscrowd"):
            skipped.append(Problem(photo, label, "a crowd, not one object"))
            continue
        credit = photographs.credit_of(photo)
        number = image.get("license")
        named = licences.get(number, "") if isinstance(number, int) else ""
        credit["licence"] = credit["licence"] or named
        credit["source"] = credit["source"] or str(
            image.get("flickr_url") or image.get("coco_url") or ""
        )
        try:
            subjects.append(
                Subject(
                    photo=photo,
                    class_name=names[category],
                    name=f"{PurePosixPath(photo).stem}_{_whole(path, entry, 'id')}",
                    outline=None if boxes else _outline(entry, image),
                    box=_box(entry) if boxes else None,
                    **credit,
                )
            )
        except UserError as error:
            failures.append(Problem(photo, label, error.line))
    skipped += [
        Problem(photo, "", "no object is annotated")
        for photo in photographs.ids
        if photo not in used
    ]
    return sorted_subjects(subjects, failures=failures, skipped=skipped)


def _records(path: Path, value: Any, key: str) -> Any:
    """The list of this key; ``images`` as a mapping by id."""
    entries = value.get(key) if isinstance(value, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadFile(
            path, f"has no list {key!r}", fix="give a file of COCO instances (instances_*.json)"
        )
    if key != "images":
        return entries
    for entry in entries:
        if not isinstance(entry.get("file_name"), str):
            raise BadFile(path, f"image {entry.get('id')} has no file_name", fix="add it")
    return {_whole(path, entry, "id"): entry for entry in entries}


def _whole(path: Path, entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadFile(path, f"{key} {value!r} is no whole number", fix="correct it")
    return value


def _categories(path: Path, entries: Any, classes: Sequence[str]) -> dict[int, str]:
    names = {_whole(path, entry, "id"): class_folder(str(entry.get("name"))) for entry in entries}
    unknown = sorted(set(classes) - set(names.values()))
    if unknown:
        raise BadFile(
            path,
            f"has no category {unknown[0]!r}",
            fix=f"it has {', '.join(sorted(names.values())[:12])}",
        )
    return {key: name for key, name in names.items() if not classes or name in classes}


def _photos(
    path: Path, images: Mapping[int, Mapping[str, Any]], ids: Sequence[str]
) -> dict[int, str | None]:
    finder = Finder(ids)
    return {key: finder.find(str(image["file_name"])) for key, image in images.items()}


def _outline(entry: Mapping[str, Any], image: Mapping[str, Any]) -> Outline:
    stated = entry.get("segmentation")
    if isinstance(stated, dict):
        return _runs(stated)
    if not isinstance(stated, list) or not stated:
        raise UserError("has no segmentation", fix="give boxes with --method grabcut or onnx")
    width, height = image.get("width"), image.get("height")
    if not isinstance(width, int) or not isinstance(height, int):
        raise UserError("its image has no width and height", fix="add them")
    for part in stated:
        if (
            not isinstance(part, list)
            or len(part) % 2
            or len(part) < 6
            or not all(_finite(number) for number in part)
        ):
            raise UserError(
                "a polygon is no list of at least three corners", fix="write [x, y, x, y, x, y, …]"
            )
    made = Polygons(width, height, tuple(tuple(map(float, part)) for part in stated))
    xs = [x for part in made.parts for x in part[::2]]
    ys = [y for part in made.parts for y in part[1::2]]
    if max(xs) <= 0 or max(ys) <= 0 or min(xs) >= width or min(ys) >= height:
        raise UserError(
            f"its polygon lies outside the image of {width} × {height}", fix="correct it"
        )
    return made


def _runs(stated: Mapping[str, Any]) -> RunLengths:
    size, counts = stated.get("size"), stated.get("counts")
    if not (isinstance(size, list) and len(size) == 2 and all(isinstance(n, int) for n in size)):
        raise UserError("its run lengths have no size", fix='write "size": [height, width]')
    if isinstance(counts, list) and all(
        isinstance(n, int) and not isinstance(n, bool) for n in counts
    ):
        return RunLengths(size[1], size[0], tuple(counts))
    if isinstance(counts, str):
        return RunLengths(size[1], size[0], counts)
    raise UserError("its run lengths have no counts", fix="export the annotation again")


def _box(entry: Mapping[str, Any]) -> Box:
    stated = entry.get("bbox")
    if not (isinstance(stated, list) and len(stated) == 4 and all(map(_finite, stated))):
        raise UserError("has no box", fix='write "bbox": [left, top, width, height]')
    left, top, width, height = map(float, stated)
    if width <= 0 or height <= 0:
        raise UserError(f"its box is {width:g} × {height:g}", fix="correct it")
    return Box(left, top, width, height)


def _finite(number: object) -> bool:
    return (
        isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
    )

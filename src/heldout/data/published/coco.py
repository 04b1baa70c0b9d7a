"""COCO instances, or what a detector found: which categories are in which image.

Columns: ``object``, the categories; ``supercategory``; ``general``, categories and supercategories
listed as places. Crowds count: the image shows some of the kind.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile
from heldout.data.published.boxes import FARTHEST
from heldout.data.published.coco_files import CocoFile, place_images, read_coco_file
from heldout.data.published.documents import Document, Progress, documents
from heldout.data.published.gathering import Gathering, id_text
from heldout.data.published.json_stream import open_json
from heldout.data.published.names import Names
from heldout.data.published.options import ReaderOptions


def read_coco(
    paths: Sequence[Path], gathering: Gathering, options: ReaderOptions, progress: Progress
) -> None:
    """Gather files of instances, each with a numbering of categories of its own.

    A detector's results are a list of annotations. Where one is given, objects are those detected;
    the other files say which images and categories there are, and their annotations do not count.
    """
    every = [document for path in paths for document in documents(path)]
    results = [document for document in every if _is_list(document)]
    if options.min_score and not results:
        raise BadFile(every[0].name, "holds no detections", fix="leave out --min-score")
    listing = CocoFile()
    for document in every:
        if document in results:
            continue
        annotations = _Annotations(boxes=options.min_box_area > 0)
        file = read_coco_file(
            document,
            gathering,
            _ignore if results else annotations.take,
            progress=progress,
            needs=("images",) if results else ("images", "annotations"),
        )
        if "categories" not in file.sections:
            raise BadFile(
                document.name,
                "has no list 'categories'",
                fix="give instances_*.json; captions are read by the source coco-captions",
            )
        if results:
            listing.images.update(file.images)
            listing.licences.update(file.licences)
            listing.categories.extend(file.categories)
        else:
            _join(annotations, file, gathering, options)
    for document in results:
        if not listing.images:
            raise BadFile(
                document.name,
                "is a list of detections without images",
                fix="give the file of their images and categories (instances_*.json) too",
            )
        listing.numbers.clear()
        detections = _Annotations(boxes=options.min_box_area > 0, least=options.min_score)
        _read_list(document, detections, listing, gathering, progress)
        _join(detections, listing, gathering, options)


def _is_list(document: Document) -> bool:
    with open_json(document, chunk=1 << 12) as stream:
        return stream.starts() == "["


def _ignore(file: CocoFile, entry: dict[str, Any]) -> str:
    return ""


def _read_list(
    document: Document,
    detections: _Annotations,
    listing: CocoFile,
    gathering: Gathering,
    progress: Progress,
) -> None:
    with open_json(document, progress=progress) as stream:
        for place in stream.elements():
            entry = stream.value()
            wrong = "detection that is no object, left out"
            if isinstance(entry, dict):
                wrong = detections.take(listing, entry)
            if wrong:
                gathering.problems.add(wrong, f"{document.path.name} element {place + 1:,}")
        stream.finish()


class _Annotations:
    """Annotations as numbers: the image, the category, and the box where one is asked for."""

    def __init__(self, *, boxes: bool, least: float = 0.0) -> None:
        self.least = least
        self.images = array("q")
        self.categories = array("q")
        self.boxes = array("d") if boxes else None
        self.category_numbers: dict[str, int] = {}

    def take(self, file: CocoFile, entry: dict[str, Any]) -> str:
        """Keep one annotation."""
        category = id_text(entry.get("category_id"))
        if not category or not id_text(entry.get("image_id")):
            return "annotation without an image or a category, left out"
        if self.least:
            score = entry.get("score")
            if isinstance(score, bool) or not isinstance(score, int | float):
                return "detection without a score, left out"
            if not score >= self.least:
                return "detection below the least score, left out"
        self.images.append(file.number(entry["image_id"]))
        numbers = self.category_numbers
        self.categories.append(numbers.setdefault(category, len(numbers)))
        if self.boxes is not None:
            self.boxes.extend(_box(entry.get("bbox")))
        return ""


def _box(stated: Any) -> tuple[float, float, float, float]:
    """Left, top, width, height; NaN where the box cannot be used."""
    try:
        left, top, width, height = map(float, stated)
    except (TypeError, ValueError, OverflowError):
        return (math.nan,) * 4
    return left, top, width, height


def _join(
    annotations: _Annotations, file: CocoFile, gathering: Gathering, options: ReaderOptions
) -> None:
    """Give the images of a file the names of their annotations."""
    names, supers = _categories(file, gathering)
    places = place_images(file, gathering)
    images = _array(annotations.images)
    numbers = list(annotations.category_numbers)
    known = np.array([number in names for number in numbers], dtype=bool)
    categories = _array(annotations.categories)
    at = places[images] if len(images) else images
    keep = np.ones(len(at), dtype=bool)
    for wrong, what in (
        (at < 0, "annotation of an image that the file does not list, left out"),
        (
            ~known[categories] if len(categories) else at < 0,
            "annotation of an unknown category, left out",
        ),
    ):
        _drop(keep, wrong, what, gathering)
    if annotations.boxes is not None:
        shares = _shares(_array(annotations.boxes, float).reshape(-1, 4), at, gathering)
        _drop(keep, np.isnan(shares), "object without a usable box, left out", gathering)
        small = shares < options.min_box_area
        _drop(keep, small, "object below the least box area, left out", gathering)
    at, categories = at[keep], categories[keep]
    words = [names.get(number, "") for number in numbers]
    wider = [supers.get(number, "") for number in numbers]
    for column, values in (("object", words), ("supercategory", wider)):
        _add(column, at, categories, values, gathering)
    for values in (words, wider):
        listed = [value if value in options.places else "" for value in values]
        _add("general", at, categories, listed, gathering)


def _add(
    column: str,
    at: NDArray[np.int64],
    categories: NDArray[np.int64],
    values: list[str],
    gathering: Gathering,
) -> None:
    """Add the values of annotations, but for empty ones."""
    named = np.array([bool(value) for value in values], dtype=bool)
    rows = named[categories] if len(categories) else np.zeros(0, dtype=bool)
    vocabulary = [value for value in values if value]
    code = np.cumsum(named) - 1
    gathering.add_codes(column, at[rows], code[categories[rows]], vocabulary)


def _drop(keep: NDArray[np.bool_], wrong: NDArray[np.bool_], what: str, g: Gathering) -> None:
    rows = np.flatnonzero(keep & wrong)
    if len(rows):
        where = f"annotation {rows[0] + 1:,} of the file"
        g.problems.add(what, where, times=len(rows), image_lost="image" in what)
        keep[rows] = False


def _shares(
    boxes: NDArray[np.float64], at: NDArray[np.int64], gathering: Gathering
) -> NDArray[np.float64]:
    """The share of its image inside each box, as :func:`~heldout.data.published.boxes.box_share`."""
    stated = [
        [gathering.fact(side, place) for place in range(len(gathering))] + [None]
        for side in ("width", "height")
    ]
    size = np.array(stated, dtype=np.float64)[:, at]  # None is NaN; a place of -1 has no size
    start, sides = boxes[:, :2].T, boxes[:, 2:].T
    with np.errstate(invalid="ignore", over="ignore"):
        inside = np.clip(np.minimum(start + sides, size) - np.maximum(start, 0), 0, None)
        shares = np.asarray(inside.prod(axis=0) / size.prod(axis=0), dtype=np.float64)
    bad = ~(np.abs(boxes) <= FARTHEST).all(axis=1) | (sides < 0).any(axis=0)
    shares[bad] = math.nan
    return shares


def _categories(file: CocoFile, gathering: Gathering) -> tuple[dict[str, str], dict[str, str]]:
    """Names and supercategories by category id."""
    clean = Names()
    names: dict[str, str] = {}
    supers: dict[str, str] = {}
    for entry in file.categories:
        number, name = id_text(entry.get("id")), clean.clean(entry.get("name"))
        if not number or not name:
            gathering.problems.add("category without an id or a name, left out", str(entry)[:60])
        elif number in names and names[number] != name:
            gathering.problems.add("category id that comes again, the first kept", number)
        else:
            names[number] = name
            supers[number] = clean.clean(entry.get("supercategory"))
    return names, supers


def _array(values: array[Any], kind: type = np.int64) -> NDArray[Any]:
    return np.frombuffer(values, dtype=kind) if len(values) else np.zeros(0, dtype=kind)

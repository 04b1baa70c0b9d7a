"""COCO: instances, detections and captions: which categories and words go with which image."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, UserError
from heldout.data.images import check_id
from heldout.data.published.annotations import FARTHEST, Names, Words, read_words, singular
from heldout.data.published.json_stream import (
    JsonFile,
    JsonStream,
    Progress,
    documents,
    open_json,
)
from heldout.data.published.pool_builder import PoolBuilder, id_text, plain_text
from heldout.data.published.requests import CocoCaptions, CocoObjects, TagTable

COLUMN = "caption_word"
_IMAGE_FIELDS = ("width", "height", "file_name", "coco_url", "flickr_url", "license")
Take = Callable[[dict[str, Any]], str]
"""Takes one annotation; returns what is wrong with it, or ""."""


@dataclass
class CocoFile:
    """What a file says but for its annotations: the few fields that are kept of its images,
    its categories and licences, and which lists it has."""

    images: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    categories: list[dict[str, Any]] = field(default_factory=list)
    licences: dict[str, str] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)


def read_coco_file(
    document: JsonFile, builder: PoolBuilder, take: Take | None, progress: Progress
) -> CocoFile:
    """Read one file; its annotations go to ``take`` as they come, where there is one."""
    made = CocoFile()

    def keep_image(entry: dict[str, Any]) -> str:
        image_id = id_text(entry.get("id"))
        if image_id in made.images:
            builder.problems.add("image id that comes again, the first kept", image_id)
        kept = {key: entry[key] for key in _IMAGE_FIELDS if entry.get(key) is not None}
        made.images.setdefault(image_id, kept)
        return ""

    def keep_category(entry: dict[str, Any]) -> str:
        made.categories.append(entry)
        return ""

    def keep_licence(entry: dict[str, Any]) -> str:
        stated = plain_text(entry.get("url")) or plain_text(entry.get("name"))
        if stated is not None:
            made.licences[id_text(entry.get("id"))] = stated
        return ""

    kept: dict[str, Take] = {
        "images": keep_image,
        "categories": keep_category,
        "licenses": keep_licence,
        "annotations": take or (lambda entry: ""),
    }
    with open_json(document, progress=progress) as stream:
        for key in stream.members():
            if key in made.sections:
                builder.problems.add(f"list {key!r:.40} that comes again, joined", document.name)
            made.sections.add(key)
            if key in kept:
                _read_list(stream, key, kept[key], builder)
            elif stream.starts() == "[":
                for _ in stream.elements():
                    stream.value()
            else:
                stream.value()
        stream.finish()
    for key in ("images",) if take is None else ("images", "annotations"):
        if key not in made.sections:
            raise BadFile(document.name, f"has no list {key!r}", fix="give a file of COCO's kind")
    return made


def _read_list(stream: JsonStream, key: str, take: Take, builder: PoolBuilder) -> None:
    for place in stream.elements():
        entry = stream.value()
        if not isinstance(entry, dict):
            what = f"element of {key} that is no object, left out"
            builder.problems.add(what, f"{place + 1:,}", image_lost=key == "images")
        elif wrong := take(entry):
            builder.problems.add(wrong, f"element {place + 1:,} of {key}")


class _Annotations:
    """Annotations as numbers: the image, the category or word, and the box where one is asked for.

    ``numbers`` and ``values`` are image ids and categories in the order in which they were met.
    """

    def __init__(self, *, boxes: bool = False, min_score: float = 0.0) -> None:
        self.numbers: dict[str, int] = {}
        self.values: dict[str, int] = {}
        self.images = array("q")
        self.codes = array("q")
        self.boxes = array("d") if boxes else None
        self._min_score = min_score

    def add(self, image_id: str, value: str) -> None:
        """One more pair of an image, listed yet or not, and a value."""
        self.images.append(self.numbers.setdefault(image_id, len(self.numbers)))
        self.codes.append(self.values.setdefault(value, len(self.values)))

    def take(self, entry: dict[str, Any]) -> str:
        """Keep one annotation of an object."""
        category, image_id = id_text(entry.get("category_id")), id_text(entry.get("image_id"))
        if not category or not image_id:
            return "annotation without an image or a category, left out"
        if self._min_score:
            score = entry.get("score")
            if isinstance(score, bool) or not isinstance(score, int | float):
                return "detection without a score, left out"
            if not score >= self._min_score:
                return "detection below the least score, left out"
        self.add(image_id, category)
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


def _places(annotations: _Annotations, file: CocoFile, builder: PoolBuilder) -> NDArray[np.int64]:
    """Gather a file's images; the place of each image that annotations name, -1 for none."""
    places: dict[str, int] = {}
    for image_id, entry in file.images.items():
        facts: dict[str, Any] = {
            "path": plain_text(entry.get("file_name")),
            "uri": plain_text(entry.get("coco_url")),
            "source": plain_text(entry.get("flickr_url")),
            "licence": file.licences.get(id_text(entry.get("license"))),
            **builder.sizes(entry, image_id),
        }
        if facts["path"] is not None:
            try:
                check_id(facts["path"])
            except UserError:
                builder.problems.add("file name that is no plain path, left empty", image_id)
                facts["path"] = None
        places[image_id] = builder.image(image_id, f"image {image_id!r:.60}", facts)
    return np.array([places.get(image_id, -1) for image_id in annotations.numbers], dtype=np.int64)


def read_coco(
    paths: Sequence[Path], builder: PoolBuilder, options: CocoObjects, progress: Progress
) -> None:
    """Gather files of instances, each with a numbering of categories of its own.

    A detector's results are a list of annotations. Where one is given, objects are those detected;
    the other files say which images and categories there are, and their annotations do not count.
    """
    every = [document for path in paths for document in documents(path)]
    results = [document for document in every if _is_list(document)]
    boxes = options.min_box_area > 0
    if options.min_score and not results:
        raise BadFile(every[0].name, "holds no detections", fix="leave out --min-score")
    listing = CocoFile()
    for document in (document for document in every if document not in results):
        annotations = _Annotations(boxes=boxes)
        file = read_coco_file(document, builder, None if results else annotations.take, progress)
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
            _join(annotations, file, builder, options)
    for document in results:
        if not listing.images:
            raise BadFile(
                document.name,
                "is a list of detections without images",
                fix="give the file of their images and categories (instances_*.json) too",
            )
        annotations = _Annotations(boxes=boxes, min_score=options.min_score)
        with open_json(document, progress=progress) as stream:
            _read_list(stream, "detections", annotations.take, builder)
            stream.finish()
        _join(annotations, listing, builder, options)


def _is_list(document: JsonFile) -> bool:
    with open_json(document, chunk=1 << 12) as stream:
        return stream.starts() == "["


def _join(
    annotations: _Annotations, file: CocoFile, builder: PoolBuilder, options: CocoObjects
) -> None:
    """Give the images of a file the names of their annotations."""
    categories = _categories(file, builder)
    places = frozenset() if options.places is None else read_words(options.places)
    # An annotation of an unknown category has no names; -1 beyond the end finds the last one.
    names, supers = (
        [*(categories.get(key, ("", ""))[column] for key in annotations.values), ""]
        for column in (0, 1)
    )
    at = np.append(_places(annotations, file, builder), -1)[_array(annotations.images)]
    codes = _array(annotations.codes)
    keep = np.ones(len(at), dtype=bool)

    def drop(wrong: NDArray[np.bool_], what: str) -> None:
        rows = np.flatnonzero(keep & wrong)
        if len(rows):
            where = f"annotation {rows[0] + 1:,} of the file"
            lost = "image" in what
            builder.problems.add(f"{what}, left out", where, times=len(rows), image_lost=lost)
            keep[rows] = False

    drop(at < 0, "annotation of an image that the file does not list")
    unnamed = np.array([not name for name in names], dtype=bool)
    drop(unnamed[codes], "annotation of an unknown category")
    if annotations.boxes is not None:
        shares = _shares(_array(annotations.boxes, float).reshape(-1, 4), at, builder)
        drop(np.isnan(shares), "object without a usable box")
        drop(shares < options.min_box_area, "object below the least box area")
    at, codes = at[keep], codes[keep]
    for column, values in (("object", names), ("supercategory", supers)):
        _add(column, at, codes, values, builder)
        general = [value if value in places else "" for value in values]
        _add("general", at, codes, general, builder)


def _add(
    column: str,
    at: NDArray[np.int64],
    codes: NDArray[np.int64],
    values: list[str],
    builder: PoolBuilder,
) -> None:
    """Add the values of annotations, but for empty ones."""
    rows = np.array([bool(value) for value in values], dtype=bool)[codes]
    # Empty values get no row, but keep the numbering of the others as it is.
    builder.add_codes(column, at[rows], codes[rows], values)


def _shares(
    boxes: NDArray[np.float64], at: NDArray[np.int64], builder: PoolBuilder
) -> NDArray[np.float64]:
    """The share of its image inside each box, as :func:`~heldout.data.published.annotations.box_share`."""
    stated = [
        [builder.fact(side, place) for place in range(len(builder))] + [None]
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


def _categories(file: CocoFile, builder: PoolBuilder) -> dict[str, tuple[str, str]]:
    """Name and supercategory by category id."""
    clean = Names().clean
    found: dict[str, tuple[str, str]] = {}
    for entry in file.categories:
        number, name = id_text(entry.get("id")), clean(entry.get("name"))
        if not number or not name:
            builder.problems.add("category without an id or a name, left out", str(entry)[:60])
        elif number in found and found[number][0] != name:
            builder.problems.add("category id that comes again, the first kept", number)
        else:
            found[number] = name, clean(entry.get("supercategory"))
    return found


def _array(values: array[Any], kind: type = np.int64) -> NDArray[Any]:
    return np.frombuffer(values, dtype=kind) if len(values) else np.zeros(0, dtype=kind)


def read_captions(
    paths: Sequence[Path], builder: PoolBuilder, options: CocoCaptions, progress: Progress
) -> None:
    """Gather files of captions."""
    words = Words(options.vocabulary, fold_plurals=options.fold_plurals)
    for document in (document for path in paths for document in documents(path)):
        found = _Annotations()

        def take(entry: dict[str, Any], found: _Annotations = found) -> str:
            caption, image_id = entry.get("caption"), id_text(entry.get("image_id"))
            if not isinstance(caption, str) or not image_id:
                return "annotation without an image or a caption, left out"
            for word in sorted(words.of(caption)):
                found.add(image_id, word)
            return ""

        file = read_coco_file(document, builder, take, progress)
        places = _places(found, file, builder)
        lost = [image for image, number in found.numbers.items() if places[number] < 0]
        if lost:
            builder.problems.add(
                "image with captions that the file does not list, left out",
                lost[0],
                times=len(lost),
                image_lost=True,
            )
        at = np.append(places, -1)[_array(found.images)]
        known = at >= 0
        builder.add_codes(COLUMN, at[known], _array(found.codes)[known], list(found.values))
    fold_plurals(builder, options)


def fold_plurals(builder: PoolBuilder, options: CocoCaptions | TagTable) -> None:
    """Without a vocabulary, plurals fold into singulars that were met; with one, they have."""
    if options.fold_plurals and options.vocabulary is None:
        known = frozenset(builder.vocabulary(COLUMN))
        builder.rename(COLUMN, lambda word: singular(word, known))

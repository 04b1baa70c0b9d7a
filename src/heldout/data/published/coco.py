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
from heldout.data.published.json_stream import JsonFile, Progress, documents, open_json
from heldout.data.published.options import FARTHEST, Names, ReaderOptions, Words, singular
from heldout.data.published.pool_builder import PoolBuilder, id_text, pixels, plain_text


@dataclass
class CocoFile:
    """What a file says but for its annotations, which go to ``annotate`` as they come."""

    numbers: dict[str, int] = field(default_factory=dict)
    images: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    categories: list[Any] = field(default_factory=list)
    licences: dict[str, str] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)

    def number(self, image_id: object) -> int:
        """A number for the image of an annotation, listed yet or not."""
        return self.numbers.setdefault(id_text(image_id), len(self.numbers))


Annotate = Callable[[CocoFile, dict[str, Any]], str]
"""Takes one annotation; returns what is wrong with it, or ""."""


def read_coco_file(
    document: JsonFile,
    builder: PoolBuilder,
    annotate: Annotate,
    *,
    progress: Progress,
    needs: tuple[str, ...] = ("images", "annotations"),
) -> CocoFile:
    """Read one file; its images and categories as they are, its annotations through ``annotate``."""
    made = CocoFile()
    with open_json(document, progress=progress) as stream:
        for key in stream.members():
            if key in made.sections:
                builder.problems.add(f"list {key!r:.40} that comes again, joined", document.name)
            made.sections.add(key)
            if key in ("images", "annotations", "categories", "licenses"):
                for place in stream.elements():
                    entry = stream.value()
                    if not isinstance(entry, dict):
                        what = f"element of {key} that is no object, left out"
                        lost = key == "images"
                        builder.problems.add(what, f"{place + 1:,}", image_lost=lost)
                    elif key == "annotations":
                        wrong = annotate(made, entry)
                        if wrong:
                            builder.problems.add(wrong, f"annotation {entry.get('id')}")
                    else:
                        _keep(made, key, entry, builder)
            elif stream.starts() == "[":
                for _ in stream.elements():
                    stream.value()
            else:
                stream.value()
        stream.finish()
    for key in needs:
        if key not in made.sections:
            raise BadFile(document.name, f"has no list {key!r}", fix="give a file of COCO's kind")
    return made


def _keep(made: CocoFile, key: str, entry: dict[str, Any], builder: PoolBuilder) -> None:
    if key == "images":
        image_id = id_text(entry.get("id"))
        if image_id in made.images:
            builder.problems.add("image id that comes again, the first kept", image_id)
        made.images.setdefault(image_id, _image(entry))
    elif key == "categories":
        made.categories.append(entry)
    else:
        stated = plain_text(entry.get("url")) or plain_text(entry.get("name"))
        if stated is not None:
            made.licences[id_text(entry.get("id"))] = stated


def _image(entry: dict[str, Any]) -> dict[str, Any]:
    """The few fields that are kept of an image."""
    fields = ("width", "height", "file_name", "coco_url", "flickr_url", "license")
    return {key: entry[key] for key in fields if entry.get(key) is not None}


def place_images(made: CocoFile, builder: PoolBuilder) -> NDArray[np.int64]:
    """Gather a file's images; the place of each number that annotations gave, -1 for none."""
    places: dict[str, int] = {}
    for image_id, entry in made.images.items():
        facts: dict[str, Any] = {
            "path": plain_text(entry.get("file_name")),
            "uri": plain_text(entry.get("coco_url")),
            "source": plain_text(entry.get("flickr_url")),
            "licence": made.licences.get(id_text(entry.get("license"))),
        }
        for side in ("width", "height"):
            facts[side] = pixels(entry.get(side))
            if facts[side] is None and side in entry:
                builder.problems.add("width or height that is no size, left empty", image_id)
        if facts["path"] is not None:
            try:
                check_id(facts["path"])
            except UserError:
                builder.problems.add("file name that is no plain path, left empty", image_id)
                facts["path"] = None
        places[image_id] = builder.image(image_id, f"image {image_id!r:.60}", facts)
    return np.array([places.get(image_id, -1) for image_id in made.numbers], dtype=np.int64)


def read_coco(
    paths: Sequence[Path], builder: PoolBuilder, options: ReaderOptions, progress: Progress
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
            builder,
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
            _join(annotations, file, builder, options)
    for document in results:
        if not listing.images:
            raise BadFile(
                document.name,
                "is a list of detections without images",
                fix="give the file of their images and categories (instances_*.json) too",
            )
        listing.numbers.clear()
        detections = _Annotations(boxes=options.min_box_area > 0, least=options.min_score)
        _read_list(document, detections, listing, builder, progress)
        _join(detections, listing, builder, options)


def _is_list(document: JsonFile) -> bool:
    with open_json(document, chunk=1 << 12) as stream:
        return stream.starts() == "["


def _ignore(file: CocoFile, entry: dict[str, Any]) -> str:
    return ""


def _read_list(
    document: JsonFile,
    detections: _Annotations,
    listing: CocoFile,
    builder: PoolBuilder,
    progress: Progress,
) -> None:
    with open_json(document, progress=progress) as stream:
        for place in stream.elements():
            entry = stream.value()
            wrong = "detection that is no object, left out"
            if isinstance(entry, dict):
                wrong = detections.take(listing, entry)
            if wrong:
                builder.problems.add(wrong, f"{document.path.name} element {place + 1:,}")
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
    annotations: _Annotations, file: CocoFile, builder: PoolBuilder, options: ReaderOptions
) -> None:
    """Give the images of a file the names of their annotations."""
    names, supers = _categories(file, builder)
    places = place_images(file, builder)
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
        _drop(keep, wrong, what, builder)
    if annotations.boxes is not None:
        shares = _shares(_array(annotations.boxes, float).reshape(-1, 4), at, builder)
        _drop(keep, np.isnan(shares), "object without a usable box, left out", builder)
        small = shares < options.min_box_area
        _drop(keep, small, "object below the least box area, left out", builder)
    at, categories = at[keep], categories[keep]
    words = [names.get(number, "") for number in numbers]
    wider = [supers.get(number, "") for number in numbers]
    for column, values in (("object", words), ("supercategory", wider)):
        _add(column, at, categories, values, builder)
    for values in (words, wider):
        listed = [value if value in options.places else "" for value in values]
        _add("general", at, categories, listed, builder)


def _add(
    column: str,
    at: NDArray[np.int64],
    categories: NDArray[np.int64],
    values: list[str],
    builder: PoolBuilder,
) -> None:
    """Add the values of annotations, but for empty ones."""
    named = np.array([bool(value) for value in values], dtype=bool)
    rows = named[categories] if len(categories) else np.zeros(0, dtype=bool)
    vocabulary = [value for value in values if value]
    code = np.cumsum(named) - 1
    builder.add_codes(column, at[rows], code[categories[rows]], vocabulary)


def _drop(keep: NDArray[np.bool_], wrong: NDArray[np.bool_], what: str, g: PoolBuilder) -> None:
    rows = np.flatnonzero(keep & wrong)
    if len(rows):
        where = f"annotation {rows[0] + 1:,} of the file"
        g.problems.add(what, where, times=len(rows), image_lost="image" in what)
        keep[rows] = False


def _shares(
    boxes: NDArray[np.float64], at: NDArray[np.int64], builder: PoolBuilder
) -> NDArray[np.float64]:
    """The share of its image inside each box, as :func:`~heldout.data.published.options.box_share`."""
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


def _categories(file: CocoFile, builder: PoolBuilder) -> tuple[dict[str, str], dict[str, str]]:
    """Names and supercategories by category id."""
    clean = Names()
    names: dict[str, str] = {}
    supers: dict[str, str] = {}
    for entry in file.categories:
        number, name = id_text(entry.get("id")), clean.clean(entry.get("name"))
        if not number or not name:
            builder.problems.add("category without an id or a name, left out", str(entry)[:60])
        elif number in names and names[number] != name:
            builder.problems.add("category id that comes again, the first kept", number)
        else:
            names[number] = name
            supers[number] = clean.clean(entry.get("supercategory"))
    return names, supers


def _array(values: array[Any], kind: type = np.int64) -> NDArray[Any]:
    return np.frombuffer(values, dtype=kind) if len(values) else np.zeros(0, dtype=kind)


COLUMN = "caption_word"


def read_captions(
    paths: Sequence[Path], builder: PoolBuilder, options: ReaderOptions, progress: Progress
) -> None:
    """Gather files of captions."""
    words = Words(options.vocabulary, fold_plurals=options.fold_plurals)
    for document in (document for path in paths for document in documents(path)):
        captions = _Captions(words)
        file = read_coco_file(document, builder, captions.take, progress=progress)
        places = place_images(file, builder)
        if not len(captions.images):
            continue
        at = places[np.frombuffer(captions.images, dtype=np.int64)]
        codes = np.frombuffer(captions.codes, dtype=np.int64)
        known = at >= 0
        if not known.all():
            lost = int((places < 0).sum())
            builder.problems.add(
                "image with captions that the file does not list, left out",
                next(image for image, number in file.numbers.items() if places[number] < 0),
                times=lost,
                image_lost=True,
            )
        builder.add_codes(COLUMN, at[known], codes[known], list(captions.vocabulary))
    fold_plurals(builder, options)


class _Captions:
    """Captions as numbers: the image and the word."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.images = array("q")
        self.codes = array("q")
        self.vocabulary: dict[str, int] = {}

    def take(self, file: CocoFile, entry: dict[str, Any]) -> str:
        """Keep the words of one caption."""
        caption = entry.get("caption")
        if not isinstance(caption, str) or not id_text(entry.get("image_id")):
            return "annotation without an image or a caption, left out"
        number = file.number(entry["image_id"])
        vocabulary = self.vocabulary
        for word in sorted(self.words.of(caption)):
            self.images.append(number)
            self.codes.append(vocabulary.setdefault(word, len(vocabulary)))
        return ""


def fold_plurals(builder: PoolBuilder, options: ReaderOptions) -> None:
    """Without a vocabulary, plurals fold into singulars that were met; with one, they have."""
    if options.fold_plurals and options.vocabulary is None:
        known = frozenset(builder.vocabulary(COLUMN))
        builder.rename(COLUMN, lambda word: singular(word, known))

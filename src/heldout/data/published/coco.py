"""COCO: instances, detections and captions: which categories and words go with which image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, UserError
from heldout.data.images import check_id
from heldout.data.published.annotations import Words, box_problem, clean_name, read_words
from heldout.data.published.json_stream import (
    JsonFile,
    JsonStream,
    Progress,
    documents,
    open_json,
)
from heldout.data.published.pool_builder import PoolBuilder, id_text, plain_text
from heldout.data.published.requests import CocoCaptionsRequest, CocoObjectsRequest

COLUMN = "caption_word"
_KEPT = {
    "images": ("id", "width", "height", "file_name", "coco_url", "flickr_url", "license"),
    "categories": ("id", "name", "supercategory"),
    "licenses": ("id", "name", "url"),
}
Lists = dict[str, list[dict[str, Any]]]
"""What a file lists, by the names of its lists; of images, categories and licences some fields."""
Take = Callable[[dict[str, Any]], str]
"""Takes one annotation; returns what is wrong with it, or ""."""


def _read_file(
    document: JsonFile, builder: PoolBuilder, take: Take | None, progress: Progress
) -> Lists:
    """Read one file; its annotations go to ``take`` as they come, where there is one."""
    found: Lists = {}
    with open_json(document, progress=progress) as stream:
        for key in stream.members():
            if key in found:
                builder.problems.add(f"list {key!r:.40} that comes again, joined", document.name)
            kept = found.setdefault(key, [])
            if key in _KEPT:
                _read_list(stream, key, partial(_keep, kept, _KEPT[key]), builder)
            elif key == "annotations" and take:
                _read_list(stream, key, take, builder)
            elif stream.starts() == "[":
                for _ in stream.elements():
                    stream.value()
            else:
                stream.value()
        stream.finish()
    for key in ("images",) if take is None else ("images", "annotations"):
        if key not in found:
            raise BadFile(document.name, f"has no list {key!r}", fix="give a file of COCO's kind")
    return found


def _keep(kept: list[dict[str, Any]], fields: tuple[str, ...], entry: dict[str, Any]) -> str:
    kept.append({name: entry[name] for name in fields if name in entry})
    return ""


def _read_list(stream: JsonStream, key: str, take: Take, builder: PoolBuilder) -> None:
    for place in stream.elements():
        entry = stream.value()
        if not isinstance(entry, dict):
            what = f"element of {key} that is no object, left out"
            builder.problems.add(what, f"{place + 1:,}", image_lost=key == "images")
        elif wrong := take(entry):
            builder.problems.add(wrong, f"element {place + 1:,} of {key}")


class _Objects:
    """The category and, where boxes count, the box of every annotation, by image id."""

    def __init__(self, options: CocoObjectsRequest) -> None:
        self.options = options
        self.of_image: dict[str, list[tuple[str, Any]]] = {}

    def take(self, entry: dict[str, Any]) -> str:
        """Keep one annotation of an object."""
        category, image_id = id_text(entry.get("category_id")), id_text(entry.get("image_id"))
        if not category or not image_id:
            return "annotation without an image or a category, left out"
        if self.options.min_score:
            score = entry.get("score")
            if isinstance(score, bool) or not isinstance(score, int | float):
                return "detection without a score, left out"
            if not score >= self.options.min_score:
                return "detection below the least score, left out"
        box = entry.get("bbox") if self.options.min_box_area else None
        self.of_image.setdefault(image_id, []).append((category, box))
        return ""

    def gather(self, file: Lists, builder: PoolBuilder) -> None:
        """Give the images of a file the names of their annotations."""
        categories = _categories(file.get("categories", []), builder)
        places = _places(file, builder)
        problems = builder.problems
        for image_id, found in self.of_image.items():
            place = places.get(image_id, -1)
            if place < 0:
                what = "annotation of an image that the file does not list, left out"
                problems.add(what, f"image {image_id}", times=len(found), image_lost=True)
                continue
            size = builder.fact("width", place), builder.fact("height", place)
            kept = []
            for category, box in found:
                wrong = ""
                if category not in categories:
                    wrong = "annotation of an unknown category, left out"
                elif self.options.min_box_area:
                    wrong = box_problem(box, size, self.options.min_box_area)
                if wrong:
                    problems.add(wrong, f"image {image_id}")
                else:
                    kept.append(categories[category])
            builder.add("object", place, {name for name, _ in kept})
            builder.add("supercategory", place, {above for _, above in kept if above})


def _places(file: Lists, builder: PoolBuilder) -> dict[str, int]:
    """Gather a file's images: the place of each in the pool."""
    licences = {
        id_text(entry.get("id")): plain_text(entry.get("url")) or plain_text(entry.get("name"))
        for entry in file.get("licenses", ())
    }
    places: dict[str, int] = {}
    for entry in file["images"]:
        image_id = id_text(entry.get("id"))
        if image_id in places:
            builder.problems.add("image id that comes again, the first kept", image_id)
            continue
        facts: dict[str, Any] = {
            "path": plain_text(entry.get("file_name")),
            "uri": plain_text(entry.get("coco_url")),
            "source": plain_text(entry.get("flickr_url")),
            "licence": licences.get(id_text(entry.get("license"))),
            **builder.sizes(entry, image_id),
        }
        if facts["path"] is not None:
            try:
                check_id(facts["path"])
            except UserError:
                builder.problems.add("file name that is no plain path, left empty", image_id)
                facts["path"] = None
        places[image_id] = builder.image(image_id, f"image {image_id!r:.60}", facts)
    return places


def read_coco(
    paths: Sequence[Path], builder: PoolBuilder, options: CocoObjectsRequest, progress: Progress
) -> None:
    """Gather files of instances, each with a numbering of categories of its own.

    A detector's results are a list of annotations. Where one is given, objects are those detected;
    the other files say which images and categories there are, and their annotations do not count.
    """
    every = [document for path in paths for document in documents(path)]
    results = [document for document in every if _is_list(document)]
    if options.min_score and not results:
        raise BadFile(every[0].name, "holds no detections", fix="leave out --min-score")
    listing: Lists = {}
    for document in (document for document in every if document not in results):
        objects = _Objects(options)
        file = _read_file(document, builder, None if results else objects.take, progress)
        if "categories" not in file:
            raise BadFile(
                document.name,
                "has no list 'categories'",
                fix="give instances_*.json; captions are read by the source coco-captions",
            )
        if results:
            for key in _KEPT:
                listing.setdefault(key, []).extend(file.get(key, ()))
        else:
            objects.gather(file, builder)
    for document in results:
        if not listing.get("images"):
            raise BadFile(
                document.name,
                "is a list of detections without images",
                fix="give the file of their images and categories (instances_*.json) too",
            )
        objects = _Objects(options)
        with open_json(document, progress=progress) as stream:
            _read_list(stream, "detections", objects.take, builder)
            stream.finish()
        objects.gather(listing, builder)


def _is_list(document: JsonFile) -> bool:
    with open_json(document, chunk=1 << 12) as stream:
        return stream.starts() == "["


def _categories(listed: list[dict[str, Any]], builder: PoolBuilder) -> dict[str, tuple[str, str]]:
    """Name and supercategory by category id."""
    found: dict[str, tuple[str, str]] = {}
    for entry in listed:
        number, name = id_text(entry.get("id")), clean_name(entry.get("name"))
        if not number or not name:
            builder.problems.add("category without an id or a name, left out", str(entry)[:60])
        elif number in found and found[number][0] != name:
            builder.problems.add("category id that comes again, the first kept", number)
        else:
            found[number] = name, clean_name(entry.get("supercategory"))
    return found


def read_captions(
    paths: Sequence[Path], builder: PoolBuilder, options: CocoCaptionsRequest, progress: Progress
) -> None:
    """Gather files of captions."""
    words = Words(None if options.vocabulary is None else read_words(options.vocabulary))
    for document in (document for path in paths for document in documents(path)):
        found: dict[str, set[str]] = {}

        def take(entry: dict[str, Any], found: dict[str, set[str]] = found) -> str:
            caption, image_id = entry.get("caption"), id_text(entry.get("image_id"))
            if not isinstance(caption, str) or not image_id:
                return "annotation without an image or a caption, left out"
            found.setdefault(image_id, set()).update(words.of(caption))
            return ""

        file = _read_file(document, builder, take, progress)
        places = _places(file, builder)
        for image_id, spoken in found.items():
            place = places.get(image_id, -1)
            if place >= 0:
                builder.add(COLUMN, place, spoken)
            else:
                what = "image with captions that the file does not list, left out"
                builder.problems.add(what, image_id, image_lost=True)

"""Files of the COCO kind: images, annotations and categories in lists of one object, in any order.

Annotations often come before what they refer to, so they are kept as numbers and joined once the
whole file is read. Segmentations and the like are dropped as soon as they are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, UserError
from heldout.data.images import check_id
from heldout.data.published.documents import Document, Progress
from heldout.data.published.gathering import Gathering, id_text, pixels, plain_text
from heldout.data.published.json_stream import open_json


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
    document: Document,
    gathering: Gathering,
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
                gathering.problems.add(f"list {key!r:.40} that comes again, joined", document.name)
            made.sections.add(key)
            if key in ("images", "annotations", "categories", "licenses"):
                for place in stream.elements():
                    entry = stream.value()
                    if not isinstance(entry, dict):
                        what = f"element of {key} that is no object, left out"
                        lost = key == "images"
                        gathering.problems.add(what, f"{place + 1:,}", image_lost=lost)
                    elif key == "annotations":
                        wrong = annotate(made, entry)
                        if wrong:
                            gathering.problems.add(wrong, f"annotation {entry.get('id')}")
                    else:
                        _keep(made, key, entry, gathering)
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


def _keep(made: CocoFile, key: str, entry: dict[str, Any], gathering: Gathering) -> None:
    if key == "images":
        image_id = id_text(entry.get("id"))
        if image_id in made.images:
            gathering.problems.add("image id that comes again, the first kept", image_id)
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


def place_images(made: CocoFile, gathering: Gathering) -> NDArray[np.int64]:
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
                gathering.problems.add("width or height that is no size, left empty", image_id)
        if facts["path"] is not None:
            try:
                check_id(facts["path"])
            except UserError:
                gathering.problems.add("file name that is no plain path, left empty", image_id)
                facts["path"] = None
        places[image_id] = gathering.image(image_id, f"image {image_id!r:.60}", facts)
    return np.array([places.get(image_id, -1) for image_id in made.numbers], dtype=np.int64)

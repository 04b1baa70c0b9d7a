"""GQA scene graphs: one JSON object keyed by image id, with objects, boxes, attributes, relations.

Columns: ``object``; ``attribute``, values ``subject(attribute)``; ``general``, the names of
location, weather, place and room and the objects listed as places; on request ``relation``, values
``subject(predicate object)``. Location and weather are single-valued columns of the images too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heldout.data.published.boxes import box_share
from heldout.data.published.documents import Document, Progress, documents
from heldout.data.published.gathering import Gathering, pixels
from heldout.data.published.json_stream import open_json
from heldout.data.published.names import Names
from heldout.data.published.options import ReaderOptions
from heldout.data.published.pairs import Pairs

GENERAL = ("location", "weather", "place", "room")
"""Fields of an image that name a general context."""


def read_gqa(
    paths: Sequence[Path], gathering: Gathering, options: ReaderOptions, progress: Progress
) -> None:
    """Gather scene graphs; several files (train and validation) make one pool."""
    reader = _Scenes(gathering, options)
    for document in (document for path in paths for document in documents(path)):
        for image_id, scene in _scenes(document, progress):
            if gathering.knows(image_id):
                gathering.problems.add("image id that comes again, merged", image_id)
            reader.read(image_id, scene)


def _scenes(document: Document, progress: Progress) -> Iterator[tuple[str, Any]]:
    with open_json(document, progress=progress) as stream:
        for image_id in stream.members():
            yield image_id, stream.value()
        stream.finish()


class _Scenes:
    """Reads one scene after the other into a gathering."""

    def __init__(self, gathering: Gathering, options: ReaderOptions) -> None:
        self.gathering = gathering
        self.problems = gathering.problems
        self.options = options
        self.names = Names()
        self.attributes = Pairs("attribute", self.names, self.problems, options.ontology)
        self.relations = Pairs("relation", self.names, self.problems)

    def read(self, image_id: str, scene: Any) -> None:
        """Gather one image."""
        if not isinstance(scene, dict):
            self.problems.add("image that is no object, left out", image_id, image_lost=True)
            return
        facts: dict[str, Any] = {}
        for side in ("width", "height"):
            facts[side] = pixels(scene.get(side))
            if facts[side] is None and scene.get(side) is not None:
                self.problems.add("width or height that is no size, left empty", image_id)
        general: set[str] = set()
        for field in GENERAL:
            if scene.get(field) is not None:
                found = self.names.clean_all(scene[field])
                if not found:
                    self.problems.add(f"{field} that is no text, left out", image_id)
                general.update(found)
                facts[field] = found[0] if len(found) == 1 else None
        place = self.gathering.image(image_id, image_id, facts)
        if place < 0:
            return
        kept = list(self._objects(image_id, scene, facts["width"], facts["height"]))
        named = {name for _, name, _ in kept}
        self.gathering.add("object", place, named)
        if self.options.places:
            general |= named & self.options.places
        self.gathering.add("general", place, general)
        self.gathering.add("attribute", place, self._attributes(image_id, kept))
        if self.options.relations:
            self.gathering.add("relation", place, self._relations(image_id, kept))

    def _objects(
        self, image_id: str, scene: dict[str, Any], width: int | None, height: int | None
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """The objects that count: (id, name, what is said of it)."""
        least = self.options.min_box_area
        for key, entry in _entries(scene.get("objects")):
            if not isinstance(entry, dict):
                self.problems.add("object that is no JSON object, left out", image_id)
                continue
            name = self.names.clean(entry.get("name"))
            if not name:
                self.problems.add("object without a name, left out", f"{image_id}: {key}")
                continue
            if least:
                box = (entry.get("x"), entry.get("y"), entry.get("w"), entry.get("h"))
                share = box_share(box, width, height)
                if not share >= least:
                    why = "below the least box area" if share < least else "without a usable box"
                    self.problems.add(f"object {why}, left out", f"{image_id}: {key}")
                    continue
            yield key, name, entry

    def _attributes(
        self, image_id: str, kept: Iterable[tuple[str, str, dict[str, Any]]]
    ) -> set[str]:
        found: set[str] = set()
        value = self.attributes.value
        for _, name, entry in kept:
            stated = entry.get("attributes")
            if not stated:
                continue
            if isinstance(stated, str):
                stated = [stated]
            elif not isinstance(stated, list):
                self.problems.add("attributes that are no list, left out", image_id)
                continue
            found.update([value(name, attribute, image_id) for attribute in stated])
        found.discard("")
        return found

    def _relations(
        self, image_id: str, kept: Iterable[tuple[str, str, dict[str, Any]]]
    ) -> set[str]:
        kept = list(kept)
        names = {key: name for key, name, _ in kept}
        found: set[str] = set()
        for _, name, entry in kept:
            for _, relation in _entries(entry.get("relations")):
                if not isinstance(relation, dict):
                    self.problems.add("relation that is no JSON object, left out", image_id)
                    continue
                other = names.get(str(relation.get("object")))
                predicate = self.names.clean(relation.get("name"))
                if other is None or not predicate:
                    self.problems.add("relation to no object that counts, left out", image_id)
                    continue
                found.add(self.relations.value(name, f"{predicate} {other}", image_id))
        found.discard("")
        return found


def _entries(value: Any) -> Iterable[tuple[str, Any]]:
    """The entries of a list or of an object by key; one relation written as an object is one."""
    if isinstance(value, dict):
        if "name" in value and "object" in value and not isinstance(value["object"], dict):
            return [("0", value)]
        return value.items()
    if isinstance(value, list):
        return [(str(place), entry) for place, entry in enumerate(value)]
    return [] if value is None else [("0", value)]

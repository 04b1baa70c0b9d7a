"""Visual Genome's own files: a list of images each, in objects, attributes and relationships.

Give any of ``objects.json``, ``attributes.json``, ``relationships.json`` and ``image_data.json``
(sizes and addresses); what each file holds is told by its first image. Names are written by many
hands there, so case is folded.

Columns: ``object``; ``synset``, the WordNet synsets of objects; ``attribute``, values
``subject(attribute)``; ``general``, objects listed as places; on request ``relation``, values
``subject(predicate object)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile
from heldout.data.published.boxes import box_share
from heldout.data.published.documents import Document, Progress, documents
from heldout.data.published.gathering import Gathering, id_text, pixels, plain_text
from heldout.data.published.json_stream import open_json
from heldout.data.published.names import Names
from heldout.data.published.options import ReaderOptions
from heldout.data.published.pairs import Pairs

_LISTS = ("objects", "attributes", "relationships")
_SIZES = "image_data"


def read_visual_genome(
    paths: Sequence[Path], gathering: Gathering, options: ReaderOptions, progress: Progress
) -> None:
    """Gather files of Visual Genome; sizes of images are read first, as boxes need them."""
    kinds = [(_kind(document), document) for path in paths for document in documents(path)]
    reader = _Reader(gathering, options)
    for kind, document in sorted(kinds, key=lambda pair: pair[0] != _SIZES):
        seen: set[str] = set()
        for place, entry in _entries(document, progress):
            reader.read(kind, entry, f"{document.path.name} element {place + 1:,}", seen)


def _entries(document: Document, progress: Progress) -> Iterator[tuple[int, Any]]:
    with open_json(document, progress=progress) as stream:
        for place in stream.elements():
            yield place, stream.value()
        stream.finish()


def _kind(document: Document) -> str:
    """What the images of a file list: objects, attributes, relationships, or their sizes."""
    with open_json(document, chunk=1 << 16) as stream:
        first = next((stream.value() for _ in stream.elements()), None)
    if isinstance(first, dict):
        for key in _LISTS:
            if isinstance(first.get(key), list):
                return key
        if "width" in first or "url" in first:
            return _SIZES
    raise BadFile(
        document.name,
        "does not begin as a file of Visual Genome does",
        fix="give objects.json, attributes.json, relationships.json or image_data.json",
    )


class _Reader:
    """Reads one image of one file after the other into a gathering."""

    def __init__(self, gathering: Gathering, options: ReaderOptions) -> None:
        self.gathering = gathering
        self.problems = gathering.problems
        self.options = options
        self.names = Names(lower=True)
        self.attributes = Pairs("attribute", self.names, self.problems, options.ontology)
        self.relations = Pairs("relation", self.names, self.problems)

    def read(self, kind: str, entry: Any, where: str, seen: set[str]) -> None:
        """Gather one image as one file lists it."""
        if not isinstance(entry, dict):
            self.problems.add("image that is no object, left out", where, image_lost=True)
            return
        image_id = id_text(entry.get("image_id", entry.get("id")))
        if image_id in seen:
            self.problems.add("image id that comes again, merged", image_id)
        seen.add(image_id)
        url = entry.get("image_url", entry.get("url"))
        facts: dict[str, Any] = {"uri": plain_text(url)}
        for side in ("width", "height"):
            facts[side] = pixels(entry.get(side))
            if facts[side] is None and entry.get(side) is not None:
                self.problems.add("width or height that is no size, left empty", image_id or where)
        place = self.gathering.image(image_id, where, facts)
        if place < 0 or kind == _SIZES:
            return
        listed = entry.get(kind)
        if not isinstance(listed, list):
            self.problems.add(f"image without a list of {kind}", image_id)
            return
        if kind == "relationships":
            self._relationships(place, image_id, listed)
        else:
            self._objects(place, image_id, listed)

    def _objects(self, place: int, image_id: str, listed: list[Any]) -> None:
        found: set[str] = set()
        pairs: set[str] = set()
        synsets: set[str] = set()
        for entry in listed:
            names = self._names(place, image_id, entry)
            if not names:
                continue
            found.update(names)
            synsets.update(self.names.clean_all(entry.get("synsets")))
            stated = entry.get("attributes")
            if isinstance(stated, str):
                stated = [stated]
            if stated is not None and not isinstance(stated, list):
                self.problems.add("attributes that are no list, left out", image_id)
                continue
            pairs.update(
                self.attributes.value(name, attribute, image_id)
                for attribute in stated or ()
                for name in names
            )
        self._add(place, found, synsets)
        self.gathering.add("attribute", place, pairs - {""})

    def _relationships(self, place: int, image_id: str, listed: list[Any]) -> None:
        found: set[str] = set()
        synsets: set[str] = set()
        relations: set[str] = set()
        for entry in listed:
            if not isinstance(entry, dict):
                self.problems.add("relation that is no JSON object, left out", image_id)
                continue
            ends = []
            for end in ("subject", "object"):
                names = self._names(place, image_id, entry.get(end))
                found.update(names)
                if names:
                    synsets.update(self.names.clean_all(entry[end].get("synsets")))
                ends.append(names)
            predicate = self.names.clean(entry.get("predicate"))
            if not self.options.relations:
                continue
            if not predicate or not all(ends):
                self.problems.add("relation to no object that counts, left out", image_id)
                continue
            relations.update(
                self.relations.value(subject, f"{predicate} {other}", image_id)
                for subject in ends[0]
                for other in ends[1]
            )
        self._add(place, found, synsets)
        self.gathering.add("relation", place, relations - {""})

    def _add(self, place: int, found: set[str], synsets: set[str]) -> None:
        self.gathering.add("object", place, found)
        self.gathering.add("synset", place, synsets)
        if self.options.places:
            self.gathering.add("general", place, found & self.options.places)

    def _names(self, place: int, image_id: str, entry: Any) -> list[str]:
        """The names of an object that counts; none for one that does not."""
        if not isinstance(entry, dict):
            self.problems.add("object that is no JSON object, left out", image_id)
            return []
        stated = entry.get("names", entry.get("name", entry.get("object_names")))
        names = self.names.clean_all(stated)
        if not names:
            self.problems.add("object without a name, left out", image_id)
            return []
        least = self.options.min_box_area
        if least:
            box = (entry.get("x"), entry.get("y"), entry.get("w"), entry.get("h"))
            size = (self.gathering.fact(side, place) for side in ("width", "height"))
            share = box_share(box, *size)
            if not share >= least:
                why = "below the least box area" if share < least else "without a usable box"
                self.problems.add(f"object {why}, left out", image_id)
                return []
        return names

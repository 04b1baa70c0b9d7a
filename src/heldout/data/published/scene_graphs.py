"""Scene graphs of GQA and Visual Genome: objects, attributes and relations of each image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile
from heldout.data.published.json_stream import JsonFile, Progress, documents, open_json
from heldout.data.published.metashift import join_subset_name
from heldout.data.published.options import Names, Ontology, ReaderOptions, box_share
from heldout.data.published.pool_builder import PoolBuilder, Problems, id_text, pixels, plain_text


class Pairs:
    """Makes ``subject(context)`` values, and counts what cannot be one.

    An ``ontology`` lists the contexts to keep. Pairs are few and come often, so each is made once.
    """

    def __init__(
        self, what: str, names: Names, problems: Problems, ontology: Ontology | None = None
    ) -> None:
        self._what = what
        self._names = names
        self._problems = problems
        self._ontology = ontology
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def value(self, subject: str, context: object, where: str) -> str:
        """The value, or "" for a context that is not used."""
        if not isinstance(context, str):
            self._problems.add(f"{self._what} that is no text, left out", where)
            return ""
        known = self._known.get((subject, context))
        if known is None:
            known = self._known[subject, context] = self._make(subject, context)
        if not known[0]:
            self._problems.add(known[1], where)
        return known[0]

    def _make(self, subject: str, context: str) -> tuple[str, str]:
        name = self._names.clean(context)
        if not name:
            return "", f"{self._what} that is no text, left out"
        if self._ontology is not None and name not in self._ontology:
            return "", f"{self._what} that the ontology does not list, left out"
        return join_subset_name(subject, name), ""


GENERAL = ("location", "weather", "place", "room")
"""Fields of an image that name a general context."""


def read_gqa(
    paths: Sequence[Path], builder: PoolBuilder, options: ReaderOptions, progress: Progress
) -> None:
    """Gather scene graphs; several files (train and validation) make one pool."""
    reader = _Scenes(builder, options)
    for document in (document for path in paths for document in documents(path)):
        for image_id, scene in _scenes(document, progress):
            if builder.knows(image_id):
                builder.problems.add("image id that comes again, merged", image_id)
            reader.read(image_id, scene)


def _scenes(document: JsonFile, progress: Progress) -> Iterator[tuple[str, Any]]:
    with open_json(document, progress=progress) as stream:
        for image_id in stream.members():
            yield image_id, stream.value()
        stream.finish()


class _Scenes:
    """Reads one scene after the other into a builder."""

    def __init__(self, builder: PoolBuilder, options: ReaderOptions) -> None:
        self.builder = builder
        self.problems = builder.problems
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
        place = self.builder.image(image_id, image_id, facts)
        if place < 0:
            return
        kept = list(self._objects(image_id, scene, facts["width"], facts["height"]))
        named = {name for _, name, _ in kept}
        self.builder.add("object", place, named)
        if self.options.places:
            general |= named & self.options.places
        self.builder.add("general", place, general)
        self.builder.add("attribute", place, self._attributes(image_id, kept))
        if self.options.relations:
            self.builder.add("relation", place, self._relations(image_id, kept))

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


_LISTS = ("objects", "attributes", "relationships")
_SIZES = "image_data"


def read_visual_genome(
    paths: Sequence[Path], builder: PoolBuilder, options: ReaderOptions, progress: Progress
) -> None:
    """Gather files of Visual Genome; sizes of images are read first, as boxes need them."""
    kinds = [(_kind(document), document) for path in paths for document in documents(path)]
    reader = _Reader(builder, options)
    for kind, document in sorted(kinds, key=lambda pair: pair[0] != _SIZES):
        seen: set[str] = set()
        for place, entry in _vg_entries(document, progress):
            reader.read(kind, entry, f"{document.path.name} element {place + 1:,}", seen)


def _vg_entries(document: JsonFile, progress: Progress) -> Iterator[tuple[int, Any]]:
    with open_json(document, progress=progress) as stream:
        for place in stream.elements():
            yield place, stream.value()
        stream.finish()


def _kind(document: JsonFile) -> str:
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
    """Reads one image of one file after the other into a builder."""

    def __init__(self, builder: PoolBuilder, options: ReaderOptions) -> None:
        self.builder = builder
        self.problems = builder.problems
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
        place = self.builder.image(image_id, where, facts)
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
        self.builder.add("attribute", place, pairs - {""})

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
        self.builder.add("relation", place, relations - {""})

    def _add(self, place: int, found: set[str], synsets: set[str]) -> None:
        self.builder.add("object", place, found)
        self.builder.add("synset", place, synsets)
        if self.options.places:
            self.builder.add("general", place, found & self.options.places)

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
            size = (self.builder.fact(side, place) for side in ("width", "height"))
            share = box_share(box, *size)
            if not share >= least:
                why = "below the least box area" if share < least else "without a usable box"
                self.problems.add(f"object {why}, left out", image_id)
                return []
        return names

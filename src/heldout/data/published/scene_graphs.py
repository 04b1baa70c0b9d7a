"""Scene graphs of GQA and Visual Genome: objects, attributes and relations of each image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile
from heldout.data.published.annotations import Names, box_share, read_ontology, read_words
from heldout.data.published.json_stream import JsonFile, Progress, documents, open_json
from heldout.data.published.metashift import join_subset_name
from heldout.data.published.pool_builder import PoolBuilder, id_text, plain_text
from heldout.data.published.requests import SceneGraphs

GENERAL = ("location", "weather", "place", "room")
"""Fields of an image that name a general context."""


class _Scenes:
    """What both formats say of an image, into a builder."""

    def __init__(self, builder: PoolBuilder, options: SceneGraphs, *, lower: bool) -> None:
        self.builder = builder
        self.problems = builder.problems
        self.options = options
        self.ontology = read_ontology(options.ontology)
        self.places = frozenset() if options.places is None else read_words(options.places)
        self.names = Names(lower=lower)
        self._pairs: dict[tuple[str, str, str], str] = {}

    def is_object(self, entry: Any, what: str, where: str, *, image_lost: bool = False) -> bool:
        """Whether a value is a JSON object; one that is not is left out and counted."""
        if isinstance(entry, dict):
            return True
        self.problems.add(f"{what}, left out", where, image_lost=image_lost)
        return False

    def names_of(self, entry: Any, size: tuple[Any, Any], where: str) -> list[str]:
        """The names of an object that counts; none for one that does not."""
        if not self.is_object(entry, "object that is no JSON object", where):
            return []
        names = self.names.clean_all(
            entry.get("names", entry.get("name", entry.get("object_names")))
        )
        least = self.options.min_box_area
        if not names:
            self.problems.add("object without a name, left out", where)
        elif least:
            box = (entry.get("x"), entry.get("y"), entry.get("w"), entry.get("h"))
            share = box_share(box, *size)
            if not share >= least:
                why = "below the least box area" if share < least else "without a usable box"
                self.problems.add(f"object {why}, left out", where)
                return []
        return names

    def attributes(self, names: Sequence[str], entry: dict[str, Any], where: str) -> list[str]:
        """``name(attribute)`` of one object; "" for those that do not count."""
        stated = entry.get("attributes")
        if isinstance(stated, str):
            stated = [stated]
        if stated and not isinstance(stated, list):
            self.problems.add("attributes that are no list, left out", where)
            return []
        return [self._pair("attribute", n, text, where) for text in stated or () for n in names]

    def relations(
        self, subjects: Sequence[str], predicate: Any, others: Sequence[str], where: str
    ) -> list[str]:
        """``subject(predicate other)`` of all pairs of names."""
        verb = self.names.clean(predicate)
        if not verb or not subjects or not others:
            self.problems.add("relation to no object that counts, left out", where)
            return []
        return [
            self._pair("relation", subject, f"{verb} {other}", where)
            for subject in subjects
            for other in others
        ]

    def _pair(self, what: str, subject: str, context: Any, where: str) -> str:
        """``subject(context)``, or "" for a context that is not used."""
        if isinstance(context, str):
            # Pairs are few and come often, so each is made once.
            known = self._pairs.get((what, subject, context))
            if known is None:
                name = self.names.clean(context)
                counts = bool(name) and (what != "attribute" or self._listed(name))
                known = join_subset_name(subject, name) if counts else ""
                self._pairs[what, subject, context] = known
            if known:
                return known
        is_name = bool(self.names.clean(context))
        why = "the ontology does not list" if is_name else "is no text"
        self.problems.add(f"{what} that {why}, left out", where)
        return ""

    def _listed(self, name: str) -> bool:
        return self.ontology is None or name in self.ontology

    def add(self, place: int, named: set[str], **columns: set[str]) -> None:
        """Memberships of one image: its objects, general contexts, and further columns."""
        self.builder.add("object", place, named)
        columns["general"] = columns.get("general", set()) | (named & self.places)
        for column, values in columns.items():
            self.builder.add(column, place, values - {""})


def read_gqa(
    paths: Sequence[Path], builder: PoolBuilder, options: SceneGraphs, progress: Progress
) -> None:
    """Gather scene graphs; several files (train and validation) make one pool."""
    scenes = _Scenes(builder, options, lower=False)
    for document in (document for path in paths for document in documents(path)):
        with open_json(document, progress=progress) as stream:
            for image_id in stream.members():
                if builder.knows(image_id):
                    builder.problems.add("image id that comes again, merged", image_id)
                _read_scene(scenes, image_id, stream.value())
            stream.finish()


def _read_scene(scenes: _Scenes, image_id: str, scene: Any) -> None:
    if not scenes.is_object(scene, "image that is no object", image_id, image_lost=True):
        return
    facts: dict[str, Any] = scenes.builder.sizes(scene, image_id)
    size = facts["width"], facts["height"]
    general: set[str] = set()
    for field in GENERAL:
        if scene.get(field) is not None:
            found = scenes.names.clean_all(scene[field])
            if not found:
                scenes.problems.add(f"{field} that is no text, left out", image_id)
            general.update(found)
            facts[field] = found[0] if len(found) == 1 else None
    place = scenes.builder.image(image_id, image_id, facts)
    if place < 0:
        return
    kept: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for key, entry in _entries(scene.get("objects")):
        names = scenes.names_of(entry, size, image_id)
        if names:
            kept[key] = names, entry
    attributes: set[str] = set()
    relations: set[str] = set()
    for names, entry in kept.values():
        attributes.update(scenes.attributes(names, entry, image_id))
        for _, relation in _entries(entry.get("relations")) if scenes.options.relations else ():
            if scenes.is_object(relation, "relation that is no JSON object", image_id):
                others, _ = kept.get(str(relation.get("object")), ((), {}))
                relations.update(scenes.relations(names, relation.get("name"), others, image_id))
    named = {name for names, _ in kept.values() for name in names}
    scenes.add(place, named, general=general, attribute=attributes, relation=relations)


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
    paths: Sequence[Path], builder: PoolBuilder, options: SceneGraphs, progress: Progress
) -> None:
    """Gather files of Visual Genome; sizes of images are read first, as boxes need them."""
    kinds = [(_kind(document), document) for path in paths for document in documents(path)]
    scenes = _Scenes(builder, options, lower=True)
    for kind, document in sorted(kinds, key=lambda pair: pair[0] != _SIZES):
        seen: set[str] = set()
        with open_json(document, progress=progress) as stream:
            for place in stream.elements():
                where = f"{document.path.name} element {place + 1:,}"
                _read_image(scenes, kind, stream.value(), where, seen)
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


def _read_image(scenes: _Scenes, kind: str, entry: Any, where: str, seen: set[str]) -> None:
    """Gather one image as one file lists it."""
    if not scenes.is_object(entry, "image that is no object", where, image_lost=True):
        return
    builder = scenes.builder
    image_id = id_text(entry.get("image_id", entry.get("id")))
    if image_id in seen:
        scenes.problems.add("image id that comes again, merged", image_id)
    seen.add(image_id)
    facts = {"uri": plain_text(entry.get("image_url", entry.get("url")))}
    place = builder.image(image_id, where, facts | builder.sizes(entry, image_id or where))
    if place < 0 or kind == _SIZES:
        return
    listed = entry.get(kind)
    if not isinstance(listed, list):
        scenes.problems.add(f"image without a list of {kind}", image_id)
        return
    size = builder.fact("width", place), builder.fact("height", place)
    named: set[str] = set()
    synsets: set[str] = set()
    pairs: set[str] = set()

    def names_of(stated: Any) -> list[str]:
        names = scenes.names_of(stated, size, image_id)
        if names:
            named.update(names)
            synsets.update(scenes.names.clean_all(stated.get("synsets")))
        return names

    for one in listed:
        if kind != "relationships":
            if names := names_of(one):
                pairs.update(scenes.attributes(names, one, image_id))
        elif scenes.is_object(one, "relation that is no JSON object", image_id):
            subjects, others = names_of(one.get("subject")), names_of(one.get("object"))
            if scenes.options.relations:
                pairs.update(scenes.relations(subjects, one.get("predicate"), others, image_id))
    column = "relation" if kind == "relationships" else "attribute"
    scenes.add(place, named, synset=synsets, **{column: pairs})

"""Scene graphs of GQA and Visual Genome: objects, attributes and relations of each image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile
from heldout.data.published.annotations import box_problem, clean_names, read_ontology
from heldout.data.published.json_stream import JsonFile, Progress, documents, open_json
from heldout.data.published.metashift import join_subset_name
from heldout.data.published.pool_builder import PoolBuilder, id_text, plain_text
from heldout.data.published.requests import SceneGraphsRequest

GENERAL = ("location", "weather", "place", "room")
"""Fields of an image that name a general context."""


class _Scenes:
    """What both formats say of an image, into a builder."""

    def __init__(self, builder: PoolBuilder, options: SceneGraphsRequest, *, lower: bool) -> None:
        self.builder = builder
        self.problems = builder.problems
        self.options = options
        self.ontology = read_ontology(options.ontology)
        self._lower = lower

    def is_object(self, entry: Any, what: str, where: str, *, image_lost: bool = False) -> bool:
        """Whether a value is a JSON object; one that is not is left out and counted."""
        if isinstance(entry, dict):
            return True
        self.problems.add(f"{what}, left out", where, image_lost=image_lost)
        return False

    def names(self, values: Any) -> list[str]:
        """The names of a list, or the one name; Visual Genome's are written in many ways."""
        found = clean_names(values)
        return [name.lower() for name in found] if self._lower else found

    def names_of(self, entry: Any, size: tuple[Any, Any], where: str) -> list[str]:
        """The names of an object that counts; none for one that does not."""
        if not self.is_object(entry, "object that is no JSON object", where):
            return []
        names = self.names(entry.get("names", entry.get("name", entry.get("object_names"))))
        wrong = "" if names else "object without a name, left out"
        if names and self.options.min_box_area:
            box = tuple(entry.get(key) for key in "xywh")
            wrong = box_problem(box, size, self.options.min_box_area)
        if wrong:
            self.problems.add(wrong, where)
        return [] if wrong else names

    def attributes(self, names: Sequence[str], entry: dict[str, Any], where: str) -> set[str]:
        """``name(attribute)`` of one object."""
        stated = entry.get("attributes")
        if isinstance(stated, str):
            stated = [stated]
        if stated and not isinstance(stated, list):
            self.problems.add("attributes that are no list, left out", where)
            return set()
        found: set[str] = set()
        for text in stated or ():
            attribute = "".join(self.names([text]))
            if not attribute:
                self.problems.add("attribute that is not text, left out", where, times=len(names))
            elif self.ontology is not None and attribute not in self.ontology:
                what = "attribute that the ontology does not list, left out"
                self.problems.add(what, where, times=len(names))
            else:
                found.update(join_subset_name(name, attribute) for name in names)
        return found


def read_gqa(
    paths: Sequence[Path], builder: PoolBuilder, options: SceneGraphsRequest, progress: Progress
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
    builder = scenes.builder
    facts: dict[str, Any] = builder.sizes(scene, image_id)
    size = facts["width"], facts["height"]
    general: set[str] = set()
    for field in GENERAL:
        if scene.get(field) is not None:
            found = scenes.names(scene[field])
            if not found:
                scenes.problems.add(f"{field} that is not text, left out", image_id)
            general.update(found)
            facts[field] = found[0] if len(found) == 1 else None
    place = builder.image(image_id, image_id, facts)
    if place < 0:
        return
    named: set[str] = set()
    attributes: set[str] = set()
    for entry in _objects(scene.get("objects")):
        names = scenes.names_of(entry, size, image_id)
        if names:
            named.update(names)
            attributes |= scenes.attributes(names, entry, image_id)
    for column, values in (("object", named), ("general", general), ("attribute", attributes)):
        builder.add(column, place, values)


def _objects(value: Any) -> Iterable[Any]:
    """The objects of an image, in an object by key or in a list."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list):
        return value
    return () if value is None else (value,)


_LISTS = ("objects", "attributes", "relationships")
_SIZES = "image_data"


def read_visual_genome(
    paths: Sequence[Path], builder: PoolBuilder, options: SceneGraphsRequest, progress: Progress
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
    columns: dict[str, set[str]] = {
        column: set() for column in ("object", "synset", "attribute", "relation")
    }

    def names_of(stated: Any) -> list[str]:
        names = scenes.names_of(stated, size, image_id)
        if names:
            columns["object"].update(names)
            columns["synset"].update(scenes.names(stated.get("synsets")))
        return names

    for one in listed:
        if kind != "relationships":
            if names := names_of(one):
                columns["attribute"] |= scenes.attributes(names, one, image_id)
        elif scenes.is_object(one, "relation that is no JSON object", image_id):
            subjects, others = names_of(one.get("subject")), names_of(one.get("object"))
            verb = "".join(scenes.names([one.get("predicate")]))
            if not verb or not subjects or not others:
                scenes.problems.add("relation to no object that counts, left out", image_id)
            columns["relation"].update(
                join_subset_name(subject, f"{verb} {other}")
                for subject in subjects
                for other in others
                if verb
            )
    for column, values in columns.items():
        builder.add(column, place, values)

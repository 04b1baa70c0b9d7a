"""Label maps in files: a CSV of pairs, a plain JSON object, or the JSON that heldout writes.

CSV, one accepted class a row; columns ``target`` and one of

    ``source``        a class id of the source label space
    ``source_index``  its index
    ``source_name``   its name; a name that fits several classes is refused

Plain JSON: ``{"target": source}`` or ``{"target": [source, ...]}``, where a text is a class id and
an integer an index. A name is never taken for an id.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import existing_file, read_json, write_json
from heldout.core.workspace import slug
from heldout.data.labels.label_maps import KINDS, READINGS, LabelMap, Reading
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.map_kinds import hierarchy_map, identity_map, many_to_one_map, subset_map
from heldout.data.labels.published import PUBLISHED_SUBSETS, published_map

SCHEMA_VERSION = 1
FITTED = ("subset:restricted", "subset:full", "hierarchy:restricted", "hierarchy:full")
"""Maps to the label space of whatever test set is evaluated."""
_SOURCE_COLUMNS = ("source", "source_index", "source_name")


def read_label_map(
    path: str | Path,
    *,
    source: LabelSpace | None = None,
    target: LabelSpace | None = None,
    reading: Reading | None = None,
) -> LabelMap:
    """Read a label map from a ``.csv`` or ``.json`` file.

    ``source`` and ``reading`` are needed unless the file says them. Without ``target`` the target
    classes are those of the file, in its order. The map is named after the file.
    """
    path = existing_file(Path(path), "label map")
    try:
        if path.suffix.lower() == ".json":
            value = read_json(path)
            if isinstance(value, dict) and value.get("kind") == "label_map":
                return _from_dict(value, source, reading)
            refuse_repeated_keys(path)
            pairs = _json_pairs(value, _needed_source(source))
        elif path.suffix.lower() == ".csv":
            pairs = _csv_pairs(path, _needed_source(source))
        else:
            raise LabelError("is neither .csv nor .json", fix="rename or convert it")
        if reading is None:
            raise LabelError(
                "does not say how the argmax is read",
                fix=f"give reading={' or '.join(READINGS)}, on the command line FILE:READING",
            )
        groups: dict[str, list[str]] = {}
        for target_id, source_id in pairs:
            groups.setdefault(target_id, []).append(source_id)
        return many_to_one_map(
            _needed_source(source),
            groups,
            reading=reading,
            name=slug(path.stem),
            target=target,
        )
    except LabelError as error:
        raise LabelError(f"{path}: {error.message}", fix=error.fix) from None
    except csv.Error as error:  # such as a quote that is never closed
        raise LabelError(f"{path}: is not a CSV table ({error})", fix="mend it") from None


def write_label_map(label_map: LabelMap, path: str | Path) -> None:
    """Write a map as JSON that :func:`read_label_map` reads back as an equal map."""
    write_json(Path(path), label_map_to_dict(label_map))


def label_map_to_dict(label_map: LabelMap) -> dict[str, Any]:
    """A map as a JSON object: both label spaces by value, accepted sets by id."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "label_map",
        "name": label_map.name,
        "map_kind": label_map.kind,
        "reading": label_map.reading,
        "allow_overlap": label_map.allow_overlap,
        "source": label_map.source.to_dict(),
        "target": label_map.target.to_dict(),
        "accepted": {
            class_id: list(label_map.accepted_ids(class_id)) for class_id in label_map.target.ids
        },
    }


def load_label_map(
    text: str | Path,
    *,
    source: LabelSpace | None = None,
    target: LabelSpace | None = None,
    reading: Reading | None = None,
) -> LabelMap:
    """A map by what :meth:`LabelMap.describe` wrote, by built-in name, or by file.

    ``imagenet-a`` takes its authors' reading; ``imagenet-a:full`` says another, and so does
    ``FILE.csv:full`` of a file. With ``target``, the label space of a test set, ``subset:full`` and
    ``subset:restricted`` are its classes among the source's, and ``hierarchy:full`` and
    ``hierarchy:restricted`` take for each of them all source classes at or under it in WordNet; the
    targets of a file that are its classes stand in its order.
    """
    wanted = os.fspath(text)
    if wanted == "identity":
        return identity_map(_needed_source(source))
    if target is not None and wanted in FITTED:
        make = subset_map if wanted.startswith("subset:") else hierarchy_map
        fitted: Reading = "full" if wanted.endswith(":full") else "restricted"
        return make(_needed_source(source), target, reading=fitted)
    name = wanted
    for said in READINGS:
        if wanted.endswith(f":{said}"):
            name, reading = wanted.removesuffix(f":{said}"), said
    if name != wanted and name.startswith("subset:"):
        name = name.removeprefix("subset:")
    if name in PUBLISHED_SUBSETS:
        made = published_map(name, reading=reading)
    elif Path(name).suffix.lower() in (".csv", ".json"):
        made = read_label_map(name, source=source, reading=reading)
        return made if target is None else _in_order_of(made, target)
    else:
        raise LabelError(
            f"no label map {wanted!r}",
            fix=f"use identity, a .csv or .json file, or one of {', '.join(PUBLISHED_SUBSETS)}"
            + ("" if target is None else f", {', '.join(FITTED)}"),
        )
    if source is not None and source.fingerprint != made.source.fingerprint:
        raise LabelError(
            f"label map {wanted} is from {made.source.name}, the predictions are in {source.name}",
            fix="give a map from that label space",
        )
    return made


def _in_order_of(made: LabelMap, target: LabelSpace) -> LabelMap:
    """A map whose targets are the classes of ``target``, in its order; any other as it is."""
    if set(made.target.ids) != set(target.ids):
        return made
    accepted = tuple(made.accepted[made.target.index(class_id)] for class_id in target.ids)
    return replace(made, target=target, accepted=accepted)


def _needed_source(source: LabelSpace | None) -> LabelSpace:
    if source is None:
        raise LabelError("the source label space is not known", fix="give source=")
    return source


def _from_dict(
    value: dict[str, Any], source: LabelSpace | None, reading: Reading | None
) -> LabelMap:
    version = value.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise LabelError(f"has schema_version {version!r}", fix="upgrade heldout")
    for key, kind in (("name", str), ("source", dict), ("target", dict), ("accepted", dict)):
        if not isinstance(value.get(key), kind):
            raise LabelError(f"has no good {key!r}", fix="write the file again")
    if value.get("map_kind") not in KINDS:
        raise LabelError(
            f"{value.get('map_kind')!r} is no kind", fix=f"use one of {', '.join(KINDS)}"
        )
    own, target = LabelSpace.from_dict(value["source"]), LabelSpace.from_dict(value["target"])
    if source is not None and source.fingerprint != own.fingerprint:
        raise LabelError(
            f"is from label space {own.name}, the predictions are in {source.name}",
            fix="give a map from that label space",
        )
    accepted: dict[str, Any] = value["accepted"]
    for key, ids in accepted.items():
        target.index(key)
        if not isinstance(ids, list):
            raise LabelError(f"accepted classes of {key!r} are no list", fix="write the file again")
    return LabelMap(
        value["name"],
        value["map_kind"],
        own,
        target,
        tuple(tuple(sorted({own.index(i) for i in accepted.get(key, [])})) for key in target.ids),
        reading or value.get("reading", ""),
        allow_overlap=value.get("allow_overlap") is True,
    )


def refuse_repeated_keys(path: Path) -> None:
    """JSON readers keep the last of equal keys, which would drop accepted classes silently."""

    def checked(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise LabelError(f"{twice!r} is there twice", fix="give it one list of classes")

    json.loads(path.read_bytes(), object_pairs_hook=checked)


def _json_pairs(value: Any, source: LabelSpace) -> Iterable[tuple[str, str]]:
    if not isinstance(value, dict) or not value or "schema_version" in value:
        raise LabelError("is no label map", fix='write {"target": ["source", ...], ...}')
    for target_id, entries in value.items():
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, bool) or not isinstance(entry, int | str):
                raise LabelError(
                    f"{target_id!r} accepts {entry!r}", fix="write class ids or indices"
                )
            if isinstance(entry, int):
                yield target_id, _id_at(source, entry)
            else:
                yield target_id, source.get(entry).id
        if entries == []:
            raise LabelError(f"{target_id!r} accepts nothing", fix="give it a class, or remove it")


def _csv_pairs(path: Path, source: LabelSpace) -> Iterable[tuple[str, str]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    columns = reader.fieldnames or []
    named = [column for column in _SOURCE_COLUMNS if column in columns]
    if "target" not in columns or len(named) != 1:
        raise LabelError(
            f"has the columns {', '.join(columns) or 'none'}",
            fix=f"give it target and one of {', '.join(_SOURCE_COLUMNS)}",
        )
    resolve: dict[str, Callable[[str], str]] = {
        "source": lambda cell: source.get(cell).id,
        "source_index": lambda cell: _id_at(source, _integer(cell)),
        "source_name": lambda cell: source.by_name(cell).id,
    }
    rows = 0
    for row in reader:
        target_id, cell = row.get("target"), row.get(named[0])
        if not target_id or not cell:
            raise LabelError(f"line {reader.line_num} is incomplete", fix="fill in both columns")
        try:
            yield target_id, resolve[named[0]](cell)
        except LabelError as error:
            raise LabelError(f"line {reader.line_num}: {error.message}", fix=error.fix) from None
        rows += 1
    if not rows:
        raise LabelError("has no rows", fix="write one accepted class a row")


def _integer(cell: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise LabelError(f"{cell!r} is no index", fix="write an integer") from None


def _id_at(source: LabelSpace, index: int) -> str:
    if not 0 <= index < len(source):
        raise LabelError(
            f"index {index} is outside 0 to {len(source) - 1}", fix=f"use indices of {source.name}"
        )
    return source.ids[index]

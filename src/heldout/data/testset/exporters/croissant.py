"""Croissant: a JSON-LD description of a test set that ML catalogues and loaders read.

Written for Croissant 1.0 (MLCommons). The label space is an enumeration; the images are a record
set over one Parquet table, whose field ``class_id`` refers to it. Files are named with SHA-256.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.files import sha256_file, write_text
from heldout.data.testset.catalogue import bibtex
from heldout.data.testset.exporters.images import ImageExport
from heldout.data.testset.exporters.tables import joined_table
from heldout.data.testset.testset import TestSet

if TYPE_CHECKING:
    import pyarrow as pa

_TERMS = (
    "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject",
    "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField",
    "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator",
    "source", "subField", "transform",
)  # fmt: skip
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _TERMS},
}
"""The context of Croissant 1.0; a reader warns of any other."""


def write_croissant(run: ImageExport, folder: Path) -> int:
    """Write ``croissant.json`` and the Parquet table that it describes, images without a class too."""
    import pyarrow.parquet as pq

    table, path = joined_table(run.testset, run.truth), folder / "images.parquet"
    run.failures.clear()
    run.kept = run.rows
    pq.write_table(table, path)
    text = json.dumps(describe(run.testset, table, path), indent=2, ensure_ascii=False) + "\n"
    write_text(folder / "croissant.json", text)
    return len(table)


def describe(testset: TestSet, table: pa.Table, path: Path) -> dict[str, Any]:
    """The JSON-LD of a test set whose joined table is the file ``path``."""
    card = testset.card
    licences = [name for name in card.licences if name != "unknown"]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": testset.name,
        "description": (
            f"{len(testset)} images for image classification in label space "
            f"{testset.label_space.name} ({len(testset.label_space)} classes); "
            f"content hash {card.content_hash}."
        ),
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "citeAs": bibtex(card),
        "license": licences or ["unknown"],
        "version": "1.0.0",
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "table",
                "name": path.name,
                "contentUrl": path.name,
                "contentSize": f"{path.stat().st_size} B",
                "encodingFormat": "application/x-parquet",
                "sha256": sha256_file(path),
            }
        ],
        "recordSet": [_classes(testset), _images(table)],
    }


def _classes(testset: TestSet) -> dict[str, Any]:
    """The label space as an enumeration: id, name and index of every class."""
    return {
        "@type": "cr:RecordSet",
        "@id": "classes",
        "name": "classes",
        "description": f"The classes of {testset.label_space.name}, in order.",
        "dataType": "sc:Enumeration",
        "key": {"@id": "classes/class_id"},
        "field": [
            _field("classes/class_id", "sc:Text"),
            _field("classes/name", "sc:Text"),
            _field("classes/index", "sc:Integer"),
        ],
        "data": [
            {"classes/class_id": item.id, "classes/name": item.name, "classes/index": index}
            for index, item in enumerate(testset.label_space)
        ],
    }


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"@type": "cr:Field", "@id": name, "name": name.split("/", 1)[1], "dataType": kind}


def _images(table: pa.Table) -> dict[str, Any]:
    """The images as a record set over the columns of the table."""
    import pyarrow as pa

    fields: list[dict[str, Any]] = []
    for column in table.schema:
        repeated = pa.types.is_list(column.type)
        kind = column.type.value_type if repeated else column.type
        field = _field(f"images/{column.name}", _data_type(kind))
        if repeated:
            field["repeated"] = True
        field["source"] = {"fileObject": {"@id": "table"}, "extract": {"column": column.name}}
        if column.name == "class_id":
            field["references"] = {"field": {"@id": "classes/class_id"}}
        fields.append(field)
    return {
        "@type": "cr:RecordSet",
        "@id": "images",
        "name": "images",
        "description": "One record for each image and class.",
        "key": [{"@id": "images/image_id"}, {"@id": "images/class_id"}],
        "field": fields,
    }


def _data_type(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    return "sc:Float" if pa.types.is_floating(kind) else "sc:Text"

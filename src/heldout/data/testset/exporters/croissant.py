"""Croissant: a JSON-LD description of a test set that ML catalogues and loaders read.

Written for Croissant 1.0 (MLCommons). The label space is an enumeration; the images are a record
set over one Parquet table, whose field ``class_id`` refers to it. Files are named with SHA-256.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.files import sha256_file, write_text
from heldout.data.testset.catalogue import bibtex
from heldout.data.testset.exporters.images import FileNames, ImageExport, image_suffix
from heldout.data.testset.exporters.tables import joined_table
from heldout.data.testset.testset import TestSet

if TYPE_CHECKING:
    import pyarrow as pa

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def write_croissant(run: ImageExport, folder: Path) -> int:
    """Write ``croissant.json`` and the Parquet table that it describes.

    Copies of images go into one tar file, and the record set then has a field ``image`` whose
    content a loader can read.
    """
    import pyarrow.parquet as pq

    table = joined_table(run.testset, run.truth)
    files = {"table": folder / "images.parquet"}
    if run.copy:
        files["archive"] = folder / f"images-{run.testset.card.images_hash[:12]}.tar"
        names = _write_archive(run, files["archive"])
        run.kept = [row for row in run.rows if row.image_id in names]
        table = _with_file_names(table, names)
    else:
        run.failures.clear()  # the table has images without a class too
        run.kept = run.rows
    pq.write_table(table, files["table"])
    value = describe(run.testset, table, files)
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_text(folder / "croissant.json", text)
    return len(table)


def _write_archive(run: ImageExport, path: Path) -> dict[str, str]:
    """Write every image once into a tar file; image -> its file name there."""
    taken = FileNames()
    names: dict[str, str] = {}
    first = {row.image_id: row for row in reversed(run.rows)}  # an image's first class names it
    once = [row for row in run.rows if first[row.image_id] is row]
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for row, data in run.read(once):
            names[row.image_id] = taken.take("", row, image_suffix(data))
            info = tarfile.TarInfo(f"images/{names[row.image_id]}")
            info.size = len(data)
            info.mode = 0o644
            tar.addfile(info, io.BytesIO(data))
    return names


def _with_file_names(table: pa.Table, names: dict[str, str]) -> pa.Table:
    """The rows whose image was copied, with the name of its file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(list(names), pa.string())
    table = table.filter(pc.is_in(table["image_id"], value_set=known))
    files = [names[image] for image in table["image_id"].to_pylist()]
    return table.append_column("file_name", pa.array(files, pa.string()))


def describe(testset: TestSet, table: pa.Table, files: dict[str, Path]) -> dict[str, Any]:
    """The JSON-LD of a test set whose joined table (and archive of images) are ``files``."""
    card = testset.card
    licences = [name for name in card.licences if name != "unknown"]
    value: dict[str, Any] = {
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
    }
    value["distribution"] = [
        _file_object("table", files["table"], "application/x-parquet"),
    ]
    if "archive" in files:
        value["distribution"] += [
            _file_object("archive", files["archive"], "application/x-tar"),
            {
                "@type": "cr:FileSet",
                "@id": "image-files",
                "name": "image-files",
                "containedIn": {"@id": "archive"},
                "encodingFormat": "image/*",
                "includes": "images/*",
            },
        ]
    value["recordSet"] = [_classes(testset), _images(table, with_files="archive" in files)]
    return value


def _file_object(name: str, path: Path, form: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": path.name,
        "contentUrl": path.name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": form,
        "sha256": sha256_file(path),
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


def _file_property(name: str) -> dict[str, Any]:
    return {"fileSet": {"@id": "image-files"}, "extract": {"fileProperty": name}}


def _images(table: pa.Table, *, with_files: bool) -> dict[str, Any]:
    """The images as a record set over the columns of the table."""
    import pyarrow as pa

    fields: list[dict[str, Any]] = []
    if with_files:
        # Files on the left of the join, and first: mlcroissant makes one join only, and reads the
        # content of a joined record from the left side's file.
        file_name = _field("images/file_name", "sc:Text")
        file_name["source"] = _file_property("filename")
        file_name["references"] = {
            "fileObject": {"@id": "table"},
            "extract": {"column": "file_name"},
        }
        image = _field("images/image", "sc:ImageObject")
        image["source"] = _file_property("content")
        fields += [file_name, image]
    for column in table.schema:
        if with_files and column.name == "file_name":
            continue
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

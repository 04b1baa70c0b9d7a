"""All export formats behind one call; folders by class, and attributions alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heldout.core.errors import UserError
from heldout.core.files import csv_text, write_text
from heldout.data.images import sha256_bytes
from heldout.data.testset.exporters.croissant import write_croissant
from heldout.data.testset.exporters.huggingface import write_huggingface
from heldout.data.testset.exporters.images import (
    Export,
    FileNames,
    ImageExport,
    Images,
    image_suffix,
    safe_name,
)
from heldout.data.testset.exporters.tables import export_tabular
from heldout.data.testset.exporters.webdataset import write_webdataset
from heldout.data.testset.testset import TestSet


def write_folders(run: ImageExport, folder: Path, *, by: Literal["class_id", "index"]) -> int:
    """Write ``<folder>/<class>/<file>`` and ``manifest.csv``.

    Folders are class ids (WordNet ids for ImageNet), or with ``by="index"`` positions in the label
    space, 0 to N - 1. The manifest has image_id, class_id, index, sha256 and path; without copies
    of the images it is written alone, for files that are elsewhere.
    """
    empty = len(run.testset.label_space) - len({row.index for row in run.rows})
    if empty:
        run.notes.append(
            f"{empty} classes have no image: a loader that numbers folders counts them wrong, "
            "take the index from manifest.csv"
        )
    if by == "index":
        run.notes.append("folders 0, 1, 10 sort as texts: take the index from manifest.csv")
    names = FileNames()
    manifest = []
    for row, data in run.read():
        label = safe_name(row.class_id) if by == "class_id" else str(row.index)
        path = f"{label}/{names.take(label, row, image_suffix(data))}"
        digest = row.sha256 or ""
        if run.copy:
            (folder / label).mkdir(exist_ok=True)
            (folder / path).write_bytes(data)
            digest = digest or sha256_bytes(data)
        manifest.append((row.image_id, row.class_id, row.index, digest, path))
    fields = ("image_id", "class_id", "index", "sha256", "path")
    write_text(folder / "manifest.csv", csv_text(fields, manifest))
    return len(manifest)


def write_no_images(run: ImageExport, folder: Path) -> int:
    """Write nothing: ``ATTRIBUTIONS.md`` and ``attributions.csv`` come with every export."""
    run.kept = run.rows
    return len(run.rows)


class Format(NamedTuple):
    """A way to export images.

    ``name``     in the record of the export
    ``write``    fills a folder, and gives the number of rows
    ``options``  as the record has them; ``copy_images`` is what was asked for
    ``copies``   whether images are copied unless asked otherwise
    """

    name: str
    write: Callable[[ImageExport, Path], int]
    options: Mapping[str, Any]
    copies: bool = True


_BY_CLASS = {"by": "class_id", "copy_images": True}
_BY_INDEX = {"by": "index", "copy_images": True}
_HUGGING_FACE = {"metadata": "jsonl", "split": "test", "copy_images": True}
_WEBDATASET = {
    "split": "test",
    "templates": ["a photo of a {c}."],
    "class_names": [],
    "max_count": 10_000,
    "max_bytes": 1_000_000_000,
}
_CROISSANT = {"copy_images": False, "url": None, "version": "1.0.0", "date_published": None}
_IMAGES = {
    "folders": Format("wnid-folders", partial(write_folders, by="class_id"), _BY_CLASS),
    "index-folders": Format("wnid-folders", partial(write_folders, by="index"), _BY_INDEX),
    "huggingface": Format("huggingface", write_huggingface, _HUGGING_FACE),
    "webdataset": Format("webdataset", write_webdataset, _WEBDATASET),
    "croissant": Format("croissant", write_croissant, _CROISSANT, copies=False),
    "attributions": Format("attributions", write_no_images, {}, copies=False),
}
FORMATS = (
    "folders",
    "index-folders",
    "huggingface",
    "webdataset",
    "croissant",
    "table",
    "attributions",
)


def export(
    testset: TestSet,
    to: Path,
    *,
    form: str = "folders",
    truth: str | None = None,
    images: Images | None = None,
    copy_images: bool | None = None,
    allow_licence: bool = False,
    replace: bool = False,
) -> Export:
    """Export a test set in one of :data:`FORMATS`; ``copy_images=None`` is the format's default."""
    if form == "table":
        return export_tabular(testset, to, truth=truth, replace=replace)
    if form not in _IMAGES:
        raise UserError(f"no format {form!r}", fix=f"use one of {', '.join(FORMATS)}")
    chosen = _IMAGES[form]
    options = dict(chosen.options)
    copy = chosen.copies
    if "copy_images" in options and copy_images is not None:
        copy = options["copy_images"] = copy_images
    run = ImageExport(testset, truth, copy=copy, images=images, allow_licence=allow_licence)
    return run.write(to, chosen.write, form=chosen.name, options=options, replace=replace)

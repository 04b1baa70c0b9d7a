"""All export formats behind one call; folders by class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

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
)
from heldout.data.testset.exporters.owned_folder import safe_name
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


_IMAGES: Mapping[str, tuple[Callable[[ImageExport, Path], int], tuple[bool, ...]]] = {
    "folders": (partial(write_folders, by="class_id"), (True, False)),
    "index-folders": (partial(write_folders, by="index"), (True, False)),
    "huggingface": (write_huggingface, (True, False)),
    "webdataset": (write_webdataset, (True,)),
    "croissant": (write_croissant, (False,)),
}
"""What writes each format, and whether images are copied: as it is by default, and if asked."""
FORMATS = (*_IMAGES, "table")


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
    write, choices = _IMAGES[form]
    copy = choices[0] if copy_images not in choices else bool(copy_images)
    run = ImageExport(testset, truth, copy=copy, images=images, allow_licence=allow_licence)
    return run.write(to, write, form=form, replace=replace)

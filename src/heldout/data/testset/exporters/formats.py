"""All export formats behind one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heldout.core.errors import UserError
from heldout.data.testset.exporters.croissant import export_croissant
from heldout.data.testset.exporters.huggingface import export_huggingface
from heldout.data.testset.exporters.owned_folder import Export, ImageExport
from heldout.data.testset.exporters.tables import export_tabular
from heldout.data.testset.exporters.webdataset import export_webdataset
from heldout.data.testset.exporters.wnid_folders import export_wnid_folders
from heldout.data.testset.testset import TestSet

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
    images: Path | None = None,
    copy_images: bool | None = None,
    allow_licence: bool = False,
    replace: bool = False,
) -> Export:
    """Export a test set in one of :data:`FORMATS`; ``copy_images=None`` is the format's default."""
    common: dict[str, Any] = {"truth": truth, "replace": replace}
    if form == "table":
        return export_tabular(testset, to, **common)
    if form == "attributions":
        return export_attributions(testset, to, **common)
    common |= {"images": images, "allow_licence": allow_licence}
    if form == "webdataset":
        return export_webdataset(testset, to, **common)
    if copy_images is not None:
        common["copy_images"] = copy_images
    if form == "folders":
        return export_wnid_folders(testset, to, **common)
    if form == "index-folders":
        return export_wnid_folders(testset, to, by="index", **common)
    if form == "huggingface":
        return export_huggingface(testset, to, **common)
    if form == "croissant":
        return export_croissant(testset, to, **common)
    raise UserError(f"no format {form!r}", fix=f"use one of {', '.join(FORMATS)}")


def export_attributions(
    testset: TestSet, folder: Path, *, truth: str | None = None, replace: bool = False
) -> Export:
    """Write ``ATTRIBUTIONS.md`` and ``attributions.csv`` of a test set, and nothing else."""
    run = ImageExport(testset, truth, copy=False)
    run.kept = run.rows
    return run.write(
        folder, lambda _: len(run.rows), form="attributions", options={}, replace=replace
    )

"""Folders named by class id or class index, with a manifest that says what each file is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from heldout.core.errors import UserError
from heldout.core.files import csv_text, write_text
from heldout.data.images import sha256_bytes
from heldout.data.testset.exporters.images import FileNames, Images, image_suffix, safe_name
from heldout.data.testset.exporters.owned_folder import Export, ImageExport
from heldout.data.testset.testset import TestSet

By = Literal["class_id", "index"]
FIELDS = ("image_id", "class_id", "index", "sha256", "path")


def export_wnid_folders(
    testset: TestSet,
    folder: Path,
    *,
    truth: str | None = None,
    by: By = "class_id",
    copy_images: bool = True,
    images: Images | None = None,
    allow_licence: bool = False,
    replace: bool = False,
) -> Export:
    """Write ``<folder>/<class>/<file>`` and ``manifest.csv``.

    Folders are class ids (WordNet ids for ImageNet), or with ``by="index"`` positions in the label
    space, 0 to N - 1. The manifest has image_id, class_id, index, sha256 and path; without
    ``copy_images`` it is written alone, for files that are elsewhere.
    """
    if by not in ("class_id", "index"):
        raise UserError(f"folders by {by!r}", fix="use class_id or index")
    run = ImageExport(testset, truth, copy=copy_images, images=images, allow_licence=allow_licence)
    empty = len(testset.label_space) - len({row.index for row in run.rows})
    if empty:
        run.notes.append(
            f"{empty} classes have no image: a loader that numbers folders counts them wrong, "
            "take the index from manifest.csv"
        )
    if by == "index":
        run.notes.append("folders 0, 1, 10 sort as texts: take the index from manifest.csv")

    def build(temporary: Path) -> int:
        names = FileNames()
        manifest = []
        for row, data in run.read():
            label = safe_name(row.class_id) if by == "class_id" else str(row.index)
            path = f"{label}/{names.take(label, row, image_suffix(data or b''))}"
            digest = row.sha256 or ""
            if data is not None:
                (temporary / label).mkdir(exist_ok=True)
                (temporary / path).write_bytes(data)
                digest = digest or sha256_bytes(data)
            manifest.append((row.image_id, row.class_id, row.index, digest, path))
        write_text(temporary / "manifest.csv", csv_text(FIELDS, manifest))
        return len(manifest)

    options = {"by": by, "copy_images": copy_images}
    return run.write(folder, build, form="wnid-folders", options=options, replace=replace)

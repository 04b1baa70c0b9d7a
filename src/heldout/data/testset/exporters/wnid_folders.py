"""Folders named by class id or class index, with a manifest that says what each file is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from heldout.core.errors import UserError
from heldout.core.files import csv_text, write_text
from heldout.data.images import sha256_bytes
from heldout.data.testset.exporters.licences import check_licences, write_attributions
from heldout.data.testset.exporters.owned_folder import (
    Export,
    Failure,
    FileNames,
    Images,
    Written,
    export_rows,
    image_reader,
    image_suffix,
    safe_name,
    write_export,
)
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
    rows, failures = export_rows(testset, truth)
    notes: list[str] = []
    if copy_images:
        notes += check_licences(
            (row.licence for row in rows), allow=allow_licence, what=testset.name
        )
    empty = len(testset.label_space) - len({row.index for row in rows})
    if empty:
        notes.append(
            f"{empty} classes have no image: a loader that numbers folders counts them wrong, "
            "take the index from manifest.csv"
        )
    if by == "index":
        notes.append("folders 0, 1, 10 sort as texts: take the index from manifest.csv")

    def build(temporary: Path) -> Written:
        read = image_reader(testset, images) if copy_images else None
        names = FileNames()
        failed: list[Failure] = list(failures)
        manifest, kept, made = [], [], set()
        for row in rows:
            label = safe_name(row.class_id) if by == "class_id" else str(row.index)
            data: bytes | None = None
            if read is not None:
                found = read(row)
                if isinstance(found, Failure):
                    failed.append(found)
                    continue
                data = found
            suffix = "" if data is None else image_suffix(data)
            path = f"{label}/{names.take(label, row, suffix)}"
            if data is not None:
                if label not in made:
                    made.add(label)
                    (temporary / label).mkdir(exist_ok=True)
                (temporary / path).write_bytes(data)
            manifest.append(
                (row.image_id, row.class_id, row.index, _sha256(row.sha256, data), path)
            )
            kept.append(row)
        write_text(temporary / "manifest.csv", csv_text(FIELDS, manifest))
        write_attributions(testset, kept, temporary)
        return Written(
            rows=len(kept),
            copied=len(kept) if copy_images else 0,
            failures=tuple(failed),
            notes=tuple(notes),
        )

    return write_export(
        testset,
        folder,
        build,
        form="wnid-folders",
        truth=truth or testset.card.default_truth,
        options={"by": by, "copy_images": copy_images},
        replace=replace,
    )


def _sha256(recorded: str | None, data: bytes | None) -> str:
    if recorded is not None or data is None:
        return recorded or ""
    return sha256_bytes(data)

"""Multi-label truth of ImageNet validation images: which labels experts found right for each.

Vasudevan, Caine, Gontijo-Lopes, Fridovich-Keil, Roelofs: When does dough become a bagel? NeurIPS
2022, after Shankar et al., ICML 2020. Published as TFDS ``imagenet2012_multilabel``; read here
from its source JSON, or from a CSV export of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, LabelError, MismatchError
from heldout.core.files import existing_file, read_json
from heldout.core.tables import read_table_file, require_column, text_ids
from heldout.data.labels.label_space import LabelKind, LabelSpace, class_finder
from heldout.data.published.truth_file import TruthFile, match_images, original_classes, provenance
from heldout.data.testset.tables import truth_table
from heldout.data.testset.testset import TestSet

_FIELDS = ("correct", "unclear", "wrong")
_CSV_COLUMNS = {
    "correct": ("correct_multi_labels", "proposed_labels"),
    "unclear": ("unclear_multi_labels",),
    "wrong": ("wrong_multi_labels",),
}
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class _Row:
    """One image as published: class ids in the file's order, repeats kept."""

    image: str
    original: str | None
    labels: Mapping[str, tuple[str, ...]]
    problematic: bool


def read_multilabel(
    path: Path,
    *,
    testset: TestSet,
    label_space: LabelSpace | None = None,
    original: str | None = None,
    version: str | None = None,
) -> TruthFile:
    """The multi-label truth of a test set, from the source JSON (``.json``) or a CSV export.

    JSON: ``initial_annots`` {image: {correct, wrong, unclear: [WordNet id]}}, keys absent when
    empty, and ``problematic_images``; the original class comes from the set's truth ``original``
    (by default its ``original``). CSV: ``id``, ``original_label``, ``correct_multi_labels`` or
    ``proposed_labels``, ``unclear_multi_labels``, ``wrong_multi_labels``, ``is_problematic``,
    classes as indices separated by commas. Other columns are left out.

    A label that is both correct and wrong stays in both lists, and metrics look at ``correct``
    first: the hit wins. Repeats in a list are dropped. Both are counted in the provenance.
    Images that the set does not have are left out and counted.
    """
    existing_file(path, "multi-label file")
    space = label_space or LabelSpace.load("imagenet-1k")
    known = original_classes(testset, original)
    if path.suffix.lower() == ".json":
        rows = _json_rows(path, space)
        named = re.search(r"v(\d+\.\d+\.\d+)", path.name)
        version = version or (named.group(1) if named else None)
    else:
        rows = _csv_rows(path, space)
    match = match_images(testset, [row.image for row in rows], source=path.name)
    kept = [
        (image, row) for image, row in zip(match.image_ids, rows, strict=True) if image is not None
    ]
    classes = [row.original or known.get(image) for image, row in kept]
    if None in classes:
        raise MismatchError(
            f"{path.name}: image {kept[classes.index(None)][0]!r} has no original class",
            fix=f"add a truth with one class an image to {testset.name} first",
        )
    disagree = sum(
        known.get(image, row.original) != row.original for image, row in kept if row.original
    )
    if disagree > len(kept) / 2:
        raise MismatchError(
            f"{path.name}: the original class of {disagree} of {len(kept)} images is another in "
            f"{testset.name}",
            fix="the file is of another set, or its class indices are of another label space",
        )
    lists = {
        field: [list(dict.fromkeys(row.labels[field])) for _, row in kept] for field in _FIELDS
    }
    table = truth_table(
        [image for image, _ in kept],
        classes,
        correct=lists["correct"],
        unclear=lists["unclear"],
        wrong=lists["wrong"],
        problematic=[row.problematic for _, row in kept],
    )
    published = [row for _, row in kept]
    conflicts = conflict_counts(published, classes)
    where = provenance(
        "multilabel",
        path,
        version=version,
        counts=label_counts(published),
        conflicts=conflicts,
        matching=match.to_dict(),
        original_differs=disagree,
    )
    notes = match.notes()
    if conflicts["correct_and_wrong"]:
        notes.append(
            f"{conflicts['correct_and_wrong']:,} images have a label both correct and wrong: "
            "the hit wins"
        )
    if conflicts["repeated_labels"]:
        notes.append(f"{conflicts['repeated_labels']:,} labels are repeated in a list: kept once")
    if disagree:
        notes.append(f"{disagree:,} original labels differ from those of {testset.name}")
    return TruthFile("multilabel", table, where, tuple(notes))


def _json_rows(path: Path, space: LabelSpace) -> list[_Row]:
    value = read_json(path)
    annotations = value.get("initial_annots") if isinstance(value, dict) else None
    if not isinstance(annotations, dict) or not annotations:
        raise BadFile(
            path, "has no object initial_annots", fix="give human_accuracy_v3.0.0.json of TFDS"
        )
    problematic = value.get("problematic_images", {})
    if not isinstance(problematic, dict | list):
        raise BadFile(path, "problematic_images is not an object", fix="fetch the file again")
    flagged = set(problematic)
    rows = []
    for image in sorted(annotations):
        given = annotations[image]
        if not isinstance(given, dict) or not all(
            isinstance(given.get(field, []), list) for field in _FIELDS
        ):
            raise BadFile(
                path, f"image {image!r} has no lists of labels", fix="fetch the file again"
            )
        labels = {
            field: _classes(given.get(field, []), "id", space, path, image) for field in _FIELDS
        }
        rows.append(_Row(image, None, labels, image in flagged))
    return rows


def _csv_rows(path: Path, space: LabelSpace) -> list[_Row]:
    table = read_table_file(path)
    images = text_ids(require_column(table, "id", path, "the image"), path)
    originals = require_column(table, "original_label", path, "the original class").to_pylist()
    columns = {}
    for field, names in _CSV_COLUMNS.items():
        name = next((name for name in names if name in table.column_names), names[0])
        columns[field] = require_column(table, name, path, f"the {field} labels").to_pylist()
    flags = require_column(table, "is_problematic", path, "problematic images").to_pylist()
    rows = []
    for number, image in enumerate(images):
        flag = _FLAGS.get(str(flags[number]).strip().lower())
        if flag is None:
            raise BadFile(
                path,
                f"image {image!r} has is_problematic {flags[number]!r}",
                fix="write True or False",
            )
        labels = {
            field: _classes(_split(columns[field][number]), "index", space, path, image)
            for field in _FIELDS
        }
        first = _classes(_split(originals[number]), "index", space, path, image)
        if len(first) != 1:
            raise BadFile(
                path, f"image {image!r} has {len(first)} original labels", fix="give exactly one"
            )
        rows.append(_Row(image, first[0], labels, flag))
    return rows


def _split(cell: Any) -> list[str]:
    return [] if cell is None else [part.strip() for part in str(cell).split(",")]


def _classes(
    values: Iterable[Any], kind: LabelKind, space: LabelSpace, path: Path, image: str
) -> tuple[str, ...]:
    find = class_finder(space, kind)
    try:
        return tuple(find(value).id for value in values)
    except LabelError as error:
        raise BadFile(path, f"image {image!r}: {error.message}", fix=error.fix) from None


def label_counts(rows: Sequence[_Row]) -> dict[str, int]:
    """How many labels (repeats counted, as published) and images each list has; with and without
    problematic images.
    """
    counts = {"images": len(rows), "problematic": sum(row.problematic for row in rows)}
    for suffix, chosen in (("", rows), ("_unproblematic", [r for r in rows if not r.problematic])):
        for field in _FIELDS:
            counts[f"{field}_labels{suffix}"] = sum(len(row.labels[field]) for row in chosen)
            counts[f"{field}_images{suffix}"] = sum(bool(row.labels[field]) for row in chosen)
    return counts


def conflict_counts(rows: Sequence[_Row], originals: Sequence[str | None]) -> dict[str, int]:
    """How many images contradict themselves, and how; and how many labels are there twice."""
    counts: Counter[str] = Counter(
        dict.fromkeys(
            (
                "correct_and_wrong",
                "correct_and_wrong_unproblematic",
                "correct_and_unclear",
                "unclear_and_wrong",
                "original_also_wrong_unproblematic",
                "nothing_acceptable_problematic",
                "nothing_acceptable_unproblematic",
                "repeated_labels",
            ),
            0,
        )
    )
    for row, original in zip(rows, originals, strict=True):
        correct, unclear, wrong = (set(row.labels[field]) for field in _FIELDS)
        counts["correct_and_wrong"] += bool(correct & wrong)
        counts["correct_and_wrong_unproblematic"] += bool(correct & wrong) and not row.problematic
        counts["correct_and_unclear"] += bool(correct & unclear)
        counts["unclear_and_wrong"] += bool(unclear & wrong)
        counts["original_also_wrong_unproblematic"] += original in wrong and not row.problematic
        state = "problematic" if row.problematic else "unproblematic"
        counts[f"nothing_acceptable_{state}"] += not (correct or unclear)
        counts["repeated_labels"] += sum(
            len(row.labels[field]) - len(set(row.labels[field])) for field in _FIELDS
        )
    return dict(counts)

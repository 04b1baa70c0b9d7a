"""A split: which images train, validate and test, with the class and the group of each.

As files: ``train.csv``, ``validation.csv`` (where there is one) and ``test.csv`` with the columns
image, class and group, rows in the order of the rule that made the split; ``images.csv`` with every
image, its group and the part it went to; ``split.json`` with the rule and the counts; and, of splits
of groups, ``subpopbench.csv``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from heldout.core.errors import BadFile, NotApplicable, NotFound
from heldout.core.files import csv_text, existing_file, existing_folder, held
from heldout.core.tables import read_table_file, require_column
from heldout.curate.contexts.subsets import read_subsets
from heldout.data.published.metashift import split_subset_name
from heldout.data.testset.exporters.licences import check_licences
from heldout.data.testset.exporters.owned_folder import (
    Failure,
    Mode,
    Placed,
    Placement,
    find_image_file,
    place_files,
    write_documents,
)
from heldout.data.testset.subset import subset
from heldout.data.testset.testset import TestSet, make_testset

PARTS = ("train", "validation", "test")
COLUMNS = ("image", "class", "group")


class SplitRow(NamedTuple):
    """One image of a part: its class and the group that it stands for."""

    image: str
    label: str
    group: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """A split of images into parts; no image is in two of them, nor twice in one.

    ``parts``   part name (one of :data:`PARTS`) to its rows, in order; no validation part is empty
    ``rule``    how it was made: name, parameters, seed
    ``groups``  of splits of groups, the group of every image that was there, used or not
    ``notes``   what the user should know
    """

    parts: Mapping[str, Sequence[SplitRow]]
    rule: Mapping[str, Any]
    groups: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Images of each part, and of each group in it."""
        found: dict[str, int] = {}
        for part, rows in self.parts.items():
            found[part] = len(rows)
            for group in dict.fromkeys(row.group for row in rows):
                found[f"{part} {group}"] = sum(row.group == group for row in rows)
        return found

    def documents(self) -> dict[str, str]:
        """The CSV files of the split, name to text."""
        used = {row.image: (row.group, part) for part, rows in self.parts.items() for row in rows}
        every = {image: (group, "") for image, group in self.groups.items()} | used
        found = {f"{part}.csv": csv_text(COLUMNS, rows) for part, rows in self.parts.items()}
        listed = [(image, *every[image]) for image in sorted(every)]
        found["images.csv"] = csv_text(("image", "groups", "part"), listed)
        if self.groups:
            found["subpopbench.csv"] = subpopbench_document(self)
        return found


def save_split(split: Split, folder: Path, *, replace: bool = False) -> bool:
    """Write a split to a folder; the same one again is no change (False).

    Nothing that was not written here is ever deleted, see
    :func:`heldout.data.testset.exporters.owned_folder.write_owned`.
    """
    return write_documents(
        folder,
        split.documents(),
        kind="split",
        about={"rule": dict(split.rule), "counts": split.counts(), "notes": list(split.notes)},
        replace=replace,
    )


def read_columns(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Some columns of a table (CSV, TSV, JSON lines or Parquet) as texts, none empty."""
    table = read_table_file(existing_file(path, "table"))
    found = [require_column(table, name, path, "images").to_pylist() for name in columns]
    cells = [["" if value is None else str(value) for value in column] for column in found]
    rows = list(zip(*cells, strict=True))
    for number, row in enumerate(rows, 1):
        if not all(row):
            empty = columns[row.index("")]
            raise BadFile(path, f"row {number} has no {empty}", fix="fill it in")
    return rows


def subpopbench_document(split: Split) -> str:
    """SubpopBench's CSV of a split: train, then validation, then test, each in its order."""
    rows = [
        (row.image, row.label, split_subset_name(row.group).context, PARTS.index(part))
        for part, members in split.parts.items()
        for row in members
    ]
    # In falling order of names, which gives SubpopBench's own numbers: dog 0, cat 1.
    labels, attributes = (
        {name: n for n, name in enumerate(sorted({row[at] for row in rows}, reverse=True))}
        for at in (1, 2)
    )
    lines = [
        (image, labels[label], attributes[attribute], part)
        for image, label, attribute, part in rows
    ]
    return csv_text(("filename", "y", "a", "split"), lines)


def part_as_testset(testset: TestSet, split: Split, *, name: str) -> TestSet:
    """The test part of a split as a test set: its images, all their columns, and its parent's hash.

    An image keeps only the truth of the class that it stands for in the split.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = {(row.image, row.label) for row in split.parts["test"]}
    chosen = subset(testset, [image for image, _ in wanted], name=name, recipe={
        "name": f"split-{split.rule['name']}",
        "parameters": {k: v for k, v in split.rule.items() if k not in ("name", "seed")},
        "seed": split.rule["seed"],
    })  # fmt: skip
    truths = {}
    for truth, table in chosen.truths.items():
        pairs = zip(table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True)
        kept = table.filter(pa.array([pair in wanted for pair in pairs], pa.bool_()))
        # Where the classes of the set are not the subjects, there is nothing to choose by.
        whole = pc.count_distinct(kept["image_id"]).as_py() == len(chosen)
        truths[truth] = kept if whole else table
    return make_testset(
        chosen.card,
        images=chosen.images,
        truths=truths,
        label_space=chosen.label_space,
        memberships=chosen.memberships,
    )


def place_subsets(testset: TestSet, folder: Path, *, images: Path | None, **how: Any) -> Placed:
    """Lay the images of a test set out as ``<class>/<class(context)>/<file>``, as MetaShift does.

    ``images``  the folder of the files, if not the set's own

    An image is in as many folders as it has subsets: prefer links.
    """
    subsets, table = read_subsets(testset), testset.images
    root = testset.images_folder() if images is None else existing_folder(images, "images")
    wanted = [
        (str(image), (subject, name))
        for name, subject in zip(subsets.names, subsets.subject_of, strict=True)
        for image in subsets.image_ids[subsets.members(name)]
    ]
    ids = table["image_id"].to_pylist()
    paths, licences = (
        dict(zip(ids, table[column].to_pylist(), strict=True)) for column in ("path", "licence")
    )
    return _placed(folder, wanted, root, paths=paths, licences=licences, **how)


def place_split(split: Path, folder: Path, *, images: Path | None, **how: Any) -> Placed:
    """Lay a split that was written out as ``<part>/<class>/<file>``, as loaders of folders want it.

    ``images``  where the files are: each at its image's id, with or without an ending
    """
    if images is None:
        raise NotApplicable("a split knows no images", fix="name their folder with --images")
    wanted = [
        (image, (part, label))
        for part in PARTS
        if (split / f"{part}.csv").is_file()
        for image, label in read_columns(split / f"{part}.csv", COLUMNS[:2])
    ]
    return _placed(folder, wanted, existing_folder(images, "images"), paths={}, licences={}, **how)


def _placed(
    folder: Path,
    wanted: Sequence[tuple[str, tuple[str, ...]]],
    root: Path,
    *,
    paths: Mapping[str, str | None],
    licences: Mapping[str, str | None],
    mode: Mode,
    allow_licence: bool,
    overwrite: bool,
) -> Placed:
    """Place the file of each (image, folders); images without a file are failures.

    Copies of images whose licence forbids it or is not known are refused unless ``allow_licence``.
    """
    images = list(dict.fromkeys(image for image, _ in wanted))
    if mode == "copy":
        known = [licences.get(image) for image in images]
        check_licences(known, allow=allow_licence, what=folder.name)
    files: dict[str, Path] = {}
    failures: list[Failure] = []
    for image in images:
        try:
            files[image] = find_image_file(root, image, paths.get(image))
        except NotFound as error:
            failures.append(Failure(image_id=image, reason=error.message))
    placements = [
        Placement(image_id=image, file=files[image], folders=folders)
        for image, folders in wanted
        if image in files
    ]
    with held(folder):
        placed = place_files(folder, placements, mode=mode, replace=overwrite)
    return replace(placed, failures=(*failures, *placed.failures))

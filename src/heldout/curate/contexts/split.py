"""A split: which images train, validate and test, with the class and the group of each.

As files: ``train.csv``, ``validation.csv`` (where there is one) and ``test.csv`` with the columns
image, class and group, rows in the order of the rule that made the split; ``images.csv`` with every
image, all its groups and the part it went to; and ``split.json`` with the rule and the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.files import csv_text, existing_file, existing_folder
from heldout.curate.contexts.subsets import hint, read_subsets
from heldout.data.published.metashift import split_subset_name
from heldout.data.testset.exporters.images import Failure
from heldout.data.testset.exporters.licences import check_licences
from heldout.data.testset.exporters.owned_folder import (
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

    ``parts``   part name (one of :data:`PARTS`) to its rows, in order
    ``rule``    how it was made: name, parameters, seed
    ``groups``  every image that was there with all its groups, used or not
    ``notes``   what the user should know
    """

    parts: Mapping[str, tuple[SplitRow, ...]]
    rule: Mapping[str, Any]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for part, rows in self.parts.items():
            if part not in PARTS:
                raise ValueError(f"no part {part!r}")
            for row in rows:
                if row.image in seen:
                    raise UserError(
                        f"image {row.image!r} is in {seen[row.image]} and again in {part}",
                        fix="give each image one group, or drop the ambiguous ones",
                    )
                seen[row.image] = part

    def part_of(self) -> dict[str, str]:
        """The part of each image that is used."""
        return {row.image: part for part, rows in self.parts.items() for row in rows}

    def counts(self) -> dict[str, int]:
        """Images of each part, and of each group in it."""
        found: dict[str, int] = {}
        for part, rows in self.parts.items():
            found[part] = len(rows)
            for group in dict.fromkeys(row.group for row in rows):
                found[f"{part} {group}"] = sum(row.group == group for row in rows)
        return found


def split_documents(split: Split) -> dict[str, str]:
    """The CSV files of a split, name to text."""
    documents = {f"{part}.csv": csv_text(COLUMNS, rows) for part, rows in split.parts.items()}
    part_of = split.part_of()
    groups = dict(split.groups)
    for rows in split.parts.values():
        for row in rows:
            groups.setdefault(row.image, (row.group,))
    documents["images.csv"] = csv_text(
        ("image", "groups", "part"),
        [
            (image, "|".join(sorted(groups[image])), part_of.get(image, ""))
            for image in sorted(groups)
        ],
    )
    return documents


def save_split(
    split: Split,
    folder: Path,
    *,
    further: Mapping[str, str] | None = None,
    replace: bool = False,
) -> bool:
    """Write a split to a folder; the same one again is no change (False).

    ``further``  more files for the folder, name to text. Nothing that was not written here is ever
    deleted, see :func:`heldout.data.testset.exporters.owned_folder.write_documents`.
    """
    return write_documents(
        folder,
        split_documents(split) | dict(further or {}),
        kind="split",
        about={"rule": dict(split.rule), "counts": split.counts(), "notes": list(split.notes)},
        replace=replace,
    )


def read_columns(path: Path, columns: Sequence[str], what: str) -> list[tuple[str, ...]]:
    """Some columns of a table as texts, none empty; further columns are passed over.

    CSV, TSV, JSON lines or Parquet, by the file's ending; ``what`` names the file in messages.
    """
    from heldout.core.tables import read_table_file

    table = read_table_file(existing_file(path, what))
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise BadFile(
            path,
            f"lacks the column {missing[0]}",
            fix=f"write {','.join(columns)} as its first line",
        )
    cells = [["" if v is None else str(v) for v in table[name].to_pylist()] for name in columns]
    rows = list(zip(*cells, strict=True))
    for number, row in enumerate(rows, 1):
        if not all(row):
            empty = columns[row.index("")]
            raise BadFile(path, f"row {number} has no {empty}", fix="fill it in")
    return rows


def subpopbench_document(split: Split, *, filename: str = "{image}") -> str:
    """SubpopBench's CSV of a split: train, then validation, then test, each in its order.

    ``filename``  how a file is named by the image's id, such as ``images/{image}.jpg``
    """
    if "{image}" not in filename:
        raise UserError(f"file names by {filename!r}", fix="write {image} where the id goes")
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
        (filename.replace("{image}", image), labels[label], attributes[attribute], part)
        for image, label, attribute, part in rows
    ]
    return csv_text(("filename", "y", "a", "split"), lines)


def place_split(
    split: Split,
    folder: Path,
    *,
    images: Path,
    paths: Mapping[str, str | None] | None = None,
    mode: Mode = "link",
    allow_licence: bool = False,
    replace: bool = False,
) -> Placed:
    """Lay a split out as ``<part>/<class>/<file>``, as loaders of folders want it.

    ``images``  where the files are: each at its path, else at its id, with or without an ending.
    Copies of images whose licence is not known (a split does not know any) are refused unless
    ``allow_licence``.
    """
    existing_folder(images, "folder of images")
    used = [(part, row) for part, rows in split.parts.items() for row in rows]
    if mode == "copy":
        check_licences([None] * len(used), allow=allow_licence, what="the split")
    wanted = [(row.image, (part, row.label)) for part, row in used]
    return _placed(folder, wanted, images, paths or {}, mode=mode, replace=replace)


def _placed(
    folder: Path,
    wanted: Sequence[tuple[str, tuple[str, ...]]],
    root: Path,
    paths: Mapping[str, str | None],
    *,
    mode: Mode,
    replace: bool,
) -> Placed:
    """Place the file of each (image, folders); images without a file are failures."""
    files: dict[str, Path] = {}
    failures: list[Failure] = []
    for image in dict.fromkeys(image for image, _ in wanted):
        try:
            files[image] = find_image_file(root, image, paths.get(image))
        except NotFound as error:
            failures.append(Failure(image_id=image, reason=error.message))
    placed = place_files(
        folder,
        [
            Placement(image_id=image, file=files[image], folders=folders)
            for image, folders in wanted
            if image in files
        ],
        mode=mode,
        replace=replace,
    )
    return replaced(placed, failures=(*failures, *placed.failures))


def part_as_testset(testset: TestSet, split: Split, *, name: str) -> TestSet:
    """The test part of a split as a test set: its images, all their columns, and its parent's hash.

    An image keeps only the truth of the class that it stands for in the split.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = {(row.image, row.label) for row in split.parts["test"]}
    chosen = subset(testset, [image for image, _ in wanted], name=name, recipe={
        "name": f"split-{split.rule.get('name', 'unknown')}",
        "parameters": {k: v for k, v in split.rule.items() if k not in ("name", "seed")},
        "seed": split.rule.get("seed"),
    })  # fmt: skip
    classes = {label for _, label in wanted}
    if not classes <= set(testset.label_space.ids):
        return chosen  # classes of the set are not the subjects: nothing to choose by
    truths = {}
    for truth, table in chosen.truths.items():
        pairs = zip(table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True)
        kept = table.filter(pa.array([pair in wanted for pair in pairs]))
        if pc.count_distinct(kept["image_id"]).as_py() == len(chosen):
            truths[truth] = kept
    return make_testset(
        chosen.card,
        images=chosen.images,
        truths=truths or dict(chosen.truths),
        label_space=chosen.label_space,
        memberships=chosen.memberships,
    )


def place_subsets(
    testset: TestSet,
    folder: Path,
    *,
    images: Path | None = None,
    mode: Mode = "link",
    only: Sequence[str] = (),
    allow_licence: bool = False,
    replace: bool = False,
) -> Placed:
    """Lay the images of a test set out as ``<class>/<class(context)>/<file>``, as MetaShift does.

    ``images``  the folder of the files, if not the set's own; ``only``: globs of subset names. An
    image is in as many folders as it has subsets: prefer links. Copies keep to licences.
    """
    subsets = read_subsets(testset)
    root = testset.images_folder() if images is None else existing_folder(images, "images")
    table = testset.images
    names = [
        name
        for name in subsets.names
        if not only or any(name == glob or fnmatchcase(name, glob) for glob in only)
    ]
    if not names:
        raise NotFound(f"no subset matches {' or '.join(only)}", fix=hint(only[0], subsets.names))
    wanted = [
        (str(image), (split_subset_name(name).subject, name))
        for name in names
        for image in subsets.image_ids[subsets.members(name)]
    ]
    used = {image for image, _ in wanted}
    if mode == "copy":
        ids, licences = table["image_id"].to_pylist(), table["licence"].to_pylist()
        kept = [licence for image, licence in zip(ids, licences, strict=True) if image in used]
        check_licences(kept, allow=allow_licence, what=testset.name)
    return _placed(folder, wanted, root, image_paths(testset), mode=mode, replace=replace)


def image_paths(testset: TestSet) -> dict[str, str | None]:
    """Where each image of a set lies below its folder of images."""
    table = testset.images
    return dict(zip(table["image_id"].to_pylist(), table["path"].to_pylist(), strict=True))

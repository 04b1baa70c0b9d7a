"""A split for other tools: SubpopBench's metadata file, and folders of links or copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replaced
from fnmatch import fnmatchcase
from pathlib import Path

from heldout.core.errors import NotFound, UserError
from heldout.core.files import existing_folder
from heldout.curate.contexts.names import parse_subset
from heldout.curate.contexts.splits import Split
from heldout.curate.contexts.subsets import hint, read_subsets
from heldout.data.testset.exporters.licences import check_licences
from heldout.data.testset.exporters.owned_folder import (
    MODES,
    Failure,
    Mode,
    Placed,
    Placement,
    find_image_file,
    place_files,
)
from heldout.data.testset.exporters.tables import SubpopRow, subpopbench_csv
from heldout.data.testset.subset import subset
from heldout.data.testset.testset import TestSet, make_testset


def subpopbench_document(
    split: Split,
    *,
    filename: str = "{image}",
) -> str:
    """SubpopBench's CSV of a split: train, then validation, then test, each in its order."""
    rows = [
        SubpopRow(
            image=row.image, label=row.label, attribute=parse_subset(row.group).context, part=part
        )
        for part, members in split.parts.items()
        for row in members
    ]
    return subpopbench_csv(rows, filename=filename)


def place_split(
    split: Split,
    folder: Path,
    *,
    images: Path,
    mode: str = "link",
    allow_licence: bool = False,
    replace: bool = False,
) -> Placed:
    """Lay a split out as ``<part>/<class>/<file>``, as loaders of folders want it.

    ``images``  where the files are: each at its id, with or without an ending. Copies of images
    whose licence is not known (a split does not know any) are refused unless ``allow_licence``.
    """
    chosen = image_mode(mode)
    existing_folder(images, "folder of images")
    used = [(part, row) for part, rows in split.parts.items() for row in rows]
    if chosen == "copy":
        check_licences([None] * len(used), allow=allow_licence, what="the split")
    placements: list[Placement] = []
    failures: list[Failure] = []
    for part, row in used:
        try:
            file = find_image_file(images, row.image)
        except NotFound as error:
            failures.append(Failure(image_id=row.image, reason=error.message))
            continue
        placements.append(Placement(image_id=row.image, file=file, folders=(part, row.label)))
    placed = place_files(folder, placements, mode=chosen, replace=replace)
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
    mode: str = "link",
    only: Sequence[str] = (),
    allow_licence: bool = False,
    replace: bool = False,
) -> Placed:
    """Lay the images of a test set out as ``<class>/<class(context)>/<file>``, as MetaShift does.

    ``images``  the folder of the files, if not the set's own; ``only``: globs of subset names. An
    image is in as many folders as it has subsets: prefer links. Copies keep to licences.
    """
    chosen = image_mode(mode)
    subsets = read_subsets(testset)
    root = testset.images_folder() if images is None else existing_folder(images, "images")
    table = testset.images
    paths = dict(zip(table["image_id"].to_pylist(), table["path"].to_pylist(), strict=True))
    names = [name for name in subsets.names if not only or any(_like(name, g) for g in only)]
    if not names:
        raise NotFound(f"no subset matches {' or '.join(only)}", fix=hint(only[0], subsets.names))
    wanted = [
        (str(image), name) for name in names for image in subsets.image_ids[subsets.members(name)]
    ]
    used = {image for image, _ in wanted}
    if chosen == "copy":
        ids, licences = table["image_id"].to_pylist(), table["licence"].to_pylist()
        kept = [licence for image, licence in zip(ids, licences, strict=True) if image in used]
        check_licences(kept, allow=allow_licence, what=testset.name)
    files: dict[str, Path] = {}
    failures: list[Failure] = []
    for image in sorted(used):
        try:
            files[image] = find_image_file(root, image, paths[image])
        except NotFound as error:
            failures.append(Failure(image_id=image, reason=error.message))
    placed = place_files(
        folder,
        [
            Placement(image_id=image, file=files[image], folders=(parse_subset(name).subject, name))
            for image, name in wanted
            if image in files
        ],
        mode=chosen,
        replace=replace,
    )
    return replaced(placed, failures=(*failures, *placed.failures))


def _like(name: str, glob: str) -> bool:
    return name == glob or fnmatchcase(name, glob)


def image_mode(text: str) -> Mode:
    """A mode of placing files by its name."""
    for mode in MODES:
        if mode == text:
            return mode
    raise UserError(f"no mode {text!r}", fix=f"use {', '.join(MODES)}")

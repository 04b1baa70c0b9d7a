"""Image folders: one folder per class, named by class id, WordNet id, class name or class index.

Folder names are looked up in the label space. They are never sorted and counted: ``0``, ``1``,
``10`` sorted as text gives ``10`` the label 2, which is how ImageNetV2's folders were misread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import unquote

from heldout.core.errors import BadFile, LabelError, UserError
from heldout.core.files import sha256_text
from heldout.core.tables import SUFFIXES, read_table_file
from heldout.data.images import BadImage, FolderSource, ImageInfo, examine
from heldout.data.images.sources import is_image_name
from heldout.data.labels.label_space import LabelKind, LabelSpace, class_finder
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import IMAGE_COLUMNS, truth_table
from heldout.data.testset.testset import TestSet, imported

_WORDS: dict[LabelKind, str] = {
    "wnid": "WordNet id",
    "id": "class id",
    "name": "class name",
    "index": "class index",
}


@dataclass(frozen=True)
class FolderNaming:
    """All folders read in one way.

    ``classes``   the path of each folder that names a class -> its class id
    ``others``    folders with a part that names a class -> the other parts, outermost first
    ``problems``  the folders that have no class -> why
    """

    kind: LabelKind
    classes: dict[str, str] = field(default_factory=dict)
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def read_folder_names(
    folders: Sequence[str],
    *,
    label_space: LabelSpace,
    names: Literal["auto"] | LabelKind,
    path: Path,
) -> tuple[FolderNaming, str]:
    """The class of each folder, and how it was found; exactly one part of a path names a class.

    With ``names="auto"`` the way of naming that fits all folders is taken: WordNet ids, class
    ids, names, then indices. Two ways that both fit and disagree are refused, and so are folders
    that are named in different ways.
    """
    distinct = sorted(set(folders))
    kinds = _WORDS if names == "auto" else (names,)
    readings = [_read(distinct, label_space, kind) for kind in kinds]
    fitting = [reading for reading in readings if not reading.problems]
    if not fitting:
        # The way that most folders fit, names before others, is what most likely was meant.
        best = max(readings, key=lambda reading: (len(reading.others), reading.kind == "name"))
        more = f", and {len(best.problems) - 1} more folders" if len(best.problems) > 1 else ""
        raise BadFile(
            path,
            f"{next(iter(best.problems.values()))}{more}, read by {_WORDS[best.kind]} in "
            f"{label_space.name}",
            fix="name all folders in one way; say which, or name the right label space",
        )
    chosen, *others = fitting
    for other in others:
        for folder in distinct:
            if chosen.classes[folder] != other.classes[folder]:
                raise BadFile(
                    path,
                    f"folder {folder!r} is class {chosen.classes[folder]} by "
                    f"{_WORDS[chosen.kind]} and {other.classes[folder]} by {_WORDS[other.kind]}",
                    fix=f"say which: names {chosen.kind!r} or {other.kind!r}",
                )
    how = "as given" if names != "auto" else f"found by looking at all {len(distinct)}"
    return chosen, f"class folders are named by {_WORDS[chosen.kind]}, {how}"


def _read(folders: Sequence[str], label_space: LabelSpace, kind: LabelKind) -> FolderNaming:
    find = class_finder(label_space, kind)
    known: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for part in {part for folder in folders for part in folder.split("/")}:
        try:
            known[part] = find(part).id
        except LabelError as error:
            unknown[part] = f"{error.message} ({error.fix})"
            with suppress(
                LabelError
            ):  # an export escapes what no folder may be called, such as a/b
                known[part] = find(unquote(part)).id
    reading = FolderNaming(kind)
    for folder in folders:
        parts = folder.split("/")
        named = [part for part in parts if part in known]
        if named:
            reading.others[folder] = tuple(part for part in parts if part not in known)
        if len(named) == 1:
            reading.classes[folder] = known[named[0]]
        elif named:
            reason = f"has two parts that name a class: {' and '.join(named)}"
            reading.problems[folder] = f"folder {folder!r} {reason}"
        else:
            # The innermost part is what most likely was meant to name the class.
            reading.problems[folder] = f"folder {folder!r}: {unknown[parts[-1]]}"
    return reading


_SHOWN = 100


def read_folders(
    path: Path,
    *,
    name: str,
    label_space: LabelSpace,
    names: Literal["auto"] | LabelKind = "auto",
    columns: Sequence[str] = (),
) -> TestSet:
    """A test set from a folder of class folders; images may lie deeper, class folders too.

    ``names``  how class folders are named; ``auto`` takes the one way that fits every folder and
               says in the card which, and refuses where two ways fit and disagree. An image's
               class is the one folder above it that names a class.
    ``columns``  names of columns for the other folders above an image, outermost first, such as
               ``domain`` for ``sketch/dog/1.png``; every image must then lie that deep

    The image id is the POSIX path below ``path``; rows are sorted by it. Files that are not images
    are counted. An image whose header cannot be read stays in the set without width and height,
    is counted as ``broken`` and listed in the card's notes.
    """
    _refuse_labels_in_metadata(path)
    source = FolderSource(path)
    ids = source.ids()
    other_files, empty, linked = _left_out(path)
    if not ids:
        there = f", only {other_files} other files" if other_files else ""
        there += f", and {len(linked)} linked folders" if linked else ""
        raise BadFile(
            path,
            f"has no images{there}",
            fix="give class folders with .jpg, .png or other images; linked folders are not read",
        )
    folders = [PurePosixPath(image).parent.as_posix() for image in ids]
    if "." in folders:
        raise BadFile(
            path,
            f"has {folders.count('.')} images outside any class folder, such as "
            f"{ids[folders.index('.')]}",
            fix="move them into class folders, or import a table that names their classes",
        )
    naming, note = read_folder_names(folders, label_space=label_space, names=names, path=path)
    classes = [naming.classes[folder] for folder in folders]
    extra = _folder_columns(path, naming, folders, columns)
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing and reading leave the interpreter
        looks = list(pool.map(partial(examine, source, decode=False), ids))
    sizes = [look.result if isinstance(look.result, ImageInfo) else None for look in looks]
    broken = [
        f"broken image {image}: {look.result.reason}"
        for image, look in zip(ids, looks, strict=True)
        if isinstance(look.result, BadImage)
    ]
    folder = path.resolve()
    listing = sha256_text("".join(f"{i}\t{c}\n" for i, c in zip(ids, classes, strict=True)))
    parameters: dict[str, Any] = {"names": naming.kind, "hash_images": True}
    if columns:
        parameters["columns"] = list(columns)
    return imported(
        name,
        label_space=label_space,
        images={
            "image_id": ids,
            "path": ids,
            "sha256": [look.sha256 or None for look in looks],
            "width": [size and size.width for size in sizes],
            "height": [size and size.height for size in sizes],
            **extra,
        },
        truth=truth_table(ids, classes),
        source=folder.name,
        sha256=listing,
        provenance={"counts": {"broken": len(broken)}, "names": naming.kind},
        recipe={"name": "import/folders", "parameters": parameters, "seed": None},
        parents=({"folder": folder.name, "sha256": listing},),
        counts={
            "broken": len(broken),
            "other_files": other_files,
            "empty_folders": len(empty),
            "linked_folders": len(linked),
        },
        columns={column: ColumnType(kind="categorical") for column in columns},
        notes=(note, *_notes(other_files, empty, linked, broken)),
        images_root=folder.as_posix(),
        images_namespace=name,
    )


def _folder_columns(
    path: Path, naming: FolderNaming, folders: Sequence[str], columns: Sequence[str]
) -> dict[str, list[str]]:
    """What folders that name no class say of every image, by column."""
    if not columns:
        return {}
    if len(set(columns)) < len(columns) or set(columns) & {*IMAGE_COLUMNS, "class_id"}:
        raise UserError(
            f"columns {', '.join(columns)} of folders", fix="give each a new name of its own"
        )
    for folder in folders:
        if len(naming.others[folder]) != len(columns):
            raise BadFile(
                path,
                f"folder {folder!r} has {len(naming.others[folder])} parts beside the class, "
                f"{len(columns)} columns are named",
                fix="name a column for each, outermost first, or move such folders",
            )
    return {
        column: [naming.others[folder][place] for folder in folders]
        for place, column in enumerate(columns)
    }


def _refuse_labels_in_metadata(path: Path) -> None:
    """Refuse a Hugging Face image folder with labels in a table: its folders are not classes."""
    for table in sorted(path.rglob("metadata.*")):
        if table.suffix not in SUFFIXES:
            continue
        columns = set(read_table_file(table).column_names)
        if "file_name" in columns and columns & {"label", "class_id"}:
            raise BadFile(
                path,
                f"has its labels in {table.relative_to(path).as_posix()}, not in folder names",
                fix=f"import the table {table}",
            )


def label_space_of_folders(path: Path, *, name: str) -> LabelSpace:
    """A label space of the class folders' own names: whole numbers by value, else as text."""
    ids = FolderSource(path).ids()
    folders = {PurePosixPath(image).parent.name for image in ids if "/" in image}
    if not folders:
        raise BadFile(path, "has no class folders with images", fix="put images into class folders")
    numbered = all(folder.isascii() and folder.isdigit() for folder in folders)
    ordered = sorted(folders, key=lambda text: (int(text) if numbered else 0, text))
    try:
        return LabelSpace.from_ids(name, ordered)
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None


def _left_out(path: Path) -> tuple[int, list[str], list[str]]:
    """How many files are not images; folders without anything in them, links to folders."""
    others = 0
    empty: list[str] = []
    linked: list[str] = []
    for folder, inner, files in os.walk(path):
        here = Path(folder)
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        links = [here / name for name in inner if (here / name).is_symlink()]
        linked += [link.relative_to(path).as_posix() for link in links]
        images = sum(map(is_image_name, files))
        others += sum(not name.startswith(".") for name in files) - images
        if not inner and not images and here != path:
            empty.append(here.relative_to(path).as_posix())
    return others, sorted(empty), sorted(linked)


def _notes(
    other_files: int, empty: Sequence[str], linked: Sequence[str], broken: Sequence[str]
) -> Iterator[str]:
    if empty:
        yield f"{len(empty)} folders without images: {_some(empty)}"
    if linked:
        yield f"{len(linked)} linked folders were not read: {_some(linked)}"
    if other_files:
        yield f"{other_files} files that are not images were left out"
    yield from broken[:_SHOWN]


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")

"""Image folders: one folder a class, named by class id, WordNet id, class name or class index.

Folder names are looked up in the label space. They are never sorted and counted: ``0``, ``1``,
``10`` sorted as text gives ``10`` the label 2, which is how ImageNetV2's folders were misread.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal, cast

from heldout.errors import BadFile, LabelError
from heldout.files import existing_folder, sha256_file, sha256_text
from heldout.labels.label_space import LabelSpace
from heldout.testset.card import Card
from heldout.testset.importers.folder_names import FolderNaming, read_folder_names
from heldout.testset.importers.label_kinds import LabelKind
from heldout.testset.importers.matching import IMAGE_SUFFIXES
from heldout.testset.tables import image_table, truth_table
from heldout.testset.testset import TestSet, make_testset

_SHOWN = 100


@dataclass(frozen=True)
class _Left:
    """What is below a folder and is not an image of the set."""

    other_files: int
    empty_folders: tuple[str, ...]
    linked_folders: tuple[str, ...]


def read_folders(
    path: Path,
    *,
    name: str,
    label_space: LabelSpace,
    names: Literal["auto"] | LabelKind = "auto",
    hash_images: bool = True,
) -> TestSet:
    """A test set from a folder of class folders; images may lie deeper, class folders too.

    ``names``  how class folders are named; ``auto`` takes the one way that fits every folder and
               says in the card which, and refuses where two ways fit and disagree. An image's
               class is the one folder above it that names a class.

    The image id is the POSIX path below ``path``. Rows are in the order of their paths. Files
    that are no images are counted; an image whose header cannot be read stays in the set without
    width and height, is counted as ``broken``, and is listed in the card's notes.
    """
    source = FolderSource(path)
    ids = source.ids()
    left = _left_out(path)
    if not ids:
        there = f", only {left.other_files} other files" if left.other_files else ""
        there += f", and {len(left.linked_folders)} linked folders" if left.linked_folders else ""
        raise BadFile(
            path,
            f"has no images{there}",
            fix="give a folder of class folders with .jpg, .png or other images; links to folders "
            "are not followed",
        )
    loose = [image for image in ids if "/" not in image]
    if loose:
        raise BadFile(
            path,
            f"has {len(loose)} images outside any class folder, such as {loose[0]}",
            fix="move them into class folders, or import a table that names their classes",
        )
    naming = read_folder_names(
        [PurePosixPath(image).parent.as_posix() for image in ids],
        label_space=label_space,
        names=names,
        path=path,
    )
    classes = [naming.classes[PurePosixPath(image).parent.as_posix()] for image in ids]
    with ThreadPoolExecutor(max_workers=4) as pool:  # hashing and reading leave the interpreter
        seen = list(pool.map(partial(_look, source, hash_images=hash_images), ids))
    infos = [look.info for look in seen]
    broken = [
        (image, info.reason)
        for image, info in zip(ids, infos, strict=True)
        if isinstance(info, BadImage)
    ]
    images = image_table(
        {
            "image_id": ids,
            "path": ids,
            "sha256": [look.sha256 for look in seen],
            "width": [info.width if isinstance(info, ImageInfo) else None for info in infos],
            "height": [info.height if isinstance(info, ImageInfo) else None for info in infos],
        }
    )
    listing = sha256_text(
        "".join(f"{i}\t{c}\n" for i, c in zip(ids, classes, strict=True))
    )
    counts = {"images": len(images), "classes": len(set(classes)), "broken": len(broken)}
    card = Card(
        name=name,
        label_space=label_space.name,
        recipe={
            "name": "import/folders",
            "parameters": {"names": naming.kind, "hash_images": hash_images},
            "seed": None,
        },
        parents=({"folder": path.resolve().name, "sha256": listing},),
        counts={
            **counts,
            "other_files": found.other_files,
            "empty_folders": len(found.empty_folders),
        },
        truths={
            "original": {
                "kind": "single",
                "source": path.resolve().name,
                "sha256": listing,
                "version": "unknown",
                "counts": counts,
                "names": naming.kind,
            }
        },
        notes=tuple(_notes(naming, found, broken)),
        images_root=path.resolve().as_posix(),
    )
    truths = {"original": truth_table(ids, classes)}
    return make_testset(card, images=images, truths=truths, label_space=label_space)


def label_space_of_folders(path: Path, *, name: str) -> LabelSpace:
    """A label space of the class folders' own names: whole numbers by value, else as text."""
    existing_folder(path, "folder of images")
    folders = {PurePosixPath(image).parent.name for image in _walk_all(path).images if "/" in image}
    if not folders:
        raise BadFile(path, "has no class folders with images", fix="put images into class folders")
    numbered = all(folder.isascii() and folder.isdigit() for folder in folders)
    try:
        return LabelSpace.from_ids(
            name, sorted(folders, key=(lambda t: (int(t), t)) if numbered else None)
        )
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None


def _notes(
    naming: FolderNaming, found: _Found, broken: Sequence[tuple[str, str | None]]
) -> Iterator[str]:
    yield naming.note
    if found.empty_folders:
        yield f"{len(found.empty_folders)} folders without images: {_some(found.empty_folders)}"
    if found.other_files:
        yield f"{found.other_files} files that are no images were left out"
    for image, problem in broken[:_SHOWN]:
        yield f"broken image {image}: {problem}"
    if len(broken) > _SHOWN:
        yield f"and {len(broken) - _SHOWN} more broken images: those without width and height"


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:5]) + (f" and {len(texts) - 5} more" if len(texts) > 5 else "")


@dataclass(frozen=True)
class _Probe:
    sha256: str | None
    width: int | None
    height: int | None
    problem: str | None = None


def _probe(root: Path, image: str, *, hash_images: bool) -> _Probe:
    """Hash a file and read its size from its header; no pixels are decoded."""
    from PIL import Image

    path = root / image
    digest: str | None = None
    try:
        digest = sha256_file(path) if hash_images else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata is no reason to doubt the size
            with Image.open(path) as opened:
                return _Probe(digest, *opened.size)
    except Exception as error:  # a broken image can raise anything in a decoder
        return _Probe(digest, None, None, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _walk_all(path: Path) -> _Found:
    images: list[tuple[str, ...]] = []
    others = 0
    empty: list[str] = []
    for folder, files, leaf in _walk(path, (), frozenset({path.resolve()})):
        here = [name for name in files if Path(name).suffix.lower() in IMAGE_SUFFIXES]
        images += [(*folder, name) for name in here]
        others += len(files) - len(here)
        if leaf and not here and folder:
            empty.append("/".join(folder))
    paths = tuple("/".join(parts) for parts in sorted(images))
    for image in (*paths, *empty):
        if not _is_utf8(image):
            raise BadFile(path, f"has the file name {image!r}, which is not UTF-8", fix="rename it")
    return _Found(paths, others, tuple(sorted(empty)))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(
    root: Path, folder: tuple[str, ...], above: frozenset[Path]
) -> Iterator[tuple[tuple[str, ...], list[str], bool]]:
    """Every folder with its file names, and whether it has no folders. Links are followed, but
    never back into a folder above; hidden files and folders are left out.
    """
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(root.joinpath(*folder)) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                (folders if entry.is_dir() else files).append(entry.name)
    yield folder, files, not folders
    for name in sorted(folders):
        real = root.joinpath(*folder, name).resolve()
        if real not in above:
            yield from _walk(root, (*folder, name), above | {real})


def as_folder_names(text: str) -> Literal["auto"] | LabelKind:
    """A user's word for how class folders are named, checked."""
    if text not in ("auto", "id", "wnid", "name", "index"):
        raise LabelError(
            f"{text!r} is no way to name class folders", fix="use auto, wnid, name or index"
        )
    return cast("Literal['auto'] | LabelKind", text)

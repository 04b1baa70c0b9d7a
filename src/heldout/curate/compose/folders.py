"""Folders of cut-outs and of backgrounds as pools: what is there, whose it is, what it shows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_folder
from heldout.core.workspace import slug
from heldout.curate.compose.attributions import NAMES, Attributions, find_attributions
from heldout.curate.compose.label_map import SISCORE, folder_classes
from heldout.data.images import check_id
from heldout.data.images.decode import BadImage, with_image
from heldout.data.images.sources import MAX_IMAGE_BYTES, is_image_name
from heldout.data.testset.pool import Pool, make_pool
from heldout.data.testset.tables import image_table, truth_table

_FORBIDDEN = '\\:*?"<>|'


@dataclass(frozen=True, eq=False)
class Gathered:
    """A pool, and what the user should know about how it was gathered."""

    pool: Pool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _File:
    path: str
    sha256: str
    width: int
    height: int


def gather_foregrounds(
    folder: Path,
    *,
    labels: str = SISCORE,
    classes: str = "imagenet-1k",
    licence: str | None = None,
    attributions: Path | None = None,
) -> Gathered:
    """The cut-outs ``<class>/<file>`` below a folder; classes as :func:`folder_classes` says.

    Every file with a known ending must be an image; others are taken if they are images, and
    passed over with a note if not. Hidden files and folders are passed over.
    """
    root = existing_folder(folder, "folder of cut-outs")
    notes: list[str] = []
    names, files = [], []
    for entry in sorted(root.iterdir(), key=lambda path: path.name):
        if entry.name.startswith(".") or entry.name in NAMES or _made_with_cutouts(entry):
            continue
        if not entry.is_dir():
            notes.append(f"{entry.name} in {root} is no folder of a class and was passed over")
            continue
        found = _images(entry, entry.name, notes)
        if not found:
            notes.append(f"{entry.name} in {root} has no images and was passed over")
            continue
        _check_name(entry.name, entry)
        files += found
        names += [entry.name] * len(found)
    if not files:
        raise UserError(
            f"{root} has no cut-outs", fix="put them in one folder a class: CLASS/FILE.png"
        )
    meaning = folder_classes(sorted(set(names)), labels=labels, classes=classes)
    ids = [file.path for file in files]
    terms = find_attributions(root, attributions)
    notes += [f"attributions name {name}, which is not in {root}" for name in terms.unused(ids)]
    pool = make_pool(
        slug(root.resolve().name),
        images=_table(files, terms, licence, {"class_name": names}),
        truths={
            "original": truth_table(
                ids,
                [meaning.classes[name][0] for name in names],
                correct=[list(meaning.classes[name]) for name in names],
            )
        },
        label_space=meaning.label_space,
        images_root=root.resolve(),
    )
    return Gathered(pool, tuple(notes))


def gather_backgrounds(
    folder: Path, *, licence: str | None = None, attributions: Path | None = None
) -> Gathered:
    """The backgrounds in a folder, as :func:`gather_foregrounds` takes files.

    They lie right in it, or ``<class>/<file>`` where they were photographed with an object of a
    class; some factors choose among them by that.
    """
    root = existing_folder(folder, "folder of backgrounds")
    notes: list[str] = []
    files = _images(root, "", notes, folders=True)
    classes: list[str | None] = [None] * len(files)
    for entry in sorted(root.iterdir(), key=lambda path: path.name):
        if entry.is_dir() and not entry.name.startswith("."):
            found = _images(entry, entry.name, notes)
            files += found
            classes += [entry.name] * len(found)
    if not files:
        raise UserError(
            f"{root} has no images", fix="put backgrounds right in it, or in one folder a class"
        )
    terms = find_attributions(root, attributions)
    unused = terms.unused([file.path for file in files])
    notes += [f"attributions name {name}, which is not in {root}" for name in unused]
    pool = make_pool(
        slug(root.resolve().name),
        images=_table(files, terms, licence, {"class_name": classes} if any(classes) else {}),
        images_root=root.resolve(),
    )
    return Gathered(pool, tuple(notes))


def _images(folder: Path, prefix: str, notes: list[str], *, folders: bool = False) -> list[_File]:
    """The image files right in a folder, by name; ``folders`` inside are expected."""
    found = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.startswith(".") or path.name in NAMES:
            continue
        if path.is_dir():
            if not folders:
                notes.append(f"{path} is a folder inside {folder.name} and was passed over")
            continue
        name = f"{prefix}/{path.name}" if prefix else path.name
        if path.stat().st_size > MAX_IMAGE_BYTES:
            raise BadFile(path, f"has {path.stat().st_size:,} bytes", fix="make it smaller")
        data = path.read_bytes()
        size = with_image(data, lambda image: image.size, max_pixels=None)
        if isinstance(size, BadImage):
            if is_image_name(path.name):
                raise BadFile(path, size.reason, fix="replace or remove it")
            notes.append(f"{path} is no image ({size.reason}) and was passed over")
            continue
        try:
            check_id(name)
        except UserError:
            raise BadFile(path, "has a name that cannot be an image id", fix="rename it") from None
        found.append(_File(name, hashlib.sha256(data).hexdigest(), *size))
    return found


def _made_with_cutouts(path: Path) -> bool:
    """Whether a file is one that ``heldout cutout`` writes beside its cut-outs."""
    return path.name in ("manifest.json", "review.csv") or (
        path.name.startswith("sheet-") and path.suffix in (".html", ".png")
    )


def _table(
    files: Sequence[_File], terms: Attributions, licence: str | None, more: dict[str, list[Any]]
) -> Any:
    known = [terms.of(file.path) for file in files]
    return image_table(
        {
            "image_id": [file.path for file in files],
            "path": [file.path for file in files],
            "sha256": [file.sha256 for file in files],
            "width": [file.width for file in files],
            "height": [file.height for file in files],
            "source": [entry.source for entry in known],
            "licence": [entry.licence or licence for entry in known],
            "attribution": [entry.attribution for entry in known],
            **more,
        }
    )


def _check_name(name: str, path: Path) -> None:
    """Class names become folders of the set."""
    if any(c in name for c in _FORBIDDEN) or not name.isprintable() or name != name.strip():
        raise BadFile(path, "has a name that cannot be a folder of the set", fix="rename it")

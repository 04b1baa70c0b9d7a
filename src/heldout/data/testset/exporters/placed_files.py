"""Image files laid out in folders by links or copies, where other tools want folders.

Only on request: a manifest says the same without an inode an image. ``placed.json`` in the folder
lists every file that was placed there and how, and is written before the first of them; so whatever
happens, what is ours can be told from what is not. Nothing that is not in that list, or is no
longer as it was placed, is ever changed or deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.core.files import atomic_path, read_versioned_json, sha256_file, write_json
from heldout.data.testset.exporters.export import Failure
from heldout.data.testset.exporters.rows import safe_name

Mode = Literal["link", "hardlink", "copy"]
MODES: tuple[Mode, ...] = ("link", "hardlink", "copy")
RECORD = "placed.json"
SCHEMA_VERSION = 1
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".JPEG", ".JPG", ".PNG")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """One image at one place: its id, its file, and the folders below the export that it goes to."""

    image_id: str
    file: Path
    folders: tuple[str, ...]

    @property
    def target(self) -> str:
        """Its path below the export's folder; every part is safe as a file name."""
        return "/".join((*map(_safe, self.folders), _safe(self.file.name)))


@dataclass(frozen=True, kw_only=True)
class Placed:
    """What placing did: files made, left as they were, removed; images that have no file; notes."""

    made: int
    kept: int
    removed: int
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


def find_image_file(root: Path, image_id: str, path: str | None = None) -> Path:
    """The file of an image below ``root``: at its path, at its id, or at its id with an ending."""
    for name in (path, image_id, *(f"{image_id}{ending}" for ending in _ENDINGS)):
        if not name:
            continue
        inside = PurePosixPath(name)
        if inside.is_absolute() or ".." in inside.parts:
            raise UserError(f"image {image_id!r} would lie outside {root}", fix="mend its path")
        if (root / inside).is_file():
            return root / inside
    raise NotFound(f"no file of image {image_id!r} in {root}", fix="check --images")


def place_files(
    folder: Path, placements: Iterable[Placement], *, mode: Mode = "link", replace: bool = False
) -> Placed:
    """Make ``folder`` hold the placements, by links, hard links or copies.

    ``link``      symbolic links with relative targets: the folder can move together with the images
    ``replace``   also remove files of an earlier layout that are wanted no longer

    Files of the user's in the folder stay; one in the way is refused before anything is changed.
    """
    if mode not in MODES:
        raise UserError(f"no mode {mode!r}", fix=f"use {', '.join(MODES)}")
    wanted = _targets(placements)
    known = _read_record(folder)
    if folder.exists() and not folder.is_dir():
        raise ExistsError(f"{folder} is a file", fix="name another folder")
    for target in wanted:
        if target not in known and os.path.lexists(folder / target):
            raise ExistsError(
                f"{folder / target} is there and was not placed by heldout", fix="move it away"
            )
    stale = [target for target in known if target not in wanted]
    if stale and not replace:
        raise ExistsError(
            f"{folder} holds another layout ({len(stale)} files that are not wanted now)",
            fix="name another folder, or use --replace",
        )
    ways = _Ways()
    told = {t: _note(folder / t, item.file, mode, ways) for t, item in wanted.items()}
    _write_record(folder, known | told)  # before the first file: nothing of ours goes unrecorded
    made = kept = removed = 0
    failures: list[Failure] = []
    notes: list[str] = []
    for target, item in wanted.items():
        place = folder / target
        if os.path.lexists(place):
            if target in known and not _as_placed(place, known[target]):
                notes.append(f"{target} was changed since it was placed, and is left alone")
                told[target] = known[target]
                continue
            if _as_placed(place, told[target]):
                kept += 1
                continue
            place.unlink()
        try:
            _place(item.file, place, told[target])
            made += 1
        except OSError as error:
            failures.append(Failure(image_id=item.image_id, reason=" ".join(str(error).split())))
            del told[target]
    for target in stale:
        place = folder / target
        if not os.path.lexists(place):
            continue
        if _as_placed(place, known[target]):
            place.unlink()
            removed += 1
            _remove_empty(place.parent, folder)
        else:
            notes.append(f"{target} was changed since it was placed, and is left alone")
            told[target] = known[target]
    _write_record(folder, told)
    return Placed(
        made=made, kept=kept, removed=removed, failures=tuple(failures), notes=tuple(notes)
    )


def _targets(placements: Iterable[Placement]) -> dict[str, Placement]:
    """What goes where, sorted by place; two files for one place are refused."""
    found: dict[str, Placement] = {}
    folded: dict[str, str] = {}
    for item in placements:
        target = item.target
        other = found.setdefault(target, item)
        if other.file != item.file:
            raise UserError(
                f"two images would be placed at {target}: {other.file} and {item.file}",
                fix="give their files different names",
            )
        known = folded.setdefault(target.casefold(), target)
        if known != target:
            raise UserError(
                f"{known} and {target} differ only in case", fix="give them different names"
            )
        if target == RECORD:
            raise UserError(f"an image would be placed at {RECORD}", fix="place it in a folder")
    return dict(sorted(found.items()))


def _note(place: Path, file: Path, mode: Mode, ways: _Ways) -> dict[str, str]:
    """How a file is placed, as the record has it: enough to tell later whether it still is."""
    if mode == "link":
        return {"link": ways.relative(file, place)}
    return {mode: sha256_file(file)}


_safe = lru_cache(maxsize=1 << 16)(safe_name)  # a name comes as often as it has folders


class _Ways:
    """Relative paths between folders, links on the way resolved; each found once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, Path], str] = {}

    def relative(self, file: Path, place: Path) -> str:
        """The way from the folder of ``place`` to ``file``."""
        key = (place.parent, file.parent)
        if key not in self._known:
            way = os.path.relpath(file.parent.resolve(), place.parent.resolve())
            self._known[key] = Path(way).as_posix()
        return f"{self._known[key]}/{file.name}"


def _as_placed(place: Path, note: Mapping[str, str]) -> bool:
    if "link" in note:
        try:
            return os.readlink(place) == note["link"]  # noqa: PTH115  # a text, many times
        except OSError:
            return False
    digest = note.get("hardlink") or note.get("copy")
    return not place.is_symlink() and place.is_file() and sha256_file(place) == digest


def _place(file: Path, place: Path, note: Mapping[str, str]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if "link" in note:
        place.symlink_to(note["link"])
    elif "hardlink" in note:
        os.link(file, place)
    else:
        with atomic_path(place) as temporary:
            shutil.copyfile(file, temporary)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove folders that have become empty, up to the export's own."""
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _read_record(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / RECORD
    if not path.exists():
        return {}
    files: Any = read_versioned_json(path, version=SCHEMA_VERSION).get("files")
    good = isinstance(files, dict) and all(isinstance(note, dict) for note in files.values())
    inside = good and all(
        not PurePosixPath(t).is_absolute() and ".." not in PurePosixPath(t).parts for t in files
    )
    if not inside:
        raise BadFile(path, "is no list of placed files", fix="name another folder")
    return {str(target): dict(note) for target, note in files.items()}


def _write_record(folder: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    notes = {target: dict(files[target]) for target in sorted(files)}
    write_json(folder / RECORD, {"schema_version": SCHEMA_VERSION, "files": notes})

"""Folders that are ours in part: documents and placed files beside the user's own files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    read_json,
    sha256_file,
    sha256_text,
    write_json,
    write_text,
)
from heldout.core.schema import Document, read, write
from heldout.data.testset.exporters.images import Failure, safe_name


def write_documents(
    folder: Path,
    documents: Mapping[str, str],
    *,
    kind: str,
    about: Mapping[str, Any],
    replace: bool = False,
) -> bool:
    """Write ``documents`` (file name to text) and ``<kind>.json`` to ``folder``; False if unchanged.

    ``about``    what the record says beyond the hashes
    ``replace``  exchange what was written here before by something different

    Other files in the folder stay as they are. One that has the name of a document is refused,
    even with ``replace``, before anything is written.
    """
    if folder.exists() and not folder.is_dir():
        raise ExistsError(f"{folder} is a file", fix="name a folder")
    digests = {name: sha256_text(text) for name, text in sorted(documents.items())}
    record = {"schema_version": 1, "kind": kind, **about, "files": digests}
    own = f"{kind}.json"
    known = _recorded(folder / own, kind)
    ours: dict[str, str] = known.get("files", {})
    for name in (*documents, own):
        if (folder / name).exists() and name not in ours and not (known and name == own):
            raise ExistsError(
                f"{folder / name} is there and was not written as part of a {kind}",
                fix="name another folder",
            )
    if known:
        if known == record and _as_written(folder, digests):
            return False
        if not replace:
            raise ExistsError(
                f"{folder} holds another {kind}", fix="name another folder, or use --replace"
            )
        # The record covers old and new names while files change: an interruption orphans none.
        write_json(folder / own, {**record, "files": ours | digests})
        for name in ours.keys() - digests.keys():
            if _as_written(folder, {name: ours[name]}):
                (folder / name).unlink()
    with nullcontext(folder) if folder.exists() else atomic_folder(folder) as place:
        for name, text in documents.items():
            write_text(place / name, text)
        write_json(place / own, record)
    return True


def _as_written(folder: Path, digests: Mapping[str, str]) -> bool:
    """Whether files are there as they were written."""
    return all(
        (folder / name).is_file() and sha256_file(folder / name) == digest
        for name, digest in digests.items()
    )


def _recorded(path: Path, kind: str) -> dict[str, Any]:
    """The record of documents; empty where there is none that can be read."""
    try:
        value = read_json(path)
    except UserError:
        return {}
    good = (
        isinstance(value, dict)
        and value.get("kind") == kind
        and isinstance(value.get("files"), dict)
        and all(Path(name).name == name for name in value["files"])  # none leads elsewhere
    )
    return value if good else {}


Mode = Literal["link", "hardlink", "copy"]
MODES: tuple[Mode, ...] = ("link", "hardlink", "copy")
PLACED_RECORD = "placed.json"
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
            raise UserError(f"image {image_id!r} would lie outside {root}", fix="correct its path")
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

    @cache
    def way(start: Path, end: Path) -> str:
        return Path(os.path.relpath(end.resolve(), start.resolve())).as_posix()

    def note(target: str, file: Path) -> dict[str, str]:
        """How a file is placed, as the record has it: enough to tell later whether it still is."""
        if mode == "link":
            return {"link": f"{way((folder / target).parent, file.parent)}/{file.name}"}
        return {mode: sha256_file(file)}

    notes_of = {target: note(target, item.file) for target, item in wanted.items()}
    _write_record(folder, known | notes_of)  # before the first file: nothing of ours unrecorded
    made = kept = removed = 0
    failures: list[Failure] = []
    notes: list[str] = []
    for target in (*wanted, *stale):
        place, item = folder / target, wanted.get(target)
        if os.path.lexists(place):
            if target in known and not _as_placed(place, known[target]):
                notes.append(f"{target} was changed since it was placed, and is left alone")
                notes_of[target] = known[target]
                continue
            if item is not None and _as_placed(place, notes_of[target]):
                kept += 1
                continue
            place.unlink()
            if item is None:
                removed += 1
                _remove_empty(place.parent, folder)
        if item is None:
            continue
        try:
            _place(item.file, place, notes_of[target])
            made += 1
        except OSError as error:
            failures.append(Failure(image_id=item.image_id, reason=" ".join(str(error).split())))
            del notes_of[target]
    _write_record(folder, notes_of)
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
        if target == PLACED_RECORD:
            raise UserError(
                f"an image would be placed at {PLACED_RECORD}", fix="place it in a folder"
            )
    return dict(sorted(found.items()))


_safe = lru_cache(maxsize=1 << 16)(safe_name)  # a name comes as often as it has folders


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


class _PlacedFiles(Document, frozen=True, kw_only=True):
    """``placed.json``: how each file was placed, by its path below the folder."""

    schema_version: int = 1
    files: dict[str, dict[str, str]]


def _read_record(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / PLACED_RECORD
    if not path.exists():
        return {}
    files = read(path, _PlacedFiles, fix="name another folder").files
    for target in map(PurePosixPath, files):
        if target.is_absolute() or ".." in target.parts:
            raise BadFile(path, f"{target} leads out of the folder", fix="name another folder")
    return files


def _write_record(folder: Path, files: Mapping[str, dict[str, str]]) -> None:
    write(folder / PLACED_RECORD, _PlacedFiles(files=dict(sorted(files.items()))))

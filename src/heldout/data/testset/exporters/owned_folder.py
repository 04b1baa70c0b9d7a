"""Folders that we write and must not destroy: exports, documents, placed files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    held,
    read_json,
    sha256_file,
    sha256_text,
    write_json,
    write_text,
)
from heldout.core.schema import Document, read, write


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An image that an export had to leave out, and why."""

    image_id: str
    reason: str


def write_owned(
    folder: Path,
    record: str,
    about: Mapping[str, Any],
    fill: Callable[[Path], Mapping[str, Any]],
    *,
    kind: str,
    replace: bool,
) -> tuple[dict[str, Any], bool]:
    """Let ``fill`` write a folder, and record it in the file ``record``; the record, and if it is new.

    ``about``  what is asked for; the same again changes nothing, unless images ``failures``
    ``fill``   writes into a temporary folder, and gives what else the record says
    ``kind``   what it is, in words

    With ``replace`` another one of this kind is replaced as a whole. A folder that holds any file
    that was not written here is refused.
    """
    with held(folder):
        known = _owned(folder, record, kind)
        if known:
            if not replace and any(known.get(name) != value for name, value in about.items()):
                raise ExistsError(
                    f"{folder} holds another {kind}", fix="name another folder, or use --replace"
                )
            there, ours = _digests(folder, record), known["files"]
            odd = (
                there.keys() - ours.keys() if replace else dict(there.items() ^ ours.items()).keys()
            )
            if odd:
                raise ExistsError(
                    f"{folder} holds this {kind}, but {min(odd)} is not as it was written",
                    fix="move it away" if replace else "use --replace to write it again",
                )
            if not replace and not known.get("failures"):
                return known, False
        with atomic_folder(folder, replace=bool(known)) as temporary:
            told = fill(temporary)
            made = {"schema_version": 1, **about, **told, "files": _digests(temporary, record)}
            write_json(temporary / record, made)
    return made, True


def _owned(folder: Path, record: str, kind: str) -> dict[str, Any]:
    """The record of a folder; empty for one that is not there or holds nothing."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return {}
    value = None
    with suppress(UserError):
        value = read_json(folder / record)
    if isinstance(value, dict) and isinstance(value.get("files"), dict):
        return value
    raise ExistsError(
        f"{folder} exists and is not the folder of an earlier {kind}", fix="name another folder"
    )


def _digests(folder: Path, record: str) -> dict[str, str]:
    """The SHA-256 of every file below a folder, but for the record."""
    return {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / record
    }


def write_documents(
    folder: Path,
    documents: Mapping[str, str],
    *,
    kind: str,
    about: Mapping[str, Any],
    replace: bool = False,
) -> bool:
    """Write ``documents`` (file name to text) and ``<kind>.json`` to ``folder``; False if unchanged.

    ``about``  what the record says beyond the hashes
    """

    def fill(place: Path) -> dict[str, Any]:
        for name, text in documents.items():
            write_text(place / name, text)
        return {}

    files = {name: sha256_text(text) for name, text in sorted(documents.items())}
    asked = {"kind": kind, **about, "files": files}
    return write_owned(folder, f"{kind}.json", asked, fill, kind=kind, replace=replace)[1]


_LONGEST = 120


def safe_name(text: str) -> str:
    """A text as one file or folder name: what could lead elsewhere or is special is escaped.

    >>> safe_name("n01440764"), safe_name("../x"), safe_name("a/b")
    ('n01440764', '%2E.%2Fx', 'a%2Fb')
    """
    name = "".join(
        c if c.isalnum() or c in "-_. ()+,=@~" else quote(c, safe="") for c in text
    ).replace("/", "%2F")
    if name.startswith(".") or not name:
        name = f"%2E{name[1:]}"
    if name.endswith((".", " ")):
        name = name[:-1] + quote(name[-1], safe="").replace(".", "%2E")
    if len(name.encode()) > _LONGEST:
        digest = sha256_text(text)[:16]
        name = name.encode()[: _LONGEST - 17].decode(errors="ignore") + f"-{digest}"
    return name


Mode = Literal["link", "hardlink", "copy"]
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

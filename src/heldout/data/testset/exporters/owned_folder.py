"""Folders that are ours: exports written whole or not at all, documents, and placed files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

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
from heldout.data.testset.exporters.images import (
    Failure,
    Images,
    Row,
    export_rows,
    image_reader,
    safe_name,
)
from heldout.data.testset.exporters.licences import check_licences, write_attributions
from heldout.data.testset.testset import TestSet

SCHEMA_VERSION = 1
RECORD = "export.json"


@dataclass(frozen=True, kw_only=True)
class Export:
    """The result of an export.

    ``rows``       images (once for each class they have) in the export
    ``copied``     image files written
    ``failures``   images left out, in the order of the set
    ``notes``      what a reader of the format should know
    ``unchanged``  the same export was there already and nothing was written
    """

    format: str
    folder: str
    testset: str
    content_hash: str
    truth: str
    rows: int
    copied: int
    files: int
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    unchanged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


class ExportRecord(Document, frozen=True, kw_only=True):
    """``export.json``: the test set, the options and the SHA-256 of every file of an export."""

    schema_version: int = SCHEMA_VERSION
    format: str
    testset: str
    content_hash: str
    truth: str
    options: dict[str, Any]
    rows: int
    copied: int
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]
    files: dict[str, str]

    def same_request(self, other: ExportRecord) -> bool:
        """Whether both are the same export of the same content with the same options."""
        names = ("format", "testset", "content_hash", "truth", "options")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def result(self, folder: Path, *, unchanged: bool = False) -> Export:
        """What the caller of the export gets."""
        return Export(
            format=self.format,
            folder=str(folder),
            testset=self.testset,
            content_hash=self.content_hash,
            truth=self.truth,
            rows=self.rows,
            copied=self.copied,
            files=len(self.files),
            failures=self.failures,
            notes=self.notes,
            unchanged=unchanged,
        )


class ImageExport:
    """One export of a test set's images, or of their manifest alone.

    ``rows``      one for each image and class
    ``kept``      those that went into the export so far
    ``failures``  images left out, in the order of the set
    ``notes``     what a reader of the format should know; first what the licences ask for
    """

    def __init__(
        self,
        testset: TestSet,
        truth: str | None,
        *,
        copy: bool,
        images: Images | None = None,
        allow_licence: bool = False,
    ) -> None:
        self.testset = testset
        self.truth = truth or testset.card.default_truth
        self.rows, self.failures = export_rows(testset, truth)
        self.kept: list[Row] = []
        self.notes: list[str] = []
        self._copy = copy
        self._images = images
        self._copied = 0
        if copy:
            licences = (row.licence for row in self.rows)
            self.notes += check_licences(licences, allow=allow_licence, what=testset.name)

    def read(
        self,
        rows: Iterable[Row] | None = None,
        *,
        problem: Callable[[bytes], str] = lambda data: "",
    ) -> Iterator[tuple[Row, bytes | None]]:
        """Each row with its image's bytes, or with None where images are not copied.

        Images that cannot be read, or for whose bytes ``problem`` gives a reason, are failures.
        """
        reader = image_reader(self.testset, self._images) if self._copy else None
        for row in self.rows if rows is None else rows:
            data = reader(row) if reader else None
            if isinstance(data, bytes) and (reason := problem(data)):
                data = Failure(image_id=row.image_id, reason=reason)
            if isinstance(data, Failure):
                self.failures.append(data)
                continue
            yield row, data
            self.kept.append(row)
            self._copied += data is not None

    def copies(
        self,
        rows: Iterable[Row] | None = None,
        *,
        problem: Callable[[bytes], str] = lambda data: "",
    ) -> Iterator[tuple[Row, bytes]]:
        """:meth:`read` for formats that always copy images."""
        for row, data in self.read(rows, problem=problem):
            if data is not None:
                yield row, data

    def write(
        self,
        folder: Path,
        build: Callable[[Path], int],
        *,
        form: str,
        options: Mapping[str, Any],
        replace: bool,
    ) -> Export:
        """Let ``build`` fill a temporary folder, then rename it to ``folder``.

        ``build`` returns the number of rows of its manifest; attributions are added here. The same
        export again changes nothing. Anything else in ``folder`` is refused; with ``replace``
        another export is replaced, and something that is not an export never.
        """
        record = ExportRecord(
            format=form,
            testset=self.testset.name,
            content_hash=self.testset.card.content_hash,
            truth=self.truth,
            options=dict(options),
            rows=0,
            copied=0,
            failures=(),
            notes=(),
            files={},
        )
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            known = _recorded(folder)
            if known is None:
                raise ExistsError(
                    f"{folder} exists and is not an export", fix="name another folder"
                )
            if not replace:
                if not known.same_request(record):
                    raise ExistsError(
                        f"{folder} holds another export ({known.format} of {known.testset})",
                        fix="name another folder, or use --replace",
                    )
                changed = _changed(folder, known.files)
                if changed:
                    raise ExistsError(
                        f"{folder} holds this export, but {changed[0]} is not as it was written",
                        fix="use --replace to write it again",
                    )
                if not known.failures:
                    return known.result(folder, unchanged=True)
                replace = True  # incomplete: try again for the images that failed
        with atomic_folder(folder, replace=replace) as temporary:
            rows = build(temporary)
            if rows == 0:
                first = next(iter(self.failures), None)
                reason = f", such as {first.image_id}: {first.reason}" if first else ""
                raise UserError(
                    f"no image of {self.testset.name} could be exported{reason}",
                    fix="name the folder of its images with --images",
                )
            write_attributions(self.testset, self.kept, temporary)
            record = msgspec.structs.replace(
                record,
                rows=rows,
                copied=self._copied,
                failures=tuple(dict.fromkeys(self.failures)),  # an image of two classes fails once
                notes=tuple(self.notes),
                files={
                    path.relative_to(temporary).as_posix(): sha256_file(path)
                    for path in sorted(temporary.rglob("*"))
                    if path.is_file()
                },
            )
            write(temporary / RECORD, record)
        return record.result(folder)


def _recorded(folder: Path) -> ExportRecord | None:
    """The record of the export in ``folder``; None where there is none that can be read."""
    try:
        return read(folder / RECORD, ExportRecord)
    except UserError:
        return None


def _changed(folder: Path, recorded: Mapping[str, str]) -> list[str]:
    """Files that are missing, changed or new since the export was written, sorted."""
    there = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    there.pop(RECORD, None)
    changed = set(recorded.keys() ^ there.keys())
    changed |= {
        name
        for name, digest in recorded.items()
        if name in there and sha256_file(there[name]) != digest
    }
    return sorted(changed)


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
    digests = {name: sha256_text(text) for name, text in sorted(documents.items())}
    record = {"schema_version": SCHEMA_VERSION, "kind": kind, **about, "files": digests}
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            _write(temporary, documents, kind, record)
        return True
    if not folder.is_dir():
        raise ExistsError(f"{folder} is a file", fix="name a folder")
    known = _documents_recorded(folder, kind)
    ours: dict[str, str] = known.get("files", {})
    own = f"{kind}.json"
    for name in (*documents, own):
        if (folder / name).exists() and name not in ours and not (known and name == own):
            raise ExistsError(
                f"{folder / name} is there and was not written as part of a {kind}",
                fix="name another folder",
            )
    if known == record and not _documents_changed(folder, digests):
        return False
    if known and not replace:
        raise ExistsError(
            f"{folder} holds another {kind}", fix="name another folder, or use --replace"
        )
    # The record covers old and new names while files change: an interruption orphans none.
    write_json(folder / own, {**record, "files": ours | digests})
    for name, digest in ours.items():
        if name not in digests and not _documents_changed(folder, {name: digest}):
            (folder / name).unlink()
    _write(folder, documents, kind, record)
    return True


def _write(
    folder: Path, documents: Mapping[str, str], kind: str, record: Mapping[str, Any]
) -> None:
    for name, text in documents.items():
        write_text(folder / name, text)
    write_json(folder / f"{kind}.json", record)


def _documents_changed(folder: Path, digests: Mapping[str, str]) -> bool:
    """Whether a file is missing or is not as it was written."""
    return any(
        not (folder / name).is_file() or sha256_file(folder / name) != digest
        for name, digest in digests.items()
    )


def _documents_recorded(folder: Path, kind: str) -> dict[str, Any]:
    """The record in ``folder``; empty where there is none that can be read."""
    path = folder / f"{kind}.json"
    if not path.is_file():
        return {}
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
        if target == PLACED_RECORD:
            raise UserError(
                f"an image would be placed at {PLACED_RECORD}", fix="place it in a folder"
            )
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


class _PlacedFiles(Document, frozen=True, kw_only=True):
    """``placed.json``: how each file was placed, by its path below the folder."""

    schema_version: int = SCHEMA_VERSION
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

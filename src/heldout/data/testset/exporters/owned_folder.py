"""Exports: folders that are ours, written whole or not at all, and the rows, names and bytes that go in."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import quote

from heldout.core.errors import BadFile, ExistsError, NotFound, UserError
from heldout.core.files import (
    atomic_folder,
    atomic_path,
    read_json,
    read_versioned_json,
    sha256_file,
    sha256_text,
    write_json,
    write_text,
)
from heldout.data.images import FolderSource, ImageSource, read_image, sha256_bytes
from heldout.data.images.sources import is_image_name
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset.testset import TestSet

SCHEMA_VERSION = 1
RECORD = "export.json"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An image that an export had to leave out, and why."""

    image_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a builder wrote: rows of the manifest, copied image files, failures, notes."""

    rows: int
    copied: int = 0
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


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


def write_export(
    testset: TestSet,
    folder: Path,
    build: Callable[[Path], Written],
    *,
    form: str,
    truth: str,
    options: Mapping[str, Any],
    replace: bool = False,
) -> Export:
    """Let ``build`` fill a temporary folder, then rename it to ``folder``.

    ``export.json`` in it records the test set, the options and the SHA-256 of every file. The same
    export again changes nothing. Anything else in ``folder`` is refused; with ``replace`` another
    export is replaced, and something that is no export never.
    """
    key = {
        "format": form,
        "testset": testset.name,
        "content_hash": testset.card.content_hash,
        "truth": truth,
        "options": dict(options),
    }
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        known = _recorded(folder)
        if known is None:
            raise ExistsError(f"{folder} exists and is no export", fix="name another folder")
        if not replace:
            if {name: known.get(name) for name in key} != key:
                raise ExistsError(
                    f"{folder} holds another export ({known.get('format')} of "
                    f"{known.get('testset')})",
                    fix="name another folder, or use --replace",
                )
            changed = _changed(folder, known)
            if changed:
                raise ExistsError(
                    f"{folder} holds this export, but {changed[0]} is not as it was written",
                    fix="use --replace to write it again",
                )
            if not known["failures"]:
                return _export(key, folder, known, unchanged=True)
            replace = True  # incomplete: try again for the images that failed
    with atomic_folder(folder, replace=replace) as temporary:
        written = build(temporary)
        failures = tuple(dict.fromkeys(written.failures))  # an image of two classes fails once
        written = dataclasses.replace(written, failures=failures)
        if written.rows == 0:
            reason = f", such as {_shown(written.failures[0])}" if written.failures else ""
            raise UserError(
                f"no image of {testset.name} could be exported{reason}",
                fix="name the folder of its images with --images",
            )
        files = {
            path.relative_to(temporary).as_posix(): sha256_file(path)
            for path in sorted(temporary.rglob("*"))
            if path.is_file()
        }
        record = {"schema_version": SCHEMA_VERSION, **key, **asdict(written), "files": files}
        write_json(temporary / RECORD, record)
    return _export(key, folder, record)


def _shown(failure: Failure) -> str:
    return f"{failure.image_id}: {failure.reason}"


def _export(
    key: Mapping[str, Any], folder: Path, record: Mapping[str, Any], *, unchanged: bool = False
) -> Export:
    return Export(
        format=key["format"],
        folder=str(folder),
        testset=key["testset"],
        content_hash=key["content_hash"],
        truth=key["truth"],
        rows=record["rows"],
        copied=record["copied"],
        files=len(record["files"]),
        failures=tuple(Failure(**failure) for failure in record["failures"]),
        notes=tuple(record["notes"]),
        unchanged=unchanged,
    )


def _recorded(folder: Path) -> dict[str, Any] | None:
    """The record of the export in ``folder``; None where there is none that can be read."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        value = read_json(path)
    except UserError:
        return None
    wanted = {"rows": int, "copied": int, "files": dict, "failures": list, "notes": list}
    good = isinstance(value, dict) and all(
        isinstance(value.get(name), kind) for name, kind in wanted.items()
    )
    return value if good else None


def _changed(folder: Path, record: Mapping[str, Any]) -> list[str]:
    """Files that are missing, changed or new since the export was written, sorted."""
    there = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    there.pop(RECORD, None)
    recorded: dict[str, str] = record["files"]
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


_IMAGE_SUFFIX = re.compile(r"\.(jpe?g|png|webp|gif|bmp|tiff?|ppm|pgm)\Z", re.IGNORECASE)
_LONGEST = 120


@dataclass(frozen=True, kw_only=True)
class Row:
    """One image with one of its classes; ``index`` is the class's position in the label space."""

    image_id: str
    class_id: str
    index: int
    path: str | None
    uri: str | None
    sha256: str | None
    source: str | None
    licence: str | None
    attribution: str | None


def export_rows(testset: TestSet, truth: str | None) -> tuple[list[Row], list[Failure]]:
    """Rows in the order of the images table, then of classes; images without a class fail."""
    table = testset.truth(truth)
    classes: dict[str, set[str]] = {}
    for image, label in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        if label is not None:
            classes.setdefault(image, set()).add(label)
    names = ("image_id", "path", "uri", "sha256", "source", "licence", "attribution")
    columns = [testset.images[name].to_pylist() for name in names]
    rows: list[Row] = []
    failures: list[Failure] = []
    for values in zip(*columns, strict=True):
        fields = dict(zip(names, values, strict=True))
        labels = classes.get(fields["image_id"])
        if labels is None:
            reason = f"has no class in truth {truth or testset.card.default_truth}"
            failures.append(Failure(image_id=fields["image_id"], reason=reason))
            continue
        indexed = sorted((testset.label_space.index(label), label) for label in labels)
        rows += [Row(class_id=label, index=index, **fields) for index, label in indexed]
    return rows, failures


class FileNames:
    """Gives each row a file name of its own in its folder, also where case does not count.

    A name depends on the image, not on the rows around it; only where two would be equal does a
    piece of the image id's hash tell them apart.
    """

    def __init__(self) -> None:
        self._taken: set[tuple[str, str]] = set()

    def take(self, folder: str, row: Row, suffix: str = "") -> str:
        """A file name for ``row`` in ``folder``; ``suffix`` ends a name that no image has."""
        given = PurePosixPath((row.path or row.image_id).replace("\\", "/")).name
        stem, ending = _split(given if is_image_name(given) else f"{given}{suffix}")
        name = f"{safe_name(stem)}{ending}"
        if not self._add(folder, name):
            digest = hashlib.sha256(f"{row.image_id}\n{row.class_id}".encode()).hexdigest()
            length = 8
            while not self._add(folder, name):
                name = f"{safe_name(stem)}-{digest[:length]}{ending}"
                length += 8
        return name

    def _add(self, folder: str, name: str) -> bool:
        key = (folder.casefold(), name.casefold())
        if key in self._taken:
            return False
        self._taken.add(key)
        return True


def _split(name: str) -> tuple[str, str]:
    found = _IMAGE_SUFFIX.search(name)
    return (name[: found.start()], found.group()) if found and found.start() else (name, "")


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
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = name.encode()[: _LONGEST - 17].decode(errors="ignore") + f"-{digest}"
    return name


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


def _read_record(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / PLACED_RECORD
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
    write_json(folder / PLACED_RECORD, {"schema_version": SCHEMA_VERSION, "files": notes})


_MAGIC = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\x00", ".tiff"),
    (b"MM\x00*", ".tiff"),
)

Images = Path | ImageSource
Reader = Callable[[Row], bytes | Failure]


def image_reader(testset: TestSet, images: Images | None) -> Reader:
    """A function from a row to its image's bytes, or to why there are none.

    ``images`` is a folder, in which an image lies at its ``path`` (or at its id, where the set has
    no path); or a source, which knows it by its id (or by its path). Without it the set's own
    folder is read. Bytes that are not those the set recorded count as a failure: an export never
    passes on a changed image.
    """
    if images is None:
        images = testset.source or testset.images_folder()
    if isinstance(images, Path):
        source: ImageSource = FolderSource(images)
        return lambda row: _read(row, source, [row.path or row.image_id])
    source = images
    return lambda row: _read(row, source, [row.image_id, row.path or row.image_id])


def _read(row: Row, source: ImageSource, names: list[str]) -> bytes | Failure:
    reason = ""
    for name in dict.fromkeys(names):
        try:
            data = read_image(source, name)
        except NotFound as error:
            reason = reason or error.message
            continue
        except (OSError, UserError) as error:
            return Failure(image_id=row.image_id, reason=" ".join(str(error).split()))
        if row.sha256 is not None and sha256_bytes(data) != row.sha256:
            reason = "its bytes are not those that were recorded"
            return Failure(image_id=row.image_id, reason=reason)
        return data
    return Failure(image_id=row.image_id, reason=reason)


def image_suffix(data: bytes) -> str:
    """The file ending that fits an image's first bytes, or an empty text."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((suffix for magic, suffix in _MAGIC if data.startswith(magic)), "")


def unique_names(space: LabelSpace) -> tuple[str, ...]:
    """One name for each class in order, no two alike; ImageNet-1k has two ``crane``.

    The usual name, if no other class has it; else with a synonym, a parent or the id in brackets,
    whichever first makes it unique: ``crane (wading bird)``.
    """
    usual = [_one_line(item.name) for item in space]
    counts: dict[str, int] = {}
    for name in usual:
        counts[name] = counts.get(name, 0) + 1
    taken = {name for name in usual if counts[name] == 1}
    names = []
    for item, name in zip(space, usual, strict=True):
        if counts[name] > 1:
            name = next(n for n in _candidates(item, name) if n not in taken)
            taken.add(name)
        names.append(name)
    return tuple(names)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _candidates(item: Class, name: str) -> list[str]:
    other = [_one_line(synonym) for synonym in item.names[1:]]
    if not other and item.parents:
        nodes = LabelSpace.load("wordnet-nodes")
        other = [nodes.get(parent).name for parent in item.parents if parent in nodes]
    return [f"{name} ({extra})" for extra in [*other, item.id]] + [
        f"{name} ({item.id}, {n})" for n in range(2, 1000)
    ]

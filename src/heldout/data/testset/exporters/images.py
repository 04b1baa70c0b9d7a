"""Exports of images: one row per image and class, file names, bytes; a folder written as a whole."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from heldout.core.errors import ExistsError, NotFound, UserError
from heldout.core.files import atomic_folder, sha256_file
from heldout.core.records import Table
from heldout.core.schema import Document, read, write
from heldout.data.images import (
    BadImage,
    FolderSource,
    ImageSource,
    probe,
    read_image,
    sha256_bytes,
)
from heldout.data.images.sources import EXTENSIONS, is_image_name
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset.exporters.licences import check_licences, write_attributions
from heldout.data.testset.testset import TestSet

RECORD = "export.json"
_TOLD = ("rows", "copied", "failures", "notes", "files")
_LONGEST = 120


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An image that an export had to leave out, and why."""

    image_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Export:
    """The result of an export.

    ``rows``       images (once for each class they have) in the export
    ``copied``     image files written
    ``failures``   images left out, in the order of the set
    ``notes``      what a reader of the format should know
    ``unchanged``  the same export was there already and nothing was written
    """

    record: ClassVar[str] = "export"
    table: ClassVar[Table] = Table(
        "",
        (
            "test set=testset",
            "format",
            "rows:,",
            "images copied=copied:,",
            "files:,",
            "unchanged",
            "written to=folder",
        ),
    )
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


class ExportRecord(Document, frozen=True, kw_only=True):
    """``export.json``: the test set, the options and the SHA-256 of every file of an export."""

    schema_version: int = 1
    format: str
    testset: str
    content_hash: str
    truth: str
    options: dict[str, Any]
    rows: int = 0
    copied: int = 0
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    files: dict[str, str] = msgspec.field(default_factory=dict)

    def result(self, folder: Path, *, unchanged: bool = False) -> Export:
        """What the caller of the export gets."""
        fields = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in ("schema_version", "options", "files")
        }
        return Export(**fields, folder=str(folder), files=len(self.files), unchanged=unchanged)


@dataclass(frozen=True)
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
    for image, *values in zip(*columns, strict=True):
        if image not in classes:
            reason = f"has no class in truth {truth or testset.card.default_truth}"
            failures.append(Failure(image_id=image, reason=reason))
            continue
        indexed = sorted((testset.label_space.index(label), label) for label in classes[image])
        rows += [Row(image, label, index, *values) for index, label in indexed]
    return rows, failures


class FileNames:
    """Gives each row a file name of its own in its folder, also where case does not count.

    A name depends on the image, not on the rows around it; only where two would be equal does a
    piece of the image id's hash distinguish them.
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
    ending = PurePosixPath(name).suffix
    return (name[: -len(ending)], ending) if ending.lower() in EXTENSIONS else (name, "")


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


_SUFFIXES = {"JPEG": ".jpg", "MPO": ".jpg", "JPEG2000": ".jp2"}

Images = Path | ImageSource
"""A folder or a source, in which an image is at its ``path`` or else under its id."""


class ImageExport:
    """One export of a test set's images, or of their manifest alone.

    ``rows``      one for each image and class
    ``kept``      those that went into the export so far
    ``failures``  images left out, in the order of the set
    ``notes``     what a reader of the format should know; first what the licences ask for

    Without ``images`` those of the set's own folder are read.
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
        self.copy = copy
        self._images = images
        self._copied = 0
        if copy:
            licences = (row.licence for row in self.rows)
            self.notes += check_licences(licences, allow=allow_licence, what=testset.name)

    def read(
        self, rows: Iterable[Row] | None = None, *, problem: Callable[[bytes], str] = lambda _: ""
    ) -> Iterator[tuple[Row, bytes]]:
        """Each row with its image's bytes, or with no bytes where images are not copied.

        Images that cannot be read, or for whose bytes ``problem`` gives a reason, are failures. So
        are bytes that are not those that the set recorded: an export never passes on a changed
        image.
        """
        source: ImageSource | None = None
        if self.copy:
            place = self._images or self.testset.source or self.testset.images_folder()
            source = FolderSource(place) if isinstance(place, Path) else place
        for row in self.rows if rows is None else rows:
            data = b""
            if source is not None:
                try:
                    data = _image_bytes(source, row)
                    reason = problem(data)
                except (OSError, UserError) as error:
                    text = error.message if isinstance(error, NotFound) else str(error)
                    reason = " ".join(text.split())
                if reason:
                    self.failures.append(Failure(image_id=row.image_id, reason=reason))
                    continue
            yield row, data
            self.kept.append(row)
            self._copied += self.copy

    def write(
        self,
        folder: Path,
        build: Callable[[ImageExport, Path], int],
        *,
        form: str,
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
            content_hash=self.testset.content_hash,
            truth=self.truth,
            options={"copy_images": self.copy},
        )
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            known = _recorded(folder)
            if not replace:
                # The record as it would be, but for what only the writing itself tells.
                found = {name: getattr(known, name) for name in _TOLD}
                if known != msgspec.structs.replace(record, **found):
                    raise ExistsError(
                        f"{folder} holds another export ({known.format} of {known.testset})",
                        fix="name another folder, or use --replace",
                    )
                there = _digests(folder)
                changed = sorted(dict(known.files.items() ^ there.items()))
                if changed:
                    raise ExistsError(
                        f"{folder} holds this export, but {changed[0]} is not as it was written",
                        fix="use --replace to write it again",
                    )
                if not known.failures:
                    return known.result(folder, unchanged=True)
                replace = True  # incomplete: try again for the images that failed
        with atomic_folder(folder, replace=replace) as temporary:
            rows = build(self, temporary)
            if rows == 0:
                first = next(iter(self.failures), None)
                reason = f", such as {first.image_id}: {first.reason}" if first else ""
                raise UserError(
                    f"no image of {self.testset.name} could be exported{reason}",
                    fix="name the folder of its images with --images",
                )
            write_attributions(self.kept, temporary / "attributions.csv")
            record = msgspec.structs.replace(
                record,
                rows=rows,
                copied=self._copied,
                failures=tuple(dict.fromkeys(self.failures)),  # an image of two classes fails once
                notes=tuple(self.notes),
                files=_digests(temporary),
            )
            write(temporary / RECORD, record)
        return record.result(folder)


def _image_bytes(source: ImageSource, row: Row) -> bytes:
    """The bytes of an image at its path, else under its id, if they are those recorded."""
    try:
        data = read_image(source, row.path or row.image_id)
    except NotFound:
        data = read_image(source, row.image_id)
    if row.sha256 is not None and sha256_bytes(data) != row.sha256:
        raise UserError("its bytes are not those that were recorded")
    return data


def _recorded(folder: Path) -> ExportRecord:
    """The record of the export in ``folder``."""
    try:
        return read(folder / RECORD, ExportRecord)
    except UserError:
        raise ExistsError(
            f"{folder} exists and is not an export", fix="name another folder"
        ) from None


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder, but for the record."""
    return {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / RECORD
    }


def image_suffix(data: bytes) -> str:
    """The file ending that fits an image by its header, or an empty text."""
    info = probe(data)
    if isinstance(info, BadImage):
        return ""
    return _SUFFIXES.get(info.format, f".{info.format.lower()}")


def unique_names(space: LabelSpace) -> tuple[str, ...]:
    """One name for each class in order, no two alike; ImageNet-1k has two ``crane``.

    The usual name, if no other class has it; else with a synonym, a parent or the id in brackets,
    whichever first makes it unique: ``crane (wading bird)``.
    """
    usual = [_one_line(item.name) for item in space]
    counts = Counter(usual)
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

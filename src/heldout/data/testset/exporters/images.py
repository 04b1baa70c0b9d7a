"""Exports of images: one row per image and class, file names, bytes; a folder written as a whole."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from heldout.core.errors import NotFound, UserError
from heldout.core.records import Table
from heldout.data.images import (
    BadImage,
    FolderSource,
    ImageSource,
    probe,
    read_image,
    sha256_bytes,
)
from heldout.data.images.sources import is_image_name
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset.exporters.licences import check_licences, write_attributions
from heldout.data.testset.exporters.owned_folder import Failure, safe_name, write_owned
from heldout.data.testset.testset import TestSet

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
        if is_image_name(given):
            suffix = PurePosixPath(given).suffix
            given = given.removesuffix(suffix)
        name, length = f"{safe_name(given)}{suffix}", 8
        digest = hashlib.sha256(f"{row.image_id}\n{row.class_id}".encode()).hexdigest()
        while (folder.casefold(), name.casefold()) in self._taken:
            name = f"{safe_name(given)}-{digest[:length]}{suffix}"
            length += 8
        self._taken.add((folder.casefold(), name.casefold()))
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

    def read(self, problem: Callable[[bytes], str] = lambda _: "") -> Iterator[tuple[Row, bytes]]:
        """Each row with its image's bytes, or with no bytes where images are not copied.

        Images that cannot be read, or for whose bytes ``problem`` gives a reason, are failures. So
        are bytes that are not those that the set recorded: an export never passes on a changed
        image.
        """
        source: ImageSource | None = None
        if self.copy:
            place = self._images or self.testset.source or self.testset.images_folder()
            source = FolderSource(place) if isinstance(place, Path) else place
        for row in self.rows:
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
        about = {
            "format": form,
            "testset": self.testset.name,
            "content_hash": self.testset.content_hash,
            "truth": self.truth,
            "options": {"copy_images": self.copy},
        }

        def fill(temporary: Path) -> dict[str, Any]:
            rows = build(self, temporary)
            failures = list(dict.fromkeys(self.failures))  # an image of two classes fails once
            if rows == 0:
                first = next(iter(failures), None)
                reason = f", such as {first.image_id}: {first.reason}" if first else ""
                raise UserError(
                    f"no image of {self.testset.name} could be exported{reason}",
                    fix="name the folder of its images with --images",
                )
            write_attributions(self.kept, temporary / "attributions.csv")
            told = {"rows": rows, "copied": self._copied, "failures": list(map(asdict, failures))}
            return {**told, "notes": self.notes}

        made, new = write_owned(folder, RECORD, about, fill, kind="export", replace=replace)
        said = {name: made[name] for name in ("format", "testset", "content_hash", "truth")}
        return Export(
            **said,
            rows=made["rows"],
            copied=made["copied"],
            failures=tuple(Failure(**failure) for failure in made["failures"]),
            notes=tuple(made["notes"]),
            folder=str(folder),
            files=len(made["files"]),
            unchanged=not new,
        )


def _image_bytes(source: ImageSource, row: Row) -> bytes:
    """The bytes of an image at its path, else under its id, if they are those recorded."""
    try:
        data = read_image(source, row.path or row.image_id)
    except NotFound:
        data = read_image(source, row.image_id)
    if row.sha256 is not None and sha256_bytes(data) != row.sha256:
        raise UserError("its bytes are not those that were recorded")
    return data


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
    names: list[str] = []
    for item, name in zip(space, usual, strict=True):
        if counts[name] > 1:
            own = (*_others(item), item.id, f"{item.id}, {len(names)}")
            name = next(n for extra in own if (n := f"{name} ({extra})") not in taken)
            taken.add(name)
        names.append(name)
    return tuple(names)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _others(item: Class) -> list[str]:
    """What may tell a class from another of its name: its synonyms, else its parents."""
    if item.names[1:] or not item.parents:
        return [_one_line(synonym) for synonym in item.names[1:]]
    nodes = LabelSpace.load("wordnet-nodes")
    return [nodes.get(parent).name for parent in item.parents if parent in nodes]

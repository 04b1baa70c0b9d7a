"""The images of an export: one row per image and class, file names, bytes, names of classes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from heldout.core.errors import NotFound, UserError
from heldout.data.images import FolderSource, ImageSource, read_image, sha256_bytes
from heldout.data.images.sources import EXTENSIONS, is_image_name
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset.testset import TestSet

_LONGEST = 120


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An image that an export had to leave out, and why."""

    image_id: str
    reason: str


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


_MAGIC = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"GIF8", ".gif"),
    (b"BM", ".bmp"),
    (b"II*\x00", ".tiff"),
    (b"MM\x00*", ".tiff"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", ".jp2"),
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
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        return ".avif"
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

"""Photos to be cut: upright pixels, the class and credit of each, and the objects to cut out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.schema import Document
from heldout.core.tables import read_table_file
from heldout.data.images.decode import (
    MAX_PIXELS,
    BadImage,
    orientation_of,
    rgb,
    transposed,
    with_image,
)
from heldout.data.images.sources import check_id

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

Matte = np.ndarray
"""How sure it is that a pixel belongs to the object: (h, w) float32 in [0, 1]."""
_FORBIDDEN = frozenset('/\\:*?"<>|')  # not every system can have them in the name of a folder
_FILES = (".json", ".csv", ".html", ".png")  # are beside the folders of classes
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "file": ("file", "imageid"),
    "class": ("class",),
    "licence": ("licence", "license"),
    "attribution": ("attribution", "author"),
    "title": ("title",),
    "source": ("source", "originallandingurl"),
}
"""What the columns of a table of photos are called, by us and by OpenImages."""


@dataclass(frozen=True, eq=False)
class Photo:
    """One decoded photo, turned upright as its EXIF orientation says.

    ``pixels``       (h, w, 3) uint8; where there is alpha, the colours under alpha 0 are kept
    ``alpha``        (h, w) uint8, or None where the file has no alpha
    ``orientation``  the EXIF value by which the stored pixels were turned, 1 to 8
    """

    pixels: np.ndarray
    alpha: np.ndarray | None = None
    orientation: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """(width, height), upright."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def upright(self, mask: np.ndarray) -> np.ndarray:
        """A mask of this photo in upright pixels; (h, w) float32 in and out.

        A mask may have been drawn on the upright photo or on its stored pixels; its size
        tells which, and where both fit it is taken as upright. A smaller or larger mask of the
        same shape is brought to the photo's size, as OpenImages' must be.
        """
        width, height = self.size
        if mask.shape == (height, width):
            return mask
        if self.orientation > 4 and mask.shape == (width, height):
            return turned(mask, self.orientation)
        if _same_shape(mask.shape, (height, width)):
            from PIL import Image

            made = Image.fromarray(mask.astype(np.float32))
            return np.asarray(made.resize((width, height), Image.Resampling.BILINEAR))
        raise UserError(
            f"the mask has {mask.shape[1]} × {mask.shape[0]} pixels, the photo {width} × {height}",
            fix="use the mask of this photo",
        )


def read_photo(data: bytes) -> Photo | BadImage:
    """The photo in these bytes, or why there is none."""

    def use(image: ImageFile) -> Photo:
        image.load()
        orientation = orientation_of(image)
        alpha = None
        if "A" in image.getbands():
            alpha = turned(np.asarray(image.getchannel("A")), orientation)
        elif "transparency" in image.info and image.mode in ("1", "L", "P", "RGB"):
            alpha = turned(np.asarray(image.convert("RGBA").getchannel("A")), orientation)
        pixels = np.asarray(rgb(image, exif=True, max_pixels=MAX_PIXELS))
        return Photo(pixels=pixels, alpha=alpha, orientation=orientation)

    return with_image(data, use, max_pixels=MAX_PIXELS)


def turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Stored pixels (h, w, …) turned upright, as EXIF defines its eight orientations."""
    from PIL import Image

    if orientation == 1:
        return pixels
    return np.asarray(transposed(Image.fromarray(pixels), orientation))


def _same_shape(a: tuple[int, ...], b: tuple[int, int]) -> bool:
    """Whether two (h, w) have one aspect ratio, up to the rounding of whole pixels."""
    left, right = a[0] * b[1], a[1] * b[0]
    return abs(left - right) <= max(a[0] + b[1], a[1] + b[0], 0.01 * right)


@dataclass(frozen=True, eq=False)
class Outline:
    """Where an object is in its photo, as somebody has stated it.

    ``identity``  all that the matte depends on beside the photo, as JSON values
    ``matte``     the matte, in the upright photo's pixels; a :class:`UserError` where it cannot be
    """

    identity: Mapping[str, Any]
    matte: Callable[[Photo], Matte]


@dataclass(frozen=True)
class PhotoFacts:
    """What is known of a photo beside its pixels; empty where it is not."""

    class_name: str = ""
    licence: str = ""
    attribution: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class CutoutJob(PhotoFacts):
    """One object of one photo; the class names the folder of the cut-out.

    ``photo``        id of the photo in its source
    ``name``         file name of the cut-out, without its ending
    ``outline``      where the object is, or None where a segmenter is to find it
    """

    photo: str
    name: str
    outline: Outline | None = None

    @property
    def file(self) -> str:
        """Path of the cut-out, relative to the folder of cut-outs."""
        name = "".join("_" if c in _FORBIDDEN else c for c in self.name)
        return f"{self.class_name}/{name}.png"


class SkippedPhoto(Document, frozen=True, kw_only=True):
    """Something that is left out, and why, in one line: ``photo`` is an id, ``object`` may be empty."""

    photo: str
    object: str
    reason: str


@dataclass
class CutoutJobs:
    """What is to be cut out; what cannot be; and photos without an object."""

    jobs: list[CutoutJob] = field(default_factory=list)
    failures: list[SkippedPhoto] = field(default_factory=list)
    skipped: list[SkippedPhoto] = field(default_factory=list)

    def fail(self, photo: str, what: str, reason: str) -> None:
        """Note what cannot be cut out."""
        self.failures.append(SkippedPhoto(photo=photo, object=what, reason=reason))

    def skip(self, photo: str, what: str, reason: str) -> None:
        """Note what is left out on purpose."""
        self.skipped.append(SkippedPhoto(photo=photo, object=what, reason=reason))

    def sorted(self) -> CutoutJobs:
        """Jobs in the order of their files; two of one file are a user error."""
        seen: dict[str, CutoutJob] = {}
        for job in self.jobs:
            # Some file systems take names that differ in case only for one.
            other = seen.setdefault(job.file.lower(), job)
            if other is not job:
                raise UserError(
                    f"{other.photo} and {job.photo} would both become {job.file}",
                    fix="rename one of the photos",
                )
        jobs = sorted(self.jobs, key=lambda job: job.file)
        return CutoutJobs(jobs, in_order(self.failures), in_order(self.skipped))


def in_order(problems: Sequence[SkippedPhoto]) -> list[SkippedPhoto]:
    """Problems by photo, then object."""
    return sorted(problems, key=lambda p: (p.photo, p.object, p.reason))


def class_folder(name: str) -> str:
    """``name`` if it can be a folder of cut-outs, else a user error.

    >>> class_folder("volleyball (ball)")
    'volleyball (ball)'
    """
    try:
        fits = not set(check_id(name)) & _FORBIDDEN and name[0] != "." and name == name.strip()
    except UserError:
        fits = False
    if not fits or name.lower().endswith(_FILES):
        raise UserError(
            f"{name!r} cannot be a class",
            fix='use no slashes, leading dots, spaces around it, :*?"<>|, or the ending of a file',
        )
    return name


@dataclass(frozen=True)
class Photographs:
    """Ids of photos, and what is known of them."""

    ids: Sequence[str]
    facts: Mapping[str, PhotoFacts] = field(default_factory=dict)

    def class_of(self, photo: str) -> str:
        """The class of a photo: as its table states, or its first folder."""
        stated = self.facts.get(photo, PhotoFacts()).class_name
        folder, slash, _ = photo.partition("/")
        if not stated and not slash:
            raise UserError(
                f"{photo} is not in a folder of a class",
                fix="put photos in one folder per class, or name the classes with --table FILE.csv",
            )
        return class_folder(stated or folder)

    def job(
        self,
        photo: str,
        name: str,
        outline: Outline | None,
        *,
        class_name: str = "",
        licence: str = "",
        source: str = "",
    ) -> CutoutJob:
        """The job of an object; what is said here holds where the photo's facts state nothing."""
        stated = self.facts.get(photo, PhotoFacts())
        return CutoutJob(
            photo=photo,
            name=name,
            outline=outline,
            class_name=class_name or self.class_of(photo),
            licence=stated.licence or licence,
            attribution=stated.attribution,
            source=stated.source or source,
        )


class PhotoFinder:
    """Finds the photo that a file of annotations means: by path, file name, or name alone."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = frozenset(ids)
        self._by_name: dict[str, list[str]] = {}
        for photo in ids:
            path = PurePosixPath(photo)
            for key in dict.fromkeys((path.name, path.stem)):
                self._by_name.setdefault(key, []).append(photo)

    def find(self, name: str) -> str | None:
        """The id that ``name`` means, or None; one that could mean several is a user error."""
        if name in self._ids:
            return name
        found = self._by_name.get(PurePosixPath(name).name, [])
        if len(found) > 1:
            raise UserError(
                f"{name} may be {found[0]} or {found[1]}",
                fix="give the path from the photos' folder",
            )
        return found[0] if found else None


def read_photo_table(path: Path, ids: Sequence[str]) -> dict[str, PhotoFacts]:
    """Classes and credits from a table with a column ``file`` and any of class, licence,
    attribution, title and source."""
    finder = PhotoFinder(ids)
    rows = table_rows(path)
    names = {name.strip().lower(): name for name in rows[0]}
    known = {
        ours: [names[n] for n in theirs if n in names][:1] for ours, theirs in _COLUMNS.items()
    }
    if not known["file"]:
        raise BadFile(path, "has no column 'file'", fix=f"it has {', '.join(rows[0])}")
    facts: dict[str, PhotoFacts] = {}
    for row in rows:
        cell = {ours: "".join(row[name].strip() for name in named) for ours, named in known.items()}
        photo = finder.find(cell["file"])
        if photo is None:
            continue  # a table may well list more photos than are cut out
        made = PhotoFacts(
            class_name=cell["class"],
            licence=cell["licence"],
            attribution=", ".join(filter(None, (cell["title"], cell["attribution"]))),
            source=cell["source"],
        )
        if facts.setdefault(photo, made) != made:
            raise BadFile(path, f"states two things of {photo}", fix="leave one row of it")
    if not facts and ids:
        raise BadFile(path, "names none of the photos", fix="check its column file")
    return facts


def table_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table, every cell as text."""
    rows = read_table_file(path).to_pylist()
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]


def cutout_names(ids: Sequence[str]) -> dict[str, str]:
    """A file name for the cut-out of each photo: its own without ending, where that is clear.

    >>> cutout_names(["a/x.jpg", "a/x.png", "a/y.jpg"])
    {'a/x.jpg': 'x_jpg', 'a/x.png': 'x_png', 'a/y.jpg': 'y'}
    """
    paths = {photo: PurePosixPath(photo) for photo in ids}
    count = Counter(path.with_suffix("") for path in paths.values())
    made = {}
    for photo, path in paths.items():
        alone = count[path.with_suffix("")] == 1
        stem = path.stem if alone else f"{path.stem}_{path.suffix.removeprefix('.')}"
        inner = path.parts[1:-1]  # folders below the class: two of them may hold one name
        made[photo] = "-".join((*inner, stem))
    return made

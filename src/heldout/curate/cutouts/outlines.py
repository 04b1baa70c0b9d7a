"""Outlines that the user has: the photo's own alpha, mask files, COCO and OpenImages annotations.

A mask file may be black and white (0 and 1, 0 and 255, one bit), grey (opacity), or a picture with
alpha (the alpha counts).

A COCO polygon covers the pixels whose centres are inside it by the even-odd rule; several polygons
of one object are united. Run lengths count pixels down the columns, background first. In compressed
form they are text: each count is cut into groups of five bits, lowest first, with a sixth bit that
says "more follows" and sign extension; from the fourth on, the difference to the count two places
before is written; 48 is added to each group to make a printable character.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.files import canonical_json, existing_file, read_json, sha256_file, sha256_text
from heldout.core.schema import convert
from heldout.curate.cutouts.photos import (
    CutoutJobs,
    Matte,
    Outline,
    Photo,
    PhotoFinder,
    Photographs,
    class_folder,
    cutout_names,
    table_rows,
)
from heldout.data.images.decode import MAX_PIXELS, BadImage, Refused, with_image
from heldout.data.images.sources import FolderSource, read_image_file

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_LARGEST = 1 << 28  # pixels of a mask that a file may ask for
_AGAIN = "export the annotation again"


def _own_alpha(photo: Photo) -> Matte:
    if photo.alpha is None:
        raise UserError(
            "the photo has no alpha channel", fix="give its mask with --masks, or cut it out"
        )
    return photo.alpha.astype(np.float32) / np.float32(255)


OWN_ALPHA = Outline({"outline": "alpha"}, _own_alpha)
"""The photo's own alpha channel."""


def mask_file(path: Path) -> Outline:
    """The mask in a file of its own."""
    facts = {"outline": "mask", "sha256": sha256_file(path)}
    return Outline(facts, lambda photo: photo.upright(read_mask(path)))


def read_mask(path: Path) -> Matte:
    """The opacity that a mask file states."""
    found = with_image(read_image_file(path), _opacity, max_pixels=MAX_PIXELS)
    if isinstance(found, BadImage):
        raise BadFile(path, f"cannot be read as a mask ({found.reason})", fix="write it as a PNG")
    return np.asarray(found)


def _opacity(image: ImageFile) -> np.ndarray:
    image.load()
    if "A" in image.getbands():
        alpha = np.asarray(image.getchannel("A"))
        if (alpha < 255).any():
            return alpha.astype(np.float32) / np.float32(255)
        image = image.convert("RGB" if "R" in image.getbands() else "L")  # type: ignore[assignment]
    if image.mode in ("P", "RGB"):
        colours = np.asarray(image.convert("RGB"))
        if (colours != colours[..., :1]).any():
            raise Refused("unsupported", "it is coloured: give one mask per object")
        values = colours[..., 0]
    elif image.mode in ("1", "L") or image.mode.startswith("I"):
        values = np.asarray(image)
    else:
        raise Refused("unsupported", f"a mask of mode {image.mode}")
    most = int(values.max(initial=0))
    whole = 65_535 if image.mode.startswith("I") else 255
    if most <= 1 or not ((values > 0) & (values < most)).any():
        return (values > 0).astype(np.float32)  # black and one other value, whatever it is
    return np.asarray(np.clip(values.astype(np.float32) / np.float32(whole), 0, 1))


def polygons(parts: Sequence[Sequence[float]], *, width: int, height: int) -> Outline:
    """The outline of one object as polygons, each ``(x0, y0, x1, y1, …)`` in pixels."""
    facts = canonical_json([width, height, [list(part) for part in parts]])
    return Outline(
        {"outline": "polygons", "sha256": sha256_text(facts)},
        lambda photo: photo.upright(draw_polygons(parts, width=width, height=height)),
    )


def run_lengths(counts: Sequence[int] | str, *, width: int, height: int) -> Outline:
    """The mask of one object as run lengths: numbers, or COCO's compressed text."""
    facts = canonical_json([width, height, counts if isinstance(counts, str) else list(counts)])

    def matte(photo: Photo) -> Matte:
        plain = uncompressed(counts) if isinstance(counts, str) else counts
        return photo.upright(draw_runs(plain, width=width, height=height))

    return Outline({"outline": "run lengths", "sha256": sha256_text(facts)}, matte)


def draw_polygons(parts: Sequence[Sequence[float]], *, width: int, height: int) -> Matte:
    """The union of polygons, (height, width) float32 of 0 and 1; what is outside is cut off."""
    _check_size(width, height)
    made = np.zeros((height, width), bool)
    for part in parts:
        made |= _inside(np.asarray(part, np.float64).reshape(-1, 2), width, height)
    return made.astype(np.float32)


def draw_runs(counts: Sequence[int], *, width: int, height: int) -> Matte:
    """Run lengths as a mask; they must be 0 or more, and cover the whole image.

    >>> draw_runs([1, 2, 1], width=2, height=2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    _check_size(width, height)
    total = sum(counts)  # as Python counts: a number beyond 64 bits is only a wrong one
    if min(counts, default=0) < 0 or total != width * height:
        raise UserError(f"run lengths of {total:,} pixels for {width} × {height}", fix=_AGAIN)
    runs = np.asarray(counts, np.int64)
    values = np.zeros(len(runs), np.float32)
    values[1::2] = 1
    return np.repeat(values, runs).reshape(width, height).T.copy()


def uncompressed(text: str) -> tuple[int, ...]:
    """The counts behind COCO's compressed text.

    >>> uncompressed("1230")
    (1, 2, 3, 2)
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        group = ord(character) - 48
        if not 0 <= group < 64 or shift > 30:
            raise UserError(f"run lengths with {character!r} in them cannot be read", fix=_AGAIN)
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    if shift:
        raise UserError("run lengths that end in the middle", fix=_AGAIN)
    return tuple(counts)


def _inside(corners: np.ndarray, width: int, height: int) -> np.ndarray:
    """Pixels whose centres an even-odd polygon covers.

    Each edge flips, in every row whose centre line it crosses, all pixels to the right of the
    crossing. So an edge marks the first of them, and a running sum along the row does the rest.
    """
    flips = np.zeros((height, width + 1), np.int32)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y0 > y1:
            x0, y0, x1, y1 = x1, y1, x0, y0
        first = max(0, int(np.ceil(y0 - 0.5)))
        last = min(height, int(np.ceil(y1 - 0.5)))  # not included
        if first >= last:
            continue
        rows = np.arange(first, last)
        crossing = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
        column = np.clip(np.ceil(crossing - 0.5), 0, width).astype(np.int64)
        flips[rows, column] += 1
    return np.asarray(np.cumsum(flips[:, :width], axis=1) % 2 == 1)


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1 or width * height > _LARGEST:
        raise UserError(f"a mask of {width} × {height} pixels", fix="correct the annotation's size")


class MaskIndex:
    """Mask files by what they could belong to, so that many photos find theirs quickly.

    In this order: the same path with any ending, or with ``_mask`` or ``-mask`` behind the name;
    all files in a folder of the photo's name (what SAM's generator of masks writes); the
    same file name anywhere. All paths are relative, with forward slashes.

    >>> MaskIndex(["dog/a.png", "dog/b.png"]).of("dog/a.jpg")
    ('dog/a.png',)
    >>> MaskIndex(["a/0.png", "a/1.png"]).of("dog/a.jpg")
    ('a/0.png', 'a/1.png')
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files: dict[tuple[str, str], list[str]] = {}
        for file in sorted(files):
            path = PurePosixPath(file)
            stem = path.with_suffix("").as_posix()
            keys = [("folder", path.parent.as_posix())]
            for key in dict.fromkeys((stem, stem.removesuffix("_mask").removesuffix("-mask"))):
                keys += [("path", key), ("name", PurePosixPath(key).name)]
            for known in keys:
                self._files.setdefault(known, []).append(file)

    def of(self, photo: str) -> tuple[str, ...]:
        """The mask files of this photo; empty where there are none."""
        path = PurePosixPath(photo)
        stem = path.with_suffix("").as_posix()
        keys = (("path", stem), ("folder", stem), ("folder", path.stem), ("name", path.stem))
        return tuple(next((self._files[key] for key in keys if key in self._files), ()))


def whole_photos(photographs: Photographs, *, own_alpha: bool = False) -> CutoutJobs:
    """One job per photo: found by a segmenter, or by the photo's own alpha."""
    outline = OWN_ALPHA if own_alpha else None
    names = cutout_names(photographs.ids)
    jobs = [photographs.job(photo, names[photo], outline) for photo in photographs.ids]
    return CutoutJobs(jobs).sorted()


def masked_photos(photographs: Photographs, masks: Path) -> CutoutJobs:
    """A job for every mask of every photo."""
    index = MaskIndex(FolderSource(masks).ids())
    names = cutout_names(photographs.ids)
    made = CutoutJobs()
    for photo in photographs.ids:
        found = index.of(photo)
        if not found:
            made.skip(photo, "", f"no mask in {masks.name}")
        for file in found:
            name = names[photo] + ("" if len(found) == 1 else f"_{PurePosixPath(file).stem}")
            made.jobs.append(photographs.job(photo, name, mask_file(masks / file)))
    return made.sorted()


class _Annotated(CutoutJobs):
    """Jobs of a file of annotations: which photos are there, and which have an object."""

    def __init__(self, photographs: Photographs) -> None:
        super().__init__()
        self.photographs = photographs
        self._finder = PhotoFinder(photographs.ids)
        self._used: set[str] = set()

    def found(self, name: str, what: str) -> str | None:
        """The photo of this name; one that is not there is skipped."""
        photo = self._finder.find(name)
        if photo is None:
            self.skip(name, what, "the photo is not there")
        else:
            self._used.add(photo)
        return photo

    def all(self) -> CutoutJobs:
        """Everything, with photos that have no annotation skipped."""
        for photo in self.photographs.ids:
            if photo not in self._used:
                self.skip(photo, "", "no object is annotated")
        return self.sorted()


def coco_jobs(path: Path, photographs: Photographs, *, only: Sequence[str] = ()) -> CutoutJobs:
    """A job for every object of a file of COCO annotations; ``only`` of these classes, or of all.

    Photos that are not there are skipped, and crowds (``iscrowd``): they are not single objects.
    """
    fix = "give a file of COCO instances (instances_*.json)"
    value = convert(read_json(path), _Coco, where=path, fix=fix)
    images = {image.id: image for image in value.images}
    names = {entry.id: class_folder(entry.name) for entry in value.categories}
    unknown = sorted(set(only) - set(names.values()))
    if unknown:
        known = ", ".join(sorted(names.values())[:12])
        raise BadFile(path, f"has no category {unknown[0]!r}", fix=f"it has {known}")
    # An address says which Creative Commons licence it is; of others the name says more.
    licences = {
        entry.id: entry.url if "creativecommons.org" in entry.url else entry.name
        for entry in value.licenses
    }
    made = _Annotated(photographs)
    for entry in value.annotations:
        label, category = f"annotation {entry.id}", entry.category_id
        image = images.get(entry.image_id)
        if image is None:
            made.fail("", label, f"its image {entry.image_id} is not in the file")
            continue
        if category not in names and not only:
            made.fail(image.file_name, label, f"there is no category {category}")
        if category not in names or (only and names[category] not in only):
            continue
        photo = made.found(image.file_name, label)
        if photo is None:
            continue
        if entry.iscrowd:
            made.skip(photo, label, "a crowd, not one object")
            continue
        try:
            job = photographs.job(
                photo,
                f"{PurePosixPath(photo).stem}_{entry.id}",
                _outline(entry.segmentation, image),
                class_name=names[category],
                licence=licences.get(image.license or 0, ""),
                source=image.flickr_url or image.coco_url or "",
            )
        except UserError as error:
            made.fail(photo, label, error.line)
        else:
            made.jobs.append(job)
    return made.all()


class _CocoImage(msgspec.Struct):
    id: int
    file_name: str
    width: int = 0
    height: int = 0
    license: int | None = None
    flickr_url: str | None = None
    coco_url: str | None = None


class _CocoName(msgspec.Struct):
    """A category or a licence."""

    id: int
    name: str = ""
    url: str = ""


class _CocoAnnotation(msgspec.Struct):
    """An object; an outline that cannot be read fails it alone, not the file."""

    id: int
    image_id: int
    category_id: int
    iscrowd: Any = None
    segmentation: Any = None


class _Coco(msgspec.Struct):
    images: list[_CocoImage]
    categories: list[_CocoName]
    annotations: list[_CocoAnnotation]
    licenses: list[_CocoName] = []


class _CocoRuns(msgspec.Struct):
    size: tuple[int, int]
    counts: str | tuple[int, ...]


Corners = Annotated[tuple[float, ...], msgspec.Meta(min_length=6)]


def _outline(stated: object, image: _CocoImage) -> Outline:
    fix = "write polygons as [[x, y, x, y, x, y, …]]"
    try:
        found = msgspec.convert(stated or None, _CocoRuns | tuple[Corners, ...])
    except msgspec.ValidationError:
        raise UserError("has no segmentation that can be read", fix=fix) from None
    if isinstance(found, _CocoRuns):
        height, width = found.size
        return run_lengths(found.counts, width=width, height=height)
    if any(len(part) % 2 or not all(map(math.isfinite, part)) for part in found):
        raise UserError("a corner of its polygon is not two numbers", fix=fix)
    return polygons(found, width=image.width, height=image.height)


def openimages_jobs(
    path: Path,
    photographs: Photographs,
    *,
    masks: Path,
    class_names: Path | None = None,
    only: Sequence[str] = (),
) -> CutoutJobs:
    """A job for every row of OpenImages' CSV of segmentations.

    Classes are machine ids such as ``/m/01g317``; ``class_names`` (class-descriptions*.csv) names
    them.
    """
    needed = ("MaskPath", "ImageID", "LabelName")
    files = {PurePosixPath(file).name: file for file in FolderSource(masks).ids()}
    rows = table_rows(path)
    missing = [name for name in needed if name not in rows[0]]
    if missing:
        fix = f"give the CSV of OpenImages with {', '.join(needed)}"
        raise BadFile(path, f"has no column {missing[0]!r}", fix=fix)
    names = {} if class_names is None else read_class_names(class_names)
    made = _Annotated(photographs)
    for row in rows:
        label, stated = row["LabelName"], row["MaskPath"]
        name = names.get(label, "" if label.startswith("/") else label)
        if not name:
            raise BadFile(
                path,
                f"has the class {label}, whose name is not known",
                fix="give --class-names class-descriptions-boxable.csv",
            )
        class_name = class_folder(name)
        if only and class_name not in only:
            continue
        photo = made.found(row["ImageID"], stated)
        if photo is None:
            continue
        file = files.get(PurePosixPath(stated).name)
        if file is None:
            made.fail(photo, stated, f"the mask is not in {masks.name}")
            continue
        outline, stem = mask_file(masks / file), PurePosixPath(file).stem
        made.jobs.append(photographs.job(photo, stem, outline, class_name=class_name))
    return made.all()


def read_class_names(path: Path) -> dict[str, str]:
    """Names of classes by machine id, from a CSV of ``id,name`` with or without a header."""
    existing_file(path, "table of class names")
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            return {row[0].strip(): row[1].strip() for row in csv.reader(handle) if row}
    except (UnicodeDecodeError, csv.Error, IndexError):
        raise BadFile(path, "is not a CSV file of id, name", fix="save it in UTF-8") from None

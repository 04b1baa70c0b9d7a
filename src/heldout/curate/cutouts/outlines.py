"""Outlines that the user has: the photo's own alpha, mask files, COCO and OpenImages annotations.

A mask file may be black and white (0 and 1, 0 and 255, one bit), grey (opacity), or a picture with
alpha (the alpha counts). With ``instances`` its values are the numbers of objects, as in label
maps of VOC or panoptic COCO; 0 is background, and 255 in a palette of VOC is "not labelled".

A COCO polygon covers the pixels whose centres are inside it by the even-odd rule; several polygons
of one object are united. Run lengths count pixels down the columns, background first. In compressed
form they are text: each count is cut into groups of five bits, lowest first, with a sixth bit that
says "more follows" and sign extension; from the fourth on, the difference to the count two places
before is written; 48 is added to each group to make a printable character.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.files import canonical_json, existing_file, read_json, sha256_file, sha256_text
from heldout.core.schema import convert
from heldout.curate.cutouts.photos import (
    Box,
    CutoutJobs,
    Matte,
    ObjectMask,
    Photo,
    PhotoFinder,
    Photographs,
    class_folder,
    cutout_names,
    licence_name,
    table_rows,
)
from heldout.data.images.decode import MAX_PIXELS, BadImage, Refused, with_image
from heldout.data.images.sources import MAX_IMAGE_BYTES, FolderSource

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_VOID = 255
_LARGEST = 1 << 28  # pixels of a mask that a file may ask for
_AGAIN = "export the annotation again"


@dataclass(frozen=True)
class OwnAlpha:
    """The photo's own alpha channel."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Nothing beside the photo."""
        return {"outline": "alpha"}

    def matte(self, photo: Photo) -> Matte:
        """The alpha as it is."""
        if photo.alpha is None:
            raise UserError(
                "the photo has no alpha channel", fix="give its mask with --masks, or cut it out"
            )
        return photo.alpha.astype(np.float32) / np.float32(255)


@dataclass(frozen=True)
class MaskFile:
    """A mask in a file of its own.

    ``value``   the object's number in a label map; None where the file is the mask of one object
    ``resize``  whether a mask of another size and the same shape is brought to the photo's size
    """

    path: Path
    sha256: str
    value: int | None = None
    resize: bool = False

    @classmethod
    def of(cls, path: Path, *, value: int | None = None, resize: bool = False) -> MaskFile:
        """The mask in this file, with the hash of its bytes."""
        return cls(path, sha256_file(path), value, resize)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The hash of the file and how it is read."""
        how = {"value": self.value, "resize": self.resize}
        return {"outline": "mask", "sha256": self.sha256, **how}

    def matte(self, photo: Photo) -> Matte:
        """The mask in the photo's pixels."""
        if self.value is None:
            found = read_mask(self.path)
        else:
            found = (read_labels(self.path) == self.value).astype(np.float32)
        return photo.upright(found, resize=self.resize)


def read_mask(path: Path) -> Matte:
    """The opacity that a mask file states."""
    return _read(path, _opacity)


def read_labels(path: Path) -> np.ndarray:
    """The numbers of objects in a label map, (h, w) int64; 0 is background."""
    return _read(path, _labels)


def _read(path: Path, use: Any) -> np.ndarray:
    if path.stat().st_size > MAX_IMAGE_BYTES:
        raise BadFile(path, "is too large for a mask", fix="make it smaller")
    found = with_image(path.read_bytes(), use, max_pixels=MAX_PIXELS)
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
            raise Refused(
                "unsupported", "it is coloured: give --instances if colours number objects"
            )
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


def _labels(image: ImageFile) -> np.ndarray:
    image.load()
    if image.mode in ("1", "L", "P") or image.mode.startswith("I"):
        numbers = np.asarray(image).astype(np.int64)
        return np.where(numbers == _VOID, 0, numbers) if image.mode == "P" else numbers
    colours = np.asarray(image.convert("RGB")).astype(np.int64)
    return np.asarray(colours @ np.array([1, 256, 65_536]))


@dataclass(frozen=True)
class Polygons:
    """The outline of one object as polygons, each ``(x0, y0, x1, y1, …)`` in pixels."""

    width: int
    height: int
    parts: tuple[tuple[float, ...], ...]

    @property
    def identity(self) -> Mapping[str, Any]:
        """A hash of the corners."""
        facts = canonical_json([self.width, self.height, [list(part) for part in self.parts]])
        return {"outline": "polygons", "sha256": sha256_text(facts)}

    def matte(self, photo: Photo) -> Matte:
        """The polygons in the photo's pixels."""
        return photo.upright(draw_polygons(self.parts, width=self.width, height=self.height))


@dataclass(frozen=True)
class RunLengths:
    """The mask of one object as run lengths: numbers, or COCO's compressed text."""

    width: int
    height: int
    counts: tuple[int, ...] | str

    @property
    def identity(self) -> Mapping[str, Any]:
        """A hash of the counts."""
        counts = self.counts if isinstance(self.counts, str) else list(self.counts)
        facts = canonical_json([self.width, self.height, counts])
        return {"outline": "run lengths", "sha256": sha256_text(facts)}

    def matte(self, photo: Photo) -> Matte:
        """The runs in the photo's pixels."""
        counts = uncompressed(self.counts) if isinstance(self.counts, str) else self.counts
        return photo.upright(draw_runs(counts, width=self.width, height=self.height))


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
        what = "a negative count" if min(counts, default=0) < 0 else f"counts of {total:,} pixels"
        raise UserError(f"run lengths with {what} for an image of {width} × {height}", fix=_AGAIN)
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
    outline = OwnAlpha() if own_alpha else None
    names = cutout_names(photographs.ids)
    jobs = [photographs.job(photo, names[photo], outline=outline) for photo in photographs.ids]
    return CutoutJobs(jobs).sorted()


def masked_photos(
    photographs: Photographs, masks: Path, *, instances: bool = False, resize: bool = False
) -> CutoutJobs:
    """A job for every mask of every photo; ``instances``: masks number their objects."""
    index = MaskIndex(FolderSource(masks).ids())
    names = cutout_names(photographs.ids)
    made = CutoutJobs()
    for photo in photographs.ids:
        found = index.of(photo)
        if not found:
            made.skip(photo, "", f"no mask in {masks.name}")
        for file in found:
            name = names[photo] + ("" if len(found) == 1 else f"_{PurePosixPath(file).stem}")
            whole = MaskFile.of(masks / file, resize=resize)
            if not instances:
                made.jobs.append(photographs.job(photo, name, outline=whole))
                continue
            try:
                numbers = np.unique(read_labels(masks / file))
            except UserError as error:
                made.fail(photo, file, error.line)
                continue
            objects = [int(number) for number in numbers if number > 0]
            if not objects:
                made.skip(photo, file, "no object in the mask")
            for value in objects:
                outline = replace(whole, value=value)
                made.jobs.append(photographs.job(photo, f"{name}_{value}", outline=outline))
    return made.sorted()


class _Annotated(CutoutJobs):
    """Jobs of a file of annotations: which photos are there, and which have an object."""

    def __init__(self, photographs: Photographs, only: Sequence[str], allow_missing: bool) -> None:
        super().__init__()
        self.photographs, self.only = photographs, only
        self._allow_missing = allow_missing
        self._finder = PhotoFinder(photographs.ids)
        self._used: set[str] = set()

    def found(self, name: str, what: str) -> str | None:
        """The photo of this name; one that is not there is failed, or skipped where allowed."""
        photo = self._finder.find(name)
        if photo is None:
            (self.skip if self._allow_missing else self.fail)(name, what, "the photo is not there")
        else:
            self._used.add(photo)
        return photo

    def all(self) -> CutoutJobs:
        """Everything, with photos that have no annotation skipped."""
        for photo in self.photographs.ids:
            if photo not in self._used:
                self.skip(photo, "", "no object is annotated")
        return self.sorted()


def coco_jobs(
    path: Path,
    photographs: Photographs,
    *,
    only: Sequence[str] = (),
    boxes: bool = False,
    allow_missing: bool = False,
) -> CutoutJobs:
    """A job for every object of a file of COCO annotations.

    ``only``           these classes; all by default
    ``boxes``          take the boxes only; a segmenter finds the object in each
    ``allow_missing``  photos that are not there are skipped instead of failed

    Crowds (``iscrowd``) are skipped: they are not single objects.
    """
    fix = "give a file of COCO instances (instances_*.json)"
    value = convert(read_json(path), _Coco, where=path, fix=fix)
    images = {image.id: image for image in value.images}
    names = {entry.id: class_folder(entry.name) for entry in value.categories}
    unknown = sorted(set(only) - set(names.values()))
    if unknown:
        known = ", ".join(sorted(names.values())[:12])
        raise BadFile(path, f"has no category {unknown[0]!r}", fix=f"it has {known}")
    licences = {
        entry.get("id"): licence_name(entry.get("url"), entry.get("name"))
        for entry in (value.licenses if isinstance(value.licenses, list) else ())
        if isinstance(entry, dict)
    }
    made = _Annotated(photographs, only, allow_missing)
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
                class_name=names[category],
                outline=None if boxes else _outline(entry.segmentation, image),
                box=_coco_box(entry.bbox) if boxes else None,
                licence=licences.get(image.license, "") if isinstance(image.license, int) else "",
                source=str(image.flickr_url or image.coco_url or ""),
            )
        except UserError as error:
            made.fail(photo, label, error.line)
        else:
            made.jobs.append(job)
    return made.all()


class _CocoImage(msgspec.Struct):
    id: int
    file_name: str
    width: Any = None
    height: Any = None
    license: Any = None
    flickr_url: Any = None
    coco_url: Any = None


class _CocoCategory(msgspec.Struct):
    id: int
    name: str


class _CocoAnnotation(msgspec.Struct):
    """An object; an outline or box that cannot be read fails it alone, not the file."""

    id: int
    image_id: int
    category_id: int
    iscrowd: Any = None
    segmentation: Any = None
    bbox: Any = None


class _Coco(msgspec.Struct):
    images: list[_CocoImage]
    categories: list[_CocoCategory]
    annotations: list[_CocoAnnotation]
    licenses: Any = None


Corners = Annotated[tuple[float, ...], msgspec.Meta(min_length=6)]


def _stated(value: object, kind: Any, reason: str, fix: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise UserError(reason, fix=fix) from None


def _outline(stated: object, image: _CocoImage) -> ObjectMask:
    if isinstance(stated, dict):
        example = 'write "size": [height, width]'
        high, wide = _stated(
            stated.get("size"), tuple[int, int], "its run lengths have no size", example
        )
        counts = str | tuple[int, ...]
        missing = "its run lengths have no counts"
        return RunLengths(wide, high, _stated(stated.get("counts"), counts, missing, _AGAIN))
    if not stated:
        raise UserError("has no segmentation", fix="cut boxes out with grabcut or onnx")
    sides = (image.width, image.height)
    width, height = _stated(sides, tuple[int, int], "its image has no width and height", "add them")
    wrong = ("a polygon is not a list of at least three corners", "write [x, y, x, y, x, y, …]")
    parts = _stated(stated, tuple[Corners, ...], *wrong)
    if any(len(part) % 2 or not all(map(math.isfinite, part)) for part in parts):
        raise UserError(wrong[0], fix=wrong[1])
    xs = [x for part in parts for x in part[::2]]
    ys = [y for part in parts for y in part[1::2]]
    if max(xs) <= 0 or max(ys) <= 0 or min(xs) >= width or min(ys) >= height:
        raise UserError(f"its polygon is outside the image of {width} × {height}", fix="correct it")
    return Polygons(width, height, parts)


def _coco_box(stated: object) -> Box:
    example = 'write "bbox": [left, top, width, height]'
    box = Box(*_stated(stated, tuple[float, float, float, float], "has no box", example))
    if not (0 < box.width < math.inf and 0 < box.height < math.inf):
        raise UserError(f"its box is {box.width:g} × {box.height:g}", fix="correct it")
    return box


def openimages_jobs(
    path: Path,
    photographs: Photographs,
    *,
    masks: Path | None = None,
    class_names: Path | None = None,
    only: Sequence[str] = (),
    allow_missing: bool = False,
) -> CutoutJobs:
    """A job for every row of OpenImages' CSV of segmentations, or of boxes without ``masks``.

    Masks are stored smaller or larger than the photos; each is brought to its photo's size. In a
    box a segmenter finds the object; boxes around groups (``IsGroupOf`` 1) are skipped. Classes
    are machine ids such as ``/m/01g317``; ``class_names`` (class-descriptions*.csv) names them.
    """
    needed: tuple[str, ...] = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax")
    files: dict[str, str] = {}
    if masks is not None:
        needed = ("MaskPath", "ImageID", "LabelName")
        files = {PurePosixPath(file).name: file for file in FolderSource(masks).ids()}
    rows = table_rows(path)
    missing = [name for name in needed if name not in rows[0]]
    if missing:
        fix = f"give the CSV of OpenImages with {', '.join(needed)}"
        raise BadFile(path, f"has no column {missing[0]!r}", fix=fix)
    names = {} if class_names is None else read_class_names(class_names)
    made = _Annotated(photographs, only, allow_missing)
    count: Counter[str] = Counter()
    for row in rows:
        label = row["LabelName"]
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
        photo = made.found(row["ImageID"], row.get("MaskPath", ""))
        if photo is None:
            continue
        count[photo] += 1
        stem, box, outline = f"{PurePosixPath(photo).stem}_{count[photo]}", None, None
        if masks is not None:
            file = files.get(PurePosixPath(row["MaskPath"]).name)
            if file is None:
                made.fail(photo, row["MaskPath"], f"the mask is not in {masks.name}")
                continue
            stem, outline = PurePosixPath(file).stem, MaskFile.of(masks / file, resize=True)
        else:
            if row.get("IsGroupOf") == "1":
                made.skip(photo, f"box {count[photo]}", "a group, not one object")
                continue
            try:
                box = _relative_box(row)
            except UserError as error:
                made.fail(photo, f"box {count[photo]}", error.line)
                continue
        made.jobs.append(
            photographs.job(photo, stem, class_name=class_name, outline=outline, box=box)
        )
    return made.all()


def read_class_names(path: Path) -> dict[str, str]:
    """Names of classes by machine id, from a CSV of ``id,name`` with or without a header."""
    existing_file(path, "table of class names")
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            rows = [row for row in csv.reader(handle) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadFile(path, f"is not a CSV file ({error})", fix="save it in UTF-8") from None
    if any(len(row) < 2 for row in rows):
        raise BadFile(path, "has lines without a name", fix="write id,name")
    return {row[0].strip(): row[1].strip() for row in rows}


def _relative_box(row: Mapping[str, str]) -> Box:
    try:
        left, right, top, bottom = (float(row[key]) for key in ("XMin", "XMax", "YMin", "YMax"))
    except ValueError:
        raise UserError("a side of its box is not a number", fix="correct it") from None
    if not all(map(math.isfinite, (left, right, top, bottom))) or left >= right or top >= bottom:
        raise UserError(f"its box goes from {left:g} to {right:g}", fix="correct it")
    return Box(left, top, right - left, bottom - top, relative=True)

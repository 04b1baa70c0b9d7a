"""Masks that the user has as image files: the photograph's own alpha, or PNG files beside it.

A mask file may be black and white (0 and 1, 0 and 255, one bit), grey (opacity), or a picture with
alpha (the alpha counts). With ``instances`` its values are the numbers of objects, as in label
maps of VOC or panoptic COCO; 0 is background, and 255 in a palette of VOC is "not labelled".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.files import sha256_file
from heldout.curate.cutouts.cutout import Matte
from heldout.curate.cutouts.photo import Photo
from heldout.data.images.decode import MAX_PIXELS, BadImage, Refused, with_image
from heldout.data.images.sources import MAX_IMAGE_BYTES

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_VOID = 255


@dataclass(frozen=True)
class OwnAlpha:
    """The photograph's own alpha channel."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Nothing beside the photograph."""
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
        return {
            "outline": "mask",
            "sha256": self.sha256,
            "value": self.value,
            "resize": self.resize,
        }

    def matte(self, photo: Photo) -> Matte:
        """The mask in the photograph's pixels."""
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


def object_numbers(path: Path) -> tuple[int, ...]:
    """The numbers of the objects in a label map, without background."""
    return tuple(int(n) for n in np.unique(read_labels(path)) if n > 0)


class MaskIndex:
    """Mask files by what they could belong to, so that many photographs find theirs quickly.

    In this order: the same path with any ending, or with ``_mask`` or ``-mask`` behind the name;
    all files in a folder of the photograph's name (what SAM's generator of masks writes); the
    same file name anywhere. All paths are relative, with forward slashes.

    >>> MaskIndex(["dog/a.png", "dog/b.png"]).of("dog/a.jpg")
    ('dog/a.png',)
    >>> MaskIndex(["a/0.png", "a/1.png"]).of("dog/a.jpg")
    ('a/0.png', 'a/1.png')
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._exact: dict[str, list[str]] = {}
        self._folder: dict[str, list[str]] = {}
        self._name: dict[str, list[str]] = {}
        for file in sorted(files):
            path = PurePosixPath(file)
            stem = path.with_suffix("").as_posix()
            plain = stem.removesuffix("_mask").removesuffix("-mask")
            for key in dict.fromkeys((stem, plain)):
                self._exact.setdefault(key, []).append(file)
                self._name.setdefault(PurePosixPath(key).name, []).append(file)
            folder = path.parent.as_posix()
            self._folder.setdefault(folder, []).append(file)

    def of(self, photo: str) -> tuple[str, ...]:
        """The mask files of this photograph; empty where there are none."""
        path = PurePosixPath(photo)
        stem = path.with_suffix("").as_posix()
        for found in (
            self._exact.get(stem),
            self._folder.get(stem),
            self._folder.get(path.stem) if path.stem != "." else None,
            self._name.get(path.stem),
        ):
            if found:
                return tuple(found)
        return ()


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
    if image.mode == "P":
        indices = np.asarray(image).astype(np.int64)
        return np.where(indices == _VOID, 0, indices)
    if image.mode in ("1", "L") or image.mode.startswith("I"):
        return np.asarray(image).astype(np.int64)
    colours = np.asarray(image.convert("RGB")).astype(np.int64)
    return np.asarray(colours @ np.array([1, 256, 65_536]))

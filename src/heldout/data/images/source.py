"""ImageSource: ids, and the bytes behind each. Everything that holds images is one."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Protocol

from heldout.core.errors import NotFound, UserError

EXTENSIONS = frozenset(
    {
        ".avif",
        ".bmp",
        ".gif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pgm",
        ".png",
        ".pnm",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    }
)
"""Endings, in lower case, of files that are taken for images."""

MAX_IMAGE_BYTES = 1 << 27
"""An encoded image of more bytes than this (134 MB) is not read."""


class ImageSource(Protocol):
    """Where images come from: a folder, an archive, an object store, a renderer.

    A source may be used by several threads at once and may be sent to another process.
    """

    def ids(self) -> Sequence[str]:
        """The ids of all images, each once, in an order that is always the same."""
        ...

    def open(self, image_id: str) -> BinaryIO:
        """The encoded image, to be read from its start and closed by the caller."""
        ...


class MemorySource:
    """Images held in memory, by id: for tests and for small sets."""

    def __init__(self, images: Mapping[str, bytes]) -> None:
        self._images = {check_id(key): bytes(images[key]) for key in sorted(images)}

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        return tuple(self._images)

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id."""
        try:
            return io.BytesIO(self._images[image_id])
        except KeyError:
            raise no_image(image_id, "memory") from None


def read_image(source: ImageSource, image_id: str) -> bytes:
    """All bytes of one encoded image; of one beyond ``MAX_IMAGE_BYTES``, a user's error."""
    with source.open(image_id) as handle:
        if not handle.seekable():
            data = handle.read(MAX_IMAGE_BYTES + 1)
            check_size(image_id, len(data))
            return data
        check_size(image_id, handle.seek(0, os.SEEK_END))
        handle.seek(0)
        return handle.read()


def check_size(image_id: str, size: int) -> None:
    """Refuse an encoded image of more bytes than ``MAX_IMAGE_BYTES``."""
    if size > MAX_IMAGE_BYTES:
        raise UserError(
            f"{image_id} has {size:,} bytes or more, which is too many for an image",
            fix=f"make it smaller than {MAX_IMAGE_BYTES:,}",
        )


def check_id(image_id: str) -> str:
    """``image_id`` if it is a plain relative POSIX path, else a user's error.

    Ids end up as paths below some folder, so one that could lead out of it is refused: no
    ``..``, no leading slash, no backslash, no drive, nothing that is not printable text.

    >>> check_id("n01440764/ILSVRC2012_val_00000293.JPEG")
    'n01440764/ILSVRC2012_val_00000293.JPEG'
    """
    parts = image_id.split("/")
    if (
        not image_id
        or any(part in ("", ".", "..") for part in parts)
        or "\\" in image_id
        or not image_id.isprintable()
        or (len(image_id) > 1 and image_id[1] == ":")
    ):
        raise UserError(
            f"{image_id!r} cannot be an image id",
            fix="use a relative path with forward slashes, without '.' or '..' parts",
        )
    return image_id


def is_image_name(image_id: str) -> bool:
    """Whether a path looks like an image: a known ending, and no hidden file or folder on the way.

    >>> is_image_name("a/b.JPG"), is_image_name("a/.b.jpg"), is_image_name("a/b.txt")
    (True, False, False)
    """
    parts = image_id.split("/")
    if any(part.startswith(".") for part in parts):
        return False
    stem, dot, ending = parts[-1].rpartition(".")
    return bool(stem) and f"{dot}{ending.lower()}" in EXTENSIONS


def no_image(image_id: str, where: object) -> NotFound:
    """The error for an id that a source does not have."""
    return NotFound(f"no image {image_id!r} in {where}", fix="check the id")

"""What an encoded image is, and whether it can be decoded: answers, never exceptions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heldout.data.images.decode import MAX_PIXELS, BadImage, ImageInfo, bytes_of, with_image
from heldout.data.images.sources import ImageSource

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile


@dataclass(frozen=True, kw_only=True)
class Examined:
    """One image of a source: the hash and size of its bytes, and what they hold."""

    image_id: str
    sha256: str
    bytes: int
    result: ImageInfo | BadImage


def probe(data: bytes) -> ImageInfo | BadImage:
    """Read the header only: cheap, and true for most images; :func:`check` makes sure."""
    return with_image(data, _info, max_pixels=None)


def check(data: bytes, *, max_pixels: int = MAX_PIXELS) -> ImageInfo | BadImage:
    """Decode the whole image (the first frame of an animation) and throw it away."""
    return with_image(data, _loaded, max_pixels=max_pixels)


def examine(source: ImageSource, image_id: str, *, decode: bool = True) -> Examined:
    """Hash one image of a source and look at it; ``decode=False`` reads the header only."""
    data = bytes_of(source, image_id)
    if isinstance(data, BadImage):
        return Examined(image_id=image_id, sha256="", bytes=0, result=data)
    result = check(data) if decode else probe(data)
    return Examined(image_id=image_id, sha256=sha256_bytes(data), bytes=len(data), result=result)


def sha256_bytes(data: bytes | memoryview) -> str:
    """The SHA-256 of an encoded image, in hexadecimal: what a manifest calls its hash."""
    return hashlib.sha256(data).hexdigest()


def _info(image: ImageFile) -> ImageInfo:
    return ImageInfo(
        width=image.width, height=image.height, format=image.format or "", mode=image.mode
    )


def _loaded(image: ImageFile) -> ImageInfo:
    info = _info(image)  # before loading, which may turn a TIFF
    image.load()
    return info

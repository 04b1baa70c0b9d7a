"""What an encoded image is, and whether it can be decoded: answers, never exceptions."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from heldout.errors import UserError
from heldout.images.source import ImageSource, read_image

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 100_000_000
"""Images of more pixels than this are not decoded: 100 megapixels are 300 MB of memory."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""Formats that are decoded. Those that run other programs, such as EPS, are not among them."""

Trouble = Literal["unreadable", "empty", "unsupported", "broken", "truncated", "too large"]


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """What the header says. ``width`` and ``height`` in pixels as stored (EXIF is not applied);
    ``format`` as Pillow names it, such as JPEG; ``mode`` such as RGB, L, P, CMYK, I;16."""

    width: int
    height: int
    format: str
    mode: str


@dataclass(frozen=True, kw_only=True)
class BadImage:
    """Why an image cannot be used.

    ``trouble``  unreadable (its bytes cannot be had), empty, unsupported (no image of a known
                 format), broken, truncated, or too large
    ``reason``   one line for people
    """

    trouble: Trouble
    reason: str


@dataclass(frozen=True, kw_only=True)
class Examined:
    """One image of a source: the hash and size of its bytes, and what they hold."""

    image_id: str
    sha256: str
    bytes: int
    result: ImageInfo | BadImage


def probe(data: bytes) -> ImageInfo | BadImage:
    """Read the header only: cheap, and true for most images; :func:`check` makes sure."""
    return _guarded(data, decode=False, max_pixels=None)


def check(data: bytes, *, max_pixels: int = MAX_PIXELS) -> ImageInfo | BadImage:
    """Decode the whole image (the first frame of an animation) and throw it away."""
    return _guarded(data, decode=True, max_pixels=max_pixels)


def examine(
    source: ImageSource, image_id: str, *, decode: bool = True, max_pixels: int = MAX_PIXELS
) -> Examined:
    """Hash one image of a source and look at it; ``decode=False`` reads the header only."""
    try:
        data = read_image(source, image_id)
    except (OSError, UserError) as error:
        reason = " ".join(str(error).split())
        bad = BadImage(trouble="unreadable", reason=reason)
        return Examined(image_id=image_id, sha256="", bytes=0, result=bad)
    result = check(data, max_pixels=max_pixels) if decode else probe(data)
    return Examined(image_id=image_id, sha256=sha256_bytes(data), bytes=len(data), result=result)


def sha256_bytes(data: bytes) -> str:
    """The SHA-256 of an encoded image, in hexadecimal: what a manifest calls its hash."""
    return hashlib.sha256(data).hexdigest()


def _guarded(data: bytes, *, decode: bool, max_pixels: int | None) -> ImageInfo | BadImage:
    if not data:
        return BadImage(trouble="empty", reason="the file is empty")
    try:
        with io.BytesIO(data) as handle:
            image = _identify(handle)
            if image is None:
                return BadImage(
                    trouble="unsupported", reason="no image of a format that is supported"
                )
            info = ImageInfo(
                width=image.width,
                height=image.height,
                format=image.format or "",
                mode=image.mode,
            )
            if info.width < 1 or info.height < 1:
                return BadImage(trouble="broken", reason="an image without pixels")
            if max_pixels is not None and info.width * info.height > max_pixels:
                return BadImage(
                    trouble="too large",
                    reason=f"{info.width} x {info.height} pixels, more than {max_pixels:,}",
                )
            if decode:
                image.load()
            return info
    except MemoryError:
        return BadImage(trouble="too large", reason="it does not fit into memory")
    except Exception as error:  # a hostile file can make a decoder raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        cut = "truncated" in reason.lower() or isinstance(error, EOFError)
        return BadImage(trouble="truncated" if cut else "broken", reason=reason)


def _identify(handle: io.BytesIO) -> ImageFile | None:
    """The image behind a header, not decoded; None where no supported format fits.

    Not ``Image.open``: that one warns, or raises, by a limit that is global to the process, and
    tries formats that we do not want. Here the limit is the caller's.
    """
    import struct

    from PIL import Image

    Image.init()
    prefix = handle.read(16)
    likely = ""
    for name in FORMATS:
        if name not in Image.OPEN:  # Pillow built without it
            continue
        factory, accept = Image.OPEN[name]
        if accept is not None and accept(prefix) is not True:
            continue
        handle.seek(0)
        try:
            return factory(handle, "")
        except (SyntaxError, IndexError, TypeError, struct.error):
            likely = likely or name  # another format may still fit
    if likely:
        raise ValueError(f"begins like {likely}, but its header cannot be read")
    return None

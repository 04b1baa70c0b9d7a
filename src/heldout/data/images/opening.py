"""The one way into an encoded image: identified, limited and guarded, whoever made the file.

Whatever the bytes are, the answer is what the caller made of the image, or a :class:`BadImage`.
"""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from heldout.core.errors import UserError
from heldout.data.images.memory import DECODING, MAX_PIXELS, decoding_bytes, excess, gif_pixels
from heldout.data.images.source import ImageSource, read_image

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
"""Formats that are decoded. Those that run other programs, such as EPS, are not among them."""

Trouble = Literal["unreadable", "empty", "unsupported", "broken", "truncated", "too large"]

_S = TypeVar("_S")
_T = TypeVar("_T")

_OTHERS = (
    (b"<svg", "an SVG drawing"),
    (b"<!doctype html", "a web page"),
    (b"<html", "a web page"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
    (b"%PDF", "a PDF document"),
    (b"%!PS", "PostScript"),
    (b"8BPS", "a Photoshop document"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (b"\x00\x00\x01\x00", "an icon"),
)
"""How files begin that are often found under an image's name, and what they are."""

_HEIC = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"hevx")


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """What the header says. ``width`` and ``height`` in pixels as stored (EXIF is not applied);
    ``format`` as Pillow names it, such as JPEG; ``mode`` such as RGB, L, P, CMYK, I;16."""

    width: int
    height: int
    format: str
    mode: str

    @property
    def note(self) -> str:
        """What is done to the values that plain libraries do otherwise; mostly nothing."""
        return "16 bits a value: scaled to 8" if self.mode.startswith("I") else ""


@dataclass(frozen=True, kw_only=True)
class BadImage:
    """Why an image cannot be used.

    ``trouble``  unreadable (its bytes cannot be had), empty, unsupported (no image of a known
                 format), broken, truncated, or too large
    ``reason``   one line for people
    """

    trouble: Trouble
    reason: str


class Refused(Exception):
    """Raised inside :func:`opened` by who uses the image: it becomes the answer."""

    def __init__(self, trouble: Trouble, reason: str) -> None:
        super().__init__(reason)
        self.bad = BadImage(trouble=trouble, reason=reason)


def bytes_of(source: ImageSource, image_id: str) -> bytes | BadImage:
    """The encoded image of this id, or why it cannot be had.

    A store that cannot be reached says nothing about the image, so that is raised
    (``ConnectionError``, ``TimeoutError``): the image is not to be counted as bad for it.
    """
    try:
        return read_image(source, image_id)
    except (ConnectionError, TimeoutError):
        raise
    except (OSError, UserError) as error:
        return BadImage(trouble="unreadable", reason=" ".join(str(error).split()))


def opened(data: bytes, use: Callable[[ImageFile], _T], *, max_pixels: int | None) -> _T | BadImage:
    """What ``use`` makes of the image in ``data``: identified, within limits, not yet decoded.

    ``max_pixels`` is the largest number of pixels, and sets the memory that decoding may take;
    None where ``use`` looks at the header only. Nothing that a file can do raises here. ``use``
    must not keep anything that reads from the file.
    """
    try:
        return _attempt(data, use, max_pixels)
    except Warning:
        # Pillow warns about odd files. Where warnings are errors the image is still the same.
        with _QUIET, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _attempt(data, use, max_pixels)


_QUIET = threading.Lock()


def _attempt(data: bytes, use: Callable[[ImageFile], _T], max_pixels: int | None) -> _T | BadImage:
    if not data:
        return BadImage(trouble="empty", reason="the file is empty")
    if gif_pixels(data) > (max_pixels or MAX_PIXELS):
        return BadImage(trouble="too large", reason=f"{gif_pixels(data):,} pixels of GIF")
    with io.BytesIO(data) as handle:
        image = _guarded(_identify, handle)
        if isinstance(image, BadImage):
            return image
        if image.width < 1 or image.height < 1:
            return BadImage(trouble="broken", reason="an image without pixels")
        if image.mode == "F" or (image.mode == "I" and image.format not in ("PNG", "PPM")):
            return BadImage(
                trouble="unsupported",
                reason="32 bits a value, without an agreed range: save it with 8 or 16",
            )
        if max_pixels is None:
            return _guarded(use, image)
        needed = decoding_bytes(image, data)
        if reason := excess(image, data, needed, max_pixels=max_pixels):
            return BadImage(trouble="too large", reason=reason)
        with DECODING.take(needed):
            result = _guarded(use, image)
            del image  # its pixels go before their memory counts as free
            return result


def _guarded(use: Callable[[_S], _T], what: _S) -> _T | BadImage:
    from PIL.Image import DecompressionBombError

    try:
        return use(what)
    except Refused as refused:
        return refused.bad
    except (MemoryError, DecompressionBombError) as error:
        reason = " ".join(str(error).split()) or "it does not fit into memory"
        return BadImage(trouble="too large", reason=reason)
    except Warning:
        raise
    except Exception as error:  # a hostile file can make a decoder raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        cut = "truncated" in reason.lower() or isinstance(error, EOFError)
        return BadImage(trouble="truncated" if cut else "broken", reason=reason)


def _identify(handle: io.BytesIO) -> ImageFile:
    """The image behind a header, not decoded.

    Not ``Image.open``: that one warns, or raises, by a limit that is global to the process, and
    tries formats that we do not want. Here the limit is the caller's.
    """
    import struct

    from PIL import Image

    Image.init()
    start = handle.read(256)
    likely = ""
    for name in FORMATS:
        if name not in Image.OPEN:  # Pillow built without it
            continue
        factory, accept = Image.OPEN[name]
        if accept is not None and accept(start[:16]) is not True:
            continue
        handle.seek(0)
        try:
            return factory(handle, "")
        except (SyntaxError, IndexError, TypeError, struct.error) as error:
            # Another format may still fit.
            likely = likely or f"begins like {name}, but its header cannot be read ({error})"
    if other := _other(start):
        raise Refused("unsupported", f"{other}, which is not supported")
    if likely:
        raise Refused("broken", likely)
    raise Refused("unsupported", "no image of a format that is supported")


def _other(start: bytes) -> str:
    if start[4:8] == b"ftyp":
        brands = start[8 : min(256, int.from_bytes(start[:4], "big"))]
        return "HEIC" if any(brand in brands for brand in _HEIC) else "a video or its like"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for magic, name in _OTHERS:
        if start.startswith(magic) or text.startswith(magic.lower()):
            return name
    return "an SVG drawing" if text.startswith(b"<?xml") and b"<svg" in text else ""

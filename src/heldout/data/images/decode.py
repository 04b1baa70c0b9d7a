"""What an encoded image is, and its RGB pixels, equal to ``Image.open(file).convert("RGB")``.

That is what torchvision and timm do, so it is what models were trained on: alpha is dropped, not
blended; colour profiles are ignored; CMYK is converted without one; of an animation or of many
pages the first is taken; a JPEG is decoded at full size, never in a faster draft. One thing is
different: images of 16 bits per value are scaled to 8 (the upper byte, as Pillow itself does for those
with colours), where ``convert`` would clip them to white.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from heldout.core.errors import UserError
from heldout.data.images.sources import ImageSource, read_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile


MAX_PIXELS = 50_000_000
"""Images of more pixels than this are not decoded. As RGB they are 200 MB in memory."""

_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
_RGB = 4  # bytes per pixel as Pillow stores it, in every mode that is not listed above

_DECODER = {"WEBP": 12, "AVIF": 6, "TIFF": 4}
"""Bytes per pixel that a decoder holds beside the image: peaks of the resident set, measured."""

_IN_PYTHON = frozenset({"ppm", "ppm_plain", "bmp_rle"})
"""Decoders of Pillow that loop over pixels in Python, about a second for a million of them."""

_SCANS = 40
"""A JPEG may pass over as many pixels as this many scans of the largest image would."""

_TRIMMED = 48 << 20  # bytes; images below this leave nothing behind that matters


def budget(max_pixels: int) -> int:
    """Bytes that one image may take while it is decoded and resized: 260 MB, or 5.2 per pixel."""
    return 26 * max(max_pixels, MAX_PIXELS) // 5


def decoding_bytes(image: ImageFile, data: bytes) -> int:
    """Bytes at the peak of decoding an image to RGB, from its header (within a few percent).

    Baseline JPEG and PNG take 4 per pixel, grey 5, with alpha 8, progressive JPEG 10, WebP 16, and
    JPEG 2000 22 to 28.
    """
    bands = len(image.getbands())
    kind = image.format or ""
    extra = _DECODER.get(kind, 0)
    if kind in ("JPEG", "MPO") and _many_scans(data):
        extra = 2 * bands  # all coefficients are kept until the last scan
    elif kind == "JPEG2000":
        extra = 6 * bands
    stored = _STORED.get(image.mode, _RGB)
    converted = 0 if image.mode == "RGB" else _RGB + 2 * (stored == 2)
    rows = 2 * image.width * bands  # most decoders keep two
    return image.width * image.height * (stored + max(extra, converted)) + rows


def excess(image: ImageFile, data: bytes, needed: int, *, max_pixels: int) -> str:
    """Why an image is too large to be decoded, in words; empty where it is not.

    ``needed`` are its :func:`decoding_bytes`.
    """
    size = f"{image.width} x {image.height} pixels"
    pixels = image.width * image.height
    if pixels > max_pixels:
        return f"{size}, more than {max_pixels:,}"
    if needed > budget(max_pixels):
        return f"{size} of {image.format}, {image.mode}: decoding takes {needed // 10**6} MB"
    if any(tile[0] in _IN_PYTHON for tile in image.tile) and pixels > max_pixels // 10:
        return f"{size} in an encoding that is slow to read"
    if image.format in ("JPEG", "MPO"):
        # A scan takes 10 bytes at the least, so for most images there is no need to count.
        passes = _SCANS * max(max_pixels, MAX_PIXELS) // pixels
        start = _many_scans(data) if len(data) > 10 * passes else 0
        if start and (scans := data.count(b"\xff\xda", start)) > passes:
            return f"{size}, stored in {scans} scans"
    return ""


def gif_pixels(data: bytes) -> int:
    """The pixels of a GIF's screen and first frame; 0 for anything else.

    Pillow takes memory for the frame as it reads the header, so this must be known before.
    """
    if not data.startswith((b"GIF87a", b"GIF89a")) or len(data) < 13:
        return 0
    width, height = struct.unpack_from("<HH", data, 6)
    at = 13 + (3 << (data[10] % 8 + 1) if data[10] & 0x80 else 0)
    while data[at : at + 1] == b"!":  # an extension: two bytes, then blocks up to an empty one
        at += 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    if data[at : at + 1] == b"," and at + 9 <= len(data):
        left, top, across, down = struct.unpack_from("<HHHH", data, at + 1)
        width, height = max(width, left + across), max(height, top + down)
    return int(width * height)


def _many_scans(data: bytes) -> int:
    """Where the scans of a JPEG begin that its decoder keeps open to the end; 0 if it does not.

    It does where the image is progressive, or where its components are stored one by one.
    """
    at = 2
    components = 0
    progressive = False
    while data[at : at + 1] == b"\xff" and at + 4 < len(data):
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == 0xDA:
            return at if progressive or data[at + 4] < components else 0
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # these have no length
            at += 2
        else:
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                progressive = marker in (0xC2, 0xC6, 0xCA, 0xCE)
                components = data[at + 9] if at + 9 < len(data) else 0
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 2  # not laid out as it should be: assume the worst


class MemoryPool:
    """Memory that threads share: large images wait for each other, small ones never do."""

    def __init__(self, capacity: int, *, small: int = 8 << 20) -> None:
        self.capacity = capacity
        self.small = small
        self._used = 0
        self._freed = threading.Condition()

    @contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Hold ``amount`` bytes; more than there is at all is held alone."""
        if amount <= self.small:
            yield
            return
        amount = min(amount, self.capacity)
        with self._freed:
            self._freed.wait_for(lambda: self._used + amount <= self.capacity)
            self._used += amount
        try:
            yield
        finally:
            if amount > _TRIMMED and os.name == "posix":
                # Give freed memory back: glibc would keep that of a large image for each thread.
                import ctypes

                trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
                if trim is not None:
                    trim(0)
            with self._freed:
                self._used -= amount
                self._freed.notify_all()


DECODING = MemoryPool(max(budget(MAX_PIXELS), 64 * 10**6 * (os.cpu_count() or 1)))
"""What all threads of this process may hold at once while they decode and resize."""


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
)
"""How files begin that are often found under an image's name, and what they are."""


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

    ``trouble``  unreadable (its bytes cannot be read), empty, unsupported (not of a known
                 format), broken, truncated, or too large
    ``reason``   one line for people
    """

    trouble: Trouble
    reason: str


class Refused(Exception):
    """Raised inside :func:`with_image` by who uses the image: it becomes the answer."""

    def __init__(self, trouble: Trouble, reason: str) -> None:
        super().__init__(reason)
        self.bad = BadImage(trouble=trouble, reason=reason)


def bytes_of(source: ImageSource, image_id: str) -> bytes | BadImage:
    """The encoded image of this id, or why it cannot be read.

    A store that cannot be reached says nothing about the image, so that is raised
    (``ConnectionError``, ``TimeoutError``): the image is not to be counted as bad for it.
    """
    try:
        return read_image(source, image_id)
    except (ConnectionError, TimeoutError):
        raise
    except (OSError, UserError) as error:
        return BadImage(trouble="unreadable", reason=" ".join(str(error).split()))


def with_image(
    data: bytes, use: Callable[[ImageFile], _T], *, max_pixels: int | None
) -> _T | BadImage:
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
                reason="32 bits per value, without an agreed range: save it with 8 or 16",
            )
        if max_pixels is None:
            return _guarded(use, image)
        needed = decoding_bytes(image, data)
        if reason := excess(image, data, needed, max_pixels=max_pixels):
            return BadImage(trouble="too large", reason=reason)
        with DECODING.reserve(needed):
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
    raise Refused("unsupported", "not an image of a supported format")


def _other(start: bytes) -> str:
    if start[4:8] == b"ftyp":
        return "HEIC or a video"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith(b"<?xml") and b"<svg" in text:
        return "an SVG drawing"
    return next((name for magic, name in _OTHERS if text.startswith(magic)), "")


_ORIENTATION = 0x0112  # the EXIF and TIFF tag
_BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0  # TIFF


def decode(data: bytes, *, exif: bool = False, max_pixels: int = MAX_PIXELS) -> Image | BadImage:
    """The image as RGB, or why there is none. Never raises, whatever the bytes are.

    ``exif``        turn the image as its EXIF orientation says; torchvision and timm do not. (A
                    TIFF is always turned: Pillow does that on loading, for them too.)
    ``max_pixels``  larger images are refused by their header, before memory is taken
    """
    return with_image(
        data, lambda image: rgb(image, exif=exif, max_pixels=max_pixels), max_pixels=max_pixels
    )


def rgb(image: ImageFile, *, exif: bool, max_pixels: int = MAX_PIXELS) -> Image:
    """An opened image, decoded whole, as RGB; for use inside :func:`with_image`."""
    image.load()
    turn = orientation_of(image) if exif else 1
    if turn > 1 and 8 * image.width * image.height > budget(max_pixels):
        raise Refused("too large", f"{image.width} x {image.height} pixels, to be turned")
    decoded: Image = image
    if image.mode.startswith("I"):
        decoded = _eight_bits(image).convert("RGB")
    elif image.mode != "RGB":
        # Makes no difference to the colours, and Pillow would warn about some kinds of it.
        image.info.pop("transparency", None)
        decoded = image.convert("RGB")
    return transposed(decoded, turn) if turn > 1 else decoded


def _eight_bits(image: ImageFile) -> Image:
    """A grey image of 16 bits (or of 12, in TIFF) as one of 8: the upper bits."""
    from PIL import Image

    bits = 16
    inverted = False
    if image.format == "TIFF":
        tags = image.tag_v2  # type: ignore[attr-defined]
        bits = int(tags[_BITS][0])
        inverted = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO  # Pillow leaves these as they are
    values = np.asarray(image)
    upper = (values >> (bits - 8)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(~upper if inverted else upper)


def orientation_of(image: ImageFile) -> int:
    """How stored pixels must be turned, as EXIF counts it: 1 to 8, 1 for not at all."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Warning:
        raise
    except Exception:  # EXIF is a file in the file: damage there does not touch the pixels
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def transposed(image: Image, orientation: int) -> Image:
    """Stored pixels turned upright, as EXIF defines its orientations 2 to 8."""
    from PIL.Image import Transpose

    return image.transpose(
        {
            2: Transpose.FLIP_LEFT_RIGHT,
            3: Transpose.ROTATE_180,
            4: Transpose.FLIP_TOP_BOTTOM,
            5: Transpose.TRANSPOSE,
            6: Transpose.ROTATE_270,
            7: Transpose.TRANSVERSE,
            8: Transpose.ROTATE_90,
        }[orientation]
    )


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

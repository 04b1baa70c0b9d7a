"""How much memory and work an image asks for, known from its header, and who may use it when.

A small file can declare a large image, so the question is answered before anything is decoded.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 50_000_000
"""Images of more pixels than this are not decoded. As RGB they are 200 MB in memory."""

_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
_RGB = 4  # bytes that Pillow stores a pixel in, in every mode that is not listed above

_DECODER = {"WEBP": 12, "AVIF": 6, "TIFF": 4}
"""Bytes a pixel that a decoder holds beside the image: peaks of the resident set, measured."""

_IN_PYTHON = frozenset({"ppm", "ppm_plain", "bmp_rle"})
"""Decoders of Pillow that loop over pixels in Python, about a second for a million of them."""

_SCANS = 40
"""A JPEG may pass over as many pixels as this many scans of the largest image would."""

_TRIMMED = 48 << 20  # bytes; images below this leave nothing behind that matters


def budget(max_pixels: int) -> int:
    """Bytes that one image may take while it is decoded and resized: 260 MB, or 5.2 a pixel."""
    return 26 * max(max_pixels, MAX_PIXELS) // 5


def decoding_bytes(image: ImageFile, data: bytes) -> int:
    """Bytes at the peak of decoding an image to RGB, from its header (within a few percent).

    Baseline JPEG and PNG take 4 a pixel, grey 5, with alpha 8, progressive JPEG 10, WebP 16, and
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
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # these stand alone
            at += 2
        else:
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                progressive = marker in (0xC2, 0xC6, 0xCA, 0xCE)
                components = data[at + 9] if at + 9 < len(data) else 0
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 2  # not laid out as it should be: assume the worst


def _trim() -> None:
    """Give freed memory back to the system: glibc would keep that of a large image, a thread."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


class Shared:
    """Memory that threads share: large images wait for each other, small ones never do."""

    def __init__(self, capacity: int, *, small: int = 8 << 20) -> None:
        self.capacity = capacity
        self.small = small
        self._used = 0
        self._freed = threading.Condition()

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
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
            if amount > _TRIMMED:
                _trim()
            with self._freed:
                self._used -= amount
                self._freed.notify_all()


DECODING = Shared(max(budget(MAX_PIXELS), 64 * 10**6 * (os.cpu_count() or 1)))
"""What all threads of this process may hold at once while they decode and resize."""

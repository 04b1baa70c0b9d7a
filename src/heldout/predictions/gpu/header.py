"""What a JPEG's header says about decoding it on a GPU: its size and how its colours are sampled.

Only streams that the decoders of GPUs and Pillow's decoder agree on are sent to the GPU: baseline,
eight bits, grey or YCbCr. Everything else (progressive, CMYK, RGB stored as such, cut short, not a
JPEG at all) takes the exact path on the CPU, which also knows what to say about broken files.
"""

from __future__ import annotations

from typing import NamedTuple

LARGEST_SIDE = 8192
SMALLEST_SIDE = 16
_BASELINE = 0xC0
_OTHER_FRAMES = frozenset((*range(0xC1, 0xD0),)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD8)))


class JpegShape(NamedTuple):
    """Size in pixels, and how many luma samples share a chroma sample; 0 and 0 for grey."""

    height: int
    width: int
    across: int
    down: int


def jpeg_shape(data: bytes | memoryview, *, exif: bool = False) -> JpegShape | None:
    """The shape of a JPEG that a GPU decodes as Pillow does, or None for all other data.

    ``exif``  whether the geometry turns images by their EXIF orientation; those that carry EXIF
              data then take the CPU

    >>> jpeg_shape(b"GIF89a") is None
    True
    """
    size = len(data)
    if size < 32 or data[0] != 0xFF or data[1] != 0xD8:
        return None
    if data[size - 2] != 0xFF or data[size - 1] != 0xD9:
        return None  # cut short, or with something behind its end
    at, jfif, transform = 2, False, -1
    while at + 4 <= size:
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        length = data[at + 2] << 8 | data[at + 3]
        if length < 2 or at + 2 + length > size:
            return None
        if marker == 0xE0:
            jfif = jfif or data[at + 4 : at + 9] == b"JFIF\0"
        elif marker == 0xE1:
            if exif and data[at + 4 : at + 8] == b"Exif":
                return None
        elif marker == 0xEE:
            if length >= 14 and data[at + 4 : at + 9] == b"Adobe":
                transform = data[at + 15]
        elif marker == _BASELINE:
            return _frame(data[at + 4 : at + 2 + length], jfif=jfif, transform=transform)
        elif marker in _OTHER_FRAMES or marker in (0xD8, 0xD9, 0xDA):
            return None
        at += 2 + length
    return None


def _frame(frame: bytes | memoryview, *, jfif: bool, transform: int) -> JpegShape | None:
    if len(frame) < 9 or frame[0] != 8:
        return None
    height, width, components = frame[1] << 8 | frame[2], frame[3] << 8 | frame[4], frame[5]
    if not (min(height, width) >= SMALLEST_SIDE and max(height, width) <= LARGEST_SIDE):
        return None
    if components == 1:
        return JpegShape(height, width, 0, 0)
    if components != 3 or len(frame) < 15:
        return None
    names = (frame[6], frame[9], frame[12])
    # libjpeg's rule: JFIF means YCbCr; else Adobe's marker decides; else the components' names.
    if not jfif and (transform == 0 or (transform < 0 and names != (1, 2, 3))):
        return None
    if frame[10] != 0x11 or frame[13] != 0x11:
        return None
    across, down = frame[7] >> 4, frame[7] & 15
    return JpegShape(height, width, across, down) if {across, down} <= {1, 2} else None

"""Which JPEGs a GPU may decode: their size and how their colours are sampled.

Only streams that the decoders of GPUs and Pillow's decoder agree on are sent to the GPU: baseline,
eight bits, grey or YCbCr, one scan with sound tables and no marker where none belongs. Everything else
(progressive, CMYK, RGB stored as such, cut short, not a JPEG at all) takes the exact path on the CPU,
which also knows what to say about broken files. The check is strict because nvJPEG is not: a frame
without a scan ends the process, and it gives pixels for much that Pillow refuses.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

LARGEST_SIDE = 8192
SMALLEST_SIDE = 16
_BASELINE, _SCAN, _RESTARTS = 0xC0, 0xDA, 0xDD
_SKIPPED = frozenset((*range(0xE0, 0xF0), 0xFE))  # applications' data, comments
_FEWEST_BITS = 2  # a block cannot be coded with less: one for its mean, one for its end
_LARGEST_MEAN = 11  # bits of a difference of two means
# Tables by number: 0 and 1 code means, 16 and 17 the rest of a block; divisors come from here on.
_DIVISORS = 32
_SHORT, _LONGEST_SCAN = 1024, 14  # bytes
_thread = threading.local()


class JpegShape(NamedTuple):
    """Size in pixels, and how many luma samples share a chroma sample; 0 and 0 for grey."""

    height: int
    width: int
    across: int
    down: int


class JpegHeader(NamedTuple):
    """What stands before the coded data of a JPEG that a GPU may decode.

    ``coded``     where the coded data begin; two bytes before the end of the file they end
    ``blocks``    how many blocks of 8 x 8 are in them
    ``restarts``  how many restart markers are in them
    """

    shape: JpegShape
    coded: int
    blocks: int
    restarts: int


class _Frame(NamedTuple):
    """A frame that a GPU decodes: the shape, the components' names, the tables that it needs."""

    shape: JpegShape
    names: bytes
    tables: frozenset[int]


def jpeg_header(data: bytes | memoryview, *, exif: bool = False) -> JpegHeader | None:
    """The header of a JPEG that a GPU decodes as Pillow does, if its coded data are plain
    (:func:`are_plain`), or None for all other data.

    ``exif``  whether the geometry turns images by their EXIF orientation; those that carry EXIF
              data then take the CPU

    >>> jpeg_header(b"GIF89a") is None
    True
    """
    if len(data) < 32 or data[-2:] != b"\xff\xd9":
        return None  # cut short, or with something behind its end
    # Most headers are short, and many files have the same: these are found by their bytes.
    head = bytes(data[:_SHORT])
    scan = head.find(b"\xff\xda")
    found = _known(head[: scan + _LONGEST_SCAN], exif) if scan > 0 else None
    if found is None:
        found = _read(data, exif)
    if found is None or 8 * (len(data) - 2 - found.coded) < _FEWEST_BITS * found.blocks:
        return None
    return found


def _read(data: bytes | memoryview, exif: bool) -> JpegHeader | None:
    """:func:`jpeg_header` of data that may end behind the header."""
    if data[:2] != b"\xff\xd8":
        return None
    jfif, transform = False, -1
    frame: _Frame | None = None
    tables: frozenset[int] = frozenset()
    interval = 0
    for marker, at, end in _segments(data):
        if marker in _SKIPPED:
            if marker == 0xE0:
                jfif = jfif or data[at : at + 5] == b"JFIF\0"
            elif marker == 0xE1:
                if exif and data[at : at + 4] == b"Exif":
                    return None
            elif marker == 0xEE and end - at >= 12 and data[at : at + 5] == b"Adobe":
                transform = data[at + 11]
        elif marker in _TABLES:
            found = _TABLES[marker](bytes(data[at:end]))
            if not found:
                return None
            tables |= found
        elif marker == _BASELINE and frame is None:
            frame = _frame(bytes(data[at:end]))
            if frame is None:
                return None
        elif marker == _SCAN and frame is not None:
            # libjpeg's rule: JFIF means YCbCr; else Adobe's marker decides; else the names.
            named = transform < 0 and frame.names != b"\1\2\3"
            rgb = len(frame.names) == 3 and not jfif and (transform == 0 or named)
            whole = _is_whole_scan(bytes(data[at:end]), frame.names, tables)
            if rgb or not whole or not frame.tables <= tables:
                return None
            units, blocks = _extent(frame.shape)
            return JpegHeader(frame.shape, end, blocks, (units - 1) // interval if interval else 0)
        elif marker == _RESTARTS and end - at == 2:
            interval = data[at] << 8 | data[at + 1]
        else:
            return None
    return None


_known = functools.lru_cache(4096)(_read)


def _segments(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Markers, and where what belongs to them begins and ends, as long as they follow each other."""
    at, size = 2, len(data)
    while at + 4 <= size and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        end = at + 2 + (data[at + 2] << 8 | data[at + 3])
        if not at + 4 <= end <= size:
            return
        yield marker, at + 4, end
        at = end


def are_plain(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray, restarts: np.ndarray
) -> np.ndarray:
    """Whether coded data have no markers but the restarts that belong there, in turn; bool (n,).

    ``data``             uint8, the files of many images, in the order of
    ``starts``, ``stops``  where the coded data of each begin and end
    ``restarts``         how many restart markers each must have

    All images at once: one image at a time takes as long for the array calls as for the bytes, and
    makes the threads that read wait for each other.
    """
    if not len(starts):
        return np.zeros(0, bool)
    at = _places_of_ff(data, int(starts[0]), int(stops[-1]))
    behind = data[at + 1]
    marked = behind != 0  # 0: not a marker but the byte FF
    at, behind = at[marked], behind[marked]
    image = np.searchsorted(starts, at, side="right") - 1
    inside = at < stops[image]  # not in another image's header
    image, behind = image[inside], behind[inside]
    counts = np.bincount(image, minlength=len(starts))
    turn = np.arange(len(image)) - (np.cumsum(counts) - counts)[image]
    wrong = image[behind != 0xD0 + turn % 8]
    found: np.ndarray = counts == restarts
    found[wrong] = False
    return found


def _places_of_ff(data: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Where the byte FF is in ``data`` from ``start`` to ``stop``.

    Piece by piece, over one buffer per thread: large arrays that come and go cost threads that share
    an address space many times the comparison.
    """
    scratch: np.ndarray | None = getattr(_thread, "scratch", None)
    if scratch is None:
        scratch = _thread.scratch = np.empty(1 << 20, bool)
    found = []
    for at in range(start, stop, len(scratch)):
        piece = data[at : min(at + len(scratch), stop)]
        here = scratch[: len(piece)]
        np.equal(piece, 0xFF, out=here)
        found.append(np.flatnonzero(here) + at)
    return np.concatenate(found)


def _extent(shape: JpegShape) -> tuple[int, int]:
    """How many units an image is coded in, and how many blocks of 8 x 8 that is."""
    across, down = max(shape.across, 1), max(shape.down, 1)
    units = -(-shape.width // (8 * across)) * -(-shape.height // (8 * down))
    return units, units * (across * down + (2 if shape.across else 0))


@functools.lru_cache(4096)
def _frame(frame: bytes) -> _Frame | None:
    if len(frame) < 9 or frame[0] != 8:
        return None
    height, width, components = frame[1] << 8 | frame[2], frame[3] << 8 | frame[4], frame[5]
    if not (min(height, width) >= SMALLEST_SIDE and max(height, width) <= LARGEST_SIDE):
        return None
    if components not in (1, 3) or len(frame) != 6 + 3 * components:
        return None
    names, tables = frame[6::3], frozenset(_DIVISORS + table for table in frame[8::3])
    across, down = frame[7] >> 4, frame[7] & 15
    if len(set(names)) < components or not {across, down} <= {1, 2}:
        return None
    if components == 1:
        return _Frame(JpegShape(height, width, 0, 0), names, tables)
    if frame[10] != 0x11 or frame[13] != 0x11:
        return None
    return _Frame(JpegShape(height, width, across, down), names, tables)


@functools.lru_cache(4096)
def _divisors(segment: bytes) -> frozenset[int] | None:
    """The tables of divisors in a segment, all of eight bits; None: a bad one."""
    if not segment or len(segment) % 65:
        return None
    found = set()
    for at in range(0, len(segment), 65):
        if segment[at] > 3 or 0 in segment[at + 1 : at + 65]:
            return None
        found.add(_DIVISORS + segment[at])
    return frozenset(found)


@functools.lru_cache(4096)
def _codes(segment: bytes) -> frozenset[int] | None:
    """The tables of Huffman codes in a segment; None: a bad one."""
    at, found = 0, set()
    while at < len(segment):
        counts = segment[at + 1 : at + 17]
        symbols = segment[at + 17 : at + 17 + sum(counts)]
        if segment[at] not in (0, 1, 16, 17) or len(counts) < 16 or not counts_fit(counts):
            return None
        if len(symbols) < sum(counts) or len(set(symbols)) < len(symbols):
            return None
        if segment[at] < 16 and max(symbols) > _LARGEST_MEAN:
            return None
        found.add(segment[at])
        at += 17 + len(symbols)
    return frozenset(found)


_TABLES = {0xDB: _divisors, 0xC4: _codes}


def counts_fit(counts: bytes) -> bool:
    """Whether ``counts`` codes of 1 to 16 bits exist, with the code of ones alone left out.

    >>> counts_fit(bytes([1, 1] + [0] * 14)), counts_fit(bytes([2] + [0] * 15)), counts_fit(bytes(16))
    (True, False, False)
    """
    free = 1
    for count in counts:
        free = 2 * free - count
        if free < 1:
            return False
    return any(counts)


def _is_whole_scan(scan: bytes, names: bytes, tables: frozenset[int]) -> bool:
    """Whether one scan holds all components, in order, with codes that are there."""
    n = len(names)
    if len(scan) != 4 + 2 * n or scan[0] != n or scan[1 : 1 + 2 * n : 2] != names:
        return False
    used = scan[2 : 2 + 2 * n : 2]
    wanted = {table >> 4 for table in used} | {16 + (table & 15) for table in used}
    return wanted <= tables and scan[-3:] == b"\0\x3f\0"

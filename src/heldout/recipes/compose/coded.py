"""JPEG files of one background with an object on it, without encoding the background again.

A baseline scan is one row of bits. The bits of a block depend on its pixels and, through the
differences of mean values, on the block before it, and on nothing else. So the scan of an image
that differs from the background in a rectangle is the background's own bits up to the rectangle,
the bits of the changed blocks, the background's bits between, and so on, row by row.

The changed blocks of each row are encoded between their unchanged neighbours: the one before gives
the right differences, and its bits, whose number is known, are cut off; the one after is encoded
anew, as its differences change. A restart marker after each row keeps rows apart in that encoding.
A rectangle at the left or right edge is encoded as whole rows, with the row above and the one
below. The file is byte for byte what encoding the whole image gives. Where that cannot be made
sure, there is no answer, and the caller encodes the whole image.

How many bits each block has is learned by encoding the background with restarts after every block,
every second, third, fifth and so on: groups of lengths without a common divisor tell all lengths
apart, and edges are treated as in the image itself.

(ITU-T T.81: F.1.1.5.2 differences of DC; B.1.1.5 and F.1.2.3 padding with ones and stuffed zeros.)
"""

from __future__ import annotations

import io
import re
import sys
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from heldout.recipes.compose.scene import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

BLOCK = 16
"""Pixels of a block's side: luminance four times, chroma once, at half the size."""
_MARKER = re.compile(rb"\xff[\xd0-\xd7]")
_STUFFED = b"\xff\x00"
_MOST = 0.7
"""A larger share of the image than this is not worth it."""
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)


class Region(NamedTuple):
    """Blocks that change: rows ``top`` to ``bottom``, columns ``left`` to ``right``, the last ones
    not in it; or ``whole`` rows."""

    top: int
    bottom: int
    left: int
    right: int
    whole: bool


@cache
def encoder() -> Any | None:
    """OpenCV's module if it is installed and writes JPEG as Pillow does, else None."""
    try:
        import cv2
    except ModuleNotFoundError:
        return None
    from PIL.Image import fromarray

    rows, columns = np.mgrid[:83, :61]
    test = np.dstack([rows * 3, columns * 4, (rows * columns) % 251]).astype(np.uint8)
    test[20:50, 10:40] = np.random.RandomState(0).randint(0, 256, (30, 30, 3), dtype=np.uint8)
    for quality in (75, 90):
        file = io.BytesIO()
        fromarray(test).save(file, "JPEG", quality=quality)
        options = [int(cv2.IMWRITE_JPEG_QUALITY), quality]
        made = cv2.imencode(".jpg", np.ascontiguousarray(test[..., ::-1]), options)[1].tobytes()
        if made != file.getvalue():
            return None
    return cv2


class CodedBackground:
    """A background (H, W, 3) BGR with its scan, and where each block's bits are.

    ``usable``  whether all could be learned; if not, there are no regions
    ``starts``  the first bit of each block in raster order, and after them the number of bits
    ``alone``   bits of each block where it is the first after a restart
    """

    def __init__(self, pixels: Pixels, *, quality: int = 75) -> None:
        cv2 = encoder()
        if cv2 is None:
            raise ValueError("there is no encoder that writes what Pillow does")
        self._encode = cv2.imencode
        self._options = (
            int(cv2.IMWRITE_JPEG_QUALITY),
            quality,
            int(cv2.IMWRITE_JPEG_RST_INTERVAL),
        )
        self.pixels = pixels
        self.height, self.width = pixels.shape[:2]
        self.rows = -(-self.height // BLOCK)
        self.columns = -(-self.width // BLOCK)
        file = self._file(pixels, 0)
        self._begin = _scan_start(file)
        self._begin_restarts = _scan_start(self._file(pixels[:BLOCK, :BLOCK], 1))
        self.head = file[: self._begin]
        self.raw = file[self._begin : -2].replace(_STUFFED, b"\xff")
        self.bits = 8 * len(self.raw) - _ONES[self.raw[-1]]
        self.starts: list[int] = []
        self.alone: list[int] = []
        self.usable = bool(_end_plainly(pixels, quality)) and self._learn(pixels)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return int(self.pixels.nbytes) + len(self.raw) + int(64 * self.rows * self.columns)

    def region(self, left: int, top: int, right: int, bottom: int) -> Region | None:
        """The blocks that a rectangle of pixels inside the image touches; None if not worth it."""
        if not self.usable or left >= right or top >= bottom:
            return None
        rows = top // BLOCK, -(-bottom // BLOCK)
        columns = left // BLOCK, -(-right // BLOCK)
        if (rows[1], columns[1]) == (self.rows, self.columns):
            return None  # the last block may end in ones, which are not to be taken for padding
        if columns[0] > 0 and columns[1] < self.columns:
            share = (columns[1] - columns[0] + 2) * (rows[1] - rows[0])
            whole = False
        else:
            share = self.columns * (min(rows[1] + 1, self.rows) - max(rows[0] - 1, 0))
            whole = True
        if share > _MOST * self.rows * self.columns:
            return None
        return Region(*rows, *columns, whole)

    def framed(self, region: Region) -> tuple[int, int, int, int]:
        """The pixels to give to :meth:`file`, neighbours included: left, top, right, bottom."""
        if region.whole:
            top, bottom = max(region.top - 1, 0), region.bottom + 1
            return 0, top * BLOCK, self.width, min(bottom * BLOCK, self.height)
        return (
            (region.left - 1) * BLOCK,
            region.top * BLOCK,
            min((region.right + 1) * BLOCK, self.width),
            min(region.bottom * BLOCK, self.height),
        )

    def whole(self, pixels: Pixels) -> bytes:
        """The file of a whole image, BGR."""
        return self._file(pixels, 0)

    def file(self, region: Region, changed: Pixels) -> bytes:
        """The file of the background with the pixels of ``framed(region)`` replaced, BGR."""
        columns = self.columns
        if region.whole:
            scan = self._file(changed, 0)[self._begin : -2]
            first = max(region.top - 1, 0) * columns
            known = region.top * columns
            cut = self.starts[known] - self.starts[first + 1] + self.alone[first]
            after = min(region.bottom + 1, self.rows) * columns
            return self._joined([(known, cut if region.top else 0, after, scan)])
        pieces = _MARKER.split(
            self._file(changed, region.right - region.left + 2)[self._begin_restarts : -2]
        )
        first = region.top * columns + region.left
        across = region.right - region.left
        return self._joined(
            [
                (place, self.alone[place - 1], place + across + 1, piece)
                for place, piece in zip(
                    range(first, first + len(pieces) * columns, columns), pieces, strict=True
                )
            ]
        )

    def _joined(self, runs: list[tuple[int, int, int, bytes]]) -> bytes:
        """The background's bits with runs of blocks replaced.

        A run is its first block, the bits to cut off before it, the block after it, and its scan
        as encoded: padded and stuffed.
        """
        raw, starts = self.raw, self.starts
        end = starts[runs[0][0]]
        left = end & 7
        out = [raw[: end >> 3]]
        held, bits = (raw[end >> 3] >> (8 - left) if left else 0), left
        for number, (_, cut, after, scan) in enumerate(runs):
            piece = scan.replace(_STUFFED, b"\xff")
            padding = _ONES[piece[-1]]
            count = 8 * len(piece) - padding - cut
            value = (int.from_bytes(piece, "big") >> padding) & ((1 << count) - 1)
            start = starts[after]
            end = starts[runs[number + 1][0]] if number + 1 < len(runs) else self.bits
            between = end - start
            held = (((held << count) | value) << between) | (
                (int.from_bytes(raw[start >> 3 : (end + 7) >> 3], "big") >> (-end & 7))
                & ((1 << between) - 1)
            )
            bits += count + between
            left = bits & 7
            out.append((held >> left).to_bytes(bits >> 3, "big"))
            held, bits = held & ((1 << left) - 1), left
        if bits:
            out.append(bytes([(held << (8 - bits)) | ((1 << (8 - bits)) - 1)]))
        scan = b"".join(out).replace(b"\xff", _STUFFED)
        return b"".join([self.head, scan, b"\xff\xd9"])

    def _learn(self, pixels: Pixels) -> bool:
        """Learn the bits of all blocks, alone and after the block before; whether all are known."""
        total = self.rows * self.columns
        self.alone = self._groups(pixels, 1)
        if len(self.alone) != total:
            return False
        lengths = [-1] * total
        lengths[0] = self.alone[0]
        for group in _PRIMES:
            for number, bits in enumerate(self._groups(pixels, group)):
                places = range(number * group + 1, min((number + 1) * group, total))
                unknown = [place for place in places if lengths[place] < 0]
                if len(unknown) == 1:
                    known = sum(lengths[place] for place in places if lengths[place] >= 0)
                    lengths[unknown[0]] = bits - self.alone[number * group] - known
            if min(lengths) >= 0:
                break
        self.starts = [0, *accumulate(lengths)]
        return min(lengths) >= 0 and self.starts[-1] == self.bits

    def _groups(self, pixels: Pixels, group: int) -> list[int]:
        """Bits of each group of so many blocks, encoded after a restart."""
        scan = self._file(pixels, group)[self._begin_restarts : -2]
        return [
            8 * (len(piece) - piece.count(_STUFFED))
            - _ONES[0xFF if piece.endswith(_STUFFED) else piece[-1]]
            for piece in _MARKER.split(scan)
        ]

    def _file(self, pixels: Pixels, restarts: int) -> bytes:
        made: bytes = self._encode(".jpg", pixels, (*self._options, restarts))[1].tobytes()
        return made


def bgr_of(image: Image) -> Pixels:
    """An RGB image of Pillow's as an array (H, W, 3) in the encoder's order of channels."""
    cv2 = encoder()
    if cv2 is None:
        return np.ascontiguousarray(np.asarray(image)[..., ::-1])
    made: Pixels = cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2BGR)
    return made


def rgba_of(image: Image) -> Pixels:
    """An RGBA image of Pillow's as an array (H, W, 4), without a copy where that is possible."""
    # Not imported for this alone: a worker process would wait longer for it than it gains.
    arrow = sys.modules.get("pyarrow")
    if arrow is None:
        return np.asarray(image)
    try:
        flat = arrow.array(image).flatten().to_numpy(zero_copy_only=True)
    except (ValueError, TypeError):  # several blocks of memory, an old Pillow
        return np.asarray(image)
    made: Pixels = flat.reshape(image.height, image.width, 4)
    return made


def _scan_start(file: bytes) -> int:
    """Where the bits begin: after the header of the scan."""
    place = 2
    while file[place + 1] != 0xDA:
        place += 2 + int.from_bytes(file[place + 2 : place + 4], "big")
    return place + 2 + int.from_bytes(file[place + 2 : place + 4], "big")


def _end_plainly(pixels: Pixels, quality: int) -> np.bool_:
    """Whether the last coefficient of every block, the finest of Cr, is surely 0.

    Then an end of block, two zeros, ends its bits, and the ones of padding can be told from them.
    Estimated in floating point and compared with a bound that leaves room for all rounding: each
    sample is off by at most 1 (conversion and averaging, half a level each) and the basis sums to
    6.6 in absolute value.
    """
    height, width = pixels.shape[:2]
    red = pixels.astype(np.float32) @ np.array([-0.081312, -0.418688, 0.5], np.float32)
    red = np.pad(red, ((0, height % 2), (0, -width % BLOCK)), mode="edge")
    halves = red.reshape(red.shape[0] // 2, 2, red.shape[1] // 2, 2).mean(axis=(1, 3))
    halves = np.pad(halves, ((0, -halves.shape[0] % 8), (0, 0)), mode="edge")
    blocks = halves.reshape(halves.shape[0] // 8, 8, halves.shape[1] // 8, 8)
    wave = np.cos((2 * np.arange(8) + 1) * 7 * np.pi / 16).astype(np.float32) / 2
    finest = np.abs(np.einsum("aibj,i,j->ab", blocks, wave, wave))
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    step = min(max((99 * scale + 50) // 100, 1), 255)
    return np.bool_((finest + 8 < step / 2).all())


_ONES = [len(f"{value:08b}") - len(f"{value:08b}".rstrip("1")) for value in range(256)]
"""How many ones a byte ends with."""

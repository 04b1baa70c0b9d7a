"""JPEG files of one background with an object on it, without encoding the background again.

A baseline scan is one row of bits. The bits of a unit of 16 x 16 pixels depend on its pixels and,
through the differences of mean values, on the unit before it, and on nothing else. So the scan of
an image is the background's own bits, those of the units that the object touches, and between the
two new differences of means. The file is byte for byte what Pillow writes.

Units are encoded by machine code (:mod:`heldout.recipes.compose.jpeg_kernel`) with the tables that
stand in the background's own file. Each background is encoded whole in this way first: where that
is not the file that Pillow writes, there is no answer, and the caller leaves the image to Pillow.

(ITU-T T.81: B.2 headers; C.2 codes; F.1.1.5.2 differences of means; F.1.2.3 padding and stuffing.)
"""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heldout.recipes.compose.scene import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

_FEWEST = 500  # files from which on it pays to load the machine code, in half a second
_STUFFED = b"\xff\x00"
_END = b"\xff\xd9"
_FRAME = bytes([8]), bytes([3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1])
"""Eight bits; three channels, the first at twice the size of the others both ways."""
_SCAN = bytes([3, 1, 0x00, 2, 0x11, 3, 0x11, 0, 63, 0])
"""Three channels at once; two sets of codes; all coefficients in one go."""


def worth_it(files: int) -> bool:
    """Whether machine code pays, after so many files and with more to come."""
    return files > _FEWEST or machine_code.cache_info().currsize > 0


@cache
def machine_code() -> Any:
    """The module of kernels, loaded and tried; None where numba is not installed or it fails."""
    try:
        from heldout.recipes.compose import jpeg_kernel
    except ImportError:
        return None
    from PIL import Image as images

    noise = np.random.RandomState(0).randint(0, 256, (40, 40, 4), dtype=np.uint8)
    sprite = images.frombuffer("RGBA", (40, 40), noise, "raw", "RGBA", 0, 1)
    background = sprite.convert("RGB").resize((50, 37), images.Resampling.BICUBIC)
    coded = CodedBackground(background, jpeg_kernel)
    background.paste(sprite, (20, -9), sprite)
    file = io.BytesIO()
    background.save(file, "JPEG")
    if not coded.usable:
        return None
    made = coded.file(CodedSprite(noise, jpeg_kernel), 20, -9, Room())
    return jpeg_kernel if made == file.getvalue() else None


class Tables(NamedTuple):
    """How a file is coded: what of a scan does not depend on pixels.

    ``half``     (64 lanes,) half of each divisor and a half; ``inverse`` 1 / divisor
    ``codes``    (4 * 256,) code and, in the lowest byte, length: means and rest of Y, of Cb and Cr
    """

    half: NDArray[np.float32]
    inverse: NDArray[np.float32]
    codes: NDArray[np.uint64]


class Room:
    """Memory that files are made in, one after the other. Not to be shared between threads."""

    def __init__(self) -> None:
        self.canvas: Pixels = np.empty(0, np.uint8)
        self.words: NDArray[np.uint64] = np.empty(0, np.uint64)

    def fit(self, canvas: int, words: int) -> None:
        """Make it large enough."""
        if self.canvas.size < canvas:
            self.canvas = np.empty(canvas, np.uint8)
        if self.words.size < words:
            self.words = np.empty(words, np.uint64)


class CodedSprite:
    """A sprite (h, w, 4) RGBA made ready to be coded.

    ``alpha``  (h, w)
    """

    def __init__(self, pixels: Pixels, kernels: Any) -> None:
        height, self.width = pixels.shape[:2]
        self.colours = _words_of(pixels)
        self.planes: Pixels = kernels.planes_of(self.colours)
        alpha = self.planes[-self.colours.size :]
        self.alpha = alpha.reshape(height, self.width)
        # From 1 to 254, in one comparison: 0 - 1 is 255.
        places = np.flatnonzero((alpha - np.uint8(1)) < np.uint8(254)).astype(np.int32)
        self.soft = np.stack(np.divmod(places, np.int32(self.width)), axis=1)


class CodedBackground:
    """A background with its scan, and where each unit's bits are.

    ``usable``  whether the machine code writes what Pillow does; if not, there are no files
    """

    def __init__(self, image: Image, kernels: Any, *, quality: int = 75) -> None:
        self._kernels = kernels
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        whole = file.getvalue()
        found = tables_of(whole, kernels)
        self.usable = found is not None
        if found is None:
            return
        begin, tables = found
        self._head = whole[:begin]
        self._pixels = _words_of(np.asarray(image.convert("RGBA")))
        side = kernels.UNIT
        width, height = image.size
        wide, high = width + -width % side, height + -height % side
        planes = kernels.planes_of(self._pixels).reshape(4, height, width)[:3]
        planes = np.pad(planes, ((0, 0), (0, high - height), (0, wide - width))).reshape(-1)
        kernels.fill(planes, wide, high, width, height)
        units = wide * high // side**2
        self._words = units * kernels.WORDS + 2
        words = np.empty(self._words, np.uint64)
        marks = np.empty((units + 1, 6), np.int64)
        firsts, means = np.empty(units, np.int64), np.empty((units, 3), np.int64)
        self._own = planes, wide, width, height, *tables
        bits = kernels.coded_background(*self._own, words, marks, firsts, means)
        self._scan = words[: bits // 64 + 2].copy(), marks, firsts, means
        self.usable = self._joined(words, bits) == whole

    def file(self, sprite: CodedSprite, left: int, top: int, room: Room) -> bytes:
        """The file of the background with a sprite on it, its corner at ``left``, ``top``."""
        room.fit(self._own[0].size, self._words)
        bits = self._kernels.coded_image(
            *self._own, *self._scan, self._pixels, sprite.planes, sprite.colours, sprite.soft,
            sprite.width, left, top, room.canvas, room.words,
        )  # fmt: skip
        return self._joined(room.words, bits)

    def _joined(self, words: NDArray[np.uint64], bits: int) -> bytes:
        """The file of a scan: padded with ones to whole bytes, zeros after bytes 255."""
        count = -(-bits // 8)
        scan = bytearray(words[: bits // 64 + 1].byteswap().view(np.uint8)[:count])
        scan[-1] |= (1 << (8 * count - bits)) - 1
        return b"".join([self._head, scan.replace(b"\xff", _STUFFED), _END])


def tables_of(file: bytes, kernels: Any) -> tuple[int, Tables] | None:
    """Where the scan of a baseline file begins, and its tables; None for files of another kind."""
    steps: dict[int, NDArray[np.int64]] = {}
    codes = np.zeros((4, 256), np.uint64)
    place = 2
    while True:
        marker, length = file[place + 1], int.from_bytes(file[place + 2 : place + 4], "big")
        part = file[place + 4 : place + 2 + length]
        place += 2 + length
        if marker == 0xDB:  # divisors, in zigzag order
            for at in range(0, len(part), 65):
                if part[at] >> 4:
                    return None
                steps[part[at]] = np.frombuffer(part, np.uint8, 64, at + 1).astype(np.int64)
        elif marker == 0xC4:
            _read_codes(part, codes)
        elif 0xC0 <= marker <= 0xCF:
            if marker != 0xC0 or (part[:1], part[5:]) != _FRAME:
                return None
        elif marker == 0xDD:
            return None
        elif marker == 0xDA:
            if part != _SCAN or set(steps) != {0, 1}:
                return None
            break
    # Coefficients come out of the transform eight times too large.
    blocks = np.stack([steps[0]] * 4 + [steps[1]] * 2, axis=1)[kernels.ZIGZAG] * 8
    divisors = np.tile(blocks, (1, kernels.BATCH)).astype(np.float32).reshape(-1)
    half, inverse = (divisors / 2 + 0.5).astype(np.float32), (1 / divisors).astype(np.float32)
    return place, Tables(half, inverse, codes.reshape(-1))


def _read_codes(part: bytes, codes: NDArray[np.uint64]) -> None:
    """Codes of one length follow each other; a longer one begins where the shorter ones end."""
    at = 0
    while at < len(part):
        kind = 2 * (part[at] & 15) + (part[at] >> 4)
        counts = part[at + 1 : at + 17]
        at += 17
        code = 0
        for size, count in enumerate(counts, 1):
            for symbol in part[at : at + count]:
                codes[kind, symbol] = (code << 8) | size
                code += 1
            at += count
            code <<= 1


def _words_of(pixels: Pixels) -> NDArray[np.uint32]:
    """RGBA (h, w, 4) as one number a pixel, red lowest; not to be changed."""
    words = np.ascontiguousarray(pixels).view("<u4").reshape(-1)
    words.flags.writeable = False  # of one kind for the compiler, wherever pixels come from
    return words

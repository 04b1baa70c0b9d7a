"""JPEG files that share what they show: only the blocks under the object are encoded.

A scan with restart markers is a row of pieces that do not depend on each other: each begins with
its predictions reset, on a byte of its own. So a background is encoded once, cut into tiles of a
few blocks, and an image made of it is the background's pieces with those of the tiles that the
object touches in their places. Such tiles are encoded as an image of their own, stacked without
gaps. The file decodes to the pixels of one that is encoded whole, with markers or without.

(ITU-T T.81, sections E.1.4 and F.1.1.5.2: restart intervals; B.2.1: markers RST0 to RST7 in turn.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from heldout.core.extras import require
from heldout.curate.compose.scene import Pixels

BLOCK = 16
"""Width and height in pixels of the smallest unit of a scan, with chroma at half size both ways."""
_LEAST_TILE = 48
"""Pixels. Markers make files larger: by 1 to 5 % with tiles of 64 pixels, by twice that with half
of it. Wider tiles encode more in vain."""
_RESTART, _END = 0xD0, 0xD9


class Grid(NamedTuple):
    """How an image is cut into tiles, numbered row by row.

    ``width``, ``height``, and those of a tile in pixels; ``blocks`` of a tile, side by side;
    ``rows`` and ``columns`` of tiles. The last row may be lower than the others. The last column
    is filled up to the width of a tile with the last pixels, as an encoder does by itself.
    """

    width: int
    height: int
    tile_width: int
    tile_height: int
    blocks: int
    rows: int
    columns: int

    @property
    def short(self) -> int:
        """The height of the last row of tiles in pixels, 0 if it is as high as the others."""
        return self.height % self.tile_height

    @property
    def filled(self) -> int:
        """Columns of pixels to the right of the image that the last tiles are filled up with."""
        return self.columns * self.tile_width - self.width


@lru_cache(maxsize=64)
def markers_of(grid: Grid) -> NDArray[np.uint8]:
    """The second bytes of the markers that follow the tiles of an image."""
    markers = (_RESTART + np.arange(grid.rows * grid.columns) % 8).astype(np.uint8)
    markers[-1] = _END
    return markers


def grid_of(width: int, height: int) -> Grid:
    """The grid for an image. A row of blocks is cut evenly, else the pieces would not line up."""
    across = -(-width // BLOCK)
    fitting = [n for n in range(1, across) if across % n == 0 and n * BLOCK >= _LEAST_TILE]
    blocks = fitting[0] if fitting else across
    return Grid(
        width=width,
        height=height,
        tile_width=blocks * BLOCK,
        tile_height=BLOCK,
        blocks=blocks,
        rows=-(-height // BLOCK),
        columns=across // blocks,
    )


class Code(NamedTuple):
    """Pieces of a scan, each with the marker that follows it: piece i is
    ``data[starts[i] : starts[i + 1]]``."""

    data: memoryview
    starts: list[int]


class Splicer:
    """One background, encoded, and the encoder for what is to replace its tiles.

    ``grid``    how it is cut
    ``chunks``  its pixels (BGR), rows of tiles in order: (height · columns), each a row of pixels
                as wide as a tile, as raw bytes
    ``head``    the bytes before its scan
    ``whole``   its scan
    """

    def __init__(self, background: Pixels, *, quality: int) -> None:
        cv2: Any = require("cv2", extra="compose", purpose="quick JPEG files")
        height, width = background.shape[:2]
        self.grid = grid_of(width, height)
        self.options = (
            int(cv2.IMWRITE_JPEG_QUALITY),
            quality,
            int(cv2.IMWRITE_JPEG_RST_INTERVAL),
            self.grid.blocks,
            int(cv2.IMWRITE_JPEG_SAMPLING_FACTOR),
            int(cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420),
        )
        self._encode = cv2.imencode
        file = self._file(background)
        # The header says no size but the image's, so that it is as long for every image.
        self._begin = scan_start(file)
        self.head = file[: self._begin].tobytes()
        self.whole = self._cut(file, markers_of(self.grid))
        self.chunks = chunks_of(filled(background, self.grid), self.grid)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return int(self.chunks.nbytes) + len(self.whole.data)

    def code(self, stack: Pixels, markers: NDArray[np.uint8]) -> Code:
        """Encode tiles that lie row by row in ``stack`` (h, w, 3) BGR; a marker follows each."""
        return self._cut(self._file(stack), markers)

    def _cut(self, file: NDArray[np.uint8], markers: NDArray[np.uint8]) -> Code:
        # In a scan, a byte 255 of data is followed by 0; any other follower makes it a marker.
        begin = self._begin
        found = np.flatnonzero(file[begin:-1] == 0xFF) + (begin + 1)
        found = found[file[found] != 0]
        file[found] = markers
        return Code(file.data, [begin, *(found + 1).tolist()])

    def _file(self, pixels: Pixels) -> NDArray[np.uint8]:
        done, file = self._encode(".jpg", pixels, self.options)
        if not done:
            raise ValueError(f"OpenCV cannot encode pixels of shape {pixels.shape}")
        return cast("NDArray[np.uint8]", file.reshape(-1))


def filled(pixels: Pixels, grid: Grid) -> Pixels:
    """An image filled up to whole tiles on the right, with its last column."""
    if not grid.filled:
        return np.ascontiguousarray(pixels)
    return np.concatenate([pixels, np.repeat(pixels[:, -1:], grid.filled, axis=1)], axis=1)


def chunks_of(pixels: Pixels, grid: Grid) -> NDArray[np.void]:
    """An image (h, w, channels) or (h, w), whole tiles wide, as the pieces of its rows of pixels
    that lie in one tile, each as raw bytes."""
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    return pixels.reshape(-1).view(f"V{grid.tile_width * channels}")


def scan_start(file: NDArray[np.uint8]) -> int:
    """Where the entropy-coded scan of a baseline JPEG file begins."""
    at = 2
    while True:
        length = int(file[at + 2]) * 256 + int(file[at + 3])
        if file[at + 1] == 0xDA:
            return at + 2 + length
        at += 2 + length

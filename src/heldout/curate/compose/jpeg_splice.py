"""JPEG files that share what they show: only the blocks under the object are encoded.

A scan with restart markers is a row of pieces that do not depend on each other: each begins with
its predictions reset, on a byte of its own. So a background is encoded once, cut into tiles of a
few blocks, and an image made of it is the background's pieces with those of the tiles that the
object touches in their places. Such tiles are encoded as an image of their own, stacked without
gaps. The file decodes to the pixels of one that is encoded whole, with markers or without.

(ITU-T T.81, sections E.1.4 and F.1.1.5.2: restart intervals; B.2.1: markers RST0 to RST7 in turn.)
Import it only where OpenCV is installed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from heldout.core.extras import require

if TYPE_CHECKING:
    from heldout.curate.compose.inputs import Pixels
    from heldout.curate.compose.plan import Window

cv2: Any = require("cv2", extra="compose", purpose="the fast renderer")

BLOCK = 16
"""Width and height in pixels of the smallest unit of a scan, with chroma at half size both ways."""
_LEAST_TILE = 48
"""Pixels. Markers make files larger: by 1 to 5 % with tiles of 64 pixels, by twice that with half
of it. Wider tiles encode more in vain."""
_ACROSS = 4
"""Tiles side by side in a stack. In a narrow image the encoder spends more on its rows."""
_FEW = 80
"""Tiles around a sprite of which it is not worth to choose any."""
_WORTH = 30
"""Tiles that choosing must spare the encoder, else it costs more than it saves."""
_SPARSE = 12
"""Single pixels cost about this many times what they cost in a row."""
_RESTART, _END = 0xD0, 0xD9
Indices = NDArray[np.intp]


class TileGrid(NamedTuple):
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

    def chunks(self, pixels: Pixels) -> NDArray[np.void]:
        """An image (h, w, channels) or (h, w), whole tiles wide, as the pieces of its rows of
        pixels that are in one tile, each as raw bytes."""
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        return pixels.reshape(-1).view(f"V{self.tile_width * channels}")


@lru_cache(maxsize=64)
def markers_of(grid: TileGrid) -> Pixels:
    """The second bytes of the markers that follow the tiles of an image."""
    markers = (_RESTART + np.arange(grid.rows * grid.columns) % 8).astype(np.uint8)
    markers[-1] = _END
    return markers


def grid_of(width: int, height: int) -> TileGrid:
    """The grid for an image. A row of blocks is cut evenly, else the pieces would not line up."""
    across = -(-width // BLOCK)
    fitting = [n for n in range(1, across) if across % n == 0 and n * BLOCK >= _LEAST_TILE]
    blocks = fitting[0] if fitting else across
    rows = -(-height // BLOCK)
    return TileGrid(width, height, blocks * BLOCK, BLOCK, blocks, rows, across // blocks)


class Overlay:
    """Pixels with alpha, made ready for being laid over many others.

    A cut-out is opaque or clear nearly everywhere. So its colours are copied where it has any, at
    the speed of memory, and only the pixels in between, at its edge, are computed one by one.
    Where most pixels are in between, all are computed.

    ``colour``  (h, w, 3), contiguous, premultiplied: an image becomes
                below · (255 - alpha) / 255 + colour. Where alpha is 0 it does not matter
    ``alpha``   (h, w)
    """

    def __init__(self, colour: Pixels, alpha: Pixels) -> None:
        self._colour, self._alpha = colour, alpha
        # From 1 to 254, in one comparison: 0 - 1 is 255.
        edge = np.flatnonzero((alpha - np.uint8(1)) < np.uint8(254))
        self._edge: Indices | None = None
        self._add: Pixels
        if edge.size * _SPARSE <= alpha.size:
            self._edge = np.add.outer(3 * edge, np.arange(3))
            self._add = colour.reshape(-1).take(self._edge)
            alpha = alpha.reshape(-1).take(edge)
        else:
            self._add = cv2.copyTo(colour, alpha)
        # Two dimensions or more: OpenCV takes a row of four numbers for one colour.
        self._rest: Pixels = np.repeat((255 - alpha)[..., None], 3, axis=-1)

    def onto(self, below: Pixels) -> None:
        """Change ``below`` (h, w, 3), contiguous, to itself with these pixels over it."""
        if self._edge is None:
            below[:] = self._mixed(below)
            return
        flat = below.reshape(-1)
        edge = flat.take(self._edge)
        cv2.copyTo(self._colour, self._alpha, below)
        if edge.size:
            flat[self._edge] = self._mixed(edge)

    def _mixed(self, below: Pixels) -> Pixels:
        rest = cv2.multiply(below, self._rest, scale=1.0 / 255.0)
        return cast("Pixels", cv2.add(rest, self._add))


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
        height, width = background.shape[:2]
        grid = self.grid = grid_of(width, height)
        self.options = (
            int(cv2.IMWRITE_JPEG_QUALITY),
            quality,
            int(cv2.IMWRITE_JPEG_RST_INTERVAL),
            grid.blocks,
            int(cv2.IMWRITE_JPEG_SAMPLING_FACTOR),
            int(cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420),
        )
        # The header says no size but the image's, so that it is as long for every image.
        self._begin: int | None = None
        self.whole = self.code(background, markers_of(grid))
        self.head = bytes(self.whole.data[: self._begin])
        last = np.repeat(background[:, -1:], grid.filled, axis=1)
        self.chunks = grid.chunks(np.concatenate([background, last], axis=1))
        self.nbytes = int(self.chunks.nbytes) + len(self.whole.data)

    def code(self, stack: Pixels, markers: Pixels) -> Code:
        """Encode tiles that are row by row in ``stack`` (h, w, 3) BGR; a marker follows each."""
        done, file = cv2.imencode(".jpg", stack, self.options)
        if not done:
            raise ValueError(f"OpenCV cannot encode pixels of shape {stack.shape}")
        file = file.reshape(-1)
        if self._begin is None:
            self._begin = scan_start(file)
        # In a scan, a byte 255 of data is followed by 0; any other follower makes it a marker.
        found = np.flatnonzero(file[self._begin : -1] == 0xFF) + (self._begin + 1)
        found = found[file[found] != 0]
        file[found] = markers
        return Code(file.data, [self._begin, *(found + 1).tolist()])


def scan_start(file: Pixels) -> int:
    """Where the entropy-coded scan of a baseline JPEG file begins."""
    at = 2
    while True:
        length = int(file[at + 2]) * 256 + int(file[at + 3])
        if file[at + 1] == 0xDA:
            return at + 2 + length
        at += 2 + length


class Stack(NamedTuple):
    """Tiles that are encoded together, side by side and below each other.

    ``tiles``    their numbers in the image
    ``places``   (h, n) where each row of pixels of each tile is in :attr:`Splicer.chunks`
    ``markers``  that follow the tiles in the scan
    ``colour``   the sprite, laid out in the same way, and its ``alpha``
    """

    tiles: Indices
    places: Indices
    markers: Pixels
    colour: Pixels
    alpha: Pixels


class Tiled:
    """A sprite at one place, for every background of the same size.

    Tiles that it does not touch are the background's; those that it covers wholly are the same on
    every background and encoded once; the others are encoded for each.
    """

    def __init__(self, inside: Pixels, window: Window, grid: TileGrid) -> None:
        """``inside`` is the part of the sprite (h, w, 4) BGRA that is in ``window``."""
        self._stacks: list[tuple[Stack, Overlay]] = []
        self._covering: Stack | None = None
        self._covered: dict[tuple[int, ...], Code] = {}
        self._runs: list[tuple[int, int, int]] = [(0, 0, grid.rows * grid.columns)]
        if not window.empty:
            self._cut(_Canvas(inside, window, grid))

    def file(self, splicer: Splicer) -> bytes:
        """The file of the background with the sprite on it."""
        codes = [splicer.whole]
        for stack, overlay in self._stacks:
            height, across = stack.places.shape
            pixels = splicer.chunks.take(stack.places).view(np.uint8)
            pixels = pixels.reshape(height, across * splicer.grid.tile_width, 3)
            overlay.onto(pixels)
            codes.append(splicer.code(pixels, stack.markers))
        if self._covering is not None:
            if splicer.options not in self._covered:
                code = splicer.code(self._covering.colour, self._covering.markers)
                self._covered = {splicer.options: code}
            codes.append(self._covered[splicer.options])
        pieces: list[Any] = [splicer.head]
        for source, first, after in self._runs:
            data, starts = codes[source]
            pieces.append(data[starts[first] : starts[after]])
        return b"".join(pieces)

    def _cut(self, canvas: _Canvas) -> None:
        grid = canvas.grid
        choose = canvas.rows * canvas.columns > _FEW
        if choose:
            touched, covered = canvas.touched_and_covered()
            clear = touched.size - np.count_nonzero(touched)
            choose = bool(clear + np.count_nonzero(covered) // 2 >= _WORTH)
        stacks: list[Stack] = []
        if not choose:
            stacks.append(canvas.all())
        else:
            # Tiles cut off by the lower border are encoded at that height, in one row.
            low = canvas.rows - 1 if canvas.cut_off else canvas.rows
            edge = touched & ~covered
            if edge[:low].any():
                stacks.append(canvas.some(edge[:low], 0, grid.tile_height))
            if touched[low:].any():
                stacks.append(canvas.some(touched[low:], low, grid.short))
            if covered[:low].any():
                self._covering = canvas.some(covered[:low], 0, grid.tile_height)
        self._stacks = [(stack, Overlay(stack.colour, stack.alpha)) for stack in stacks]
        source = np.zeros(grid.rows * grid.columns, np.intp)
        index = np.arange(source.size)
        for number, stack in enumerate([*stacks, *filter(None, [self._covering])], 1):
            source[stack.tiles] = number
            index[stack.tiles] = np.arange(stack.tiles.size)
        breaks = np.flatnonzero((source[1:] != source[:-1]) | (index[1:] != index[:-1] + 1))
        first = np.concatenate([[0], breaks + 1])
        after = np.concatenate([breaks, [source.size - 1]])
        runs = (source[first], index[first], index[after] + 1)
        self._runs = list(zip(*(each.tolist() for each in runs), strict=True))


class _Canvas:
    """The part of a sprite in an image, on the least rectangle of whole tiles around it."""

    def __init__(self, inside: Pixels, window: Window, grid: TileGrid) -> None:
        width, height = grid.tile_width, grid.tile_height
        self.grid = grid
        self.first_row, self.first_column = window.top // height, window.left // width
        self.rows = -(-window.bottom // height) - self.first_row
        self.columns = -(-window.right // width) - self.first_column
        shape = (self.rows * height, self.columns * width)
        left, top = window.left - self.first_column * width, window.top - self.first_row * height
        right, bottom = left + window.size[0], top + window.size[1]
        # Around the sprite its colour is never looked at, because alpha is 0 there.
        self.colour: Pixels = np.empty((*shape, 3), np.uint8)
        self.alpha: Pixels = np.zeros(shape, np.uint8)
        cv2.cvtColor(inside, cv2.COLOR_BGRA2BGR, dst=self.colour[top:bottom, left:right])
        cv2.extractChannel(inside, 3, dst=self.alpha[top:bottom, left:right])
        if window.right == grid.width and grid.filled:
            self.colour[:, right:] = self.colour[:, right - 1 : right]
            self.alpha[:, right:] = self.alpha[:, right - 1 : right]

    @property
    def cut_off(self) -> bool:
        """Whether its last row of tiles is the image's last, and lower than the others."""
        return self.grid.short > 0 and self.first_row + self.rows == self.grid.rows

    def touched_and_covered(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which tiles (rows, columns) the sprite touches, and which it covers wholly."""
        alpha = self.alpha.reshape(self.rows, self.grid.tile_height, -1)
        apart = (self.rows, self.columns, self.grid.tile_width)
        most = alpha.max(axis=1).reshape(apart).max(axis=2)
        least = alpha.min(axis=1).reshape(apart).min(axis=2)
        return most > 0, least == 255

    def all(self) -> Stack:
        """All tiles as they are."""
        grid, rows = self.grid, np.arange(self.rows)[:, None] + self.first_row
        columns = np.arange(self.first_column, self.first_column + self.columns)
        tiles = (rows * grid.columns + columns).reshape(-1)
        first = self.first_row * grid.tile_height
        height = min(len(self.alpha), grid.height - first)
        places = np.arange(first, first + height)[:, None] * grid.columns + columns
        markers = markers_of(grid)[tiles]
        return Stack(tiles, places, markers, self.colour[:height], self.alpha[:height])

    def some(self, chosen: NDArray[np.bool_], first_row: int, height: int) -> Stack:
        """Chosen tiles (rows, columns) from ``first_row`` on, of each the upper ``height`` pixels:
        a few side by side where they are of full height, else all."""
        grid = self.grid
        tiles = np.flatnonzero(chosen) + first_row * self.columns
        count = tiles.size
        across = min(_ACROSS, count) if height == grid.tile_height else count
        if count % across:  # filled up with the last tile; nobody takes those pieces
            tiles = np.concatenate([tiles, np.repeat(tiles[-1:], -count % across)])
        row, column = np.divmod(tiles.reshape(-1, 1, across), self.columns)
        down = np.arange(height)[:, None]
        here = (row * grid.tile_height + down) * self.columns + column
        row += self.first_row
        column += self.first_column
        places = ((row * grid.tile_height + down) * grid.columns + column).reshape(-1, across)
        tiles = (row * grid.columns + column).reshape(-1)
        width = across * grid.tile_width
        colour = grid.chunks(self.colour).take(here).view(np.uint8).reshape(-1, width, 3)
        alpha = grid.chunks(self.alpha).take(here).view(np.uint8).reshape(-1, width)
        return Stack(tiles[:count], places, markers_of(grid)[tiles], colour, alpha)

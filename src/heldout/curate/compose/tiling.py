"""A sprite at its place in the tiles of an image, and the file of an image that holds it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heldout.core.extras import require
from heldout.curate.compose.overlay import Overlay
from heldout.curate.compose.scene import Pixels
from heldout.curate.compose.splice import Code, Grid, Splicer, chunks_of, markers_of
from heldout.curate.compose.window import Window

_ACROSS = 4
"""Tiles side by side in a stack. In a narrow image the encoder spends more on its rows."""
_FEW = 80
"""Tiles around a sprite of which it is not worth to choose any."""
_WORTH = 30
"""Tiles that choosing must spare the encoder, else it costs more than it saves."""


class Stack(NamedTuple):
    """Tiles that are encoded together, laid side by side and below each other.

    ``places``   (h, n) where each row of pixels of each tile lies in :attr:`Splicer.chunks`
    ``markers``  that follow the tiles in the scan
    ``overlay``  the sprite, laid out in the same way
    """

    places: NDArray[np.intp]
    markers: NDArray[np.uint8]
    overlay: Overlay

    def code(self, splicer: Splicer) -> Code:
        """Pieces of the scan for these tiles on a background."""
        height, across = self.places.shape
        pixels = splicer.chunks.take(self.places).view(np.uint8)
        pixels = pixels.reshape(height, across * splicer.grid.tile_width, 3)
        self.overlay.onto(pixels)
        return splicer.code(pixels, self.markers)


class Tiled:
    """A sprite at one place, for every background of the same size.

    Tiles that it does not touch are the background's; those that it covers wholly are the same on
    every background and encoded once; the others are encoded for each.
    """

    def __init__(self, inside: Pixels, window: Window, grid: Grid) -> None:
        """``inside`` is the part of the sprite (h, w, 4) BGRA that lies in ``window``."""
        self._runs: list[tuple[int, int, int]] = []
        self._stacks: list[Stack] = []
        self._covering: tuple[Pixels, NDArray[np.uint8]] | None = None
        self._covered: dict[tuple[int, ...], Code] = {}
        if not window.empty:
            self._cut(inside, window, grid)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about."""
        covering = 0 if self._covering is None else 2 * self._covering[0].nbytes
        return covering + sum(s.overlay.nbytes + s.places.nbytes for s in self._stacks)

    def file(self, splicer: Splicer) -> bytes:
        """The file of the background with the sprite on it."""
        codes = [splicer.whole, *(stack.code(splicer) for stack in self._stacks)]
        if self._covering is not None:
            covered = self._covered.get(splicer.options)
            if covered is None:
                covered = splicer.code(*self._covering)
                self._covered = {splicer.options: covered}
            codes.append(covered)
        pieces: list[Any] = [splicer.head]
        if not self._runs:
            pieces.append(splicer.whole.data[len(splicer.head) :])
        for source, first, after in self._runs:
            data, starts = codes[source]
            pieces.append(data[starts[first] : starts[after]])
        return b"".join(pieces)

    def _cut(self, inside: Pixels, window: Window, grid: Grid) -> None:
        canvas = _Canvas(inside, window, grid)
        choose = canvas.rows * canvas.columns > _FEW
        if choose:
            touched, covered = canvas.touched_and_covered()
            clear = touched.size - np.count_nonzero(touched)
            choose = bool(clear + np.count_nonzero(covered) // 2 >= _WORTH)
        source = np.zeros(grid.rows * grid.columns, np.intp)
        index = np.arange(source.size)

        def placed(tiles: NDArray[np.intp]) -> None:
            source[tiles] = len(self._stacks) + 1
            index[tiles] = np.arange(tiles.size)

        if not choose:
            found = canvas.all()
            placed(found.tiles)
            self._stacks.append(found.stack())
        else:
            # Tiles cut off by the lower border are encoded at that height, in one row.
            low = canvas.rows - 1 if canvas.cut_off else canvas.rows
            edge = touched & ~covered
            for chosen, row, height in (
                (edge[:low], 0, grid.tile_height),
                (touched[low:], low, grid.short),
            ):
                if chosen.any():
                    found = canvas.some(chosen, row, height)
                    placed(found.tiles)
                    self._stacks.append(found.stack())
            if covered[:low].any():
                found = canvas.some(covered[:low], 0, grid.tile_height)
                placed(found.tiles)
                self._covering = found.colour, found.markers
        breaks = np.flatnonzero((source[1:] != source[:-1]) | (index[1:] != index[:-1] + 1))
        first = np.concatenate([[0], breaks + 1])
        after = np.concatenate([breaks, [source.size - 1]])
        runs = (source[first], index[first], index[after] + 1)
        self._runs = list(zip(*(each.tolist() for each in runs), strict=True))


class _Laid(NamedTuple):
    """Chosen tiles of a canvas, laid out as a stack; ``places`` and ``markers`` as there."""

    tiles: NDArray[np.intp]
    places: NDArray[np.intp]
    markers: NDArray[np.uint8]
    colour: Pixels
    alpha: Pixels

    def stack(self) -> Stack:
        return Stack(self.places, self.markers, Overlay(self.colour, self.alpha))


class _Canvas:
    """The part of a sprite in an image, on the least rectangle of whole tiles around it."""

    def __init__(self, inside: Pixels, window: Window, grid: Grid) -> None:
        cv2: Any = require("cv2", extra="compose", purpose="the fast renderer")
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

    def all(self) -> _Laid:
        """All tiles as they lie."""
        grid, rows = self.grid, np.arange(self.rows)[:, None] + self.first_row
        columns = np.arange(self.first_column, self.first_column + self.columns)
        tiles = (rows * grid.columns + columns).reshape(-1)
        first = self.first_row * grid.tile_height
        height = min(len(self.alpha), grid.height - first)
        places = np.arange(first, first + height)[:, None] * grid.columns + columns
        markers = markers_of(grid)[tiles]
        return _Laid(tiles, places, markers, self.colour[:height], self.alpha[:height])

    def some(self, chosen: NDArray[np.bool_], first_row: int, height: int) -> _Laid:
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
        colour = chunks_of(self.colour, grid).take(here).view(np.uint8).reshape(-1, width, 3)
        alpha = chunks_of(self.alpha, grid).take(here).view(np.uint8).reshape(-1, width)
        return _Laid(tiles[:count], places, markers_of(grid)[tiles], colour, alpha)

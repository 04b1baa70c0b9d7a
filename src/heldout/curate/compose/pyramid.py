"""A cut-out at any size and angle, quickly: blurred levels, sampled with linear interpolation.

The exact path reduces the whole cut-out again for each size, with a filter as wide as the
reduction. Here a cut-out is halved once into levels, a level is blurred once for every quarter of
an octave (:mod:`heldout.curate.compose.kernels`), and a sprite is two taps a pixel out of that. A
turned sprite is sampled out of its upright self at twice the size, with Pillow's own matrix.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from heldout.core.extras import require
from heldout.curate.compose.kept import Kept
from heldout.curate.compose.kernels import blur_of, step_of
from heldout.curate.compose.placing import rotated_size, rotation_matrix
from heldout.curate.compose.scene import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

PURPOSE = "the fast renderer"
_SMALL = 32
"""Pixels of a side under which a sprite is made with Pillow."""
_MAX_SIDE = 32766
"""OpenCV counts the pixels of a side that it warps from in 16 bits."""


class Turn(NamedTuple):
    """How Pillow rotates with ``expand=True``.

    ``matrix``  (2, 3) from positions in the turned image to positions in the upright one, where
                the corner of an image is (0, 0) and the centre of its first pixel (0.5, 0.5)
    ``size``    (width, height) of the turned image
    """

    matrix: NDArray[np.float64]
    size: tuple[int, int]


def turn_of(size: tuple[int, int], degrees: float) -> Turn:
    """The matrix and size of ``Image.rotate(degrees, expand=True)`` for an image of ``size``.

    For a multiple of 90 degrees Pillow only moves pixels; that is not for this function.
    """
    (a, b, d, e), (dx, dy) = rotation_matrix(size, degrees % 360.0)
    turned = rotated_size(size, degrees)
    # The turned image has another centre: half of what it has grown, turned back.
    x, y = (size[0] - turned[0]) / 2, (size[1] - turned[1]) / 2
    return Turn(np.array([[a, b, a * x + b * y + dx], [d, e, d * x + e * y + dy]]), turned)


def premultiplied(straight: Pixels) -> Pixels:
    """RGBA with straight alpha as BGRA premultiplied by alpha, rounded as Pillow does it."""
    from PIL.Image import fromarray

    cv2 = require("cv2", extra="compose", purpose=PURPOSE)
    flat = _array(fromarray(straight).convert("RGBa"))
    return cast("Pixels", cv2.cvtColor(flat, cv2.COLOR_RGBA2BGRA))


def unmultiplied(premultiplied: Pixels) -> Pixels:
    """The inverse of :func:`premultiplied`."""
    cv2 = require("cv2", extra="compose", purpose=PURPOSE)
    return np.asarray(_image(cv2.cvtColor(premultiplied, cv2.COLOR_BGRA2RGBA)).convert("RGBA"))


def _image(premultiplied: Pixels) -> Image:
    """An array as an image of Pillow; its channels are treated alike, whatever their order."""
    from PIL.Image import frombuffer

    height, width = premultiplied.shape[:2]
    return frombuffer("RGBa", (width, height), np.ascontiguousarray(premultiplied))


def _array(image: Image) -> Pixels:
    return np.frombuffer(image.tobytes(), np.uint8).reshape(image.height, image.width, 4)


class Pyramid:
    """One cut-out, premultiplied BGRA, from which sprites of any size are taken.

    Its arrays lie in ``kept`` under keys that begin with ``name``, and are made again when they
    were dropped from there.
    """

    def __init__(self, source: Pixels, *, name: str, kept: Kept) -> None:
        self.source = source
        self.name = name
        self.kept = kept
        self._cv2: Any = require("cv2", extra="compose", purpose=PURPOSE)

    def upright(self, size: tuple[int, int]) -> Pixels:
        """The sprite of ``size`` (width, height), (h, w, 4)."""
        width, height = size
        if size == (self.source.shape[1], self.source.shape[0]):
            return self.source
        reduction = min(self.source.shape[1] / width, self.source.shape[0] / height)
        octaves = math.floor(math.log2(max(reduction, 1.0)))
        if min(size) < _SMALL:
            return self._small(size, max(0, octaves - 2))
        # From pixels half as wide as those of the sprite, or less, two taps after a blur are as
        # good as Pillow's whole filter; from coarser ones they lose 5 to 10 dB.
        level = max(0, octaves - 1)
        level_height, level_width = self._level_shape(level)
        steps = (step_of(level_width / width), step_of(level_height / height))
        blurred = self.kept.get(
            (self.name, "blurred", level, steps), lambda: self._blurred(level, steps)
        )
        return cast(
            "Pixels",
            self._cv2.resize(blurred, (width, height), interpolation=self._cv2.INTER_LINEAR),
        )

    def turned(self, size: tuple[int, int], degrees: float) -> Pixels:
        """The sprite of ``size`` turned counter-clockwise, its box grown to hold it, (h', w', 4)."""
        cv2 = self._cv2
        degrees = degrees % 360.0
        if degrees % 90.0 == 0:
            quarters = np.rot90(self.upright(size), int(degrees // 90))
            return np.ascontiguousarray(quarters)
        if min(size) < _SMALL:
            from PIL.Image import Resampling

            turned = _image(self.upright(size)).rotate(degrees, Resampling.BICUBIC, expand=True)
            return _array(turned)
        turn = turn_of(size, degrees)
        fine = self.kept.get((self.name, "fine", size), lambda: self._fine(size))
        scale = np.array([[fine.shape[1] / size[0]], [fine.shape[0] / size[1]]])
        # Positions of pixel centres, on both sides: from (column, row) to (column, row).
        matrix = turn.matrix.copy()
        matrix[:, 2] += turn.matrix[:, :2] @ [0.5, 0.5]
        matrix *= scale
        matrix[:, 2] -= 0.5
        return cast(
            "Pixels",
            cv2.warpAffine(
                fine,
                matrix,
                turn.size,
                flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
                borderMode=cv2.BORDER_CONSTANT,
                borderValue=(0, 0, 0, 0),
            ),
        )

    def _small(self, size: tuple[int, int], level: int) -> Pixels:
        """A sprite of few pixels, where the border counts: Pillow's own filter, from a level."""
        from PIL.Image import Resampling

        return _array(_image(self._level(level)).resize(size, Resampling.BILINEAR))

    def _level_shape(self, level: int) -> tuple[int, int]:
        height, width = self.source.shape[:2]
        return max(1, round(height / 2**level)), max(1, round(width / 2**level))

    def _level(self, level: int) -> Pixels:
        """The cut-out reduced by 2 ** level, each level out of the one before."""
        if level == 0:
            return self.source
        height, width = self._level_shape(level)
        return self.kept.get(
            (self.name, "level", level),
            lambda: self._cv2.resize(
                self._level(level - 1), (width, height), interpolation=self._cv2.INTER_AREA
            ),
        )

    def _blurred(self, level: int, steps: tuple[int, int]) -> Pixels:
        source = self._level(level)
        if steps == (0, 0):
            return source
        return cast(
            "Pixels",
            self._cv2.sepFilter2D(
                source,
                -1,
                blur_of(steps[0]),
                blur_of(steps[1]),
                borderType=self._cv2.BORDER_REPLICATE,
            ),
        )

    def _fine(self, size: tuple[int, int]) -> Pixels:
        """The upright sprite at twice its size: OpenCV's sharp cubic, then linear interpolation,
        come nearer to Pillow's softer cubic than a fitted filter of the same cost."""
        upright = self.upright(size)
        if 2 * max(size) > _MAX_SIDE:
            return upright
        return cast(
            "Pixels",
            self._cv2.resize(
                upright, (2 * size[0], 2 * size[1]), interpolation=self._cv2.INTER_CUBIC
            ),
        )

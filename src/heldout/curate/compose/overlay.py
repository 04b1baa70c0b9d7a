"""Laying a sprite's pixels over others."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from heldout.core.extras import require
from heldout.curate.compose.scene import Pixels

_SPARSE = 12
"""Single pixels cost about this many times what they cost in a row."""
_CHANNELS = np.arange(3)


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
        self._cv2: Any = require("cv2", extra="compose", purpose="the fast renderer")
        self._colour, self._alpha = colour, alpha
        # From 1 to 254, in one comparison: 0 - 1 is 255.
        edge = np.flatnonzero((alpha - np.uint8(1)) < np.uint8(254))
        self._edge: NDArray[np.intp] | None = None
        if edge.size * _SPARSE <= alpha.size:
            self._edge = np.add.outer(3 * edge, _CHANNELS)
            colour = colour.reshape(-1).take(self._edge)
            alpha = alpha.reshape(-1).take(edge)
        # Two dimensions or more: OpenCV takes a row of four numbers for one colour.
        self._rest: NDArray[Any] = np.repeat((255 - alpha)[..., None], 3, axis=-1)
        self._add: Pixels = colour if self._edge is not None else self._cv2.copyTo(colour, alpha)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        edge = 0 if self._edge is None else self._edge.nbytes
        mine = (self._colour, self._alpha, self._rest, self._add)
        return edge + sum(int(each.nbytes) for each in mine)

    def onto(self, below: Pixels) -> None:
        """Change ``below`` (h, w, 3), contiguous, to itself with these pixels over it."""
        if self._edge is None:
            below[:] = self._mixed(below)
            return
        flat = below.reshape(-1)
        edge = flat.take(self._edge)
        self._cv2.copyTo(self._colour, self._alpha, below)
        if edge.size:
            flat[self._edge] = self._mixed(edge)

    def _mixed(self, below: Pixels) -> Pixels:
        rest = self._cv2.multiply(below, self._rest, scale=1.0 / 255.0)
        return cast("Pixels", self._cv2.add(rest, self._add))

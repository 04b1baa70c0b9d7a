"""Pasting one sprite many times: Pillow's arithmetic, only where a pixel is partly transparent.

Most pixels of a cut-out are opaque or transparent: the former are copied, the latter left alone.
For the rest, as Pillow: t = b (255 - a) + s a + 128, and the result (t + t / 256) / 256, divisions
cut off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.recipes.compose.scene import Pixels

_FEW = 0.25
"""Sprites with a larger share of partly transparent pixels are left to Pillow."""


class Overlay:
    """A sprite (h, w, 4) RGBA, made ready to be laid on images in the encoder's order, BGR.

    ``worth``  whether it is quicker than Pillow
    """

    def __init__(self, pixels: Pixels, alpha: Pixels, cv2: Any) -> None:
        self._copy = cv2.copyTo
        self.height, self.width = alpha.shape
        between = cv2.inRange(alpha, 1, 254)
        count = cv2.countNonZero(between)
        self.worth: bool = count <= _FEW * alpha.size
        if not self.worth:
            return
        self._colours: Pixels = cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGR)
        self._opaque: Pixels = cv2.inRange(alpha, 255, 255)
        # Zeros and ones are looked through ten times as fast as other bytes.
        places = np.flatnonzero((between & 1).view(np.bool_))
        self._rows, self._columns = np.divmod(places.astype(np.int32), np.int32(self.width))
        whole = np.ascontiguousarray(pixels).view(np.uint32).reshape(-1)[places]
        parts = whole.view(np.uint8).reshape(-1, 4).astype(np.uint16)
        soft = parts[:, 3:]
        self._rest: NDArray[np.uint16] = 255 - soft
        self._own: NDArray[np.uint16] = parts[:, 2::-1] * soft + np.uint16(128)

    def lay(self, image: Pixels, left: int, top: int) -> None:
        """Lay the sprite on a contiguous image (H, W, 3), its corner at ``left``, ``top``."""
        height, width = image.shape[:2]
        x0, y0 = max(left, 0), max(top, 0)
        x1, y1 = min(left + self.width, width), min(top + self.height, height)
        if x0 >= x1 or y0 >= y1:
            return
        here = np.s_[y0 - top : y1 - top, x0 - left : x1 - left]
        self._copy(self._colours[here], self._opaque[here], image[y0:y1, x0:x1])
        rows, columns, rest, own = self._rows + top, self._columns + left, self._rest, self._own
        if (x1 - x0, y1 - y0) != (self.width, self.height):
            seen = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
            rows, columns, rest, own = rows[seen], columns[seen], rest[seen], own[seen]
        places: NDArray[np.int32] = rows * np.int32(width) + columns
        # Pixels as single values of three bytes: gathered and put back three times as fast.
        flat = image.reshape(-1).view("V3")
        mixed = flat[places].view(np.uint8).reshape(-1, 3) * rest
        mixed += own
        mixed += mixed >> 8
        flat[places] = (mixed >> 8).astype(np.uint8).reshape(-1).view("V3")

"""How much of an object is in sight: in the frame, and not hidden by what lies on top."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.scene import Extra

Alpha = NDArray[np.uint8]


def window(
    left: int, top: int, shape: tuple[int, int], frame: tuple[int, int]
) -> tuple[slice, slice, slice, slice]:
    """Rows and columns of a frame (height, width) that a sprite covers, then those of the sprite."""
    height, width = shape
    y0, y1 = max(0, top), max(0, min(frame[0], top + height))
    x0, x1 = max(0, left), max(0, min(frame[1], left + width))
    y1, x1 = max(y0, y1), max(x0, x1)
    return slice(y0, y1), slice(x0, x1), slice(y0 - top, y1 - top), slice(x0 - left, x1 - left)


def cover(
    extra: Alpha, at: tuple[int, int], shape: tuple[int, int], corner: tuple[int, int]
) -> NDArray[np.float32]:
    """What an extra at ``at`` (left, top) hides of a sprite at ``corner``; 0 to 1, (h, w)."""
    made = np.zeros(shape, dtype=np.float32)
    rows, columns, own_rows, own_columns = window(
        at[0] - corner[0], at[1] - corner[1], extra.shape, shape
    )
    made[rows, columns] = extra[own_rows, own_columns].astype(np.float32) / np.float32(255)
    return made


def visible(
    alpha: Alpha, corner: tuple[int, int], frame: tuple[int, int], extras: Sequence[Extra]
) -> float:
    """The mask in sight in pixels; a pixel of alpha a counts a/255, less what extras cover."""
    left, top = corner
    _, _, rows, columns = window(left, top, alpha.shape, frame)
    seen = alpha.astype(np.float32)
    for extra in extras:
        seen = seen * (1 - cover(extra.pixels[..., 3], (extra.left, extra.top), seen.shape, corner))
    return float(seen[rows, columns].sum(dtype=np.float64)) / 255.0

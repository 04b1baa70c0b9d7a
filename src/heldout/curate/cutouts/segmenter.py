"""Segmenters: what finds the object of a photograph when nobody has drawn its outline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from heldout.curate.cutouts.cutout import Box, Matte

ROOM = 0.15
"""How far past a box a segmenter looks, as a share of the box's sides: the background's colours."""


class Segmenter(Protocol):
    """Finds the object of a photograph.

    It may be called by several threads at once and is sent to worker processes.
    """

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the answer depends on beside the photograph, as JSON values."""
        ...

    @property
    def runtime(self) -> Mapping[str, str]:
        """What runs it, for the record."""
        ...

    def __call__(self, pixels: np.ndarray, box: Box | None = None) -> Matte:
        """The matte of uint8 pixels (h, w, 3); with ``box``, of the object in it."""
        ...


Inner = tuple[int, int, int, int]


def in_box(
    pixels: np.ndarray,
    box: Box | None,
    find: Callable[[np.ndarray, Inner | None], Matte],
) -> Matte:
    """Run ``find`` on the surroundings of a box, and put what it finds inside the box in its place.

    ``find`` is given the pixels of the surroundings and the box in them as (left, top, right,
    bottom), or the whole photograph and None. Outside the box the matte is 0.
    """
    if box is None:
        return find(pixels, None)
    height, width = pixels.shape[:2]
    box = box.in_pixels(width, height)
    left, right = _span(box.left, box.width, width, 0.0)
    top, bottom = _span(box.top, box.height, height, 0.0)
    made = np.zeros((height, width), np.float32)
    if left >= right or top >= bottom:
        return made  # the box lies outside the photograph
    x0, x1 = _span(box.left, box.width, width, ROOM)
    y0, y1 = _span(box.top, box.height, height, ROOM)
    inner = (left - x0, top - y0, right - x0, bottom - y0)
    found = find(np.ascontiguousarray(pixels[y0:y1, x0:x1]), inner)
    made[top:bottom, left:right] = found[inner[1] : inner[3], inner[0] : inner[2]]
    return made


def _span(start: float, length: float, limit: int, room: float) -> tuple[int, int]:
    first = np.floor(start - room * length)
    last = np.ceil(start + (1 + room) * length)
    return int(np.clip(first, 0, limit)), int(np.clip(last, 0, limit))

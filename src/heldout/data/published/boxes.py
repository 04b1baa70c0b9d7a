"""Boxes of objects, and the share of the image that one covers."""

from __future__ import annotations

import math
from typing import Any

from heldout.core.errors import UserError

FARTHEST = 1e15
"""No pixel is farther than that from the corner of its image."""


def box_share(box: tuple[Any, Any, Any, Any], width: int | None, height: int | None) -> float:
    """The share of the image inside the box (left, top, width, height), 0 to 1.

    What lies outside the image does not count. NaN where it cannot be told: no size of the
    image, a number missing or not finite, a side that is negative.

    >>> box_share((-10, 0, 20, 50), 100, 100)
    0.05
    """
    if width is None or height is None:
        return math.nan
    for number in box:
        if isinstance(number, bool) or not isinstance(number, int | float):
            return math.nan
        if not -FARTHEST <= number <= FARTHEST:  # nor is NaN
            return math.nan
    left, top, across, down = box
    if across < 0 or down < 0:
        return math.nan
    inside_x = min(left + across, width) - max(left, 0)
    inside_y = min(top + down, height) - max(top, 0)
    return float(max(inside_x, 0) * max(inside_y, 0) / (width * height))


def check_share(value: float) -> float:
    """A minimum share of the image, if it is one."""
    if not 0 <= value <= 1:
        raise UserError(
            f"a minimum box area of {value:g} is no share of the image", fix="use 0 to 1, as 0.01"
        )
    return value

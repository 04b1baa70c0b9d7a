"""Where an object lies and how large it is: SI-SCORE's geometry, in closed form.

Every formula keeps the original's order of operations and its truncations, so that sizes and
corners agree to the pixel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

Size = tuple[int, int]
Box = tuple[int, int, int, int]


class Placement(NamedTuple):
    """An object in an image: ``sprite`` before rotation, ``box`` after it, ``inside`` 0 to 1."""

    sprite: Size
    box: Box
    inside: float


def boxed(sprite: Size, frame: Size, *, x: float, y: float, rotation: float) -> Box:
    """The box of a scaled object after rotation, about the given centre."""
    turned = rotated_size(sprite, rotation)
    return (*top_left(turned, frame, x, y), *turned)


def scaled_size(size: Size, frame: Size, area: float) -> Size:
    """The size at which an object's bounding box has ``area`` times the area of the image.

    A side may come out as 0: such an object is too small to be drawn.
    """
    width, height = size
    scale = math.sqrt(area / ((width * height) / (frame[0] * frame[1])))
    return int(width * scale), int(height * scale)


def rotated_size(size: Size, rotation: float) -> Size:
    """The box of a rotated rectangle, as Pillow's ``rotate(..., expand=True)`` has it.

    Multiples of 90 degrees keep or swap the sides. Otherwise the corners are turned about the
    centre with a matrix rounded to 15 digits, and the box spans floor to ceiling.
    """
    width, height = size
    angle = rotation % 360.0
    if angle in (0, 180):
        return size
    if angle in (90, 270):
        return height, width
    matrix, offset = rotation_matrix(size, angle)
    corners = [
        _transformed(matrix, offset, corner)
        for corner in ((0, 0), (width, 0), (width, height), (0, height))
    ]
    across, down = zip(*corners, strict=True)
    return (
        math.ceil(max(across)) - math.floor(min(across)),
        math.ceil(max(down)) - math.floor(min(down)),
    )


Matrix = tuple[float, float, float, float]
Offset = tuple[float, float]


def rotation_matrix(size: Size, rotation: float) -> tuple[Matrix, Offset]:
    """(a, b, d, e) and (c, f) that carry a point of the rotated image back, about the centre."""
    radians = -math.radians(rotation)
    matrix = (
        round(math.cos(radians), 15),
        round(math.sin(radians), 15),
        round(-math.sin(radians), 15),
        round(math.cos(radians), 15),
    )
    centre = size[0] / 2, size[1] / 2
    across, down = _transformed(matrix, (0.0, 0.0), (-centre[0], -centre[1]))
    return matrix, (across + centre[0], down + centre[1])


def _transformed(matrix: Matrix, offset: Offset, point: tuple[float, float]) -> Offset:
    a, b, d, e = matrix
    x, y = point
    return a * x + b * y + offset[0], d * x + e * y + offset[1]


def top_left(size: Size, frame: Size, x: float, y: float) -> tuple[int, int]:
    """The corner of a box whose centre is at ``x``, ``y``; truncated toward zero, twice."""
    centre_x, centre_y = int(x * frame[0]), int(y * frame[1])
    return int(centre_x - 0.5 * size[0]), int(centre_y - 0.5 * size[1])


def inside_fraction(box: Box, frame: Size) -> float:
    """The share of a box that lies in the image: 0 where it lies outside altogether."""
    left, top, width, height = box
    across = min(left + width, frame[0]) - max(left, 0)
    down = min(top + height, frame[1]) - max(top, 0)
    if across <= 0 or down <= 0:
        return 0.0
    return (across * down) / (width * height)

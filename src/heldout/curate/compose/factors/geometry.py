"""Where an object comes to lie, in closed form, and how it gets there in one resampling.

The object comes scaled and rotated. All factors of its outline are matrices on coordinates about
its centre (x to the right, y down, in pixels); their product is applied in one resampling. The
new box is the smallest that holds the four corners, and it is centred where the object was to be.
All of it follows from sizes and values, so boxes are known before any pixels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.factors.alpha import filled
from heldout.curate.compose.factors.protocol import Frame
from heldout.curate.compose.scene import Pixels, Value

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Size = tuple[int, int]
Matrix = NDArray[np.float64]


@runtime_checkable
class Outline(Protocol):
    """A factor that changes the object's outline: a 3 x 3 matrix on centred coordinates."""

    @property
    def key(self) -> str:
        """Its name."""
        ...

    def matrix(self, size: Size, value: Value) -> Matrix:
        """The projective map for an object of this size; it must keep all corners in front."""
        ...


@dataclass(frozen=True)
class Placement:
    """Where an object comes to lie.

    ``box``       left, top, width, height in the image
    ``matrix``    from centred coordinates of the object to those of its outline's own box
    ``size``      of that outline's box before a part of a pixel is added
    ``fraction``  parts of a pixel by which it is moved to the right and down, 0 to 1
    """

    box: tuple[int, int, int, int]
    matrix: Matrix
    size: Size
    fraction: tuple[float, float]


def placement(
    size: Size,
    values: Mapping[str, Value],
    *,
    x: float,
    y: float,
    resolution: Size,
    outlines: Sequence[Outline],
) -> Placement:
    """Box and map of an object of ``size`` (after rotation) with its centre at ``x``, ``y``.

    Without geometry values the box is the original's: its corner is
    ``int(int(x * W) - 0.5 * w)``, truncated towards zero.
    """
    matrix = np.eye(3)
    for outline in outlines:
        if outline.key in values:
            matrix = outline.matrix(size, values[outline.key]) @ matrix
    if (matrix == np.eye(3)).all():
        width, height = size
        middle = (0.0, 0.0)
    else:
        corners = np.array([[sx * size[0] / 2, sy * size[1] / 2, 1.0] for sx, sy in _CORNERS])
        mapped = corners @ matrix.T
        mapped = mapped[:, :2] / mapped[:, 2:]
        low, high = mapped.min(axis=0), mapped.max(axis=0)
        width = max(1, math.ceil(high[0] - low[0] - 1e-6))
        height = max(1, math.ceil(high[1] - low[1] - 1e-6))
        middle = (float(low[0] + high[0]) / 2, float(low[1] + high[1]) / 2)
        matrix = _moved(-middle[0], -middle[1]) @ matrix
    box = [0, 0, width, height]
    fraction = [0.0, 0.0]
    for axis, (share, frame) in enumerate(zip((x, y), resolution, strict=True)):
        corner = int(int(share * frame) - 0.5 * box[2 + axis])
        move = _move(axis, corner + box[2 + axis] / 2, values)
        whole = math.floor(move)
        fraction[axis] = move - whole
        box[axis] = corner + whole
    made = (box[0], box[1], width + (fraction[0] > 0), height + (fraction[1] > 0))
    return Placement(made, matrix, (width, height), (fraction[0], fraction[1]))


_CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))


def placed_box(
    size: Size,
    values: Mapping[str, Value],
    *,
    x: float,
    y: float,
    resolution: Size,
    outlines: Sequence[Outline],
) -> tuple[int, int, int, int]:
    """Left, top, width and height of an object of ``size`` (after rotation): see :func:`placement`."""
    return placement(size, values, x=x, y=y, resolution=resolution, outlines=outlines).box


def warp(sprite: Pixels, placed: Placement) -> Pixels:
    """The sprite (h, w, 4) as its placement shows it; what lies under alpha 0 does not bleed.

    Mirrored only, it keeps its pixels. Moved only, it is resampled once by Catmull and Rom's
    cubic. Else it is enlarged twice by that cubic and read bilinearly: Pillow's own cubic for
    such maps would move it, as it does not keep straight lines straight.
    """
    signs = placed.matrix.diagonal()
    if (np.abs(placed.matrix) == np.eye(3)).all():
        mirrored = np.ascontiguousarray(sprite[:: int(signs[1]), :: int(signs[0])])
        return _shifted(mirrored, placed.fraction) if any(placed.fraction) else mirrored
    return _projected(sprite, placed)


def _shifted(sprite: Pixels, fraction: tuple[float, float]) -> Pixels:
    """The sprite moved by parts of a pixel, and longer by one pixel where it is."""
    from PIL import Image

    height, width = sprite.shape[:2]
    size = (width + (fraction[0] > 0), height + (fraction[1] > 0))
    left, top = _EDGE - fraction[0], _EDGE - fraction[1]
    box = (left, top, left + size[0], top + size[1])
    parts = [part.resize(size, Image.Resampling.BICUBIC, box=box) for part in _parts(sprite)]
    return np.dstack([np.asarray(part) for part in parts])


def _projected(sprite: Pixels, placed: Placement) -> Pixels:
    """The sprite through its map."""
    from PIL import Image

    height, width = sprite.shape[0] + 2 * _EDGE, sprite.shape[1] + 2 * _EDGE
    # Where the outline shrinks, more samples a pixel are taken and averaged.
    finer = 2 if _least_scale(placed.matrix, (width, height)) < 0.75 else 1
    middle = (placed.size[0] / 2 + placed.fraction[0], placed.size[1] / 2 + placed.fraction[1])
    to_box = np.diag([finer, finer, 1.0]) @ _moved(*middle)
    forward = to_box @ placed.matrix @ _moved(-width / 2, -height / 2) @ np.diag([0.5, 0.5, 1.0])
    back = np.linalg.inv(forward)
    back /= back[2, 2]
    made = []
    for part in _parts(sprite):
        large = part.resize((2 * width, 2 * height), Image.Resampling.BICUBIC)
        image = large.transform(
            (placed.box[2] * finer, placed.box[3] * finer),
            Image.Transform.PERSPECTIVE,
            back.reshape(-1)[:8].tolist(),
            Image.Resampling.BILINEAR,
        )
        made.append(np.asarray(image.reduce(finer) if finer > 1 else image))
    return np.dstack(made)


_EDGE = 3


def _parts(sprite: Pixels) -> tuple[PillowImage, PillowImage]:
    """Colours and alpha in a border of nothing, so that the outermost pixels can fade.

    Colours go on beyond the object as they are at its edge. So each part can be resampled alone,
    and a cubic's overshoot at the edge of the mask does not reach the colours.
    """
    from PIL import Image

    height, width = sprite.shape[:2]
    made = np.zeros((height + 2 * _EDGE, width + 2 * _EDGE, 4), dtype=np.uint8)
    made[_EDGE:-_EDGE, _EDGE:-_EDGE] = sprite
    alpha = np.ascontiguousarray(made[..., 3])
    colours = filled(np.ascontiguousarray(made[..., :3]), alpha)
    return Image.fromarray(colours), Image.fromarray(alpha)


def _moved(across: float, down: float) -> Matrix:
    return np.array([[1.0, 0.0, across], [0.0, 1.0, down], [0.0, 0.0, 1.0]])


def apply_geometry(frame: Frame, outlines: Sequence[Outline]) -> Frame:
    """The frame with its object warped and put at its place."""
    shot = frame.shot
    sprite = frame.layers.foreground
    placed = placement(
        (sprite.shape[1], sprite.shape[0]),
        shot.values,
        x=shot.x,
        y=shot.y,
        resolution=(shot.width, shot.height),
        outlines=outlines,
    )
    made = warp(sprite, placed)
    moved = frame.with_layers(foreground=made, left=placed.box[0], top=placed.box[1])
    return replace(moved, shape=made[..., 3], corner=(placed.box[0], placed.box[1]))


def _least_scale(matrix: Matrix, size: Size) -> float:
    """The least of the scales that a map has at the corners and at the centre."""
    scales = []
    for sx, sy in (*_CORNERS, (0, 0)):
        x, y = sx * size[0] / 2, sy * size[1] / 2
        u, v, w = matrix @ np.array([x, y, 1.0])
        jacobian = (matrix[:2, :2] - np.outer((u / w, v / w), matrix[2, :2])) / w
        scales.append(float(np.linalg.svd(jacobian, compute_uv=False)[-1]))
    return min(scales)


def patch_grid(values: Mapping[str, Value]) -> tuple[float, float]:
    """Origin and side of the patch grid, in pixels of the image."""
    return float(values.get("patch_origin", 0.0)), float(values.get("patch_size", 32.0))


def _move(axis: int, centre: float, values: Mapping[str, Value]) -> float:
    """By how much the factors move an object whose box has this centre, along one axis."""
    letter = "xy"[axis]
    moved = 0.0
    phase = values.get(f"patch_phase_{letter}", values.get("patch_phase"))
    if phase is not None:
        origin, patch = patch_grid(values)
        first = origin + patch * (0.5 + float(phase))
        # The nearest place of that phase; of two as near, the lower.
        steps = math.ceil((centre - first) / patch - 0.5)
        moved = first + patch * steps - centre
    moved += float(values.get(f"offset_{letter}", 0.0))
    nearest = round(moved)
    return float(nearest) if abs(moved - nearest) < 1e-9 else moved

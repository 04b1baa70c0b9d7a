"""Factors of the object's outline, place and size, and the one resampling that they share.

The object comes scaled and rotated. All factors of its outline are matrices on coordinates about
its centre (x to the right, y down, in pixels); their product is applied in one resampling. Where
the object comes to be is decided by :func:`heldout.curate.compose.plan.place`, before any pixels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from heldout.curate.compose.factors.factor import Factor, Frame, Stage
from heldout.curate.compose.factors.layers import filled
from heldout.curate.compose.inputs import Pixels, mask_sum
from heldout.curate.compose.plan import CORNERS, Matrix, Size, Value, Warp, moved, patch_grid

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

CAMERA = 2.0
"""Distance of the camera in tilts, in diagonals of the object."""
_EDGE = 3
_ASPECT = "width over height of the object's pixels"
_FLIPS = ("none", "horizontal", "vertical", "both")
_SIZES = ("box", "mask", "side")
_TILTS = (-60.0, -45.0, -30.0, 0.0, 30.0, 45.0, 60.0)


class Shape(Factor):
    """A factor of outline or size, measured by the proportions of what it makes."""

    def measure(self, frame: Frame) -> float:
        """Width over height of the smallest box that holds the object's pixels."""
        alpha = frame.layers.alpha
        columns, rows = np.flatnonzero(alpha.any(axis=0)), np.flatnonzero(alpha.any(axis=1))
        if not len(columns):
            return 0.0
        return float(columns[-1] - columns[0] + 1) / float(rows[-1] - rows[0] + 1)


class Flip(Factor):
    """The object mirrored; exact, pixel for pixel."""

    def matrix(self, size: Size, value: Value) -> Matrix:
        """A sign for each axis."""
        across = -1.0 if value in ("horizontal", "both") else 1.0
        down = -1.0 if value in ("vertical", "both") else 1.0
        return np.diag([across, down, 1.0])

    def measure(self, frame: Frame) -> float:
        """How far the centre of mass is right of the box's centre, as a share of its width."""
        width = int(frame.layers.foreground.shape[1])
        return (mass_centre(frame)[0] - frame.layers.left) / width - 0.5


class Shear(Shape):
    """Rows pushed sideways: x + value * y."""

    def matrix(self, size: Size, value: Value) -> Matrix:
        """One entry off the diagonal."""
        return np.array([[1.0, float(value), 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


class Tilt(Shape):
    """The object as a flat card, turned about an axis through its centre and seen by a camera."""

    def matrix(self, size: Size, value: Value) -> Matrix:
        """The projection of the turned card; its centre keeps its scale."""
        angle = math.radians(float(value))
        near = math.sin(angle) / (CAMERA * math.hypot(*size))
        axis = 1 if self.key == "tilt_x" else 0
        made = np.eye(3)
        made[axis, axis] = math.cos(angle)
        made[2, axis] = near
        return made


class Offset(Factor):
    """The object moved by pixels or parts of pixels; parts are resampled."""

    def measure(self, frame: Frame) -> float:
        """The coordinate of the object's centre of mass, in pixels of the image."""
        return mass_centre(frame)["xy".index(self.key[-1])]


class PatchPhase(Factor):
    """The centre of the object's box moved to a phase of a patch grid."""

    def measure(self, frame: Frame) -> float:
        """From the centre of mass to the nearest patch centre, 0 to 0.5 patches, mean over axes."""
        origin, patch = patch_grid(frame.shot.values)
        axes = {"patch_phase_x": (0,), "patch_phase_y": (1,)}.get(self.key, (0, 1))
        phases = [((mass_centre(frame)[i] - origin) / patch - 0.5) % 1.0 for i in axes]
        return sum(min(phase, 1.0 - phase) for phase in phases) / len(phases)


class SizeBy(Factor):
    """What an area counts: see :func:`heldout.curate.compose.plan.sprite_size`."""

    def measure(self, frame: Frame) -> float:
        """The whole mask over the image, in pixels."""
        return mask_sum(frame.layers.alpha) / (frame.shot.width * frame.shot.height)


def mass_centre(frame: Frame) -> tuple[float, float]:
    """The centre of mass of the object's alpha, in pixels of the image; NaN without an object."""
    alpha = frame.layers.alpha.astype(np.float64)
    total = float(alpha.sum())
    if not total:
        return math.nan, math.nan
    xs = float(alpha.sum(axis=0) @ (np.arange(alpha.shape[1]) + 0.5)) / total
    ys = float(alpha.sum(axis=1) @ (np.arange(alpha.shape[0]) + 0.5)) / total
    return frame.layers.left + xs, frame.layers.top + ys


def warp(sprite: Pixels, how: Warp, size: Size) -> Pixels:
    """The sprite (h, w, 4) as its plan shows it, ``size`` large; nothing under alpha 0 bleeds.

    Mirrored only, it keeps its pixels. Moved only, it is resampled once by Catmull and Rom's
    cubic. Else it is enlarged twice by that cubic and read bilinearly: Pillow's own cubic for
    such maps would move it, as it does not keep straight lines straight.
    """
    if (np.abs(how.matrix) == np.eye(3)).all():
        across, down, _ = how.matrix.diagonal().astype(int)
        mirrored = np.ascontiguousarray(sprite[::down, ::across])
        return _shifted(mirrored, how.fraction, size) if any(how.fraction) else mirrored
    return _projected(sprite, how, size)


def _shifted(sprite: Pixels, fraction: tuple[float, float], size: Size) -> Pixels:
    """The sprite moved by parts of a pixel, and longer by one pixel where it is."""
    from PIL import Image

    left, top = _EDGE - fraction[0], _EDGE - fraction[1]
    box = (left, top, left + size[0], top + size[1])
    parts = [part.resize(size, Image.Resampling.BICUBIC, box=box) for part in _parts(sprite)]
    return np.dstack([np.asarray(part) for part in parts])


def _projected(sprite: Pixels, how: Warp, size: Size) -> Pixels:
    """The sprite through its map."""
    from PIL import Image

    height, width = sprite.shape[0] + 2 * _EDGE, sprite.shape[1] + 2 * _EDGE
    # Where the outline shrinks, more samples per pixel are taken and averaged.
    finer = 2 if _least_scale(how.matrix, (width, height)) < 0.75 else 1
    middle = (how.size[0] / 2 + how.fraction[0], how.size[1] / 2 + how.fraction[1])
    to_box = np.diag([finer, finer, 1.0]) @ moved(*middle)
    forward = to_box @ how.matrix @ moved(-width / 2, -height / 2) @ np.diag([0.5, 0.5, 1.0])
    back = np.linalg.inv(forward)
    back /= back[2, 2]
    made = []
    for part in _parts(sprite):
        large = part.resize((2 * width, 2 * height), Image.Resampling.BICUBIC)
        image = large.transform(
            (size[0] * finer, size[1] * finer),
            Image.Transform.PERSPECTIVE,
            back.reshape(-1)[:8].tolist(),
            Image.Resampling.BILINEAR,
        )
        made.append(np.asarray(image.reduce(finer) if finer > 1 else image))
    return np.dstack(made)


def _parts(sprite: Pixels) -> tuple[PillowImage, PillowImage]:
    """Colours and alpha in an empty border, so that the outermost pixels can fade.

    Colours go on beyond the object as they are at its edge. So each part can be resampled alone,
    and a cubic's overshoot at the edge of the mask does not reach the colours.
    """
    from PIL import Image

    made = np.pad(sprite, ((_EDGE, _EDGE), (_EDGE, _EDGE), (0, 0)))
    alpha = np.ascontiguousarray(made[..., 3])
    colours = filled(np.ascontiguousarray(made[..., :3]), alpha)
    return Image.fromarray(colours), Image.fromarray(alpha)


def _least_scale(matrix: Matrix, size: Size) -> float:
    """The least of the scales that a map has at the corners and at the centre."""
    scales = []
    for sx, sy in (*CORNERS, (0, 0)):
        x, y = sx * size[0] / 2, sy * size[1] / 2
        u, v, w = matrix @ np.array([x, y, 1.0])
        jacobian = (matrix[:2, :2] - np.outer((u / w, v / w), matrix[2, :2])) / w
        scales.append(float(np.linalg.svd(jacobian, compute_uv=False)[-1]))
    return min(scales)


FACTORS = (
    SizeBy(
        key="size_by",
        neutral="box",
        values=_SIZES,
        options=_SIZES,
        help="what an area counts: the box, the mask's pixels, or a square of the longest side",
        stage=Stage.PLAN,
        measured="the object's mask over the image",
    ),
    Shape(
        key="aspect",
        neutral=1.0,
        values=(0.5, 0.7, 1.0, 1.4, 2.0),
        low=0.05,
        high=20.0,
        help="width over height, times this; the area stays",
        stage=Stage.PLAN,
        measured=_ASPECT,
    ),
    Flip(
        key="flip",
        neutral="none",
        values=_FLIPS[:3],
        options=_FLIPS,
        help="the object mirrored, pixel for pixel",
        stage=Stage.GEOMETRY,
        measured="centre of mass right of the box's centre, in widths",
    ),
    Shear(
        key="shear",
        neutral=0.0,
        values=(-0.5, -0.25, 0.0, 0.25, 0.5),
        low=-4.0,
        high=4.0,
        help="each row pushed right by this times its depth below the centre",
        stage=Stage.GEOMETRY,
        measured=_ASPECT,
    ),
    *(
        Tilt(
            key=key,
            neutral=0.0,
            values=_TILTS,
            low=-80.0,
            high=80.0,
            unit="degrees",
            help=f"turned about the {axis} axis, in perspective: above 0 the {edge} edge goes back",
            stage=Stage.GEOMETRY,
            measured=_ASPECT,
        )
        for key, axis, edge in (("tilt_x", "horizontal", "lower"), ("tilt_y", "vertical", "right"))
    ),
    *(
        PatchPhase(
            key=key,
            neutral=None,
            values=tuple(i / 8 for i in range(8)),
            period=1.0,
            unit="patches",
            help=f"centre of the box at this phase of a patch grid{words}: "
            "0 a patch's centre, 0.5 between patches",
            stage=Stage.GEOMETRY,
            measured="centre of mass to the nearest patch centre, in patches",
        )
        for key, words in (
            ("patch_phase", ""),
            ("patch_phase_x", ", across"),
            ("patch_phase_y", ", down"),
        )
    ),
    *(
        Offset(
            key=f"offset_{letter}",
            neutral=0.0,
            values=(0.0, 0.25, 0.5, 0.75, 1.0),
            low=-100000.0,
            high=100000.0,
            unit="pixels",
            help=f"the object moved {words} by pixels; parts of a pixel are resampled",
            stage=Stage.GEOMETRY,
            measured=f"{letter} of the centre of mass in pixels",
        )
        for letter, words in (("x", "right"), ("y", "down"))
    ),
    *(
        Factor(
            key=key,
            neutral=values[-1],
            values=values,
            low=low,
            high=100000.0,
            stage=Stage.GEOMETRY,
            needs=("patch_phase", "patch_phase_x", "patch_phase_y"),
            unit="pixels",
            help=words,
        )
        for key, values, low, words in (
            (
                "patch_size",
                (16.0, 32.0),
                1.0,
                "side of a patch in pixels of the image, which is not the model's input",
            ),
            (
                "patch_origin",
                (0.0,),
                -100000.0,
                "where the first patch begins, in pixels of the image",
            ),
        )
    ),
)

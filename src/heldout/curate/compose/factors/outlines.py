"""Factors of the object's outline and place: flip, shear, tilt, offsets, patch phase; and its size."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.compose.factors.accepts import Numbers, Words
from heldout.curate.compose.factors.geometry import Matrix, Size, patch_grid
from heldout.curate.compose.factors.protocol import Frame
from heldout.curate.compose.factors.setting import Described, Setting
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.scene import Value, mask_sum
from heldout.data.testset.columns import ColumnType

CAMERA = 2.0
"""Distance of the camera in tilts, in diagonals of the object."""

_ASPECT = "width over height of the object's pixels"
_ORDERED = ColumnType(kind="ordered")
_PIXELS = ColumnType(kind="ordered", unit="pixels")
_DEGREES = ColumnType(kind="ordered", unit="degrees")


class _Shape(Described):
    """A factor of geometry. All of them act at once, in one resampling: see ``geometry.warp``."""

    def measure(self, frame: Frame) -> float:
        """Width over height of the smallest box that holds the object's pixels."""
        alpha = frame.layers.foreground[..., 3]
        columns, rows = np.flatnonzero(alpha.any(axis=0)), np.flatnonzero(alpha.any(axis=1))
        if not len(columns):
            return 0.0
        return float(columns[-1] - columns[0] + 1) / float(rows[-1] - rows[0] + 1)


class Flip(_Shape):
    """The object mirrored; exact, pixel for pixel."""

    def matrix(self, size: Size, value: Value) -> Matrix:
        """A sign for each axis."""
        across = -1.0 if value in ("horizontal", "both") else 1.0
        down = -1.0 if value in ("vertical", "both") else 1.0
        return np.diag([across, down, 1.0])

    def measure(self, frame: Frame) -> float:
        """How far the centre of mass lies right of the box's centre, as a share of its width."""
        width = int(frame.layers.foreground.shape[1])
        return (mass_centre(frame)[0] - frame.layers.left) / width - 0.5


class Shear(_Shape):
    """Rows pushed sideways: x + value * y."""

    def matrix(self, size: Size, value: Value) -> Matrix:
        """One entry off the diagonal."""
        return np.array([[1.0, float(value), 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


class Tilt(_Shape):
    """The object as a flat card, turned about an axis through its centre and seen by a camera."""

    def matrix(self, size: Size, value: Value) -> Matrix:
        """The projection of the turned card; its centre keeps its scale."""
        angle = math.radians(float(value))
        near = math.sin(angle) / (CAMERA * math.hypot(*size))
        shrink = math.cos(angle)
        if self.key == "tilt_x":
            return np.array([[1.0, 0.0, 0.0], [0.0, shrink, 0.0], [0.0, near, 1.0]])
        return np.array([[shrink, 0.0, 0.0], [0.0, 1.0, 0.0], [near, 0.0, 1.0]])


class Offset(_Shape):
    """The object moved by pixels or parts of pixels; parts are resampled."""

    def measure(self, frame: Frame) -> float:
        """The coordinate of the object's centre of mass, in pixels of the image."""
        return mass_centre(frame)["xy".index(self.key[-1])]


class PatchPhase(_Shape):
    """The centre of the object's box moved to a phase of a patch grid."""

    def measure(self, frame: Frame) -> float:
        """From the centre of mass to the nearest patch centre, 0 to 0.5 patches, mean over axes."""
        origin, patch = patch_grid(frame.shot.values)
        axes = {"patch_phase_x": (0,), "patch_phase_y": (1,)}.get(self.key, (0, 1))
        phases = [((mass_centre(frame)[i] - origin) / patch - 0.5) % 1.0 for i in axes]
        return sum(min(phase, 1.0 - phase) for phase in phases) / len(phases)


def mass_centre(frame: Frame) -> tuple[float, float]:
    """The centre of mass of the object's alpha, in pixels of the image; NaN without an object."""
    alpha = frame.layers.foreground[..., 3].astype(np.float64)
    total = float(alpha.sum())
    if not total:
        return float("nan"), float("nan")
    xs = float(alpha.sum(axis=0) @ (np.arange(alpha.shape[1]) + 0.5)) / total
    ys = float(alpha.sum(axis=1) @ (np.arange(alpha.shape[0]) + 0.5)) / total
    return frame.layers.left + xs, frame.layers.top + ys


class Sized(_Shape):
    """A factor that says how large the sprite is made: see :func:`sprite_size`."""


class SizeBy(_Shape):
    """What an area counts: see :func:`sprite_size`."""

    def measure(self, frame: Frame) -> float:
        """The whole mask over the image, in pixels."""
        return mask_sum(frame.layers.foreground[..., 3]) / (frame.shot.width * frame.shot.height)


def sprite_size(
    size: Size,
    area: float,
    resolution: Size,
    values: Mapping[str, Value],
    *,
    fill: float,
) -> Size:
    """Width and height of the sprite for a cut-out of ``size`` in an image of ``resolution``.

    ``area``  a share of the image: the box's (``size_by`` box, the original's rule), the mask's
              (``mask``), or that of a square with the box's longest side (``side``)
    ``fill``  mask pixels over box pixels of the cut-out
    ``aspect`` widens by its square root and lowers by as much, so that the area stays.

    >>> sprite_size((200, 100), 0.2, (512, 512), {}, fill=0.5)
    (323, 161)
    """
    width, height = size
    by = values.get("size_by", "box")
    covered = float(width * height)
    if by == "mask":
        if not 0 < fill <= 1:
            raise UserError(
                f"a cut-out whose mask fills {fill:g} of its box cannot be sized by its mask",
                fix="leave it out, or size by box",
            )
        covered *= fill
    elif by == "side":
        covered = float(max(size)) ** 2
    scale = math.sqrt(area / (covered / (resolution[0] * resolution[1])))
    if "aspect" not in values:
        return int(width * scale), int(height * scale)
    stretch = math.sqrt(float(values["aspect"]))
    return int(width * scale * stretch), int(height * scale / stretch)


FACTORS = (
    SizeBy(
        key="size_by",
        neutral="box",
        values=("box", "mask", "side"),
        accepts=Words(options=("box", "mask", "side")),
        column=ColumnType(kind="categorical", order=("box", "mask", "side")),
        help="what an area counts: the box, the mask's pixels, or a square of the longest side",
        stage=Stage.PLAN,
        measured="the object's mask over the image",
    ),
    Sized(
        key="aspect",
        neutral=1.0,
        values=(0.5, 0.7, 1.0, 1.4, 2.0),
        accepts=Numbers(low=0.05, high=20.0),
        column=_ORDERED,
        help="width over height, times this; the area stays",
        stage=Stage.PLAN,
        measured=_ASPECT,
    ),
    Flip(
        key="flip",
        neutral="none",
        values=("none", "horizontal", "vertical"),
        accepts=Words(options=("none", "horizontal", "vertical", "both")),
        column=ColumnType(kind="categorical", order=("none", "horizontal", "vertical", "both")),
        help="the object mirrored, pixel for pixel",
        stage=Stage.GEOMETRY,
        measured="centre of mass right of the box's centre, in widths",
    ),
    Shear(
        key="shear",
        neutral=0.0,
        values=(-0.5, -0.25, 0.0, 0.25, 0.5),
        accepts=Numbers(low=-4.0, high=4.0),
        column=_ORDERED,
        help="each row pushed right by this times its depth below the centre",
        stage=Stage.GEOMETRY,
        measured=_ASPECT,
    ),
    Tilt(
        key="tilt_x",
        neutral=0.0,
        values=(-60.0, -45.0, -30.0, 0.0, 30.0, 45.0, 60.0),
        accepts=Numbers(low=-80.0, high=80.0),
        column=_DEGREES,
        help="turned about the horizontal axis, in perspective: above 0 the lower edge goes back",
        stage=Stage.GEOMETRY,
        measured=_ASPECT,
    ),
    Tilt(
        key="tilt_y",
        neutral=0.0,
        values=(-60.0, -45.0, -30.0, 0.0, 30.0, 45.0, 60.0),
        accepts=Numbers(low=-80.0, high=80.0),
        column=_DEGREES,
        help="turned about the vertical axis, in perspective: above 0 the right edge goes back",
        stage=Stage.GEOMETRY,
        measured=_ASPECT,
    ),
    *(
        PatchPhase(
            key=key,
            neutral=None,
            values=(0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875),
            accepts=Numbers(low=0.0, high=1.0, below=True),
            column=ColumnType(kind="circular", unit="patches", period=1.0),
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
            accepts=Numbers(low=-100000.0, high=100000.0),
            column=_PIXELS,
            help=f"the object moved {words} by pixels; parts of a pixel are resampled",
            stage=Stage.GEOMETRY,
            measured=f"{letter} of the centre of mass in pixels",
        )
        for letter, words in (("x", "right"), ("y", "down"))
    ),
)

SETTINGS = (
    Setting(
        key="patch_size",
        neutral=32.0,
        values=(16.0, 32.0),
        accepts=Numbers(low=1.0, high=100000.0),
        stage=Stage.GEOMETRY,
        needs=("patch_phase", "patch_phase_x", "patch_phase_y"),
        column=_PIXELS,
        help="side of a patch in pixels of the image, which is not the model's input",
    ),
    Setting(
        key="patch_origin",
        neutral=0.0,
        values=(0.0,),
        accepts=Numbers(low=-100000.0, high=100000.0),
        stage=Stage.GEOMETRY,
        needs=("patch_phase", "patch_phase_x", "patch_phase_y"),
        column=_PIXELS,
        help="where the first patch begins, in pixels of the image",
    ),
)

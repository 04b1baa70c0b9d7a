"""A soft shadow that the object throws on the background."""

from __future__ import annotations

import math

import numpy as np

from heldout.curate.compose.factors import measures
from heldout.curate.compose.factors.accepts import Numbers
from heldout.curate.compose.factors.pixel import region_of
from heldout.curate.compose.factors.protocol import Frame
from heldout.curate.compose.factors.setting import Described, Setting
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.factors.visibility import window
from heldout.curate.compose.gaussian import gaussian
from heldout.curate.compose.scene import Value
from heldout.data.testset.columns import ColumnType

REACH = 0.08
"""How far a shadow falls, and twice how soft it is, in diagonals of the object's box."""


class Shadow(Described):
    """The object's outline, moved away from the light and blurred, darkens the background."""

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with a shadow of this strength."""
        layers = frame.layers
        alpha = layers.foreground[..., 3]
        reach = REACH * math.hypot(*alpha.shape)
        angle = math.radians(float(frame.value("shadow_angle", 135.0)))
        left = layers.left - round(reach * math.cos(angle))
        top = layers.top + round(reach * math.sin(angle))
        size = (frame.shot.height, frame.shot.width)
        dark = np.zeros(size, dtype=np.float32)
        rows, columns, own_rows, own_columns = window(left, top, alpha.shape, size)
        dark[rows, columns] = alpha[own_rows, own_columns]
        dark = gaussian(dark, reach / 2, beyond="border")
        gain = 1.0 - np.float32(value) / np.float32(255) * dark
        made = np.rint(layers.background * gain[:, :, None]).astype(np.uint8)
        return frame.with_layers(background=made)

    def measure(self, frame: Frame) -> float:
        """Mean luminance of the background."""
        return measures.luminance(region_of(frame, "background", self.key))


FACTORS = (
    Shadow(
        key="shadow",
        neutral=0.0,
        values=(0.0, 0.25, 0.5, 0.75),
        accepts=Numbers(low=0.0, high=1.0),
        stage=Stage.BACKGROUND,
        column=ColumnType(kind="ordered"),
        measured="mean luminance of the background",
        help="a soft shadow of the object on the background, of this strength",
    ),
)
SETTINGS = (
    Setting(
        key="shadow_angle",
        neutral=135.0,
        values=(45.0, 90.0, 135.0),
        accepts=Numbers(low=0.0, high=360.0, below=True),
        stage=Stage.BACKGROUND,
        needs=("shadow",),
        column=ColumnType(kind="circular", unit="degrees", period=360.0),
        help="where its light comes from: 0 the right, 90 above",
    ),
)

"""The last steps as factors: how the object is blended in, and how the file is encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.blending import BLENDINGS, Blending, blend
from heldout.curate.compose.factors.accepts import Numbers, Words
from heldout.curate.compose.factors.measures import luma
from heldout.curate.compose.factors.protocol import Frame
from heldout.curate.compose.factors.setting import Described, Setting
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.factors.visibility import window
from heldout.curate.compose.scene import Shot
from heldout.data.testset.columns import ColumnType


class Blended(Described):
    """How the object meets the background."""

    def measure(self, frame: Frame) -> float:
        """Mean absolute difference between neighbours in and out of the mask, 0 to 1."""
        if frame.image is None:
            return float("nan")
        mask = _mask(frame)
        grey = luma(frame.image).astype(np.int16)
        down, across = mask[1:] != mask[:-1], mask[:, 1:] != mask[:, :-1]
        steps = np.concatenate(
            [np.abs(grey[1:] - grey[:-1])[down], np.abs(grey[:, 1:] - grey[:, :-1])[across]]
        )
        return float(steps.mean()) / 255.0 if len(steps) else 0.0


def blended(frame: Frame) -> Frame:
    """The frame with its image made of its layers."""
    image = blend(
        frame.layers,
        blending=cast(Blending, frame.value("blending", "hard")),
        radius=float(frame.value("feather_radius", 3.0)),
        strength=float(frame.value("match_strength", 0.5)),
    )
    return replace(frame, image=image)


def _mask(frame: Frame) -> NDArray[np.bool_]:
    """The pixels of the image that belong to the object."""
    alpha = frame.layers.foreground[..., 3]
    size = (frame.shot.height, frame.shot.width)
    made = np.zeros(size, dtype=bool)
    rows, columns, own_rows, own_columns = window(
        frame.layers.left, frame.layers.top, alpha.shape, size
    )
    made[rows, columns] = alpha[own_rows, own_columns] >= 128
    return made


def encoding_options(shot: Shot) -> dict[str, Any]:
    """What the factors say about a file's encoding: ``quality``, or nothing."""
    quality = shot.values.get("jpeg_quality")
    return {} if quality is None else {"quality": int(quality)}


def measured_encoding(
    size: int, shot: Shot, keys: tuple[str, ...] | Mapping[str, Any]
) -> dict[str, float]:
    """The measured columns of encoding for a file of ``size`` bytes."""
    if "jpeg_quality" not in keys:
        return {}
    return {"jpeg_quality_measured": 8.0 * size / (shot.width * shot.height)}


FACTORS = (
    Blended(
        key="blending",
        neutral="hard",
        values=BLENDINGS,
        accepts=Words(options=BLENDINGS),
        stage=Stage.BLEND,
        column=ColumnType(kind="categorical", order=BLENDINGS),
        measured="mean step of luminance across the object's edge",
        help="how the object meets the background: pasted, faded, cloned, matched in colour",
    ),
    Described(
        key="jpeg_quality",
        neutral=None,
        values=(75, 50, 25, 18, 10, 5),
        accepts=Numbers(low=1, high=95, whole=True),
        stage=Stage.ENCODING,
        column=ColumnType(kind="ordered"),
        measured="bits a pixel of the file",
        help="quality of the image's JPEG, in place of the set's own",
    ),
)
SETTINGS = (
    Setting(
        key="feather_radius",
        neutral=3.0,
        values=(1.0, 3.0, 6.0),
        accepts=Numbers(low=0.0, high=200.0),
        stage=Stage.BLEND,
        needs=("blending",),
        column=ColumnType(kind="ordered", unit="pixels"),
        help="standard deviation of a feathered edge",
    ),
    Setting(
        key="match_strength",
        neutral=0.5,
        values=(0.25, 0.5, 1.0),
        accepts=Numbers(low=0.0, high=1.0),
        stage=Stage.BLEND,
        needs=("blending",),
        column=ColumnType(kind="ordered"),
        help="how far colours are moved to the background's",
    ),
)

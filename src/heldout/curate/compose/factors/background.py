"""What is behind the object: another photo, a colour, noise; and ImageNet-9's variants.

ImageNet-9 (Xiao et al., Noise or signal: the role of image backgrounds in object recognition,
2020) asks how much a classifier reads the background. The difference between ``mixed_same`` and
``mixed_rand`` is its background gap.
"""

from __future__ import annotations

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.curate.compose.factors import layers
from heldout.curate.compose.factors.factor import (
    Draw,
    Factor,
    FactorInputs,
    Frame,
    Stage,
    Used,
    colour_of,
)
from heldout.curate.compose.factors.layers import region_of
from heldout.curate.compose.inputs import Pixels
from heldout.curate.compose.plan import ImagePlan, Value, Window

BACKDROPS = ("photo", "other", "black", "grey", "white", "mean", "noise")
VARIANTS = (
    "original",
    "only_fg",
    "no_fg",
    "only_bg_b",
    "only_bg_t",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
)


class Backdrop(Factor):
    """A background in place of the shot's own."""

    def uses(self, shot: ImagePlan, inputs: FactorInputs, value: Value) -> Used:
        """Another background, or none."""
        if value == "other":
            return Used(backgrounds=(_another(shot, inputs),), keeps_background=False)
        return Used(keeps_background=value == "mean")

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the background replaced."""
        shot, behind = frame.shot, frame.layers.background
        if value == "other":
            other = _another(shot, frame.inputs)
            made = frame.inputs.background(other, shot.width, shot.height)
        elif value == "noise":
            made = frame.draw(self.key).levels(behind.shape)
        else:
            colour = (
                np.rint(behind.mean(axis=(0, 1), dtype=np.float64))
                if value == "mean"
                else colour_of(str(value))
            )
            made = np.broadcast_to(np.asarray(colour, dtype=np.uint8), behind.shape).copy()
        return frame.with_layers(background=made)

    def measure(self, frame: Frame) -> float:
        """Standard deviation of the background's luminance."""
        return layers.contrast(region_of(frame, "background", self.key))


class Variant(Factor):
    """One of ImageNet-9's variants of an image."""

    def uses(self, shot: ImagePlan, inputs: FactorInputs, value: Value) -> Used:
        """The background of a mixed variant, by class; none where only the object is left."""
        if str(value).startswith("mixed_"):
            return Used(backgrounds=(_mixed(shot, inputs, str(value)),), keeps_background=False)
        return Used(keeps_background=value != "only_fg")

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame as this variant shows it."""
        shot, behind, sprite = frame.shot, frame.layers.background, frame.layers.foreground.copy()
        if value == "only_fg":
            return frame.with_layers(background=np.zeros_like(behind))
        if value == "no_fg":
            sprite[..., :3] = 0
            return frame.with_layers(foreground=sprite)
        if value in ("only_bg_b", "only_bg_t"):
            sprite[..., 3] = 0
            box = frame.layers.window
            made = behind.copy()
            made[box.slices] = 0 if value == "only_bg_b" else _tiles(behind, box)
            return frame.with_layers(foreground=sprite, background=made)
        index = _mixed(shot, frame.inputs, str(value))
        return frame.with_layers(background=frame.inputs.background(index, shot.width, shot.height))

    def measure(self, frame: Frame) -> float:
        """Mean luminance of the background."""
        return layers.luminance(region_of(frame, "background", self.key))


def _tiles(background: Pixels, box: Window) -> Pixels:
    """The largest strip beside, above or below a box, repeated until it fills the box."""
    strips = [
        background[:, : box.left],
        background[:, box.right :],
        background[: box.top],
        background[box.bottom :],
    ]
    strip = max(strips, key=lambda part: part.size)  # of equal ones the first
    width, height = box.size
    if not strip.size:
        return np.zeros((height, width, 3), dtype=np.uint8)
    down, across = np.arange(height) % strip.shape[0], np.arange(width) % strip.shape[1]
    return np.asarray(strip[down[:, None], across])


def _another(shot: ImagePlan, inputs: FactorInputs) -> int:
    """A random background, not the shot's own."""
    others = [i for i in range(len(inputs.background_classes)) if i != shot.background]
    if not others:
        raise NotApplicable(
            "factor backdrop: 'other' needs two backgrounds or more", fix="add one, or use photo"
        )
    return others[Draw(shot.seed, "backdrop/which").below(len(others))]


def _mixed(shot: ImagePlan, inputs: FactorInputs, variant: str) -> int:
    """A random background from photos of the same, another, or the next class."""
    classes = inputs.background_classes
    names = sorted({name for name in classes if name is not None})
    own = inputs.cutout_classes[shot.foreground]
    if not names:
        raise NotApplicable(
            f"factor variant: {variant!r} needs backgrounds with classes",
            fix="put them in one folder per class, or give a column class_name",
        )
    if variant == "mixed_same":
        wanted = {own}
    elif variant == "mixed_next":
        wanted = {min((name for name in names if name > own), default=names[0])}
        if wanted == {own}:
            wanted = set()
    else:
        wanted = set(names) - {own}
    fitting = [i for i, name in enumerate(classes) if name in wanted]
    if not fitting:
        which = f"of class {own!r}" if variant == "mixed_same" else f"of another class than {own!r}"
        raise NotApplicable(
            f"factor variant: {variant!r} needs a background {which}", fix="add one"
        )
    return fitting[Draw(shot.seed, f"variant/{variant}").below(len(fitting))]


FACTORS = (
    Backdrop(
        key="backdrop",
        neutral="photo",
        values=("photo", "grey", "noise"),
        options=BACKDROPS,
        colours=True,
        stage=Stage.BACKGROUND,
        help="what is behind: another background, a colour, the photo's mean colour, noise",
        measured="standard deviation of the background's luminance",
    ),
    Variant(
        key="variant",
        neutral="original",
        values=VARIANTS[:5],
        options=VARIANTS,
        stage=Stage.BACKGROUND,
        help="ImageNet-9's variants; the mixed ones need backgrounds with classes",
        measured="mean luminance of the background",
    ),
)

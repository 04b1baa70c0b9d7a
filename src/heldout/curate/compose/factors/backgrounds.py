"""What stands behind the object: another photograph, a colour, noise; and ImageNet-9's variants.

ImageNet-9 (Xiao et al., Noise or signal: the role of image backgrounds in object recognition,
2020) asks how much a classifier reads the background. The difference between ``mixed_same`` and
``mixed_rand`` is its background gap.
"""

from __future__ import annotations

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.curate.compose.factors import measures
from heldout.curate.compose.factors.accepts import Words, colour_of
from heldout.curate.compose.factors.draws import Draw
from heldout.curate.compose.factors.pixel import region_of
from heldout.curate.compose.factors.protocol import Frame, Stock, Used
from heldout.curate.compose.factors.setting import Described
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.factors.visibility import window
from heldout.curate.compose.scene import Pixels, Shot, Value
from heldout.data.testset.columns import ColumnType

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


class Backdrop(Described):
    """A background in place of the shot's own."""

    def uses(self, shot: Shot, stock: Stock, value: Value) -> Used:
        """Another background, or none."""
        if value == "other":
            return Used(backgrounds=(_another(shot, stock),), keeps_background=False)
        return Used(keeps_background=value == "mean")

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the background replaced."""
        shot, size = frame.shot, frame.layers.background.shape
        if value == "other":
            made = frame.stock.background(_another(shot, frame.stock), shot.width, shot.height)
        elif value == "noise":
            words = frame.draw(self.key).words(size[0] * size[1] * size[2])
            made = (words >> 8).astype(np.uint8).reshape(size)
        elif value == "mean":
            mean = frame.layers.background.mean(axis=(0, 1), dtype=np.float64)
            made = np.broadcast_to(np.rint(mean).astype(np.uint8), size).copy()
        else:
            colour = np.asarray(colour_of(str(value)), dtype=np.uint8)
            made = np.broadcast_to(colour, size).copy()
        return frame.with_layers(background=made)

    def measure(self, frame: Frame) -> float:
        """Standard deviation of the background's luminance."""
        return measures.contrast(region_of(frame, "background", self.key))


class Variant(Described):
    """One of ImageNet-9's variants of an image."""

    def uses(self, shot: Shot, stock: Stock, value: Value) -> Used:
        """The background of a mixed variant, by class; none where only the object is left."""
        if str(value).startswith("mixed_"):
            return Used(backgrounds=(_mixed(shot, stock, str(value)),), keeps_background=False)
        return Used(keeps_background=value != "only_fg")

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame as this variant shows it."""
        shot, layers = frame.shot, frame.layers
        if value == "only_fg":
            return frame.with_layers(background=np.zeros_like(layers.background))
        if value == "no_fg":
            sprite = layers.foreground.copy()
            sprite[..., :3] = 0
            return frame.with_layers(foreground=sprite)
        if value in ("only_bg_b", "only_bg_t"):
            sprite = layers.foreground.copy()
            sprite[..., 3] = 0
            rows, columns, _, _ = window(
                layers.left, layers.top, sprite.shape[:2], (shot.height, shot.width)
            )
            background = layers.background.copy()
            if value == "only_bg_b":
                background[rows, columns] = 0
            else:
                background[rows, columns] = _tiles(layers.background, rows, columns)
            return frame.with_layers(foreground=sprite, background=background)
        index = _mixed(shot, frame.stock, str(value))
        return frame.with_layers(background=frame.stock.background(index, shot.width, shot.height))

    def measure(self, frame: Frame) -> float:
        """Mean luminance of the background."""
        return measures.luminance(region_of(frame, "background", self.key))


def _tiles(background: Pixels, rows: slice, columns: slice) -> Pixels:
    """The largest strip beside, above or below a box, repeated until it fills the box."""
    strips = [
        background[:, : columns.start],
        background[:, columns.stop :],
        background[: rows.start],
        background[rows.stop :],
    ]
    strip = max(strips, key=lambda part: part.size)  # of equal ones the first
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    if not strip.size:
        return np.zeros((*shape, 3), dtype=np.uint8)
    down, across = np.arange(shape[0]) % strip.shape[0], np.arange(shape[1]) % strip.shape[1]
    return np.asarray(strip[down[:, None], across])


def _another(shot: Shot, stock: Stock) -> int:
    """A background by chance, not the shot's own."""
    others = [i for i in range(len(stock.background_classes)) if i != shot.background]
    if not others:
        raise NotApplicable(
            "factor backdrop: 'other' needs two backgrounds or more", fix="add one, or use photo"
        )
    return others[Draw(shot.seed, "backdrop/which").below(len(others))]


def _mixed(shot: Shot, stock: Stock, variant: str) -> int:
    """A background by chance from photographs of the same, another, or the next class."""
    classes = stock.background_classes
    names = sorted({name for name in classes if name is not None})
    own = stock.cutout_classes[shot.foreground]
    if not names:
        raise NotApplicable(
            f"factor variant: {variant!r} needs backgrounds with classes",
            fix="put them in one folder a class, or give a column class_name",
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
        accepts=Words(options=BACKDROPS, colours=True),
        stage=Stage.BACKGROUND,
        column=ColumnType(kind="categorical", order=BACKDROPS),
        help="what stands behind: another background, a colour, the photo's mean colour, noise",
        measured="standard deviation of the background's luminance",
    ),
    Variant(
        key="variant",
        neutral="original",
        values=("original", "only_fg", "no_fg", "only_bg_b", "only_bg_t"),
        accepts=Words(options=VARIANTS),
        stage=Stage.BACKGROUND,
        column=ColumnType(kind="categorical", order=VARIANTS),
        help="ImageNet-9's variants; the mixed ones need backgrounds with classes",
        measured="mean luminance of the background",
    ),
)

"""What the object's surface shows: nothing but a colour, noise, itself in disorder, another's."""

from __future__ import annotations

import numpy as np

from heldout.curate.compose.factors import measures
from heldout.curate.compose.factors.accepts import Words, colour_of
from heldout.curate.compose.factors.alpha import filled
from heldout.curate.compose.factors.composition import other_class
from heldout.curate.compose.factors.draws import Draw
from heldout.curate.compose.factors.pixel import Region, region_of
from heldout.curate.compose.factors.protocol import Frame, Stock, Used
from heldout.curate.compose.factors.setting import Described
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.scene import Pixels, Shot, Value
from heldout.data.testset.columns import ColumnType

TEXTURES = ("own", "black", "grey", "white", "mean", "noise", "shuffled", "other")
CELLS = 6
"""Cells along the longer side of an object whose texture is shuffled."""


class Texture(Described):
    """The object's surface; its outline stays."""

    def uses(self, shot: Shot, stock: Stock, value: Value) -> Used:
        """The cut-out whose surface is shown, where one is."""
        return Used(cutouts=(_other(shot, stock),)) if value == "other" else Used()

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the surface replaced wherever the object is."""
        region = region_of(frame, "foreground", self.key)
        if value == "noise":
            words = region.draw.words(region.pixels.size)
            colours = (words >> 8).astype(np.uint8).reshape(region.pixels.shape)
        elif value == "mean":
            mean = np.rint(measures.mean_colour(region)).astype(np.uint8)
            colours = np.broadcast_to(mean, region.pixels.shape)
        elif value == "shuffled":
            colours = _shuffled(region)
        elif value == "other":
            colours = _surface(frame.stock.cutout(_other(frame.shot, frame.stock)), region.pixels)
        else:
            colour = np.asarray(colour_of(str(value)), dtype=np.uint8)
            colours = np.broadcast_to(colour, region.pixels.shape)
        sprite = frame.layers.foreground.copy()
        np.copyto(sprite[..., :3], colours, where=sprite[..., 3:] > 0)
        return frame.with_layers(foreground=sprite)

    def measure(self, frame: Frame) -> float:
        """Sharpness of the object."""
        return measures.sharpness(region_of(frame, "foreground", self.key))


def _other(shot: Shot, stock: Stock) -> int:
    others = other_class(shot, stock, "texture")
    return others[Draw(shot.seed, "texture/which").below(len(others))]


def _shuffled(region: Region) -> Pixels:
    """Square cells of the surface in random order; what lies under alpha 0 takes no part."""
    pixels = region.pixels if region.alpha is None else filled(region.pixels, region.alpha)
    height, width = pixels.shape[:2]
    side = max(1, -(-max(height, width) // CELLS))
    down, across = -(-height // side), -(-width // side)
    order = region.draw.some(down * across, down * across)
    padded = np.pad(
        pixels, ((0, down * side - height), (0, across * side - width), (0, 0)), mode="edge"
    )
    cells = padded.reshape(down, side, across, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)
    mixed = cells[order].reshape(down, across, side, side, 3).swapaxes(1, 2)
    return mixed.reshape(down * side, across * side, 3)[:height, :width]


def _surface(other: Pixels, like: Pixels) -> Pixels:
    """The surface of a cut-out, stretched over a sprite's box, its own gaps filled."""
    from PIL import Image

    size = (like.shape[1], like.shape[0])
    scaled = np.asarray(Image.fromarray(other).resize(size, Image.Resampling.BILINEAR))
    return filled(np.ascontiguousarray(scaled[..., :3]), scaled[..., 3])


FACTORS = (
    Texture(
        key="texture",
        neutral="own",
        values=("own", "black", "mean", "noise", "shuffled"),
        accepts=Words(options=TEXTURES, colours=True),
        stage=Stage.FOREGROUND,
        column=ColumnType(kind="categorical", order=TEXTURES),
        measured="mean absolute Laplacian of the object",
        help="the object's surface: one colour (a silhouette), noise, shuffled, another's",
    ),
)

"""Further sprites: distractors of other classes, and more instances of the object itself."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import NotApplicable
from heldout.curate.compose.factors.accepts import Numbers
from heldout.curate.compose.factors.draws import Draw
from heldout.curate.compose.factors.protocol import Frame, Stock, Used
from heldout.curate.compose.factors.setting import Described, Setting
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.factors.visibility import window
from heldout.curate.compose.scene import Extra, Pixels, Shot, Value
from heldout.data.testset.columns import ColumnType

TRIES = 64
"""Places that are tried for a sprite before it is made smaller."""
SHRINKS = 3
"""How often it is halved in area before it is left out."""


class _Further(Described):
    """What distractors and instances share."""

    def measure(self, frame: Frame) -> float:
        """Pixels of the image that these sprites cover, as a share."""
        return frame.noted.get(self.key, 0.0)


class Distractors(_Further):
    """Cut-outs of other classes beside the object."""

    def uses(self, shot: Shot, stock: Stock, value: Value) -> Used:
        """The cut-outs that are drawn."""
        return Used(cutouts=tuple(_others(shot, stock, self.key, int(value))))

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with so many distractors as find a place."""
        sprites = [
            frame.stock.cutout(i) for i in _others(frame.shot, frame.stock, self.key, int(value))
        ]
        return _with_sprites(frame, sprites, self.key)


class Instances(_Further):
    """More of the same object."""

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with so many copies as find a place."""
        return _with_sprites(frame, [frame.layers.foreground] * (int(value) - 1), self.key)


def other_class(shot: Shot, stock: Stock, key: str) -> list[int]:
    """The cut-outs of other classes than the object's; without any, a user's error."""
    own = stock.cutout_classes[shot.foreground]
    others = [i for i, name in enumerate(stock.cutout_classes) if name != own]
    if not others:
        raise NotApplicable(
            f"factor {key} needs cut-outs of another class than {own!r}",
            fix="give foregrounds of two classes or more",
        )
    return others


def _others(shot: Shot, stock: Stock, key: str, count: int) -> list[int]:
    others = other_class(shot, stock, key)
    return [others[i] for i in Draw(shot.seed, f"{key}/which").some(len(others), count)]


def _with_sprites(frame: Frame, sprites: list[Pixels], key: str) -> Frame:
    """Each sprite at the first random place where it covers little enough of the object."""
    shot = frame.shot
    share = float(frame.value("extra_size", 0.5))
    limit = float(frame.value("extra_overlap", 0.0))
    draw = frame.draw(f"{key}/where")
    extras = list(frame.layers.extras)
    object_pixels = frame.layers.foreground.shape[0] * frame.layers.foreground.shape[1]
    taken = np.zeros((shot.height, shot.width), dtype=bool)
    for sprite in sprites:
        places = draw.uniform(2 * TRIES * (SHRINKS + 1)).reshape(SHRINKS + 1, TRIES, 2)
        for shrink in range(SHRINKS + 1):
            scaled = scaled_to(sprite, share * object_pixels / 2**shrink, (shot.width, shot.height))
            spot = _place(frame, scaled, places[shrink], limit, taken)
            if spot is not None:
                extras.append(Extra(scaled, *spot))
                part = taken[spot[1] : spot[1] + len(scaled), spot[0] : spot[0] + scaled.shape[1]]
                part |= scaled[..., 3] >= 128
                break
    return frame.with_layers(extras=extras).note(key, float(taken.mean()))


def scaled_to(sprite: Pixels, pixels: float, most: tuple[int, int]) -> Pixels:
    """The sprite resized to a box of so many pixels, and to no more than ``most`` (w, h)."""
    from PIL import Image

    height, width = sprite.shape[:2]
    scale = math.sqrt(max(pixels, 1.0) / (width * height))
    scale = min(scale, most[0] / width, most[1] / height)
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    if size == (width, height):
        return sprite
    return np.asarray(Image.fromarray(sprite).resize(size, Image.Resampling.BILINEAR))


def _place(
    frame: Frame,
    sprite: Pixels,
    places: NDArray[np.float64],
    limit: float,
    taken: NDArray[np.bool_],
) -> tuple[int, int] | None:
    """The first place, wholly in the image, that hides at most ``limit`` of the object's mask.

    At most as much of the sprite itself may lie over sprites placed before, which ``taken`` marks.
    """
    shot = frame.shot
    shape = frame.layers.foreground[..., 3] if frame.shape is None else frame.shape
    total = float(shape.sum(dtype=np.int64))
    height, width = sprite.shape[:2]
    solid = sprite[..., 3] >= 128
    most = limit * float(solid.sum())
    for across, down in places:
        left = int(across * (shot.width - width + 1))
        top = int(down * (shot.height - height + 1))
        if float((taken[top : top + height, left : left + width] & solid).sum()) > most:
            continue
        at = (left - frame.corner[0], top - frame.corner[1])
        rows, columns, own_rows, own_columns = window(*at, (height, width), shape.shape)
        hidden = shape[rows, columns].astype(np.int32) * sprite[own_rows, own_columns, 3]
        if float(hidden.sum(dtype=np.int64)) <= limit * 255.0 * total:
            return left, top
    return None


FACTORS = (
    Instances(
        key="instances",
        neutral=1,
        values=(1, 2, 3, 4),
        accepts=Numbers(low=1, high=64, whole=True),
        help="how many of the object there are; copies lie beside it",
        stage=Stage.COMPOSITION,
        column=ColumnType(kind="ordered", unit="sprites"),
        measured="share of the image that copies cover",
    ),
    Distractors(
        key="distractors",
        neutral=0,
        values=(0, 1, 2, 4),
        accepts=Numbers(low=0, high=64, whole=True),
        help="how many cut-outs of other classes lie beside the object",
        stage=Stage.COMPOSITION,
        column=ColumnType(kind="ordered", unit="sprites"),
        measured="share of the image that distractors cover",
    ),
)

SETTINGS = (
    Setting(
        key="extra_size",
        neutral=0.5,
        values=(0.25, 0.5, 1.0),
        accepts=Numbers(low=0.0, high=100.0, above=True),
        stage=Stage.COMPOSITION,
        needs=("instances", "distractors"),
        column=ColumnType(kind="ordered"),
        help="box area of a copy or distractor over that of the object",
    ),
    Setting(
        key="extra_overlap",
        neutral=0.0,
        values=(0.0, 0.1, 0.25),
        accepts=Numbers(low=0.0, high=1.0),
        stage=Stage.COMPOSITION,
        needs=("instances", "distractors"),
        column=ColumnType(kind="ordered"),
        help="the most of the object's mask, or of its own over others, that one may hide",
    ),
)

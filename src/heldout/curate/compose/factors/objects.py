"""What an image shows of objects: texture, copies, distractors of other classes, and occluders.

Occlusion hides a share of the object's mask that was in sight. Bars, patches and a border are made
from a *priority*: a number for each pixel of the object's box. Pixels are covered in its order
until the wanted share of the mask is. So the share is met to one pixel, whatever the shape.
Another cut-out is moved over the object; of all its places, one that meets the share is found by
a correlation of the two masks.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import NotApplicable
from heldout.curate.compose.factors.factor import (
    Alpha,
    Draw,
    Extra,
    Factor,
    FactorInputs,
    Frame,
    Stage,
    Used,
    colour_of,
    visible,
)
from heldout.curate.compose.factors.layers import (
    Region,
    filled,
    mean_colour,
    recoloured,
    region_of,
    sharpness,
)
from heldout.curate.compose.inputs import Pixels
from heldout.curate.compose.plan import ImagePlan, Value, window_of

TEXTURES = ("own", "black", "grey", "white", "mean", "noise", "shuffled", "other")
KINDS = ("bars", "patches", "border", "cutout")
FILLS = ("grey", "black", "white", "noise", "background")
CELLS = 6
"""Cells along the longer side of an object whose texture is shuffled."""
TRIES = 64
"""Places that are tried for a sprite before it is made smaller."""
SHRINKS = 3
"""How often it is halved in area before it is left out."""
BARS = 4
"""Bars across the object's box."""
PATCHES = 8
"""Patches along the longer side of the object's box."""
Priority = NDArray[np.float64]


class Texture(Factor):
    """The object's surface; its outline stays."""

    def uses(self, shot: ImagePlan, inputs: FactorInputs, value: Value) -> Used:
        """The cut-out whose surface is shown, where one is."""
        return Used(cutouts=_others(shot, inputs, self.key) if value == "other" else ())

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the surface replaced wherever the object is."""
        region = region_of(frame, "foreground", self.key)
        if value == "noise":
            return recoloured(frame, region.draw.levels(region.pixels.shape))
        if value == "shuffled":
            return recoloured(frame, _shuffled(region))
        if value == "other":
            (other,) = _others(frame.shot, frame.inputs, self.key)
            return recoloured(frame, _surface(frame.inputs.cutout(other), region.pixels))
        colour = np.rint(mean_colour(region)) if value == "mean" else colour_of(str(value))
        return recoloured(frame, np.asarray(colour, dtype=np.uint8))

    def measure(self, frame: Frame) -> float:
        """Sharpness of the object."""
        return sharpness(region_of(frame, "foreground", self.key))


def _others(
    shot: ImagePlan, inputs: FactorInputs, key: str, count: int | None = None
) -> tuple[int, ...]:
    """Random cut-outs of other classes than the object's; one where no ``count`` is given."""
    own = inputs.cutout_classes[shot.foreground]
    others = [i for i, name in enumerate(inputs.cutout_classes) if name != own]
    if not others:
        raise NotApplicable(
            f"factor {key} needs cut-outs of another class than {own!r}",
            fix="give foregrounds of two classes or more",
        )
    draw = Draw(shot.seed, f"{key}/which")
    taken = [draw.below(len(others))] if count is None else draw.some(len(others), count)
    return tuple(others[i] for i in taken)


def _shuffled(region: Region) -> Pixels:
    """Square cells of the surface in random order; what is under alpha 0 takes no part."""
    pixels = filled(region.pixels, region.alpha)
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
    scaled = _resized(other, (like.shape[1], like.shape[0]))
    return filled(np.ascontiguousarray(scaled[..., :3]), scaled[..., 3])


def _resized(sprite: Pixels, size: tuple[int, int]) -> Pixels:
    from PIL import Image

    return np.asarray(Image.fromarray(sprite).resize(size, Image.Resampling.BILINEAR))


class Sprites(Factor):
    """More sprites beside the object: copies of it, or cut-outs of other classes."""

    def uses(self, shot: ImagePlan, inputs: FactorInputs, value: Value) -> Used:
        """The cut-outs that are drawn."""
        distract = self.key == "distractors"
        return Used(cutouts=_others(shot, inputs, self.key, int(value)) if distract else ())

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with as many of them as find a place."""
        if self.key == "distractors":
            chosen = _others(frame.shot, frame.inputs, self.key, int(value))
            return self._placed(frame, [frame.inputs.cutout(i) for i in chosen])
        return self._placed(frame, [frame.layers.foreground] * (int(value) - 1))

    def measure(self, frame: Frame) -> float:
        """Pixels of the image that these sprites cover, as a share."""
        return frame.noted.get(self.key, 0.0)

    def _placed(self, frame: Frame, sprites: list[Pixels]) -> Frame:
        """Each sprite at the first random place where it covers little enough of the object."""
        shot = frame.shot
        share = float(frame.value("extra_size", 0.5))
        limit = float(frame.value("extra_overlap", 0.0))
        draw = frame.draw(f"{self.key}/where")
        extras = list(frame.layers.extras)
        area = share * frame.layers.alpha.size
        taken = np.zeros((shot.height, shot.width), dtype=bool)
        for sprite in sprites:
            places = draw.uniform(2 * TRIES * (SHRINKS + 1)).reshape(SHRINKS + 1, TRIES, 2)
            for shrink in range(SHRINKS + 1):
                scaled = _scaled_to(sprite, area / 2**shrink, (shot.width, shot.height))
                spot = _spot(frame, scaled, places[shrink], limit, taken)
                if spot is not None:
                    extras.append(Extra(scaled, *spot))
                    part = taken[
                        spot[1] : spot[1] + len(scaled), spot[0] : spot[0] + scaled.shape[1]
                    ]
                    part |= scaled[..., 3] >= 128
                    break
        noted = {**frame.noted, self.key: float(taken.mean())}
        return replace(frame.with_layers(extras=extras), noted=noted)


def _scaled_to(sprite: Pixels, pixels: float, most: tuple[int, int]) -> Pixels:
    """The sprite resized to a box of this many pixels, and to no more than ``most`` (w, h)."""
    height, width = sprite.shape[:2]
    scale = math.sqrt(max(pixels, 1.0) / (width * height))
    scale = min(scale, most[0] / width, most[1] / height)
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    return sprite if size == (width, height) else _resized(sprite, size)


def _spot(
    frame: Frame, sprite: Pixels, places: Priority, limit: float, taken: NDArray[np.bool_]
) -> tuple[int, int] | None:
    """The first place, wholly in the image, that hides at most ``limit`` of the object's mask.

    At most as much of the sprite itself may be over sprites placed before, which ``taken`` marks.
    """
    shot, shape = frame.shot, frame.shape
    total = float(shape.sum(dtype=np.int64))
    height, width = sprite.shape[:2]
    solid = sprite[..., 3] >= 128
    most = limit * float(solid.sum())
    for across, down in places:
        left = int(across * (shot.width - width + 1))
        top = int(down * (shot.height - height + 1))
        if float((taken[top : top + height, left : left + width] & solid).sum()) > most:
            continue
        at = (left - frame.layers.left, top - frame.layers.top)
        over = window_of(*at, (width, height), (shape.shape[1], shape.shape[0]))
        hidden = shape[over.slices].astype(np.int32) * sprite[..., 3][over.within(*at)]
        if float(hidden.sum(dtype=np.int64)) <= limit * 255.0 * total:
            return left, top
    return None


class Occlusion(Factor):
    """The share of the object's mask in the frame that is hidden."""

    def uses(self, shot: ImagePlan, inputs: FactorInputs, value: Value) -> Used:
        """The cut-out that hides the object, where one does."""
        by_cutout = shot.values.get("occlusion_kind") == "cutout"
        return Used(cutouts=_others(shot, inputs, self.key) if by_cutout else ())

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the object hidden to this share."""
        layers, shape = frame.layers, frame.shape
        seen = np.zeros_like(shape)
        inside = layers.window.within(layers.left, layers.top)
        seen[inside] = shape[inside]
        if not seen.any():
            return frame
        kind = str(frame.value("occlusion_kind", "bars"))
        if kind == "cutout":
            sprite, left, top = _over(frame, seen, float(value))
            extra = Extra(sprite, layers.left + left, layers.top + top)
            return frame.with_layers(extras=[*layers.extras, extra])
        draw = frame.draw(self.key)
        hidden = _first(_PRIORITIES[kind](shape.shape, draw), seen, float(value))
        fill = str(frame.value("occlusion_fill", "grey"))
        if fill == "background":
            sprite = layers.foreground.copy()
            sprite[..., 3][hidden] = 0
            return frame.with_layers(foreground=sprite)
        covering = np.zeros((*hidden.shape, 4), dtype=np.uint8)
        covering[..., :3] = draw.levels((*hidden.shape, 3)) if fill == "noise" else colour_of(fill)
        covering[..., 3] = np.where(hidden, 255, 0)
        extra = Extra(covering, layers.left, layers.top)
        return frame.with_layers(extras=[*layers.extras, extra])

    def measure(self, frame: Frame) -> float:
        """The share of the mask in the frame that is hidden, by anything; 0 without an object."""
        whole = visible(frame.shape, frame.layers)
        left = visible(frame.layers.alpha, frame.layers, frame.layers.extras)
        return 1.0 - left / whole if whole else 0.0


def _first(priority: Priority, weights: Alpha, share: float) -> NDArray[np.bool_]:
    """The pixels of lowest priority that hold ``share`` of the weights, to the nearest pixel."""
    order = np.argsort(priority, axis=None, kind="stable")
    held = np.cumsum(weights.reshape(-1)[order], dtype=np.int64)
    goal = share * float(held[-1])
    count = int(np.searchsorted(held, goal, side="left")) + 1
    before = float(held[count - 2]) if count > 1 else 0.0
    if goal - before < float(held[count - 1]) - goal:
        count -= 1
    made = np.zeros(priority.size, dtype=bool)
    made[order[: count if goal > 0 else 0]] = True
    return made.reshape(priority.shape)


def _along(shape: tuple[int, ...], angle: float) -> Priority:
    """How far each pixel is in a direction (degrees), in pixels from the middle."""
    height, width = shape
    ys, xs = np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    turn = math.radians(angle)
    return np.asarray(math.cos(turn) * xs[None, :] - math.sin(turn) * ys[:, None])


def _border(shape: tuple[int, ...], draw: Draw) -> Priority:
    """From one of eight sides."""
    return _along(shape, 45.0 * draw.below(8))


def _bars(shape: tuple[int, ...], draw: Draw) -> Priority:
    """From the middle lines of parallel bars, upright or lying."""
    upright = draw.below(2) == 0
    shift = float(draw.uniform(1)[0])
    length = shape[1] if upright else shape[0]
    place = _along(shape, 0.0 if upright else 90.0) / max(length, 1) * BARS + shift
    return np.abs((place % 1.0) - 0.5)


def _patches(shape: tuple[int, ...], draw: Draw) -> Priority:
    """Square patches in random order; the last one is filled from its top."""
    side = max(1, math.ceil(max(shape) / PATCHES))
    down, across = math.ceil(shape[0] / side), math.ceil(shape[1] / side)
    order = draw.uniform(down * across).argsort(kind="stable").argsort(kind="stable")
    rows, columns = np.arange(shape[0]) // side, np.arange(shape[1]) // side
    return order.reshape(down, across)[rows[:, None], columns].astype(np.float64)


_PRIORITIES = {"bars": _bars, "patches": _patches, "border": _border}


def _over(frame: Frame, seen: Alpha, share: float) -> tuple[Pixels, int, int]:
    """Another cut-out, and where over the object's box it hides the share best."""
    (which,) = _others(frame.shot, frame.inputs, "occlusion")
    other = frame.inputs.cutout(which)
    total = float(seen.sum(dtype=np.int64))
    draw = frame.draw("occlusion/where")
    most = (4 * frame.shot.width, 4 * frame.shot.height)
    least, best = math.inf, (other, 0, 0)
    for grow in (1.0, 2.0, 4.0, 8.0, 16.0):
        sprite = _scaled_to(other, seen.size * grow, most)
        hidden = _overlaps(seen, sprite[..., 3]) / total
        error = np.abs(hidden - share)
        if float(error.min()) < least:
            least = float(error.min())
            # Of all places that are as good to half a percent, a random one.
            good = np.flatnonzero(error <= max(least, 0.002))
            top, left = divmod(int(good[draw.below(len(good))]), hidden.shape[1])
            best = (sprite, left - sprite.shape[1] + 1, top - sprite.shape[0] + 1)
        if least <= 0.005:
            break
    return best


def _overlaps(mask: Alpha, other: Alpha) -> Priority:
    """What the other hides of a mask at every place; [i, j] has its corner at (i, j) - size + 1."""
    from scipy.signal import fftconvolve

    theirs = other[::-1, ::-1].astype(np.float32) / np.float32(255)
    return np.asarray(fftconvolve(mask.astype(np.float32), theirs))


FACTORS = (
    Texture(
        key="texture",
        neutral="own",
        values=("own", "black", "mean", "noise", "shuffled"),
        options=TEXTURES,
        colours=True,
        stage=Stage.FOREGROUND,
        measured="mean absolute Laplacian of the object",
        help="the object's surface: one colour (a silhouette), noise, shuffled, another's",
    ),
    Sprites(
        key="instances",
        neutral=1,
        values=(1, 2, 3, 4),
        low=1,
        high=64,
        whole=True,
        help="how many of the object there are; copies are beside it",
        stage=Stage.COMPOSITION,
        unit="sprites",
        measured="share of the image that copies cover",
    ),
    Sprites(
        key="distractors",
        neutral=0,
        values=(0, 1, 2, 4),
        low=0,
        high=64,
        whole=True,
        help="how many cut-outs of other classes are beside the object",
        stage=Stage.COMPOSITION,
        unit="sprites",
        measured="share of the image that distractors cover",
    ),
    Factor(
        key="extra_size",
        neutral=0.5,
        values=(0.25, 0.5, 1.0),
        low=0.0,
        above=True,
        high=100.0,
        stage=Stage.COMPOSITION,
        needs=("instances", "distractors"),
        help="box area of a copy or distractor over that of the object",
    ),
    Factor(
        key="extra_overlap",
        neutral=0.0,
        values=(0.0, 0.1, 0.25),
        low=0.0,
        high=1.0,
        stage=Stage.COMPOSITION,
        needs=("instances", "distractors"),
        help="the most of the object's mask, or of its own over others, that one may hide",
    ),
    Occlusion(
        key="occlusion",
        neutral=0.0,
        values=(0.0, 0.1, 0.25, 0.5, 0.75, 0.9),
        low=0.0,
        high=1.0,
        stage=Stage.COMPOSITION,
        measured="share of the object's mask in the frame that is hidden",
        help="share of the object's mask that is hidden",
    ),
    Factor(
        key="occlusion_kind",
        neutral="bars",
        values=KINDS,
        options=KINDS,
        stage=Stage.COMPOSITION,
        needs=("occlusion",),
        help="what hides the object",
    ),
    Factor(
        key="occlusion_fill",
        neutral="grey",
        values=FILLS,
        options=FILLS,
        stage=Stage.COMPOSITION,
        needs=("occlusion",),
        help="what bars, patches and a border are filled with; background cuts the object away",
    ),
)

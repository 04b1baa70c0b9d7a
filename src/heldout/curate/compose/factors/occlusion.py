"""Occlusion: a share of the object's mask, in sight before, is hidden; measured on its pixels.

Bars, patches and a border are made from a *priority*: a number for each pixel of the object's box.
Pixels are covered in its order until the wanted share of the mask is. So the share is met to one
pixel, whatever the shape. Another cut-out is moved over the object; of all its places, one that
meets the share is found by a correlation of the two masks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.factors.accepts import Numbers, Words
from heldout.curate.compose.factors.composition import other_class, scaled_to
from heldout.curate.compose.factors.draws import Draw
from heldout.curate.compose.factors.protocol import Frame, Stock, Used
from heldout.curate.compose.factors.setting import Described, Setting
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.factors.visibility import visible, window
from heldout.curate.compose.scene import Extra, Pixels, Shot, Value
from heldout.data.testset.columns import ColumnType

KINDS = ("bars", "patches", "border", "cutout")
FILLS = ("grey", "black", "white", "noise", "background")
BARS = 4
"""Bars across the object's box."""
PATCHES = 8
"""Patches along the longer side of the object's box."""

Mask = NDArray[np.bool_]


class Occlusion(Described):
    """The share of the object's mask in the frame that is hidden."""

    def uses(self, shot: Shot, stock: Stock, value: Value) -> Used:
        """The cut-out that hides the object, where one does."""
        if shot.values.get("occlusion_kind", "bars") != "cutout":
            return Used()
        return Used(cutouts=(_occluder(shot, stock),))

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the object hidden to this share."""
        shape = frame.layers.foreground[..., 3] if frame.shape is None else frame.shape
        seen = _seen(frame, shape)
        if not seen.any():
            return frame
        kind = str(frame.value("occlusion_kind", "bars"))
        if kind == "cutout":
            return _behind_cutout(frame, seen, float(value))
        draw = frame.draw(self.key)
        hidden = _first(_PRIORITIES[kind](shape.shape, draw), seen, float(value))
        fill = str(frame.value("occlusion_fill", "grey"))
        if fill == "background":
            sprite = frame.layers.foreground.copy()
            sprite[..., 3][hidden] = 0
            return frame.with_layers(foreground=sprite)
        covering = np.zeros((*hidden.shape, 4), dtype=np.uint8)
        covering[..., :3] = _filling(fill, hidden.shape, draw)
        covering[..., 3] = np.where(hidden, 255, 0)
        extra = Extra(covering, frame.layers.left, frame.layers.top)
        return frame.with_layers(extras=[*frame.layers.extras, extra])

    def measure(self, frame: Frame) -> float:
        """The share of the mask in the frame that is hidden, by anything; 0 without an object."""
        shape = frame.layers.foreground[..., 3] if frame.shape is None else frame.shape
        size = (frame.shot.height, frame.shot.width)
        whole = visible(shape, frame.corner, size, ())
        left = visible(frame.layers.foreground[..., 3], frame.corner, size, frame.layers.extras)
        return 1.0 - left / whole if whole else 0.0


def _seen(frame: Frame, shape: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The object's mask with all that lies outside the image at zero."""
    size = (frame.shot.height, frame.shot.width)
    _, _, rows, columns = window(*frame.corner, (shape.shape[0], shape.shape[1]), size)
    made = np.zeros_like(shape)
    made[rows, columns] = shape[rows, columns]
    return made


def _first(priority: NDArray[np.float64], weights: NDArray[np.uint8], share: float) -> Mask:
    """The pixels of lowest priority that hold ``share`` of the weights, to the nearest pixel."""
    order = np.argsort(priority, axis=None, kind="stable")
    held = np.cumsum(weights.reshape(-1)[order], dtype=np.int64)
    goal = share * float(held[-1])
    count = int(np.searchsorted(held, goal, side="left")) + 1
    before = float(held[count - 2]) if count > 1 else 0.0
    if goal - before < float(held[count - 1]) - goal:
        count -= 1
    if goal <= 0:
        count = 0
    made = np.zeros(priority.size, dtype=bool)
    made[order[:count]] = True
    return made.reshape(priority.shape)


def _along(shape: tuple[int, ...], angle: float) -> NDArray[np.float64]:
    """How far each pixel lies in a direction (degrees), in pixels from the middle."""
    height, width = shape
    ys, xs = np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2
    turn = math.radians(angle)
    made: NDArray[np.float64] = math.cos(turn) * xs[None, :] - math.sin(turn) * ys[:, None]
    return made


def _border(shape: tuple[int, ...], draw: Draw) -> NDArray[np.float64]:
    """From one of eight sides."""
    return _along(shape, 45.0 * draw.below(8))


def _bars(shape: tuple[int, ...], draw: Draw) -> NDArray[np.float64]:
    """From the middle lines of parallel bars, upright or lying."""
    upright = draw.below(2) == 0
    shift = float(draw.uniform(1)[0])
    length = shape[1] if upright else shape[0]
    place = _along(shape, 0.0 if upright else 90.0) / max(length, 1) * BARS + shift
    made: NDArray[np.float64] = np.abs((place % 1.0) - 0.5)
    return made


def _patches(shape: tuple[int, ...], draw: Draw) -> NDArray[np.float64]:
    """Square patches in random order; the last one is filled from its top."""
    side = max(1, math.ceil(max(shape) / PATCHES))
    down, across = math.ceil(shape[0] / side), math.ceil(shape[1] / side)
    order = draw.uniform(down * across).argsort(kind="stable").argsort(kind="stable")
    rows, columns = np.arange(shape[0]) // side, np.arange(shape[1]) // side
    made: NDArray[np.float64] = order.reshape(down, across)[rows[:, None], columns].astype(float)
    return made


_PRIORITIES = {"bars": _bars, "patches": _patches, "border": _border}


def _filling(fill: str, shape: tuple[int, ...], draw: Draw) -> NDArray[np.uint8]:
    """Colours of an occluder, to be broadcast over (h, w, 3)."""
    if fill == "noise":
        words = draw.words(shape[0] * shape[1] * 3)
        return (words >> 8).astype(np.uint8).reshape(*shape, 3)
    level = {"grey": 128, "black": 0, "white": 255}[fill]
    return np.full(3, level, dtype=np.uint8)


def _occluder(shot: Shot, stock: Stock) -> int:
    others = other_class(shot, stock, "occlusion")
    return others[Draw(shot.seed, "occlusion/which").below(len(others))]


def _behind_cutout(frame: Frame, seen: NDArray[np.uint8], share: float) -> Frame:
    """The frame with another cut-out over the object, where it hides the share best."""
    other = frame.stock.cutout(_occluder(frame.shot, frame.stock))
    total = float(seen.sum(dtype=np.int64))
    draw = frame.draw("occlusion/where")
    box = seen.shape[0] * seen.shape[1]
    best: tuple[float, Pixels, tuple[int, int]] | None = None
    for grow in (1.0, 2.0, 4.0, 8.0, 16.0):
        sprite = scaled_to(other, box * grow, (4 * frame.shot.width, 4 * frame.shot.height))
        hidden = _overlaps(seen, sprite[..., 3]) / total
        error = np.abs(hidden - share)
        least = float(error.min())
        if best is None or least < best[0]:
            # Of all places that are as good to half a percent, one by chance.
            good = np.flatnonzero(error <= max(least, 0.002))
            spot = int(good[draw.below(len(good))])
            top, left = divmod(spot, hidden.shape[1])
            place = (left - sprite.shape[1] + 1, top - sprite.shape[0] + 1)
            best = (least, sprite, place)
        if best[0] <= 0.005:
            break
    if best is None:
        return frame
    _, sprite, (left, top) = best
    extra = Extra(sprite, frame.layers.left + left, frame.layers.top + top)
    return frame.with_layers(extras=[*frame.layers.extras, extra])


def _overlaps(mask: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.float64]:
    """What the other hides of a mask at every place; [i, j] has its corner at (i, j) - size + 1."""
    from scipy.fft import irfft2, next_fast_len, rfft2

    full = (mask.shape[0] + other.shape[0] - 1, mask.shape[1] + other.shape[1] - 1)
    padded = (next_fast_len(full[0], real=True), next_fast_len(full[1], real=True))
    ours = rfft2(mask.astype(np.float32), padded)
    theirs = rfft2(other[::-1, ::-1].astype(np.float32) / np.float32(255), padded)
    made: NDArray[np.float64] = irfft2(ours * theirs, padded)[: full[0], : full[1]]
    return made


FACTORS = (
    Occlusion(
        key="occlusion",
        neutral=0.0,
        values=(0.0, 0.1, 0.25, 0.5, 0.75, 0.9),
        accepts=Numbers(low=0.0, high=1.0),
        stage=Stage.COMPOSITION,
        column=ColumnType(kind="ordered"),
        measured="share of the object's mask in the frame that is hidden",
        help="share of the object's mask that is hidden",
    ),
)
SETTINGS = (
    Setting(
        key="occlusion_kind",
        neutral="bars",
        values=KINDS,
        accepts=Words(options=KINDS),
        stage=Stage.COMPOSITION,
        needs=("occlusion",),
        column=ColumnType(kind="categorical", order=KINDS),
        help="what hides the object",
    ),
    Setting(
        key="occlusion_fill",
        neutral="grey",
        values=FILLS,
        accepts=Words(options=FILLS),
        stage=Stage.COMPOSITION,
        needs=("occlusion",),
        column=ColumnType(kind="categorical", order=FILLS),
        help="what bars, patches and a border are filled with; background cuts the object away",
    ),
)

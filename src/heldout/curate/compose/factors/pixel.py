"""Factors that change pixels of one layer or of the whole image, and the decorator that makes them.

A function of a region and a value becomes three factors: ``name`` (the whole image),
``foreground.name`` and ``background.name``. Alpha is never changed, so the object's outline, its
box and its mask stay what they were.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError
from heldout.curate.compose.factors import measures
from heldout.curate.compose.factors.accepts import Accepts, Numbers, Words
from heldout.curate.compose.factors.draws import Draw
from heldout.curate.compose.factors.protocol import Frame, Plain
from heldout.curate.compose.factors.stages import Stage
from heldout.curate.compose.scene import Pixels, Shot, Value
from heldout.data.testset.columns import ColumnType

Layer = Literal["foreground", "background", "image"]
LAYERS: tuple[Layer, ...] = ("image", "foreground", "background")
_STAGES = {
    "foreground": Stage.FOREGROUND,
    "background": Stage.BACKGROUND,
    "image": Stage.IMAGE,
}


@dataclass(frozen=True, eq=False)
class Region:
    """The pixels that a factor changes, and what it may know about them.

    ``pixels``  uint8 (h, w, 3)
    ``alpha``   uint8 (h, w) for the object, None where every pixel counts
    ``shot``    the image that they belong to
    ``key``     the factor's key, which names its chance
    """

    pixels: Pixels
    alpha: NDArray[np.uint8] | None
    shot: Shot
    key: str

    @property
    def draw(self) -> Draw:
        """Chance for this factor on this image; the same stream each time it is asked for."""
        return Draw(self.shot.seed, self.key)

    def setting(self, key: str, neutral: Value) -> Value:
        """The value of a setting."""
        return self.shot.values.get(key, neutral)


Change = Callable[[Region, Any], NDArray[Any]]
"""New pixels (h, w, 3) for a region and a value; numbers are rounded and cut to 0 to 255."""

Measure = Callable[[Region], float]


def region_of(frame: Frame, layer: Layer, key: str) -> Region:
    """The pixels of one layer of a frame."""
    layers = frame.layers
    if layer == "foreground":
        sprite = layers.foreground
        colours = np.ascontiguousarray(sprite[..., :3])
        return Region(colours, sprite[..., 3], frame.shot, key)
    if layer == "background":
        return Region(layers.background, None, frame.shot, key)
    if frame.image is None:
        raise ValueError("the layers are not blended yet")
    return Region(frame.image, None, frame.shot, key)


def as_pixels(values: NDArray[Any]) -> Pixels:
    """Numbers as pixels: rounded to the nearest level and cut to 0 to 255."""
    if values.dtype == np.uint8:
        return np.asarray(values, dtype=np.uint8)
    return np.asarray(np.clip(np.rint(values), 0, 255), dtype=np.uint8)


@dataclass(frozen=True, eq=False, kw_only=True)
class PixelFactor(Plain):
    """A change of the pixels of one layer."""

    name: str
    layer: Layer
    change: Change
    neutral: Value | None
    values: tuple[Value, ...]
    accepts: Accepts
    column: ColumnType
    measured: str
    measuring: Measure
    help: str = ""

    @property
    def key(self) -> str:
        """``name`` for the whole image, else ``layer.name``."""
        return self.name if self.layer == "image" else f"{self.layer}.{self.name}"

    @property
    def stage(self) -> Stage:
        """The stage of its layer."""
        return _STAGES[self.layer]

    def check(self, value: object) -> Value:
        """The value in its canonical form, or a user's error."""
        return self.accepts.check(self.key, value)

    def apply(self, frame: Frame, value: Value) -> Frame:
        """The frame with the layer's pixels changed; alpha stays."""
        region = region_of(frame, self.layer, self.key)
        made = np.asarray(self.change(region, value))
        if made.shape != region.pixels.shape:
            raise UserError(
                f"factor {self.key} gave pixels of shape {made.shape} for {region.pixels.shape}",
                fix="return an array of the shape of region.pixels",
            )
        if made.dtype.kind == "f" and not np.isfinite(made).all():
            raise UserError(
                f"factor {self.key} gave pixels that are no numbers",
                fix="look for divisions by zero in it",
            )
        pixels = as_pixels(made)
        if self.layer == "foreground":
            sprite = frame.layers.foreground.copy()
            # What lies under alpha 0 is no part of the object: it stays as it was.
            np.copyto(sprite[..., :3], pixels, where=sprite[..., 3:] > 0)
            return frame.with_layers(foreground=sprite)
        if self.layer == "background":
            return frame.with_layers(background=pixels)
        return replace(frame, image=pixels)

    def measure(self, frame: Frame) -> float:
        """What the measured column says of the layer as it is now."""
        return float(self.measuring(region_of(frame, self.layer, self.key)))


@dataclass(frozen=True, eq=False)
class PixelFamily:
    """A function as factors, one for each layer; still callable as the function."""

    factors: tuple[PixelFactor, ...]

    def __iter__(self) -> Iterator[PixelFactor]:
        return iter(self.factors)

    def __call__(self, region: Region, value: Any) -> NDArray[Any]:
        """The change itself."""
        return self.factors[0].change(region, value)


def factor(
    name: str,
    *,
    neutral: Value | None,
    values: Sequence[Value],
    low: float | None = None,
    high: float | None = None,
    options: Sequence[str] = (),
    accepts: Accepts | None = None,
    layers: Sequence[Layer] = LAYERS,
    column: ColumnType | None = None,
    measured: str = "mean luminance",
    measuring: Measure = measures.luminance,
) -> Callable[[Change], PixelFamily]:
    """Make factors of a function ``(region, value) -> pixels``.

    ``neutral``   the value that changes nothing; the function is never called with it
    ``values``    severities, for those who name none
    ``low``       bounds of a number, with ``high``; or ``options``, the words it may be
    ``measured``  what ``measuring(region)`` gives, for the measured column
    """
    numbers = not options and all(not isinstance(v, str) for v in values)
    rule: Accepts = accepts or (
        Numbers(
            low=float("-inf") if low is None else low, high=float("inf") if high is None else high
        )
        if numbers
        else Words(options=tuple(options) or tuple(str(v) for v in values))
    )
    kind = column or (
        ColumnType(kind="ordered")
        if numbers
        else ColumnType(kind="categorical", order=tuple(options) or tuple(values))
    )

    def made(change: Change) -> PixelFamily:
        family = tuple(
            PixelFactor(
                name=name,
                layer=layer,
                change=change,
                neutral=neutral,
                values=tuple(values),
                accepts=rule,
                column=kind,
                measured=measured,
                measuring=measuring,
                help=(inspect.getdoc(change) or name).splitlines()[0].rstrip("."),
            )
            for layer in layers
        )
        return PixelFamily(family)

    return made

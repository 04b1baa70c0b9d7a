"""Factors that change the pixels of one layer or of the whole image, and what is measured on them.

A function of a region and a value becomes three factors: ``name`` (the whole image),
``foreground.name`` and ``background.name``. Alpha is never changed, so the object's outline, its
box and its mask stay what they were.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError
from heldout.curate.compose.factors.factor import Alpha, Draw, Factor, Frame, Stage
from heldout.curate.compose.inputs import Pixels
from heldout.curate.compose.plan import ImagePlan, Value

Layer = Literal["foreground", "background", "image"]
LAYERS: tuple[Layer, ...] = ("image", "foreground", "background")
LUMA = (0.2126, 0.7152, 0.0722)
"""Weights of red, green and blue in luma, Rec. ITU-R BT.709."""
LEAST_BLUR = 0.05
"""Below this deviation the kernel is one pixel to seven digits: nothing changes."""
Planes = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Region:
    """The pixels that a factor changes, and what it may know about them.

    ``pixels``  uint8 (h, w, 3)
    ``alpha``   uint8 (h, w) for the object, None where every pixel counts
    ``shot``    the image that they belong to
    ``key``     the factor's key, which names its random numbers
    """

    pixels: Pixels
    alpha: Alpha | None
    shot: ImagePlan
    key: str

    @property
    def draw(self) -> Draw:
        """Random numbers of this factor on this image; the same stream each time."""
        return Draw(self.shot.seed, self.key)

    def value(self, key: str, neutral: Value) -> Value:
        """The value of another factor, such as an option of this one."""
        return self.shot.values.get(key, neutral)


def region_of(frame: Frame, layer: Layer, key: str) -> Region:
    """The pixels of one layer of a frame."""
    if layer == "foreground":
        colours = np.ascontiguousarray(frame.layers.foreground[..., :3])
        return Region(colours, frame.layers.alpha, frame.shot, key)
    pixels = frame.layers.background if layer == "background" else frame.pixels
    return Region(pixels, None, frame.shot, key)


def recoloured(frame: Frame, colours: NDArray[Any]) -> Frame:
    """The frame with the object in other colours; what is under alpha 0 stays as it was."""
    sprite = frame.layers.foreground.copy()
    np.copyto(sprite[..., :3], colours, where=sprite[..., 3:] > 0)
    return frame.with_layers(foreground=sprite)


def as_pixels(values: NDArray[Any]) -> Pixels:
    """Numbers as pixels: rounded to the nearest level and cut to 0 to 255."""
    levels = values if values.dtype == np.uint8 else np.clip(np.rint(values), 0, 255)
    return levels.astype(np.uint8, copy=False)


Change = Callable[[Region, Any], NDArray[Any]]
"""New pixels (h, w, 3) for a region and a value; numbers are rounded and cut to 0 to 255."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PixelFactor(Factor):
    """A change of the pixels of one layer."""

    layer: Layer
    change: Change
    measuring: Callable[[Region], float]

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
                f"factor {self.key} gave pixels that are not numbers",
                fix="look for divisions by zero in it",
            )
        pixels = as_pixels(made)
        if self.layer == "foreground":
            return recoloured(frame, pixels)
        if self.layer == "background":
            return frame.with_layers(background=pixels)
        return replace(frame, image=pixels)

    def measure(self, frame: Frame) -> float:
        """What the measured column says of the layer as it is now."""
        return float(self.measuring(region_of(frame, self.layer, self.key)))


def mean_colour(region: Region) -> NDArray[np.float64]:
    """The mean red, green and blue, 0 to 255, float64 (3,); zeros where nothing is visible.

    As in all measures, a pixel of alpha a counts a/255.
    """
    if region.alpha is None:
        from PIL import Image

        # A histogram is many times quicker than a mean over rows of three.
        counts = np.asarray(Image.fromarray(region.pixels).histogram()).reshape(3, 256)
        return np.asarray(counts @ np.arange(256) / counts[0].sum())
    return np.asarray([_weighted_mean(region.pixels[..., i], region.alpha) for i in range(3)])


def _weighted_mean(plane: Alpha, alpha: Alpha) -> float:
    weights = alpha.reshape(-1).astype(np.float64)
    total = float(weights.sum())
    return float(np.dot(weights, plane.reshape(-1).astype(np.float64))) / total if total else 0.0


def luma(pixels: Pixels) -> Alpha:
    """The luma of each pixel, uint8 (h, w)."""
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).convert("L", (*LUMA, 0.0)))


def luminance(region: Region) -> float:
    """Mean luma, 0 to 1."""
    return float(np.dot(mean_colour(region), LUMA)) / 255.0


def contrast(region: Region) -> float:
    """Root mean square contrast: the standard deviation of luma, 0 to 0.5."""
    weights = None if region.alpha is None else region.alpha.reshape(-1)
    grey = luma(region.pixels).reshape(-1)
    counts = np.bincount(grey, weights=weights, minlength=256).astype(np.float64)
    total = counts.sum()
    if not total:
        return 0.0
    levels = np.arange(256) / 255.0
    mean = float(counts @ levels) / total
    return math.sqrt(float(counts @ (levels - mean) ** 2) / total)


def warmth(region: Region) -> float:
    """Mean of red less blue, -1 to 1."""
    mean = mean_colour(region)
    return float(mean[0] - mean[2]) / 255.0


def chroma(region: Region) -> float:
    """Mean of the largest less the smallest channel, 0 to 1."""
    red, green, blue = (region.pixels[..., i] for i in range(3))
    high = np.maximum(np.maximum(red, green), blue)
    low = np.minimum(np.minimum(red, green), blue)
    spread = high - low
    if region.alpha is None:
        return float(spread.mean(dtype=np.float64)) / 255.0
    return _weighted_mean(spread, region.alpha) / 255.0


def mean_hue(region: Region) -> float:
    """The hue of the mean colour, degrees from 0 to 360; 0 for grey."""
    red, green, blue = mean_colour(region)
    degrees = math.degrees(math.atan2(math.sqrt(3) / 2 * (green - blue), red - (green + blue) / 2))
    return degrees % 360.0


def sharpness(region: Region) -> float:
    """Mean absolute Laplacian of luma in grey levels, over pixels whose neighbours are opaque."""
    grey = luma(region.pixels).astype(np.int16)
    if min(grey.shape) < 3:
        return 0.0
    around = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
    return _inner_mean(np.abs(4 * grey[1:-1, 1:-1] - around), region)


def noise_level(region: Region) -> float:
    """Standard deviation of noise in grey levels (Immerkær, Fast noise variance estimation, 1996).

    Fine structure counts as noise too, so only differences between images mean much.
    """
    grey = luma(region.pixels).astype(np.int16)
    if min(grey.shape) < 3:
        return 0.0
    rows = grey[:-2] - 2 * grey[1:-1] + grey[2:]
    both = rows[:, :-2] - 2 * rows[:, 1:-1] + rows[:, 2:]
    return _inner_mean(np.abs(both), region) * math.sqrt(math.pi / 2) / 6


def _inner_mean(values: NDArray[np.int16], region: Region) -> float:
    """The mean over pixels that are opaque and have only opaque ones around them."""
    if region.alpha is None:
        return float(values.mean(dtype=np.float64))
    solid = region.alpha >= 128
    rows = solid[:-2] & solid[1:-1] & solid[2:]
    inner = rows[:, :-2] & rows[:, 1:-1] & rows[:, 2:]
    return float(values[inner].mean(dtype=np.float64)) if inner.any() else 0.0


def factor(
    name: str,
    *,
    neutral: Value | None,
    values: Sequence[Value],
    layers: Sequence[Layer] = LAYERS,
    measured: str = "mean luminance",
    measuring: Callable[[Region], float] = luminance,
    options: Sequence[str] = (),
    **rule: Any,
) -> Callable[[Change], tuple[PixelFactor, ...]]:
    """Make factors of a function ``(region, value) -> pixels``, one for each of ``layers``.

    ``neutral``   the value that changes nothing; the function is never called with it
    ``values``    severities, for those who name none
    ``measured``  what ``measuring(region)`` gives, for the measured column
    ``options``   the words it may be; ``rule`` holds the other fields of a :class:`Factor`, such as
                  ``low``, ``high`` and ``unit``
    """
    words = tuple(options) or tuple(v for v in values if isinstance(v, str))

    def made(change: Change) -> tuple[PixelFactor, ...]:
        return tuple(
            PixelFactor(
                key=name if layer == "image" else f"{layer}.{name}",
                layer=layer,
                change=change,
                neutral=neutral,
                values=tuple(values),
                stage=Stage[layer.upper()],
                options=words,
                measured=measured,
                measuring=measuring,
                help=(inspect.getdoc(change) or name).splitlines()[0].rstrip("."),
                **rule,
            )
            for layer in layers
        )

    return made


def gaussian(plane: Planes, sigma: float, *, endless: bool) -> Planes:
    """A plane (h, w) blurred with standard deviation ``sigma`` in pixels, cut at three of them.

    ``endless``  whether the outermost pixels go on outside; else there is nothing
    """
    from scipy.ndimage import gaussian_filter1d

    if sigma < LEAST_BLUR:
        return plane
    mode = "nearest" if endless else "constant"
    for axis in (0, 1):
        plane = gaussian_filter1d(plane, sigma, axis=axis, mode=mode, truncate=3.0)
    return plane


def normalised(pixels: Pixels, alpha: Alpha | None, mix: Callable[[Planes], Planes]) -> Planes:
    """``mix`` of the pixels (h, w, 3), of float planes (h, w), weighted by alpha.

    An operation that mixes neighbours, such as a blur, works on colours times alpha and is divided
    by what it makes of alpha itself (normalised convolution, Knutsson and Westin 1993), so that
    what is under alpha 0 takes no part. Where the mixed alpha is below 1/255 the pixel stays.
    """
    if alpha is None:
        planes = [mix(pixels[..., i].astype(np.float32)) for i in range(3)]
        return np.stack(planes, axis=-1)
    weights = alpha.astype(np.float32) / np.float32(255)
    total = mix(weights)
    known = total >= 1 / 255
    safe = np.where(known, total, np.float32(1))
    made = pixels.astype(np.float32)
    for i in range(3):
        np.copyto(made[..., i], mix(made[..., i] * weights) / safe, where=known)
    return made


def filled(pixels: Pixels, alpha: Alpha | None) -> Pixels:
    """The pixels with everything under alpha 0 replaced by the object's nearest colour."""
    from scipy.ndimage import distance_transform_edt

    hidden = np.zeros(0, bool) if alpha is None else alpha == 0
    if not hidden.any() or hidden.all():
        return pixels
    rows, columns = distance_transform_edt(hidden, return_distances=False, return_indices=True)
    return np.ascontiguousarray(pixels[rows, columns])

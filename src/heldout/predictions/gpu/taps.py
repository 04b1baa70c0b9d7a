"""The weights by which Pillow resizes, as tables that a kernel can read.

Pillow resizes eight-bit images in two passes, each with integer weights of 22 bits and a rounding
to eight bits after it; :func:`vertical_first` says in which order. With the same integers the
result is bit-equal, on any device. A table covers the crop only; what lies outside the resized
image has no weight, so that it comes out as zero, which is how small images are padded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from heldout.images.preprocessing import Geometry, Interpolation

PRECISION = 22
"""Bits behind the point of an integer weight."""


@dataclass(frozen=True, eq=False)
class Taps:
    """One axis of a resize and crop.

    ``first``    int32 (n,): the first source position that output position i reads
    ``weights``  int32 (k, n): the weight of source position first + k, times 2^22; the tables are
                 padded with zeros, and a position past the end has weight zero
    """

    first: np.ndarray
    weights: np.ndarray

    @property
    def low(self) -> int:
        """The smallest source position that is read."""
        return int(self.first.min())

    @property
    def high(self) -> int:
        """One past the largest source position that is read with a weight."""
        used = np.where(self.weights != 0, np.arange(len(self.weights))[:, None] + 1, 0).max(0)
        return max(int((self.first + used).max()), self.low + 1)


def resized(height: int, width: int, geometry: Geometry) -> tuple[int, int]:
    """Height and width that an image has after the resize and before the crop.

    >>> resized(375, 500, Geometry())
    (256, 341)
    """
    if geometry.resize == "none":
        return height, width
    if geometry.resize == "exact":
        return geometry.resize_height, geometry.resize_width
    short = geometry.resize_height
    if height <= width:
        return short, int(short * width / height)
    return int(short * height / width), short


def crop_start(size: int, crop: int) -> int:
    """Where a centre crop starts; negative where the image is smaller and is padded.

    >>> crop_start(341, 224), crop_start(256, 224), crop_start(101, 224)
    (58, 16, -61)
    """
    if size < crop:
        return -((crop - size) // 2)
    return round((size - crop) / 2.0)


def vertical_first(height: int, width: int, target: tuple[int, int], *, pillow: int) -> bool:
    """Whether Pillow of that major version resizes rows before columns: it changes the rounding.

    Up to 12 it never does. From 13 on it does where the height loses more than twice what the
    width loses.

    >>> vertical_first(900, 300, (768, 256), pillow=13), vertical_first(500, 375, (341, 256), pillow=13)
    (True, False)
    """
    lost = height - target[0]
    return pillow >= 13 and lost > 0 and lost > 2 * (width - target[1])


def axis_taps(
    size: int, target: int, start: int, crop: int, interpolation: Interpolation = "bilinear"
) -> Taps:
    """Taps of one axis: resize ``size`` to ``target``, then take ``crop`` from ``start`` on."""
    wanted = np.arange(start, start + crop)
    inside = (wanted >= 0) & (wanted < target)
    first = np.zeros(crop, np.int32)
    at = wanted[inside]
    if interpolation == "nearest" or size == target:
        # Pillow walks by adding the step again and again; so does a running sum.
        walk = np.cumsum(np.r_[size / target * 0.5, np.full(target - 1, size / target)])
        first[inside] = np.minimum(walk[at].astype(np.int64), size - 1)
        weights = np.where(inside, 1 << PRECISION, 0).astype(np.int32)[None]
        return _rest_at_edge(Taps(first, weights), inside)
    support, function = _FILTERS[interpolation]
    scale = size / target
    stretch = max(scale, 1.0)
    reach = support * stretch
    centre = (at + 0.5) * scale
    low = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    high = np.minimum((centre + reach + 0.5).astype(np.int64), size)
    k = math.ceil(reach) * 2 + 1
    position = np.arange(k)[:, None]
    raw = function((position + low - centre + 0.5) * (1.0 / stretch))
    raw = np.where(position < high - low, raw, 0.0)
    # Pillow adds the weights one by one; a running sum rounds as it does.
    total = np.cumsum(raw, axis=0)[-1]
    scaled = raw * np.where(total != 0, 1.0 / np.where(total == 0, 1.0, total), 1.0)
    whole = np.trunc(scaled * (1 << PRECISION) + np.where(scaled < 0, -0.5, 0.5)).astype(np.int32)
    weights = np.zeros((k, crop), np.int32)
    weights[:, inside] = whole
    first[inside] = low
    return _rest_at_edge(Taps(first, weights), inside)


def _rest_at_edge(taps: Taps, inside: np.ndarray) -> Taps:
    """Let padding read a position that is read anyway; its weights are zero."""
    if not inside.all():
        taps.first[~inside] = taps.first[inside].min() if inside.any() else 0
    return taps


def _sinc(x: np.ndarray) -> np.ndarray:
    safe = np.where(x == 0, 1.0, x) * np.pi
    return np.where(x == 0, 1.0, np.sin(safe) / safe)


def _box(x: np.ndarray) -> np.ndarray:
    return np.where((x > -0.5) & (x <= 0.5), 1.0, 0.0)


def _bilinear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _hamming(x: np.ndarray) -> np.ndarray:
    away = np.abs(x)
    safe = np.where(away == 0, 1.0, away) * np.pi
    value = np.sin(safe) / safe * (0.54 + 0.46 * np.cos(safe))
    return np.where(away == 0, 1.0, np.where(away >= 1, 0.0, value))


def _bicubic(x: np.ndarray) -> np.ndarray:
    a, away = -0.5, np.abs(x)
    near = ((a + 2.0) * away - (a + 3.0)) * away * away + 1
    far = (((away - 5) * away + 8) * away - 4) * a
    return np.where(away < 1, near, np.where(away < 2, far, 0.0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where((x >= -3) & (x < 3), _sinc(x) * _sinc(x / 3), 0.0)


_FILTERS: dict[Interpolation, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "box": (0.5, _box),
    "bilinear": (1.0, _bilinear),
    "hamming": (1.0, _hamming),
    "bicubic": (2.0, _bicubic),
    "lanczos": (3.0, _lanczos),
}

"""What can be read off pixels: the measured columns of factors that change colours or sharpness.

Each takes a :class:`~heldout.curate.compose.factors.pixel.Region`. Where there is an alpha, a
pixel of alpha a counts a/255, so what lies under alpha 0 counts nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from heldout.curate.compose.factors.pixel import Region

LUMA = (0.2126, 0.7152, 0.0722)
"""Weights of red, green and blue in luma, Rec. ITU-R BT.709."""


def mean_colour(region: Region) -> NDArray[np.float64]:
    """The mean red, green and blue, 0 to 255, float64 (3,); zeros where nothing is visible."""
    if region.alpha is None:
        from PIL import Image

        # A histogram is many times quicker than a mean over rows of three.
        counts = np.asarray(Image.fromarray(region.pixels).histogram()).reshape(3, 256)
        return np.asarray(counts @ np.arange(256) / counts[0].sum())
    weights = region.alpha.reshape(-1).astype(np.float64)
    total = float(weights.sum())
    if not total:
        return np.zeros(3)
    pixels = region.pixels.reshape(-1, 3)
    sums = [np.dot(weights, pixels[:, i].astype(np.float64)) for i in range(3)]
    return np.asarray(sums) / total


def luma(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The luma of each pixel, uint8 (h, w)."""
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).convert("L", (*LUMA, 0.0)))


def luminance(region: Region) -> float:
    """Mean luma, 0 to 1."""
    return float(np.dot(mean_colour(region), LUMA)) / 255.0


def contrast(region: Region) -> float:
    """Root mean square contrast: the standard deviation of luma, 0 to 0.5."""
    grey = luma(region.pixels)
    weights = None if region.alpha is None else region.alpha.reshape(-1)
    counts = np.bincount(grey.reshape(-1), weights=weights, minlength=256).astype(np.float64)
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
    spread = (high - low).reshape(-1)
    if region.alpha is None:
        return float(spread.mean(dtype=np.float64)) / 255.0
    weights = region.alpha.reshape(-1).astype(np.float64)
    total = float(weights.sum())
    return float(np.dot(weights, spread.astype(np.float64))) / total / 255.0 if total else 0.0


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

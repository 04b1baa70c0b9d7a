"""What cameras and files do: blur, noise, lost resolution, JPEG."""

from __future__ import annotations

import io
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.factors.layers import (
    Planes,
    Region,
    factor,
    filled,
    gaussian,
    noise_level,
    normalised,
    sharpness,
)
from heldout.curate.compose.inputs import Pixels

_sharp = partial(factor, measured="mean absolute Laplacian", measuring=sharpness)
_noisy = partial(factor, measured="noise in grey levels", measuring=noise_level)


@_sharp(
    "blur", neutral=0.0, values=(0.0, 1.0, 2.0, 4.0, 8.0, 16.0), low=0.0, high=200.0, unit="pixels"
)
def blur(region: Region, value: float) -> NDArray[np.float32]:
    """Gaussian blur; the value is the standard deviation in pixels."""
    # Outside an object there is nothing, outside a photo its border goes on.
    mix = partial(gaussian, sigma=value, endless=region.alpha is None)
    return normalised(region.pixels, region.alpha, mix)


@_noisy("noise", neutral=0.0, values=(0.0, 0.04, 0.08, 0.12, 0.18, 0.26, 0.38), low=0.0, high=2.0)
def noise(region: Region, value: float) -> NDArray[np.float32]:
    """Gaussian noise; the value is its standard deviation as a share of 255."""
    table = region.draw.normal(region.pixels.size).reshape(region.pixels.shape)
    return region.pixels + np.float32(255.0 * value) * table


@_noisy("shot_noise", neutral=0.0, values=(0.0, 0.13, 0.2, 0.29, 0.45, 0.58), low=0.0, high=2.0)
def shot_noise(region: Region, value: float) -> Pixels:
    """Poisson noise; the value is its standard deviation at white, as a share of white.

    It stands for 1 / value^2 photons at white: 0.13 for 60, 0.58 for 3.
    """
    words = region.draw.words(region.pixels.size).reshape(region.pixels.shape)
    levels = _poisson_levels(max(float(value), 1e-3) ** -2)
    return np.asarray(levels[region.pixels, words >> 4])


@lru_cache(maxsize=8)
def _poisson_levels(photons: float) -> Pixels:
    """What each level becomes at each of 4,096 equally likely quantiles, uint8 (256, 4096)."""
    from scipy.special import pdtr

    quantiles = (np.arange(4096) + 0.5) / 4096
    made = np.zeros((256, 4096), dtype=np.uint8)
    for level in range(1, 256):
        mean = level / 255.0 * photons
        reach = 5.0 * np.sqrt(mean) + 10.0  # no quantile of the 4,096 is further out
        first = max(0, int(mean - reach))
        sums = pdtr(np.arange(first, int(mean + reach) + 1), mean)
        counts = first + np.searchsorted(sums, quantiles, side="left")
        made[level] = np.clip(np.rint(counts / photons * 255.0), 0, 255).astype(np.uint8)
    return made


@_sharp("downsample", neutral=1.0, values=(1.0, 2.0, 4.0, 8.0, 16.0), low=1.0, high=256.0)
def downsample(region: Region, value: float) -> NDArray[np.float32]:
    """Resolution lost: shrunk by this factor with a box filter, and grown back bilinearly."""
    from PIL import Image

    height, width = region.pixels.shape[:2]
    small = (max(1, round(width / value)), max(1, round(height / value)))

    def mix(plane: Planes) -> Planes:
        shrunk = Image.fromarray(plane).resize(small, Image.Resampling.BOX)
        return np.asarray(shrunk.resize((width, height), Image.Resampling.BILINEAR))

    return normalised(region.pixels, region.alpha, mix)


@_sharp(
    "jpeg",
    neutral=None,
    values=(75, 50, 25, 18, 10, 5),
    low=1,
    high=95,
    whole=True,
    layers=("foreground", "background"),
)
def jpeg(region: Region, value: int) -> Pixels:
    """One layer through a JPEG of this quality; the file's own is ``jpeg_quality``."""
    from PIL import Image

    # Blocks at the edge would show what is under alpha 0: they get the object's colours.
    pixels = filled(region.pixels, region.alpha)
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, "JPEG", quality=int(value))
        with Image.open(io.BytesIO(file.getvalue())) as image:
            return np.asarray(image.convert("RGB"))


FACTORS = (*blur, *noise, *shot_noise, *downsample, *jpeg)

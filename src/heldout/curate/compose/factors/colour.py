"""Colour and light: brightness, contrast, gamma, temperature, hue, saturation, greyscale, ramps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.factors import layers
from heldout.curate.compose.factors.factor import Factor, Stage
from heldout.curate.compose.factors.layers import LUMA, Region, factor
from heldout.curate.compose.inputs import Pixels

_LEVELS = np.arange(256, dtype=np.float64)
_GREY = np.tile(np.asarray(LUMA), (3, 1))
"""The matrix that makes every channel luma."""


@factor("brightness", neutral=1.0, values=(0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0), low=0.0, high=20.0)
def brightness(region: Region, value: float) -> Pixels:
    """Every channel times a number."""
    return _through(region, _LEVELS * value)


@factor(
    "contrast",
    neutral=1.0,
    values=(0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
    low=0.0,
    high=20.0,
    measured="standard deviation of luminance",
    measuring=layers.contrast,
)
def contrast(region: Region, value: float) -> Pixels:
    """Distance of every channel to the layer's mean luminance, times a number."""
    pivot = layers.luminance(region) * 255.0
    return _through(region, pivot + (_LEVELS - pivot) * value)


@factor("gamma", neutral=1.0, values=(0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0), low=0.05, high=20.0)
def gamma(region: Region, value: float) -> Pixels:
    """Every channel, as a share of 255, to this power: above 1 darkens the middle."""
    return _through(region, 255.0 * (_LEVELS / 255.0) ** value)


@factor(
    "temperature",
    neutral=6500.0,
    values=(2500.0, 3500.0, 5000.0, 6500.0, 8000.0, 12000.0),
    low=2000.0,
    high=20000.0,
    unit="kelvin",
    measured="mean red less blue",
    measuring=layers.warmth,
)
def temperature(region: Region, value: float) -> Pixels:
    """The light's colour as that of a black body in kelvin: below 6500 warm, above it cold."""
    linear = srgb_to_linear(_LEVELS / 255.0)
    gains = temperature_gains(value)
    return _through(region, *(255.0 * linear_to_srgb(linear * gain) for gain in gains))


@factor(
    "saturation",
    neutral=1.0,
    values=(0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0),
    low=0.0,
    high=20.0,
    measured="mean chroma",
    measuring=layers.chroma,
)
def saturation(region: Region, value: float) -> Pixels:
    """Distance of every channel to the pixel's luma, times a number: 0 is grey."""
    return _mixed(region, _GREY + value * (np.eye(3) - _GREY))


@factor(
    "greyscale",
    neutral=0.0,
    values=(0.0, 0.5, 1.0),
    low=0.0,
    high=1.0,
    measured="mean chroma",
    measuring=layers.chroma,
)
def greyscale(region: Region, value: float) -> Pixels:
    """The share of grey: 1 leaves luma only."""
    return _mixed(region, value * _GREY + (1.0 - value) * np.eye(3))


@factor(
    "hue",
    neutral=0.0,
    values=(0.0, 45.0, 90.0, 135.0, 180.0, 225.0, 270.0, 315.0),
    period=360.0,
    unit="degrees",
    measured="hue of the mean colour",
    measuring=layers.mean_hue,
)
def hue(region: Region, value: float) -> Pixels:
    """Turns all hues by an angle in degrees and keeps luma, as CSS ``hue-rotate`` does."""
    return _mixed(region, hue_matrix(value))


def _ramp(region: Region) -> NDArray[np.float32]:
    """-1 to 1 from the dark to the lit side of a region, float32 (h, w)."""
    height, width = region.pixels.shape[:2]
    angle = math.radians(float(region.value("light_angle", 0.0)))
    across, up = math.cos(angle), math.sin(angle)
    xs = (np.arange(width, dtype=np.float32) + 0.5) / max(width, 1) * 2 - 1
    ys = 1 - (np.arange(height, dtype=np.float32) + 0.5) / max(height, 1) * 2
    reach = abs(across) + abs(up)
    ramp: NDArray[np.float32] = (across * xs[None, :] + up * ys[:, None]) / np.float32(reach)
    return ramp


def _lit_difference(region: Region) -> float:
    """Mean luminance of the lit half less that of the dark half."""
    ramp = _ramp(region)
    alpha = np.uint8(255) if region.alpha is None else region.alpha
    lit, dark = (replace(region, alpha=side * alpha) for side in (ramp > 0, ramp < 0))
    return layers.luminance(lit) - layers.luminance(dark)


@factor(
    "light",
    neutral=0.0,
    values=(0.0, 0.25, 0.5, 0.75, 1.0),
    low=0.0,
    high=1.0,
    measured="luminance of the lit half less the dark half",
    measuring=_lit_difference,
)
def light(region: Region, value: float) -> NDArray[np.float32]:
    """A light from one side: factors from 1 - value to 1 + value across the layer."""
    gain = 1.0 + np.float32(value) * _ramp(region)
    return region.pixels * gain[:, :, None]


light_angle = Factor(
    key="light_angle",
    neutral=0.0,
    values=(0.0, 90.0, 180.0, 270.0),
    period=360.0,
    unit="degrees",
    stage=Stage.IMAGE,
    needs=("light", "foreground.light", "background.light"),
    help="where the light comes from: 0 the right, 90 above",
)

FACTORS = (
    *brightness, *contrast, *gamma, *temperature, *saturation, *greyscale, *hue, *light, light_angle
)  # fmt: skip


def srgb_to_linear(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """sRGB numbers from 0 to 1 as linear light (IEC 61966-2-1)."""
    low = values / 12.92
    high = ((np.maximum(values, 0) + 0.055) / 1.055) ** 2.4
    return np.where(values <= 0.04045, low, high)


def linear_to_srgb(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Linear light from 0 on as sRGB numbers."""
    low = values * 12.92
    high = 1.055 * np.maximum(values, 0) ** (1 / 2.4) - 0.055
    return np.where(values <= 0.0031308, low, high)


def temperature_gains(kelvin: float) -> tuple[float, float, float]:
    """Gains of linear red, green and blue for a black body against one of 6500 K.

    The chromaticity comes from the cubic fits of Kim et al. (US patent 7024034, 2006), the
    primaries are sRGB's; the gains keep the luminance of grey.

    >>> temperature_gains(6500.0)
    (1.0, 1.0, 1.0)
    """
    light = np.maximum(_black_body(kelvin), 0.0) / _black_body(6500.0)
    light = light / float(np.dot(light, LUMA))
    if kelvin == 6500.0:
        return 1.0, 1.0, 1.0
    return float(light[0]), float(light[1]), float(light[2])


def _black_body(kelvin: float) -> NDArray[np.float64]:
    """Linear sRGB of a black body at luminance 1."""
    t = 1000.0 / kelvin
    if kelvin < 4000:
        x = ((-0.2661239 * t - 0.2343589) * t + 0.8776956) * t + 0.179910
    else:
        x = ((-3.0258469 * t + 2.1070379) * t + 0.2226347) * t + 0.240390
    if kelvin < 2222:
        y = ((-1.1063814 * x - 1.34811020) * x + 2.18555832) * x - 0.20219683
    elif kelvin < 4000:
        y = ((-0.9549476 * x - 1.37418593) * x + 2.09137015) * x - 0.16748867
    else:
        y = ((3.0817580 * x - 5.87338670) * x + 3.75112997) * x - 0.37001483
    to_srgb = np.array(
        [
            [3.2404542, -1.5371385, -0.4985314],
            [-0.9692660, 1.8760108, 0.0415560],
            [0.0556434, -0.2040259, 1.0572252],
        ]
    )
    made: NDArray[np.float64] = to_srgb @ np.array([x / y, 1.0, (1 - x - y) / y])
    return made


def hue_matrix(degrees: float) -> NDArray[np.float64]:
    """The 3 x 3 matrix that turns hues about grey and keeps luma (W3C Filter Effects)."""
    red, green, blue = LUMA
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    first, last = np.array([-red, -green, 1 - blue]), np.array([red - 1, green, blue])
    turn = np.array([first, -(red * first + blue * last) / green, last])
    return np.asarray(_GREY + cosine * (np.eye(3) - _GREY) + sine * turn)


def _through(region: Region, *tables: NDArray[np.float64]) -> Pixels:
    """Each channel through a table of 256 numbers; one table serves all three."""
    from PIL import Image

    three = np.concatenate(tables if len(tables) == 3 else tables * 3)
    table = np.clip(np.rint(three), 0, 255).astype(int).tolist()
    return np.asarray(Image.fromarray(region.pixels).point(table))


def _mixed(region: Region, matrix: NDArray[np.float64]) -> Pixels:
    """Each pixel through a 3 x 3 matrix."""
    from PIL import Image

    flat = tuple(np.pad(matrix, ((0, 0), (0, 1))).ravel().tolist())
    return np.asarray(Image.fromarray(region.pixels).convert("RGB", flat))

"""Colours and sensors against slow, obvious oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from heldout.curate.compose.factors import Draw, Region
from heldout.curate.compose.factors import layers as measures
from heldout.curate.compose.factors.colour import srgb_to_linear, temperature_gains
from heldout.curate.compose.factors.layers import as_pixels

from .factor_examples import FACTORS, background, cutout, shot

blur, downsample, noise, shot_noise = (
    FACTORS[key].change for key in ("blur", "downsample", "noise", "shot_noise")
)
contrast, greyscale, hue, light, saturation, temperature = (
    FACTORS[key].change
    for key in ("contrast", "greyscale", "hue", "light", "saturation", "temperature")
)


def region(pixels: NDArray[np.uint8] | None = None, key: str = "x", **values: object) -> Region:
    return Region(background(0) if pixels is None else pixels, None, shot(dict(values)), key)


def level(value: float) -> int:
    return min(255, max(0, math.floor(value + 0.5)))


@pytest.mark.parametrize("value", [0.0, 0.3, 0.9, 1.7, 4.0])
def test_saturation_pixel_by_pixel(value: float) -> None:
    pixels = background(1, (20, 16))
    made = saturation(region(pixels), value).astype(int)
    for row in range(16):
        for column in range(20):
            red, green, blue = (float(v) for v in pixels[row, column])
            grey = 0.2126 * red + 0.7152 * green + 0.0722 * blue
            for i, v in enumerate((red, green, blue)):
                assert abs(made[row, column, i] - level(grey + value * (v - grey))) <= 1


def test_greyscale_1_is_saturation_0() -> None:
    grey = greyscale(region(), 1.0)
    assert (grey == saturation(region(), 0.0)).all()
    assert (grey[..., 0] == grey[..., 1]).all() and (grey[..., 1] == grey[..., 2]).all()


@pytest.mark.parametrize("angle", [30.0, 90.0, 180.0, 300.0])
def test_hue_turns_about_grey_and_keeps_luma(angle: float) -> None:
    pixels = (background(2, (20, 16)) // 4 + 96).astype(np.uint8)  # nothing is cut at 0 or 255
    made = as_pixels(hue(region(pixels), angle)).astype(float)
    weights = np.array([0.2126, 0.7152, 0.0722])
    assert np.abs((made - pixels) @ weights).max() < 0.51 + 1e-6
    grey = np.full((4, 4, 3), 77, dtype=np.uint8)
    assert (hue(region(grey), angle) == 77).all()
    back = as_pixels(hue(region(as_pixels(made)), 360.0 - angle)).astype(int)
    assert np.abs(back - pixels).max() <= 4


def planck_gains(kelvin: float) -> NDArray[np.float64]:
    """Planck's law through the colour matching functions (fits of Wyman et al. 2013) to sRGB."""
    nm = np.arange(360.0, 830.0, 1.0)

    def bump(mean: float, low: float, high: float) -> NDArray[np.float64]:
        t = (nm - mean) * np.where(nm < mean, low, high)
        return np.exp(-0.5 * t * t)

    x = 1.056 * bump(599.8, 1 / 37.9, 1 / 31.0) + 0.362 * bump(442.0, 1 / 16.0, 1 / 26.7)
    x -= 0.065 * bump(501.1, 1 / 20.4, 1 / 26.2)
    y = 0.821 * bump(568.8, 1 / 46.9, 1 / 40.5) + 0.286 * bump(530.9, 1 / 16.3, 1 / 31.1)
    z = 1.217 * bump(437.0, 1 / 11.8, 1 / 36.0) + 0.681 * bump(459.0, 1 / 26.0, 1 / 13.8)

    def linear(t: float) -> NDArray[np.float64]:
        power = nm**-5.0 / (np.exp(1.4388e7 / (nm * t)) - 1)
        xyz = np.array([(power * f).sum() for f in (x, y, z)])
        matrix = np.array(
            [[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]]
        )
        return matrix @ (xyz / xyz[1])

    gains = np.maximum(linear(kelvin), 0) / linear(6500.0)
    return gains / (gains @ np.array([0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("kelvin", [2500.0, 3000.0, 4000.0, 5000.0, 8000.0, 12000.0, 20000.0])
def test_temperature_against_planck_s_law(kelvin: float) -> None:
    assert np.allclose(temperature_gains(kelvin), planck_gains(kelvin), atol=0.04)


def test_temperature_pixel_by_pixel() -> None:
    pixels = background(3, (12, 10))
    made = temperature(region(pixels), 3500.0).astype(int)
    gains = temperature_gains(3500.0)
    for row in range(10):
        for column in range(12):
            for i in range(3):
                lit = float(srgb_to_linear(np.array(pixels[row, column, i] / 255.0))) * gains[i]
                encoded = 12.92 * lit if lit <= 0.0031308 else 1.055 * lit ** (1 / 2.4) - 0.055
                assert abs(made[row, column, i] - level(255 * encoded)) <= 1


def test_contrast_0_is_the_mean_and_more_is_more() -> None:
    flat = contrast(region(), 0.0)
    assert (flat == flat[0, 0, 0]).all()
    spread = [measures.contrast(region(contrast(region(), v))) for v in (0.0, 0.5, 1.0)]
    assert spread == sorted(spread) and spread[0] == 0
    assert spread[1] == pytest.approx(spread[2] / 2, rel=0.02)


def test_light_comes_from_its_angle() -> None:
    flat = np.full((40, 60, 3), 100, dtype=np.uint8)
    right = light(region(flat), 0.5)
    above = light(region(flat, light_angle=90.0), 0.5)
    assert right[:, 0].mean() == pytest.approx(50, abs=1)
    assert right[:, -1].mean() == pytest.approx(150, abs=1)
    assert above[0].mean() == pytest.approx(150, abs=2)
    assert above[-1].mean() == pytest.approx(50, abs=2)


def slow_blur(
    pixels: NDArray[np.uint8], alpha: NDArray[np.uint8], sigma: float
) -> NDArray[np.float64]:
    """Gaussian means over the object's own pixels, one pixel at a time."""
    height, width = alpha.shape
    reach = int(3 * sigma + 0.5)
    made = pixels.astype(float)
    for row in range(height):
        for column in range(width):
            total, sums = 0.0, np.zeros(3)
            for y in range(max(0, row - reach), min(height, row + reach + 1)):
                for x in range(max(0, column - reach), min(width, column + reach + 1)):
                    near = math.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * sigma**2))
                    total += near * alpha[y, x]
                    sums += near * alpha[y, x] * pixels[y, x]
            if total > 1e-9:
                made[row, column] = sums / total
    return made


def test_blur_of_an_object_is_a_mean_over_the_object() -> None:
    sprite = cutout(0, (18, 14))
    pixels, alpha = np.ascontiguousarray(sprite[..., :3]), sprite[..., 3]
    made = blur(Region(pixels, alpha, shot(), "foreground.blur"), 1.5)
    solid = alpha > 0
    assert np.abs(made - slow_blur(pixels, alpha, 1.5))[solid].max() < 0.05


@pytest.mark.parametrize("change", [blur, downsample])
def test_a_plain_object_stays_plain_to_its_edge(change) -> None:
    sprite = cutout(0)
    sprite[..., :3][sprite[..., 3] > 0] = (10, 200, 30)
    pixels = np.ascontiguousarray(sprite[..., :3])
    made = as_pixels(change(Region(pixels, sprite[..., 3], shot(), "k"), 5.0))
    assert (made[sprite[..., 3] > 0] == (10, 200, 30)).all()


def test_noise_has_its_standard_deviation() -> None:
    flat = np.full((200, 200, 3), 128, dtype=np.uint8)
    made = noise(region(flat), 0.1)
    assert made.std() == pytest.approx(25.5, rel=0.01)
    assert made.mean() == pytest.approx(128, abs=0.3)
    assert measures.noise_level(region(as_pixels(made))) == pytest.approx(19.1, rel=0.05)


@pytest.mark.parametrize("value", [0.13, 0.29, 0.58])
def test_shot_noise_is_poisson(value: float) -> None:
    photons = value**-2
    flat = np.full((300, 300, 3), 30, dtype=np.uint8)  # dark: next to nothing is cut at white
    counts = shot_noise(region(flat), value).astype(float) / 255 * photons
    mean = 30 / 255 * photons
    assert counts.mean() == pytest.approx(mean, rel=0.03)
    assert counts.var() == pytest.approx(mean, rel=0.05)
    zero = np.zeros((20, 20, 3), dtype=np.uint8)
    assert (shot_noise(region(zero), value) == 0).all()


@given(seed=st.integers(0, 2**63), count=st.integers(1, 9))
def test_draws(seed: int, count: int) -> None:
    taken = Draw(seed, "a").some(4, count)
    assert len(taken) == count and set(taken) <= set(range(4))
    assert len(set(taken[:4])) == min(count, 4)
    assert taken == Draw(seed, "a").some(4, count)
    assert Draw(seed, "a").some(4, 9)[:count] == taken
    assert 0 <= Draw(seed, "b").below(3) < 3


def test_draws_are_frozen() -> None:
    """Sets already published must come out the same for ever."""
    assert Draw(0, "noise").words(4).tolist() == FROZEN_WORDS
    assert Draw(123, "x").uniform(1)[0] == FROZEN_UNIFORM


FROZEN_WORDS = [65037, 21899, 30308, 51032]
FROZEN_UNIFORM = 0.14056840832257878

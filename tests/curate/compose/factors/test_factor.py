"""Tests of :mod:`heldout.curate.compose.factors.factor`."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from heldout.core.errors import ExistsError, NotApplicable, NotFound, UserError
from heldout.curate.compose.factors import (
    Draw,
    Factor,
    Factors,
    Frame,
    Layers,
    Region,
    Stage,
    finish,
)
from heldout.curate.compose.factors import layers as measures
from heldout.curate.compose.factors.colour import srgb_to_linear, temperature_gains
from heldout.curate.compose.factors.layers import as_pixels
from heldout.curate.compose.factors.objects import FILLS, _first, _overlaps
from heldout.curate.compose.plan import Value, place
from heldout.data.testset.columns import ColumnType
from heldout.testing.compose import InMemoryInputs

from .factor_examples import FACTORS, background, cutout, layers, placed, shot, stock

# Occlusion on mask pixels, distractors and copies, backgrounds and ImageNet-9's variants.


INPUTS = stock()


def composed(values: dict[str, Value], inputs: InMemoryInputs = INPUTS, **changes: object) -> Frame:
    """The frame after the stage of composition."""
    one = shot(values, **changes)
    made = layers(one, inputs)
    frame = Frame(shot=one, inputs=inputs, layers=made, shape=made.alpha)
    for key, value in values.items():
        if not FACTORS[key].needs:
            frame = FACTORS[key].apply(frame, value)
    return frame


def counted(frame: Frame) -> float:
    """The hidden share of the mask in the frame, one pixel at a time."""
    whole = hidden = 0.0
    left, top = frame.layers.left, frame.layers.top
    for row in range(frame.shape.shape[0]):
        for column in range(frame.shape.shape[1]):
            y, x = top + row, left + column
            if not (0 <= y < frame.shot.height and 0 <= x < frame.shot.width):
                continue
            weight = float(frame.shape[row, column])
            whole += weight
            seen = float(frame.layers.foreground[row, column, 3])
            for extra in frame.layers.extras:
                i, j = y - extra.top, x - extra.left
                if 0 <= i < extra.pixels.shape[0] and 0 <= j < extra.pixels.shape[1]:
                    seen *= 1 - extra.pixels[i, j, 3] / 255
            hidden += weight - seen
    return hidden / whole


@pytest.mark.parametrize("kind", ["bars", "patches", "border", "cutout"])
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("x", [0.5, 0.05])
def test_occlusion_meets_its_share_of_mask_pixels(kind: str, share: float, x: float) -> None:
    for seed in range(3):
        frame = composed({"occlusion": share, "occlusion_kind": kind}, seed=seed, x=x)
        assert counted(frame) == pytest.approx(share, abs=0.01)
        assert FACTORS["occlusion"].measure(frame) == pytest.approx(counted(frame), abs=1e-6)


@pytest.mark.parametrize("fill", FILLS)
def test_fills(fill: str) -> None:
    frame = composed({"occlusion": 0.5, "occlusion_fill": fill})
    assert counted(frame) == pytest.approx(0.5, abs=0.01)
    assert len(frame.layers.extras) == (fill != "background")


@given(
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
    shape=st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
def test_first_is_within_one_pixel(share: float, seed: int, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(seed)
    weights = (rng.integers(0, 4, shape) * 85).astype(np.uint8)
    weights.flat[0] = 255
    hidden = _first(rng.integers(0, 5, shape).astype(float), weights, share)
    total = float(weights.sum(dtype=int))
    assert abs(float(weights[hidden].sum(dtype=int)) - share * total) <= 127.5 + 1e-6 * total


def test_overlaps_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    mask = (rng.integers(0, 2, (5, 7)) * 255).astype(np.uint8)
    other = (rng.integers(0, 2, (4, 3)) * 255).astype(np.uint8)
    fast = _overlaps(mask, other)
    for i in range(8):
        for j in range(9):
            total = sum(
                int(mask[i - 3 + y, j - 2 + x])
                for y in range(4)
                for x in range(3)
                if other[y, x] and 0 <= i - 3 + y < 5 and 0 <= j - 2 + x < 7
            )
            assert fast[i, j] == pytest.approx(total, abs=0.05)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("limit", [0.0, 0.2])
def test_distractors_leave_the_object_in_sight(count: int, limit: float) -> None:
    for seed in range(5):
        values: dict[str, Value] = {"distractors": count}
        if limit:
            values["extra_overlap"] = limit
        frame = composed(values, seed=seed)
        assert 1 <= len(frame.layers.extras) <= count
        for extra in frame.layers.extras:
            alone = frame.with_layers(extras=[extra])
            assert counted(alone) <= limit + 1e-6
            height, width = extra.pixels.shape[:2]
            assert extra.left >= 0 and extra.left + width <= 96
            assert extra.top >= 0 and extra.top + height <= 80
        seen = np.zeros((80, 96), dtype=bool)
        for extra in frame.layers.extras:
            height, width = extra.pixels.shape[:2]
            part = seen[extra.top : extra.top + height, extra.left : extra.left + width]
            part |= extra.pixels[..., 3] >= 128
        assert FACTORS["distractors"].measure(frame) == pytest.approx(float(seen.mean()))


def test_distractors_are_of_other_classes_and_are_named() -> None:
    for seed in range(10):
        one = shot({"distractors": 3}, foreground=1, seed=seed)
        cutouts, backgrounds = FACTORS.used(one, INPUTS)
        assert cutouts[0] == 1 and backgrounds == (2,)
        assert {INPUTS.cutout_classes[i] for i in cutouts[1:]} <= {"ant", "cow"}


def test_copies_are_of_the_object_itself() -> None:
    frame = composed({"instances": 3, "extra_size": 1.0}, area=0.1)
    assert frame.layers.extras
    for extra in frame.layers.extras:
        if extra.pixels.shape == frame.layers.foreground.shape:
            assert (extra.pixels == frame.layers.foreground).all()
    assert FACTORS.used(shot({"instances": 3}), INPUTS) == ((0,), (2,))


def test_one_class_alone_has_no_distractors() -> None:
    alone = replace(
        INPUTS, cutout_classes=["ant"], backgrounds=[background(0)], background_classes=[None]
    )
    for values in ({"distractors": 1}, {"texture": "other"}):
        with pytest.raises(NotApplicable, match="another class than 'ant'"):
            FACTORS.used(shot(values, background=0), alone)
    with pytest.raises(NotApplicable, match="two backgrounds or more"):
        FACTORS.used(shot({"backdrop": "other"}, background=0), alone)
    with pytest.raises(NotApplicable, match="backgrounds with classes"):
        FACTORS.used(shot({"variant": "mixed_same"}, background=0), alone)


def image_of(values: dict[str, Value], **changes: object) -> np.ndarray:
    one = shot(values, **changes)
    return finish(layers(one, INPUTS), one, INPUTS, factors=FACTORS)[0]


def test_variants_are_imagenet_9_s() -> None:
    alpha = np.zeros((80, 96), dtype=np.uint8)
    alpha[24:56, 28:68] = INPUTS.cutout(0)[..., 3]
    clear, solid = alpha == 0, alpha == 255
    plain, behind = image_of({}), INPUTS.background(2, 96, 80)
    only = image_of({"variant": "only_fg"})
    assert (only[clear] == 0).all() and (only[solid] == plain[solid]).all()
    without = image_of({"variant": "no_fg"})
    assert (without[clear] == plain[clear]).all() and (without[solid] == 0).all()
    box = image_of({"variant": "only_bg_b"}).copy()
    assert (box[24:56, 28:68] == 0).all()
    tiled = image_of({"variant": "only_bg_t"}).copy()
    box[24:56, 28:68] = tiled[24:56, 28:68] = behind[24:56, 28:68]
    assert (box == behind).all() and (tiled == behind).all()


def test_tiles_repeat_the_largest_strip() -> None:
    tiled = image_of({"variant": "only_bg_t"})
    behind = INPUTS.background(2, 96, 80)
    # Beside the box are 28 columns of 80 pixels, above and below it 24 rows of 96, which is more.
    for row in range(32):
        for column in range(40):
            assert (tiled[24 + row, 28 + column] == behind[row % 24, column]).all()


@pytest.mark.parametrize(
    ("foreground", "variant", "wanted"),
    [
        (0, "mixed_same", {"ant"}),
        (1, "mixed_same", {"bee"}),
        (0, "mixed_rand", {"bee", "cow"}),
        (0, "mixed_next", {"bee"}),
        (1, "mixed_next", {"cow"}),
        (3, "mixed_next", {"ant"}),
    ],
)
def test_mixed_variants_take_backgrounds_by_class(
    foreground: int, variant: str, wanted: set[str]
) -> None:
    found = set()
    for seed in range(20):
        one = shot({"variant": variant}, foreground=foreground, seed=seed)
        cutouts, backgrounds = FACTORS.used(one, INPUTS)
        assert cutouts == (foreground,) and len(backgrounds) == 1
        found.add(INPUTS.background_classes[backgrounds[0]])
        image, _ = finish(layers(one, INPUTS), one, INPUTS, factors=FACTORS)
        assert (image[0] == INPUTS.background(backgrounds[0], 96, 80)[0]).all()
    assert found == wanted


@pytest.mark.parametrize(
    "values",
    [
        {"backdrop": "other", "variant": "mixed_rand"},
        {"variant": "mixed_rand", "backdrop": "other"},
        {"backdrop": "mean", "variant": "mixed_next"},
        {"backdrop": "other", "variant": "only_fg"},
        {"backdrop": "black", "variant": "only_fg"},
    ],
)
def test_of_two_swapped_backgrounds_the_one_that_is_shown_counts(values: dict[str, Value]) -> None:
    for seed in range(8):
        one = shot(values, seed=seed)
        image, _ = finish(layers(one, INPUTS), one, INPUTS, factors=FACTORS)
        _, backgrounds = FACTORS.used(one, INPUTS)
        if values["variant"] == "only_fg":
            assert backgrounds == () and not image[0].any()
        else:
            (shown,) = backgrounds
            assert (image[0] == INPUTS.background(shown, 96, 80)[0]).all()


def test_a_class_without_a_background_is_named() -> None:
    lacking = replace(INPUTS, background_classes=["bee", "bee"])
    with pytest.raises(NotApplicable, match="'mixed_same' needs a background of class 'ant'"):
        FACTORS.used(shot({"variant": "mixed_same"}, background=0), lacking)
    with pytest.raises(NotApplicable, match="of another class than 'bee'"):
        FACTORS.used(shot({"variant": "mixed_next"}, foreground=1, background=0), lacking)


def test_backdrops() -> None:
    corner = (0, 0)
    assert image_of({"backdrop": "#0a141e"})[corner].tolist() == [10, 20, 30]
    assert image_of({"backdrop": "white"})[corner].tolist() == [255, 255, 255]
    mean = np.rint(INPUTS.background(2, 96, 80).mean(axis=(0, 1)))
    assert image_of({"backdrop": "mean"})[corner].tolist() == mean.tolist()
    assert FACTORS.used(shot({"backdrop": "black"}), INPUTS) == ((0,), ())
    assert FACTORS.used(shot({"backdrop": "mean"}), INPUTS) == ((0,), (2,))
    _, (other,) = FACTORS.used(shot({"backdrop": "other"}), INPUTS)
    assert other != 2
    shown = image_of({"backdrop": "other"})
    assert (shown[0] == INPUTS.background(other, 96, 80)[0]).all()


def test_a_background_is_swapped_before_its_colours_are_changed() -> None:
    image = image_of({"background.brightness": 0.5, "backdrop": "white"})
    assert image[0, 0].tolist() == [128, 128, 128]


# Any factors together, on any object at any place: an image comes out, and says what it is.


def values_of(one: Factor) -> st.SearchStrategy[Value]:
    if one.options:
        return st.sampled_from(one.options)
    low, high = (0.0, one.period) if one.period else (one.low, one.high)
    low, high = max(low, -300.0), min(high, 300.0)
    if one.key in ("instances", "distractors"):
        high = 5
    if one.whole:
        return st.integers(int(low), int(high))
    return st.floats(low, max(low, high), exclude_max=bool(one.period), exclude_min=one.above)


@st.composite
def mixtures(draw: st.DrawFn) -> dict[str, Value]:
    keys = draw(st.lists(st.sampled_from(list(FACTORS.by_key)), max_size=6, unique=True))
    return FACTORS.without_neutral({key: draw(values_of(FACTORS[key])) for key in keys})


@settings(max_examples=250)
@given(
    values=mixtures(),
    size=st.tuples(st.integers(1, 45), st.integers(1, 45)),
    frame=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    x=st.floats(-0.6, 1.6),
    y=st.floats(-0.6, 1.6),
    seed=st.integers(0, 2**63 - 1),
    opaque=st.booleans(),
)
def test_any_mixture_makes_an_image(
    values: dict[str, Value],
    size: tuple[int, int],
    frame: tuple[int, int],
    x: float,
    y: float,
    seed: int,
    opaque: bool,
) -> None:
    sprite = cutout(0, size)
    if opaque:
        sprite[..., 3] = 255
    stock = InMemoryInputs(
        cutouts=[sprite, cutout(1, (9, 7)), cutout(2, (1, 1))],
        cutout_classes=["ant", "bee", "cow"],
        backgrounds=[background(i, frame) for i in range(3)],
        background_classes=["ant", "bee", "cow"],
    )
    one = shot(values, width=frame[0], height=frame[1], x=x, y=y, seed=seed, background=0)
    box, warp = place(size, frame, x=x, y=y, values=values, factors=FACTORS)
    one = replace(one, box=box, warp=warp, sprite=size)
    before = Layers(sprite, box[0], box[1], stock.background(0, *frame))
    kept = sprite.copy(), before.background.copy()
    image, measured = finish(before, one, stock, factors=FACTORS, keys=values)
    assert image.shape == (frame[1], frame[0], 3) and image.dtype == np.uint8
    assert (sprite == kept[0]).all() and (before.background == kept[1]).all()
    assert 0 <= measured["visible_fraction"] <= 1 + 1e-5
    assert 0 <= measured["mask_fraction"] <= 1 + 1e-5
    again, same = finish(before, one, stock, factors=FACTORS, keys=values)
    assert (image == again).all()
    assert {k: repr(v) for k, v in measured.items()} == {k: repr(v) for k, v in same.items()}
    FACTORS.used(one, stock)


# Colours and sensors against slow, obvious oracles.


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


# Factors by key, configurations, and plug-ins: a file and an installed entry point.


VIGNETTE = """
import numpy as np
from heldout.curate.compose.factors import factor


@factor("vignette", neutral=0.0, values=(0.0, 0.5, 1.0), low=0.0, high=1.0)
def vignette(region, value):
    "Dark corners."
    height, width = region.pixels.shape[:2]
    ys, xs = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)
    return region.pixels * (1 - value * (xs**2 + ys**2) / 2)[:, :, None]
"""


def test_every_factor_is_described() -> None:
    for one in FACTORS:
        assert one.help and not one.help.endswith(".")
        assert one.measured or one.needs
        assert one.values and isinstance(one.column, ColumnType)
        assert all(one.check(value) == value for value in one.values)
        assert set(one.needs) <= set(FACTORS.by_key)
        if one.neutral is not None:
            assert one.check(one.neutral) == one.neutral
        if one.column.order:
            assert set(one.values) <= set(one.column.order)


def test_the_factors_that_must_be_there() -> None:
    both = "brightness contrast gamma temperature hue saturation greyscale light blur noise"
    for name in (both + " shot_noise downsample").split():
        assert {name, f"foreground.{name}", f"background.{name}"} <= set(FACTORS.by_key)
    rest = "size_by aspect flip shear tilt_x tilt_y offset_x patch_phase occlusion distractors"
    rest += " instances backdrop variant texture blending jpeg_quality"
    assert set(rest.split()) <= set(FACTORS.by_key)


def test_stages_act_in_order() -> None:
    assert [stage.name for stage in Stage] == [
        "PLAN", "FOREGROUND", "GEOMETRY", "COMPOSITION", "BACKGROUND", "BLEND", "IMAGE", "ENCODING"
    ]  # fmt: skip
    background = [one.key for one in FACTORS.of_stage(Stage.BACKGROUND)]
    assert background.index("backdrop") < background.index("background.blur")


def test_a_grid_is_checked() -> None:
    grid = FACTORS.checked(
        {
            "image.blur": [0, 2],
            "foreground.brightness": [0.5, 1],
            "background.noise": "default",
            "flip": "horizontal",
        }
    )
    assert list(grid) == ["blur", "foreground.brightness", "background.noise", "flip"]
    assert grid["blur"] == (0.0, 2.0)
    assert grid["flip"] == ("horizontal",)
    assert grid["background.noise"] == FACTORS["noise"].values
    assert FACTORS.checked({"noise": ["default"]}) == {"noise": FACTORS["noise"].values}


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"brigthness": [1]}, "no factor 'brigthness': did you mean brightness"),
        ({"blur": []}, "factor blur has no values: give one or more"),
        ({"blur": [1, 1.0]}, "factor blur has a value twice: give each once"),
        ({"blur": 1, "image.blur": 2}, "factor 'blur' is given twice: give it once"),
        ({"blur": [-1]}, "factor blur: -1 is out of range: give a number from 0 to 200"),
        ({"flip": ["horizntal"]}, "factor flip: no value 'horizntal': did you mean horizontal"),
        (
            {"occlusion_kind": ["bars"]},
            "factor occlusion_kind has no effect without occlusion: "
            "add that factor, or leave this one out",
        ),
        (
            {"distractors": [1.5]},
            "factor distractors: 1.5 is out of range: give a whole number from 0 to 64",
        ),
        ({"blur": [True]}, "factor blur: True is not a number: give a number from 0 to 200"),
    ],
)
def test_a_bad_grid_is_one_line(table: dict[str, object], line: str) -> None:
    with pytest.raises(UserError) as caught:
        FACTORS.checked(table)
    assert caught.value.line == line


def test_columns_have_a_measured_one_beside_them() -> None:
    columns = FACTORS.columns(["hue", "light_angle", "flip"])
    assert list(columns) == ["hue", "hue_measured", "light_angle", "flip", "flip_measured"]
    assert columns["hue"].period == 360
    assert columns["hue_measured"].unit == "hue of the mean colour"


def test_a_factor_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(VIGNETTE)
    found = Factors.load(["mine.py:vignette"], base=tmp_path)
    assert {"vignette", "foreground.vignette", "background.vignette"} <= set(found.by_key)
    assert list(found.identity) == ["mine.py:vignette"]
    inputs = stock()
    plain, dark = shot(), shot({"vignette": 1.0})
    images = [
        finish(layers(one, inputs), one, inputs, factors=found, keys=["vignette"])
        for one in (plain, dark)
    ]
    assert images[1][1]["vignette_measured"] < images[0][1]["vignette_measured"]
    assert (images[1][0][0, 0] == 0).all()
    (tmp_path / "mine.py").write_text(VIGNETTE + "\n")
    again = Factors.load(["mine.py:vignette"], base=tmp_path)
    assert again.identity != found.identity


def test_files_of_one_name_in_two_folders_both_count(tmp_path: Path) -> None:
    specs = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        text = VIGNETTE.replace('"vignette"', f'"vignette_{folder}"')
        (tmp_path / folder / "mine.py").write_text(text)
        specs.append(f"{folder}/mine.py:vignette")
    found = Factors.load(specs, base=tmp_path)
    assert list(found.identity) == ["mine.py:vignette", "two/mine.py:vignette"]
    (tmp_path / "one" / "mine.py").write_text((tmp_path / "one" / "mine.py").read_text() + "\n")
    assert Factors.load(specs, base=tmp_path).identity != found.identity


@pytest.mark.parametrize(
    ("code", "spec", "error", "words"),
    [
        ("x = 3", "mine.py:x", UserError, "is not a factor"),
        ("x = 'blur'", "mine.py:x", UserError, "is not a factor"),
        ("class x:\n    key = 'x'", "mine.py:x", UserError, "is not a factor"),
        ("x = 3", "mine.py:y", NotFound, "has no 'y'"),
        ("x = 3", "other.py:x", UserError, "other.py"),
        ("x = 3", "mine.py", UserError, "does not name a factor"),
        (VIGNETTE.replace('"vignette"', '"blur"'), "mine.py:vignette", ExistsError, "already"),
        (VIGNETTE.replace('"vignette"', '"Vig nette"'), "mine.py:vignette", UserError, "key"),
        (VIGNETTE.replace('"vignette"', '"rotation"'), "mine.py:vignette", UserError, "key"),
        (VIGNETTE.replace("(0.0, 0.5", "(-1.0, 0.5"), "mine.py:vignette", UserError, "-1.0"),
    ],
)
def test_a_bad_plug_in_is_one_line(
    tmp_path: Path, code: str, spec: str, error: type[UserError], words: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(error) as caught:
        Factors.load([spec], base=tmp_path)
    assert words in caught.value.line


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("region.pixels[:2]", "gave pixels of shape"),
        ("region.pixels * float('nan')", "not numbers"),
    ],
)
def test_a_plug_in_that_gives_no_pixels_is_named(tmp_path: Path, result: str, words: str) -> None:
    code = VIGNETTE[: VIGNETTE.index("    height")] + f"    return {result}\n"
    (tmp_path / "mine.py").write_text(code)
    found = Factors.load(["mine.py:vignette"], base=tmp_path)
    one, inputs = shot({"vignette": 1.0}), stock()
    with pytest.raises(UserError, match=words):
        finish(layers(one, inputs), one, inputs, factors=found)


def test_an_installed_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vignette_plugin.py").write_text(VIGNETTE)
    info = tmp_path / "vignette_plugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vignette-plugin\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[heldout.factors]\nvignette = vignette_plugin:vignette\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found = Factors.load()
    finally:
        sys.modules.pop("vignette_plugin", None)
    assert "foreground.vignette" in found.by_key
    assert found.identity == {"vignette_plugin:vignette": "1.2"}


def test_a_class_with_a_matrix_changes_the_outline(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(
        """
import numpy as np
from heldout.curate.compose.factors import Factor, Stage


class Wide(Factor):
    def matrix(self, size, value):
        return np.diag([value, 1.0, 1.0])


wide = Wide(
    key="wide", neutral=1.0, values=(1.0, 2.0), low=0.1, high=10, stage=Stage.GEOMETRY, help="wider"
)
"""
    )
    found = Factors.load(["wide.py:wide"], base=tmp_path)
    one, inputs = placed(shot({"wide": 2.0}), found), stock()
    assert one.box == (8, 24, 80, 32)
    image, measured = finish(layers(one, inputs), one, inputs, factors=found)
    plain = finish(layers(shot(), inputs), shot(), inputs, factors=found)[1]
    assert measured["mask_fraction"] == pytest.approx(2 * plain["mask_fraction"], rel=0.02)
    assert image.shape == (80, 96, 3)

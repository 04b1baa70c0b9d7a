"""Occlusion on mask pixels, distractors and copies, backgrounds and ImageNet-9's variants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.curate.compose.factors import Frame, finish
from heldout.curate.compose.factors.objects import FILLS, _first, _overlaps
from heldout.curate.compose.plan import Value
from heldout.testing.compose import InMemoryInputs

from .factor_examples import FACTORS, background, layers, shot, stock

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

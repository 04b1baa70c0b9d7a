"""What holds for every factor: neutral means nothing changes, pixels stay pixels, chance is fixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.core.errors import UserError
from heldout.curate.compose.factors import Factor, Frame, PixelFactor, finish
from heldout.curate.compose.plan import Value

from .factor_examples import ALL_KEYS, CASES, FACTORS, layers, settings_for, shot, stock

INPUTS = stock()


def render(
    values: dict[str, Value], hidden: int = 0, keys: tuple[str, ...] = (), **changes: object
) -> tuple[np.ndarray, dict[str, float]]:
    inputs = stock(hidden) if hidden else INPUTS
    one = shot(values, **changes)
    return finish(layers(one, inputs), one, inputs, factors=FACTORS, keys=keys)


def pasted() -> np.ndarray:
    image = Image.fromarray(INPUTS.background(2, 96, 80))
    sprite = Image.fromarray(INPUTS.cutout(0))
    image.paste(sprite, (28, 24), sprite)
    return np.asarray(image)


@pytest.mark.parametrize("key", ALL_KEYS)
def test_neutral_is_what_pillow_pastes(key: str) -> None:
    neutral = FACTORS[key].neutral
    values = {} if neutral is None else {key: neutral}
    assert FACTORS.without_neutral(values) == {}
    image, measured = render(values, keys=(key,))
    assert (image == pasted()).all()
    if FACTORS[key].measured and FACTORS[key].key != "jpeg_quality":
        assert np.isfinite(measured[f"{key}_measured"])


@pytest.mark.parametrize(("key", "value"), CASES)
def test_every_value_gives_an_image(key: str, value: Value) -> None:
    """Inputs stay as they are, hidden colours never show, and random numbers follow the seed."""
    values = {**settings_for(key), key: value}
    one = shot(values)
    before = layers(one, INPUTS)
    kept = before.foreground.copy(), before.background.copy()
    image, measured = finish(before, one, INPUTS, factors=FACTORS, keys=(key,))
    assert image.dtype == np.uint8
    assert image.shape == (80, 96, 3)
    assert (before.foreground == kept[0]).all() and (before.background == kept[1]).all()
    assert 0 <= measured["visible_fraction"] <= 1 + 1e-6
    assert 0 <= measured["mask_fraction"] <= 1
    if FACTORS[key].measured and key != "jpeg_quality":
        assert np.isfinite(measured[f"{key}_measured"])
    render({"noise": 0.3, "distractors": 2}, seed=99)
    hidden = render(values, hidden=1, keys=(key,))
    again = render(dict(reversed(list(values.items()))), keys=(key,))
    for other, seen in (hidden, again):
        assert (image == other).all()
        assert measured == seen


@pytest.mark.parametrize("key", [k for k in ALL_KEYS if not FACTORS[k].needs])
def test_some_value_changes_the_image_and_the_measure(key: str) -> None:
    factor: Factor = FACTORS[key]
    if factor.stage.name in ("PLAN", "ENCODING"):
        return  # seen in the size of the sprite, or in the file
    plain, before = render({}, keys=(key,))
    made = [render({key: v}, keys=(key,)) for v in factor.values if v != factor.neutral]
    assert any((image != plain).any() for image, _ in made)
    name = f"{key}_measured"
    assert any(abs(measured[name] - before[name]) > 1e-4 for _, measured in made)


@pytest.mark.parametrize(
    "key", [k for k in ALL_KEYS if isinstance(FACTORS[k], PixelFactor) and "." in k]
)
def test_a_layer_alone_is_changed(key: str) -> None:
    one = FACTORS[key]
    value = next(v for v in one.values[::-1] if v != one.neutral)
    image, _ = render({key: value})
    plain = pasted()
    sprite = np.zeros((80, 96), dtype=bool)
    alpha = INPUTS.cutout(0)[..., 3]
    inside, outside = sprite.copy(), ~sprite
    inside[24:56, 28:68] = alpha == 255
    outside[24:56, 28:68] = alpha == 0
    untouched, touched = (outside, inside) if key.startswith("fore") else (inside, outside)
    assert (image[untouched] == plain[untouched]).all()
    assert (image[touched] != plain[touched]).any()


@pytest.mark.parametrize(
    "values",
    [
        {"noise": 0.2},
        {"shot_noise": 0.3},
        {"distractors": 2},
        {"instances": 3},
        {"texture": "shuffled"},
        {"backdrop": "noise"},
        {"occlusion": 0.5, "occlusion_kind": "patches"},
    ],
)
def test_another_seed_is_another_image(values: dict[str, Value]) -> None:
    assert (render(values)[0] != render(values, seed=8)[0]).any()


def test_the_order_of_a_configuration_does_not_matter() -> None:
    values: dict[str, Value] = {
        "blur": 1.0,
        "foreground.brightness": 1.5,
        "occlusion": 0.3,
        "noise": 0.1,
        "flip": "horizontal",
        "background.hue": 90.0,
        "tilt_y": 30.0,
    }
    first, measured = render(values)
    for turn in range(1, len(values)):
        items = list(values.items())
        again, other = render(dict(items[turn:] + items[:turn]))
        assert (first == again).all()
        assert measured == other


def test_a_factor_does_not_change_what_another_draws() -> None:
    """The same distractors lie in the same places whatever the colours are."""
    plain, _ = render({"distractors": 2})
    dark, _ = render({"distractors": 2, "brightness": 0.5, "noise": 0.0})
    expected = np.rint(plain * 0.5)
    assert (np.abs(dark - expected) <= 1).all()


HOSTILE = [float("nan"), float("inf"), -1e9, 1e12, "", "no such word", None, True, [], {}, b"x"]


@pytest.mark.parametrize("key", ALL_KEYS)
@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_hostile_values_are_refused_in_one_line(key: str, value: object) -> None:
    with pytest.raises(UserError) as caught:
        FACTORS[key].check(value)
    line = str(caught.value)
    assert key in line and "\n" not in line
    assert caught.value.fix


@given(
    seed=st.integers(0, 2**63 - 1),
    key=st.sampled_from([k for k in ALL_KEYS if isinstance(FACTORS[k], PixelFactor)]),
    data=st.data(),
)
def test_alpha_and_outline_stay_under_changes_of_colour(
    seed: int, key: str, data: st.DataObject
) -> None:
    one = FACTORS[key]
    value = data.draw(st.sampled_from([v for v in one.values if v != one.neutral]))
    taken = shot({key: value}, seed=seed)
    before = layers(taken, INPUTS)
    frame = Frame(
        shot=taken, inputs=INPUTS, layers=before, shape=before.alpha, image=before.background
    )
    after = one.apply(frame, value)
    assert (after.layers.foreground[..., 3] == before.foreground[..., 3]).all()
    clear = before.foreground[..., 3] == 0
    assert (after.layers.foreground[clear] == before.foreground[clear]).all()
    assert after.layers.foreground.shape == before.foreground.shape
    assert after.image is not None and after.image.dtype == np.uint8


def test_an_object_that_lies_outside_is_no_fault() -> None:
    for values in ({}, {"occlusion": 0.5}, {"blending": "poisson"}, {"variant": "only_bg_t"}):
        one = shot(values, x=3.0, y=-3.0)
        image, measured = finish(layers(one, INPUTS), one, INPUTS, factors=FACTORS, keys=values)
        assert (image == INPUTS.background(2, 96, 80)).all()
        assert measured["visible_fraction"] == measured["mask_fraction"] == 0

"""Any factors together, on any object at any place: an image comes out, and says what it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.curate.compose.factors import Factor, Layers, finish
from heldout.curate.compose.plan import Value, place
from heldout.testing.compose import InMemoryInputs

from .factor_examples import FACTORS, background, cutout, shot


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

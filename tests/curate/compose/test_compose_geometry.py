"""Sizes, boxes and corners against Pillow and against counting; the original's own constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.curate.compose.plan import (
    inside_fraction,
    place,
    rotated_size,
    sprite_size,
)
from tests.curate.compose import oracle

SIDES = st.integers(1, 300)
RIGHT = st.sampled_from([0, 90, 180, 270, 360, -90, 450])
ANGLES = st.one_of(RIGHT, st.integers(-720, 720), st.floats(-400, 400, allow_nan=False))


@given(SIDES, SIDES, ANGLES)
def test_a_rotated_box_is_the_one_that_pillow_makes(width: int, height: int, angle: float) -> None:
    turned = Image.new("L", (width, height)).rotate(angle, Image.Resampling.NEAREST, expand=True)
    assert rotated_size((width, height), angle) == turned.size


@given(
    st.tuples(SIDES, SIDES),
    st.tuples(st.integers(1, 200), st.integers(1, 200)),
    st.floats(-3, 3),
    st.floats(-3, 3),
    st.floats(0.001, 4),
    ANGLES,
)
def test_a_placement_is_the_oracles(
    size: tuple[int, int],
    frame: tuple[int, int],
    x: float,
    y: float,
    area: float,
    angle: float,
) -> None:
    sprite = oracle.resize(Image.new("L", size), area, frame)
    if sprite is None:
        assert 0 in sprite_size(size, area, frame, {})
        return
    scaled = sprite_size(size, area, frame, {})
    assert scaled == sprite.size
    box, warp = place(rotated_size(scaled, angle), frame, x=x, y=y, values={})
    assert warp is None
    inside = inside_fraction(box, frame)
    turned = sprite.rotate(angle, expand=True)
    corner = oracle.top_left((x, y), turned.size, frame)
    assert box == (*corner, *turned.size)
    assert inside == oracle.pct_inside(corner, turned.size, frame)
    assert 0.0 <= inside <= 1.0


def test_an_object_outside_has_nothing_inside() -> None:
    for x, y in ((2.0, 2.0), (2.0, 0.5), (-2.0, -2.0), (0.5, 9.0)):
        assert inside_fraction(place((36, 27), (100, 100), x=x, y=y, values={})[0], (100, 100)) == 0


def test_constants_of_the_original() -> None:
    def corner(size: tuple[int, int], frame: tuple[int, int], at: float) -> tuple[int, int]:
        return place(size, frame, x=at, y=at, values={})[0][:2]

    assert corner((717, 683), (1000, 1000), 0.5) == (141, 158)
    assert inside_fraction((-50, 0, 100, 80), (500, 500)) == 0.5
    # Corners are cut off toward zero, so rounding turns round left of the image.
    assert corner((3, 3), (100, 100), 0.5) == (48, 48)
    assert corner((3, 3), (100, 100), 0.0) == (-1, -1)


def test_sizes_are_cut_off_and_never_clamped() -> None:
    assert sprite_size((717, 683), 0.5, (512, 512), {}) == (370, 353)
    assert sprite_size((100, 100), 3, (100, 100), {}) == (173, 173)
    assert sprite_size((1000, 2), 0.01, (100, 100), {})[1] == 0


@pytest.mark.shared
def test_means_of_the_published_bagel(shared_data: Path) -> None:
    path = shared_data / "siscore" / "foreground_samples" / "bagel" / "bagel1.png"
    bagel = oracle.load_foreground(path)
    assert bagel.size == (717, 683)
    turned = oracle.rotate(bagel, 11)
    assert turned.size == rotated_size(bagel.size, 11)
    assert np.mean(np.asarray(turned)) == pytest.approx(77.633, abs=0.1)

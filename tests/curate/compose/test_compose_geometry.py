"""Sizes, boxes and corners against Pillow and against counting; the original's own constants."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.curate.compose.placing import (
    boxed,
    inside_fraction,
    rotated_size,
    scaled_size,
    top_left,
)
from tests.curate.compose import oracle

SIDES = st.integers(1, 300)
ANGLES = st.one_of(st.integers(-720, 720), st.floats(-400, 400, allow_nan=False))


@given(SIDES, SIDES, ANGLES)
def test_a_rotated_box_is_the_one_that_pillow_makes(width: int, height: int, angle: float) -> None:
    turned = Image.new("L", (width, height)).rotate(angle, Image.Resampling.NEAREST, expand=True)
    assert rotated_size((width, height), angle) == turned.size


@pytest.mark.parametrize("angle", [0, 90, 180, 270, 360, -90, 450])
def test_right_angles_keep_or_swap_the_sides(angle: int) -> None:
    assert rotated_size((30, 20), angle) == ((30, 20) if angle % 180 == 0 else (20, 30))


@given(SIDES, SIDES, st.integers(1, 359))
def test_a_rotated_box_is_near_its_closed_form(width: int, height: int, angle: int) -> None:
    turn = math.radians(angle)
    wide = width * abs(math.cos(turn)) + height * abs(math.sin(turn))
    high = width * abs(math.sin(turn)) + height * abs(math.cos(turn))
    box = rotated_size((width, height), angle)
    assert abs(box[0] - wide) <= 2 and abs(box[1] - high) <= 2


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
        assert 0 in scaled_size(size, frame, area)
        return
    scaled = scaled_size(size, frame, area)
    assert scaled == sprite.size
    box = boxed(scaled, frame, x=x, y=y, rotation=angle)
    inside = inside_fraction(box, frame)
    turned = sprite.rotate(angle, expand=True)
    corner = oracle.top_left((x, y), turned.size, frame)
    assert box == (*corner, *turned.size)
    assert inside == oracle.pct_inside(corner, turned.size, frame)
    assert 0.0 <= inside <= 1.0


def test_an_object_outside_has_nothing_inside() -> None:
    for x, y in ((2.0, 2.0), (2.0, 0.5), (-2.0, -2.0), (0.5, 9.0)):
        assert inside_fraction(boxed((36, 27), (100, 100), x=x, y=y, rotation=0), (100, 100)) == 0.0


def test_constants_of_the_original() -> None:
    bagel = (717, 683)
    assert top_left(bagel, (1000, 1000), 0.5, 0.5) == (141, 158)
    assert inside_fraction((-50, 0, 100, 80), (500, 500)) == 0.5
    # Corners are cut off toward zero, so rounding turns round left of the image.
    assert top_left((3, 3), (100, 100), 0.5, 0.5) == (48, 48)
    assert top_left((3, 3), (100, 100), 0.0, 0.0) == (-1, -1)


def test_sizes_are_cut_off_and_never_clamped() -> None:
    assert scaled_size((717, 683), (512, 512), 0.5) == (370, 353)
    assert scaled_size((100, 100), (100, 100), 3) == (173, 173)
    assert scaled_size((1000, 2), (100, 100), 0.01)[1] == 0


@pytest.mark.shared
def test_means_of_the_published_bagel(shared_data: Path) -> None:
    path = shared_data / "siscore" / "foreground_samples" / "bagel" / "bagel1.png"
    bagel = oracle.load_foreground(path)
    assert bagel.size == (717, 683)
    turned = oracle.rotate(bagel, 11)
    assert turned.size == rotated_size(bagel.size, 11)
    assert np.mean(np.asarray(turned)) == pytest.approx(77.633, abs=0.1)

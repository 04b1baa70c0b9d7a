"""Boxes in closed form against pixels, and places against their definition."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.compose.factors.shape import warp as warp_sprite
from heldout.curate.compose.plan import Box, Size, Value, Warp, sprite_size
from heldout.curate.compose.plan import place as place_object

from .factor_examples import FACTORS, cutout

shapes = st.tuples(st.integers(1, 60), st.integers(1, 60))
places = st.floats(-0.5, 1.5)
outline_values = st.fixed_dictionaries(
    {},
    optional={
        "flip": st.sampled_from(["horizontal", "vertical", "both"]),
        "shear": st.floats(-2, 2),
        "tilt_x": st.floats(-80, 80),
        "tilt_y": st.floats(-80, 80),
        "offset_x": st.floats(-20, 20),
        "offset_y": st.floats(-20, 20),
        "patch_phase": st.floats(0, 0.99),
        "patch_phase_y": st.floats(0, 0.99),
        "patch_size": st.floats(1, 64),
        "patch_origin": st.floats(-8, 8),
    },
)


class Placed(NamedTuple):
    box: Box
    matrix: np.ndarray
    size: Size
    fraction: tuple[float, float]


def place(size: Size, values: dict[str, Value], x: float = 0.5, y: float = 0.5) -> Placed:
    box, how = place_object(size, (96, 80), x=x, y=y, values=values, factors=FACTORS)
    return Placed(box, *(how or Warp(np.eye(3), size, (0.0, 0.0))))


def warp(sprite: np.ndarray, placed: Placed) -> np.ndarray:
    return warp_sprite(sprite, Warp(*placed[1:]), placed.box[2:])


@given(size=shapes, values=outline_values, x=places, y=places)
def test_the_box_is_the_sprite_s_and_holds_all_of_the_outline(
    size: tuple[int, int], values: dict[str, Value], x: float, y: float
) -> None:
    placed = place(size, values, x, y)
    sprite = np.full((size[1], size[0], 4), 255, dtype=np.uint8)
    assert warp(sprite, placed).shape == (placed.box[3], placed.box[2], 4)
    # The corners, mapped one at a time, lie in the box; and the box is no larger than it must be.
    points = []
    for sx in (-0.5, 0.5):
        for sy in (-0.5, 0.5):
            u, v, w = placed.matrix @ (sx * size[0], sy * size[1], 1.0)
            points.append((u / w, v / w))
            assert w > 0
    for axis in (0, 1):
        reach = max(p[axis] for p in points) - min(p[axis] for p in points)
        extent = placed.size[axis]
        assert reach <= extent + 1e-5
        assert extent < reach + 1 + 1e-5 or extent == 1
        low = min(p[axis] for p in points) + extent / 2 + placed.fraction[axis]
        assert low > -1e-5 and low + reach < placed.box[2 + axis] + 1e-5


@pytest.mark.parametrize(
    "values",
    [
        {"shear": 0.7},
        {"shear": -1.5},
        {"tilt_x": 70.0},
        {"tilt_y": -60.0},
        {"tilt_x": 30.0, "tilt_y": 30.0, "shear": 0.4},
        {"offset_x": 0.5, "offset_y": 0.25},
    ],
)
def test_no_pixel_of_the_object_is_cut_off(values: dict[str, Value]) -> None:
    """The area of the warped mask is the integral of the map's Jacobian over the mask."""
    sprite = cutout(0)
    placed = place((40, 32), values)
    made = warp(sprite, placed)
    ys, xs = np.mgrid[:32, :40] + 0.5
    m = placed.matrix
    depth = m[2, 0] * (xs - 20) + m[2, 1] * (ys - 16) + m[2, 2]
    jacobian = abs(np.linalg.det(m)) / depth**3
    expected = float((sprite[..., 3] / 255.0 * jacobian).sum())
    assert made[..., 3].sum() / 255.0 == pytest.approx(expected, rel=0.02)


def slow_warp(sprite: np.ndarray, placed) -> np.ndarray:
    """Nearest-pixel oracle: where each pixel of the box comes from."""
    height, width = sprite.shape[:2]
    inverse = np.linalg.inv(placed.matrix)
    made = np.zeros((placed.box[3], placed.box[2], 4), dtype=np.uint8)
    for row in range(placed.box[3]):
        for column in range(placed.box[2]):
            u = column + 0.5 - placed.size[0] / 2 - placed.fraction[0]
            v = row + 0.5 - placed.size[1] / 2 - placed.fraction[1]
            x, y, w = inverse @ (u, v, 1.0)
            i, j = math.floor(y / w + height / 2), math.floor(x / w + width / 2)
            if 0 <= i < height and 0 <= j < width:
                made[row, column] = sprite[i, j]
    return made


@pytest.mark.parametrize(
    "values", [{"shear": 0.5}, {"tilt_x": 40.0}, {"tilt_y": -40.0, "flip": "vertical"}]
)
def test_pixels_come_from_where_the_map_says(values: dict[str, Value]) -> None:
    ys, xs = np.mgrid[:64, :80]
    smooth = np.stack([xs * 3, ys * 4, 255 - xs * 3, np.full_like(xs, 255)], -1).astype(np.uint8)
    placed = place((80, 64), values)
    made, slow = warp(smooth, placed).astype(int), slow_warp(smooth, placed).astype(int)
    inner = (made[..., 3] == 255) & (slow[..., 3] == 255)
    assert inner.mean() > 0.4
    assert np.abs(made - slow)[inner].max() <= 8  # the nearest pixel is half a pixel off at most


@pytest.mark.parametrize("value", ["horizontal", "vertical", "both"])
def test_flips_are_exact_and_undo_themselves(value: str) -> None:
    sprite = cutout(1)
    placed = place((40, 32), {"flip": value})
    assert placed.box == place((40, 32), {}).box
    made = warp(sprite, placed)
    across = slice(None, None, -1) if value != "vertical" else slice(None)
    down = slice(None, None, -1) if value != "horizontal" else slice(None)
    assert (made == sprite[down, across]).all()
    assert (warp(made, placed) == sprite).all()


@given(dx=st.floats(-3, 3), dy=st.floats(-3, 3))
def test_offsets_move_the_centre_of_mass(dx: float, dy: float) -> None:
    sprite = cutout(0)
    zero, moved = place((40, 32), {}), place((40, 32), {"offset_x": dx, "offset_y": dy})
    made = warp(sprite, moved)[..., 3].astype(float)
    alpha = sprite[..., 3].astype(float)

    def centre(mask: np.ndarray, corner: int, axis: int) -> float:
        weights = mask.sum(axis=axis)
        return corner + float(weights @ np.arange(len(weights))) / weights.sum()

    assert centre(made, moved.box[0], 0) - centre(alpha, zero.box[0], 0) == pytest.approx(
        dx,
        abs=0.03,  # edges are rounded to eight bits
    )
    assert centre(made, moved.box[1], 1) - centre(alpha, zero.box[1], 1) == pytest.approx(
        dy, abs=0.03
    )


@given(
    size=shapes,
    phase=st.floats(0, 0.999),
    patch=st.floats(2, 64),
    origin=st.floats(-10, 10),
    x=st.floats(0, 1),
)
def test_patch_phase_is_the_phase_of_the_box_centre(
    size: tuple[int, int], phase: float, patch: float, origin: float, x: float
) -> None:
    values: dict[str, Value] = {"patch_phase": phase, "patch_size": patch, "patch_origin": origin}
    placed, zero = place(size, values, x), place(size, {}, x)
    for axis in (0, 1):
        centre = placed.box[axis] + placed.size[axis] / 2 + placed.fraction[axis]
        got = ((centre - origin) / patch - 0.5) % 1.0
        assert min(abs(got - phase), 1 - abs(got - phase)) < 1e-6
        # and it is the nearest such place
        assert abs(centre - (zero.box[axis] + zero.size[axis] / 2)) <= patch / 2 + 1e-6


def test_patch_phases_on_a_known_grid() -> None:
    """Patches of 32 begin at 0: their centres are 16, 48, …; they meet at 0, 32, 64, …"""
    on = place((40, 32), {"patch_phase": 0.0})
    between = place((40, 32), {"patch_phase": 0.5})
    assert (on.box[0] + 20, on.box[1] + 16) == (48, 48)
    assert between.box[0] + 20 in (32, 64) and between.box[1] + 16 == 32
    assert on.fraction == between.fraction == (0.0, 0.0)


@given(
    size=st.tuples(st.integers(50, 900), st.integers(50, 900)),
    area=st.floats(0.05, 1.0),
    fill=st.floats(0.1, 1.0),
    aspect=st.floats(0.5, 2.0),
)
def test_sizes_cover_what_they_say(
    size: tuple[int, int], area: float, fill: float, aspect: float
) -> None:
    frame = (512, 512)
    by_mask = sprite_size(size, area, frame, {"size_by": "mask"}, fill=fill)
    assert by_mask[0] * by_mask[1] * fill / 512**2 == pytest.approx(area, rel=0.05)
    by_side = sprite_size(size, area, frame, {"size_by": "side"}, fill=fill)
    assert max(by_side) == pytest.approx(512 * math.sqrt(area), abs=1.001)
    wide = sprite_size(size, area, frame, {"aspect": aspect}, fill=fill)
    assert wide[0] * wide[1] / 512**2 == pytest.approx(area, rel=0.06)
    assert wide[0] / wide[1] == pytest.approx(size[0] / size[1] * aspect, rel=0.06)


def test_an_empty_mask_cannot_size_anything() -> None:
    with pytest.raises(UserError, match="cannot be sized by its mask"):
        sprite_size((10, 10), 0.1, (64, 64), {"size_by": "mask"}, fill=0.0)

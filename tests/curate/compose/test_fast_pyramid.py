"""Sprites out of blurred levels, against Pillow's own resizing and rotation."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heldout.curate.compose.fast_sprites import (
    STEPS,
    Pyramid,
    blur_of,
    premultiplied,
    step_of,
    turn_of,
)
from heldout.curate.compose.inputs import MemoryCache, Pixels
from tests.curate.compose.compose_examples import cutout, psnr


def pyramid_of(image: Image.Image) -> Pyramid:
    return Pyramid(premultiplied(image), name="one", cache=MemoryCache(1 << 26))


def pillows(image: Image.Image, size: tuple[int, int], degrees: float = 0) -> Pixels:
    """The sprite as the exact renderer makes it: premultiplied, BGRA."""
    made = image.resize(size, Image.Resampling.BILINEAR)
    made = made.rotate(degrees, Image.Resampling.BICUBIC, expand=True)
    return premultiplied(made)


@given(
    width=st.integers(1, 60),
    height=st.integers(1, 60),
    degrees=st.floats(-720, 720, allow_nan=False).filter(lambda d: d % 90 != 0),
)
def test_a_turn_is_pillows(width, height, degrees):
    image = cutout(width, height, 3, soft=True).convert("RGBa")
    matrix, size = turn_of((width, height), degrees)
    by_matrix = image.transform(
        size,
        Image.Transform.AFFINE,
        [float(v) for v in matrix.reshape(-1)],
        Image.Resampling.BICUBIC,
    )
    rotated = image.rotate(degrees, Image.Resampling.BICUBIC, expand=True)
    assert rotated.size == size
    ours, theirs = (
        np.frombuffer(each.tobytes(), np.uint8).astype(int) for each in (by_matrix, rotated)
    )
    # Sums in another order may move a pixel of the outline, or round one differently.
    assert np.mean(np.abs(ours - theirs) > 1) < 0.01


LARGE = [(150, 105), (299, 209), (100, 70), (61, 43), (40, 39), (450, 315)]
FEW = [(1, 1), (2, 31), (31, 2), (7, 5), (24, 17), (500, 1)]


@pytest.mark.parametrize(("sizes", "least"), [(LARGE, 40), (FEW, 44)])
def test_sizes_are_close_to_pillows(sizes, least):
    image = cutout(300, 210, 3)
    pyramid = pyramid_of(image)
    for size in sizes:
        assert psnr(pyramid.upright(size), pillows(image, size)) >= least


@pytest.mark.parametrize("degrees", [1, 33.3, 121, 289, -17])
@pytest.mark.parametrize("size", [(150, 105), (60, 44), (20, 14), (333, 233)])
def test_turned_sprites_are_close_to_pillows(size, degrees):
    image = cutout(300, 210, 3)
    ours, theirs = pyramid_of(image).turned(size, degrees), pillows(image, size, degrees)
    assert ours.shape == theirs.shape
    assert psnr(ours, theirs) >= 36


@pytest.mark.parametrize("degrees", [0, 90, 180, 270, 360, -90, 450])
def test_right_angles_only_move_pixels(degrees):
    pyramid = pyramid_of(cutout(300, 210, 3))
    upright = pyramid.upright((80, 50))
    expected = np.rot90(upright, round(degrees / 90) % 4)
    turned = pyramid.turned((80, 50), degrees)
    assert np.array_equal(turned, expected)
    assert turned.shape[:2] == pillows(cutout(300, 210, 3), (80, 50), degrees).shape[:2]


def test_its_own_size_is_the_cutout():
    image = cutout(70, 50, 3, soft=True)
    assert np.array_equal(pyramid_of(image).upright((70, 50)), premultiplied(image))


def test_premultiplied_is_pillows_with_channels_turned():
    image = cutout(33, 21, 3, soft=True)
    made = premultiplied(image)
    theirs = np.frombuffer(image.convert("RGBa").tobytes(), np.uint8).reshape(21, 33, 4)
    assert np.array_equal(made, theirs[..., [2, 1, 0, 3]])


def test_clear_rows_stay_clear():
    pixels = np.asarray(cutout(200, 160, 3)).copy()
    pixels[:60, :, 3] = 0
    pyramid = pyramid_of(Image.fromarray(pixels))
    assert not pyramid.upright((100, 80))[:28].any()
    assert pyramid.upright((100, 80))[33:].any()


@given(st.floats(1, 40))
def test_blurs_keep_what_they_spread(reduction):
    step = step_of(reduction)
    blur = blur_of(step)
    assert blur.size % 2 == 1
    assert np.array_equal(blur, blur[::-1])
    assert blur.sum() == pytest.approx(1, abs=1e-6)
    assert abs(math.log2(reduction) - step / STEPS) <= 0.5 / STEPS + 1e-9


def test_no_reduction_needs_no_blur_and_half_a_plain_one():
    assert blur_of(step_of(0.3)).tolist() == [1.0]
    assert np.allclose(blur_of(STEPS), [0.25, 0.5, 0.25], atol=1e-6)


@pytest.mark.parametrize("reduction", [1.3, 1.7, 2.0, 2.6, 3.5])
def test_a_blur_before_linear_interpolation_is_nearly_the_triangle(reduction):
    step = step_of(reduction)
    exactly = 2 ** (step / STEPS)
    random = np.random.default_rng(0)
    signal = np.convolve(random.normal(0, 1, 4000), np.ones(4) / 4, "same")
    blurred = np.convolve(signal, blur_of(step), "same")
    places = np.arange(50, 3900, exactly)
    ours = np.interp(places, np.arange(signal.size), blurred)
    offsets = np.arange(signal.size)[:, None] - places
    weights = np.maximum(0, 1 - np.abs(offsets) / exactly)
    theirs = signal @ (weights / weights.sum(axis=0))
    plain = np.interp(places, np.arange(signal.size), signal)
    error = np.sqrt(np.mean((ours - theirs) ** 2))
    assert error < 0.06 * theirs.std()
    assert error < 0.5 * np.sqrt(np.mean((plain - theirs) ** 2))


class Block:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60)), max_size=40))
def test_what_is_kept_stays_within_its_bound(asked):
    kept = MemoryCache(100)
    for key, size in asked:
        made = kept.get((key, size), lambda size=size: Block(size))
        assert made.nbytes == size
        assert kept.nbytes <= 100 or len(kept) == 1
        assert kept.get((key, size), lambda: pytest.fail("made again")) is made


def test_the_least_recently_used_goes_first():
    kept = MemoryCache(2)
    for key in ("a", "b"):
        kept.get(key, lambda: Block(1))
    kept.get("a", lambda: pytest.fail("made again"))
    kept.get("c", lambda: Block(1))
    kept.get("a", lambda: pytest.fail("made again"))
    assert kept.get("b", lambda: Block(7)).nbytes == 7


def test_two_threads_that_make_one_value_get_the_same():
    kept, meeting, found = MemoryCache(1000), threading.Barrier(2), []

    def make() -> Block:
        meeting.wait(10)
        return Block(10)

    threads = [
        threading.Thread(target=lambda: found.append(kept.get("key", make))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]
    assert kept.nbytes == 10

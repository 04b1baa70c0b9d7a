"""DSSIM beside scikit-image's and beside a slow sum of the same whole numbers; what may be skipped."""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from heldout.core.errors import MissingExtra, UserError
from heldout.curate.dedupe.dssim import CpuPairs, dssim, nearest_dssim
from heldout.curate.dedupe.nearest import Nearest

SIDE, WINDOWS, UNIT = 256, 222**2 * 3, 2**40


def pattern(kind: str, period: int, phase: int, height: float, offset: float, noise: int) -> Any:
    """An image (256, 256, 3): a pattern of one period, moved, stretched, with noise on top."""
    y, x = np.mgrid[:SIDE, :SIDE] + phase
    wave = {
        "constant": np.zeros((SIDE, SIDE)),
        "across": x % period / period,
        "down": y % period / period,
        "checks": (x // period + y // period) % 2,
        "half": (x < 128) * 1.0,
        "blobs": np.sin(x / period) * np.cos(y / (period + 3)),
    }[kind]
    value = offset + height * wave[..., None] * [1.0, 0.7, -0.4]
    rough = np.random.default_rng(noise).normal(0, noise, (SIDE, SIDE, 3))
    return np.clip(value + rough, 0, 255).astype(np.uint8)


def one_pixel_off(image: np.ndarray) -> np.ndarray:
    other = image.copy()
    other[100, 100, 1] ^= 1
    return other


@cache
def hostile() -> np.ndarray:
    """Images as rows of pixels: what bounds are tested with, two of them twice."""
    photo = pattern("blobs", 9, 0, 90, 120, 6)
    images = [
        pattern("constant", 1, 0, 0, 0, 0),
        pattern("constant", 1, 0, 0, 255, 0),
        pattern("constant", 1, 0, 0, 3, 0),
        pattern("constant", 1, 0, 0, 128, 90),
        pattern("across", 256, 0, 255, 0, 0),
        pattern("checks", 1, 0, 255, 0, 0),
        pattern("checks", 1, 1, 255, 0, 0),
        pattern("checks", 4, 2, 200, 30, 0),
        pattern("half", 1, 0, 255, 0, 0),
        photo,
        one_pixel_off(photo),
        np.roll(photo, 3, axis=1),
        np.clip(photo * 0.8 + 30, 0, 255).astype(np.uint8),
        255 - photo,
        photo,
        pattern("constant", 1, 0, 0, 255, 0),
    ]
    return np.stack(images).reshape(len(images), -1)


def window_sums(values: np.ndarray) -> np.ndarray:
    total = np.pad(values, ((1, 0), (1, 0), (0, 0))).cumsum(0).cumsum(1)
    return total[35:, 35:] - total[:-35, 35:] - total[35:, :-35] + total[:-35, :-35]


def slow_total(one: np.ndarray, other: np.ndarray) -> int:
    """Σ S in units of 2^-40, from sums in int64."""
    x, y = (image.reshape(SIDE, SIDE, 3).astype(np.int64) for image in (one, other))
    sx, sy, xx, yy, xy = map(window_sums, (x, y, x * x, y * y, x * y))
    c1, c2 = 156125025, 1403978184  # in sixteenths
    above = (16 * 2 * sx * sy + c1) / 16 * ((16 * 2 * (1225 * xy - sx * sy) + c2) / 16)
    spread = 1225 * (xx + yy) - sx**2 - sy**2
    below = (16 * (sx**2 + sy**2) + c1) / 16 * ((16 * spread + c2) / 16)
    return int(np.rint(above / below * UNIT).astype(np.int64).sum())


def slow_dssim(one: np.ndarray, other: np.ndarray) -> float:
    return float(WINDOWS * UNIT - slow_total(one, other)) / (2 * WINDOWS * UNIT)


@cache
def expected_distances() -> np.ndarray:
    images = hostile()
    distances = np.zeros((len(images), len(images)))
    for i in range(len(images)):
        for j in range(i + 1):
            distances[i, j] = distances[j, i] = slow_dssim(images[i], images[j])
    return distances


def slow_nearest(distances: np.ndarray, k: int, bound: float) -> Nearest:
    """The k smallest of each row up to the bound, one after the other."""
    rows = np.full((len(distances), k), -1)
    found = np.full((len(distances), k), math.inf)
    for i, line in enumerate(distances.tolist()):
        order = sorted((value, j) for j, value in enumerate(line) if value <= bound)[:k]
        for place, (value, j) in enumerate(order):
            rows[i, place], found[i, place] = j, value
    return Nearest(rows, found)


def skimage_dssim(one: np.ndarray, other: np.ndarray) -> float:
    from skimage.metrics import structural_similarity

    images = (image.reshape(SIDE, SIDE, 3) for image in (one, other))
    ssim = structural_similarity(*images, win_size=35, channel_axis=2, data_range=255)
    return float(1 - ssim) / 2


def assert_equal(found: Nearest, expected: Nearest) -> None:
    assert found.rows.dtype == np.int64
    np.testing.assert_array_equal(found.rows, expected.rows)
    assert found.distances.tobytes() == expected.distances.tobytes()


def test_equals_scikit_image() -> None:
    images = hostile()
    for i, j in [
        (0, 1),
        (0, 2),
        (3, 9),
        (4, 5),
        (5, 6),
        (7, 8),
        (9, 10),
        (9, 11),
        (9, 12),
        (9, 13),
    ]:
        expected = skimage_dssim(images[i], images[j])
        assert dssim(images[i], images[j]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.shared
def test_equals_scikit_image_on_photos(shared_data: Path) -> None:
    files = sorted((shared_data / "photos").glob("*.JPEG"))[::25]
    photos = [np.asarray(Image.open(file).convert("RGB").resize((256, 256))) for file in files]
    halves = [np.clip(photo * 0.5 + 60, 0, 255).astype(np.uint8) for photo in photos]
    images = np.stack([*photos, *halves]).reshape(16, -1)
    expected = np.array([[skimage_dssim(one, other) for other in images] for one in images[:8]])
    found = nearest_dssim(images[:8], images, 5)
    nearest = slow_nearest(expected, 5, math.inf)
    np.testing.assert_array_equal(found.rows, nearest.rows)
    np.testing.assert_allclose(found.distances, nearest.distances, rtol=1e-6, atol=1e-9)
    near = slow_nearest(expected, 16, 0.25)
    np.testing.assert_array_equal(nearest_dssim(images[:8], images, 16, bound=0.25).rows, near.rows)


def test_identical_images_are_at_exactly_zero() -> None:
    for image in hostile():
        assert dssim(image, image) == 0
    assert dssim(hostile()[9], hostile()[10]) > 0


def test_every_bit_is_that_of_the_slow_sum() -> None:
    images = hostile()
    found = nearest_dssim(images, images, len(images), device="cpu")
    assert_equal(found, slow_nearest(expected_distances(), len(images), math.inf))


@given(
    k=st.integers(1, 20),
    bound=st.sampled_from([math.inf, 1.0, 0.5, 0.25, 0.2205, 1e-3, 0.0, -1.0]) | st.floats(0, 0.6),
    images=st.sampled_from([3, 5, 11, 16]),
    threads=st.integers(1, 4),
)
@settings(max_examples=25)
def test_lists_do_not_depend_on_bound_block_or_threads(
    k: int, bound: float, images: int, threads: int
) -> None:
    found = nearest_dssim(
        hostile(), hostile(), k, bound=bound, device="cpu", threads=threads, memory=images << 20
    )
    assert_equal(found, slow_nearest(expected_distances(), k, bound))


def test_a_bound_that_is_a_distance_keeps_it() -> None:
    distances = expected_distances()
    for bound in np.unique(distances)[::20].tolist():
        found = nearest_dssim(hostile(), hostile(), 16, bound=bound, device="cpu")
        assert_equal(found, slow_nearest(distances, 16, bound))


PATTERNS = st.builds(
    pattern,
    st.sampled_from(["constant", "across", "down", "checks", "half", "blobs"]),
    st.integers(1, 90),
    st.integers(0, 40),
    st.floats(-255, 255),
    st.floats(0, 255),
    st.sampled_from([0, 0, 1, 5, 40]),
)


@given(one=PATTERNS, other=PATTERNS, share=st.floats(-0.02, 0.02))
@example(hostile()[5], hostile()[6], 0.0)
@example(hostile()[9], hostile()[10], 0.0)
@example(hostile()[9], hostile()[13], 0.0)
@example(hostile()[0], hostile()[2], 0.0)
@settings(max_examples=20)
def test_only_what_is_too_far_is_skipped(one: np.ndarray, other: np.ndarray, share: float) -> None:
    """Pairs of two images, and of halves of them: the total, or proof that it is too small."""
    mixed = one.reshape(SIDE, SIDE, 3).copy()
    mixed[128:] = other.reshape(SIDE, SIDE, 3)[128:]
    images = np.stack([image.reshape(SIDE, -1) for image in (one, other, mixed)])
    pairs = CpuPairs(images, images, 2)
    ours, theirs = np.divmod(np.arange(9), 3)
    exact = np.array([slow_total(images[i], images[j]) for i, j in zip(ours, theirs, strict=True)])
    assert (pairs.ceilings.ravel() >= exact / UNIT - 1e-6).all()
    assert pairs.ceilings.max() <= WINDOWS * (1 + 1e-12)
    least = exact / UNIT + share * WINDOWS
    found = pairs.totals(ours, theirs, least)
    skipped = found < -WINDOWS * UNIT
    np.testing.assert_array_equal(found[~skipped], exact[~skipped])
    # What rounding may add is far less than the margin that a search leaves, 2^-10 of a window.
    assert (exact[skipped] / UNIT < least[skipped] + 1e-6).all()


def test_unlike_images_are_skipped_without_their_windows() -> None:
    """The ceilings of noise, patterns and their negatives are far below what 0.25 asks for."""
    images = hostile().reshape(-1, SIDE, SIDE * 3)
    ceilings = CpuPairs(images, images, 1).ceilings / WINDOWS
    truth = 1 - 2 * expected_distances()
    assert (ceilings[truth < 0.4] < 0.5).mean() > 0.6
    assert ceilings[9, 13] < 0.05 and ceilings[8, 1] < 0.7


def test_odd_shapes(tmp_path: Path) -> None:
    images = hostile()
    none = nearest_dssim(images[:0], images, 3)
    assert none.rows.shape == none.distances.shape == (0, 3)
    alone = nearest_dssim(images[:2], images[:0], 3)
    assert (alone.rows == -1).all() and np.isinf(alone.distances).all() and len(alone.rows) == 2
    assert nearest_dssim(images[:2], images, 0).rows.shape == (2, 0)
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    found = nearest_dssim(mapped[::2], mapped, 4, device="cpu")
    assert_equal(found, slow_nearest(expected_distances()[::2], 4, math.inf))
    for wrong in (images[0], images[:, 1:], images.astype(np.float32)):
        with pytest.raises(ValueError, match="not of uint8"):
            nearest_dssim(images, wrong, 1)


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from heldout.curate.dedupe import dssim as module

    images = hostile()[:1]
    module._kernels.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtra, match=r"needs the package numba.*heldout\[dedupe\]"):
        nearest_dssim(images, images, 1, device="cpu")
    with pytest.raises(UserError, match="torch"):
        nearest_dssim(images, images, 1, device="cuda")

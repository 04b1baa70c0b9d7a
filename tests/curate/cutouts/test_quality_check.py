"""Tests of :mod:`heldout.curate.cutouts.quality_check`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from heldout.core.errors import UserError
from heldout.curate.cutouts.quality_check import (
    Cleaning,
    Limits,
    cut,
    fill_holes,
    measure,
    reasons,
    without_stray,
)
from tests.curate.cutouts.scenes import ellipse, scene

# Cleaning: stray parts, holes, edges, the crop; invariants over any matte.


MATTES = arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    elements=st.floats(0, 1, width=32),
)
CLEANINGS = st.builds(
    Cleaning,
    stray=st.sampled_from([0.0, 0.1, 1.0]),
    holes=st.sampled_from([0.0, 0.02, 1.0]),
    soft=st.booleans(),
)


def photo(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)


@given(MATTES, CLEANINGS)
def test_a_cut_out_is_a_tight_crop(matte: np.ndarray, cleaning: Cleaning) -> None:
    pixels = photo(matte.shape)
    made = cut(pixels, matte, cleaning)
    if not made.pixels.size:
        assert made.box == (0, 0, 0, 0)
        return
    left, top, width, height = made.box
    alpha = made.pixels[..., 3]
    assert made.pixels.shape == (height, width, 4)
    assert alpha[0].any() and alpha[-1].any() and alpha[:, 0].any() and alpha[:, -1].any()
    kept = pixels[top : top + height, left : left + width]
    assert np.array_equal(made.pixels[..., :3], kept)
    if not cleaning.soft:
        assert set(np.unique(alpha)) <= {0, 255}


@given(arrays(bool, st.tuples(st.integers(1, 10), st.integers(1, 10))))
def test_all_holes_filled_as_scipy_does(inside: np.ndarray) -> None:
    holes = ndimage.binary_fill_holes(inside)
    filled = fill_holes(inside, 1.0)
    assert not (filled & ~holes).any()  # never more than the holes
    # A hole as large as the object or larger is left; all others are filled.
    labels, count = ndimage.label(holes & ~inside)
    for n in range(1, count + 1):
        hole = labels == n
        assert filled[hole].all() == (hole.sum() < inside.sum())


def test_small_holes_are_filled_and_large_ones_are_real() -> None:
    ring = ellipse(60, 60, share=0.9) & ~ellipse(60, 60, share=0.4)
    ring[30, 8] = False  # a pinhole
    filled = fill_holes(ring, 0.02)
    assert filled[30, 8] and not filled[30, 30]


def test_stray_parts_go() -> None:
    inside = np.zeros((20, 20), bool)
    inside[2:12, 2:12] = True  # 100
    inside[15:18, 15:18] = True  # 9
    inside[0, 19] = True
    assert without_stray(inside, 0.05).sum() == 109
    assert without_stray(inside, 0.1).sum() == 100
    assert without_stray(inside, 0.0).sum() == 110


def test_an_outline_is_left_as_it_is() -> None:
    matte = np.random.default_rng(1).random((12, 15)).astype(np.float32)
    made = cut(photo((12, 15)), matte, Cleaning(soft=True))
    assert np.array_equal(made.pixels[..., 3], np.rint(matte * 255).astype(np.uint8))


def test_the_scene_is_cut_as_drawn() -> None:
    mask = ellipse()
    made = cut(scene(mask), mask.astype(np.float32), Cleaning(stray=0.1, holes=0.02))
    assert (made.pixels[..., 3] > 0).sum() == mask.sum()


# The gate: every kind of bad mask is flagged with its reason, good ones pass.


def _bad() -> dict[str, tuple[np.ndarray, str]]:
    full = np.ones((90, 120), np.float32)
    inset = np.zeros((90, 120), np.float32)
    inset[2:-2, 2:-2] = 1
    dust = np.zeros((90, 120), np.float32)
    dust[10:80:12, 10:110:12] = 1
    dust[11:80:12, 10:110:12] = 1
    frame = np.ones((90, 120), np.float32)
    frame[12:-12, 12:-12] = 0
    half = np.zeros((90, 120), np.float32)
    half[:, :60] = 1
    small = np.zeros((90, 120), np.float32)
    small[40:50, 40:50] = 1
    unsure = np.where(ellipse(), 0.55, 0.45).astype(np.float32)
    three = np.zeros((90, 120), np.float32)
    for left in (10, 50, 90):
        three[20:70, left : left + 20] = 1
    return {
        "empty": (np.zeros((90, 120), np.float32), "no object"),
        "full": (full, "covers 100.0%"),
        "inset rectangle": (inset, "plain rectangle"),
        "dust": (dust, "large parts"),
        "frame": (frame, "of the border"),
        "half": (half, "of the border"),
        "small": (small, "less than 3%"),
        "unsure": (unsure, "edge confidence"),
        "three parts": (three, "in 3 large parts"),
    }


@pytest.mark.parametrize("kind", _bad())
def test_bad_masks_are_flagged(kind: str) -> None:
    matte, says = _bad()[kind]
    found = reasons(measure(matte, short_side=50), Limits())
    assert any(says in reason for reason in found), found


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_good_masks_pass(share: float) -> None:
    matte = ellipse(400, 300, share=share).astype(np.float32)
    assert reasons(measure(matte, short_side=100), Limits()) == ()


def test_two_parts_and_specks_pass() -> None:
    matte = np.zeros((200, 200), np.float32)
    matte[40:160, 20:80] = matte[40:160, 110:180] = 1
    matte[5, 5] = matte[190, 190] = 1
    measures = measure(matte, short_side=120)
    assert measures.parts == 2 and reasons(measures, Limits()) == ()


def test_a_drawn_outline_may_be_small() -> None:
    matte = np.zeros((400, 400), np.float32)
    matte[100:140, 100:140] = 1
    measures = measure(matte, short_side=40)
    assert reasons(measures, Limits()) and not reasons(
        measures, Limits(min_fraction=0.0, max_parts=4)
    )


def test_tiny_cut_outs_are_flagged() -> None:
    assert (
        "pixels on its short side"
        in reasons(measure(ellipse().astype(np.float32), short_side=9), Limits())[0]
    )


def test_numbers_are_what_they_say() -> None:
    matte = np.zeros((10, 20), np.float32)
    matte[:5, :10] = 1
    measures = measure(matte, short_side=5)
    assert measures.mask_fraction == 0.25
    assert measures.border_fraction == round((10 + 4) / (2 * 20 + 2 * 8), 6)
    assert measures.box_fill == 1.0 and measures.parts == 1 and measures.edge_confidence == 1.0


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 40), st.integers(1, 40)),
        elements=st.floats(0, 1, width=32),
    )
)
def test_measures_are_shares(matte: np.ndarray) -> None:
    measures = measure(matte, short_side=20)
    for share in (
        measures.mask_fraction, measures.box_fill, measures.border_fraction, measures.edge_confidence,
    ):  # fmt: skip
        assert 0 <= share <= 1
    assert (measures.parts == 0) == (not (matte >= 0.5).any())


def test_size_changes_little() -> None:
    """The gate measures shape, so that a large photograph is judged as a small one."""
    small = measure(ellipse(500, 400).astype(np.float32), short_side=100)
    large = measure(ellipse(2000, 1600).astype(np.float32), short_side=100)
    assert abs(small.mask_fraction - large.mask_fraction) < 0.002
    assert abs(small.edge_confidence - large.edge_confidence) < 0.1
    assert small.parts == large.parts == 1


def test_limits_that_are_no_shares_are_refused() -> None:
    with pytest.raises(UserError):
        Limits(min_fraction=3)
    with pytest.raises(UserError):
        Limits(min_fraction=0.9, max_fraction=0.1)

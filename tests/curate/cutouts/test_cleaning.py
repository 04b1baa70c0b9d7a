"""Cleaning: stray parts, holes, edges, the crop; invariants over any matte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from heldout.core.errors import UserError
from heldout.curate.cutouts.quality_check import Cleaning, cut, fill_holes, without_stray
from tests.curate.cutouts.scenes import ellipse, scene

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
    feather=st.integers(0, 3),
)


def photo(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)


@given(MATTES, CLEANINGS)
def test_a_cut_out_is_a_tight_crop(matte: np.ndarray, cleaning: Cleaning) -> None:
    pixels = photo(matte.shape)
    made = cut(pixels, matte, cleaning)
    if made.empty:
        assert made.box == (0, 0, 0, 0)
        return
    left, top, width, height = made.box
    alpha = made.pixels[..., 3]
    assert made.pixels.shape == (height, width, 4)
    assert alpha[0].any() and alpha[-1].any() and alpha[:, 0].any() and alpha[:, -1].any()
    kept = pixels[top : top + height, left : left + width]
    assert np.array_equal(made.pixels[..., :3], kept)
    if not cleaning.soft and not cleaning.feather:
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


def test_soft_parts_go_with_their_halo() -> None:
    matte = np.zeros((9, 30), np.float32)
    matte[2:7, 2:12] = 1
    matte[1, 2:12] = 0.3  # the halo of the object
    matte[4, 25] = 1
    matte[4, 24] = matte[4, 26] = 0.4  # the halo of a speck
    made = cut(photo((9, 30)), matte, Cleaning(stray=0.1, soft=True))
    assert made.box == (2, 1, 10, 6)
    assert (made.pixels[0, :, 3] == round(0.3 * 255)).all()


def test_feather_fades_inwards_only() -> None:
    matte = np.zeros((20, 20), np.float32)
    matte[3:17, 3:17] = 1
    made = cut(photo((20, 20)), matte, Cleaning(feather=3))
    alpha = made.pixels[..., 3]
    assert made.box == (3, 3, 14, 14)
    assert alpha[7, :4].tolist() == [64, 128, 191, 255]
    assert alpha[7, 7] == 255


def test_feather_fades_at_the_frame_too() -> None:
    made = cut(photo((9, 9)), np.ones((9, 9), np.float32), Cleaning(feather=1))
    assert made.pixels[0, 4, 3] == 128 and made.pixels[4, 4, 3] == 255


def test_an_outline_is_left_as_it_is() -> None:
    matte = np.random.default_rng(1).random((12, 15)).astype(np.float32)
    made = cut(photo((12, 15)), matte, Cleaning(soft=True))
    assert np.array_equal(made.pixels[..., 3], np.rint(matte * 255).astype(np.uint8))


@pytest.mark.parametrize("field", [{"stray": -0.1}, {"holes": 2.0}, {"feather": -1}])
def test_settings_out_of_range_are_refused(field: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(field))):
        Cleaning(**field)  # type: ignore[arg-type]


def test_the_scene_is_cut_as_drawn() -> None:
    mask = ellipse()
    made = cut(scene(mask), mask.astype(np.float32), Cleaning(stray=0.1, holes=0.02))
    assert (made.pixels[..., 3] > 0).sum() == mask.sum()

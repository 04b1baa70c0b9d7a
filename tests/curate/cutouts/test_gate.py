"""The gate: every kind of bad mask is flagged with its reason, good ones pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from heldout.core.errors import UserError
from heldout.curate.cutouts.photos import Box
from heldout.curate.cutouts.quality_check import Limits, measure, reasons
from tests.curate.cutouts.scenes import ellipse


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


def test_a_box_is_the_region() -> None:
    matte = np.zeros((100, 100), np.float32)
    matte[20:30, 20:40] = 1
    inside = measure(matte, short_side=10, box=Box(10, 10, 40, 40))
    assert inside.mask_fraction == round(200 / 1600, 6)
    relative = measure(matte, short_side=10, box=Box(0.1, 0.1, 0.4, 0.4, relative=True))
    assert relative == inside
    outside = measure(matte, short_side=0, box=Box(200, 200, 5, 5))
    assert reasons(outside, Limits()) == ("no object",)


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

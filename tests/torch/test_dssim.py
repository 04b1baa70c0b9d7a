"""DSSIM by torch: the same bits as compiled code on the CPU, on whatever device there is."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from heldout.core.errors import UserError
from heldout.curate.dedupe.dssim import WINDOWS, CpuPairs, TorchPairs, nearest_dssim
from tests.curate.dedupe.test_dssim import (
    assert_equal,
    expected_distances,
    hostile,
    slow_nearest,
    slow_total,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_totals_and_ceilings_are_those_of_compiled_code() -> None:
    images = hostile().reshape(-1, 256, 768)
    ours, theirs = images[[0, 3, 9]], images[[0, 5, 9, 10, 13]]
    found, expected = TorchPairs(ours, theirs, DEVICE), CpuPairs(ours, theirs, 2)
    # The CPU keeps the greatest V as a float32, rounded up.
    assert (found.ceilings <= expected.ceilings + 1e-4).all()
    np.testing.assert_allclose(found.ceilings, expected.ceilings, rtol=1e-5, atol=1e-3)
    rows = np.divmod(np.arange(15), 5)
    everything = np.full(15, -math.inf)
    totals = found.totals(*rows, everything)
    assert totals.dtype == np.int64
    np.testing.assert_array_equal(totals, expected.totals(*rows, everything))
    assert totals[1] == slow_total(hostile()[0], hostile()[5])
    assert totals.max() == WINDOWS * 2**40  # an image with itself
    assert (totals / 2**40 <= found.ceilings.ravel() + 1e-4).all()
    least = totals / 2**40 + np.arange(-7, 8) * 10_000.0
    left = found.totals(*rows, least)
    skipped = left < -WINDOWS * 2**40
    assert (least[skipped] > totals[skipped] / 2**40).all() and 0 < skipped.sum() < 8
    np.testing.assert_array_equal(left[~skipped], totals[~skipped])


@pytest.mark.parametrize("bound", [math.inf, 0.25, 0.01])
def test_auto_finds_the_same_lists(bound: float) -> None:
    found = nearest_dssim(hostile(), hostile(), 6, bound=bound, device="auto", memory=11 << 20)
    assert_equal(found, slow_nearest(expected_distances(), 6, bound))


@pytest.mark.skipif(DEVICE == "cuda", reason="what is said where there is no GPU")
def test_a_gpu_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UserError, match="no CUDA device"):
        nearest_dssim(hostile(), hostile(), 1, device="cuda")

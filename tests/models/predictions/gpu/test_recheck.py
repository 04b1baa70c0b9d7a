"""The threshold of the recheck: from a sample, with its promise kept on other images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.schema import read, write
from heldout.models.gpu.threshold import (
    Calibration,
    calibrate,
    margin_of,
    tail_probability,
)


def margins_of(logits: np.ndarray) -> np.ndarray:
    return margin_of(logits, logits.argmax(1))


def world(n: int, noise: float, seed: int, heavy: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Exact logits with margins from none to large, and what a noisy path makes of them."""
    rng = np.random.default_rng(seed)
    exact = rng.normal(0, 1, (n, 40)).astype(np.float32)
    exact[np.arange(n), rng.integers(0, 40, n)] += rng.uniform(0, 12, n)
    draws = rng.laplace(0, noise, exact.shape) if heavy else rng.normal(0, noise, exact.shape)
    return (exact + draws).astype(np.float32), exact


@pytest.mark.parametrize("noise", [0.003, 0.03, 0.3])
@pytest.mark.parametrize("heavy", [False, True])
def test_the_promise_is_kept_on_other_images(noise: float, heavy: bool) -> None:
    found = calibrate(*world(512, noise, 1, heavy))
    fast, exact = world(60_000, noise, 2, heavy)
    margins = margins_of(fast)
    differ = fast.argmax(1) != exact.argmax(1)
    staying = differ & ~found.flagged(margins)
    assert staying.mean() <= found.target
    assert staying.mean() <= found.remaining(margins) <= found.target
    assert differ.mean() > 5 * staying.mean()


def test_little_noise_needs_few_rechecks() -> None:
    found = calibrate(*world(512, 0.003, 1))
    assert found.rechecked < 0.02
    more = calibrate(*world(512, 0.3, 1))
    assert more.rechecked > 5 * found.rechecked


def test_equal_paths_recheck_nothing() -> None:
    _, exact = world(300, 0.1, 5)
    found = calibrate(exact, exact)
    assert found.threshold == 0 and found.differing == 0
    assert not found.flagged(margins_of(exact)).any()


def test_a_small_sample_rechecks_everything() -> None:
    found = calibrate(*world(60, 0.01, 1))
    assert found.threshold is None
    assert found.flagged(np.array([1e9])).all()


def test_what_is_no_number_is_always_rechecked() -> None:
    fast, exact = world(300, 0.01, 1)
    fast[:3] = np.nan
    found = calibrate(fast, exact)
    assert found.sample == 297
    assert found.flagged(np.array([np.nan, 1e9])).tolist() == [True, False]


def test_margin_by_hand() -> None:
    fast, exact = np.array([[3.0, 2.0, 0.0]]), np.array([[2.5, 2.75, 0.0]])
    assert margins_of(fast).tolist() == [1.0]
    assert margin_of(exact, np.array([0])).tolist() == [-0.25]


@given(st.floats(0, 5), st.floats(0.001, 1), st.floats(0.001, 2), st.floats(0, 20))
def test_tail_is_a_probability_that_falls(
    knee: float, share: float, scale: float, loss: float
) -> None:
    at = tail_probability(np.array([loss, loss + 0.5]), knee=knee, share=share, scale=scale)
    assert 0 <= at[1] <= at[0] <= 1
    assert tail_probability(np.array([knee]), knee=knee, share=share, scale=scale)[
        0
    ] == pytest.approx(share)


def test_written_and_read_back(tmp_path: Path) -> None:
    for n in (60, 300):
        found = calibrate(*world(n, 0.05, 1))
        write(tmp_path / "calibration.json", found)
        assert read(tmp_path / "calibration.json", Calibration) == found

"""Intervals of calibration errors and of their differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from heldout.stats.calibration import CalibrationErrors, binned_gaps
from heldout.stats.intervals import t_quantile


def errors(*value: float, seed: int = 0) -> CalibrationErrors:
    """Models whose replicates have a standard deviation of 0.02 and do not go together."""
    drawn = np.random.default_rng(seed).standard_normal((500, len(value)))
    drawn, _ = np.linalg.qr(drawn - drawn.mean(axis=0))
    drawn = np.asarray(value) + drawn * 0.02 * np.sqrt(499)
    found = np.asarray(value)
    return CalibrationErrors(1000, found, found, drawn, 999.0)


@pytest.mark.parametrize(
    ("first", "second", "falls_first", "falls_second"),
    [(0.3, 0.2, None, None), (0.0, 0.0, 0.02, 0.02), (-0.01, 0.015, 0.02, 0.035)],
)
def test_an_error_near_0_does_not_fall_far(
    first: float, second: float, falls_first: float | None, falls_second: float | None
) -> None:
    """By itself and a standard error at most, so a difference of two such has less room."""
    reach = 0.02 * float(t_quantile(0.95, 999.0))
    low, high = (limit[0, 1] for limit in errors(first, second).pairs().limits(0.05))
    difference = first - second
    assert low == pytest.approx(difference - np.hypot(falls_first or reach, reach))
    assert high == pytest.approx(difference + np.hypot(reach, falls_second or reach))


def test_limits_leave_out_0_where_p_says_so_and_turn_with_the_models() -> None:
    rng = np.random.default_rng(3)
    for seed in range(50):
        tests = errors(*rng.uniform(-0.03, 0.12, 4), seed=seed).pairs()
        for tail in (0.05, 0.3):
            low, high = tests.limits(tail)
            assert (((low > 0) | (high < 0)) == (tests.p <= tail)).all()
            assert ((low <= tests.difference) & (tests.difference <= high)).all()
            np.testing.assert_array_equal(low, -high.T)


def test_two_calibrated_models_have_a_difference_of_0_within_a_short_interval() -> None:
    """The median width was 1.4 times what the estimate spans."""
    rng, n, found, limits = np.random.default_rng(11), 1000, [], []
    for _ in range(300):
        confidence = np.stack([rng.uniform(0.8, 1.0, n), rng.uniform(0.3, 1.0, n)], axis=1)
        values = (rng.random((n, 2)) < confidence) - confidence
        bins = np.minimum((confidence * 15).astype(int), 14)
        tests = binned_gaps(values, bins, 15).errors(rng, 100).pairs()
        found.append(tests.difference[0, 1])
        limits.append([limit[0, 1] for limit in tests.limits(0.05)])
    low, high = np.transpose(limits)
    span = np.subtract(*np.quantile(found, [0.975, 0.025]))
    assert np.median(high - low) <= 1.3 * span
    assert np.mean((low <= 0) & (high >= 0)) >= 0.93


@pytest.mark.parametrize(
    ("n", "films", "sharp", "gap"),
    [(100, 0, 8.0, 0.0), (1000, 0, 1.0, 0.0), (1000, 0, 1.0, 0.03), (1200, 60, 1.0, 0.03)],
)
def test_limits_hold_the_true_error_and_are_short(
    n: int, films: int, sharp: float, gap: float
) -> None:
    """At an error of 0, near it, and in clusters: 93 % of 300, at most 1.3 times what estimates span."""
    rng, film = np.random.default_rng(4), np.arange(n) // 20
    found, limits = [], []
    for _ in range(300):
        confidence = 0.4 + 0.6 * rng.beta(sharp, 1, n)
        level = rng.standard_normal(n)
        if films:
            level = np.sqrt(0.8) * level + np.sqrt(0.2) * rng.standard_normal(films)[film]
        hit = level < ndtri(np.clip(confidence - gap, 1e-9, 1))
        bins = np.minimum((confidence * 15).astype(int), 14)
        gaps = binned_gaps(
            (hit - confidence)[:, None], bins[:, None], 15, clusters=film if films else None
        )
        found.append(gaps.debiased()[0])
        limits.append([limit[0] for limit in gaps.limits(rng, replicates=100)])
    low, high = np.transpose(limits)
    span = np.subtract(*np.quantile(found, [0.975, 0.025]))
    assert np.mean((low <= gap) & (gap <= high)) >= 0.93
    assert np.median(high - low) <= 1.3 * span


def test_limits_of_a_model_do_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, (500, 3))
    values = (rng.random((500, 3)) < confidence) - confidence
    bins = np.minimum((confidence * 15).astype(int), 14)
    together = binned_gaps(values, bins, 15).limits(np.random.default_rng(1))
    alone = binned_gaps(values[:, 1:2], bins[:, 1:2], 15).limits(np.random.default_rng(1))
    for all_of_them, one in zip(together, alone, strict=True):
        assert all_of_them[1] == one[0]


def test_limits_where_nothing_varies_or_all_is_wrong() -> None:
    sure = binned_gaps(np.zeros((40, 1)), np.full((40, 1), 14), 15)
    assert [limit.tolist() for limit in sure.limits(np.random.default_rng(0))] == [[0.0], [0.0]]
    wrong = binned_gaps(np.linspace(-1, -0.99, 40)[:, None], np.full((40, 1), 14), 15)
    low, high = wrong.limits(np.random.default_rng(0))
    assert 0.9 < low[0] < high[0] == 1.0

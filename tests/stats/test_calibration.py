"""Intervals of differences of calibration errors against limits worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from heldout.stats.calibration import CalibrationErrors, binned_gaps
from heldout.stats.intervals import t_quantile


def errors(*value: float, seed: int = 0) -> CalibrationErrors:
    """Models whose replicates have a standard deviation of 0.02 and do not go together."""
    drawn = np.random.default_rng(seed).standard_normal((500, len(value)))
    drawn, _ = np.linalg.qr(drawn - drawn.mean(axis=0))
    drawn = np.asarray(value) + drawn * 0.02 * np.sqrt(499)
    found = np.asarray(value)
    return CalibrationErrors(1000, found, found, drawn.std(axis=0, ddof=1), drawn, 999.0)


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

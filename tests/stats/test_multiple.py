from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heldout.core.errors import NotApplicable, UserError
from heldout.stats.intervals import clopper_pearson
from heldout.stats.multiple import holm, max_t, simultaneous_level, worst_slice_interval

p_values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def slow_holm_rejects(p: list[float], alpha: float) -> list[bool]:
    """Step down from the smallest p, stop at the first that does not pass."""
    rejected = [False] * len(p)
    left = sorted(range(len(p)), key=lambda index: p[index])
    for step, index in enumerate(left):
        if p[index] * (len(p) - step) > alpha:
            break
        rejected[index] = True
    return rejected


@given(p=p_values, alpha=st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_as_the_procedure_does(p, alpha) -> None:
    assert (holm(p) <= alpha).tolist() == slow_holm_rejects(p, alpha)


@given(p=p_values, seed=st.integers(0, 99))
def test_adjustments_follow_the_order_of_the_tests(p, seed) -> None:
    values = np.array(p)
    shuffle = np.random.default_rng(seed).permutation(len(p))
    adjusted = holm(values)
    np.testing.assert_allclose(holm(values[shuffle]), adjusted[shuffle])
    assert (adjusted >= values - 1e-15).all() and (adjusted <= 1).all()
    assert (np.diff(adjusted[np.argsort(values, kind="stable")]) >= 0).all()


def test_adjustments_of_nothing_and_of_nonsense() -> None:
    assert holm([]).shape == (0,)
    assert holm([0.3]).tolist() == [0.3]
    for bad in ([1.2], [-0.1], [float("nan")], [[0.1]]):
        with pytest.raises(ValueError, match="p values"):
            holm(bad)


def test_simultaneous_level() -> None:
    assert simultaneous_level(0.95, 1) == pytest.approx(0.95)
    assert simultaneous_level(0.95, 20) == pytest.approx(0.9975)
    with pytest.raises(NotApplicable):
        simultaneous_level(0.95, 0)
    with pytest.raises(UserError):
        simultaneous_level(1.5, 3)


def test_max_t_is_between_one_and_bonferroni() -> None:
    draws = np.random.default_rng(0).standard_normal((20_000, 10))
    apart = max_t(np.zeros(10), draws)
    assert apart.high.mean() == pytest.approx(stats.norm.ppf((1 + 0.95**0.1) / 2), rel=0.02)
    together = max_t(np.zeros(10), np.repeat(draws[:, :1], 10, axis=1))
    assert together.high.mean() == pytest.approx(1.96, rel=0.03)
    still = max_t(np.array([0.0, 0.5]), np.column_stack([draws[:, 0], np.full(20_000, 0.5)]))
    assert still.width[1] == 0
    with pytest.raises(ValueError, match="replicates"):
        max_t([0.0], draws)
    with pytest.raises(NotApplicable):
        max_t([], np.zeros((5, 0)))


slices = st.lists(
    st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=1,
    max_size=20,
)


@settings(max_examples=100)
@given(counts=slices)
def test_worst_slice_by_its_definition(counts) -> None:
    k, n = (np.array(column) for column in zip(*counts, strict=True))
    worst = worst_slice_interval(k, n)
    value = k / n
    assert worst.value == value.min() == value[worst.index]
    m = len(k)
    alone, shared = clopper_pearson(k, n), clopper_pearson(k, n, level=1 - 0.05 / m)
    assert worst.interval.low == pytest.approx(alone.low.min(), abs=1e-12)
    assert worst.interval.high == pytest.approx(shared.high.min(), abs=1e-9)
    assert worst.slice_interval.low == pytest.approx(shared.low[worst.index], abs=1e-9)
    assert worst.interval.low <= worst.value <= worst.interval.high


def test_worst_slice_ties_and_refusals() -> None:
    assert worst_slice_interval([1, 2, 4], [2, 4, 8]).index == 2  # the larger of equals
    assert worst_slice_interval([2, 2], [4, 4]).index == 0  # then the earlier
    with pytest.raises(NotApplicable, match="no slice"):
        worst_slice_interval([], [])
    with pytest.raises(ValueError):
        worst_slice_interval([3], [2])
    with pytest.raises(ValueError, match="shape"):
        worst_slice_interval([1, 2], [3])


def test_one_slice_is_clopper_pearson() -> None:
    worst = worst_slice_interval([30], [40])
    expected = clopper_pearson(30, 40)
    for interval in (worst.interval, worst.slice_interval):
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))

"""Tests of :mod:`heldout.stats.multiple`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heldout.core.errors import NotApplicable, UserError
from heldout.stats.intervals import clopper_pearson
from heldout.stats.multiple import (
    holm,
    max_t,
    rank_intervals,
    simultaneous_level,
    worst_slice_interval,
)

# multiple


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
    shared = clopper_pearson(k, n, level=1 - 0.05 / m)
    assert worst.interval.low == pytest.approx(shared.low[worst.index], abs=1e-9)
    assert worst.interval.high == pytest.approx(shared.high[worst.index], abs=1e-9)
    assert worst.interval.low <= worst.value <= worst.interval.high


def test_worst_slice_ties_and_refusals() -> None:
    assert worst_slice_interval([1, 2, 4], [2, 4, 8]).index == 2  # the larger of equals
    assert worst_slice_interval([2, 2], [4, 4]).index == 0  # then the earlier
    with pytest.raises(NotApplicable, match="no slice"):
        worst_slice_interval([], [])
    with pytest.raises(ValueError):
        worst_slice_interval([3], [2])


def test_one_slice_is_clopper_pearson() -> None:
    interval = worst_slice_interval([30], [40]).interval
    expected = clopper_pearson(30, 40)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


# ranks


def simulated(seed: int, n: int, accuracies: list[float]) -> np.ndarray:
    generator = np.random.default_rng(seed)
    shared = generator.random((n, 1))
    own = generator.random((n, len(accuracies)))
    return (0.8 * shared + 0.2 * own) < np.array(accuracies)


def slow_better(correct: np.ndarray, level: float) -> np.ndarray:
    """Every ordered pair by scipy's binomial test, then Holm."""
    models = correct.shape[1]
    pairs = list(itertools.permutations(range(models), 2))
    p = []
    for i, j in pairs:
        a, b = (
            int((correct[:, i] & ~correct[:, j]).sum()),
            int((correct[:, j] & ~correct[:, i]).sum()),
        )
        p.append(stats.binomtest(a, a + b, alternative="greater").pvalue if a + b else 1.0)
    better = np.zeros((models, models), dtype=bool)
    for (i, j), adjusted in zip(pairs, holm(p), strict=True):
        better[i, j] = adjusted <= 1 - level
    return better


@pytest.mark.parametrize("seed", range(5))
def test_equals_a_loop_over_pairs(seed) -> None:
    correct = simulated(seed, 300, [0.3, 0.5, 0.55, 0.56, 0.8])
    ranks = rank_intervals(correct, list("abcde"))
    better = slow_better(correct, 0.95)
    np.testing.assert_array_equal(ranks.better, better)
    assert ranks.low.tolist() == [1 + int(better[:, i].sum()) for i in range(5)]
    assert ranks.high.tolist() == [5 - int(better[i].sum()) for i in range(5)]


def test_ties_go_by_name() -> None:
    correct = np.array([[1, 0, 1], [0, 1, 1]], dtype=bool)
    ranks = rank_intervals(correct, ["beta", "alpha", "gamma"])
    assert ranks.rank.tolist() == [3, 2, 1]
    assert ranks.low.tolist() == [1, 1, 1] and ranks.high.tolist() == [3, 3, 3]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), models=st.integers(1, 7), kind=st.integers(0, 2))
def test_properties(seed, models, kind) -> None:
    generator = np.random.default_rng(seed)
    correct = simulated(seed, 200, list(generator.random(models)))
    names = [f"m{index}" for index in range(models)]
    options = [
        {},
        {"clusters": np.arange(200) // 8},
        {"method": "max-t", "rng": np.random.default_rng(0)},
    ][kind]
    ranks = rank_intervals(correct, names, **options)
    assert sorted(ranks.rank.tolist()) == list(range(1, models + 1))
    assert (ranks.low <= ranks.rank).all() and (ranks.rank <= ranks.high).all()
    assert not (ranks.better & ranks.better.T).any()
    gaps = ranks.value[:, None] - ranks.value
    assert (gaps[ranks.better] > 0).all()
    if kind < 2:
        order = generator.permutation(models)
        other = rank_intervals(correct[:, order], [names[i] for i in order], **options)
        assert other.rank.tolist() == ranks.rank[order].tolist()
        assert other.low.tolist() == ranks.low[order].tolist()
        assert other.high.tolist() == ranks.high[order].tolist()


def test_clusters_make_ranks_humbler() -> None:
    correct = np.repeat(simulated(3, 40, [0.5, 0.6, 0.7]), 10, axis=0)  # ten copies of 40 images
    images = rank_intervals(correct, list("abc"))
    clusters = rank_intervals(correct, list("abc"), clusters=np.arange(400) // 10)
    assert (clusters.high - clusters.low).sum() >= (images.high - images.low).sum()
    assert images.better.sum() > clusters.better.sum()


def test_t_test_path_equals_scipy() -> None:
    values = np.random.default_rng(2).random((120, 3)) + np.array([0.0, 0.05, 0.2])
    ranks = rank_intervals(values, list("abc"))
    pairs = list(itertools.permutations(range(3), 2))
    p = [
        stats.ttest_rel(values[:, i], values[:, j], alternative="greater").pvalue for i, j in pairs
    ]
    for (i, j), adjusted in zip(pairs, holm(p), strict=True):
        assert ranks.better[i, j] == (adjusted <= 0.05)


def test_max_t_separates_at_least_as_many() -> None:
    correct = simulated(1, 2000, list(np.linspace(0.4, 0.7, 12)))
    names = [f"m{index:02d}" for index in range(12)]
    exact = rank_intervals(correct, names)
    joint = rank_intervals(correct, names, method="max-t", rng=np.random.default_rng(0))
    assert joint.better.sum() >= exact.better.sum()
    with pytest.raises(ValueError, match="rng"):
        rank_intervals(correct, names, method="max-t")


def test_identical_models_and_constant_gaps() -> None:
    base = simulated(4, 100, [0.6])[:, 0]
    ranks = rank_intervals(np.column_stack([base, base]), ["b", "a"])
    assert ranks.rank.tolist() == [2, 1] and ranks.high.tolist() == [2, 2]
    values = np.random.default_rng(0).random(100)
    shifted = rank_intervals(np.column_stack([values, values + 0.5]), ["a", "b"])
    assert shifted.better.tolist() == [[False, False], [True, False]]
    joint = rank_intervals(
        np.column_stack([values, values + 0.5]),
        ["a", "b"],
        method="max-t",
        rng=np.random.default_rng(0),
    )
    assert joint.better.tolist() == [[False, False], [True, False]]


def test_refusals() -> None:
    with pytest.raises(NotApplicable):
        rank_intervals(np.zeros((0, 2)), ["a", "b"])


def test_counts_stay_exact_over_blocks(monkeypatch) -> None:
    correct = simulated(9, 1000, [0.4, 0.5, 0.6])
    whole = rank_intervals(correct, list("abc"))
    monkeypatch.setattr("heldout.stats.multiple._ROWS", 64)
    np.testing.assert_array_equal(rank_intervals(correct, list("abc")).better, whole.better)


@pytest.mark.parametrize("method", ["holm", "max-t"])
def test_a_handful_of_equal_differences_proves_nothing(method) -> None:
    gaps = np.array([[1.0, 0.5, 0.0]])
    few = rank_intervals(
        np.repeat(gaps, 3, axis=0), ["a", "b", "c"], method=method, rng=np.random.default_rng(0)
    )
    assert few.rank.tolist() == [1, 2, 3]
    assert few.low.tolist() == [1, 1, 1] and few.high.tolist() == [3, 3, 3]
    many = rank_intervals(
        np.repeat(gaps, 12, axis=0), ["a", "b", "c"], method=method, rng=np.random.default_rng(0)
    )
    assert many.low.tolist() == many.high.tolist() == [1, 2, 3]


def test_equal_means_of_shares_are_a_tie_whatever_their_rounding() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        shares = rng.choice([0, 1 / 3, 2 / 3, 1], 200)
        found = rank_intervals(np.stack([rng.permutation(shares), shares], axis=1), ["b", "a"])
        assert found.rank.tolist() == [2, 1]

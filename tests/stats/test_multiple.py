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
    joint_p,
    pair_tests,
    rank_intervals,
    shared_tail,
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


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_proven_lies_between_bonferroni_and_each_pair_alone(seed) -> None:
    """Every pair by scipy's binomial test, half of the observed outcome counted."""
    correct = simulated(seed, 300, [0.3, 0.5, 0.55, 0.56, 0.8])
    ranks = rank_intervals(correct, list("abcde"), rng=rng())
    for i, j in itertools.permutations(range(5), 2):
        a, b = (
            int((correct[:, i] > correct[:, j]).sum()),
            int((correct[:, j] > correct[:, i]).sum()),
        )
        more = stats.binomtest(a, a + b, alternative="greater").pvalue
        p = 2 * (more - 0.5 * stats.binom.pmf(a, a + b, 0.5))
        assert ranks.better[i, j] >= (p <= 0.05 / 10)
        assert ranks.better[i, j] <= (p <= 0.05)
    better = ranks.better
    assert ranks.low.tolist() == [1 + int(better[:, i].sum()) for i in range(5)]
    assert ranks.high.tolist() == [5 - int(better[i].sum()) for i in range(5)]


# pairs


CLUSTERS = {"plain": None, "even": np.arange(240) // 20, "uneven": np.arange(240) ** 2 // 4800}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    models=st.integers(2, 6),
    kind=st.sampled_from(list(CLUSTERS)),
    shares=st.booleans(),
    level=st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
def test_intervals_leave_out_nothing_where_p_is_small(seed, models, kind, shares, level) -> None:
    """Interval and p agree for each pair alone, and corrected together."""
    data = simulated(seed, 240, list(rng(seed).uniform(0.2, 0.9, models)))
    values = data * rng(seed).choice([0.5, 1.0], 240)[:, None] if shares else data
    tests = pair_tests(values, rng=rng(1), clusters=CLUSTERS[kind])
    upper = np.triu_indices(models, 1)
    law = tests.smallest_p(~np.eye(models, dtype=bool))
    tail = shared_tail([law], level)
    for p, at in ((tests.p, 1 - level), (joint_p(tests.p, [law]), tail)):
        low, high = tests.limits(at)
        excluded = ((low > 0) | (high < 0))[upper]
        assert excluded.tolist() == (p <= 1 - level)[upper].tolist()
    means = values.mean(axis=0)
    np.testing.assert_allclose(tests.difference, means[:, None] - means, atol=1e-12)
    np.testing.assert_allclose(tests.p, tests.p.T)
    assert (low <= tests.difference + 1e-9).all() and (tests.difference <= high + 1e-9).all()
    np.testing.assert_allclose(low, -high.T, atol=1e-9)


def test_the_score_test_is_about_the_paired_t_test() -> None:
    a, b = rng(1).random(400), rng(2).random(400)
    tests = pair_tests(np.stack([a, b], axis=1), rng=rng(), bounds=None)
    expected = stats.ttest_rel(a, b)
    assert tests.p[0, 1] == pytest.approx(expected.pvalue, rel=0.05)
    limits = expected.confidence_interval(0.95)
    low, high = tests.limits(0.05)
    assert (low[0, 1], high[0, 1]) == pytest.approx((limits.low, limits.high), abs=2e-3)


def test_the_law_of_the_smallest_p_is_that_of_all_turns_of_signs() -> None:
    """Eight clusters have 256: the drawn law against all of them."""
    data = rng(3).random((80, 4)) + np.array([0, 0.02, 0, 0.05])
    clusters = np.arange(80) // 10
    sums = data.reshape(8, 10, 4).sum(axis=1)
    turns = np.array(list(itertools.product([1, -1], repeat=8)))
    pairs = list(itertools.combinations(range(4), 2))
    gaps = np.stack([sums[:, i] - sums[:, j] for i, j in pairs], axis=1)
    largest = np.abs(turns @ gaps / np.sqrt(np.square(gaps).sum(axis=0))).max(axis=1)
    law = pair_tests(data, rng=rng(), clusters=clusters).smallest_p(~np.eye(4, dtype=bool))
    for p in (0.02, 0.05, 0.1, 0.3):
        exact = min(np.mean(2 * stats.norm.sf(largest) <= p), 6 * p)
        assert law.chance(p) == pytest.approx(max(exact, p), abs=0.03)


def test_a_difference_that_never_varies_is_a_sign_test() -> None:
    values = np.full((12, 2), 0.5) + np.array([0.2, 0.0])
    tests = pair_tests(values, rng=rng())
    assert tests.p[0, 1] == pytest.approx(2 * stats.norm.sf(np.sqrt(12)), rel=1e-6)
    assert pair_tests(values[:4], rng=rng()).p[0, 1] == pytest.approx(2 * 0.5**4)
    same = pair_tests(np.ones((50, 2)), rng=rng(), weights=np.ones(50))
    low, high = same.limits(0.05)
    assert same.p[0, 1] == 1.0
    assert -low[0, 1] == high[0, 1] == pytest.approx(1 - 0.025 ** (1 / 50))


def test_strata_take_off_what_classes_differ_by() -> None:
    """Each class has its own gap: only the spread inside classes is chance."""
    classes = np.arange(600) % 20
    gap = np.where(classes < 10, 0.3, -0.3)
    values = np.stack([rng(0).random(600) + gap, rng(0).random(600) + 0.1 * rng(1).random(600)], 1)
    plain = pair_tests(values, rng=rng(), bounds=None).limits(0.05)
    inside = pair_tests(values, rng=rng(), bounds=None, strata=classes).limits(0.05)
    assert (inside[1] - inside[0])[0, 1] < 0.3 * (plain[1] - plain[0])[0, 1]


def test_ties_go_by_name() -> None:
    correct = np.array([[1, 0, 1], [0, 1, 1]], dtype=bool)
    ranks = rank_intervals(correct, ["beta", "alpha", "gamma"], rng=rng())
    assert ranks.rank.tolist() == [3, 2, 1]
    assert ranks.low.tolist() == [1, 1, 1] and ranks.high.tolist() == [3, 3, 3]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), models=st.integers(1, 7), clustered=st.booleans())
def test_properties(seed, models, clustered) -> None:
    generator = rng(seed)
    correct = simulated(seed, 200, list(generator.random(models)))
    names = [f"m{index}" for index in range(models)]
    clusters = np.arange(200) // 8 if clustered else None
    ranks = rank_intervals(correct, names, rng=rng(), clusters=clusters)
    assert sorted(ranks.rank.tolist()) == list(range(1, models + 1))
    assert (ranks.low <= ranks.rank).all() and (ranks.rank <= ranks.high).all()
    assert not (ranks.better & ranks.better.T).any()
    gaps = ranks.value[:, None] - ranks.value
    assert (gaps[ranks.better] > 0).all()
    order = generator.permutation(models)
    other = rank_intervals(
        correct[:, order], [names[i] for i in order], rng=rng(), clusters=clusters
    )
    assert other.rank.tolist() == ranks.rank[order].tolist()
    assert other.low.tolist() == ranks.low[order].tolist()
    assert other.high.tolist() == ranks.high[order].tolist()


def test_clusters_make_ranks_humbler() -> None:
    correct = np.repeat(simulated(3, 40, [0.5, 0.54, 0.7]), 10, axis=0)  # ten copies of 40 images
    images = rank_intervals(correct, list("abc"), rng=rng())
    clusters = rank_intervals(correct, list("abc"), rng=rng(), clusters=np.arange(400) // 10)
    assert (clusters.high - clusters.low).sum() >= (images.high - images.low).sum()
    assert images.better.sum() > clusters.better.sum()


def test_equal_models_in_a_dozen_very_uneven_clusters_keep_their_ranks() -> None:
    """They know as much as seven even ones. At most 21 of 200 sets prove a rank: more has 0.05 %."""
    generator, proven = rng(6), 0
    for _ in range(200):
        sizes = generator.geometric(1 / 20, 12)
        cluster = np.repeat(np.arange(12), sizes)
        ease = generator.standard_normal((12, 1)) + generator.standard_normal((12, 13))
        noise = generator.standard_normal((len(cluster), 13))
        right = 0.5 * ease[cluster] + noise < 0.8
        ranks = rank_intervals(right, list("abcdefghijklm"), rng=generator, clusters=cluster)
        proven += bool(ranks.better.any())
    assert 1 <= proven <= 21


def test_identical_models_and_constant_gaps() -> None:
    base = simulated(4, 100, [0.6])[:, 0]
    ranks = rank_intervals(np.column_stack([base, base]), ["b", "a"], rng=rng())
    assert ranks.rank.tolist() == [2, 1] and ranks.high.tolist() == [2, 2]
    values = rng(0).random(100)
    shifted = rank_intervals(np.column_stack([values, values + 0.5]), ["a", "b"], rng=rng())
    assert shifted.better.tolist() == [[False, False], [True, False]]


def test_refusals() -> None:
    with pytest.raises(NotApplicable):
        rank_intervals(np.zeros((0, 2)), ["a", "b"], rng=rng())


def test_counts_stay_exact_over_blocks(monkeypatch) -> None:
    correct = simulated(9, 1000, [0.4, 0.5, 0.6])
    whole = rank_intervals(correct, list("abc"), rng=rng())
    monkeypatch.setattr("heldout.stats.multiple._ROWS", 64)
    again = rank_intervals(correct, list("abc"), rng=rng())
    np.testing.assert_array_equal(again.better, whole.better)


def test_a_handful_of_equal_differences_proves_nothing() -> None:
    gaps = np.array([[1.0, 0.5, 0.0]])
    few = rank_intervals(np.repeat(gaps, 3, axis=0), ["a", "b", "c"], rng=rng())
    assert few.rank.tolist() == [1, 2, 3]
    assert few.low.tolist() == [1, 1, 1] and few.high.tolist() == [3, 3, 3]
    many = rank_intervals(np.repeat(gaps, 12, axis=0), ["a", "b", "c"], rng=rng())
    assert many.low.tolist() == many.high.tolist() == [1, 2, 3]


def test_equal_means_of_shares_are_a_tie_whatever_their_rounding() -> None:
    for seed in range(20):
        shares = rng(seed).choice([0, 1 / 3, 2 / 3, 1], 200)
        both = np.stack([rng(seed).permutation(shares), shares], axis=1)
        assert rank_intervals(both, ["b", "a"], rng=rng()).rank.tolist() == [2, 1]

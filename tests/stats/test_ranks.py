from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heldout.core.errors import NotApplicable
from heldout.stats.multiple import holm, rank_intervals


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
@given(seed=st.integers(0, 10_000), models=st.integers(1, 7), kind=st.integers(0, 3))
def test_properties(seed, models, kind) -> None:
    generator = np.random.default_rng(seed)
    correct = simulated(seed, 200, list(generator.random(models)))
    names = [f"m{index}" for index in range(models)]
    options = [
        {},
        {"strata": np.arange(200) // 10},
        {"clusters": np.arange(200) // 8},
        {"method": "max-t", "rng": np.random.default_rng(0)},
    ][kind]
    ranks = rank_intervals(correct, names, **options)
    assert sorted(ranks.rank.tolist()) == list(range(1, models + 1))
    assert (ranks.low <= ranks.rank).all() and (ranks.rank <= ranks.high).all()
    assert not (ranks.better & ranks.better.T).any()
    gaps = ranks.value[:, None] - ranks.value
    assert (gaps[ranks.better] > 0).all()
    if kind < 3:
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
    with pytest.raises(ValueError, match="shape"):
        rank_intervals(np.zeros((3, 2)), ["a"])
    with pytest.raises(ValueError, match="differ"):
        rank_intervals(np.zeros((3, 2)), ["a", "a"])
    with pytest.raises(NotApplicable):
        rank_intervals(np.zeros((0, 2)), ["a", "b"])
    with pytest.raises(ValueError, match="finite"):
        rank_intervals(np.array([[np.nan, 1.0]]), ["a", "b"])


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

"""Tests of :mod:`heldout.stats.slices`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import t_quantile
from heldout.stats.slices import joint_quantile, slice_gaps, slice_means

# Means over slices with their joint covariance, against slow formulas and simulations.


def slow_covariance(values: list[float], slices: list[int], clusters: list[int]) -> np.ndarray:
    """The linearised covariance with loops, straight from the formula."""
    count = max(slices) + 1
    rows = list(zip(values, slices, clusters, strict=True))
    mean, n, present = [], [], []
    for s in range(count):
        inside = [(v, c) for v, at, c in rows if at == s]
        mean.append(sum(v for v, _ in inside) / len(inside))
        n.append(len(inside))
        present.append(len({c for _, c in inside}))
    out = np.zeros((count, count))
    for cluster in set(clusters):
        pull = [
            sum(v - mean[s] for v, at, c in rows if at == s and c == cluster)
            / n[s]
            * (present[s] / max(present[s] - 1, 1)) ** 0.5
            for s in range(count)
        ]
        out += np.outer(pull, pull)
    return out


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_covariance_is_the_formula(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    extra = data.draw(st.lists(st.integers(0, count - 1), max_size=12))
    slices = [*range(count), *extra]
    values = [float(data.draw(st.booleans())) for _ in slices]
    clusters = [data.draw(st.integers(0, 3)) for _ in slices]
    found = slice_means(np.array(values)[:, None], slices, count=count, clusters=clusters)
    assert np.allclose(found.covariance[0], slow_covariance(values, slices, clusters))
    assert np.allclose(found.shares.sum(axis=0), 1)
    singles = slice_means(
        np.array(values)[:, None], slices, count=count, clusters=range(len(values))
    )
    plain = slice_means(np.array(values)[:, None], slices, count=count)
    assert np.allclose(np.diagonal(plain.covariance[0]), np.diagonal(singles.covariance[0]))


def test_an_even_design_has_clusters_less_one_degrees() -> None:
    codes = np.tile(np.arange(5), 12)
    clusters = np.repeat(np.arange(12), 5)
    values = np.random.default_rng(0).random((60, 2))
    contrast = slice_means(values, codes, count=5, clusters=clusters).contrast(np.full(5, 0.2))
    assert contrast.degrees == pytest.approx(11)
    means = values.reshape(12, 5, 2).mean(axis=1)
    assert contrast.error == pytest.approx(means.std(axis=0, ddof=1) / np.sqrt(12))
    assert contrast.value == pytest.approx(means.mean(axis=0))


def test_contrasts_of_shared_clusters_cover_the_truth() -> None:
    draw, inside = np.random.default_rng(3), []
    for _ in range(40):
        objects, values, columns = 12, 9, 60
        truth = np.linspace(0.2, 0.9, values)
        ease = 0.6 * draw.standard_normal((objects, 1, columns))
        chance = np.clip(truth[None, :, None] + 0.3 * ease, 0, 1)
        codes = np.tile(np.arange(values), objects)
        clusters = np.repeat(np.arange(objects), values)
        right = draw.random((objects, values, columns)) < chance
        found = slice_means(
            right.reshape(-1, columns), codes, count=values, clusters=clusters
        ).contrast(np.full(values, 1 / values))
        # What the noise does to the truth at the ends, found once from many objects.
        many = np.clip(truth[:, None] + 0.18 * np.random.default_rng(0).normal(size=20000), 0, 1)
        half = t_quantile(0.95, found.degrees) * found.error
        inside.append((np.abs(found.value - many.mean()) <= half).mean())
    assert 0.925 < np.mean(inside) < 0.975


def test_joint_quantiles_hold_for_all_slices_together() -> None:
    draw = np.random.default_rng(0)
    root = draw.normal(size=(6, 6)) / 3 + 1
    covariance = root @ root.T
    found = joint_quantile(covariance, 9, rng=np.random.default_rng(1))
    drawn = draw.multivariate_normal(np.zeros(6), covariance, size=40_000)
    scale = np.sqrt(draw.chisquare(9, 40_000) / 9)
    largest = np.abs(drawn / np.sqrt(np.diagonal(covariance))).max(axis=1) / scale
    assert (largest <= found).mean() == pytest.approx(0.95, abs=0.006)
    assert t_quantile(0.95, 9) < found < t_quantile(1 - 0.05 / 6, 9)


def test_slices_that_never_vary_take_no_part() -> None:
    covariance = np.diag([1.0, 0.0, 0.0])
    found = joint_quantile(covariance, 9, rng=np.random.default_rng(1))
    assert found == pytest.approx(t_quantile(0.95, 9))


def test_an_empty_slice_is_refused() -> None:
    with pytest.raises(NotApplicable, match="no images"):
        slice_means(np.ones((2, 1)), [0, 2], count=3)


def test_degrees_of_one_column_do_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(0)
    values, slices = rng.random((30, 3)) < [0.2, 0.5, 0.9], np.arange(30) % 4
    together = slice_means(values, slices, count=4).contrast([0.1, 0.2, 0.3, 0.4])
    for place in range(3):
        alone = slice_means(values[:, place : place + 1], slices, count=4)
        assert alone.contrast([0.1, 0.2, 0.3, 0.4]).degrees[0] == pytest.approx(
            together.degrees[place]
        )


# ---- slices against all other rows ---------------------------------------------------------------


def slow_gap(hits: list[int], inside: list[int]) -> float:
    """Two-sided p of so few hits inside, by the binomial whose variance is the hypergeometric's."""
    from scipy import stats

    total, n = len(hits), len(inside)
    mean = sum(hits) / total
    found = sum(hits[i] for i in inside)
    if n in (0, total) or found / n >= mean:
        return 1.0
    trials = n / (1 - n / total)
    # The binomial's tail at a number that need not be whole: the incomplete beta function.
    return min(
        1.0, 2 * float(stats.beta.sf(mean, found / n * trials + 1, trials - found / n * trials))
    )


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(4, 40))
def test_a_slice_is_set_against_all_other_rows(data: st.DataObject, n: int) -> None:
    hits = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    members = data.draw(st.lists(st.sets(st.integers(0, 2)), min_size=n, max_size=n))
    pairs = [(row, code) for row, found in enumerate(members) for code in sorted(found)]
    rows, codes = (np.array([pair[k] for pair in pairs], dtype=np.int64) for k in (0, 1))
    found = slice_gaps(np.array(hits, dtype=bool)[:, None], rows, codes, count=3)
    for code in range(3):
        inside = [row for row, other in pairs if other == code]
        assert found.n[code] == len(inside)
        expected = slow_gap(hits, inside)
        assert found.p[code, 0] == pytest.approx(expected, rel=1e-5, abs=1e-7)
        if 0 < len(inside) < n:
            rest = [hits[row] for row in range(n) if row not in inside]
            gap = np.mean([hits[row] for row in inside]) - np.mean(rest)
            assert found.inside[code, 0] - found.outside[code, 0] == pytest.approx(gap)


def test_limits_leave_out_nothing_exactly_where_p_does() -> None:
    rng = np.random.default_rng(0)
    values, codes = rng.random((400, 3)) < 0.7, np.arange(400) % 8
    values[codes == 2] &= rng.random((50, 3)) < 0.7
    found = slice_gaps(values, np.arange(400), codes, count=8)
    for level in (0.8, 0.95, 0.999):
        for at in np.argwhere(found.p < 1.0):
            low, high = found.limits((int(at[0]), int(at[1])), level)
            assert low <= high and (high < 0) == (found.p[tuple(at)] < 1 - level)


@pytest.mark.parametrize("accuracy", [0.2, 0.7, 0.95])
@pytest.mark.parametrize("whole", [True, False])
def test_chance_among_clusters_is_not_taken_for_a_hard_slice(accuracy: float, whole: bool) -> None:
    """Rows of a cluster are right together; slices hold whole clusters, or single rows of all."""
    rng = np.random.default_rng(int(100 * accuracy) + whole)
    runs, low = 300, 0
    for _ in range(runs):
        cluster = np.repeat(np.arange(60), rng.integers(2, 20, 60))
        codes = rng.integers(0, 6, 60)[cluster] if whole else rng.integers(0, 6, len(cluster))
        right = rng.beta(2 * accuracy, 2 * (1 - accuracy), 60)[cluster]
        hits = (rng.random(len(cluster)) < right)[:, None]
        found = slice_gaps(hits, np.arange(len(cluster)), codes, count=6, clusters=cluster)
        low += bool(found.p.min() * 6 <= 0.05)
    assert low <= 24  # the 99.5 % point of 300 draws at 5 %


def test_too_few_clusters_and_all_rows_cannot_be_tested() -> None:
    values = np.repeat([[0], [1]], 40, axis=0)
    few = slice_gaps(values, np.arange(40), np.zeros(40, int), count=1, clusters=np.arange(80) // 8)
    assert few.p.tolist() == [[1.0]]
    every = slice_gaps(values, np.arange(80), np.zeros(80, int), count=1)
    assert every.p.tolist() == [[1.0]]

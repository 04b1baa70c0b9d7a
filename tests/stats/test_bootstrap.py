from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heldout.core.errors import NotApplicable
from heldout.stats.bootstrap import (
    MINIMUM_CLUSTERS,
    bootstrap_mean,
    bootstrap_statistic,
    design,
    equal_weights,
    resample_weights,
)
from heldout.stats.intervals import clopper_pearson, interval_from_replicates, wilson


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def all_weights(generator: np.random.Generator, n: int, **options) -> np.ndarray:
    return np.concatenate(list(resample_weights(generator, n, **options)))


def importance_of(options: dict) -> np.ndarray:
    """The weight of each of 90 images in the statistic of a design."""
    return np.asarray(options.get("weights", np.ones(90)), dtype=float)


def slow_standard_error(values, strata, clusters, importance) -> float:
    """The linearised standard error of a weighted mean, unit by unit."""
    mean = (importance * values).sum() / importance.sum()
    residual = importance * (values - mean)
    variance = 0.0
    for h in np.unique(strata):
        units = [
            residual[(clusters == g) & (strata == h)].sum()
            for g in np.unique(clusters[strata == h])
        ]
        variance += len(units) * np.var(units, ddof=1)
    return float(np.sqrt(variance)) / importance.sum()


# weights


@pytest.mark.parametrize("options", [{}, {"strata": [0, 0, 0, 1, 1, 1, 1]}])
def test_rows_sum_to_n_and_do_not_depend_on_blocks(options, monkeypatch) -> None:
    whole = all_weights(rng(), 7, replicates=50, **options)
    assert whole.dtype == np.float32 and whole.shape == (50, 7)
    np.testing.assert_allclose(whole.sum(axis=1), 7, rtol=1e-6)
    for cells in (1, 49, 350, 999):
        monkeypatch.setattr("heldout.stats.bootstrap._BLOCK_CELLS", cells)
        np.testing.assert_array_equal(all_weights(rng(), 7, replicates=50, **options), whole)


def test_strata_keep_their_totals_in_any_order() -> None:
    strata = np.array(["b", "a", "b", "c", "a", "c", "c", "b"])
    weights = all_weights(rng(), 8, replicates=200, strata=strata)
    for name in "abc":
        inside = strata == name
        np.testing.assert_allclose(weights[:, inside].sum(axis=1), inside.sum(), rtol=1e-6)
        # n_h - 1 draws, each worth n_h / (n_h - 1)
        draws = weights[:, inside] * (inside.sum() - 1) / inside.sum()
        np.testing.assert_allclose(draws, np.rint(draws), atol=1e-5)
    np.testing.assert_allclose(weights.mean(axis=0), 1, atol=0.35)


def test_clusters_move_together() -> None:
    clusters = np.array([3, 1, 3, 2, 1, 2, 9, 4, 4, 5, 6, 7, 5])
    weights = all_weights(rng(), 13, replicates=100, clusters=clusters)
    for code in (1, 2, 3, 4, 5, 6, 7, 9):
        same = weights[:, clusters == code]
        assert (same == same[:, :1]).all()
    assert len(np.unique(weights[:, clusters == 9])) > 1


def test_every_image_is_drawn_equally_often() -> None:
    weights = all_weights(rng(), 20, replicates=20_000, strata=np.repeat([0, 1, 2], [2, 6, 12]))
    error = weights.std(axis=0) / np.sqrt(20_000)
    assert (np.abs(weights.mean(axis=0) - 1) < 4.5 * error).all()


def test_rao_wu_variance_is_unbiased_by_enumeration() -> None:
    """All 4^3 possible draws of n - 1 of 4 images: the variance of the mean is exactly s²/n."""
    values = np.array([0.0, 1.0, 1.0, 5.0])
    replicates = [
        (4 / 3) * sum(values[list(draw)]) / 4 for draw in itertools.product(range(4), repeat=3)
    ]
    assert np.var(replicates) == pytest.approx(values.var(ddof=1) / 4)
    drawn = all_weights(rng(), 4, replicates=40_000) @ values / 4
    assert drawn.var() == pytest.approx(np.var(replicates), rel=0.03)


def test_single_strata_are_collapsed() -> None:
    assert design(5, strata=[0, 1, 2, 3, 3]).sizes.tolist() == [3, 2]
    # one alone joins the smallest other stratum
    assert sorted(design(6, strata=[0, 0, 0, 1, 1, 2]).sizes.tolist()) == [3, 3]
    weights = all_weights(rng(), 5, replicates=100, strata=[0, 1, 2, 3, 3])
    np.testing.assert_allclose(weights[:, :3].sum(axis=1), 3, rtol=1e-6)


def test_refuses_designs_that_say_nothing() -> None:
    clusters = np.repeat(np.arange(7), 5)
    with pytest.raises(NotApplicable, match="7 clusters are too few"):
        bootstrap_mean(np.ones(35), rng=rng(), clusters=clusters)
    with pytest.raises(NotApplicable, match="single image"):
        bootstrap_mean([1.0], rng=rng())
    with pytest.raises(NotApplicable, match="no images"):
        bootstrap_mean([], rng=rng())
    crossing = {"strata": np.arange(60) % 2, "clusters": np.repeat(np.arange(20), 3)}
    with pytest.raises(ValueError, match="not both"):
        bootstrap_mean(np.ones(60), rng=rng(), **crossing)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([0.0, float("nan")], {}),
        ([0.0, 2.0], {}),
        ([0.0, 1.0], {"strata": [0]}),
        ([0.0, 1.0], {"weights": [1.0, -1.0]}),
    ],
)
def test_refuses_wrong_arguments(values, options) -> None:
    with pytest.raises(ValueError):
        bootstrap_mean(values, rng=rng(), **options)


# means


DESIGNS = {
    "plain": {},
    "strata": {"strata": np.arange(90) % 9},
    "uneven strata": {"strata": np.minimum(np.arange(90) // 2, 20)},
    "clusters": {"clusters": np.minimum(np.arange(90) // 3, 24)},
    "weights": {"weights": np.arange(1, 91)},
    "strata means": {
        "strata": np.minimum(np.arange(90) // 2, 20),
        "weights": equal_weights(np.minimum(np.arange(90) // 2, 20)),
    },
}


@pytest.mark.parametrize("name", DESIGNS)
def test_equals_a_loop_over_replicates(name) -> None:
    options = DESIGNS[name]
    values = rng(5).random((90, 3))
    result = bootstrap_mean(values, rng=rng(1), replicates=40, **options)
    importance = importance_of(options)
    np.testing.assert_allclose(
        result.value, (importance[:, None] * values).sum(axis=0) / importance.sum()
    )
    drawing = {key: options[key] for key in ("strata", "clusters") if key in options}
    rows = all_weights(rng(1), 90, replicates=40, **drawing).astype(float)
    for row, got in zip(rows, result.replicates, strict=True):
        product = row * importance
        expected = (product[:, None] * values).sum(axis=0) / product.sum()
        np.testing.assert_allclose(got, expected, atol=2e-6)


@pytest.mark.parametrize("name", DESIGNS)
def test_standard_error_is_the_survey_formula(name) -> None:
    options = DESIGNS[name]
    values = (rng(6).random(90) < 0.7).astype(float)
    result = bootstrap_mean(values, rng=rng(2), replicates=20_000, method="t", **options)
    importance = importance_of(options)
    strata = np.asarray(options.get("strata", np.zeros(90, int)))
    clusters = np.asarray(options.get("clusters", np.arange(90)))
    expected = slow_standard_error(values, strata, clusters, importance)
    # A ratio estimator's bootstrap differs from its linearisation by a few percent.
    assert result.standard_error == pytest.approx(expected, rel=0.05)


def test_columns_equal_single_calls() -> None:
    values = (rng(3).random((200, 4)) < 0.6).astype(float)
    clusters = np.arange(200) // 8
    many = bootstrap_mean(values, rng=rng(9), clusters=clusters)
    for column in range(4):
        one = bootstrap_mean(values[:, column], rng=rng(9), clusters=clusters)
        assert isinstance(one.value, float) and isinstance(one.interval.low, float)
        assert one.value == many.value[column]
        assert one.interval.low == pytest.approx(many.interval.low[column], abs=1e-6)
        assert one.interval.high == pytest.approx(many.interval.high[column], abs=1e-6)


def test_plain_right_and_wrong_is_close_to_wilson() -> None:
    right = np.repeat([1.0, 0.0], [800, 200])
    interval = bootstrap_mean(right, rng=rng(), replicates=20_000).interval
    expected = wilson(800, 1000)
    assert interval.method == "plain-bootstrap-wilson"
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-3)


def test_percentile_agrees_with_scipy() -> None:
    values = rng(4).exponential(size=300)
    ours = bootstrap_mean(values, rng=rng(), bounds=None, method="percentile", replicates=5000)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=5000, method="percentile", rng=rng(1)
    ).confidence_interval
    assert ours.interval.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.interval.high == pytest.approx(theirs.high, abs=0.01)
    # The limits are those of the replicates themselves: a mirrored one would lean the other way.
    low, high = np.quantile(ours.replicates, [0.025, 0.975])
    assert (ours.interval.low, ours.interval.high) == pytest.approx((low, high), abs=1e-12)
    assert high - ours.value > 1.02 * (ours.value - low)


def test_studentised_equals_a_loop() -> None:
    values = rng(8).exponential(size=(60, 2))
    clusters = np.minimum(np.arange(60) // 2, 22)
    result = bootstrap_mean(
        values, rng=rng(3), replicates=300, clusters=clusters, bounds=None, method="studentised"
    )
    codes, sizes = np.unique(clusters, return_counts=True)
    g = len(codes)
    sums = np.array([values[clusters == code].sum(axis=0) for code in codes])
    t = []
    for row in all_weights(rng(3), 60, replicates=300, clusters=clusters).astype(float):
        w = np.array([row[clusters == code][0] for code in codes])
        counts = np.rint(w * (g - 1) / g)
        mean = counts @ sums / (counts @ sizes)
        residual = sums - mean * sizes[:, None]
        m = g - 1
        # variance of a ratio of m drawn clusters, as textbooks have it
        variance = m / (m - 1) * (counts[:, None] * residual**2).sum(axis=0) / (counts @ sizes) ** 2
        t.append((mean - result.value) / np.sqrt(variance))
    high, low = np.quantile(t, [0.025, 0.975], axis=0)
    mean_residual = sums - result.value * sizes[:, None]
    error = np.sqrt(g / (g - 1) * (mean_residual**2).sum(axis=0)) / 60
    np.testing.assert_allclose(result.standard_error, error)
    np.testing.assert_allclose(result.interval.low, result.value - low * error, rtol=1e-3)
    np.testing.assert_allclose(result.interval.high, result.value - high * error, rtol=1e-3)


def test_nothing_varies() -> None:
    every = bootstrap_mean(np.ones(30), rng=rng(), strata=np.arange(30) // 10)
    expected = clopper_pearson(30, 30)
    assert (every.interval.low, every.interval.high) == pytest.approx((expected.low, 1.0))
    assert every.standard_error == 0
    clusters = bootstrap_mean(np.zeros(100), rng=rng(), clusters=np.arange(100) // 5)
    # As if between all of 100 images and 20 clusters had been drawn: nothing says how alike they are.
    assert clopper_pearson(0, 100).high < clusters.interval.high < clopper_pearson(0, 20).high
    assert clusters.interval.low == 0
    # right in every image of two classes, wrong in every image of the third
    between = bootstrap_mean(
        np.repeat([1.0, 1.0, 0.0], 10), rng=rng(), strata=np.arange(30) // 10
    ).interval
    assert between.low < 2 / 3 < between.high
    assert bootstrap_mean(np.full(9, 4.2), rng=rng(), bounds=None).interval.width == 0


def test_one_wrong_image_in_many_clusters_keeps_a_sensible_width() -> None:
    right = np.ones(400)
    right[0] = 0
    interval = bootstrap_mean(right, rng=rng(), clusters=np.arange(400) // 20).interval
    assert 0.8 < interval.low < 0.9975 < interval.high <= 1.0


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.booleans(), min_size=40, max_size=80),
    kind=st.sampled_from(["plain", "strata", "clusters", "weights"]),
    method=st.sampled_from(["auto", "t", "wilson"]),
    seed=st.integers(0, 9),
)
def test_interval_contains_the_estimate(values, kind, method, seed) -> None:
    data = np.array(values, dtype=float)
    n = len(data)
    options = {
        "plain": {},
        "strata": {"strata": np.arange(n) % 7},
        "clusters": {"clusters": np.arange(n) // 2},
        "weights": {"weights": 1 + np.arange(n) % 5},
    }[kind]
    result = bootstrap_mean(data, rng=rng(seed), replicates=60, method=method, **options)
    assert 0.0 <= result.interval.low <= result.value + 1e-12
    assert result.value - 1e-12 <= result.interval.high <= 1.0
    assert result.interval.width > 0


def test_bounds_scale() -> None:
    values = (rng(2).random(100) < 0.8).astype(float)
    one = bootstrap_mean(values, rng=rng(), replicates=200)
    two = bootstrap_mean(10 * values - 5, rng=rng(), replicates=200, bounds=(-5, 5))
    assert two.interval.low == pytest.approx(10 * one.interval.low - 5, abs=1e-5)
    assert two.interval.high == pytest.approx(10 * one.interval.high - 5, abs=1e-5)


# any statistic


def test_statistic_of_indices_and_of_weights() -> None:
    values = rng(1).random(50)
    by_index = bootstrap_statistic(lambda drawn: values[drawn].mean(), 50, rng=rng(), replicates=60)
    by_weight = bootstrap_statistic(
        lambda w: (w * values).sum() / w.sum(), 50, rng=rng(), replicates=60, takes="weights"
    )
    fast = bootstrap_mean(values, rng=rng(), replicates=60)
    np.testing.assert_allclose(by_index.replicates, by_weight.replicates, atol=1e-6)
    np.testing.assert_allclose(by_index.replicates, fast.replicates, atol=1e-6)
    assert by_index.value == pytest.approx(values.mean())


def test_statistic_with_clusters_and_columns() -> None:
    values = rng(1).random(60)
    seen: list[int] = []

    def both(drawn):
        seen.append(len(drawn))
        return [values[drawn].mean(), np.median(values[drawn])]

    result = bootstrap_statistic(both, 60, rng=rng(), replicates=20)
    assert result.replicates.shape == (20, 2) and result.interval.low.shape == (2,)
    assert set(seen) == {60, 59}  # once on all images, then one less
    clustered = bootstrap_statistic(
        lambda drawn: values[drawn].mean(),
        60,
        rng=rng(),
        replicates=20,
        clusters=np.minimum(np.arange(60) // 2, 20),
    )
    assert clustered.interval.method == "cluster-bootstrap-t"


def test_statistic_that_fails_on_a_resample_is_not_hidden() -> None:
    with pytest.raises(ValueError, match="finite"):
        bootstrap_statistic(
            lambda drawn: float("nan") if 0 not in drawn else 1.0, 20, rng=rng(), replicates=200
        )


# replicates to intervals


def test_methods_by_hand() -> None:
    draws = np.arange(1001) / 1000 + 0.5  # 0.5 to 1.5, mean 1
    percentile = interval_from_replicates(0.9, draws)
    assert (percentile.low, percentile.high) == pytest.approx((0.525, 1.475))
    error, t = draws.std(ddof=1), stats.t.ppf(0.975, 7)
    student = interval_from_replicates(0.9, draws, method="t", degrees_of_freedom=7)
    assert (student.low, student.high) == pytest.approx((0.9 - t * error, 0.9 + t * error))
    score = interval_from_replicates(0.5, draws - 0.5, method="wilson", bounds=(0.0, 1.0))
    expected = wilson(0.125 / error**2, 0.25 / error**2)
    assert (score.low, score.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("correlation, accuracy", [(0.05, 0.76), (0.3, 0.95), (0.8, 0.5)])
@pytest.mark.parametrize("count, most", [(MINIMUM_CLUSTERS, 1.6), (50, 1.25)])
def test_few_clusters_cover_the_truth_and_are_not_wide(
    uneven: bool, correlation: float, accuracy: float, count: int, most: float
) -> None:
    """Bootstrap-t was up to 2.6 times as wide as what the mean spans, and 1.35 times with 50."""
    draw, inside = rng(), []
    widths, values = [], []
    for _ in range(4):
        sizes = draw.geometric(0.1, count) if uneven else np.full(count, 10)
        cluster = np.repeat(np.arange(count), sizes)
        rest = 1 / correlation - 1
        true = draw.beta(accuracy * rest, (1 - accuracy) * rest, (count, 150))
        right = draw.random((len(cluster), 150)) < true[cluster]
        found = bootstrap_mean(right, rng=draw, clusters=cluster, replicates=300).interval
        assert found.method == "cluster-beta-binomial"
        inside.append(((found.low <= accuracy) & (accuracy <= found.high)).mean())
        widths.append(found.width)
        values.append(right.mean(axis=0))
    assert np.mean(inside) > 0.925  # 600 simulations: the error of 95 % is 0.9 %
    known = np.subtract(*np.quantile(values, [0.975, 0.025]))
    assert np.median(widths) < most * known


def test_from_a_hundred_clusters_on_they_are_resampled() -> None:
    cluster = np.repeat(np.arange(100), 4)
    right = rng().random(400) < 0.7
    many = bootstrap_mean(right, rng=rng(), clusters=cluster).interval
    assert many.method == "cluster-bootstrap-studentised"
    few = bootstrap_mean(right[:396], rng=rng(), clusters=cluster[:396]).interval
    assert few.width == pytest.approx(many.width, rel=0.15)  # one method takes over
    assert few.method == "cluster-beta-binomial"
    # Images that come in clusters and are not alike: about as wide as without clusters.
    assert few.width == pytest.approx(wilson(right[:396].sum(), 396).width, rel=0.3)
    # Between other bounds the limits scale along.
    scaled = bootstrap_mean(
        2 * right[:396] - 1.0, rng=rng(), clusters=cluster[:396], bounds=(-1, 1)
    ).interval
    assert (scaled.low, scaled.high) == pytest.approx((2 * few.low - 1, 2 * few.high - 1))

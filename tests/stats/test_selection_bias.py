"""Accuracy at true selection frequencies: against exact sums, enumerations and slow versions."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betaln, expit, gammaln
from scipy.stats import beta, binom

from heldout.core.errors import NotApplicable
from heldout.stats.selection_bias import (
    ESTIMATORS,
    Adjusted,
    Votes,
    beta_binomial,
    beta_mixture,
    check_votes,
    held_out_votes,
    jackknife,
    legendre,
    naive,
    polynomial,
    power_means,
    spline,
    spline_accuracy,
    thinned,
    vote_chances,
)

GRID = (np.arange(4000) + 0.5) / 4000


def masses(a: float, b: float) -> np.ndarray:
    return np.diff(beta.cdf(np.linspace(0, 1, len(GRID) + 1), a, b))


def expected(p: np.ndarray, accuracy: np.ndarray, n: int, images: int) -> tuple[Votes, np.ndarray]:
    """A set whose counts of (k, right) are what a distribution leads to, to the nearest image."""
    chance = binom.pmf(np.arange(n + 1)[:, None], n, GRID) * p
    selected, right = [], []
    for k in range(n + 1):
        hits, misses = (round(images * (chance[k] @ share)) for share in (accuracy, 1 - accuracy))
        selected += [k] * (hits + misses)
        right += [1.0] * hits + [0.0] * misses
    return Votes(np.array(selected), np.full(len(selected), n)), np.array(right)


def voted(
    rng: np.random.Generator,
    s: np.ndarray,
    n: int | np.ndarray = 10,
    cluster: np.ndarray | None = None,
) -> Votes:
    sizes = np.broadcast_to(n, len(s)).astype(np.int64)
    return Votes(rng.binomial(sizes, s), sizes, cluster)


def test_powers_have_the_mean_of_the_power() -> None:
    s, n = 0.37, 7
    votes = Votes(np.arange(n + 1), np.full(n + 1, n))
    chance = binom.pmf(votes.cells[:, 0], n, s)
    np.testing.assert_allclose(chance @ power_means(votes, n), s ** np.arange(n + 1), rtol=1e-12)


def test_polynomials_are_orthonormal() -> None:
    coefficients = legendre(5)
    for row, one in enumerate(coefficients):
        for column, other in enumerate(coefficients):
            product = np.polynomial.Polynomial(one) * np.polynomial.Polynomial(other)
            integral = product.integ()(1.0) - product.integ()(0.0)
            assert integral == pytest.approx(float(row == column), abs=1e-8)


def test_thinning_is_the_mean_over_all_subsets() -> None:
    answers = [1, 1, 0, 1, 0, 0, 0]
    votes = Votes(np.array([sum(answers)]), np.array([len(answers)]))
    counted = np.bincount([sum(part) for part in combinations(answers, 4)], minlength=5)
    np.testing.assert_allclose(thinned(votes, 4)[0], counted / comb(7, 4), atol=1e-12)


@pytest.mark.parametrize("n", [10, 4])
def test_exact_where_accuracy_is_a_polynomial(n: int) -> None:
    """Whatever the frequencies: here Betas that no finite set of points describes."""
    original, pool = masses(4, 1.5), masses(1.2, 1.5)
    accuracy = 0.2 + 0.5 * GRID + 0.2 * GRID**2
    of_original, _ = expected(original, accuracy, n, 300_000)
    of_pool, right = expected(pool, accuracy, n, 300_000)
    truth = float(original @ accuracy)
    found = polynomial(of_original, of_pool, right)
    assert found.value == pytest.approx(truth, abs=5e-4)
    assert naive(of_original, of_pool, right).value < truth - 0.02


def test_naive_and_jackknife_are_their_formulas() -> None:
    original, pool = masses(4, 1.5), masses(1.2, 1.5)
    accuracy = expit(3 * GRID - 1)
    n = 6
    of_original, _ = expected(original, accuracy, n, 500_000)
    of_pool, right = expected(pool, accuracy, n, 500_000)

    def exactly(votes: int) -> float:
        chance = binom.pmf(np.arange(votes + 1)[:, None], votes, GRID)
        return float((chance @ original) @ ((chance @ (pool * accuracy)) / (chance @ pool)))

    assert naive(of_original, of_pool, right).value == pytest.approx(exactly(n), abs=1e-5)
    wanted = n * exactly(n) - (n - 1) * exactly(n - 1)
    assert jackknife(of_original, of_pool, right).value == pytest.approx(wanted, abs=1e-4)


def test_no_bias_where_the_pool_is_like_the_original_set() -> None:
    p, accuracy = masses(2, 1), expit(4 * GRID - 2)
    of_original, _ = expected(p, accuracy, 10, 200_000)
    of_pool, right = expected(p, accuracy, 10, 200_000)
    truth = float(p @ accuracy)
    for estimator in (naive, jackknife, polynomial):
        assert estimator(of_original, of_pool, right).value == pytest.approx(truth, abs=1e-3)
    assert held_out_votes(of_original, of_pool).drop.value == pytest.approx(0, abs=1e-4)


def test_errors_of_influences_are_those_of_leaving_images_out() -> None:
    rng = np.random.default_rng(3)
    s_original, s_pool = rng.beta(4, 1.5, 80), rng.beta(1.2, 1.5, 600)
    original, pool = voted(rng, s_original), voted(rng, s_pool)
    right = (rng.random(600) < 0.2 + 0.7 * s_pool).astype(float)

    def without(votes: Votes, row: int) -> Votes:
        return Votes(np.delete(votes.selected, row), np.delete(votes.n, row))

    def spread(values: list[float]) -> float:
        return (len(values) - 1) / len(values) * float(np.square(values - np.mean(values)).sum())

    for estimator in (naive, jackknife):
        variance = spread(
            [estimator(without(original, i), pool, right).value for i in range(80)]
        ) + spread(
            [estimator(original, without(pool, i), np.delete(right, i)).value for i in range(600)]
        )
        error = estimator(original, pool, right).standard_error
        # With few images of a share, leaving one out is a little rougher than its influence.
        assert error == pytest.approx(np.sqrt(variance), rel=0.05)
    drops = [held_out_votes(without(original, i), pool).drop.value for i in range(80)]
    others = [held_out_votes(original, without(pool, i)).drop.value for i in range(600)]
    drop = held_out_votes(original, pool).drop
    assert drop.standard_error == pytest.approx(np.sqrt(spread(drops) + spread(others)), rel=0.05)


def test_votes_by_halves_are_the_mean_over_all_halves() -> None:
    answers = {"a": [1, 1, 1, 0], "b": [1, 0, 0, 0], "c": [1, 1, 0, 0], "d": [1, 1, 1, 1]}
    votes = Votes(np.array([sum(v) for v in answers.values()]), np.full(4, 4))
    original = Votes(np.array([4, 3, 2]), np.array([4, 4, 4]))
    halves = list(combinations(range(4), 2))
    seen: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for said in answers.values():
        for half in halves:
            others = [said[i] for i in range(4) if i not in half]
            seen[sum(said[i] for i in half)].append(float(np.mean(others)))
    shares = np.zeros(3)
    for k in original.selected:
        said = [1] * k + [0] * (4 - k)
        for half in halves:
            shares[sum(said[i] for i in half)] += 1 / len(halves) / len(original)
    wanted = sum(share * np.mean(seen[j]) for j, share in enumerate(shares))
    found = held_out_votes(original, votes)
    assert found.held_out == pytest.approx(wanted, abs=1e-12)
    assert found.selected == pytest.approx(9 / 12)
    assert found.drop.value == pytest.approx(9 / 12 - wanted)


def test_the_likelihood_of_the_mixture_never_falls() -> None:
    rng = np.random.default_rng(0)
    s = np.concatenate([rng.beta(8, 1.5, 700), rng.beta(1, 3, 800)])
    votes = voted(rng, s, rng.choice([8, 10, 20], len(s)))
    fit = beta_mixture(votes.cells, votes.sums()[None], enough=1e-9)
    assert (np.diff(fit.likelihood[:, 0]) >= -1e-12).all()
    assert len(fit.likelihood) > 10
    # The last one, the slow way: a sum over images of a sum over Betas.
    total = 0.0
    for k, n in zip(votes.selected, votes.n, strict=True):
        part = 0.0
        for weight, a, b in zip(fit.weights[0], fit.a[0], fit.b[0], strict=True):
            ways = np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
            part += weight * ways * np.exp(betaln(k + a, n - k + b) - betaln(a, b))
        total += np.log(part)
    assert fit.likelihood[-1, 0] == pytest.approx(total / len(votes), abs=1e-6)
    # One more component of freedom than the truth needs is at least as likely as the truth.
    truth = 0.0
    for k, n in zip(votes.selected, votes.n, strict=True):
        ways = np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
        truth += np.log(
            ways
            * sum(
                w * np.exp(betaln(k + a, n - k + b) - betaln(a, b))
                for w, a, b in ((700 / 1500, 8, 1.5), (800 / 1500, 1, 3))
            )
        )
    assert total > truth - 3


def test_side_by_side_fits_are_those_one_at_a_time() -> None:
    rng = np.random.default_rng(1)
    votes = voted(rng, rng.beta(2, 1, 400))
    counts = np.array([votes.sums(), votes.sums(votes.selected > 3), votes.sums(votes.n > 0)])
    start = beta_mixture(votes.cells, counts[:1])
    together = beta_mixture(votes.cells, counts, start=start, rounds=30, enough=0.0)
    for row, one in enumerate(counts):
        alone = beta_mixture(votes.cells, one[None], start=start, rounds=30, enough=0.0)
        np.testing.assert_allclose(together.a[row], alone.a[0], rtol=0.05)
        np.testing.assert_allclose(together.likelihood[-1, row], alone.likelihood[-1, 0], atol=1e-6)


def test_the_spline_is_the_published_one() -> None:
    s = np.linspace(0.001, 0.999, 200)
    truncated = np.column_stack(
        [s**power for power in range(4)] + [np.maximum(s - k, 0) ** 3 for k in (0.5, 0.7, 0.9)]
    )
    both = np.column_stack([truncated, spline(s)])
    assert np.linalg.matrix_rank(truncated, tol=1e-9) == np.linalg.matrix_rank(both, tol=1e-9) == 7


def test_the_spline_comes_back_from_slow_integrals() -> None:
    weights = np.array([0.1, 0.3, 0.25, 0.5, 0.8, 0.7, 0.9])

    def accuracy(s: float) -> float:
        return float((spline(np.array([s])) @ weights)[0])

    n = 12
    votes = Votes(np.arange(n + 1), np.full(n + 1, n))
    hits = np.array(
        [
            quad(
                lambda s, k=k: binom.pmf(k, n, s) * beta.pdf(s, 2, 2) * accuracy(s),
                0,
                1,
                points=[0.5, 0.7, 0.9],
            )[0]
            for k in range(n + 1)
        ]
    )
    grid = (np.arange(1000) + 0.5) / 1000
    p = np.diff(beta.cdf(np.linspace(0, 1, 1001), 2, 2))
    found = spline_accuracy(vote_chances(votes), hits, p)
    there = (grid > 0.1) & (grid < 0.9)
    np.testing.assert_allclose(found[there], (spline(grid) @ weights)[there], atol=5e-3)


def test_beta_binomial_is_right_in_its_family() -> None:
    original, pool = masses(4, 1.5), masses(1.2, 1.5)
    accuracy = 0.2 + 0.6 * GRID**2
    of_original, _ = expected(original, accuracy, 10, 100_000)
    of_pool, right = expected(pool, accuracy, 10, 100_000)
    found = beta_binomial(of_original, of_pool, right)
    assert found.value == pytest.approx(float(original @ accuracy), abs=4e-3)


def replication(seed: int) -> tuple[Votes, Votes, np.ndarray, float]:
    """Frequencies that are no mixture of Betas, accuracy that varies by class."""
    rng = np.random.default_rng([11, seed])
    offsets = rng.normal(0, 0.7, 50)
    label, ours = np.repeat(np.arange(50), 120), np.repeat(np.arange(50), 20)
    s_pool = rng.choice([0.0, 0.35, 0.6, 0.9, 1.0], len(label), p=[0.3, 0.2, 0.2, 0.2, 0.1])
    places, weights = np.array([0.6, 0.8, 0.9, 1.0]), np.array([0.2, 0.3, 0.3, 0.2])
    s_original = rng.choice(places, len(ours), p=weights)
    right = rng.random(len(label)) < expit(-0.8 + 3 * s_pool + offsets[label])
    truth = float(weights @ expit(-0.8 + 3 * places[:, None] + offsets).mean(axis=1))
    return voted(rng, s_original), voted(rng, s_pool), right.astype(float), truth


def test_intervals_hold_where_naive_ones_do_not() -> None:
    held = {"polynomial": 0, "naive": 0}
    errors: list[float] = []
    for seed in range(30):
        original, pool, right, truth = replication(seed)
        for name in held:
            found = ESTIMATORS[name](original, pool, right)
            interval = found.interval()
            held[name] += bool(interval.low <= truth <= interval.high)
            if name == "naive":
                errors.append(found.value - truth)
            else:
                assert interval.width < 0.05
    # The pool has fewer good images, so matched ones are harder than they look.
    assert np.mean(errors) < -0.01
    assert held["polynomial"] >= 27
    assert held["naive"] <= 15


def test_neither_order_nor_who_is_asked_more_often_matters() -> None:
    rng = np.random.default_rng(5)
    original, pool, right, _ = replication(0)
    order = rng.permutation(len(pool))
    shuffled = Votes(pool.selected[order], pool.n[order])
    for name in ("polynomial", "naive", "jackknife"):
        one = ESTIMATORS[name](original, pool, right)
        other = ESTIMATORS[name](original, shuffled, right[order])
        assert one.value == pytest.approx(other.value, abs=1e-10)
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6)


def test_images_with_more_votes_use_them() -> None:
    """A third of the pool with 40 votes: still right, and no wider."""
    errors, widths = [], []
    for seed in range(8):
        rng = np.random.default_rng([7, seed])
        s_original, s_pool = rng.beta(4, 1.5, 1500), rng.beta(1.2, 1.5, 6000)
        right = (rng.random(6000) < 0.2 + 0.7 * s_pool).astype(float)
        n = rng.choice([10, 40], 6000, p=[2 / 3, 1 / 3])
        found = [
            polynomial(voted(rng, s_original), voted(rng, s_pool, sizes), right)
            for sizes in (n, np.full(6000, 10))
        ]
        errors.append(found[0].value - (0.2 + 0.7 * 4 / 5.5))
        widths.append([one.interval().width for one in found])
    assert abs(np.mean(errors)) < 0.012
    more, fewer = np.mean(widths, axis=0)
    assert more < fewer


def test_clusters_of_one_image_are_images_and_copies_are_not() -> None:
    original, pool, right, _ = replication(1)
    ones = polynomial(original, pool, right)
    codes = np.arange(len(original) + len(pool))
    alone = polynomial(
        Votes(original.selected, original.n, codes[: len(original)]),
        Votes(pool.selected, pool.n, codes[len(original) :]),
        right,
    )
    assert alone.standard_error == pytest.approx(ones.standard_error, rel=1e-3)

    def fourfold(votes: Votes, first: int) -> Votes:
        cluster = first + np.tile(np.arange(len(votes)), 4)
        return Votes(np.tile(votes.selected, 4), np.tile(votes.n, 4), cluster)

    copied = naive(fourfold(original, 0), fourfold(pool, len(original)), np.tile(right, 4))
    assert copied.standard_error == pytest.approx(
        naive(original, pool, right).standard_error, rel=1e-3
    )


def test_a_model_that_is_always_right_is_so_at_every_frequency() -> None:
    original, pool, right, _ = replication(2)
    for name, estimator in ESTIMATORS.items():
        found = estimator(original, pool, np.ones_like(right))
        assert found.value == pytest.approx(1.0, abs=0.01), name
        interval = found.interval()
        assert 0.9 < interval.low <= interval.high <= 1.0


def test_a_difference_has_limits_on_both_sides_of_zero() -> None:
    interval = Adjusted(0.0, 0.01).difference_interval()
    assert interval.low == pytest.approx(-0.0196, abs=1e-4)
    assert interval.high == pytest.approx(0.0196, abs=1e-4)


def test_too_few_votes_are_refused() -> None:
    many, few = Votes(np.full(60, 3), np.full(60, 5)), Votes(np.full(5, 3), np.full(5, 5))
    check_votes(many, many)
    with pytest.raises(NotApplicable, match="5 images of the original set"):
        check_votes(few, many)
    with pytest.raises(NotApplicable, match="5 images of the pool"):
        check_votes(many, few)
    with pytest.raises(NotApplicable, match="1 votes"):
        check_votes(many, Votes(np.ones(60, int), np.ones(60, int)))

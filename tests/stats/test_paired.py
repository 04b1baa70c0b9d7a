from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from heldout.core.errors import NotApplicable
from heldout.stats.paired import accuracy_difference, mcnemar_exact, paired_difference

pairs = st.tuples(st.integers(0, 400), st.integers(0, 400))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# McNemar


@given(pair=pairs)
def test_mcnemar_equals_the_binomial_test(pair) -> None:
    a, b = pair
    expected = stats.binomtest(a, a + b).pvalue if a + b else 1.0
    assert mcnemar_exact(a, b) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    greater = stats.binomtest(a, a + b, alternative="greater").pvalue if a + b else 1.0
    assert mcnemar_exact(a, b, alternative="greater") == pytest.approx(greater, rel=1e-9)


@given(pair=pairs)
def test_mcnemar_mid_p_by_enumeration(pair) -> None:
    a, b = pair
    n, k = a + b, min(pair)
    mass = stats.binom.pmf(np.arange(n + 1), n, 0.5)
    expected = 2 * (mass[:k].sum() + 0.5 * mass[k])
    assert mcnemar_exact(a, b, mid_p=True) == pytest.approx(expected, rel=1e-8)
    assert mcnemar_exact(a, b, mid_p=True) <= mcnemar_exact(a, b) + 1e-12
    assert mcnemar_exact(a, b) == mcnemar_exact(b, a)


def test_mcnemar_published() -> None:
    # Cavo et al. 2012 in Fagerland, Lydersen and Laake 2013: 6 against 16, mid-p 0.0347
    assert mcnemar_exact(6, 16, mid_p=True) == pytest.approx(0.034690, abs=1e-6)


def test_mcnemar_arrays_and_edges() -> None:
    p = mcnemar_exact([0, 5, 0], [0, 5, 5])
    assert p.tolist() == pytest.approx([1.0, 1.0, 2 / 32])
    assert mcnemar_exact(0, 0, mid_p=True) == 1.0
    assert mcnemar_exact(0, 2000) < 1e-300 or mcnemar_exact(0, 2000) == 0.0


# Tango


@pytest.mark.parametrize(
    ("only_a", "only_b", "n", "low", "high", "digits"),
    [
        (1, 7, 21, -0.517, -0.026, 3),  # Fagerland, Lydersen and Laake 2014, airway data
        (6, 16, 161, -0.1240, -0.0054, 4),  # the same, therapy data
        (16, 8, 86, -0.020, 0.207, 3),  # Agresti and Min 2005
    ],
)
def test_tango_published(only_a, only_b, n, low, high, digits) -> None:
    interval = paired_difference(only_a, only_b, n)
    assert (round(interval.low, digits), round(interval.high, digits)) == (low, high)


def slow_score(a: int, b: int, n: int, difference: float) -> float:
    """The score statistic with the nuisance parameter found by maximising the likelihood."""

    def loss(q: float) -> float:
        first, rest = q + difference, 1 - 2 * q - difference
        return -sum(
            count * np.log(max(share, 1e-300))
            for count, share in ((a, first), (b, q), (n - a - b, rest))
        )

    low, high = max(0.0, -difference), (1 - difference) / 2
    q = optimize.minimize_scalar(loss, bounds=(low, high), options={"xatol": 1e-12}).x
    return (a - b - n * difference) / np.sqrt(n * (2 * q + difference - difference**2))


@pytest.mark.parametrize(("a", "b", "n"), [(3, 1, 20), (12, 2, 50), (30, 25, 1000), (1, 4, 9)])
def test_tango_limits_solve_the_score_equation(a, b, n) -> None:
    interval = paired_difference(a, b, n)
    assert slow_score(a, b, n, interval.low) == pytest.approx(1.959964, abs=1e-3)
    assert slow_score(a, b, n, interval.high) == pytest.approx(-1.959964, abs=1e-3)


@settings(max_examples=200)
@given(pair=pairs, rest=st.integers(0, 50_000), level=st.floats(0.5, 0.999))
def test_tango_properties(pair, rest, level) -> None:
    a, b = pair
    n = a + b + rest
    if n == 0:
        return
    interval, mirrored = (
        paired_difference(a, b, n, level=level),
        paired_difference(b, a, n, level=level),
    )
    estimate = (a - b) / n
    assert -1.0 <= interval.low <= estimate + 1e-12
    assert estimate - 1e-12 <= interval.high <= 1.0
    assert interval.low == pytest.approx(-mirrored.high, abs=1e-9)
    assert interval.width > 0


def test_tango_is_the_mcnemar_score_test_at_zero() -> None:
    """The interval leaves out 0 exactly when the score test of no difference is significant."""
    for a in range(15):
        for b in range(15):
            interval = paired_difference(a, b, 100)
            significant = a + b > 0 and (a - b) ** 2 / (a + b) > stats.chi2.ppf(0.95, 1)
            assert (interval.low > 0 or interval.high < 0) == significant


def test_tango_edges() -> None:
    interval = paired_difference([0, 10, 0], [0, 0, 10], 10)
    assert interval.high[1] == pytest.approx(1) and interval.low[2] == pytest.approx(-1)
    assert interval.low[0] == pytest.approx(-interval.high[0])
    with pytest.raises(NotApplicable):
        paired_difference(0, 0, 0)
    for bad in ((3, 3, 5), (-1, 0, 5)):
        with pytest.raises(ValueError, match="counts"):
            paired_difference(*bad)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("n", [80, 5000])
def test_mid_p_and_interval_agree(level, n) -> None:
    a, b = np.meshgrid(np.arange(40), np.arange(40))
    found, tango = (
        accuracy_difference(a, b, n, level=level),
        paired_difference(a, b, n, level=level),
    )
    excluded = (found.interval.low > 0) | (found.interval.high < 0)
    assert (excluded == (found.p < 1 - level)).all()
    assert (found.interval.low <= found.difference + 1e-12).all()
    assert (found.difference <= found.interval.high + 1e-12).all()
    # Only the limit nearer to 0 moves, and only where the two contradict each other.
    moved = (found.interval.low != tango.low) | (found.interval.high != tango.high)
    contradicted = ((tango.low > 0) | (tango.high < 0)) != (found.p < 1 - level)
    assert (moved <= contradicted).all()
    np.testing.assert_allclose(found.p, mcnemar_exact(a, b, mid_p=True))

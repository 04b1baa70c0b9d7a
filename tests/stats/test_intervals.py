from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from heldout.core.errors import NotApplicable, UserError
from heldout.stats.intervals import Interval, clopper_pearson, normal_quantile, wilson

METHODS = [wilson, clopper_pearson]
counts = st.integers(1, 60_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
levels = st.floats(0.5, 0.9999)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 10), (8, 10), (10, 10), (39156, 50_000)])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_equals_scipy(k: int, n: int, level: float) -> None:
    test = stats.binomtest(k, n)
    for ours, theirs in ((wilson, "wilson"), (clopper_pearson, "exact")):
        expected = test.proportion_ci(level, method=theirs)
        interval = ours(k, n, level=level)
        assert (interval.low, interval.high) == pytest.approx(tuple(expected), abs=1e-12)


def test_wilson_solves_its_equation() -> None:
    interval = wilson(7, 25)
    for limit in (interval.low, interval.high):
        gap = abs(7 / 25 - limit) / np.sqrt(limit * (1 - limit) / 25)
        assert gap == pytest.approx(normal_quantile(0.95))


def test_clopper_pearson_tails_by_enumeration() -> None:
    interval = clopper_pearson(3, 12)
    above = sum(stats.binom.pmf(k, 12, interval.low) for k in range(3, 13))
    below = sum(stats.binom.pmf(k, 12, interval.high) for k in range(4))
    assert (above, below) == pytest.approx((0.025, 0.025))


@pytest.mark.parametrize("n", [1, 7, 30])
def test_clopper_pearson_never_covers_less(n: int) -> None:
    interval = clopper_pearson(np.arange(n + 1), n)
    for p in np.linspace(0.0, 1.0, 101):
        inside = (interval.low <= p) & (p <= interval.high)
        assert stats.binom.pmf(np.arange(n + 1), n, p)[inside].sum() >= 0.95 - 1e-12


@pytest.mark.parametrize("method", METHODS)
@given(count=counts, level=levels)
def test_contains_estimate_and_stays_inside(method, count, level) -> None:
    k, n = count
    interval = method(k, n, level=level)
    assert isinstance(interval.low, float) and isinstance(interval.high, float)
    assert 0.0 <= interval.low <= k / n <= interval.high <= 1.0
    assert (interval.low == 0.0) == (k == 0)
    assert (interval.high == 1.0) == (k == n)
    assert interval.level == level


@pytest.mark.parametrize("method", METHODS)
@given(count=counts, level=levels)
def test_symmetric(method, count, level) -> None:
    k, n = count
    interval, mirrored = method(k, n, level=level), method(n - k, n, level=level)
    assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-10)
    assert interval.high == pytest.approx(1 - mirrored.low, abs=1e-10)


@pytest.mark.parametrize("method", METHODS)
@given(n=st.integers(2, 400), level=levels)
def test_monotone_in_k(method, n, level) -> None:
    interval = method(np.arange(n + 1), n, level=level)
    assert (np.diff(interval.low) > 0).all() and (np.diff(interval.high) > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_arrays_equal_scalars(method) -> None:
    k, n = np.array([[0, 3], [5, 9]]), np.array([5, 9])
    interval = method(k, n)
    assert interval.low.shape == (2, 2)
    for place in np.ndindex(2, 2):
        alone = method(int(k[place]), int(n[place[1]]))
        assert (interval.low[place], interval.high[place]) == (alone.low, alone.high)
    assert method(np.int64(3), np.int32(9)) == method(3, 9)


def test_width_and_at() -> None:
    interval = wilson([1, 2], 10)
    assert interval.at(1) == wilson(2, 10)
    assert interval.width.tolist() == (interval.high - interval.low).tolist()
    assert interval.at(0).method == "wilson"


@pytest.mark.parametrize("method", METHODS)
def test_refuses(method) -> None:
    with pytest.raises(NotApplicable, match="no images"):
        method(0, 0)
    with pytest.raises(NotApplicable):
        method([1, 0], [3, 0])
    for k, n in ((5, 4), (-1, 4), (float("nan"), 4), (1, float("inf"))):
        with pytest.raises(ValueError, match="counts"):
            method(k, n)
    for level in (0.0, 1.0, 95, float("nan")):
        with pytest.raises(UserError, match="level"):
            method(1, 4, level=level)


def test_tiny_tails_keep_their_digits() -> None:
    assert normal_quantile(1 - 1e-9) == pytest.approx(stats.norm.isf(5e-10), rel=1e-6)
    interval = clopper_pearson(50, 100, level=1 - 1e-9)
    assert 0.1 < interval.low < 0.25 and 0.75 < interval.high < 0.9


def test_import_loads_no_scipy() -> None:
    program = (
        "import importlib, pkgutil, sys, heldout.stats as room\n"
        "for found in pkgutil.iter_modules(room.__path__, 'heldout.stats.'):\n"
        "    importlib.import_module(found.name)\n"
        "sys.modules['heldout.stats.intervals'].wilson(1, 2)\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('scipy', 'pandas', 'pyarrow')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_interval_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Interval(0.0, 1.0, "wilson", 0.95).low = 0.5  # type: ignore[misc]

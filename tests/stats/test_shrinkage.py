"""Many small slices read together: against a slow integration, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.stats.slices import shrink


def slow(k: list[int], n: list[int], points: int = 400) -> tuple[list[float], float]:
    """Posterior means by plain loops over a fixed fine grid of mean and correlation."""
    from scipy.special import betaln

    grid = (np.arange(points) + 0.5) / points
    total, spread = 0.0, 0.0
    sums = np.zeros(len(k))
    for mean in grid:
        size = 1 / grid - 1
        a, b = mean * size, (1 - mean) * size
        log = sum(betaln(a + h, b + t - h) - betaln(a, b) for h, t in zip(k, n, strict=True))
        weight = np.exp(np.asarray(log) + sum(n) * 0.3)
        total += weight.sum()
        spread += (weight * np.sqrt(mean * (1 - mean) * grid)).sum()
        for place, (h, t) in enumerate(zip(k, n, strict=True)):
            sums[place] += (weight * (a + h) / (a + b + t)).sum()
    return (sums / total).tolist(), spread / total


@pytest.mark.parametrize(
    ("k", "n"),
    [
        ([2, 8, 9, 8, 9], [10, 10, 10, 10, 10]),
        ([0, 3, 17, 40], [4, 4, 20, 50]),
        ([5, 5, 5], [10, 10, 10]),
        ([1, 29, 30, 12, 25, 27], [30, 30, 30, 30, 30, 30]),
    ],
)
def test_agrees_with_a_slow_integration(k: list[int], n: list[int]) -> None:
    found = shrink(k, n)
    means, spread = slow(k, n)
    assert found.value == pytest.approx(means, abs=4e-3)
    assert found.spread == pytest.approx(spread, abs=6e-3)


@given(
    st.lists(
        st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
        min_size=2,
        max_size=12,
    )
)
def test_each_slice_moves_towards_the_others_and_stays_inside(pairs: list[tuple[int, int]]) -> None:
    k, n = map(list, zip(*pairs, strict=True))
    found = shrink(k, n)
    raw = np.array(k) / np.array(n)
    assert (found.value > 0).all() and (found.value < 1).all()
    assert (found.interval.low <= found.value).all() and (found.value <= found.interval.high).all()
    # A beta prior has its mean somewhere among the slices (or at one half): nothing overshoots.
    low, high = min(raw.min(), 0.5), max(raw.max(), 0.5)
    assert (found.value >= low - 1e-3).all() and (found.value <= high + 1e-3).all()
    assert found.spread_interval.low <= found.spread <= found.spread_interval.high + 1e-12


def test_the_order_of_slices_does_not_matter() -> None:
    k, n = [3, 9, 28, 40, 11], [10, 10, 40, 50, 12]
    order = [4, 2, 0, 3, 1]
    plain, turned = shrink(k, n), shrink([k[i] for i in order], [n[i] for i in order])
    assert turned.value == pytest.approx(plain.value[order], rel=1e-12)


def test_intervals_hold_also_for_the_slice_picked_as_the_worst() -> None:
    rng = np.random.default_rng(7)
    inside, worst, raw, shrunk = [], [], [], []
    for _ in range(150):
        true = rng.beta(16, 4, 40)
        n = rng.integers(25, 90, 40)
        k = rng.binomial(n, true)
        found = shrink(k, n)
        covered = (found.interval.low <= true) & (true <= found.interval.high)
        inside.append(covered.mean())
        pick = int(found.value.argmin())
        worst.append(covered[pick])
        shrunk.append(found.value[pick] - true[pick])
        raw.append((k / n).min() - true[(k / n).argmin()])
    assert 0.93 <= np.mean(inside) <= 0.97
    assert np.mean(worst) >= 0.89
    assert np.mean(raw) < -0.035  # the lowest raw accuracy promises worse than the truth
    assert abs(np.mean(shrunk)) < 0.012


def test_equal_slices_have_no_sure_spread_and_unequal_ones_do() -> None:
    rng = np.random.default_rng(3)
    n = np.full(80, 40)
    zero = [shrink(rng.binomial(n, 0.8), n).spread_interval.low == 0 for _ in range(60)]
    assert np.mean(zero) >= 0.9
    assert shrink(rng.binomial(n, rng.beta(4, 1, 80)), n).spread_interval.low > 0.05


def test_what_cannot_be_read_together_is_refused() -> None:
    with pytest.raises(NotApplicable, match="one slice"):
        shrink([3], [4])
    with pytest.raises(NotApplicable, match="no images"):
        shrink([3, 0], [4, 0])

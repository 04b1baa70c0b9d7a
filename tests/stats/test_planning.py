from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heldout.core.errors import NotApplicable, UserError
from heldout.stats.intervals import wilson
from heldout.stats.paired import mcnemar_exact
from heldout.stats.planning import (
    design_effect,
    images_for_difference,
    images_for_half_width,
    images_to_say_anything,
    mcnemar_power,
    smallest_detectable,
    smallest_detectable_difference,
)


@pytest.mark.parametrize("half_width", [0.2, 0.05, 0.01])
@pytest.mark.parametrize("accuracy", [0.5, 0.76, 0.99])
def test_half_width_by_scanning(half_width, accuracy) -> None:
    n = images_for_half_width(half_width, accuracy=accuracy)
    widths = wilson(accuracy * np.arange(1, n + 1), np.arange(1, n + 1)).width
    assert np.flatnonzero(widths <= 2 * half_width).tolist() == [n - 1]


def test_half_width_in_a_simulation() -> None:
    n = images_for_half_width(0.03, accuracy=0.8)
    k = np.random.default_rng(0).binomial(n, 0.8, 4000)
    assert np.mean(wilson(k, n).width) / 2 == pytest.approx(0.03, abs=3e-4)


def test_design_effect_multiplies() -> None:
    plain = images_for_half_width(0.02, accuracy=0.8)
    effect = design_effect(10, 0.2)
    assert effect == pytest.approx(2.8)
    clustered = images_for_half_width(0.02, accuracy=0.8, design_effect=effect)
    assert clustered == int(np.ceil(plain * effect))


def slow_power(n: int, disagreement: float, difference: float, level: float) -> float:
    """Every outcome of n images: only a right, only b right, neither."""
    first, second = (disagreement + difference) / 2, (disagreement - difference) / 2
    total = 0.0
    for a in range(n + 1):
        for b in range(n + 1 - a):
            if mcnemar_exact(a, b) <= 1 - level:
                total += stats.multinomial.pmf(
                    [a, b, n - a - b], n, [first, second, 1 - first - second]
                )
    return total


@pytest.mark.parametrize(
    ("n", "disagreement", "difference", "level"),
    [(20, 0.5, 0.3, 0.95), (40, 0.3, 0.2, 0.9), (12, 1.0, 0.8, 0.95), (15, 0.4, 0.4, 0.95)],
)
def test_power_by_enumeration(n, disagreement, difference, level) -> None:
    power = mcnemar_power(n, disagreement=disagreement, difference=difference, level=level)
    assert power == pytest.approx(slow_power(n, disagreement, difference, level), abs=1e-9)


def test_power_of_no_difference_is_below_its_level() -> None:
    for n in (10, 100, 1000):
        assert mcnemar_power(n, disagreement=0.2, difference=0.0) <= 0.05


def test_planned_difference_in_a_simulation() -> None:
    n = images_for_difference(0.03, disagreement=0.12, power=0.8)
    draws = np.random.default_rng(0).multinomial(n, [0.075, 0.045, 0.88], size=20_000)
    found = (mcnemar_exact(draws[:, 0], draws[:, 1]) <= 0.05).mean()
    assert found == pytest.approx(0.8, abs=0.012)
    assert mcnemar_power(n - 1, disagreement=0.12, difference=0.03) < 0.8
    # the textbook's normal formula (Connor 1987) is close
    z, w = stats.norm.ppf(0.975), stats.norm.ppf(0.8)
    textbook = (z * np.sqrt(0.12) + w * np.sqrt(0.12 - 0.03**2)) ** 2 / 0.03**2
    assert n == pytest.approx(textbook, rel=0.05)
    assert images_for_difference(-0.03, disagreement=0.12) == n


def test_smallest_detectable_difference_inverts_the_plan() -> None:
    n = images_for_difference(0.02, disagreement=0.1)
    assert smallest_detectable_difference(n, disagreement=0.1) == pytest.approx(0.02, abs=1e-4)
    with pytest.raises(NotApplicable, match="cannot tell"):
        smallest_detectable_difference(10, disagreement=0.05)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(10, 400), reference=st.floats(0.35, 0.95))
def test_smallest_detectable_by_enumeration(n, reference) -> None:
    drop = smallest_detectable(n, reference=reference)
    k = np.arange(n + 1)
    rejected = stats.binom.cdf(k, n, reference) <= 0.025
    power = stats.binom.pmf(k, n, reference - drop)[rejected].sum()
    less = stats.binom.pmf(k, n, reference - drop + 1e-4)[rejected].sum()
    assert 0 < drop <= reference
    assert power >= 0.8 - 1e-9 > less - 1e-9 or drop == pytest.approx(reference, abs=2e-6)


def test_smallest_detectable_shrinks_with_n_and_grows_with_slices() -> None:
    drops = [smallest_detectable(n, reference=0.76) for n in (10, 50, 250, 1250)]
    assert drops == sorted(drops, reverse=True)
    assert smallest_detectable(50, reference=0.76, slices=1000) > drops[1]


def test_slices_too_small_to_say_anything() -> None:
    for slices in (1, 10, 1000):
        n = images_to_say_anything(0.76, slices=slices)
        assert 0.24**n <= 0.025 / slices < 0.24 ** (n - 1)
        assert smallest_detectable(n, reference=0.76, slices=slices) <= 0.76
        with pytest.raises(NotApplicable, match=f"at least {n}"):
            smallest_detectable(n - 1, reference=0.76, slices=slices)


def test_refusals() -> None:
    for call in (
        lambda: images_for_half_width(0.0, accuracy=0.5),
        lambda: images_for_half_width(0.01, accuracy=1.0),
        lambda: images_for_difference(0.0, disagreement=0.1),
        lambda: images_for_difference(0.2, disagreement=0.1),
        lambda: images_for_difference(0.01, disagreement=0.0),
        lambda: images_for_difference(0.01, disagreement=0.1, power=1.0),
        lambda: mcnemar_power(0, disagreement=0.1, difference=0.01),
        lambda: mcnemar_power(10, disagreement=0.1, difference=0.01, level=2),
        lambda: smallest_detectable(0, reference=0.5),
        lambda: smallest_detectable(10, reference=0.5, slices=0),
        lambda: design_effect(0, 0.1),
        lambda: images_for_half_width(1e-9, accuracy=0.5),
    ):
        with pytest.raises(UserError):
            call()

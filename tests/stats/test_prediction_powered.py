"""Means of half-known answers: exact cases, a slow oracle of the limits, and coverage by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import wilson, wilson_limits
from heldout.stats.prediction_powered import (
    Powered,
    drawing_chances,
    drawing_order,
    prediction_powered,
)


def drawn(
    rng: np.random.Generator, y: np.ndarray, sizes: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Answers of the first ``count`` in order, NaN elsewhere; and the chances."""
    keys = drawing_order(rng.random(len(y)), sizes)
    order = np.argsort(keys)
    threshold = math.inf if count == len(y) else float(keys[order[count]])
    seen = np.full(len(y), np.nan)
    seen[order[:count]] = y[order[:count]]
    return seen, drawing_chances(sizes, threshold)


def population(
    rng: np.random.Generator, n: int, rate: float, quality: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers, predictions of some quality, weights."""
    base, spread = math.log(rate / (1 - rate)), 2.0 * rng.normal(size=n)
    chance = 1 / (1 + np.exp(-(base + spread)))
    y = (rng.random(n) < chance).astype(float)
    noise = 1 / (1 + np.exp(-(base + 2.0 * rng.normal(size=n))))
    f = {"good": chance, "noise": noise, "upside down": 1 - chance}[quality]
    return y, f, rng.gamma(2.0, 1.0, n)


@pytest.mark.parametrize("quality", ["good", "noise", "upside down"])
@pytest.mark.parametrize(("n", "count", "rate"), [(60, 20, 0.3), (400, 40, 0.05)])
def test_intervals_hold_their_level(quality: str, n: int, count: int, rate: float) -> None:
    rng = np.random.default_rng(11)
    held, errors = 0, []
    for _ in range(200):
        y, f, w = population(rng, n, rate, quality)
        sizes = w * np.sqrt(f * (1 - f) + 0.02)
        found = prediction_powered(*_arguments(rng, y, f, sizes, count), weights=w)
        truth = float(w @ y / w.sum())
        held += found.interval.low <= truth <= found.interval.high
        errors.append(found.value - truth)
    assert held / 200 >= 0.915, "three standard errors below 0.95 would be 0.904"
    assert abs(np.mean(errors)) < 4 * np.std(errors) / math.sqrt(200) + 0.004


def _arguments(
    rng: np.random.Generator, y: np.ndarray, f: np.ndarray, sizes: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    seen, chances = drawn(rng, y, sizes, count)
    return seen, f, chances


def test_good_predictions_and_their_order_narrow_the_interval() -> None:
    rng = np.random.default_rng(5)
    widths: dict[str, list[float]] = {"plain": [], "powered": [], "ordered": []}
    for _ in range(40):
        y, f, w = population(rng, 500, 0.1, "good")
        flat = np.ones(500)
        for name, predicted, sizes in (
            ("plain", np.full(500, 0.5), flat),
            ("powered", f, flat),
            ("ordered", f, w * np.sqrt(f * (1 - f) + 0.02)),
        ):
            seen, chances = drawn(rng, y, sizes, 100)
            widths[name].append(
                prediction_powered(seen, predicted, chances, weights=w).interval.width
            )
    plain, powered, ordered = (float(np.mean(widths[n])) for n in ("plain", "powered", "ordered"))
    assert powered < 0.95 * plain
    assert ordered < 0.8 * powered


def test_all_known_is_exact() -> None:
    y = np.array([1.0, 0.0, 0.0, 1.0])
    found = prediction_powered(y, np.full(4, 0.2), np.ones(4), weights=[1, 2, 3, 4])
    assert found.value == found.interval.low == found.interval.high == pytest.approx(0.5)
    assert found.interval.width == 0 and found.interval.method == "complete"


def test_equal_chances_and_no_predictions_are_wilsons_with_the_population_correction() -> None:
    n, count, right = 200, 50, 20
    y = np.full(n, np.nan)
    y[:count] = [1.0] * right + [0.0] * (count - right)
    found = prediction_powered(y, np.full(n, 0.5), np.full(n, count / n))
    assert found.value == pytest.approx(right / count)
    assert found.power == 0
    effective = count / (1 - count / n)
    low, high = wilson_limits(right / count, effective, 1.959964)
    assert low - 0.02 < found.interval.low <= low + 1e-9
    assert high - 1e-9 <= found.interval.high < high + 0.02
    plain = wilson(right, count)
    assert found.interval.width < plain.width, "a quarter of the population is known"


def test_a_handful_of_equal_answers_is_no_point() -> None:
    y = np.full(300, np.nan)
    y[:8] = 0.0
    found = prediction_powered(y, np.full(300, 0.1), np.full(300, 8 / 300))
    assert found.value == 0 and found.interval.low == 0
    assert 0.25 < found.interval.high < 0.45, "Wilson's for 0 of 8 ends at 0.32"


def test_the_estimate_stays_within_what_is_possible() -> None:
    y = np.array([1.0, 1.0, 1.0, np.nan])
    found = prediction_powered(y, [0.9, 0.9, 0.1, 0.1], np.full(4, 0.75))
    assert 0.75 <= found.interval.low <= found.value <= found.interval.high <= 1.0


@given(st.integers(0, 10_000), st.integers(3, 30), st.floats(0.05, 0.9))
def test_limits_bracket_the_value_and_a_slow_scan_agrees(seed: int, n: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    y, f, w = population(rng, n, rate, "good")
    count = int(rng.integers(2, n))
    seen, chances = drawn(rng, y, np.ones(n), count)
    if not ((chances < 1) & ~np.isnan(seen)).any():
        return
    found = prediction_powered(seen, f, chances, weights=w)
    assert found.interval.low <= found.value <= found.interval.high
    assert found.n == count and found.of == n
    assert (found.fitted >= 0).all() and (found.fitted <= 1).all()
    _check_scan(found, f, chances, w / w.sum(), seen)


def _check_scan(
    found: Powered, f: np.ndarray, p: np.ndarray, q: np.ndarray, seen: np.ndarray
) -> None:
    """Every mean on a fine grid of shifts that the model's spread alone allows is inside."""
    known = np.where(np.isnan(seen), 0.0, seen)
    least = float(q @ known)
    most = least + float(q[np.isnan(seen)].sum())
    logits = np.log(np.clip(f, 1e-3, 0.999) / (1 - np.clip(f, 1e-3, 0.999)))
    power = min(found.power, 1.0)
    for shift in np.linspace(-15, 15, 61):
        moved = 1 / (1 + np.exp(-(logits + shift)))
        mean = float(q @ moved)
        answers = (1 - power) * mean + power * moved
        variance = float((q**2 * (1 - p) / p) @ (answers * (1 - answers)))
        near = abs(mean - found.value) <= 1.95 * math.sqrt(max(variance, 0))
        if near and least <= mean <= most:
            assert found.interval.low - 1e-9 <= mean <= found.interval.high + 1e-9


@given(st.integers(0, 1000), st.integers(1, 20))
def test_more_answers_only_add_to_the_sample(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    keys = drawing_order(rng.random(30), rng.gamma(2.0, 1.0, 30))
    order = np.argsort(keys)
    assert set(order[:count]) <= set(order[: count + 1])


def test_chances_are_those_with_which_pairs_are_drawn() -> None:
    """Given the threshold, the share of draws in which each is below it."""
    sizes = np.array([0.5, 1.0, 2.0, 8.0])
    rng = np.random.default_rng(0)
    keys = np.stack([drawing_order(rng.random(4), sizes) for _ in range(20_000)])
    np.testing.assert_allclose((keys < 0.3).mean(axis=0), drawing_chances(sizes, 0.3), atol=0.012)
    assert drawing_chances(sizes, math.inf).tolist() == [1, 1, 1, 1]


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(NotApplicable, match="says anything about the rest"):
        prediction_powered([1.0, np.nan], [0.5, 0.5], [1.0, 0.5])
    with pytest.raises(ValueError, match="chances"):
        prediction_powered([1.0, np.nan], [0.5, 0.5], [0.5, 0.0])

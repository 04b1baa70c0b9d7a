"""Multinomial regression: both ways end at the optimum that a slow solver finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from heldout.stats.multinomial import multinomial_gradient, multinomial_newton, softmax


def objective(
    flat: np.ndarray, x: np.ndarray, y: np.ndarray, classes: int, penalty: np.ndarray
) -> float:
    """The penalised loss, row by row."""
    weights = flat.reshape(x.shape[1], classes)
    total = 0.5 * float((penalty[:, None] * weights**2).sum())
    for row, label in zip(x, y, strict=True):
        logits = row @ weights
        total += float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label])
    return total


def some_rows(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(size=(n, d)), np.ones(n)]), rng.integers(3, size=n)


@pytest.mark.parametrize(("n", "d"), [(30, 3), (8, 12)])
def test_the_optimum_is_that_of_a_slow_solver(n: int, d: int) -> None:
    """More rows than columns, and fewer: there the optimum is looked for in their span."""
    x, y = some_rows(n, d, seed=n)
    penalty = np.full(d + 1, 0.3)
    slow = minimize(
        objective, np.zeros((d + 1) * 4), (x, y, 4, penalty), method="BFGS", options={"gtol": 1e-6}
    )
    newton, _ = multinomial_newton(x, y, classes=4, penalty=penalty)
    for got in (multinomial_gradient(x, y, classes=4, penalty=0.3), newton):
        assert got.ravel() == pytest.approx(slow.x, abs=2e-4)
        assert objective(got.ravel(), x, y, 4, penalty) <= slow.fun + 1e-6
        assert (got[-1, 3] < got[-1, :3]).all()  # no row names the fourth class


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 30), d=st.integers(0, 8), seed=st.integers(0, 99),
    penalty=st.floats(0.01, 100.0),
)  # fmt: skip
def test_both_ways_agree(n: int, d: int, seed: int, penalty: float) -> None:
    x, y = some_rows(n, d, seed)
    newton, covariance = multinomial_newton(x, y, classes=3, penalty=np.full(d + 1, penalty))
    steps = multinomial_gradient(x, y, classes=3, penalty=penalty)
    assert softmax(x @ steps) == pytest.approx(softmax(x @ newton), abs=2e-3)
    assert (np.linalg.eigvalsh(covariance) > 0).all()


def test_penalties_of_their_own() -> None:
    x, y = some_rows(25, 2, seed=5)
    penalty = np.array([0.1, 50.0, 1.0])
    slow = minimize(objective, np.zeros(9), (x, y, 3, penalty), method="BFGS")
    newton, _ = multinomial_newton(x, y, classes=3, penalty=penalty)
    assert newton.ravel() == pytest.approx(slow.x, abs=2e-4)


def test_repeated_rows_are_no_trouble() -> None:
    x = np.repeat(np.random.default_rng(0).normal(size=(3, 20)), 4, axis=0)
    y = np.repeat([0, 1, 2], 4)
    weights = multinomial_gradient(x, y, classes=3, penalty=0.01)
    assert np.isfinite(weights).all()
    assert ((x @ weights).argmax(axis=1) == y).all()

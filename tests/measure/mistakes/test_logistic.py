"""The regression: at its optimum, with standard errors that hold, on odd data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from heldout.measure.mistakes.logistic import fit_logistic


def _data(seed: int, n: int = 80, d: int = 3, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * [1.0, 10.0, 0.1][:d] + 5
    logits = (x - 5) @ rng.normal(size=(d, k))
    return x, (logits + rng.gumbel(size=(n, k))).argmax(axis=1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ridge", [0.5, 20.0])
def test_optimum_of_the_penalised_likelihood(seed: int, ridge: float) -> None:
    x, y = _data(seed)
    fitted = fit_logistic(x, y, 3, ridge=ridge)
    z = (x - x.mean(axis=0)) / x.std(axis=0)

    def loss(flat: np.ndarray) -> float:
        table = flat.reshape(3, 4)
        logits = z @ table[:, 1:].T + table[:, 0]
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return float(-log_p[np.arange(len(y)), y].sum() + 0.5 * ridge * (table[:, 1:] ** 2).sum())

    ours = np.hstack([fitted.constants[:, None], fitted.coefficients]).ravel()
    theirs = minimize(loss, np.zeros(12), method="BFGS").fun
    assert loss(ours) <= theirs + 1e-4
    assert fitted.probabilities(x).sum(axis=1) == pytest.approx(np.ones(len(x)))
    assert fitted.coefficients.sum(axis=0) == pytest.approx(np.zeros(3), abs=1e-6)
    assert fitted.constants.sum() == pytest.approx(0.0, abs=1e-4)


def test_order_and_scale_of_rows_and_columns_do_not_matter() -> None:
    x, y = _data(7)
    order = np.random.default_rng(0).permutation(len(x))
    plain = fit_logistic(x, y, 3, ridge=3.0).probabilities(x)
    mixed = fit_logistic(x[order], y[order], 3, ridge=3.0).probabilities(x)
    scaled = fit_logistic(x * 1000 - 7, y, 3, ridge=3.0).probabilities(x * 1000 - 7)
    assert mixed == pytest.approx(plain, abs=1e-6)
    assert scaled == pytest.approx(plain, abs=1e-6)


def test_a_strong_ridge_leaves_the_shares() -> None:
    x, y = _data(3)
    fitted = fit_logistic(x, y, 3, ridge=1e9)
    shares = np.bincount(y, minlength=3) / len(y)
    assert fitted.probabilities(x) == pytest.approx(np.tile(shares, (len(x), 1)), abs=1e-4)


def test_separable_and_constant_and_missing_columns() -> None:
    x = np.column_stack([np.repeat([0.0, 1.0], 20), np.full(40, 3.0), np.full(40, np.nan)])
    x[::7, 0] = np.nan
    y = np.repeat([0, 1], 20)
    fitted = fit_logistic(x, y, 2, ridge=1.0)
    found = fitted.probabilities(x)
    assert np.isfinite(found).all() and np.isfinite(fitted.spread(x)).all()
    known = ~np.isnan(x[:, 0])
    assert (found[known].argmax(axis=1) == y[known]).all()
    assert abs(found[~known, 1] - 0.5).max() < 0.2  # the mean of the column says little


def test_a_category_without_rows_is_hardly_ever_chosen() -> None:
    x, y = _data(1, k=2)
    assert fit_logistic(x, y, 3, ridge=1.0).probabilities(x)[:, 2].max() < 1e-3


def test_spread_is_that_of_repeated_samples() -> None:
    """The standard error of the log odds against what 400 samples of one source give."""
    beta, n = np.array([0.8, -0.5]), 400
    point = np.array([[0.5, -0.5]])
    odds, errors = [], []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, 2))
        y = (rng.random(n) < 1 / (1 + np.exp(-(x @ beta + 0.3)))).astype(int)
        fitted = fit_logistic(x, y, 2, ridge=0.01)
        logits = fitted.logits(point)[0]
        odds.append(logits[1] - logits[0])
        errors.append(fitted.spread(point)[0])
    assert np.mean(errors) == pytest.approx(np.std(odds), rel=0.15)

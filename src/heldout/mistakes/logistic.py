"""Logistic regression with a ridge: small tables, exact optimum, no random numbers.

Multinomial, fitted by Newton's method on the penalised log-likelihood

    sum_i log p(y_i | x_i) - ridge / 2 * sum_jk B_jk^2

with the constants ``b`` not penalised. Columns are centred and scaled first, so one ridge fits all
of them; a missing cell (NaN) counts as the column's mean. All categories have coefficients of their
own: the ridge, and constants that sum to zero, make the optimum unique.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_STEPS = 100
_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted regression of ``k`` categories on ``d`` columns.

    ``centre``, ``scale``  (d,): what a column is reduced by
    ``constants``          (k,), summing to zero
    ``coefficients``       (k, d), for the reduced columns
    ``covariance``         (k * (d + 1), k * (d + 1)): of constants and coefficients, category by
                           category, from the curvature at the optimum (Laplace)
    """

    centre: np.ndarray
    scale: np.ndarray
    constants: np.ndarray
    coefficients: np.ndarray
    covariance: np.ndarray

    def reduced(self, values: np.ndarray) -> np.ndarray:
        """Columns (n, d) centred and scaled; 0 where missing."""
        found: np.ndarray = np.nan_to_num((values - self.centre) / self.scale, nan=0.0)
        return found

    def logits(self, values: np.ndarray) -> np.ndarray:
        """(n, k)."""
        found: np.ndarray = self.reduced(values) @ self.coefficients.T + self.constants
        return found

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """(n, k), each row summing to one."""
        return _softmax(self.logits(values))

    def spread(self, values: np.ndarray, category: int) -> np.ndarray:
        """Standard error of the log odds of ``category`` against the rest, (n,), by the delta method."""
        x = np.hstack([np.ones((len(values), 1)), self.reduced(values)])
        p = _softmax(x @ np.hstack([self.constants[:, None], self.coefficients]).T)
        # d log(p_c / (1 - p_c)) / d z_j = [j = c] for c, and -p_j / (1 - p_c) for the others.
        slope = -p / np.maximum(1.0 - p[:, [category]], 1e-12)
        slope[:, category] = 1.0
        gradient = (slope[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        variance = np.einsum("ni,ij,nj->n", gradient, self.covariance, gradient)
        found: np.ndarray = np.sqrt(np.maximum(variance, 0.0))
        return found


def fit_logistic(
    values: np.ndarray, codes: np.ndarray, categories: int, *, ridge: float
) -> Logistic:
    """Fit ``codes`` (n,) in ``0 … categories - 1`` to ``values`` (n, d); ``ridge`` above 0."""
    if ridge <= 0:
        raise ValueError("ridge must be above 0")
    n, d = values.shape
    centre, scale = _centre_and_scale(values)
    x = np.hstack([np.ones((n, 1)), np.nan_to_num((values - centre) / scale, nan=0.0)])
    target = np.eye(categories)[codes]
    penalty = np.full(d + 1, ridge)
    # Constants are only tied to each other; a trace of ridge makes their sum zero.
    penalty[0] = 1e-6
    beta = np.zeros((categories, d + 1))
    loss = _loss(x, target, beta, penalty)
    for _ in range(_STEPS):
        p = _softmax(x @ beta.T)
        gradient = (p - target).T @ x + penalty * beta
        hessian = _hessian(x, p, penalty)
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(beta.shape)
        size = 1.0
        while size > 1e-6:
            trial = beta - size * step
            better = _loss(x, target, trial, penalty)
            if better <= loss:
                break
            size /= 2
        else:
            break
        gain, beta, loss = loss - better, trial, better
        if gain <= _TOLERANCE * (1.0 + abs(loss)):
            break
    hessian = _hessian(x, _softmax(x @ beta.T), penalty)
    return Logistic(centre, scale, beta[:, 0], beta[:, 1:], np.linalg.inv(hessian))


def _centre_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    given = ~np.isnan(values)
    count = np.maximum(given.sum(axis=0), 1)
    filled = np.where(given, values, 0.0)
    centre = filled.sum(axis=0) / count
    spread = np.sqrt((np.where(given, values - centre, 0.0) ** 2).sum(axis=0) / count)
    return centre, np.where(spread > 1e-12, spread, 1.0)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: np.ndarray = shifted / shifted.sum(axis=1, keepdims=True)
    return found


def _loss(x: np.ndarray, target: np.ndarray, beta: np.ndarray, penalty: np.ndarray) -> float:
    logits = x @ beta.T
    top = logits.max(axis=1, keepdims=True)
    normaliser = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
    fit = normaliser.sum() - (logits * target).sum()
    return float(fit + 0.5 * (penalty * beta**2).sum())


def _hessian(x: np.ndarray, p: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    categories, width = p.shape[1], x.shape[1]
    found = np.empty((categories, width, categories, width))
    for a in range(categories):
        for b in range(a, categories):
            weight = p[:, a] * ((a == b) - p[:, b])
            block = (x * weight[:, None]).T @ x
            found[a, :, b, :] = block
            found[b, :, a, :] = block.T
    flat = found.reshape(categories * width, categories * width)
    flat[np.diag_indices(len(flat))] += np.tile(penalty, categories)
    return flat

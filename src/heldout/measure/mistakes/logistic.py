"""Logistic regression with a ridge on small tables whose columns have any scale and may have gaps.

Columns are centred and scaled first, so one ridge fits all of them; a missing cell (NaN) counts as
the column's mean. The constants are not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.stats.multinomial import multinomial_newton, softmax


@dataclass(frozen=True, eq=False)
class LogisticModel:
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
        return softmax(self.logits(values))

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Standard error of the log odds of the second of two categories, (n,), by the delta method."""
        x = np.hstack([np.ones((len(values), 1)), self.reduced(values)])
        gradient = np.hstack([-x, x])
        variance = np.einsum("ni,ij,nj->n", gradient, self.covariance, gradient)
        found: np.ndarray = np.sqrt(np.maximum(variance, 0.0))
        return found


def fit_logistic(
    values: np.ndarray, codes: np.ndarray, categories: int, *, ridge: float
) -> LogisticModel:
    """Fit ``codes`` (n,) in ``0 … categories - 1`` to ``values`` (n, d); ``ridge`` above 0."""
    centre, scale = _centre_and_scale(values)
    reduced = np.nan_to_num((values - centre) / scale, nan=0.0)
    design = np.hstack([np.ones((len(values), 1)), reduced])
    penalty = np.full(design.shape[1], ridge)
    # Constants are only tied to each other; a trace of ridge makes their sum zero.
    penalty[0] = 1e-6
    weights, covariance = multinomial_newton(design, codes, classes=categories, penalty=penalty)
    return LogisticModel(centre, scale, weights[0], weights[1:].T, covariance)


def _centre_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    given = ~np.isnan(values)
    count = np.maximum(given.sum(axis=0), 1)
    filled = np.where(given, values, 0.0)
    centre = filled.sum(axis=0) / count
    spread = np.sqrt((np.where(given, values - centre, 0.0) ** 2).sum(axis=0) / count)
    return centre, np.where(spread > 1e-12, spread, 1.0)

"""Multinomial logistic regression with an L2 penalty: one objective, two ways to its optimum.

With a design ``x`` (n, width), labels ``y`` (n,) and weights ``W`` (width, classes), both minimise

    sum_i -log p(y_i | x_i) + 1/2 * sum_jc penalty_j * W_jc^2

from zero, without random numbers. Every class has weights of its own; with a penalty above 0 in
every row of ``W`` the optimum is unique, also for a class that no label names.
"""

from __future__ import annotations

import numpy as np

_NEWTON_STEPS = 100
_NEWTON_TOLERANCE = 1e-9
_GRADIENT_STEPS = 500


def softmax(logits: np.ndarray) -> np.ndarray:
    """(n, classes), each row summing to one.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: np.ndarray = shifted / shifted.sum(axis=1, keepdims=True)
    return found


def multinomial_newton(
    design: np.ndarray, labels: np.ndarray, *, classes: int, penalty: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The weights (width, classes) and their covariance, by Newton's method: for small tables.

    The covariance (classes * width, classes * width), class by class, is the inverse of the
    curvature at the optimum (Laplace).

    >>> x, y = np.array([[-1.0], [-1.0], [1.0], [1.0]]), np.array([0, 0, 1, 1])
    >>> weights, covariance = multinomial_newton(x, y, classes=2, penalty=np.array([1.0]))
    >>> weights.round(3).tolist(), covariance.shape
    ([[-0.741, 0.741]], (2, 2))
    """
    target = _one_hot(labels, classes)
    weights = np.zeros((design.shape[1], classes))
    loss, gradient = _objective(design, target, weights, penalty)
    for _ in range(_NEWTON_STEPS):
        curvature = _curvature(design, softmax(design @ weights), penalty)
        step = np.linalg.solve(curvature, gradient.T.ravel()).reshape(classes, -1).T
        size = 1.0
        while size > 1e-6:
            trial = weights - size * step
            better, steepness = _objective(design, target, trial, penalty)
            if better <= loss:
                break
            size /= 2
        else:
            break
        gain, weights, loss, gradient = loss - better, trial, better, steepness
        if gain <= _NEWTON_TOLERANCE * (1.0 + abs(loss)):
            break
    curvature = _curvature(design, softmax(design @ weights), penalty)
    return weights, np.linalg.inv(curvature)


def multinomial_gradient(
    design: np.ndarray, labels: np.ndarray, *, classes: int, penalty: float
) -> np.ndarray:
    """The weights (width, classes), by L-BFGS, one penalty for all: for wide tables.

    With fewer rows than columns the optimum lies in the space that the rows span, and is looked
    for there.

    >>> x, y = np.array([[-1.0], [-1.0], [1.0], [1.0]]), np.array([0, 0, 1, 1])
    >>> multinomial_gradient(x, y, classes=2, penalty=1.0).round(3).tolist()
    [[-0.741, 0.741]]
    """
    from scipy.optimize import minimize

    basis = None
    if design.shape[0] < design.shape[1]:
        values, vectors = np.linalg.eigh(design @ design.T)
        kept = values > values[-1] * 1e-13  # rows that others span add no direction
        lengths = np.sqrt(values[kept])
        basis = design.T @ (vectors[:, kept] / lengths)
        design = vectors[:, kept] * lengths
    n, width = design.shape
    target, penalties = _one_hot(labels, classes), np.full(width, penalty)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = _objective(design, target, flat.reshape(width, classes), penalties)
        return loss / n, gradient.ravel() / n  # a row's share: one tolerance serves any number

    found = minimize(
        objective,
        np.zeros(width * classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _GRADIENT_STEPS, "ftol": 1e-11, "gtol": 1e-6, "maxcor": 10},
    )
    weights: np.ndarray = found.x.reshape(width, classes)
    return weights if basis is None else basis @ weights


def _one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    found = np.zeros((len(labels), classes))
    found[np.arange(len(labels)), labels] = 1.0
    return found


def _objective(
    design: np.ndarray, target: np.ndarray, weights: np.ndarray, penalty: np.ndarray
) -> tuple[float, np.ndarray]:
    """What is minimised, and its gradient (width, classes)."""
    logits = design @ weights
    top = logits.max(axis=1, keepdims=True)
    shifted = np.exp(logits - top)
    total = shifted.sum(axis=1, keepdims=True)
    fit = float((np.log(total) + top).sum() - (target * logits).sum())
    pulled = penalty[:, None] * weights
    gradient: np.ndarray = design.T @ (shifted / total - target) + pulled
    return fit + 0.5 * float((pulled * weights).sum()), gradient


def _curvature(design: np.ndarray, p: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Second derivatives, (classes * width, classes * width), class by class."""
    classes, width = p.shape[1], design.shape[1]
    found = np.empty((classes, width, classes, width))
    for a in range(classes):
        for b in range(a, classes):
            weight = p[:, a] * ((a == b) - p[:, b])
            block = (design * weight[:, None]).T @ design
            found[a, :, b, :] = block
            found[b, :, a, :] = block.T
    flat = found.reshape(classes * width, classes * width)
    flat[np.diag_indices(len(flat))] += np.tile(penalty, classes)
    return flat

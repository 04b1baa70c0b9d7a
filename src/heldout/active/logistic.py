"""Multinomial logistic regression on frozen features: one optimum, the same every time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from heldout.active.training import Images
from heldout.errors import NotApplicable, UserError
from heldout.models.model import Answer

STRENGTH = 0.05
_STEPS = 500


class Logistic:
    """Multinomial logistic regression with an L2 penalty, by L-BFGS from zero.

    Features are centred on the labelled images and divided by one number, the root of their mean
    squared length. With ``W`` (d + 1, classes), the last row for a constant feature, it minimises
    ``sum(-log p(label)) + strength / 2 * ||W||^2``. The penalty makes the optimum unique, also for
    classes without a label. Where there are fewer images than features, the optimum lies in the
    space that the images span, and is looked for there.
    """

    def __init__(self, *, strength: float = STRENGTH) -> None:
        if not (np.isfinite(strength) and strength > 0):
            raise UserError(f"a strength of {strength}", fix="give a number above 0")
        self.strength = float(strength)
        self.name = "logistic"
        self.identity: Mapping[str, Any] = {
            "trainer": "logistic-1",
            "strength": self.strength,
        }

    def __call__(
        self, images: Images, labels: np.ndarray, *, classes: int, seed: int
    ) -> LinearClassifier:
        """A classifier for these images; ``seed`` changes nothing."""
        if images.features is None:
            raise NotApplicable("logistic regression needs features", fix="name them: --features")
        if not len(images):
            raise NotApplicable("a classifier from no labels", fix="label some images first")
        values = np.asarray(images.features, np.float64)
        mean = values.mean(axis=0)
        values = values - mean
        length = float(np.sqrt((values * values).sum(axis=1).mean()))
        scale = length if length > 0 else 1.0
        weights = fit_logistic(values / scale, labels, classes=classes, strength=self.strength)
        return LinearClassifier(mean, scale, weights)


class LinearClassifier:
    """Linear logits of centred and scaled features."""

    def __init__(self, mean: np.ndarray, scale: float, weights: np.ndarray) -> None:
        self._mean, self._scale, self._weights = mean, scale, weights

    def __call__(self, images: Images) -> Answer:
        """Logits of images; features are as they were."""
        if images.features is None:
            raise NotApplicable("logistic regression needs features", fix="name them: --features")
        values = (np.asarray(images.features, np.float64) - self._mean) / self._scale
        return Answer(values @ self._weights[:-1] + self._weights[-1])


def fit_logistic(
    values: np.ndarray, labels: np.ndarray, *, classes: int, strength: float
) -> np.ndarray:
    """The weights ``W``, float64 (d + 1, classes), for ``values`` (n, d) and ``labels`` (n,)."""
    from scipy.optimize import minimize

    design = np.column_stack([values, np.ones(len(values))])
    basis = None
    if design.shape[0] < design.shape[1]:
        values, vectors = np.linalg.eigh(design @ design.T)
        kept = values > values[-1] * 1e-13  # images that others span add no direction
        lengths = np.sqrt(values[kept])
        basis = design.T @ (vectors[:, kept] / lengths)
        design = vectors[:, kept] * lengths
    n, width = design.shape
    truth = np.zeros((n, classes))
    truth[np.arange(n), labels] = 1.0

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(width, classes)
        logits = design @ weights
        top = logits.max(axis=1, keepdims=True)
        expo = np.exp(logits - top)
        total = expo.sum(axis=1, keepdims=True)
        fit = float((np.log(total) + top).sum() - (truth * logits).sum())
        gradient = design.T @ (expo / total - truth) + strength * weights
        # Over the number of images, so that one tolerance serves any number.
        return (fit + 0.5 * strength * float(flat @ flat)) / n, gradient.ravel() / n

    found = minimize(
        loss,
        np.zeros(width * classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _STEPS, "ftol": 1e-11, "gtol": 1e-6, "maxcor": 10},
    )
    weights: np.ndarray = found.x.reshape(width, classes)
    return weights if basis is None else basis @ weights

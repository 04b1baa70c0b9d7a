"""Multinomial logistic regression on frozen features: one optimum, the same every time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.training import Images
from heldout.models.adapters.model import ModelOutput
from heldout.stats.multinomial import multinomial_gradient

STRENGTH = 0.05


class Logistic:
    """Multinomial logistic regression with an L2 penalty of ``strength``, also on its constants.

    Features are centred on the labelled images and divided by one number, the root of their mean
    squared length. The penalty makes the optimum unique, also for classes without a label.
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
        design = np.column_stack([values / scale, np.ones(len(values))])
        weights = multinomial_gradient(design, labels, classes=classes, penalty=self.strength)
        return LinearClassifier(mean, scale, weights)


class LinearClassifier:
    """Linear logits of centred and scaled features."""

    def __init__(self, mean: np.ndarray, scale: float, weights: np.ndarray) -> None:
        self._mean, self._scale, self._weights = mean, scale, weights

    def __call__(self, images: Images) -> ModelOutput:
        """Logits of images; features are as they were."""
        if images.features is None:
            raise NotApplicable("logistic regression needs features", fix="name them: --features")
        values = (np.asarray(images.features, np.float64) - self._mean) / self._scale
        return ModelOutput(values @ self._weights[:-1] + self._weights[-1])

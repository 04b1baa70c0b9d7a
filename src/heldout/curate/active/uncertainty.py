"""Numbers of one image that say how sure a classifier is: low where a label would tell most."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from heldout.core.errors import NotApplicable


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Log-softmax, float64 (n, classes)."""
    values = np.asarray(logits, np.float64)
    values = values - values.max(axis=1, keepdims=True)
    shifted: np.ndarray = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
    return shifted


def confidence(logits: np.ndarray) -> np.ndarray:
    """The highest probability, float64 (n,)."""
    top: np.ndarray = np.exp(log_probabilities(logits).max(axis=1))
    return top


def margin(logits: np.ndarray) -> np.ndarray:
    """The highest probability minus the second, float64 (n,)."""
    return _lead(np.exp(log_probabilities(logits)))


def logit_margin(logits: np.ndarray) -> np.ndarray:
    """The highest logit minus the second, float64 (n,): the log of the ratio of probabilities."""
    return _lead(np.asarray(logits, np.float64))


def negative_entropy(logits: np.ndarray) -> np.ndarray:
    """``sum p log p``, float64 (n,): 0 where one class has all, ``-log classes`` where all are equal."""
    logs = log_probabilities(logits)
    total: np.ndarray = (np.exp(logs) * logs).sum(axis=1)
    return total


SCORES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "least-confidence": confidence,
    "margin": margin,
    "logit-margin": logit_margin,
    "entropy": negative_entropy,
}
"""By selector: the number whose lowest values are chosen first."""


def _lead(values: np.ndarray) -> np.ndarray:
    """The highest minus the second of every row."""
    if values.shape[1] < 2:
        raise NotApplicable("a margin of one class", fix="use images of two classes or more")
    best = np.partition(values, values.shape[1] - 2, axis=1)[:, -2:]
    found: np.ndarray = best[:, 1] - best[:, 0]
    return found

"""What came out of a model, checked and brought into the shape of an :class:`Answer`."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from heldout.core.errors import MismatchError, UserError
from heldout.models.adapters.model import Answer

Outputs = Literal["logits", "probabilities"]
OUTPUTS: tuple[Outputs, ...] = ("logits", "probabilities")


def made_answer(
    logits: Any,
    features: Any = None,
    *,
    rows: int,
    classes: int,
    model: str,
    outputs: Outputs = "logits",
) -> Answer:
    """An answer of float32 (rows, classes) and (rows, d) from whatever arrays a model returned.

    Axes of length 1 after the second are dropped. Probabilities become their logarithms, which
    are logits of the same probabilities; a probability of 0 becomes that of the smallest float32.
    """
    scores = _matrix(logits, rows, "logits", model)
    if scores.shape[1] != classes:
        raise MismatchError(
            f"{model} gives {scores.shape[1]} outputs an image, its label space has {classes} classes",
            fix="state the label space that it was trained with",
        )
    if outputs == "probabilities":
        scores = np.log(np.maximum(scores, np.finfo(np.float32).tiny))
    return Answer(scores, None if features is None else _matrix(features, rows, "features", model))


def _matrix(value: Any, rows: int, what: str, model: str) -> np.ndarray:
    array = np.asarray(value)
    while array.ndim > 2 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.ndim != 2 or array.shape[0] != rows or array.dtype.kind not in "fiu":
        raise UserError(
            f"{model} gives {what} of {array.dtype} {array.shape} for {rows} images",
            fix=f"one row of numbers an image is needed, shape ({rows}, n)",
        )
    return np.ascontiguousarray(array, np.float32)


def finite_rows(answer: Answer) -> np.ndarray:
    """Which images have an answer at all, bool (b,): False where a logit or feature is NaN or ±inf.

    An answer with NaN has no best class; such an image counts as failed.
    """
    found: np.ndarray = np.isfinite(answer.logits).all(axis=1)
    if answer.features is not None:
        found &= np.isfinite(answer.features).all(axis=1)
    return found


def look_like_probabilities(logits: np.ndarray) -> bool:
    """Whether every row is at least 0 and sums to 1, as only a softmax makes it."""
    sums = logits.sum(axis=1, dtype=np.float64)
    return logits.shape[1] > 1 and bool((logits >= 0).all() and (abs(sums - 1) < 1e-3).all())

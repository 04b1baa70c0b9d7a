"""Calibration: negative log-likelihood, Brier score and expected calibration error from logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from heldout.errors import NotApplicable

if TYPE_CHECKING:
    from heldout.score.hits import Truth
    from heldout.score.metrics import Guesses

Binning = Literal["width", "mass"]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities of rows of logits, float64, computed so that large logits do not overflow."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True).astype(np.float64)
    normalised: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normalised


def _needed(guesses: Guesses) -> np.ndarray:
    if guesses.logits is None:
        raise NotApplicable(
            "calibration needs logits, and these predictions keep only their top k",
            fix="predict or import with logits",
        )
    return guesses.logits


def nll_rows(truth: Truth, guesses: Guesses) -> np.ndarray:
    """-log p(class) a row; with several correct labels, of their summed probability."""
    logp = log_softmax(_needed(guesses))
    rows = np.repeat(np.arange(len(truth)), truth.correct.lengths)
    mass = np.bincount(rows, np.exp(logp[rows, truth.correct.values]), minlength=len(truth))
    with np.errstate(divide="ignore"):
        loss: np.ndarray = -np.log(mass)
    return loss


def brier_rows(truth: Truth, guesses: Guesses) -> np.ndarray:
    """Squared distance between probabilities and the truth, spread evenly over correct labels."""
    p = np.exp(log_softmax(_needed(guesses)))
    lengths = np.maximum(truth.correct.lengths, 1)
    rows = np.repeat(np.arange(len(truth)), truth.correct.lengths)
    cross = np.bincount(rows, p[rows, truth.correct.values], minlength=len(truth)) / lengths
    score: np.ndarray = (p * p).sum(axis=1) - 2 * cross + 1 / lengths
    return score


def expected_calibration_error(
    confidence: np.ndarray, hit: np.ndarray, *, bins: int = 15, binning: Binning = "width"
) -> float:
    """ECE: mean over bins of |accuracy - confidence|, weighted by the bin's share of images.

    ``binning`` ``width`` cuts [0, 1] into equal widths, the last bin closed (Guo et al. 2017);
    ``mass`` into bins of equally many images (Nixon et al. 2019).

    >>> expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False]))
    0.4
    """
    if binning == "width":
        codes = np.minimum((confidence * bins).astype(int), bins - 1)
    else:
        ranks = np.argsort(np.argsort(confidence, kind="stable"), kind="stable")
        codes = ranks * bins // len(confidence)
    gap = np.bincount(codes, hit.astype(float) - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(confidence))

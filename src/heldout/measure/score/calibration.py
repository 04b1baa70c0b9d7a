"""Calibration: negative log-likelihood, Brier score and expected calibration error from logits.

Everything is computed in float64 from the logits as stored (float16 by default), a block of rows
at a time, and in the log domain: finite logits give a finite loss, however small the probability.

An image without an output is judged as the uniform guess over the K classes, and as wrong: its
confidence is 1/K, its negative log-likelihood log K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from heldout.core.errors import UserError

if TYPE_CHECKING:
    from heldout.measure.score.hits import Truth
    from heldout.measure.score.metrics import Guesses

Binning = Literal["width", "mass"]
_BLOCK = 4096  # rows of logits that are turned into float64 at once


@dataclass(frozen=True)
class Bins:
    """How confidences are grouped: ``count`` bins of equal ``width`` or of equal ``mass``."""

    count: int = 15
    binning: Binning = "width"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UserError(f"{self.count} bins", fix="give at least one")

    @property
    def about(self) -> str:
        """In words, as the interval of a record states it.

        >>> Bins().about
        '15 bins of equal width'
        """
        return f"{self.count} bins of equal {self.binning}"

    def codes(self, confidence: np.ndarray) -> np.ndarray:
        """The bin of each confidence; int64 (n,).

        ``width`` cuts (0, 1] into equal widths, the right end belonging to the bin (Guo et al.
        2017). ``mass`` cuts the sorted confidences into bins of equally many images, up to one
        (Nixon et al. 2019); equal confidences never part, so that the order of images cannot
        matter.

        >>> Bins(10).codes(np.array([0.0, 0.1, 0.11, 1.0])).tolist()
        [0, 0, 1, 9]
        """
        if self.binning == "width":
            # The edges themselves are compared: a product such as 0.1 * 3 rounds past its edge.
            edges = np.arange(1, self.count) / self.count
            return np.searchsorted(edges, confidence, side="left")
        _, inverse, sizes = np.unique(confidence, return_inverse=True, return_counts=True)
        first = np.cumsum(sizes) - sizes
        return np.asarray((first * self.count // max(len(confidence), 1))[inverse], dtype=np.int64)


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """log of the summed exponentials of each row; float64 (n,), without overflow."""
    found = np.empty(len(logits))
    for start in range(0, len(logits), _BLOCK):
        block = logits[start : start + _BLOCK].astype(np.float64)
        top = block.max(axis=1)
        found[start : start + _BLOCK] = top + np.log(np.exp(block - top[:, None]).sum(axis=1))
    return found


def nll_rows(truth: Truth, guesses: Guesses) -> np.ndarray:
    """-log p(class) a row, in nats; with several correct labels, of their summed probability.

    A label that its list repeats counts once.
    """
    rows, labels = truth.correct.pairs()
    picked = guesses.needed_logits[rows, labels].astype(np.float64)
    starts = np.searchsorted(rows, np.arange(len(truth)))
    some = np.diff(np.append(starts, len(rows))) > 0
    loss = np.full(len(truth), np.inf)
    if some.any():
        first = starts[some]
        top = np.maximum.reduceat(picked, first)
        sizes = np.diff(np.append(first, len(rows)))
        with np.errstate(divide="ignore", invalid="ignore"):  # all of them -inf: probability zero
            mass = np.add.reduceat(np.exp(picked - np.repeat(top, sizes)), first)
            right = np.where(np.isneginf(top), -np.inf, top + np.log(mass))
        # The part is never more than the whole; rounding may say so by a last digit.
        loss[some] = np.maximum(guesses.normaliser[some] - right, 0.0)
    return loss


def brier_rows(truth: Truth, guesses: Guesses) -> np.ndarray:
    """Squared distance between probabilities and the truth, spread evenly over correct labels."""
    logits, normaliser = guesses.needed_logits, guesses.normaliser
    squares = np.empty(len(truth))
    for start in range(0, len(truth), _BLOCK):
        part = slice(start, start + _BLOCK)
        logp = logits[part].astype(np.float64) - normaliser[part, None]
        squares[part] = np.exp(2 * logp).sum(axis=1)
    rows, labels = truth.correct.pairs()
    lengths = np.maximum(np.bincount(rows, minlength=len(truth)), 1)
    p = np.exp(logits[rows, labels].astype(np.float64) - normaliser[rows])
    cross = np.bincount(rows, p, minlength=len(truth)) / lengths
    return np.asarray(squares - 2 * cross + 1 / lengths)


def confidence_rows(guesses: Guesses) -> np.ndarray:
    """The probability of the first guess; float64 (n,)."""
    logits = guesses.needed_logits
    top = np.concatenate(
        [
            logits[s : s + _BLOCK].max(axis=1).astype(np.float64)
            for s in range(0, len(logits), _BLOCK)
        ]
        or [np.empty(0)]
    )
    return np.asarray(np.minimum(np.exp(top - guesses.normaliser), 1.0))


def binned_gap(codes: np.ndarray, gap: np.ndarray, weights: np.ndarray, bins: int) -> float:
    """Sum over bins of ``|sum of w (hit - confidence)|`` over the sum of weights."""
    return float(np.abs(np.bincount(codes, gap * weights, minlength=bins)).sum() / weights.sum())


def expected_calibration_error(
    confidence: np.ndarray, hit: np.ndarray, *, bins: int = 15, binning: Binning = "width"
) -> float:
    """ECE: mean over bins of |accuracy - confidence|, weighted by the bin's share of images.

    ``binning`` as in :meth:`Bins.codes`.

    >>> expected_calibration_error(np.array([0.9, 0.9]), np.array([True, False]))
    0.4
    """
    codes = Bins(bins, binning).codes(confidence)
    gap = np.asarray(hit, dtype=np.float64) - confidence
    return binned_gap(codes, gap, np.ones(len(gap)), bins)

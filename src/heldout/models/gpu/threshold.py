"""Which fast results to run again exactly, so that few enough of the others can be wrong.

The fast path differs from the exact one by a little noise in the pixels and the arithmetic. It
can change the top class only where that noise is larger than the margin, the distance of the best
logit to the second best. From a sample that went through both paths we learn how much margin is
lost between them, and from the margins how many images would be hit; images with a margin below
the threshold take the exact path.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from heldout.core.schema import Document

TARGET = 0.0005
"""At most this share of the top classes may differ from the exact path's."""
SAMPLE = 512
"""Images that go through both paths."""
SMALLEST_SAMPLE = 100
_TAIL = 0.1
_Z = 1.6448536269514722  # 95 % one-sided


class Calibration(Document, frozen=True, kw_only=True):
    """What was learned from a sample, and the threshold that follows from it.

    ``threshold``  results with a margin below it are run again; None: all of them
    ``sample``     images that went through both paths; ``differing`` of them changed the top class
    ``knee``, ``share``, ``scale``  the tail of the lost margin: P(loss > x) is at most
                   share * exp((knee - x) / scale), with 95 % confidence
    ``expected``   upper bound of the share of images that stay different, at this threshold
    ``rechecked``  share of the sample below the threshold
    """

    threshold: float | None
    sample: int
    differing: int
    knee: float
    share: float
    scale: float
    expected: float
    rechecked: float
    target: float = TARGET

    def remaining(self, margins: np.ndarray) -> float:
        """Upper bound of the share of these images that stay different after the recheck."""
        kept = margins[~self.flagged(margins)]
        lost = tail_probability(kept, knee=self.knee, share=self.share, scale=self.scale)
        return float(lost.sum() / max(len(margins), 1))

    def flagged(self, margins: np.ndarray) -> np.ndarray:
        """Which results are run again; one that is not a number always is."""
        again: np.ndarray = ~(margins >= (np.inf if self.threshold is None else self.threshold))
        return again


def margin_of(logits: np.ndarray, top: np.ndarray) -> np.ndarray:
    """The logit of class ``top`` minus the best of all others, float64 (n,)."""
    rows = np.arange(len(logits))
    own = logits[rows, top].astype(np.float64)
    others = logits.astype(np.float64)
    others[rows, top] = -np.inf
    rest: np.ndarray = own - others.max(axis=1)
    return rest


def tail_probability(loss: np.ndarray, *, knee: float, share: float, scale: float) -> np.ndarray:
    """min(1, share * exp((knee - loss) / scale)); a step at the knee where the scale is zero."""
    loss = np.asarray(loss, np.float64)
    if scale <= 0:
        return np.where(loss > knee, 0.0, 1.0)
    exponent = np.minimum((knee - loss) / scale, -math.log(share) if share > 0 else 0.0)
    return np.minimum(1.0, share * np.exp(exponent))


def calibrate(fast: np.ndarray, exact: np.ndarray) -> Calibration:
    """Choose the threshold from logits (n, classes) of one sample along both paths.

    The largest tenth of the losses is taken for exponential, which is heavier than the noise of
    rounding; its scale and its share of all images enter with their upper 95 % bounds, and so does
    the density of small margins. The threshold is where no more than half of ``TARGET`` of all
    images are expected to lose a margin above it; never below the tail's start. A sample under 100
    images says too little: everything is run again.
    """
    finite = np.isfinite(fast).all(axis=1) & np.isfinite(exact).all(axis=1)
    fast, exact = fast[finite], exact[finite]
    n, top = len(fast), fast.argmax(axis=1)
    margins = margin_of(fast, top)
    loss = margins - margin_of(exact, top)
    differing = int((loss > margins).sum())  # more than all of the margin is lost
    threshold, (knee, share, scale) = None, (0.0, 1.0, 0.0)
    if n >= SMALLEST_SAMPLE:
        knee, share, scale = _tail(np.sort(loss))
        threshold = _threshold(margins, knee, share, scale, 0.5 * TARGET)
    found = Calibration(
        threshold=threshold, sample=n, differing=differing, knee=knee, share=share, scale=scale,
        expected=0.0, rechecked=1.0,
    )  # fmt: skip
    if threshold is None:
        return found
    rechecked = float(found.flagged(margins).mean())
    return replace(found, expected=found.remaining(margins), rechecked=rechecked)


def _threshold(
    margins: np.ndarray, knee: float, share: float, scale: float, allowed: float
) -> float:
    """Where the expected share of lost margins above is ``allowed``.

    With f margins per unit between 0 and w, that share is at most f * share * scale * exp((knee -
    threshold) / scale) below w, and at most the tail at w beyond.
    """
    if scale <= 0 or share <= 0:
        return knee
    w = knee + 10 * scale
    beyond = float(tail_probability(np.array([w]), knee=knee, share=share, scale=scale)[0])
    count = float((margins < w).sum())
    density = (count + _Z * math.sqrt(count) + 2) / len(margins) / w
    rate = density * share * scale / max(allowed - beyond, allowed / 10)
    return knee + scale * math.log(max(rate, 1.0))


def _tail(losses: np.ndarray) -> tuple[float, float, float]:
    """Knee, share and scale of an exponential tail, with upper bounds; ``losses`` sorted."""
    n = len(losses)
    k = max(int(n * _TAIL), 10)
    knee = max(float(losses[n - k - 1]), 0.0)
    over = losses[losses > knee] - knee
    if not len(over):
        return knee, 0.0, 0.0
    share = min(1.0, (len(over) + _Z * math.sqrt(len(over)) + 2) / n)
    # 2 * sum / scale is chi-square with 2k degrees of freedom; Wilson and Hilferty's quantile.
    freedom = 2 * len(over)
    low = freedom * max(1 - 2 / (9 * freedom) - _Z * math.sqrt(2 / (9 * freedom)), 0.05) ** 3
    return knee, share, float(2 * over.sum() / low)

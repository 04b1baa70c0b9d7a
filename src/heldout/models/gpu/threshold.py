"""Which fast results to run again exactly, so that few enough of the others can be wrong.

The fast path differs from the exact one by a little noise in the pixels and the arithmetic. It
can change the top class only where that noise is larger than the margin, the distance of the best
logit to the second best. From a sample that went through both paths we learn how much margin is
lost between them, and from the margins how many images would be hit; images with a margin below
the threshold take the exact path.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from heldout.core.errors import UserError

TARGET = 0.0005
"""At most this share of the top classes may differ from the exact path's."""
SAMPLE = 512
"""Images that go through both paths."""
SMALLEST_SAMPLE = 100
_TAIL = 0.1
_Z = 1.6448536269514722  # 95 % one-sided


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was learned from a sample, and the threshold that follows from it.

    ``threshold``  results with a margin below it are run again; infinite: all of them
    ``sample``     images that went through both paths; ``differing`` of them changed the top class
    ``knee``, ``share``, ``scale``  the tail of the lost margin: P(loss > x) is at most
                   share * exp((knee - x) / scale), with 95 % confidence
    ``expected``   upper bound of the share of images that stay different, at this threshold
    ``rechecked``  share of the sample below the threshold
    """

    threshold: float
    sample: int
    differing: int
    knee: float
    share: float
    scale: float
    expected: float
    rechecked: float
    target: float = TARGET

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object; an infinite threshold is null."""
        return {k: None if v == math.inf else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Calibration:
        """The calibration that :meth:`to_dict` wrote."""
        fields: dict[str, Any] = {k: math.inf if v is None else v for k, v in value.items()}
        return cls(**fields)

    def survival(self, loss: np.ndarray) -> np.ndarray:
        """Upper bound of the probability that more than ``loss`` of the margin is lost."""
        return tail_probability(loss, knee=self.knee, share=self.share, scale=self.scale)

    def remaining(self, margins: np.ndarray) -> float:
        """Upper bound of the share of these images that stay different after the recheck."""
        if not len(margins):
            return 0.0
        kept = margins[margins >= self.threshold]
        return float(self.survival(kept).sum() / len(margins))

    def flagged(self, margins: np.ndarray) -> np.ndarray:
        """Which results are run again; one that is not a number always is."""
        again: np.ndarray = ~(margins >= self.threshold)
        return again


def lost_margin(fast: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """How much of the margin of the fast path's top class the exact path takes away; (n,).

    ``fast`` and ``exact`` are logits (n, classes). The top class changes where the loss is larger
    than the fast margin.
    """
    if fast.shape != exact.shape or fast.ndim != 2 or fast.shape[1] < 2:
        raise UserError(f"logits of shapes {fast.shape} and {exact.shape} cannot be compared")
    top = fast.argmax(axis=1)
    lost: np.ndarray = margin_of(fast, top) - margin_of(exact, top)
    return lost


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


def calibrate(fast: np.ndarray, exact: np.ndarray, *, target: float = TARGET) -> Calibration:
    """Choose the threshold from logits (n, classes) of one sample along both paths.

    The largest tenth of the losses is taken for exponential, which is heavier than the noise of
    rounding; its scale and its share of all images enter with their upper 95 % bounds, and so does
    the density of small margins. The threshold is where no more than half of ``target`` of all
    images are expected to lose a margin above it; never below the tail's start. A sample under 100
    images says too little: everything is run again.
    """
    if not 0 < target < 1:
        raise UserError(f"a target of {target}", fix="give a share between 0 and 1")
    finite = np.isfinite(fast).all(axis=1) & np.isfinite(exact).all(axis=1)
    n = int(finite.sum())
    loss = lost_margin(fast[finite], exact[finite])
    margins = margins_in_order(fast[finite])
    differing = int((loss > margins).sum())
    if n < SMALLEST_SAMPLE:
        return Calibration(
            threshold=math.inf, sample=n, differing=differing, knee=0.0, share=1.0, scale=0.0,
            expected=0.0, rechecked=1.0, target=target,
        )  # fmt: skip
    knee, share, scale = _tail(np.sort(loss))
    threshold = _threshold(margins, knee, share, scale, 0.5 * target)
    found = Calibration(
        threshold=threshold, sample=n, differing=differing, knee=knee, share=share, scale=scale,
        expected=0.0, rechecked=float((margins < threshold).mean()), target=target,
    )  # fmt: skip
    return replace(found, expected=found.remaining(margins))


def margins_in_order(logits: np.ndarray) -> np.ndarray:
    """The margin of each row's top class, float64 (n,)."""
    return margin_of(logits, logits.argmax(axis=1))


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

"""The mean of log losses, with limits that know what a wrong answer costs.

A few wrong answers make most of a mean negative log-likelihood, so fifty images of which one or none
is wrong show too little spread, and a bootstrap of them too. But the loss of a right answer says what
being wrong there would have cost: ``-log s`` against ``-log (1 - s)``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from heldout.stats.bootstrap import design
from heldout.stats.intervals import FloatArray, Interval, t_quantile

_GROUPS = 512
_LARGEST = 40.0  # a loss of 0 stands for a probability that rounds to 1
_STEEPEST = 500.0
_STEPS = 50
_DUST = 1e-24  # of rounding

_Test = Callable[[FloatArray, FloatArray], npt.NDArray[np.bool_]]


def mean_log_loss(
    losses: npt.ArrayLike,
    *,
    level: float = 0.95,
    clusters: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
) -> tuple[FloatArray, Interval]:
    """The mean (columns,) of ``losses`` (n, columns), ``-log s`` each, with its interval.

    ``clusters`` and ``weights`` are as in :func:`~heldout.stats.bootstrap.bootstrap_mean`. Every image
    can have two losses, that of ``s`` and that of ``1 - s``, log odds d apart. Were all log odds b
    times as large, the larger loss would come with probability ``1 / (1 + exp(b d))``. The observed
    mean is that of the most likely b; the limits are the means of those b whose own spread would not
    put a quantile of t between them and the one observed, as in Wilson's interval for a share. The
    spread is scaled so that at the observed mean it is the error of the design.

    >>> losses = -np.log([0.99, 0.9, 0.95, 0.8, 0.97, 0.98, 0.9, 0.6, 0.99, 0.3])
    >>> value, interval = mean_log_loss(losses[:, None])
    >>> value.round(3), interval.low.round(3), interval.high.round(3)
    (array([0.227]), array([0.122]), array([1.212]))
    """
    data = np.asarray(losses, dtype=np.float64)
    n = len(data)
    if not np.isfinite(data).all() or (data < 0).any():
        raise ValueError("log losses must be finite, none below zero")
    layout = design(n, clusters=clusters)
    importance = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    share = importance / importance.sum()
    value = share @ data
    sums, sizes = layout.unit_sums(share[:, None] * (data - value)), layout.unit_sums(share)
    variance = layout.variance(sums)
    with np.errstate(divide="ignore"):
        odds = np.abs(np.log(-np.expm1(-data)) + data)
    gap, part = _grouped(np.where(data > 1.0, odds, np.minimum(odds, _LARGEST)), share)

    def tempered(b: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean loss and its variance, of one image, at the log odds times ``b`` (columns,)."""
        wrong = 1.0 / (1.0 + np.exp(np.clip(b * gap, -700.0, 700.0)))
        expected = np.log1p(np.exp(-gap)) + wrong * gap
        mean = (part * expected).sum(axis=0)
        spread = np.square(expected - mean) + wrong * (1.0 - wrong) * np.square(gap)
        return mean, (part * spread).sum(axis=0)

    def search(start: FloatArray, end: float, goes_on: _Test) -> FloatArray:
        """From ``start`` towards ``end``, on a scale that is even near 0: the last that goes on."""
        near, far = np.arcsinh(start), np.full(len(value), np.arcsinh(end))
        for _ in range(_STEPS):
            middle = 0.5 * (near + far)
            on = goes_on(*tempered(np.sinh(middle)))
            near, far = np.where(on, middle, near), np.where(on, far, middle)
        return np.sinh(near)

    first = np.full(len(value), -_STEEPEST)
    likely = search(first, _STEEPEST, lambda mean, spread: mean > value)
    at_value = tempered(likely)[1]
    # Where all images are alike nothing is known of the design, and each counts for itself.
    alike = at_value <= 1e-9 * (part * np.square(gap)).sum(axis=0)
    scale = np.where(alike, share @ share, variance / np.where(alike, 1.0, at_value))
    most = scale * np.square(t_quantile(level, layout.degrees(sums, sizes)))

    def inside(mean: FloatArray, spread: FloatArray) -> npt.NDArray[np.bool_]:
        return np.asarray(np.square(mean - value) <= most * spread + _DUST)

    def limit(side: float) -> FloatArray:
        mean, spread = tempered(np.full(len(value), -side * _STEEPEST))
        # Past the end, where all answers are right or all are wrong, images differ still.
        past = value + side * np.sqrt(most * spread)
        within = tempered(search(likely, -side * _STEEPEST, inside))[0]
        return np.where(inside(mean, spread), past, within)

    low, high = np.clip(limit(-1.0), 0.0, value), np.maximum(limit(1.0), value)
    return value, Interval(low, high, f"{layout.name}-tempered-score", level)


def _grouped(gap: FloatArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Columns of ``gap`` (n, columns) in at most 512 groups of like ones, and their shares."""
    part = np.broadcast_to(share[:, None], gap.shape)
    if len(gap) <= _GROUPS:
        return gap, part
    order = np.argsort(gap, axis=0)
    gap, part = np.take_along_axis(gap, order, axis=0), np.take_along_axis(part, order, axis=0)
    starts = np.linspace(0, len(gap), _GROUPS, endpoint=False).astype(np.intp)
    sums, parts = (np.add.reduceat(x, starts, axis=0) for x in (part * gap, part))
    return sums / np.where(parts > 0, parts, 1.0), parts

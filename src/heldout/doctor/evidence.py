"""The tests behind findings: exact or conservative, so that a stated error rate holds.

A reading of the outputs is blamed or preferred only if two things are beyond chance: it hits more
images than the reading as given (McNemar's exact test on images that only one of them hits), and
its hits are more than predictions paired with images at random would give (so that a model which
has collapsed to one class cannot make some reading look good).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heldout.stats import mcnemar_exact

ALPHA = 1e-6
"""The chance that one check on sound data raises a finding, at most."""

Bools = NDArray[np.bool_]


def ranks_that_tell(columns: int, classes: int) -> int:
    """How many of the stored ranks to look at: those of a guess that is still unlikely to hit."""
    return max(1, min(columns, classes // 10))


def better(candidate: Bools, given: Bools) -> float:
    """One-sided exact p of McNemar: could ``candidate`` hit no more images than ``given``?"""
    only_candidate = int((candidate & ~given).sum())
    only_given = int((given & ~candidate).sum())
    return float(mcnemar_exact(only_candidate, only_given, alternative="greater"))


def expected_hits(labels: np.ndarray, guesses: np.ndarray, *, classes: int) -> float:
    """Hits that random pairing of these guesses with these labels gives on average.

    ``labels`` int (n,), ``guesses`` int (n,) or (n, k); indices below 0 never hit. With a_c guesses
    and b_c labels of class c, a column's mean is sum a_c b_c / n; its variance is at most about
    the mean, so that a Poisson tail is on the safe side.
    """
    n = len(labels)
    if n == 0:
        return 0.0
    truth = np.bincount(labels[labels >= 0], minlength=classes)[:classes].astype(np.float64)
    wide = guesses if guesses.ndim == 2 else guesses[:, None]
    total = 0.0
    for column in wide.T:
        inside = column[(column >= 0) & (column < classes)]
        total += float(np.bincount(inside, minlength=classes)[:classes] @ truth)
    return total / n


def by_chance(hits: int, expected: float) -> float:
    """P(X >= hits) for X Poisson with mean ``expected``."""
    if hits <= 0:
        return 1.0
    if expected <= 0.0:
        return 0.0
    from scipy.special import gammainc

    return float(gammainc(hits, expected))

"""The tests behind findings: exact or conservative, so that a stated error rate holds.

A hypothesis about the outputs is preferred only if two things are beyond chance: it hits more images
than the outputs as given (McNemar's exact test on images that only one of them hits), and its hits
are more than predictions paired with images at random would give (so that a model which has
collapsed to one class cannot make some hypothesis look good).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heldout.stats.paired import mcnemar_exact

ALPHA = 1e-6
"""The chance that one check on sound data raises a finding, at most."""

Bools = NDArray[np.bool_]


def ranks_that_tell(columns: int, classes: int) -> int:
    """How many of the stored ranks to look at: those of a guess that is still unlikely to hit."""
    return max(1, min(columns, classes // 10))


def p_better(candidate: Bools, given: Bools) -> float:
    """One-sided exact p of McNemar: could ``candidate`` hit no more images than ``given``?"""
    only_candidate = int((candidate & ~given).sum())
    only_given = int((given & ~candidate).sum())
    return float(mcnemar_exact(only_candidate, only_given, alternative="greater"))


def p_better_twice(
    candidate: np.ndarray, given: np.ndarray, labels: np.ndarray, *, ranks: int
) -> float:
    """P that ``candidate`` is no better reading than ``given``: it must win twice.

    ``candidate``, ``given``  int (n, k) guesses under each reading; ``labels`` int (n,)

    Once on images with a hit among the first ``ranks``, so that a set of images whose top-1 prediction
    is wrong by choice proves nothing; once on top-1 predictions alone, so that look-alikes which
    always come second prove nothing. Where all columns count as ranks, they may be stored worst
    first, and a reading's top-1 predictions are the better of its two outer columns.
    """
    among = p_better(hits_of(candidate[:, :ranks], labels), hits_of(given[:, :ranks], labels))
    both_ends = ranks == candidate.shape[1]
    first = p_better(
        first_hits(candidate, labels, both_ends=both_ends),
        first_hits(given, labels, both_ends=both_ends),
    )
    return max(among, first)


def hits_of(guesses: np.ndarray, labels: np.ndarray) -> Bools:
    """bool (n,): whether any guess of a row is its label."""
    found: Bools = np.zeros(len(labels), dtype=np.bool_)
    for column in range(guesses.shape[1]):  # column by column: no table of comparisons
        found |= guesses[:, column] == labels
    found &= labels >= 0
    return found


def first_hits(guesses: np.ndarray, labels: np.ndarray, *, both_ends: bool) -> Bools:
    """bool (n,): hits of the first column, or of the last where both may be it and it has more."""
    first = hits_of(guesses[:, :1], labels)
    last = hits_of(guesses[:, -1:], labels) if both_ends else first
    return last if last.sum() > first.sum() else first


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


def above_chance(labels: np.ndarray, guesses: np.ndarray, *, classes: int) -> float:
    """P that random pairing of these guesses with these labels gives as many hits; int (n,) both.

    The smaller of two: a Poisson tail, which is right where hits are rare, and a normal one of the
    pairing's own mean and variance. With a_c guesses and b_c labels of class c and X hits,
    E[X(X - 1)] n (n - 1) = (sum a_c b_c)^2 - sum (a_c b_c)^2 + sum a_c (a_c - 1) b_c (b_c - 1).
    Where few classes share most images that variance is far below the mean, and a Poisson tail
    would not tell 57 right images of 60 from the 43 of chance.
    """
    from scipy.special import ndtr

    n = len(labels)
    hits = int((hits_of(guesses[:, None], labels)).sum())
    mean = expected_hits(labels, guesses, classes=classes)
    p = by_chance(hits, mean)
    if n < 2 or hits <= mean:
        return p
    a, b = (
        np.bincount(values[values >= 0], minlength=classes).astype(np.float64)
        for values in (guesses, labels)
    )
    pairs = (a @ b) ** 2 - ((a * b) ** 2).sum() + (a * (a - 1) * b * (b - 1)).sum()
    variance = pairs / (n * (n - 1)) + mean - mean**2
    if variance <= 0.0:
        return p
    return min(p, float(ndtr(-(hits - 0.5 - mean) / np.sqrt(variance))))

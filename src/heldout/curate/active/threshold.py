"""Average thresholded confidence: which images a classifier probably gets wrong.

A threshold is set on labelled validation images so that as many of them lie below it as are wrong;
candidates below it are the predicted errors, and their share the estimated error rate (Garg et al.,
Leveraging unlabeled data to predict out-of-distribution performance, ICLR 2022).
"""

from __future__ import annotations

import numpy as np

from heldout.core.errors import NotApplicable


def atc_threshold(scores: np.ndarray, correct: np.ndarray) -> float:
    """The threshold: the score of the first validation image that must not lie below it.

    ``scores`` float (n,), higher is surer; ``correct`` bool (n,). ``#(score < t)`` is the number of
    errors, or as near below it as equal scores allow; infinity where all are wrong.

    >>> atc_threshold(np.array([0.2, 0.9, 0.4, 0.7]), np.array([True, True, False, True]))
    0.4
    """
    if not len(scores):
        raise NotApplicable(
            "a threshold needs labelled validation images",
            fix="label some, or use another selector",
        )
    wrong = int(np.count_nonzero(~np.asarray(correct, bool)))
    ordered = np.sort(np.asarray(scores, np.float64))
    return float(ordered[wrong]) if wrong < len(ordered) else float("inf")


def group_thresholds(
    scores: np.ndarray, correct: np.ndarray, groups: np.ndarray, count: int
) -> np.ndarray:
    """A threshold for each group, float64 (count,); groups without validation get that of all."""
    common = atc_threshold(scores, correct)
    found = np.full(count, common)
    for group in range(count):
        mine = groups == group
        if mine.any():
            found[group] = atc_threshold(scores[mine], correct[mine])
    return found


def estimated_errors(
    scores: np.ndarray, groups: np.ndarray, thresholds: np.ndarray | float, count: int
) -> np.ndarray:
    """By group: the share of candidates below the threshold, float64 (count,); NaN where none is."""
    limits = np.broadcast_to(np.asarray(thresholds, np.float64), (count,))
    below = scores < limits[groups]
    sizes = np.bincount(groups, minlength=count)
    hits = np.bincount(groups, weights=below, minlength=count)
    return np.where(sizes > 0, hits / np.maximum(sizes, 1), np.nan)

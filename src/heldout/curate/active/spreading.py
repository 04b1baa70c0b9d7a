"""Selectors that spread: k-centre over features, and BADGE over gradients of the last layer.

Both choose one image after the other. With quotas an image can only be chosen while its domain's
quota lasts; distances are always to all that was chosen, whatever the domain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from heldout.curate.active.uncertainty import log_probabilities
from heldout.data.testset.rowhash import derived_seed, row_hash

_SAME = 1e-12
"""Distances below this share of the squared lengths are rounding of equal vectors: they count as 0."""


class _Quota:
    """Which candidates may still be chosen."""

    def __init__(self, groups: np.ndarray, quota: np.ndarray | None) -> None:
        self.open = np.ones(len(groups), bool)
        self._groups, self._left = groups, None if quota is None else np.array(quota)
        if self._left is not None:
            self.open = self._left[groups] > 0

    def take(self, row: int) -> None:
        self.open[row] = False
        if self._left is not None:
            group = self._groups[row]
            self._left[group] -= 1
            if self._left[group] == 0:
                self.open &= self._groups != group


def k_centre(
    features: np.ndarray,
    labelled: np.ndarray,
    groups: np.ndarray,
    *,
    budget: int,
    quota: np.ndarray | None,
    ties: np.ndarray,
) -> np.ndarray:
    """Greedy k-centre: always the candidate farthest from all that is labelled or chosen.

    ``features`` (n, d) of candidates, ``labelled`` (m, d) of the labelled. Euclidean distance in
    float64. Equal distances: the lower of ``ties`` (n,). Nothing labelled: the first is the lowest
    of ``ties``. Rows in the order of choice, int64 (budget,). Sener and Savarese, Active learning
    for convolutional neural networks: a core-set approach, ICLR 2018.
    """
    points = np.asarray(features, np.float64)
    squares = (points * points).sum(axis=1)
    near = np.full(len(points), np.inf)
    for start in range(0, len(labelled), 256):
        block = np.asarray(labelled[start : start + 256], np.float64)
        lengths = (block * block).sum(axis=1)
        scale = squares[:, None] + lengths
        near = np.minimum(near, _gap(scale, points @ block.T).min(axis=1))

    def distances(row: int) -> np.ndarray:
        return _gap(squares + squares[row], points @ points[row])

    def pick(near: np.ndarray, open_: np.ndarray, step: int) -> int:
        rows = np.flatnonzero(open_)
        best = rows[near[rows] == near[rows].max()]
        return int(best[np.argmin(ties[best])])

    return _greedy(near, distances, pick, _Quota(groups, quota), budget)


def badge(
    logits: np.ndarray,
    features: np.ndarray,
    groups: np.ndarray,
    *,
    budget: int,
    quota: np.ndarray | None,
    ids: Any,
    seed: int,
) -> np.ndarray:
    """BADGE: k-means++ seeding over the gradients that the predicted labels would give.

    An image's gradient is the outer product of ``softmax(logits) - onehot(prediction)`` (classes,)
    and its features (d,). It is never formed: the product of two gradients is the product of the
    two inner products. The first choice is the longest gradient, as in the authors' code; each
    further one is drawn in proportion to the squared distance to the nearest chosen. The draw is a
    race of exponential clocks by hashes of ``ids``, so it does not depend on the order of rows.
    Rows in the order of choice, int64 (budget,). Ash et al., Deep batch active learning by diverse,
    uncertain gradient lower bounds, ICLR 2020.
    """
    logs = log_probabilities(logits)
    residuals = np.exp(logs)
    residuals[np.arange(len(logs)), logs.argmax(axis=1)] -= 1.0
    points = np.asarray(features, np.float64)
    squares = (residuals * residuals).sum(axis=1) * (points * points).sum(axis=1)
    ties = row_hash(ids, seed=derived_seed("badge ties", seed))

    def distances(row: int) -> np.ndarray:
        products = (residuals @ residuals[row]) * (points @ points[row])
        return _gap(squares + squares[row], products)

    def pick(near: np.ndarray, open_: np.ndarray, step: int) -> int:
        rows = np.flatnonzero(open_)
        if step == 0:
            best = rows[squares[rows] == squares[rows].max()]
            return int(best[np.argmin(ties[best])])
        weights = near[rows]
        if not (weights > 0).any():  # all that is left equals something chosen
            return int(rows[np.argmin(ties[rows])])
        clocks = exponential_clocks(ids, seed=derived_seed(f"badge {step}", seed))[rows]
        with np.errstate(divide="ignore"):
            return int(rows[np.argmin(clocks / weights)])

    return _greedy(np.full(len(points), np.inf), distances, pick, _Quota(groups, quota), budget)


def exponential_clocks(ids: Any, *, seed: int) -> np.ndarray:
    """An exponential number of mean 1 for every id, float64 (n,), never 0 nor infinite.

    The lowest of ``clock / weight`` is a draw in proportion to the weights.
    """
    top = row_hash(ids, seed=seed) >> np.uint64(11)
    clocks: np.ndarray = -np.log((top.astype(np.float64) + 0.5) * 2.0**-53)
    return clocks


def _gap(scale: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Squared distances from the sums of squared lengths and the inner products."""
    found = scale - 2.0 * products
    return np.where(found > _SAME * scale, found, 0.0)


def _greedy(
    near: np.ndarray,
    distances: Callable[[int], np.ndarray],
    pick: Callable[[np.ndarray, np.ndarray, int], int],
    quota: _Quota,
    budget: int,
) -> np.ndarray:
    made: list[int] = []
    for step in range(budget):
        row = pick(near, quota.open, step)
        made.append(row)
        quota.take(row)
        near = np.minimum(near, distances(row))
    return np.array(made, np.int64)

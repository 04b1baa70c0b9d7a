"""Data efficiency: how many labels another strategy needs to get as far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heldout.core.errors import NotApplicable


def forward_mean(curve: np.ndarray, window: int) -> np.ndarray:
    """The mean of each point and those after it, ``window`` in all, (points - window + 1,).

    >>> forward_mean(np.array([1.0, 2.0, 3.0, 5.0]), 2).tolist()
    [1.5, 2.5, 4.0]
    """
    if not 1 <= window <= len(curve):
        raise NotApplicable(
            f"a mean over {window} points of a curve of {len(curve)}", fix="give more rounds"
        )
    sums = np.cumsum(np.concatenate([[0.0], np.asarray(curve, np.float64)]))
    found: np.ndarray = (sums[window:] - sums[:-window]) / window
    return found


def data_efficiency(
    at: Sequence[float] | np.ndarray,
    curve: np.ndarray,
    other: np.ndarray,
    *,
    point: int = -1,
    window: int = 1,
    interpolate: bool = True,
) -> float:
    """What ``other`` needs to reach the value of ``curve`` at ``point``, over what ``curve`` needed.

    ``at`` (points,) are labels, or numbers of rounds; both curves are smoothed by
    :func:`forward_mean` first. Above 1: ``curve`` needs fewer. Infinity where ``other`` never gets
    there. With ``interpolate`` the place lies between points, on a straight line; without, it is
    the first point above the value, as in the authors' notebooks (with ``at`` the rounds, a window
    of 5 and point 60).

    >>> labels = [100, 200, 300, 400]
    >>> data_efficiency(labels, np.array([0.5, 0.7, 0.8, 0.8]), np.array([0.5, 0.6, 0.7, 0.8]), point=1)
    1.5
    """
    mine, theirs = forward_mean(curve, window), forward_mean(other, window)
    places = np.asarray(at, np.float64)[: len(mine)]
    own = range(len(mine))[point]
    value = mine[own]
    if places[own] <= 0 or not np.isfinite(value):
        raise NotApplicable("an efficiency at no labels", fix="choose a later point")
    reached = np.flatnonzero(theirs >= value if interpolate else theirs > value)
    if not len(reached):
        return float("inf")
    first = int(reached[0])
    place = places[first]
    if interpolate and first:
        rise = theirs[first] - theirs[first - 1]
        place -= (places[first] - places[first - 1]) * (theirs[first] - value) / rise
    return float(place / places[own])

"""Rows of length 1, made in one way everywhere, so that equal input gives equal bits."""

from __future__ import annotations

import numpy as np

_ROWS = 2048
"""Rows whose float64 form is in memory at once."""


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths, float32 (n, d); the length is summed in float64.

    A row of zeros, or with NaN or infinity in it, has no direction and becomes a row of NaN.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [nan, nan]]
    """
    made = np.empty(vectors.shape, np.float32)
    for start in range(0, len(vectors), _ROWS):
        part = slice(start, start + _ROWS)
        wide = np.asarray(vectors[part], np.float64)
        # A sum of squares may overflow or vanish where the direction itself is plain.
        largest = np.abs(wide).max(axis=1, initial=0.0)
        good = np.isfinite(largest) & (largest > 0)
        wide = wide / np.where(good, largest, 1.0)[:, None]
        wide[~good] = np.nan
        made[part] = wide / np.sqrt((wide * wide).sum(axis=1))[:, None]
    return made

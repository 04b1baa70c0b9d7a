"""Pillow's bilinear resize as machine code. Import it only where numba is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

HALF, BITS = np.int32(1 << 21), 22


@njit(cache=True)
def weigh_rows(rows: Any, first: Any, count: Any, weights: Any, out: Any) -> None:
    """Every row of ``out`` as a weighted sum of neighbouring ``rows``, rounded and clipped.

    ``rows`` uint8 (n, length), ``first`` and ``count`` int32 (m,), ``weights`` int32 (taps, m)
    times 2^22, ``out`` uint8 (m, length). A row is long, so that the processor adds many at once.
    """
    length = out.shape[1]
    sums = np.empty(length, np.int32)
    for j in range(out.shape[0]):
        start, taps = first[j], count[j]
        weight = weights[0, j]
        row = rows[start]
        for i in range(length):
            sums[i] = HALF + np.int32(row[i]) * weight
        for k in range(1, taps):
            weight = weights[k, j]
            row = rows[start + k]
            for i in range(length):
                sums[i] += np.int32(row[i]) * weight
        for i in range(length):
            out[j, i] = np.uint8(min(sums[i] >> BITS, 255))


@njit(cache=True)
def bilinear_taps(size: int, target: int) -> tuple[Any, Any, Any]:
    """First source row, number of rows and weights (taps, target) times 2^22 of every output row.

    The numbers of :func:`heldout.data.images.resize_weights.axis_taps`, by the same
    operations in the same order.
    """
    scale = size / target
    stretch = max(scale, 1.0)
    inverse = 1.0 / stretch
    first, count = np.empty(target, np.int32), np.empty(target, np.int32)
    weights = np.zeros((int(np.ceil(stretch)) * 2 + 1, target), np.int32)
    values = np.empty(len(weights))
    for j in range(target):
        centre = (j + 0.5) * scale
        begin = max(int(centre - stretch + 0.5), 0)
        taps = min(int(centre + stretch + 0.5), size) - begin
        total = 0.0
        for k in range(taps):
            values[k] = max(1.0 - abs((k + begin - centre + 0.5) * inverse), 0.0)
            total += values[k]
        whole = 1.0 / total
        for k in range(taps):
            weights[k, j] = int(values[k] * whole * (1 << BITS) + 0.5)
        first[j], count[j] = begin, taps
    return first, count, weights

"""Small filters that make a cheap resampling agree with a better one.

Pillow's bilinear reduction by a factor r weighs source pixels with a triangle of half-width r. Two
taps of linear interpolation cannot do that, but they can after a blur: the filters here are those
whose sum with linear interpolation comes nearest to the triangle, over all positions between two
pixels. One blur of the source then serves every sprite of about that size.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

STEPS = 4
"""Blurs in an octave of reduction. Twice as many change the result by 0.1 dB."""
_PHASES = 16


def step_of(reduction: float) -> int:
    """The number of the blur for a reduction: 0 for none, :data:`STEPS` more for each octave."""
    return max(0, round(math.log2(max(reduction, 1.0)) * STEPS))


@lru_cache(maxsize=256)
def blur_of(step: int) -> NDArray[np.float32]:
    """The blur of a reduction of 2 ** (step / STEPS): odd length, symmetric, sum 1.

    Its ``k`` minimises the sum, over offsets p in [0, 1) and source pixels n, of
    ((1 - p) k[n] + p k[n - 1] - triangle((n - p) / r))², where the triangle is normalised as Pillow
    does it.
    """
    reduction = 2.0 ** (step / STEPS)
    reach = 0 if step == 0 else max(1, math.ceil(reduction) - 1)
    pixels = np.arange(-reach - math.ceil(reduction) - 1, reach + math.ceil(reduction) + 3)
    unknowns = np.arange(reach + 1)
    rows, targets = [], []
    for offset in (np.arange(_PHASES) + 0.5) / _PHASES:
        target = np.maximum(0.0, 1.0 - np.abs(pixels - offset) / reduction)
        left = np.abs(pixels)[:, None] == unknowns
        right = np.abs(pixels - 1)[:, None] == unknowns
        rows.append((1.0 - offset) * left + offset * right)
        targets.append(target / target.sum())
    half = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)[0]
    whole = np.concatenate([half[:0:-1], half])
    return np.asarray(whole / whole.sum(), np.float32)

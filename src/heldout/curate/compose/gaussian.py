"""The one Gaussian blur of factors and blending."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

LEAST = 0.05
"""Below this deviation the kernel is one pixel to seven digits: nothing changes."""


def gaussian(
    plane: NDArray[np.float32], sigma: float, *, beyond: Literal["nothing", "border"]
) -> NDArray[np.float32]:
    """A plane (h, w) blurred with standard deviation ``sigma`` in pixels, cut at three of them.

    ``beyond``  what lies outside: zeros, or the outermost pixels over and over
    """
    from scipy.ndimage import gaussian_filter1d

    if sigma < LEAST:
        return plane
    mode = "constant" if beyond == "nothing" else "nearest"
    for axis in (0, 1):
        plane = gaussian_filter1d(plane, sigma, axis=axis, mode=mode, truncate=3.0)
    return plane

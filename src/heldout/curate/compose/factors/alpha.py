"""Neighbourhoods of cut-outs: what lies under alpha 0 never takes part.

An operation that mixes neighbours, such as a blur, works on colours times alpha and is divided by
what it makes of alpha itself (normalised convolution, Knutsson and Westin 1993). Alpha stays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heldout.curate.compose.scene import Pixels

Planes = NDArray[np.float32]


def normalised(
    pixels: Pixels, alpha: NDArray[np.uint8] | None, mix: Callable[[Planes], Planes]
) -> NDArray[np.float32]:
    """``mix`` of the pixels (h, w, 3), of float planes (h, w), weighted by alpha.

    Where the mixed alpha is below 1/255 there is nothing to go by, and the pixel stays.
    """
    if alpha is None:
        planes = [mix(pixels[..., i].astype(np.float32)) for i in range(3)]
        return np.stack(planes, axis=-1)
    weights = alpha.astype(np.float32) / np.float32(255)
    total = mix(weights)
    known = total >= 1 / 255
    safe = np.where(known, total, np.float32(1))
    made = pixels.astype(np.float32)
    for i in range(3):
        mixed = mix(made[..., i] * weights) / safe
        np.copyto(made[..., i], mixed, where=known)
    return made


def filled(pixels: Pixels, alpha: NDArray[np.uint8]) -> Pixels:
    """The pixels with everything under alpha 0 replaced by the object's nearest colour."""
    from scipy.ndimage import distance_transform_edt

    hidden = alpha == 0
    if not hidden.any() or hidden.all():
        return pixels
    rows, columns = distance_transform_edt(hidden, return_distances=False, return_indices=True)
    return np.ascontiguousarray(pixels[rows, columns])

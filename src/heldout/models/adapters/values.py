"""From shared uint8 pixels to the numbers of one model's input."""

from __future__ import annotations

import numpy as np

from heldout.data.images.preprocessing import Preprocessing, normalise


def model_input(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """``(pixel / scale - mean) / std`` a channel, as contiguous float32 in the model's layout.

    ``pixels`` uint8 (b, height, width, 3), RGB, after the geometry; the result is float32
    (b, 3, height, width) or (b, height, width, 3). ``mean`` and ``std`` are in the model's order
    of colours. Divided, subtracted, divided in float32 and in
    this order, so that the bits are those of torchvision's ``ToTensor`` and ``Normalize``.
    """
    geometry = preprocessing.geometry
    expected = (geometry.crop_height, geometry.crop_width, 3)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != expected:
        raise ValueError(f"pixels {pixels.dtype} {pixels.shape} instead of uint8 (b, {expected})")
    return normalise(pixels, preprocessing)


def passes_unchanged(preprocessing: Preprocessing) -> bool:
    """Whether the values of pixels reach the model as they are, 0 to 255."""
    return (
        preprocessing.scale == 1
        and not any(preprocessing.mean)
        and all(part == 1 for part in preprocessing.std)
    )

"""From shared uint8 pixels to the numbers of one model's input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from heldout.errors import UserError
from heldout.images.preprocessing import Preprocessing


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
    order = slice(None, None, -1) if preprocessing.colours == "BGR" else slice(None)
    source = pixels[..., order]
    shape: tuple[int, ...] = (3,)
    if preprocessing.layout == "NCHW":
        source, shape = source.transpose(0, 3, 1, 2), (3, 1, 1)
    # Copied into the final layout first: the arithmetic then runs along memory, in place.
    values = np.empty(source.shape, np.float32)
    np.copyto(values, source)
    if preprocessing.scale != 1:
        values /= np.float32(preprocessing.scale)
    if any(preprocessing.mean):
        values -= np.asarray(preprocessing.mean, np.float32).reshape(shape)
    if any(part != 1 for part in preprocessing.std):
        values /= np.asarray(preprocessing.std, np.float32).reshape(shape)
    return values


def check_values(preprocessing: Preprocessing) -> Preprocessing:
    """The same preprocessing with all numbers as floats, if it can be applied; else a user's error.

    Whole numbers become floats so that ``1`` and ``1.0`` in a file are one preprocessing.
    """
    numbers = (preprocessing.scale, *preprocessing.mean, *preprocessing.std)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UserError(f"{number!r} in a preprocessing", fix="scale, mean, std are numbers")
        if not np.isfinite(number):
            raise UserError(f"{number!r} in a preprocessing", fix="scale, mean, std are finite")
    if preprocessing.scale <= 0 or min(preprocessing.std) <= 0:
        raise UserError("scale or std of a preprocessing is not above 0", fix="correct it")
    if preprocessing.colours not in ("RGB", "BGR"):
        raise UserError(f"colours {preprocessing.colours!r}", fix="use RGB or BGR")
    if preprocessing.layout not in ("NCHW", "NHWC"):
        raise UserError(f"layout {preprocessing.layout!r}", fix="use NCHW or NHWC")
    red, green, blue = map(float, preprocessing.mean)
    deviations = preprocessing.std
    return replace(
        preprocessing,
        scale=float(preprocessing.scale),
        mean=(red, green, blue),
        std=(float(deviations[0]), float(deviations[1]), float(deviations[2])),
    )


def passes_unchanged(preprocessing: Preprocessing) -> bool:
    """Whether the values of pixels reach the model as they are, 0 to 255."""
    return (
        preprocessing.scale == 1
        and not any(preprocessing.mean)
        and all(part == 1 for part in preprocessing.std)
    )

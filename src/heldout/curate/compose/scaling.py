"""Scaling a cut-out to many sizes, to the bit as Pillow does it and several times faster.

Pillow's bilinear resize is two passes with integer weights (:mod:`heldout.data.images.resize_weights`).
A pass
over whole rows runs at the speed of the processor's vectors; the pass across is one over the rows
of the transposed image, which is kept beside the image. Without numba Pillow itself is used.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.data.images.resize_weights import pillow_version, rows_first

if TYPE_CHECKING:
    from PIL.Image import Image

_FEWEST = 64  # scalings from which on it pays to load the machine code, in a third of a second


class Scaler:
    """One image with premultiplied alpha (``RGBa``), to be scaled many times."""

    def __init__(self, image: Image) -> None:
        if image.mode != "RGBa":
            raise ValueError(f"an image of mode {image.mode}, not RGBa")
        self._image = image
        self._upright: np.ndarray | None = None
        self._lying: np.ndarray | None = None

    def scaled(self, size: tuple[int, int], *, quick: bool = True) -> Image:
        """The image in ``size`` (width, height), bilinear; without ``quick`` by Pillow itself."""
        from PIL import Image as images

        kernels = machine_code() if quick and size != self._image.size else None
        if kernels is None:
            return self._image.resize(size, images.Resampling.BILINEAR)
        return images.frombuffer("RGBa", size, self.passes(size, kernels), "raw", "RGBa", 0, 1)

    def passes(self, size: tuple[int, int], kernels: Any) -> np.ndarray:
        """The same as an array (height, width, 4), by the functions of the machine code."""
        if self._upright is None or self._lying is None:
            self._upright = np.ascontiguousarray(np.asarray(self._image))
            self._lying = np.ascontiguousarray(self._upright.transpose(1, 0, 2))
        before = self._upright.shape[0], self._upright.shape[1]
        after = size[1], size[0]
        if _rows_first(before, after):
            middle = _pass(self._lying, after[1], kernels)
            return _pass(_turned(middle), after[0], kernels)
        middle = _pass(self._upright, after[0], kernels)
        return _turned(_pass(_turned(middle), after[1], kernels))


def _pass(pixels: np.ndarray, target: int, kernels: Any) -> np.ndarray:
    """Scale along the first axis of (size, n, 4)."""
    size = len(pixels)
    if size == target:
        return pixels
    first, count, weights = kernels.bilinear_taps(size, target)
    out = np.empty((target, *pixels.shape[1:]), np.uint8)
    kernels.weigh_rows(pixels.reshape(size, -1), first, count, weights, out.reshape(target, -1))
    return out


def _turned(pixels: np.ndarray) -> np.ndarray:
    """(a, b, 4) as (b, a, 4)."""
    words = np.ascontiguousarray(pixels).view(np.uint32)[..., 0]
    return np.ascontiguousarray(words.T).view(np.uint8).reshape(*words.T.shape, 4)


def _rows_first(before: tuple[int, int], after: tuple[int, int]) -> bool:
    sides = [np.array([side]) for side in (*before, *after)]
    first = rows_first((sides[0], sides[1]), (sides[2], sides[3]), pillow=pillow_version())
    return bool(first[0])


def worth_it(scalings: int) -> bool:
    """Whether machine code pays, after so many scalings and with more to come."""
    return scalings > _FEWEST or machine_code.cache_info().currsize > 0


@cache
def machine_code() -> Any:
    """The module of kernels, if numba is installed; None too if this Pillow rounds in another way."""
    try:
        from heldout.curate.compose import scaling_kernel as kernels
    except ImportError:
        return None
    from PIL import Image as images

    noise = np.random.RandomState(0).randint(0, 256, (61, 47, 4), dtype=np.uint8)
    test = images.frombuffer("RGBa", (47, 61), noise, "raw", "RGBa", 0, 1)
    for size in ((20, 33), (90, 70), (40, 9)):
        expected = np.asarray(test.resize(size, images.Resampling.BILINEAR))
        if not np.array_equal(Scaler(test).passes(size, kernels), expected):
            return None
    return kernels

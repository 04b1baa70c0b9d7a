"""Scaling a cut-out to many sizes, to the bit as Pillow does it and several times faster.

Pillow's bilinear resize is two passes with integer weights
(:mod:`heldout.data.images.resize_weights`). A pass over whole rows runs at the speed of the
processor's vectors; the pass across is one over the rows of the transposed image, which is kept
beside the image. Without numba Pillow itself is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from heldout.data.images.resize_weights import pillow_version, rows_first

if TYPE_CHECKING:
    from PIL.Image import Image

_FEWEST = 64  # scalings from which on it pays to load the compiled code, in a third of a second
HALF, BITS = np.int32(1 << 21), 22


class Kernels(NamedTuple):
    """The two functions of a pass, compiled."""

    weigh_rows: Callable[..., None]
    bilinear_taps: Callable[..., tuple[Any, Any, Any]]


class Scaler:
    """One image with premultiplied alpha (``RGBa``), to be scaled many times."""

    def __init__(self, image: Image) -> None:
        if image.mode != "RGBa":
            raise ValueError(f"an image of mode {image.mode}, not RGBa")
        self._image = image
        self._upright: np.ndarray | None = None

    def scaled(self, size: tuple[int, int], *, quick: bool = True) -> Image:
        """The image in ``size`` (width, height), bilinear; without ``quick`` by Pillow itself."""
        from PIL import Image as images

        kernels = load_kernels() if quick and size != self._image.size else None
        if kernels is None:
            return self._image.resize(size, images.Resampling.BILINEAR)
        return images.frombuffer("RGBa", size, self.passes(size, kernels), "raw", "RGBa", 0, 1)

    def passes(self, size: tuple[int, int], kernels: Kernels) -> np.ndarray:
        """The same as an array (height, width, 4), by compiled code."""
        if self._upright is None:
            self._upright = np.ascontiguousarray(np.asarray(self._image))
            self._lying = np.ascontiguousarray(self._upright.transpose(1, 0, 2))
        height, width = self._upright.shape[:2]
        sides = [np.array([side]) for side in (height, width, size[1], size[0])]
        if rows_first((sides[0], sides[1]), (sides[2], sides[3]), pillow=pillow_version())[0]:
            middle = _pass(self._lying, size[0], kernels)
            return _pass(_turned(middle), size[1], kernels)
        middle = _pass(self._upright, size[1], kernels)
        return _turned(_pass(_turned(middle), size[0], kernels))


def _pass(pixels: np.ndarray, target: int, kernels: Kernels) -> np.ndarray:
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


def use_numba(scalings: int) -> bool:
    """Whether compiled code pays, after this many scalings and with more to come."""
    return scalings > _FEWEST or load_kernels.cache_info().currsize > 0


@cache
def load_kernels() -> Kernels | None:
    """The compiled code, if numba is installed; None too if this Pillow rounds in another way."""
    try:
        from numba import njit
    except ImportError:
        return None
    from PIL import Image as images

    compiled = njit(cache=True)
    kernels = Kernels(compiled(_weigh_rows), compiled(_bilinear_taps))
    noise = np.random.RandomState(0).randint(0, 256, (61, 47, 4), dtype=np.uint8)
    test = images.frombuffer("RGBa", (47, 61), noise, "raw", "RGBa", 0, 1)
    for size in ((20, 33), (90, 70), (40, 9)):
        expected = np.asarray(test.resize(size, images.Resampling.BILINEAR))
        if not np.array_equal(Scaler(test).passes(size, kernels), expected):
            return None
    return kernels


def _weigh_rows(rows: Any, first: Any, count: Any, weights: Any, out: Any) -> None:
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


def _bilinear_taps(size: int, target: int) -> tuple[Any, Any, Any]:
    """First source row, number of rows and weights (taps, target) times 2^22 of every output row.

    The numbers of :func:`heldout.data.images.resize_weights.axis_taps`, by the same operations in
    the same order.
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

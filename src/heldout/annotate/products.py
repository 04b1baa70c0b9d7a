"""The fast product of images and classes, in several number formats, and how far each may be off.

For unit vectors a, b and their rounded forms â, b̂

    |a·b − fast(â·b̂)| ≤ ‖a − â‖·‖b̂‖ + ‖b − b̂‖ + (d + 8)·2⁻²⁴·‖â‖·‖b̂‖

by Cauchy and Schwarz, and because a float32 sum of d products in any order is off by at most
d·2⁻²⁴ of the sum of their sizes. The residuals are measured, so the bound holds for the very
vectors at hand and assignment can rely on it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from heldout.errors import UserError

PRECISIONS = ("float32", "float16", "bfloat16", "int8")


class Product(Protocol):
    """Cosines of a block of images with tiles of classes."""

    def load(self, block: np.ndarray) -> np.ndarray:
        """Take a block, float32 (n, d), unit or zero rows; how far its cosines may be off, (n,)."""
        ...

    def multiply(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the cosines with classes ``start`` to ``stop``: float32 (n, stop - start)."""
        ...


def make_product(classes: np.ndarray, precision: str = "float32") -> Product:
    """The product with the rows of ``classes``, float32 (classes, d), in a number format."""
    check_precision(precision)
    return NumpyProduct(classes, precision)


def check_precision(precision: str) -> None:
    """Refuse a number format that there is no product in."""
    if precision not in PRECISIONS:
        raise UserError(f"precision {precision!r}", fix=f"use one of {', '.join(PRECISIONS)}")


class NumpyProduct:
    """Numbers rounded to a format and multiplied in float32 by NumPy's library."""

    def __init__(self, classes: np.ndarray, precision: str) -> None:
        self._precision = precision
        self._classes = rounded(classes, precision)
        self._off, self._length = residual(classes, self._classes)
        self._block = np.zeros((0, classes.shape[1]), np.float32)

    def load(self, block: np.ndarray) -> np.ndarray:
        """Round a block; how far its cosines may be off."""
        self._block = rounded(block, self._precision)
        return error_bound(block, self._block, self._off, self._length)

    def multiply(self, start: int, stop: int, out: np.ndarray) -> None:
        """Write the cosines with some classes."""
        np.matmul(self._block, self._classes[start:stop].T, out=out)


def residual(exact: np.ndarray, near: np.ndarray) -> tuple[float, float]:
    """The largest ``‖x − x̂‖`` and the largest ``‖x̂‖`` over rows."""
    off = length = 0.0
    for start in range(0, len(exact), 4096):
        wide = near[start : start + 4096].astype(np.float64)
        length = max(length, float(np.sqrt((wide**2).sum(axis=1)).max(initial=0.0)))
        wide -= exact[start : start + 4096]
        off = max(off, float(np.sqrt((wide**2).sum(axis=1)).max(initial=0.0)))
    return off, length


def error_bound(block: np.ndarray, near: np.ndarray, off: float, length: float) -> np.ndarray:
    """The bound of this module for each row of a block, rounded up a little: float32 (n,)."""
    wide = near.astype(np.float64)
    own_length = np.sqrt((wide**2).sum(axis=1))
    own_off = np.sqrt(((wide - block) ** 2).sum(axis=1))
    summing = (block.shape[1] + 8) * 2.0**-24 * own_length * length
    found = 1.0001 * (own_off * length + off + summing + 2.0**-22)
    return np.asarray(found, np.float32)


def rounded(vectors: np.ndarray, precision: str) -> np.ndarray:
    """float32 numbers as near as a format comes to them; int8 has one scale a row.

    >>> rounded(np.float32([[1.0, 0.1]]), "bfloat16").tolist()
    [[1.0, 0.10009765625]]
    """
    if precision == "float32":
        return vectors
    if precision == "float16":
        return vectors.astype(np.float16).astype(np.float32)
    if precision == "bfloat16":
        bits = np.ascontiguousarray(vectors, np.float32).view(np.uint32)
        even = (bits >> np.uint32(16)) & np.uint32(1)
        kept = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
        return kept.view(np.float32)
    step = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0) / np.float32(127)
    step[step == 0] = 1
    made: np.ndarray = np.rint(vectors / step) * step
    return made.astype(np.float32)

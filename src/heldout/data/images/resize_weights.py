"""The weights by which Pillow resizes, for many images at once.

Pillow resizes eight-bit images in two passes, each with integer weights of 22 bits and a rounding
to eight bits after it; :func:`rows_first` says in which order. With the same integers the result
is bit-equal, on any device. Weights cover the crop only; what lies outside the resized image has
none, so that it comes out as zero, which is how small images are padded.

Everything here is double precision, one operation after the other as Pillow does them. The GPU path has a
kernel that does the same.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from heldout.data.images.preprocessing import SUPPORT, Interpolation

PRECISION = 22
"""Bits behind the point of an integer weight."""


class Axes(NamedTuple):
    """Resizes along one axis, of m images: int64 (m,) each.

    ``size`` becomes ``target``; of that ``crop`` positions from ``start`` on are wanted (negative:
    zeros come first). ``taps`` is how many source positions one output may read, ``low`` and
    ``high`` bound what all of them read.
    """

    size: np.ndarray
    target: np.ndarray
    start: np.ndarray
    crop: np.ndarray
    taps: np.ndarray
    low: np.ndarray
    high: np.ndarray


def pillow_version() -> tuple[int, ...]:
    """Pillow's version as numbers: (13, 0)."""
    from PIL import __version__

    return tuple(int(part) for part in __version__.split(".")[:2])


def rows_first(
    before: tuple[np.ndarray, np.ndarray],
    after: tuple[np.ndarray, np.ndarray],
    *,
    pillow: tuple[int, ...],
) -> np.ndarray:
    """Whether that version of Pillow resizes along rows before columns: it changes the rounding.

    ``before`` and ``after`` are (heights, widths). Up to 12.1 it always does. From 13 on it does
    not where the height loses more than twice what the width loses; 12.2 and 12.3 ask besides
    that the image be a hundred times as high as wide.
    """
    lost_down, lost_across = before[0] - after[0], before[1] - after[1]
    other = (lost_down > 0) & (lost_down > 2 * lost_across)
    if pillow < (12, 2):
        return np.ones_like(other)
    if pillow < (13,):
        other &= before[0] > 100 * before[1]
    rows: np.ndarray = ~other
    return rows


def plan_axes(
    size: np.ndarray,
    target: np.ndarray,
    start: np.ndarray,
    crop: np.ndarray,
    interpolation: Interpolation,
) -> Axes:
    """How many source positions each output may read, and which of them are read at all."""
    if interpolation == "nearest":
        support, stretch = 0.0, np.ones(len(size))
    else:
        support, stretch = SUPPORT[interpolation], np.maximum(size / target, 1.0)
    reach = support * stretch
    taps = (np.ceil(reach) * 2 + 1).astype(np.int64)
    scale = size / target
    first = (np.maximum(start, 0) + 0.5) * scale
    last = (np.minimum(start + crop, target) - 0.5) * scale
    # One to spare where Pillow's way to the nearest position, step by step, may round otherwise.
    low = np.maximum((first - reach + 0.5).astype(np.int64) - 1, 0)
    high = np.minimum((last + reach + 0.5).astype(np.int64) + 1, size)
    return Axes(size, target, start, crop, taps, low, high)


def axis_taps(
    axes: Axes, interpolation: Interpolation, *, outputs: int, taps: int
) -> tuple[np.ndarray, np.ndarray]:
    """``first`` int32 (m, outputs), the first source position of every output, and ``weights``
    int32 (m, taps, outputs), those of it and its followers, times 2^22.

    ``outputs`` and ``taps`` are at least those of every axis; the rest has weight zero.
    """
    size, target, start, low, high = (
        values.astype(np.float64)[:, None]
        for values in (axes.size, axes.target, axes.start, axes.low, axes.high)
    )
    wanted = start + np.arange(outputs)
    inside = (wanted >= 0) & (wanted < target)
    weights = np.zeros((len(size), taps, outputs), np.int32)
    if interpolation == "nearest":
        weights[:, 0] = inside * (1 << PRECISION)
        return np.clip(_walk(axes, outputs), low, high - 1).astype(np.int32), weights
    scale = size / target
    stretch = np.maximum(scale, 1.0)
    reach = SUPPORT[interpolation] * stretch
    centre = (wanted + 0.5) * scale
    begin = np.maximum(np.trunc(centre - reach + 0.5), 0)
    end = np.minimum(np.trunc(centre + reach + 0.5), size)
    inverse = 1.0 / stretch
    parts = []
    total = np.zeros_like(centre)
    for tap in range(taps):
        value = _weight((tap + begin - centre + 0.5) * inverse, interpolation)
        value = np.where(tap < end - begin, value, 0.0)
        total = total + value
        parts.append(value)
    whole = np.where(total != 0, 1.0 / np.where(total == 0, 1.0, total), 1.0)
    for tap, part in enumerate(parts):
        value = part * whole * inside
        weights[:, tap] = np.trunc(value * (1 << PRECISION) + np.where(value < 0, -0.5, 0.5))
    return np.clip(begin, low, high - 1).astype(np.int32), weights


def _walk(axes: Axes, outputs: int) -> np.ndarray:
    """Pillow's way to the nearest position: it adds the step again and again, from half a step on."""
    found = np.zeros((len(axes.size), outputs))
    columns = zip(axes.size, axes.target, axes.start, strict=True)
    for i, (size, target, start) in enumerate(columns):
        steps = np.cumsum(np.r_[size / target * 0.5, np.full(target - 1, size / target)])
        at = np.clip(start + np.arange(outputs), 0, target - 1)
        found[i] = np.trunc(steps[at])
    return found


def _weight(x: np.ndarray, interpolation: Interpolation) -> np.ndarray:
    away = np.abs(x)
    if interpolation == "box":
        return np.where((x > -0.5) & (x <= 0.5), 1.0, 0.0)
    if interpolation == "bilinear":
        tent: np.ndarray = np.maximum(1.0 - away, 0.0)
        return tent
    if interpolation == "bicubic":
        a = -0.5
        near = ((a + 2.0) * away - (a + 3.0)) * away * away + 1
        far = (((away - 5) * away + 8) * away - 4) * a
        return np.where(away < 1, near, np.where(away < 2, far, 0.0))
    safe = np.where(away == 0, 1.0, away) * math.pi
    if interpolation == "hamming":
        value = np.sin(safe) / safe * (0.54 + 0.46 * np.cos(safe))
        return np.where(away == 0, 1.0, np.where(away >= 1, 0.0, value))
    third = safe / 3  # lanczos
    value = np.sin(safe) / safe * (np.sin(third) / third)
    return np.where(away == 0, 1.0, np.where(away < 3, value, 0.0))

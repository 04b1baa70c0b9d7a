"""Where the images of one batch lie in flat buffers, as a table that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.data.images.preprocessing import Geometry
from heldout.data.images.resize_weights import Axes, crop_starts, plan_axes, resized, rows_first

COLUMNS = (
    "luma", "blue", "red", "pitch", "chroma_pitch", "height", "width", "across", "down",
    "rgb", "plane", "line_step", "step", "line_low", "lines", "size",
    "first_taps", "first_k", "first_n", "second_taps", "second_k", "second_n",
    "between", "target",
    "first_size", "first_target", "first_start", "first_low", "first_high",
    "second_size", "second_target", "second_start", "second_low", "second_high",
)  # fmt: skip
"""The columns of the table, int64, offsets in bytes (of taps: in int32s).

``luma`` to ``down``  the planes as they were coded; ``rgb``, ``plane``: the image in full colours
``line_step``, ``step``  bytes from line to line and along a line, for the first of the two passes;
                         an image that is resized along its columns first is read sideways
``line_low``, ``lines``  the lines that the second pass reads
``first_size`` on         what the weights of both passes are made from; see :class:`Axes`
"""
_AT = {name: i for i, name in enumerate(COLUMNS)}
ALIGN = 256


@dataclass(frozen=True, eq=False)
class Layout:
    """The table of a batch, int64 (n, 34), the resizes behind it and the bytes each buffer needs.

    ``axes``     2n resizes: the first pass of every image, then the second
    ``outputs``, ``taps``  extent of the weights: at most so many outputs an axis, positions each
    ``kinds``    int (n,): images of one kind take the same way through the kernels
    """

    table: np.ndarray
    axes: Axes
    outputs: int
    taps: int
    planes_bytes: int
    rgb_bytes: int
    between_bytes: int
    kinds: np.ndarray

    def column(self, name: str) -> np.ndarray:
        """One column of the table."""
        values: np.ndarray = self.table[:, _AT[name]]
        return values

    @property
    def most_pixels(self) -> int:
        """The largest height x width of the batch."""
        return int((self.column("height") * self.column("width")).max())

    @property
    def most_lines(self) -> int:
        """The most lines that a second pass reads."""
        return int(self.column("lines").max())


def lay_out(
    shapes: np.ndarray, places: np.ndarray, geometry: Geometry, *, pillow: tuple[int, ...]
) -> Layout:
    """Place a batch. ``shapes`` int (n, 4): height, width, across, down, as a JPEG's header says;
    ``places`` int (n,): where each image goes in the batch of pixels."""
    height, width, across, down = np.asarray(shapes, np.int64).T
    n = len(height)
    pitch, chroma_pitch = _up(width, 64), _up(-(-width // np.maximum(across, 1)), 64)
    # A decoder may write whole blocks: sixteen rows more are left free below every plane.
    luma_bytes = _up(pitch * (_up(height, 16) + 16), ALIGN)
    chroma_rows = -(-height // np.maximum(down, 1))
    chroma_bytes = _up(chroma_pitch * (_up(chroma_rows, 16) + 16), ALIGN) * (across > 0)
    start = _starts(luma_bytes + 2 * chroma_bytes)
    area = height * width
    rgb = _starts(_up(3 * area, ALIGN))

    after = resized(height, width, geometry)
    straight = rows_first((height, width), after, pillow=pillow)
    if geometry.interpolation == "nearest":
        straight[:] = True  # nothing is rounded: any order gives the same
    crops = (np.full(n, geometry.crop_height), np.full(n, geometry.crop_width))
    first = _pick(straight, 1, (height, width), after, crops)
    second = _pick(straight, 0, (height, width), after, crops)
    size, target, begin, crop = np.concatenate([first, second], axis=1)
    axes = plan_axes(size, target, begin, crop, geometry.interpolation)
    outputs, taps = int(max(crops[0].max(), crops[1].max())), int(axes.taps.max())
    low, lines = axes.low[n:], (axes.high - axes.low)[n:]
    between = _starts(_up(3 * lines * axes.crop[:n], ALIGN))
    each = (1 + taps) * outputs
    one = np.ones(n, np.int64)
    table = np.stack(
        [
            start[:-1], start[:-1] + luma_bytes, start[:-1] + luma_bytes + chroma_bytes,
            pitch, chroma_pitch, height, width, across, down, rgb[:-1], area,
            np.where(straight, width, one), np.where(straight, one, width), low, lines, first[0],
            np.arange(n) * each, axes.taps[:n], axes.crop[:n],
            np.arange(n, 2 * n) * each, axes.taps[n:], axes.crop[n:],
            between[:-1],
            np.asarray(places, np.int64) * (geometry.crop_height * geometry.crop_width * 3),
            *(values[:n] for values in _sources(axes)), *(values[n:] for values in _sources(axes)),
        ],
        axis=1,
    )  # fmt: skip
    kinds = across * 8 + down * 2 + straight
    return Layout(
        np.ascontiguousarray(table), axes, outputs, taps,
        int(start[-1]), int(rgb[-1]), int(between[-1]), kinds,
    )  # fmt: skip


def _sources(axes: Axes) -> tuple[np.ndarray, ...]:
    return axes.size, axes.target, axes.start, axes.low, axes.high


def _pick(
    straight: np.ndarray,
    axis: int,
    before: tuple[np.ndarray, np.ndarray],
    after: tuple[np.ndarray, np.ndarray],
    crops: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Size, target, start and crop along ``axis``, or along the other one where not ``straight``."""
    rows = []
    for side in (axis, 1 - axis):
        starts = crop_starts(after[side], int(crops[side][0]) if len(crops[side]) else 1)
        rows.append(np.stack([before[side], after[side], starts, crops[side]]))
    return np.where(straight, rows[0], rows[1])


def _up(value: np.ndarray, multiple: int) -> np.ndarray:
    up: np.ndarray = -(-value // multiple) * multiple
    return up


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])

"""Where the images of one batch lie in flat buffers, as a table that the kernels read.

All of it is computed for the whole batch at once; only the weights of a size that was not seen
before are computed one by one, and kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from heldout.images.preprocessing import Geometry
from heldout.predictions.gpu.taps import axis_taps, crop_start, resized, vertical_first

COLUMNS = (
    "luma", "blue", "red", "pitch", "chroma_pitch", "height", "width", "across", "down",
    "rgb", "plane", "line_step", "step", "line_low", "lines", "size",
    "first_taps", "first_k", "first_n", "second_taps", "second_k", "second_n",
    "between", "target",
)  # fmt: skip
"""The columns of the table, int64, offsets in bytes (of taps: in int32s)."""
_AT = {name: i for i, name in enumerate(COLUMNS)}
ALIGN = 256


@dataclass(frozen=True, eq=False)
class Layout:
    """The table of a batch, int64 (n, 24), and how many bytes each buffer needs."""

    table: np.ndarray
    planes_bytes: int
    rgb_bytes: int
    between_bytes: int

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


@dataclass
class TapTables:
    """The taps of all sizes seen so far, flat: of each axis ``first`` (n), then ``weights`` (k, n)."""

    geometry: Geometry
    pillow: int
    values: np.ndarray = field(default_factory=lambda: np.zeros(1 << 16, np.int32))
    used: int = 0
    _axes: dict[tuple[int, int, int, int], tuple[int, int, int, int]] = field(default_factory=dict)
    _sizes: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    def of(self, height: int, width: int) -> tuple[int, ...]:
        """Columns line_step to second_n for one size of images in planes without a gap."""
        found = self._sizes.get((height, width))
        if found is None:
            found = self._sizes[height, width] = self._new(height, width)
        return found

    def _new(self, height: int, width: int) -> tuple[int, ...]:
        geometry = self.geometry
        target = resized(height, width, geometry)
        across = self._axis(width, target[1], geometry.crop_width)
        down = self._axis(height, target[0], geometry.crop_height)
        smooth = geometry.interpolation != "nearest"
        if smooth and vertical_first(height, width, target, pillow=self.pillow):
            first, second, steps, size = down, across, (1, width), height
            n, m = geometry.crop_height, geometry.crop_width
        else:
            first, second, steps, size = across, down, (width, 1), width
            n, m = geometry.crop_width, geometry.crop_height
        low, high = second[2:]
        return (*steps, low, high - low, size, *first[:2], n, *second[:2], m)

    def _axis(self, size: int, target: int, crop: int) -> tuple[int, int, int, int]:
        start = crop_start(target, crop)
        key = (size, target, start, crop)
        found = self._axes.get(key)
        if found is None:
            taps = axis_taps(size, target, start, crop, self.geometry.interpolation)
            flat = np.concatenate([taps.first[None], taps.weights]).ravel()
            while self.used + len(flat) > len(self.values):
                self.values = np.concatenate([self.values, np.zeros_like(self.values)])
            self.values[self.used : self.used + len(flat)] = flat
            found = self._axes[key] = (self.used, len(taps.weights), taps.low, taps.high)
            self.used += len(flat)
        return found


def lay_out(shapes: np.ndarray, targets: np.ndarray, taps: TapTables) -> Layout:
    """Place a batch. ``shapes`` int (n, 4): height, width, across, down, as a JPEG's header says;
    ``targets`` int (n,): the place of each image in the batch of pixels."""
    shapes = np.asarray(shapes, np.int64)
    height, width, across, down = shapes.T
    table = np.zeros((len(shapes), len(COLUMNS)), np.int64)
    pitch = _up(width, 64)
    chroma_pitch = _up(-(-width // np.maximum(across, 1)), 64)
    # A decoder may write whole blocks: sixteen rows more are left free below every plane.
    luma_bytes = _up(pitch * (_up(height, 16) + 16), ALIGN)
    chroma_rows = -(-height // np.maximum(down, 1))
    chroma_bytes = _up(chroma_pitch * (_up(chroma_rows, 16) + 16), ALIGN) * (across > 0)
    start = _starts(luma_bytes + 2 * chroma_bytes)
    rgb_bytes = _up(3 * height * width, ALIGN)
    rgb = _starts(rgb_bytes)
    sizes = np.array([taps.of(int(h), int(w)) for h, w in shapes[:, :2].tolist()], np.int64)
    sizes = sizes.reshape(len(shapes), 11)
    between_bytes = _up(3 * sizes[:, 3] * sizes[:, 7], ALIGN)
    between = _starts(between_bytes)
    crop = taps.geometry.crop_height * taps.geometry.crop_width * 3
    table[:, :11] = np.stack(
        [
            start[:-1], start[:-1] + luma_bytes, start[:-1] + luma_bytes + chroma_bytes,
            pitch, chroma_pitch, height, width, across, down, rgb[:-1], height * width,
        ],
        axis=1,
    )  # fmt: skip
    table[:, 11:22] = sizes
    table[:, 22] = between[:-1]
    table[:, 23] = np.asarray(targets, np.int64) * crop
    return Layout(table, int(start[-1]), int(rgb[-1]), int(between[-1]))


def _up(value: np.ndarray, multiple: int) -> np.ndarray:
    up: np.ndarray = -(-value // multiple) * multiple
    return up


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])

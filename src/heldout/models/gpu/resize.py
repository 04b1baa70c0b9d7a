"""Decoded images of any sizes to one batch of pixels, bit-equal with Pillow's resize and crop."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from heldout.data.images.preprocessing import SUPPORT, Geometry, crop_starts, resized
from heldout.data.images.resize_weights import (
    Axes,
    pillow_version,
    plan_axes,
    rows_first,
)

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
    ``outputs``, ``taps``  the largest number of outputs per axis, and of positions each
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
    crops = (geometry.crop_height, geometry.crop_width)
    down_columns, along_rows = (
        np.stack([before, wanted, crop_starts(wanted, kept), np.full(n, kept)])
        for before, wanted, kept in zip((height, width), after, crops, strict=True)
    )
    first = np.where(straight, along_rows, down_columns)
    second = np.where(straight, down_columns, along_rows)
    size, target, begin, crop = np.concatenate([first, second], axis=1)
    axes = plan_axes(size, target, begin, crop, geometry.interpolation)
    outputs, taps = max(crops), int(axes.taps.max())
    low, lines = axes.low[n:], (axes.high - axes.low)[n:]
    between = _starts(_up(3 * lines * axes.crop[:n], ALIGN))
    each = (1 + taps) * outputs
    sources = np.stack([axes.size, axes.target, axes.start, axes.low, axes.high])
    table = np.stack(
        [
            start[:-1], start[:-1] + luma_bytes, start[:-1] + luma_bytes + chroma_bytes,
            pitch, chroma_pitch, height, width, across, down, rgb[:-1], area,
            np.where(straight, width, 1), np.where(straight, 1, width), low, lines, first[0],
            np.arange(n) * each, axes.taps[:n], axes.crop[:n],
            np.arange(n, 2 * n) * each, axes.taps[n:], axes.crop[n:],
            between[:-1],
            np.asarray(places, np.int64) * (3 * crops[0] * crops[1]),
            *sources[:, :n], *sources[:, n:],
        ],
        axis=1,
    )  # fmt: skip
    kinds = across * 8 + down * 2 + straight
    return Layout(
        np.ascontiguousarray(table), axes, outputs, taps,
        int(start[-1]), int(rgb[-1]), int(between[-1]), kinds,
    )  # fmt: skip


def _up(value: np.ndarray, multiple: int) -> np.ndarray:
    up: np.ndarray = -(-value // multiple) * multiple
    return up


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


_BLOCK, _ROWS = 1024, 8


class Resizer:
    """The kernels and buffers of one decoder on one device; for one thread, which lets the device
    get through with a batch before it gives it the next."""

    def __init__(self, geometry: Geometry, device: str) -> None:
        self.geometry = geometry
        self.device = device
        self._buffers: dict[str, Any] = {}
        self._staging: Any = None

    def plan(self, shapes: np.ndarray, places: np.ndarray) -> Layout:
        """Where the images of a batch will lie; see :func:`lay_out`."""
        return lay_out(shapes, places, self.geometry, pillow=pillow_version())

    def buffer(self, name: str, size: int) -> Any:
        """A flat uint8 buffer of at least ``size`` bytes, kept for the next batch."""
        import torch

        held = self._buffers.get(name)
        if held is None or held.numel() < size:
            self._buffers.pop(name, None)  # before the larger one is made: they may not fit both
            size = (int(size * 1.25) + 4096) // 256 * 256
            held = torch.empty(size, dtype=torch.uint8, device=self.device)
            self._buffers[name] = held
        return held

    def run(self, layout: Layout, pixels: Any) -> None:
        """Fill rows of ``pixels``, uint8 (b, height, width, 3), from the YCbCr planes in buffer
        ``planes``."""
        import torch

        from heldout.models.gpu import kernels

        n, columns = layout.table.shape
        table = self._send(layout.table)
        planes = self.buffer("planes", layout.planes_bytes)
        rgb = self.buffer("rgb", layout.rgb_bytes)
        between = self.buffer("between", layout.between_bytes)
        wide = 1 << (layout.outputs - 1).bit_length()
        interpolation = self.geometry.interpolation
        each = (1 + layout.taps) * layout.outputs
        # int32 (2n, 1 + taps, outputs): of every axis the first positions, then the weights
        taps = self.buffer("taps", 2 * n * each * 4).view(torch.int32)
        kernels.taps_kernel[(n, 2)](
            table, taps, each, layout.outputs, SUPPORT[interpolation],
            COLUMNS=columns, WIDE=wide, BICUBIC=interpolation == "bicubic",
            enable_fp_fusion=False,
        )  # fmt: skip
        blocks = -(-int(layout.column("plane").max()) // _BLOCK)
        kernels.colour_kernel[(n, blocks)](planes, rgb, table, COLUMNS=columns, BLOCK=_BLOCK)
        lines = -(-int(layout.column("lines").max()) // _ROWS)
        kernels.first_pass_kernel[(n, lines, 3)](
            rgb, between, table, taps, layout.outputs, COLUMNS=columns, ROWS=_ROWS, WIDE=wide
        )
        kernels.second_pass_kernel[(n, -(-layout.outputs // _ROWS), 3)](
            between, pixels, table, taps, layout.outputs, 3 * self.geometry.crop_width, 3,
            COLUMNS=columns, ROWS=_ROWS, WIDE=wide,
        )  # fmt: skip

    def _send(self, table: np.ndarray) -> Any:
        """A table on the device, by way of a pinned buffer that the last batch is through with."""
        import torch

        if self._staging is None or self._staging.numel() < table.size:
            self._staging = torch.empty(2 * table.size, dtype=torch.int64, pin_memory=True)
        host = self._staging[: table.size]
        host.numpy()[:] = table.ravel()
        return host.to(self.device, non_blocking=True)


def can_use_kernels(device: str) -> bool:
    """Whether Triton can run on this device."""
    return device.startswith("cuda") and importlib.util.find_spec("triton") is not None

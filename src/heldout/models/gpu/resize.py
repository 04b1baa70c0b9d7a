"""Decoded images of any sizes to one batch of pixels, bit-equal with Pillow's resize and crop."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np

from heldout.data.images.preprocessing import SUPPORT, Geometry
from heldout.data.images.resize_weights import (
    FILTERS,
    Axes,
    axis_taps,
    crop_starts,
    pillow_version,
    plan_axes,
    resized,
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


_BLOCK, _ROWS = 1024, 8


class Resizer:
    """The buffers of one decoder on one device; for one thread, which lets the device get
    through with a batch before it gives it the next.

    ``kernels``  Triton kernels, one launch per batch; else torch operations, one group of equal
                 sizes after the other, with the same integers
    """

    def __init__(self, geometry: Geometry, device: str, *, kernels: bool | None = None) -> None:
        self.geometry = geometry
        self.device = device
        self.kernels = can_use_kernels(device) if kernels is None else kernels
        self.pillow = pillow_version()
        self._buffers: dict[str, Any] = {}
        self._staging: Any = None

    def plan(self, shapes: np.ndarray, places: np.ndarray) -> Layout:
        """Where the images of a batch will lie; see :func:`lay_out`."""
        return lay_out(shapes, places, self.geometry, pillow=self.pillow)

    def buffer(self, name: str, size: int) -> Any:
        """A flat uint8 buffer of at least ``size`` bytes, kept for the next batch."""
        import torch

        held = self._buffers.get(name)
        if held is None or held.numel() < size:
            self._buffers.pop(name, None)
            size = (int(size * 1.25) + 4096) // 256 * 256
            held = torch.empty(size, dtype=torch.uint8, device=self.device)
            self._buffers[name] = held
        return held

    def run(self, layout: Layout, pixels: Any, *, planes: bool) -> None:
        """Fill rows of ``pixels``, uint8 (b, height, width, 3), from buffer ``rgb``; with ``planes``
        from the YCbCr planes in buffer ``planes``, which become ``rgb`` first."""
        if not len(layout.table):
            return
        rgb = self.buffer("rgb", layout.rgb_bytes)
        if self.kernels:
            self._run_kernels(layout, pixels, rgb, planes=planes)
        elif planes:
            raise ValueError("YCbCr planes need the Triton kernels")
        else:
            resize_groups(layout, rgb, self._host_taps(layout), pixels)

    def _host_taps(self, layout: Layout) -> Any:
        """int32 (2n, 1 + taps, outputs): of every axis the first positions, then the weights."""
        import torch

        first, weights = axis_taps(
            layout.axes, self.geometry.interpolation, outputs=layout.outputs, taps=layout.taps
        )
        together = np.concatenate([first[:, None], weights], axis=1)
        return torch.from_numpy(together).to(self.device)

    def _run_kernels(self, layout: Layout, pixels: Any, rgb: Any, *, planes: bool) -> None:
        import torch

        from heldout.models.gpu import kernels

        n, columns = layout.table.shape
        table = self._send(layout.table)
        between = self.buffer("between", layout.between_bytes)
        wide = 1 << (layout.outputs - 1).bit_length()
        interpolation = self.geometry.interpolation
        if interpolation == "nearest":
            taps = self._host_taps(layout)
        else:
            each = (1 + layout.taps) * layout.outputs
            taps = self.buffer("taps", 2 * n * each * 4).view(torch.int32)
            kernels.taps_kernel[(n, 2)](
                table, taps, each, layout.outputs, SUPPORT[interpolation],
                COLUMNS=columns, WIDE=wide, FILTER=FILTERS.index(interpolation),
                enable_fp_fusion=False,
            )  # fmt: skip
        if planes:
            blocks = -(-layout.most_pixels // _BLOCK)
            source = self.buffer("planes", layout.planes_bytes)
            kernels.colour_kernel[(n, blocks)](source, rgb, table, COLUMNS=columns, BLOCK=_BLOCK)
        kernels.first_pass_kernel[(n, -(-layout.most_lines // _ROWS), 3)](
            rgb, between, table, taps, layout.outputs, COLUMNS=columns, ROWS=_ROWS, WIDE=wide
        )
        kernels.second_pass_kernel[(n, -(-layout.outputs // _ROWS), 3)](
            between, pixels, table, taps, layout.outputs, 3 * self.geometry.crop_width, 3,
            COLUMNS=columns, ROWS=_ROWS, WIDE=wide,
        )  # fmt: skip

    def _send(self, table: np.ndarray) -> Any:
        """A table on the device, by way of a pinned buffer that the last batch is through with."""
        import torch

        if self.device == "cpu":
            return torch.from_numpy(table)
        if self._staging is None or self._staging.numel() < table.size:
            self._staging = torch.empty(2 * table.size, dtype=torch.int64, pin_memory=True)
        host = self._staging[: table.size]
        host.numpy()[:] = table.ravel()
        return host.to(self.device, non_blocking=True)


def can_use_kernels(device: str) -> bool:
    """Whether Triton can run on this device."""
    return device.startswith("cuda") and importlib.util.find_spec("triton") is not None


def resize_groups(layout: Layout, rgb: Any, taps: Any, pixels: Any) -> None:
    """The resize with torch operations: images of one size at a time."""
    import torch

    n = len(layout.table)
    column = {name: layout.table[:, i] for i, name in enumerate(COLUMNS)}
    sizes = np.stack([column["height"], column["width"]], axis=1)
    crop = pixels.shape[1] * pixels.shape[2] * 3
    for height, width in np.unique(sizes, axis=0).tolist():
        rows = np.flatnonzero((sizes == (height, width)).all(1))
        one = {name: int(values[rows[0]]) for name, values in column.items()}
        area = height * width
        starts = column["rgb"][rows].tolist()
        images = torch.stack([rgb[at : at + 3 * area].view(3, height, width) for at in starts])
        turned = one["step"] != 1
        if turned:
            images = images.transpose(2, 3)
        low = one["line_low"]
        lines = images[:, :, low : low + one["lines"]]
        half = _pass(lines, taps[rows[0]], one["first_k"], one["first_n"], low=0)
        across = half.transpose(2, 3)
        done = _pass(across, taps[n + rows[0]], one["second_k"], one["second_n"], low=low)
        # (g, 3, first axis, second axis): the first axis is the width unless it was turned
        batch = done.permute(0, 2, 3, 1) if turned else done.permute(0, 3, 2, 1)
        places = torch.as_tensor(column["target"][rows] // crop, device=pixels.device)
        pixels[places] = batch


def _pass(images: Any, taps: Any, k: int, n: int, *, low: int) -> Any:
    """Resize the last axis of uint8 (g, 3, r, size)."""
    import torch

    size = images.shape[-1]
    first = taps[0, :n].long() - low
    total = torch.full((*images.shape[:-1], n), 1 << 21, dtype=torch.int32, device=images.device)
    for tap in range(k):
        position = (first + tap).clamp(max=size - 1)
        total += images[..., position].int() * taps[1 + tap, :n]
    return (total >> 22).clamp(0, 255).to(torch.uint8)

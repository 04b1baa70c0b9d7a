"""Decoded images of any sizes to one batch of pixels, bit-equal with Pillow's resize and crop."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from heldout.images.preprocessing import Geometry
from heldout.predictions.gpu.layout import COLUMNS, Layout, TapTables, lay_out

_BLOCK, _ROWS = 1024, 8


class Resizer:
    """The buffers and weight tables of one decoding lane on one device; not for several threads.

    ``kernels``  Triton kernels, one launch a batch; else torch operations, one group of equal
                 sizes after the other, with the same integers
    """

    def __init__(self, geometry: Geometry, device: str, *, kernels: bool | None = None) -> None:
        import PIL

        self.geometry = geometry
        self.device = device
        self.kernels = can_use_kernels(device) if kernels is None else kernels
        self.taps = TapTables(geometry, pillow=int(PIL.__version__.split(".")[0]))
        self._taps: Any = None
        self._sent = 0
        self._buffers: dict[str, Any] = {}

    def plan(self, shapes: np.ndarray, targets: np.ndarray) -> Layout:
        """Where the images of a batch will lie; see :func:`heldout.predictions.gpu.layout.lay_out`."""
        return lay_out(shapes, targets, self.taps)

    def buffer(self, name: str, size: int) -> Any:
        """A flat uint8 buffer of at least ``size`` bytes, kept for the next batch."""
        import torch

        held = self._buffers.get(name)
        if held is None or held.numel() < size:
            self._buffers.pop(name, None)
            held = torch.empty(int(size * 1.25) + 4096, dtype=torch.uint8, device=self.device)
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
            return
        if planes:
            raise ValueError("YCbCr planes need the Triton kernels")
        resize_groups(layout, rgb, self._send_taps(), pixels)

    def _send_taps(self) -> Any:
        import torch

        if self._taps is None or self._taps.numel() != len(self.taps.values):
            self._taps = torch.from_numpy(self.taps.values.copy()).to(self.device)
        elif self._sent < self.taps.used:
            new = self.taps.values[self._sent : self.taps.used].copy()
            self._taps[self._sent : self.taps.used] = torch.from_numpy(new).to(self.device)
        self._sent = self.taps.used
        return self._taps

    def _run_kernels(self, layout: Layout, pixels: Any, rgb: Any, *, planes: bool) -> None:
        import torch
        from heldout.predictions.gpu import kernels

        n, columns = layout.table.shape
        host = torch.from_numpy(layout.table)
        if self.device != "cpu":
            host = host.pin_memory()
        table = host.to(self.device, non_blocking=True)
        taps = self._send_taps()
        between = self.buffer("between", layout.between_bytes)
        if planes:
            blocks = -(-layout.most_pixels // _BLOCK)
            source = self.buffer("planes", layout.planes_bytes)
            kernels.colour_kernel[(n, blocks)](source, rgb, table, COLUMNS=columns, BLOCK=_BLOCK)
        sides = (self.geometry.crop_width, self.geometry.crop_height)
        wide = 1 << (max(sides) - 1).bit_length()
        grid = (n, -(-layout.most_lines // _ROWS), 3)
        kernels.first_pass_kernel[grid](
            rgb, between, table, taps, COLUMNS=columns, ROWS=_ROWS, WIDE=wide
        )
        grid = (n, -(-max(sides) // _ROWS), 3)
        kernels.second_pass_kernel[grid](
            between, pixels, table, taps, 3 * self.geometry.crop_width, 3,
            COLUMNS=columns, ROWS=_ROWS, WIDE=wide,
        )  # fmt: skip


def can_use_kernels(device: str) -> bool:
    """Whether Triton can run on this device."""
    return device.startswith("cuda") and importlib.util.find_spec("triton") is not None


def resize_groups(layout: Layout, rgb: Any, taps: Any, pixels: Any) -> None:
    """The resize with torch operations: images of one size at a time."""
    import torch

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
        lines = images[:, :, one["line_low"] : one["line_low"] + one["lines"]]
        half = _pass(lines, taps, one["first_taps"], one["first_k"], one["first_n"], low=0)
        done = _pass(
            half.transpose(2, 3), taps, one["second_taps"], one["second_k"], one["second_n"],
            low=one["line_low"],
        )  # fmt: skip
        # (g, 3, first axis, second axis): the first axis is the width unless it was turned
        batch = done.permute(0, 2, 3, 1) if turned else done.permute(0, 3, 2, 1)
        targets = torch.as_tensor(column["target"][rows] // crop, device=pixels.device)
        pixels[targets] = batch


def _pass(images: Any, taps: Any, at: int, k: int, n: int, *, low: int) -> Any:
    """Resize the last axis of uint8 (g, 3, r, size)."""
    import torch

    size = images.shape[-1]
    first = taps[at : at + n].long() - low
    total = torch.full((*images.shape[:-1], n), 1 << 21, dtype=torch.int32, device=images.device)
    for tap in range(k):
        weight = taps[at + n * (tap + 1) : at + n * (tap + 2)]
        position = (first + tap).clamp(max=size - 1)
        total += images[..., position].int() * weight
    return (total >> 22).clamp(0, 255).to(torch.uint8)

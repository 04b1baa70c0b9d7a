"""Encoded images of a batch, read by several threads into one pinned buffer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heldout.images.source import ImageSource, check_size, read_image
from heldout.predictions.gpu.exact import UNREACHABLE, ExactPool, unreadable
from heldout.predictions.gpu.header import jpeg_shape


class Reads(Protocol):
    """Where encoded images come from, by row; used by several threads at once."""

    def __len__(self) -> int: ...

    def read(self, row: int) -> bytes:
        """All bytes of one image."""
        ...

    def read_into(self, row: int, view: memoryview) -> int | bytes:
        """Read one image into ``view`` and return its length, or return its bytes if it cannot."""
        ...


class FileReads:
    """Files on disk, by path."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.paths = [os.fspath(path) for path in paths]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, row: int) -> bytes:
        """All bytes of one file."""
        with open(self.paths[row], "rb") as file:  # noqa: PTH123  one call less a file
            check_size(self.paths[row], os.fstat(file.fileno()).st_size)
            return file.read()

    def read_into(self, row: int, view: memoryview) -> int | bytes:
        """One open, one read, one close: a read that fills less than the view has met the end."""
        if not len(view):
            return self.read(row)
        descriptor = os.open(self.paths[row], os.O_RDONLY)
        try:
            length = os.readv(descriptor, [view])
        finally:
            os.close(descriptor)
        check_size(self.paths[row], length)
        return length if 0 < length < len(view) else self.read(row)


class SourceReads:
    """Images of any :class:`~heldout.images.source.ImageSource`, in the order of ``ids``."""

    def __init__(self, source: ImageSource, ids: Sequence[str]) -> None:
        self.source, self.ids = source, ids

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, row: int) -> bytes:
        """All bytes of one image."""
        return read_image(self.source, self.ids[row])

    def read_into(self, row: int, view: memoryview) -> int | bytes:
        """Read, then copy if it fits."""
        data = self.read(row)
        if len(data) > len(view):
            return data
        view[: len(data)] = data
        return len(data)


@dataclass(eq=False)
class Slot:
    """The encoded images of one batch, and those of them that the CPU has turned into pixels.

    ``shapes``    int32 (b, 4), height, width, across, down; height 0 for what the GPU does not decode
    ``starts``    int64 (b,) into ``buffer``; ``lengths`` int64 (b,)
    ``pixels``    place in the batch -> uint8 pixels of the exact path
    ``failures``  place in the batch -> reason
    """

    buffer: Any
    shapes: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    pixels: dict[int, np.ndarray] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    spilled: int = 0

    @classmethod
    def of(cls, batch: int, *, size: int, pinned: bool) -> Slot:
        """An empty slot for ``batch`` images with ``size`` bytes together."""
        import torch

        return cls(
            buffer=torch.empty(size, dtype=torch.uint8, pin_memory=pinned),
            shapes=np.zeros((batch, 4), np.int32),
            starts=np.zeros(batch, np.int64),
            lengths=np.zeros(batch, np.int64),
        )

    def put(self, place: int, made: np.ndarray | str) -> None:
        """Keep what the exact path made of an image: its pixels, or the reason why there are none."""
        if isinstance(made, str):
            self.failures[place] = made
        else:
            self.pixels[place] = made

    def clear(self) -> None:
        """Make ready for the next batch; a buffer that was too small grows."""
        import torch

        if self.spilled:
            size = self.buffer.numel() + 2 * self.spilled
            self.buffer = torch.empty(size, dtype=torch.uint8, pin_memory=self.buffer.is_pinned())
        self.spilled = 0
        self.shapes[:] = 0
        self.pixels.clear()
        self.failures.clear()


def read_part(
    slot: Slot,
    reads: Reads,
    rows: Sequence[int],
    places: range,
    region: tuple[int, int],
    pool: ExactPool,
    *,
    gpu: bool = True,
) -> None:
    """Read the images at ``places`` of a batch into ``region`` of the slot's buffer.

    What the GPU cannot decode as Pillow does (without ``gpu``: everything) is decoded here.
    """
    at, end = region
    view = memoryview(slot.buffer.numpy())
    exif = pool.geometry.exif
    for place in places:
        try:
            got = reads.read_into(rows[place], view[at:end])
        except UNREACHABLE:
            raise
        except Exception as error:  # a source may raise anything
            slot.failures[place] = unreadable(error)
            continue
        encoded: bytes | memoryview
        if isinstance(got, int):
            encoded = view[at : at + got]
            shape = jpeg_shape(encoded, exif=exif) if gpu else None
            if shape is not None and shape.height * shape.width <= pool.max_pixels:
                slot.shapes[place] = shape
                slot.starts[place], slot.lengths[place] = at, got
                at += -(-got // 64) * 64
                continue
        else:
            encoded = got
            slot.spilled += len(got)
        slot.put(place, pool.decode(bytes(encoded)))

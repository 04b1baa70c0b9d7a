"""Encoded images of a batch, read by several threads into one pinned buffer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from heldout.data.images.decode import MAX_PIXELS
from heldout.data.images.sources import (
    FolderSource,
    check_id,
    check_size,
    read_image,
)
from heldout.models.gpu.jpeg_header import JpegHeader, are_plain, jpeg_header
from heldout.models.gpu.pillow_workers import UNREACHABLE, PillowWorkers, unreadable
from heldout.models.predictions.pixels import ImageFiles

_AHEAD = 8  # images that a reader may have on their way through the exact path


class Reads:
    """The encoded images of a test set, by row; used by several threads at once.

    ``threads``  how many suit it. Most sources make a thread wait, or compute outside the
                 interpreter (stores, servers, renderers). Files of a folder are read without a
                 detour, and more threads than four only wait for the interpreter's lock.
    """

    def __init__(self, files: ImageFiles) -> None:
        self.files = files
        self.root = files.source.root if isinstance(files.source, FolderSource) else None
        self.threads = 16 if self.root is None else 4

    def __len__(self) -> int:
        return len(self.files.names)

    def read(self, row: int) -> bytes:
        """All bytes of one image."""
        data = read_image(self.files.source, self.files.names[row])
        self.files.saw(row, data)
        return data

    def read_into(self, row: int, view: memoryview) -> int | bytes:
        """Read one image into ``view`` and return its length, or return its bytes if it cannot."""
        if self.root is not None and len(view):
            # One open, one read, one close: a read that fills less than the view has met the end.
            path = os.path.join(self.root, check_id(self.files.names[row]))  # noqa: PTH118  a tenth of the time of Path
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # never waits for a pipe
            try:
                length = os.readv(descriptor, [view])
            finally:
                os.close(descriptor)
            check_size(path, length)
            if 0 < length < len(view):
                self.files.saw(row, view[:length])
                return length
        data = self.read(row)
        if len(data) > len(view):
            return data
        view[: len(data)] = data
        return len(data)


class HostBatch:
    """The encoded images of one batch, and those of them that the CPU has turned into pixels.

    ``shapes``    int32 (b, 4), height, width, across, down; height 0 for what the GPU does not decode
    ``starts``    int64 (b,) into ``buffer``; ``lengths`` int64 (b,)
    ``pixels``    place in the batch -> uint8 pixels of the exact path
    ``failures``  place in the batch -> reason
    ``spilled``   bytes that found no room in ``buffer``, which is of ``size`` bytes at first
    """

    def __init__(self, batch: int, *, size: int, pinned: bool) -> None:
        import torch

        self.buffer: Any = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self.shapes = np.zeros((batch, 4), np.int32)
        self.starts, self.lengths = np.zeros((2, batch), np.int64)
        self.pixels: dict[int, np.ndarray] = {}
        self.failures: dict[int, str] = {}
        self.spilled = 0

    def put(self, place: int, made: np.ndarray | str) -> None:
        """Keep what the exact path made of an image: its pixels, or the reason why there are none."""
        if isinstance(made, str):
            self.failures[place] = made
        else:
            self.pixels[place] = made

    def encoded(self, place: int) -> bytes:
        """The bytes of an image that lies in the buffer."""
        start = int(self.starts[place])
        data: bytes = self.buffer.numpy()[start : start + int(self.lengths[place])].tobytes()
        return data

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
    slot: HostBatch,
    reads: Reads,
    rows: Sequence[int],
    places: range,
    region: tuple[int, int],
    pool: PillowWorkers,
    *,
    on_device: bool = True,
) -> None:
    """Read the images at ``places`` of a batch into ``region`` of the slot's buffer.

    What the GPU cannot decode as Pillow does is decoded here; all of it where the device does not
    decode (``on_device``).
    """
    at, end = region
    view = memoryview(slot.buffer.numpy())
    found: list[tuple[int, int, int, JpegHeader]] = []  # place, start, length
    waiting: deque[tuple[int, Future[np.ndarray | str]]] = deque()

    def gather(most: int) -> None:
        while len(waiting) > most:
            place, made = waiting.popleft()
            slot.put(place, made.result())

    def decode(place: int, encoded: bytes) -> None:
        waiting.append((place, pool.submit(lambda: encoded)))
        gather(_AHEAD)

    for place in places:
        try:
            got = reads.read_into(rows[place], view[at:end])
        except UNREACHABLE:
            raise
        except Exception as error:  # a source may raise anything
            slot.failures[place] = unreadable(error)
            continue
        if not isinstance(got, int):
            slot.spilled += len(got)
            decode(place, got)
            continue
        encoded = view[at : at + got]
        header = jpeg_header(encoded, exif=pool.geometry.exif) if on_device else None
        if header is not None and header.shape.height * header.shape.width <= MAX_PIXELS:
            found.append((place, at, got, header))
            at += -(-got // 64) * 64
        else:
            decode(place, bytes(encoded))
    if found:
        for place in _entered(slot, found):
            decode(place, slot.encoded(place))
    gather(0)


def _entered(slot: HostBatch, found: list[tuple[int, int, int, JpegHeader]]) -> list[int]:
    """Enter what the GPU decodes into the slot; the places of what only looked so."""
    places, starts, lengths, headers = zip(*found, strict=True)
    shapes, coded, _, restarts = zip(*headers, strict=True)
    at, begin, size = np.array(places), np.array(starts), np.array(lengths)
    slot.shapes[at], slot.starts[at], slot.lengths[at] = shapes, begin, size
    plain = are_plain(slot.buffer.numpy(), begin + coded, begin + size - 2, np.array(restarts))
    slot.shapes[at[~plain]] = 0
    others: list[int] = at[~plain].tolist()
    return others

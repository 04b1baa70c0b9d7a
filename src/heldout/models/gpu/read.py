"""Encoded images of a batch, read by several threads into one pinned buffer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heldout.data.images.sources import ImageSource, check_size, read_image
from heldout.models.gpu.jpeg_header import JpegHeader, are_plain, jpeg_header
from heldout.models.gpu.pillow_workers import UNREACHABLE, PillowWorkers, unreadable

_AHEAD = 8  # images that a reader may have on their way through the exact path


class Reads(Protocol):
    """Where encoded images come from, by row; used by several threads at once.

    ``threads``  how many suit it
    """

    threads: int

    def __len__(self) -> int: ...

    def read(self, row: int) -> bytes:
        """All bytes of one image."""
        ...

    def read_into(self, row: int, view: memoryview) -> int | bytes:
        """Read one image into ``view`` and return its length, or return its bytes if it cannot."""
        ...


class FileReads:
    """Files on disk, by path.

    More threads than these read no faster from memory, as they wait for the interpreter's lock.
    """

    threads = 4

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
    """Images of any :class:`~heldout.data.images.sources.ImageSource`, in the order of ``ids``.

    Most of them make a thread wait, or compute outside the interpreter: stores, servers, renderers.
    """

    threads = 16

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


class SeenReads:
    """Images of other reads; ``saw`` is told the bytes of every one that is read."""

    def __init__(self, reads: Reads, saw: Callable[[int, bytes | memoryview], None]) -> None:
        self.reads, self.saw = reads, saw
        self.threads = reads.threads

    def __len__(self) -> int:
        return len(self.reads)

    def read(self, row: int) -> bytes:
        """All bytes of one image."""
        data = self.reads.read(row)
        self.saw(row, data)
        return data

    def read_into(self, row: int, view: memoryview) -> int | bytes:
        """Read one image into ``view`` and return its length, or return its bytes if it cannot."""
        got = self.reads.read_into(row, view)
        self.saw(row, view[:got] if isinstance(got, int) else got)
        return got


@dataclass(eq=False)
class HostBatch:
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
    def of(cls, batch: int, *, size: int, pinned: bool) -> HostBatch:
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
) -> None:
    """Read the images at ``places`` of a batch into ``region`` of the slot's buffer.

    What the GPU cannot decode as Pillow does is decoded here.
    """
    at, end = region
    view = memoryview(slot.buffer.numpy())
    exif = pool.geometry.exif
    found: list[tuple[int, int, int, JpegHeader]] = []  # place, start, length
    waiting: deque[tuple[int, Future[np.ndarray | str]]] = deque()

    def decode(place: int, encoded: bytes) -> None:
        waiting.append((place, pool.submit(lambda: encoded)))
        if len(waiting) > _AHEAD:
            gather()

    def gather() -> None:
        place, made = waiting.popleft()
        slot.put(place, made.result())

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
            header = jpeg_header(encoded, exif=exif)
            if header is not None and header.shape.height * header.shape.width <= pool.max_pixels:
                found.append((place, at, got, header))
                at += -(-got // 64) * 64
                continue
        else:
            encoded = got
            slot.spilled += len(got)
        decode(place, bytes(encoded))
    if found:
        for place in _entered(slot, found):
            decode(place, slot.encoded(place))
    while waiting:
        gather()


def _entered(slot: HostBatch, found: list[tuple[int, int, int, JpegHeader]]) -> list[int]:
    """Enter what the GPU decodes into the slot; the places of what only looked so."""
    places, starts, lengths, headers = zip(*found, strict=True)
    shapes, coded, _, restarts = zip(*headers, strict=True)
    at = np.array(places)
    begin, size = np.array(starts), np.array(lengths)
    slot.shapes[at], slot.starts[at], slot.lengths[at] = shapes, begin, size
    plain = are_plain(slot.buffer.numpy(), begin + coded, begin + size - 2, np.array(restarts))
    slot.shapes[at[~plain]] = 0
    others: list[int] = at[~plain].tolist()
    return others

"""Decoders that turn encoded images into pixels on a device, each on a CUDA stream of its own."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import HeldoutError
from heldout.data.images.preprocessing import Geometry
from heldout.models.gpu.pillow_workers import PillowWorkers
from heldout.models.gpu.read import HostBatch
from heldout.models.gpu.resize import Resizer, can_use_kernels

_idle: dict[tuple[str, bool], list[Any]] = {}
_idle_lock = threading.Lock()


class Stream:
    """A CUDA stream of a device; on the CPU work is done when it is called.

    Work of an ``urgent`` stream goes before that of others: small kernels that many things wait for.
    CUDA streams of closed ones are used again: torch keeps workspace and freed memory by stream, so that
    with new ones every pipeline of a process would hold some more.
    """

    def __init__(self, device: str, *, urgent: bool = False) -> None:
        import torch

        self._cuda: Any = None
        self._kind = (device, urgent)
        if device.startswith("cuda"):
            with _idle_lock:
                idle = _idle.get(self._kind)
                self._cuda = idle.pop() if idle else None
            if self._cuda is None:
                self._cuda = torch.cuda.Stream(device, priority=-1 if urgent else 0)

    def close(self) -> None:
        """Leave the CUDA stream to the next one."""
        stream, self._cuda = self._cuda, None
        if stream is not None:
            with _idle_lock:
                _idle.setdefault(self._kind, []).append(stream)

    def work(self) -> contextlib.AbstractContextManager[Any]:
        """Work inside this context goes to the stream."""
        import torch

        return torch.cuda.stream(self._cuda) if self._cuda else contextlib.nullcontext()

    def record(self) -> Event:
        """An event behind all work given to the stream so far."""
        import torch

        if not self._cuda:
            return Event()
        event = torch.cuda.Event(blocking=True)
        event.record(self._cuda)
        return Event(event)

    def wait_for(self, event: Event) -> None:
        """Let the stream's next work wait for ``event``; the caller does not wait."""
        if self._cuda and event.event is not None:
            self._cuda.wait_event(event.event)

    def to_host(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copies of tensors in the host's memory, there when the stream has passed its next event."""
        import torch

        if not self._cuda:
            return values
        return tuple(
            torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(
                value, non_blocking=True
            )
            for value in values
        )

    @property
    def address(self) -> int:
        """The stream's handle."""
        return int(self._cuda.cuda_stream) if self._cuda else 0


class Event:
    """A moment in a stream; without a CUDA event it has passed."""

    def __init__(self, event: Any = None) -> None:
        self.event = event

    def wait(self) -> None:
        """Wait until the stream has passed the event."""
        if self.event is not None:
            self.event.synchronize()


_BACKENDS = {"hardware": 3, "cuda": 2}
_PLANES_AS_CODED = 1  # NVJPEG_OUTPUT_YUV


class NvjpegError(HeldoutError):
    """nvJPEG is missing, or refused what it was asked to do."""


class _Nvjpeg:
    """One decoder of one thread: decodes batches of baseline JPEGs into planes in memory of the GPU.

    ``backend``  ``hardware``: the JPEG engines that data-centre GPUs have beside their cores;
                 ``cuda``: the cores themselves
    """

    def __init__(self, backend: str) -> None:
        self._library = load_library()
        self._handle, self._state = ctypes.c_void_p(), ctypes.c_void_p()
        status = self._library.nvjpegCreateEx(
            _BACKENDS[backend], None, None, 0, ctypes.byref(self._handle)
        )
        check(status, f"nvjpegCreateEx({backend})")
        status = self._library.nvjpegJpegStateCreate(self._handle, ctypes.byref(self._state))
        if status:
            self.close()
        check(status, "nvjpegJpegStateCreate")
        self._count = 0

    def decode(
        self, data: np.ndarray, lengths: np.ndarray, images: np.ndarray, *, stream: int
    ) -> None:
        """Decode a batch on ``stream``; the memory must stay as it is until the stream is through.

        ``data``     uint64 (n,): addresses of the encoded images, on the host
        ``lengths``  uint64 (n,)
        ``images``   uint64 (n, 8): addresses of up to four planes on the GPU, then their pitches
        """
        n = len(data)
        if n != self._count:
            self._count = 0
            status = self._library.nvjpegDecodeBatchedInitialize(
                self._handle, self._state, n, 1, _PLANES_AS_CODED
            )
            check(status, "nvjpegDecodeBatchedInitialize")
            self._count = n
        addresses = (ctypes.c_void_p(array.ctypes.data) for array in (data, lengths, images))
        status = self._library.nvjpegDecodeBatched(
            self._handle, self._state, *addresses, ctypes.c_void_p(stream)
        )
        if status:
            self._count = 0
        check(status, f"nvjpegDecodeBatched of {n} images")

    def close(self) -> None:
        """Give the library's memory back."""
        if self._state:
            self._library.nvjpegJpegStateDestroy(self._state)
        if self._handle:
            self._library.nvjpegDestroy(self._handle)
        self._state, self._handle = ctypes.c_void_p(), ctypes.c_void_p()


def check(status: int, what: str) -> None:
    """Raise unless a call succeeded."""
    if status:
        raise NvjpegError(f"{what} failed with status {status}")


def load_library() -> ctypes.CDLL:
    """nvJPEG from the packages beside torch, or as the system or this process has it."""
    for path in _candidates():
        with contextlib.suppress(OSError, AttributeError):
            return _declared(ctypes.CDLL(path))
    raise NvjpegError("no nvJPEG library found")


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for name, arguments in {
        "nvjpegCreateEx": [number, pointer, pointer, ctypes.c_uint, pointer],
        "nvjpegDestroy": [pointer],
        "nvjpegJpegStateCreate": [pointer, pointer],
        "nvjpegJpegStateDestroy": [pointer],
        "nvjpegDecodeBatchedInitialize": [pointer, pointer, number, number, number],
        "nvjpegDecodeBatched": [pointer] * 6,
    }.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, number
    return library


def _candidates() -> Iterator[str]:
    for folder in map(Path, sys.path):
        for pattern in ("nvidia/*/lib/libnvjpeg.so*", "torchvision.libs/libnvjpeg*.so*"):
            yield from sorted(str(path) for path in folder.glob(pattern))
    yield from ("libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so")


class StreamDecoder:
    """One decoding thread's stream, on a device without nvJPEG or Triton.

    There the readers make all pixels by Pillow, and nothing is left to decode.
    """

    decodes = False

    def __init__(self, device: str) -> None:
        self.device = device
        self.stream = Stream(device, urgent=True)

    def decode(self, slot: HostBatch, places: np.ndarray, pixels: Any) -> np.ndarray:
        """Give the images at ``places`` of the slot to the stream; ``slot`` and ``pixels`` are in
        use until it is through.

        Returns a number for the kind of each image: what holds for some of a kind holds for all.
        """
        raise HeldoutError(f"{self.device} does not decode")

    def close(self) -> None:
        """Give back what the decoder holds."""
        self.stream.close()


class NvjpegDecoder(StreamDecoder):
    """nvJPEG for the planes as they were coded, then our kernels for colour and resize."""

    decodes = True

    def __init__(self, geometry: Geometry, device: str, backend: str) -> None:
        import torch

        super().__init__(device)
        self.resizer = Resizer(geometry, device)
        with torch.cuda.device(device), self.stream.work():
            self.decoder = _Nvjpeg(backend)
        self._held: tuple[np.ndarray, ...] = ()

    def decode(self, slot: HostBatch, places: np.ndarray, pixels: Any) -> np.ndarray:
        """See :class:`StreamDecoder`."""
        import torch

        layout = self.resizer.plan(slot.shapes[places], places)
        data = (slot.buffer.data_ptr() + slot.starts[places]).astype(np.uint64)
        lengths = slot.lengths[places].astype(np.uint64)
        images = np.zeros((len(places), 8), np.uint64)
        with torch.cuda.device(self.device), self.stream.work():
            base = self.resizer.buffer("planes", layout.planes_bytes).data_ptr()
            images[:, :3] = layout.table[:, :3] + base
            images[:, 4:7] = layout.table[:, [3, 4, 4]]
            grey = layout.column("across") == 0
            images[grey, 1:3] = 0
            images[grey, 5:7] = 0
            self._held = (data, lengths, images)  # the library may read them later
            self.decoder.decode(data, lengths, images, stream=self.stream.address)
            self.resizer.run(layout, pixels)
        return layout.kinds

    def close(self) -> None:
        """See :class:`StreamDecoder`."""
        import torch

        with torch.cuda.device(self.device):
            self.decoder.close()
        super().close()


def fill(decoder: StreamDecoder, slot: HostBatch, pixels: Any, pool: PillowWorkers) -> np.ndarray:
    """All pixels of a slot: those that the device decodes, and those that the exact path made.

    Returns the decoder's number for the kind of each image; -1: the exact path's pixels.
    """
    import torch

    kinds = np.full(len(pixels), -1, np.int64)
    places = np.flatnonzero(slot.shapes[:, 0])
    if len(places):
        try:
            kinds[places] = decoder.decode(slot, places, pixels)
        except HeldoutError:
            # A stream that looked sound was refused: the batch takes the exact path's pixels.
            for place in places.tolist():
                slot.put(place, pool.decode(slot.encoded(place)))
    if slot.pixels:
        made = sorted(slot.pixels)
        stacked = torch.from_numpy(np.stack([slot.pixels[place] for place in made]))
        with decoder.stream.work():
            where = torch.tensor(made, device=pixels.device)
            pixels[where] = stacked.to(pixels.device)
    return kinds


def stream_decoder(
    geometry: Geometry, device: str, backends: Sequence[str] = ("hardware", "cuda")
) -> StreamDecoder:
    """The best decoder that a device has: nvJPEG on its JPEG engines, which only data-centre GPUs
    have, else on the GPU's cores; without the library or Triton, or with a filter that few models
    use and the kernels do not know, none."""
    usable = can_use_kernels(device) and geometry.interpolation in ("bilinear", "bicubic")
    for backend in backends if usable else ():
        with contextlib.suppress(NvjpegError):
            return NvjpegDecoder(geometry, device, backend)
    return StreamDecoder(device)

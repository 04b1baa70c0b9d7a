"""NVIDIA's JPEG decoder, called directly.

torchvision decodes with the same library but behind one lock for the process, allocates a tensor
an image and waits at the end of each call. Here each lane has a decoder and a stream of its own,
images go into one buffer, and chroma can be kept as it was coded, so that our kernels turn it into
colour the way libjpeg does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from heldout.core.errors import HeldoutError

Backend = Literal["hardware", "cuda"]
Planes = Literal["yuv", "rgb"]
_BACKENDS: dict[Backend, int] = {"hardware": 3, "cuda": 2}
_OUTPUTS: dict[Planes, int] = {"yuv": 1, "rgb": 3}
_INTERPOLATED_CHROMA = 1 << 5
_STATUS = (
    "success", "not initialized", "invalid parameter", "bad JPEG", "JPEG not supported",
    "allocator failure", "execution failed", "architecture mismatch", "internal error",
    "implementation not supported", "incomplete bitstream",
)  # fmt: skip
_lock = threading.Lock()


class NvjpegError(HeldoutError):
    """nvJPEG is not there, or refused what it was asked to do."""


class Decoder:
    """One decoder of one thread: decodes batches of baseline JPEGs into memory of the GPU.

    ``backend``  ``hardware``: the JPEG engines that data-centre GPUs have beside their cores;
                 ``cuda``: the cores themselves
    ``output``   ``yuv``: planes as they were coded; ``rgb``: planes of full size
    """

    def __init__(self, *, backend: Backend, output: Planes) -> None:
        self._library = load_library()
        self._output = _OUTPUTS[output]
        self._handle, self._state = ctypes.c_void_p(), ctypes.c_void_p()
        flags = ctypes.c_uint(_INTERPOLATED_CHROMA if output == "rgb" else 0)
        status = self._library.nvjpegCreateEx(
            _BACKENDS[backend], None, None, flags, ctypes.byref(self._handle)
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
        if not self._state:
            raise NvjpegError("the decoder is closed")
        if n != self._count:
            self._count = 0
            status = self._library.nvjpegDecodeBatchedInitialize(
                self._handle, self._state, n, 1, self._output
            )
            check(status, "nvjpegDecodeBatchedInitialize")
            self._count = n
        status = self._library.nvjpegDecodeBatched(
            self._handle,
            self._state,
            ctypes.c_void_p(data.ctypes.data),
            ctypes.c_void_p(lengths.ctypes.data),
            ctypes.c_void_p(images.ctypes.data),
            ctypes.c_void_p(stream),
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
        name = _STATUS[status] if 0 <= status < len(_STATUS) else "unknown"
        raise NvjpegError(f"{what} failed with status {status} ({name})")


def load_library() -> ctypes.CDLL:
    """nvJPEG as torchvision loaded it, or from the packages beside torch, or from the system."""
    with _lock:
        tried = []
        for path in _candidates():
            try:
                return _declared(ctypes.CDLL(path))
            except (OSError, AttributeError) as error:
                tried.append(f"{path} ({error})")
    raise NvjpegError("no nvJPEG library found" + (f"; tried {', '.join(tried)}" if tried else ""))


def version(library: ctypes.CDLL) -> str:
    """The version of the library, such as ``13.0.1``."""
    numbers = []
    for field in range(3):
        value = ctypes.c_int()
        check(library.nvjpegGetProperty(field, ctypes.byref(value)), "nvjpegGetProperty")
        numbers.append(str(value.value))
    return ".".join(numbers)


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for name, arguments in {
        "nvjpegCreateEx": [number, pointer, pointer, ctypes.c_uint, pointer],
        "nvjpegDestroy": [pointer],
        "nvjpegGetProperty": [number, pointer],
        "nvjpegJpegStateCreate": [pointer, pointer],
        "nvjpegJpegStateDestroy": [pointer],
        "nvjpegDecodeBatchedInitialize": [pointer, pointer, number, number, number],
        "nvjpegDecodeBatched": [pointer] * 6,
    }.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, number
    return library


def _candidates() -> Iterator[str]:
    maps = Path("/proc/self/maps")
    if maps.is_file():
        loaded = {
            line.split(maxsplit=5)[5]
            for line in maps.read_text().splitlines()
            if "libnvjpeg" in line
        }
        yield from sorted(loaded)
    for folder in map(Path, sys.path):
        for pattern in ("nvidia/*/lib/libnvjpeg.so*", "torchvision.libs/libnvjpeg*.so*"):
            yield from sorted(str(path) for path in folder.glob(pattern))
    yield from ("libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so")
    for path in sorted(Path("/usr/local").glob("cuda*/lib64/libnvjpeg.so.*")):
        yield str(path)

"""The exact path's pixels, made by Pillow in threads, which leaves the interpreter to decode."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from heldout.data.images.decode import BadImage
from heldout.data.images.preprocessing import Geometry, pixels_of

UNREACHABLE = (ConnectionError, TimeoutError)
"""What a source raises that cannot be reached: that says nothing about an image, and is a fault."""


class PillowWorkers:
    """Pixels of encoded images, exact to the bit; safe to use from several threads."""

    def __init__(self, geometry: Geometry, *, threads: int) -> None:
        self.geometry = geometry
        self._threads = ThreadPoolExecutor(threads, "exact")

    def decode(self, data: bytes) -> np.ndarray | str:
        """uint8 (crop_height, crop_width, 3), or why there are no pixels, in one line."""
        found = pixels_of(data, self.geometry)
        return f"{found.trouble}: {found.reason}" if isinstance(found, BadImage) else found

    def submit(self, read: Callable[[], bytes]) -> Future[np.ndarray | str]:
        """Read and decode in the background."""
        return self._threads.submit(self._read_and_decode, read)

    def _read_and_decode(self, read: Callable[[], bytes]) -> np.ndarray | str:
        try:
            data = read()
        except UNREACHABLE:
            raise
        except Exception as error:  # a source may raise anything
            return unreadable(error)
        return self.decode(data)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def unreadable(error: BaseException) -> str:
    """The line for an image whose bytes cannot be read."""
    return "unreadable: " + (" ".join(str(error).split()) or type(error).__name__)

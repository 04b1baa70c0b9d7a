"""Streams and events of CUDA, or nothing at all on the CPU, behind the same three verbs."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

_idle: dict[tuple[str, bool], list[Any]] = {}
_lock = threading.Lock()


class Lane:
    """A queue of work on a device; on the CPU work is done when it is called.

    Work of an ``urgent`` lane goes before that of others: small kernels that many things wait for.
    Streams of closed lanes are used again: torch keeps workspace and freed memory by stream, so that
    with new ones every pipeline of a process would hold some more.
    """

    def __init__(self, device: str, *, urgent: bool = False) -> None:
        import torch

        self.stream: Any = None
        self._kind = (device, urgent)
        if device.startswith("cuda"):
            with _lock:
                idle = _idle.get(self._kind)
                self.stream = idle.pop() if idle else None
            if self.stream is None:
                self.stream = torch.cuda.Stream(device, priority=-1 if urgent else 0)

    def close(self) -> None:
        """Leave the stream to the next lane."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with _lock:
                _idle.setdefault(self._kind, []).append(stream)

    def work(self) -> contextlib.AbstractContextManager[Any]:
        """Work inside this context goes to the lane."""
        import torch

        return torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()

    def mark(self) -> Mark:
        """A mark behind all work given to the lane so far."""
        import torch

        if not self.stream:
            return Mark(None)
        event = torch.cuda.Event(blocking=True)
        event.record(self.stream)
        return Mark(event)

    def after(self, mark: Mark) -> None:
        """Let the lane's next work wait for ``mark``; the caller does not wait."""
        if self.stream and mark.event is not None:
            self.stream.wait_event(mark.event)

    def to_host(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Copies of tensors in the host's memory, there when the lane has passed its next mark."""
        import torch

        if not self.stream:
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
        return int(self.stream.cuda_stream) if self.stream else 0


class Mark:
    """A moment in a lane."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def wait(self) -> None:
        """Wait until the lane has passed the mark."""
        if self.event is not None:
            self.event.synchronize()

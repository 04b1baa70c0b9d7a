"""Streams and events of CUDA, or nothing at all on the CPU, behind the same three verbs."""

from __future__ import annotations

import contextlib
from typing import Any


class Lane:
    """A queue of work on a device; on the CPU work is done when it is called.

    Work of an ``urgent`` lane goes before that of others: small kernels that many things wait for.
    """

    def __init__(self, device: str, *, urgent: bool = False) -> None:
        import torch

        self.stream: Any = None
        if device.startswith("cuda"):
            self.stream = torch.cuda.Stream(device, priority=-1 if urgent else 0)

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

"""The settings of the GPU path, and a batch of images on its way through it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heldout.models.gpu.decode import Event
from heldout.models.gpu.read import HostBatch
from heldout.models.gpu.threshold import SAMPLE


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the stages are sized; the defaults suit one GPU and sixteen cores.

    ``batch``      images per batch, of decoding and of the models
    ``decoders``   threads that decode on the device; more than two do not pay
    ``readers``    threads that read files; 0: as many as suit where the images are
    ``pillow``     threads that decode for the exact path
    ``slots``      batches that may be read or decoded at the same time
    ``slot_bytes`` bytes of encoded images per image that a slot holds at first
    ``sample``     images that go through both paths to find the threshold
    ``precision``  of the fast path
    """

    batch: int = 256
    decoders: int = 2
    readers: int = 0
    pillow: int = 12
    slots: int = 6
    slot_bytes: int = 1 << 18
    sample: int = SAMPLE
    precision: str = "float16"


@dataclass(eq=False)
class BatchOutput:
    """One model on one batch, by place: ``logits`` float16 (n, classes), ``topk`` int32 (n, k),
    ``margin`` float32 (n,), ``rechecked`` bool (n,).

    ``changed``   how many of the rechecked have another top class than before
    ``failures``  place -> why this model has no output (logits are NaN, the top k -1)
    """

    logits: np.ndarray
    topk: np.ndarray
    margin: np.ndarray
    rechecked: np.ndarray
    changed: int = 0
    failures: dict[int, str] = field(default_factory=dict)

    def fail(self, place: int, reason: str) -> None:
        """This image has no output of this model."""
        self.failures[place] = reason
        self.logits[place], self.topk[place], self.rechecked[place] = np.nan, -1, False


@dataclass(eq=False)
class Batch:
    """A batch on its way through the stages; places count from 0 within it, which is row ``start``.

    ``done``    set when ``models`` has the outputs of all models, or what went wrong
    ``kinds``   int (n,): the decoder's number for each image's kind; -1: the exact path's pixels
    ``aside``   pixels of the places ``kept`` on the device, for the recheck
    ``copied``  an event behind the copying of these pixels
    ``open``    results that are still to be run again
    ``passed``  whether the batch is through the stages before the recheck
    """

    start: int
    rows: Sequence[int]
    calibrating: bool = False
    done: Future[None] = field(default_factory=Future)
    slot: HostBatch | None = None
    parts: list[Future[None]] = field(default_factory=list)
    pixels: Any = None
    decoded: Event = field(default_factory=Event)
    finished: Event = field(default_factory=Event)
    results: list[Any] = field(default_factory=list)
    kinds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    failures: dict[int, str] = field(default_factory=dict)
    models: list[BatchOutput] = field(default_factory=list)
    aside: Any = None
    copied: Event = field(default_factory=Event)
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    fetched: dict[int, Future[np.ndarray | str]] = field(default_factory=dict)
    open: int = 0
    passed: bool = False

    def collect(self) -> None:
        """Take the models' results, which are on the host now, and what failed before them."""
        n = len(self.rows)
        for result in self.results:
            logits, topk, margin = (part[:n].numpy().copy() for part in result)
            self.models.append(BatchOutput(logits, topk, margin, np.zeros(n, bool)))
        self.results = []
        for place, reason in list(self.failures.items()):
            self.fail(place, reason)

    def fail(self, place: int, reason: str) -> None:
        """This image cannot be read: no model has an output for it."""
        self.failures[place] = reason
        for output in self.models:
            output.fail(place, reason)

    def finish(self) -> None:
        """All outputs are there: let go of the pixels, and tell who waits."""
        self.aside = None
        self.fetched.clear()
        self.done.set_result(None)

"""What goes into the GPU path and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heldout.data.images.decode import MAX_PIXELS
from heldout.models.gpu.decode import DecoderName, Event
from heldout.models.gpu.network import Precision
from heldout.models.gpu.read import HostBatch
from heldout.models.gpu.threshold import SAMPLE, TARGET


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the stages are sized; the defaults suit one GPU and sixteen cores.

    ``batch``      images per batch, of decoding and of the models
    ``decoders``   one decoder each, by name; more than two of the hardware do not pay
    ``readers``    threads that read files; 0: as many as suit where the images are
    ``processes``  processes that decode for the exact path; 0: in threads
    ``slots``      batches that may be read or decoded at the same time
    ``slot_bytes`` bytes of encoded images per image that a slot holds at first
    ``fast``       skip the exact path
    ``target``     share of the top classes that may differ from the exact path's
    ``sample``     images that go through both paths to find the threshold
    ``max_pixels`` larger images are not decoded
    ``precision``  of the fast path
    """

    batch: int = 256
    decoders: tuple[DecoderName, ...] = ("nvjpeg", "nvjpeg")
    readers: int = 0
    processes: int = 12
    slots: int = 6
    slot_bytes: int = 1 << 18
    fast: bool = False
    target: float = TARGET
    sample: int = SAMPLE
    max_pixels: int = MAX_PIXELS
    precision: Precision = "float16"


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelBatchOutput:
    """One model on one batch: ``logits`` float16 (n, classes), ``topk`` int32 (n, k), ``rechecked``
    bool (n,); ``changed``: how many of the rechecked have another top class than before;
    ``failures``: row -> why this model has no output for it (its logits are NaN and its top k -1)."""

    model: str
    logits: np.ndarray
    topk: np.ndarray
    rechecked: np.ndarray
    changed: int
    failures: Mapping[int, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchOutput:
    """All models on the rows ``start`` to ``stop``."""

    start: int
    stop: int
    models: tuple[ModelBatchOutput, ...]


@dataclass(eq=False)
class PendingOutput:
    """One model's output on a batch while it is being made."""

    logits: np.ndarray
    topk: np.ndarray
    margin: np.ndarray
    flags: np.ndarray
    changed: int = 0
    failures: dict[int, str] = field(default_factory=dict)

    def fail(self, place: int, reason: str) -> None:
        """This image has no output of this model."""
        self.failures[place] = reason
        self.logits[place], self.topk[place], self.flags[place] = np.nan, -1, False


@dataclass(eq=False)
class Batch:
    """A batch on its way through the stages; places count from 0 within it.

    ``kinds``  int (n,): the decoder's number for each image's kind; -1: the exact path's pixels
    ``aside``  pixels of the places ``kept`` on the device, for the recheck
    ``copied`` an event behind the copying of these pixels
    ``open``   results that are still to be run again
    ``passed`` whether the batch is through the stages before the recheck
    """

    start: int
    rows: Sequence[int]
    calibrating: bool = False
    done: Future[Any] = field(default_factory=Future)
    slot: HostBatch | None = None
    parts: list[Future[None]] = field(default_factory=list)
    pixels: Any = None
    decoded: Event | None = None
    finished: Event | None = None
    results: list[Any] = field(default_factory=list)
    kinds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    failures: dict[int, str] = field(default_factory=dict)
    drafts: list[PendingOutput] = field(default_factory=list)
    aside: Any = None
    copied: Event | None = None
    kept: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    fetched: dict[int, Future[np.ndarray | str]] = field(default_factory=dict)
    open: int = 0
    passed: bool = False

    def draft(self) -> None:
        """Take the models' results, which are on the host now, and what failed before them."""
        n = len(self.rows)
        for result in self.results:
            logits, topk, margin = (part[:n].numpy().copy() for part in result)
            self.drafts.append(PendingOutput(logits, topk, margin, np.zeros(n, bool)))
        self.results = []
        for place, reason in list(self.failures.items()):
            self.fail(place, reason)

    def fail_overflows(self, names: Sequence[str]) -> None:
        """Without a recheck, what half precision could not hold has no output."""
        for name, draft in zip(names, self.drafts, strict=True):
            for place in np.flatnonzero(~np.isfinite(draft.margin)).tolist():
                if place not in draft.failures:
                    draft.fail(place, f"not finite: {name} gave no number")

    def flagged(self) -> np.ndarray:
        """Places that any model wants run again."""
        return np.flatnonzero(np.any([draft.flags for draft in self.drafts], axis=0))

    def fail(self, place: int, reason: str) -> None:
        """This image cannot be read: no model has an output for it."""
        self.failures[place] = reason
        for draft in self.drafts:
            draft.fail(place, reason)

    def output(self, names: Sequence[str]) -> BatchOutput:
        """What the caller gets."""
        return BatchOutput(
            start=self.start,
            stop=self.start + len(self.rows),
            models=tuple(
                ModelBatchOutput(
                    model=name,
                    logits=draft.logits,
                    topk=draft.topk,
                    rechecked=draft.flags,
                    changed=draft.changed,
                    failures={self.rows[at]: draft.failures[at] for at in sorted(draft.failures)},
                )
                for name, draft in zip(names, self.drafts, strict=True)
            ),
        )

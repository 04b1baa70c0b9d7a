"""The exact path at work: the threshold from a sample, and the rows below it run again.

Where the device's pixels are those of Pillow to the bit, which the sample shows kind by kind, only
the model has to run again, in float32 on pixels that are still on the device. Rows of any other
kind are decoded by Pillow.
"""

from __future__ import annotations

import contextlib
import functools
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from heldout.models.gpu.batch import Batch
from heldout.models.gpu.decode import Event, Stream
from heldout.models.gpu.network import FLOAT16_MAX, Network
from heldout.models.gpu.pillow_workers import PillowWorkers
from heldout.models.gpu.read import Reads
from heldout.models.gpu.threshold import Calibration, calibrate

EXACT_BATCH = 128
"""Most images of a float32 batch; with half the images it takes what a half-precision one does."""
ENOUGH = 24
"""Images of a kind that must be equal, and none unequal, before the kind is trusted."""
_PATIENCE = 1.0  # seconds that a near tie waits for others of its model
_FLUSH = "flush"
_NearTie = tuple[Batch, int]  # a result to run again: a place in a batch


class Rechecker:
    """Decides what is run again, and runs it, in a thread of its own.

    ``batch``  images of a float32 batch
    """

    def __init__(
        self,
        networks: Sequence[Network],
        reads: Reads,
        pool: PillowWorkers,
        device: str,
        *,
        batch: int,
        calibrations: tuple[Calibration, ...] | None,
        equal_kinds: frozenset[int],
    ) -> None:
        self.networks, self.reads, self.pool, self.device = networks, reads, pool, device
        self.calibrations = calibrations
        self.equal_kinds = equal_kinds
        self.batch = batch
        self._stream = Stream(device)
        # Copies on a stream of their own: behind float32 work they would hold up the decoders' buffers.
        self._copies = Stream(device, urgent=True)
        self._lock = threading.Lock()
        self._line: queue.Queue[Batch | str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._line.put(None)
        self._thread.join(timeout=30)
        self.networks = ()
        self._stream.close()
        self._copies.close()

    # ------------------------------------------------------------------ choosing

    def set_aside(self, batch: Batch) -> Event:
        """Keep the pixels that the recheck may need; the batch's own buffer is free at the event.

        Of the sample these are all; before the threshold is known, the quarter with the smallest
        margins.
        """
        import torch

        wanted = np.full(len(batch.rows), batch.calibrating)
        for i, output in enumerate(batch.models):
            if self.calibrations is not None:
                wanted |= self.calibrations[i].flagged(output.margin)
            else:
                small = np.argsort(output.margin, kind="stable")[: -(-len(wanted) // 4)]
                wanted[small] = True
                wanted |= ~np.isfinite(output.margin)
        if not batch.calibrating:
            wanted[list(batch.failures)] = False
        batch.kept = np.flatnonzero(wanted)
        if len(batch.kept):
            with self._copies.work():
                places = torch.from_numpy(batch.kept).to(self.device)
                batch.aside = batch.pixels[places]
        batch.copied = self._copies.record()
        return batch.copied

    def recheck(self, batch: Batch) -> None:
        """Flag a batch's near ties; run them again, or finish the batch if it has none."""
        flagged = np.zeros(len(batch.rows), bool)
        for calibration, output in zip(self.calibrations or (), batch.models, strict=True):
            output.rechecked = calibration.flagged(output.margin)
            output.rechecked[list(batch.failures)] = False
            flagged |= output.rechecked
        if not flagged.any():
            batch.finish()
            return
        # Where the device has the exact path's pixels, no file is read again.
        equal = (batch.kinds == -1) | np.isin(batch.kinds, list(self.equal_kinds))
        flagged &= ~equal | ~np.isin(np.arange(len(flagged)), batch.kept)
        for place in np.flatnonzero(flagged).tolist():
            read = functools.partial(self.reads.read, batch.rows[place])
            batch.fetched[place] = self.pool.submit(read)
        self._line.put(batch)

    # ------------------------------------------------------------------ running again

    def flush(self) -> None:
        """Nothing more is on its way: what waits for company is run as it is."""
        self._line.put(_FLUSH)

    def _run(self) -> None:
        """Gather near ties, a model at a time, so that every exact batch is full.

        Different models have different near ties. Run together they would mostly fill each other's
        batches with images that need nothing.
        """
        waiting: list[deque[_NearTie]] = [deque() for _ in self.networks]
        oldest = math.inf
        while True:
            batch: Batch | str | None = None
            with contextlib.suppress(queue.Empty):
                left = oldest + _PATIENCE - time.monotonic()
                batch = self._line.get(timeout=None if left == math.inf else max(left, 0.0))
                if batch is None:
                    return
            if isinstance(batch, Batch):
                for model, output in enumerate(batch.models):
                    places = np.flatnonzero(output.rechecked).tolist()
                    waiting[model].extend((batch, place) for place in places)
                    batch.open += len(places)
                oldest = min(oldest, time.monotonic())
            full = isinstance(batch, Batch) and time.monotonic() < oldest + _PATIENCE
            for model, ties in enumerate(waiting):
                while len(ties) >= (self.batch if full else 1):
                    some = [ties.popleft() for _ in range(min(self.batch, len(ties)))]
                    self._guarded(model, some)
            if not any(waiting):
                oldest = math.inf

    def _guarded(self, model: int, ties: list[_NearTie]) -> None:
        try:
            self._again(model, ties)
        except BaseException as error:
            for batch, _ in ties:
                if not batch.done.done():
                    batch.done.set_exception(error)
        for batch, _ in ties:
            batch.open -= 1
            if not batch.open and not batch.done.done():
                batch.finish()

    def _again(self, model: int, ties: list[_NearTie]) -> None:
        """One model in float32 on some near ties; their rows are put in place."""
        import torch

        network = self.networks[model]
        pixels: list[Any] = []
        good: list[_NearTie] = []
        for batch, place in ties:
            if batch.done.done() or place in batch.failures:
                continue
            if place in batch.fetched:
                got = batch.fetched[place].result()
                if isinstance(got, str):
                    batch.fail(place, got)
                    continue
                with self._stream.work():
                    pixels.append(torch.from_numpy(got.copy()).to(self.device)[None])
            else:
                self._stream.wait_for(batch.copied)
                at = int(np.searchsorted(batch.kept, place))
                pixels.append(batch.aside[at : at + 1])
            good.append((batch, place))
        if not good:
            return
        with self._stream.work():
            stacked = torch.cat(pixels)
        logits = self.exact_logits(model, stacked)
        finite = np.isfinite(logits).all(axis=1)
        best = np.argsort(-logits, axis=1, kind="stable")[:, : network.k].astype(np.int32)
        stored = np.clip(logits, -FLOAT16_MAX, FLOAT16_MAX).astype(np.float16)
        for at, (batch, place) in enumerate(good):
            output = batch.models[model]
            if not finite[at]:
                output.fail(place, f"not finite: {network.name} gave no number")
                continue
            output.changed += int(output.topk[place, 0] != best[at, 0])
            output.logits[place], output.topk[place] = stored[at], best[at]

    def exact_logits(self, model: int, pixels: Any) -> np.ndarray:
        """Logits float32 of uint8 pixels (n, h, w, 3) on the device, in batches of one fixed size:
        a short one is filled up with its first image."""
        import torch

        parts = []
        with self._lock, self._stream.work():
            for at in range(0, len(pixels), self.batch):
                part = pixels[at : at + self.batch]
                n = len(part)
                if n < self.batch:
                    part = torch.cat([part, part[:1].expand(self.batch - n, -1, -1, -1)])
                logits = self.networks[model].exact(part)
                parts.append(logits[:n].cpu().numpy())
        return np.concatenate(parts)

    # ------------------------------------------------------------------ the sample

    def calibrate(
        self, batches: Sequence[Batch], waiting: Sequence[Future[np.ndarray | str]]
    ) -> None:
        """Find the thresholds and the kinds whose pixels are right, from a sample along both paths.

        ``batches`` hold the fast results with all their pixels aside; ``waiting`` the exact pixels.
        """
        import torch

        exact: list[Any] = []
        fast: list[list[np.ndarray]] = [[] for _ in self.networks]
        equal: dict[int, list[bool]] = {}
        answers = iter(waiting)
        for batch in batches:
            made = [next(answers).result() for _ in batch.rows]
            # A bad image fails in its own batch, with the reason.
            good = [
                place
                for place, one in enumerate(made)
                if not isinstance(one, str) and place not in batch.failures
            ]
            if good:
                self._stream.wait_for(batch.copied)
                with self._stream.work():
                    stacked = torch.from_numpy(np.stack([made[place] for place in good]))
                    pixels = stacked.to(self.device)
                    same = pixels == batch.aside[torch.tensor(good, device=self.device)]
                    found = same.flatten(1).all(1).cpu().tolist()
                exact.append(pixels)
                for kind, is_same in zip(batch.kinds[good].tolist(), found, strict=True):
                    equal.setdefault(kind, []).append(is_same)
                for i, output in enumerate(batch.models):
                    fast[i].append(output.logits[good].astype(np.float32))
            batch.aside = None
        self.equal_kinds = frozenset(
            kind for kind, found in equal.items() if len(found) >= ENOUGH and all(found)
        )
        if not exact:  # nothing can be learned
            self.calibrations = tuple(calibrate(*np.zeros((2, 0, 2))) for _ in self.networks)
            return
        with self._stream.work():
            images = torch.cat(exact)
        self.calibrations = tuple(
            calibrate(np.concatenate(fast[i]), self.exact_logits(i, images))
            for i in range(len(self.networks))
        )

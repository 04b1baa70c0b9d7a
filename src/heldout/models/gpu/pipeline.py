"""Files to top classes on one device, every stage at work at the same time.

::

    readers (threads)   files -> pinned slots; what the GPU cannot decode becomes pixels here
    decoders            slot -> planes -> colour -> resized uint8 pixels, on streams of their own
    models              pixels -> every model, reduced precision -> logits, top k, margin
    collector           results to the host; pixels of small margins are set aside
    recheck             float32 on those pixels (or on Pillow's), results put in place

A batch is one item that travels through queues; slots and pixel buffers are few and go round, so
that a fast stage waits for a slow one and memory stays bounded. Several callers may ask for
ranges at once: their batches share the stages.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

import numpy as np

from heldout.core.errors import HeldoutError
from heldout.models.gpu.batch import Batch, Settings
from heldout.models.gpu.decode import Event, Stream, StreamDecoder, fill, stream_decoder
from heldout.models.gpu.network import Network, arithmetic
from heldout.models.gpu.pillow_workers import PillowWorkers
from heldout.models.gpu.read import HostBatch, Reads, read_part
from heldout.models.gpu.recheck import EXACT_BATCH, Rechecker
from heldout.models.gpu.threshold import Calibration

_HELD = 64  # batches that may wait for the threshold
_PART = 8  # fewest images that a reader is given at a time
_T = TypeVar("_T")


class PipelineClosed(HeldoutError):
    """The pipeline was closed before a batch was through."""


class Pipeline:
    """The stages on one device, as threads that live until :meth:`close`.

    ``networks``      at least one; all have the geometry of the first
    ``calibrations``  thresholds, one per model, and ``equal_kinds`` the kinds of images whose pixels
                      are Pillow's, both from an earlier run on the same images; None: find them

    ``fault`` is why no threshold was found; with one, no batch gets through.
    """

    def __init__(
        self,
        reads: Reads,
        networks: Sequence[Network],
        *,
        device: str = "cuda",
        settings: Settings | None = None,
        calibrations: tuple[Calibration, ...] | None = None,
        equal_kinds: frozenset[int] = frozenset(),
    ) -> None:
        self.settings = settings or Settings()
        self.reads, self.networks, self.device = reads, networks, device
        self._stack = contextlib.ExitStack()
        try:
            self._start(calibrations, equal_kinds)
        except BaseException:
            self._stack.close()
            raise

    def _start(
        self, calibrations: tuple[Calibration, ...] | None, equal_kinds: frozenset[int]
    ) -> None:
        """Take the buffers and start the threads."""
        import torch

        s, reads, networks, device = self.settings, self.reads, self.networks, self.device
        geometry = networks[0].preprocessing.geometry
        cuda = device.startswith("cuda")
        self._stack.enter_context(arithmetic())
        self.pool = PillowWorkers(geometry, threads=s.pillow)
        self._stack.callback(self.pool.close)
        self._closing, self._known = threading.Event(), threading.Event()
        self._calibrating, self._counting = threading.Lock(), threading.Lock()
        self._ahead = 0
        self._open: set[Batch] = set()
        self._learning: threading.Thread | None = None
        self.fault: BaseException | None = None
        self._readers = s.readers or reads.threads
        self._reading = ThreadPoolExecutor(self._readers, "read")
        self._slots: queue.Queue[HostBatch] = queue.Queue()
        for _ in range(s.slots):
            self._slots.put(HostBatch(s.batch, size=s.batch * s.slot_bytes, pinned=cuda))
        shape = (s.batch, geometry.crop_height, geometry.crop_width, 3)
        self._pixels: queue.Queue[tuple[Any, Event]] = queue.Queue()
        for _ in range(s.decoders + 4):
            buffer = torch.zeros(shape, dtype=torch.uint8, device=device)
            self._pixels.put((buffer, Event()))
        lines: list[queue.Queue[Batch | None]] = [queue.Queue() for _ in range(4)]
        self._to_read, self._to_decode, self._to_models, self._to_collect = lines
        self._decoders: list[StreamDecoder] = []
        for _ in range(s.decoders):
            self._decoders.append(stream_decoder(geometry, device))
            self._stack.callback(self._decoders[-1].close)
        self._model_stream = Stream(device)
        self._stack.callback(self._model_stream.close)
        if cuda:
            torch.cuda.synchronize(device)
        self.rechecker = Rechecker(
            networks, reads, self.pool, device,
            batch=max(min(EXACT_BATCH, s.batch // 2), 1),
            calibrations=calibrations,
            equal_kinds=equal_kinds,
        )  # fmt: skip
        self._stack.callback(self.rechecker.close)
        if calibrations is not None:
            self._known.set()
        stages: list[Callable[[], None]] = [self._feed, self._run_models, self._collect]
        stages += [functools.partial(self._decode, decoder) for decoder in self._decoders]
        self._threads = [threading.Thread(target=stage, daemon=True) for stage in stages]
        for thread in self._threads:
            thread.start()

    def run(self, start: int, stop: int) -> Iterator[Batch]:
        """Predict the rows ``start`` to ``stop``, in order, a batch at a time."""
        self._calibrate_once()
        step = self.settings.batch
        batches = deque(
            self._submit(Batch(at, range(at, min(at + step, stop))))
            for at in range(start, stop, step)
        )
        while batches:
            batch = batches.popleft()  # a caller that lets go of it frees its memory
            batch.done.result()
            yield batch

    def close(self) -> None:
        """Stop the threads; whoever waits for a batch gets :class:`PipelineClosed`."""
        with self._counting:
            self._closing.set()
        self._known.set()
        for line in (self._to_read, self._to_models, self._to_collect):
            line.put(None)
        for _ in self._decoders:
            self._to_decode.put(None)
        for thread in self._threads:
            thread.join(timeout=30)
        self._reading.shutdown(wait=True, cancel_futures=True)
        self._stack.close()
        for batch in list(self._open):
            if not batch.done.done():
                batch.done.set_exception(PipelineClosed())
        # Whoever still holds this object must not hold the device's memory with it.
        self._decoders.clear()
        self.networks = ()
        self._pixels = queue.Queue()

    # ------------------------------------------------------------------ what all stages share

    def _submit(self, batch: Batch) -> Batch:
        with self._counting:
            if self._closing.is_set():
                raise PipelineClosed
            self._ahead += 1
            self._open.add(batch)
        batch.done.add_done_callback(lambda _: self._passed(batch))
        self._to_read.put(batch)
        return batch

    def _passed(self, batch: Batch) -> None:
        """The batch is through all stages but the recheck; behind the last one nothing comes."""
        with self._counting:
            if not batch.passed:
                batch.passed = True
                self._ahead -= 1
            if batch.done.done():
                self._open.discard(batch)
            last = not self._ahead
        if last:
            self.rechecker.flush()

    def _next(self, line: queue.Queue[Batch | None]) -> Iterator[Batch]:
        while (batch := line.get()) is not None and not self._closing.is_set():
            if not batch.done.done():
                yield batch

    @contextlib.contextmanager
    def _stage(self, batch: Batch) -> Iterator[None]:
        """A fault becomes the caller's, and the buffers go round all the same."""
        try:
            yield
        except BaseException as error:
            self._give_back(batch)
            if not batch.done.done():
                batch.done.set_exception(error)

    def _free(self, buffers: queue.Queue[_T]) -> _T:
        """The next free buffer; when the pipeline is closed there may never be one."""
        while not self._closing.is_set():
            with contextlib.suppress(queue.Empty):
                return buffers.get(timeout=0.2)
        raise PipelineClosed

    def _give_back(self, batch: Batch, after: Event | None = None) -> None:
        if batch.slot is not None:
            slot, batch.slot = batch.slot, None
            slot.clear()
            self._slots.put(slot)
        if batch.pixels is not None:
            pixels, batch.pixels = batch.pixels, None
            self._pixels.put((pixels, after or batch.finished))

    # ------------------------------------------------------------------ stages

    def _feed(self) -> None:
        for batch in self._next(self._to_read):
            with self._stage(batch):
                batch.slot = slot = self._free(self._slots)
                # A part has its share of the buffer: of few images one large one would not fit.
                pieces = max(min(self._readers, len(batch.rows) // _PART), 1)
                bounds = np.linspace(0, len(batch.rows), pieces + 1).astype(int).tolist()
                size = slot.buffer.numel() // pieces // 64 * 64
                batch.parts = [
                    self._reading.submit(
                        read_part, slot, self.reads, batch.rows,
                        range(bounds[i], bounds[i + 1]), (i * size, (i + 1) * size), self.pool,
                        on_device=self._decoders[0].decodes,
                    )
                    for i in range(pieces)
                ]  # fmt: skip
                self._to_decode.put(batch)

    def _decode(self, decoder: StreamDecoder) -> None:
        for batch in self._next(self._to_decode):
            with self._stage(batch):
                wait(batch.parts)  # all, before one that failed lets the slot go
                for part in batch.parts:
                    part.result()
                slot: Any = batch.slot
                batch.pixels, free = self._free(self._pixels)
                decoder.stream.wait_for(free)
                try:
                    pixels = batch.pixels[: len(batch.rows)]
                    batch.kinds = fill(decoder, slot, pixels, self.pool)
                except BaseException:
                    decoder.stream.record().wait()  # what it had begun still writes into the pixels
                    raise
                batch.failures = dict(slot.failures)
                batch.decoded = done = decoder.stream.record()
                # The slot leaves the batch before the batch leaves: it may be through the other
                # stages, which give back what it holds, before this thread goes on.
                batch.slot = None
                self._to_models.put(batch)
                try:
                    done.wait()
                finally:
                    slot.clear()
                    self._slots.put(slot)

    def _run_models(self) -> None:
        stream = self._model_stream
        for batch in self._next(self._to_models):
            with self._stage(batch):
                stream.wait_for(batch.decoded)
                with stream.work():
                    batch.results = [
                        stream.to_host(network.fast(batch.pixels)) for network in self.networks
                    ]
                batch.finished = stream.record()
                self._to_collect.put(batch)

    def _collect(self) -> None:
        held: list[Batch] = []
        for batch in self._next(self._to_collect):
            if batch.rows:  # an empty one only says that the threshold is known
                with self._stage(batch):
                    batch.finished.wait()
                    batch.collect()
                    self._give_back(batch, self.rechecker.set_aside(batch))
                    if batch.calibrating:
                        batch.done.set_result(None)
                    else:
                        held.append(batch)
            if len(held) > _HELD:
                self._known.wait()
            if self._closing.is_set():  # which sets it too: there may be no threshold
                return
            if self._known.is_set():
                for one in held:
                    with self._stage(one):
                        if self.fault is not None:
                            raise self.fault
                        self.rechecker.recheck(one)
                        self._passed(one)
                held.clear()

    # ------------------------------------------------------------------ the threshold

    def _calibrate_once(self) -> None:
        """Send a sample, spread over all rows, along both paths, ahead of all other batches."""
        with self._calibrating:
            if self._known.is_set() or self._learning is not None:
                return
            n, step = len(self.reads), self.settings.batch
            spread = np.linspace(0, n - 1, min(n, self.settings.sample)).astype(int)
            rows = np.unique(spread).tolist()
            try:
                waiting = [self.pool.submit(functools.partial(self.reads.read, r)) for r in rows]
            except RuntimeError:  # the pool is gone
                if self._closing.is_set():
                    raise PipelineClosed from None
                raise
            batches = [
                self._submit(Batch(at, rows[at : at + step], calibrating=True))
                for at in range(0, len(rows), step)
            ]
            self._learning = threading.Thread(
                target=self._learn, args=(batches, waiting), daemon=True
            )
            self._learning.start()

    def _learn(self, batches: list[Batch], waiting: list[Any]) -> None:
        try:
            for batch in batches:
                batch.done.result()
            self.rechecker.calibrate(batches, waiting)
        except BaseException as error:
            self.fault = error
        self._known.set()  # first: else another caller would begin again
        self._learning = None
        self._to_collect.put(Batch(0, ()))

"""Files to top classes on one device, every stage at work at the same time.

::

    readers (threads)   files -> pinned slots; what the GPU cannot decode becomes pixels here
    decode lanes        slot -> planes -> colour -> resized uint8 pixels, on streams of their own
    model lane          pixels -> every model, reduced precision -> logits, top k, margin
    collector           results to the host; small margins go to the exact path
    exact path          Pillow on the CPU, float32 on the device, results put in place

A batch is one item that travels through queues; slots and pixel buffers are few and go round, so
that a fast stage waits for a slow one and memory stays bounded. Several callers may ask for
ranges at once: their batches share the stages.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from heldout.errors import HeldoutError, UserError
from heldout.predictions.gpu.decode import DecodeLane, DecoderName, decode_lane
from heldout.predictions.gpu.exact import exact_pixels
from heldout.predictions.gpu.lanes import Lane, Mark
from heldout.predictions.gpu.network import Network, arithmetic
from heldout.predictions.gpu.reader import Exact, Reads, Slot, read_part
from heldout.predictions.gpu.recheck import SAMPLE, TARGET, Calibration, calibrate

EXACT_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the stages are sized; the defaults suit one GPU and sixteen cores.

    ``batch``      images a batch, of decoding and of the models
    ``decoders``   one decode lane each, by name
    ``readers``    threads that read files and decode what the GPU does not
    ``exact``      threads that decode for the exact path
    ``slots``      batches that may be read or decoded at the same time
    ``slot_bytes`` bytes of encoded images that a slot holds at first, an image
    ``cpu_share``  share of the images that the readers decode although the GPU could
    ``fast``       skip the exact path
    ``target``     share of the top classes that may differ from the exact path's
    ``sample``     images that go through both paths to find the threshold
    """

    batch: int = 256
    decoders: tuple[DecoderName, ...] = ("nvjpeg", "nvjpeg")
    readers: int = 8
    exact: int = 8
    slots: int = 6
    slot_bytes: int = 1 << 18
    cpu_share: float = 0.0
    fast: bool = False
    target: float = TARGET
    sample: int = SAMPLE


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelOutput:
    """One model on one batch: ``logits`` float16 (n, classes), ``topk`` int32 (n, k), ``rechecked``
    bool (n,); ``changed``: how many of the rechecked have another top class than before."""

    model: str
    logits: np.ndarray
    topk: np.ndarray
    rechecked: np.ndarray
    changed: int


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchOutput:
    """All models on the rows ``start`` to ``stop``; ``failures``: row -> reason (its logits are
    NaN and its top k -1)."""

    start: int
    stop: int
    models: tuple[ModelOutput, ...]
    failures: Mapping[int, str]


@dataclass(eq=False)
class _Batch:
    start: int
    rows: Sequence[int]
    done: Future[Any] = field(default_factory=Future)
    slot: Slot | None = None
    parts: list[Future[Any]] = field(default_factory=list)
    pixels: Any = None
    decoded: Mark | None = None
    results: list[Any] = field(default_factory=list)
    finished: Mark | None = None
    failures: dict[int, str] = field(default_factory=dict)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    flags: list[np.ndarray] = field(default_factory=list)
    calibrating: bool = False


class Pipeline:
    """The stages on one device, as threads that live until :meth:`close`; use it in ``with``."""

    def __init__(
        self,
        reads: Reads,
        networks: Sequence[Network],
        *,
        device: str = "cuda",
        settings: Settings | None = None,
        calibrations: Sequence[Calibration] | None = None,
        exact: Exact = exact_pixels,
    ) -> None:
        settings = settings or Settings()
        if not networks:
            raise UserError("no model to run", fix="give at least one")
        if len({network.preprocessing.geometry for network in networks}) > 1:
            raise UserError(
                "models with different geometries in one pass", fix="run one pass a geometry"
            )
        self.reads, self.networks, self.device, self.settings = reads, networks, device, settings
        self.geometry = networks[0].preprocessing.geometry
        self.exact = exact
        self.calibrations = tuple(calibrations) if calibrations is not None else None
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(arithmetic())
        self._calibrating = threading.Lock()
        self._broken: BaseException | None = None
        self._start()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, start: int, stop: int) -> Iterator[BatchOutput]:
        """Predict the rows ``start`` to ``stop``, in order, a batch at a time."""
        self.calibrate_once()
        step = self.settings.batch
        batches = [
            self._submit(_Batch(at, range(at, min(at + step, stop))))
            for at in range(start, stop, step)
        ]
        for i, batch in enumerate(batches):
            output: BatchOutput = batch.done.result()
            batches[i] = None  # type: ignore[call-overload]
            yield output

    def calibrate_once(self) -> tuple[Calibration, ...]:
        """The thresholds, one a model; found on a sample that is spread over all rows."""
        with self._calibrating:
            if self.calibrations is None:
                if self.settings.fast:
                    self.calibrations = ()
                else:
                    self.calibrations = self._calibrate()
            return self.calibrations

    def close(self) -> None:
        """Stop the threads; batches that were not asked for any more are dropped."""
        self._closing.set()
        for line in (self._to_read, self._to_decode, self._to_models, self._to_collect):
            line.put(None)
        for _ in self.settings.decoders:
            self._to_decode.put(None)
        self._to_exact.put(None)
        for thread in self._threads:
            thread.join(timeout=30)
        self._reading.shutdown(wait=True, cancel_futures=True)
        self._exacting.shutdown(wait=True, cancel_futures=True)
        self._stack.close()

    # ------------------------------------------------------------------ start

    def _start(self) -> None:
        import torch

        s = self.settings
        cuda = self.device.startswith("cuda")
        self._closing = threading.Event()
        self._reading = ThreadPoolExecutor(s.readers, "read")
        self._exacting = ThreadPoolExecutor(s.exact, "exact")
        self._slots: queue.Queue[Slot] = queue.Queue()
        for _ in range(s.slots):
            self._slots.put(Slot.of(s.batch, size=s.batch * s.slot_bytes, pinned=cuda))
        height, width = self.geometry.crop_height, self.geometry.crop_width
        self._pixels: queue.Queue[tuple[Any, Mark]] = queue.Queue()
        for _ in range(len(s.decoders) + 3):
            pixels = torch.zeros((s.batch, height, width, 3), dtype=torch.uint8, device=self.device)
            self._pixels.put((pixels, Mark(None)))
        if cuda:
            torch.cuda.synchronize(self.device)
        self._to_read: queue.Queue[_Batch | None] = queue.Queue()
        self._to_decode: queue.Queue[_Batch | None] = queue.Queue()
        self._to_models: queue.Queue[_Batch | None] = queue.Queue()
        self._to_collect: queue.Queue[_Batch | None] = queue.Queue(4)
        self._to_exact: queue.Queue[_Batch | None] = queue.Queue()
        self._lanes = [decode_lane(name, self.geometry, self.device) for name in s.decoders]
        self._model_lane, self._exact_lane = Lane(self.device), Lane(self.device)
        self._exact_lock = threading.Lock()
        jobs: list[tuple[str, Callable[[], None]]] = [
            ("feed", self._feed),
            ("models", self._run_models),
            ("collect", self._collect),
            ("recheck", self._recheck),
        ]
        for i, lane in enumerate(self._lanes):
            jobs.append((f"decode-{i}", lambda lane=lane: self._decode(lane)))  # type: ignore[misc]
        self._threads = [threading.Thread(target=job, name=name, daemon=True) for name, job in jobs]
        for thread in self._threads:
            thread.start()

    def _submit(self, batch: _Batch) -> _Batch:
        self._to_read.put(batch)
        return batch

    def _next(self, line: queue.Queue[_Batch | None]) -> Iterator[_Batch]:
        while True:
            batch = line.get()
            if batch is None or self._closing.is_set():
                return
            if not batch.done.done():
                yield batch

    @contextlib.contextmanager
    def _guard(self, batch: _Batch) -> Iterator[None]:
        """A fault in any stage becomes the caller's, and the buffers go round all the same."""
        try:
            yield
        except BaseException as error:
            self._give_back(batch)
            if not batch.done.done():
                batch.done.set_exception(error)

    def _give_back(self, batch: _Batch) -> None:
        if batch.slot is not None:
            slot, batch.slot = batch.slot, None
            slot.clear()
            self._slots.put(slot)
        if batch.pixels is not None:
            pixels, batch.pixels = batch.pixels, None
            self._pixels.put((pixels, batch.finished or Mark(None)))

    # ------------------------------------------------------------------ stages

    def _feed(self) -> None:
        s = self.settings
        for batch in self._next(self._to_read):
            with self._guard(batch):
                while batch.slot is None:
                    try:
                        batch.slot = self._slots.get(timeout=1)
                    except queue.Empty:
                        if self._closing.is_set():
                            return
                n = len(batch.rows)
                pieces = max(1, min(s.readers, n // 16))
                bounds = np.linspace(0, n, pieces + 1).astype(int).tolist()
                size = batch.slot.buffer.numel() // pieces // 64 * 64
                batch.parts = [
                    self._reading.submit(
                        read_part, batch.slot, self.reads, batch.rows,
                        range(bounds[i], bounds[i + 1]), (i * size, (i + 1) * size),
                        self.geometry, exact=self.exact, cpu_share=s.cpu_share,
                    )
                    for i in range(pieces)
                ]  # fmt: skip
                self._to_decode.put(batch)

    def _decode(self, decoder: DecodeLane) -> None:
        for batch in self._next(self._to_decode):
            with self._guard(batch):
                slot = batch.slot
                if slot is None:
                    raise HeldoutError("a batch without a slot")
                for part in batch.parts:
                    part.result()
                batch.pixels, free = self._pixels.get()
                decoder.lane.after(free)
                places = np.flatnonzero(slot.shapes[:, 0])
                if len(places):
                    try:
                        decoder.decode(slot, places, batch.pixels)
                    except HeldoutError:
                        self._decode_on_cpu(slot, places, batch)
                self._place_pixels(decoder.lane, slot, batch)
                batch.decoded = decoder.lane.mark()
                batch.failures = dict(slot.failures)
                self._to_models.put(batch)
                batch.decoded.wait()
                batch.slot = None
                slot.clear()
                self._slots.put(slot)

    def _decode_on_cpu(self, slot: Slot, places: np.ndarray, batch: _Batch) -> None:
        """A stream that looked sound was refused: the batch takes the exact path's pixels."""
        for place in places.tolist():
            first = slot.starts[place]
            encoded = slot.buffer.numpy()[first : first + slot.lengths[place]].tobytes()
            try:
                slot.pixels[place] = self.exact(encoded, self.geometry)
            except Exception as error:  # a hostile file can make a decoder raise anything
                slot.failures[place] = " ".join(str(error).split()) or type(error).__name__

    def _place_pixels(self, lane: Lane, slot: Slot, batch: _Batch) -> None:
        """Lay the pixels that the CPU made into the batch."""
        import torch

        if not slot.pixels:
            return
        places = sorted(slot.pixels)
        stacked = torch.from_numpy(np.stack([slot.pixels[place] for place in places]))
        with lane.work():
            if lane.stream:
                stacked = stacked.pin_memory()
            batch.pixels[torch.tensor(places, device=self.device)] = stacked.to(
                self.device, non_blocking=True
            )

    def _run_models(self) -> None:
        lane = self._model_lane
        for batch in self._next(self._to_models):
            with self._guard(batch):
                if batch.decoded is not None:
                    lane.after(batch.decoded)
                with lane.work():
                    batch.results = [self._to_host(n.fast(batch.pixels)) for n in self.networks]
                batch.finished = lane.mark()
                pixels, batch.pixels = batch.pixels, None
                self._pixels.put((pixels, batch.finished))
                self._to_collect.put(batch)

    def _to_host(self, result: Any) -> Any:
        if not self.device.startswith("cuda"):
            return result
        import torch

        def host(value: Any) -> Any:
            target = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            return target.copy_(value, non_blocking=True)

        return replace(
            result,
            logits=host(result.logits),
            topk=host(result.topk),
            margin=host(result.margin),
        )

    def _collect(self) -> None:
        for batch in self._next(self._to_collect):
            with self._guard(batch):
                if batch.finished is not None:
                    batch.finished.wait()
                n = len(batch.rows)
                for i, result in enumerate(batch.results):
                    output = {
                        "logits": result.logits[:n].numpy().copy(),
                        "topk": result.topk[:n].numpy().copy(),
                        "margin": result.margin[:n].numpy().copy(),
                        "changed": 0,
                    }
                    flag = np.zeros(n, bool)
                    if not self.settings.fast and not batch.calibrating and self.calibrations:
                        flag = self.calibrations[i].flagged(output["margin"])
                    batch.outputs.append(output)
                    batch.flags.append(flag)
                for at, why in list(batch.failures.items()):
                    self._fail(batch, at, why)
                batch.results = []
                rows = np.flatnonzero(np.any(batch.flags, axis=0)).tolist()
                if rows:
                    batch.parts = [
                        self._exacting.submit(self._exact_row, batch.rows[at]) for at in rows
                    ]
                    self._to_exact.put(batch)
                else:
                    self._finish(batch)

    def _exact_row(self, row: int) -> np.ndarray | str:
        """Pixels, or why there are none."""
        try:
            return self.exact(self.reads.read(row), self.geometry)
        except Exception as error:  # a hostile file can make a decoder raise anything
            return " ".join(str(error).split()) or type(error).__name__

    def _recheck(self) -> None:
        """Gather what waits for the exact path, so that its batches are not nearly empty."""
        waiting: list[_Batch] = []
        images = 0
        while True:
            try:
                batch = self._to_exact.get(timeout=0.03 if waiting else 1.0)
            except queue.Empty:
                if self._closing.is_set():
                    return
                batch = None
            else:
                if batch is None:
                    return
                waiting.append(batch)
                images += len(batch.parts)
            if waiting and (images >= EXACT_BATCH or batch is None):
                self._run_exact(waiting)
                waiting, images = [], 0

    def _run_exact(self, batches: list[_Batch]) -> None:
        pixels: list[np.ndarray] = []
        homes: list[tuple[_Batch, int]] = []
        for batch in batches:
            places = np.flatnonzero(np.any(batch.flags, axis=0)).tolist()
            for place, part in zip(places, batch.parts, strict=True):
                got = part.result()
                if isinstance(got, str):
                    self._fail(batch, place, got)
                else:
                    pixels.append(got)
                    homes.append((batch, place))
        try:
            if pixels:
                self._put_exact(np.stack(pixels), homes)
        except BaseException as error:
            for batch in batches:
                batch.done.set_exception(error)
            return
        for batch in batches:
            self._finish(batch)

    def _put_exact(self, pixels: np.ndarray, homes: list[tuple[_Batch, int]]) -> None:
        for i, network in enumerate(self.networks):
            mine = [j for j, (batch, place) in enumerate(homes) if batch.flags[i][place]]
            if not mine:
                continue
            logits = self.exact_logits(network, pixels[mine])
            best = _top(logits, network.k)
            for j, row_logits, row_best in zip(mine, logits, best, strict=True):
                batch, place = homes[j]
                output = batch.outputs[i]
                output["changed"] += int(output["topk"][place, 0] != row_best[0])
                output["logits"][place] = np.clip(row_logits, -65504, 65504)
                output["topk"][place] = row_best

    def _fail(self, batch: _Batch, place: int, reason: str) -> None:
        batch.failures[place] = reason
        for output, flag in zip(batch.outputs, batch.flags, strict=True):
            output["logits"][place], output["topk"][place], flag[place] = np.nan, -1, False

    def _finish(self, batch: _Batch) -> None:
        if batch.calibrating:
            batch.done.set_result(batch)
            return
        models = tuple(
            ModelOutput(
                model=network.name,
                logits=output["logits"],
                topk=output["topk"],
                rechecked=flag,
                changed=output["changed"],
            )
            for network, output, flag in zip(self.networks, batch.outputs, batch.flags, strict=True)
        )
        batch.done.set_result(
            BatchOutput(
                start=batch.start,
                stop=batch.start + len(batch.rows),
                models=models,
                failures={batch.rows[at]: batch.failures[at] for at in sorted(batch.failures)},
            )
        )

    # ------------------------------------------------------------------ exact path

    def exact_logits(self, network: Network, pixels: np.ndarray) -> np.ndarray:
        """Logits float32 of uint8 pixels (n, h, w, 3) in batches of one fixed size."""
        import torch

        parts = []
        with self._exact_lock, self._exact_lane.work():
            for at in range(0, len(pixels), EXACT_BATCH):
                part = pixels[at : at + EXACT_BATCH]
                full = np.zeros((EXACT_BATCH, *part.shape[1:]), np.uint8)
                full[: len(part)] = part
                logits = network.exact(torch.from_numpy(full).to(self.device))
                parts.append(logits[: len(part)].cpu().numpy())
        return np.concatenate(parts)

    def _calibrate(self) -> tuple[Calibration, ...]:
        n = len(self.reads)
        rows = np.unique(np.linspace(0, n - 1, min(n, self.settings.sample)).astype(int)).tolist()
        step = self.settings.batch
        batches = [
            self._submit(_Batch(at, rows[at : at + step], calibrating=True))
            for at in range(0, len(rows), step)
        ]
        waiting = [self._exacting.submit(self._exact_row, row) for row in rows]
        pixels, good = [], []
        for i, part in enumerate(waiting):
            got = part.result()
            if not isinstance(got, str):  # a bad image fails in its batch, with the reason
                pixels.append(got)
                good.append(i)
        fast: list[list[np.ndarray]] = [[] for _ in self.networks]
        for batch in batches:
            result = batch.done.result()
            for i, output in enumerate(result.outputs):
                fast[i].append(output["logits"].astype(np.float32))
        if not good:
            empty = np.zeros((0, 2), np.float32)
            return tuple(calibrate(empty, empty, target=self.settings.target) for _ in fast)
        stacked = np.stack(pixels)
        return tuple(
            calibrate(
                np.concatenate(fast[i])[good],
                self.exact_logits(network, stacked),
                target=self.settings.target,
            )
            for i, network in enumerate(self.networks)
        )


def _top(logits: np.ndarray, k: int) -> np.ndarray:
    order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    return order.astype(np.int32)

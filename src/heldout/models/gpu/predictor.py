"""Predicts units of a prediction job on GPUs: the same results as on the CPU, other hardware."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import to_builtins

from heldout.core.errors import HeldoutError
from heldout.core.schema import Document, read, write
from heldout.models.adapters.model import Model
from heldout.models.gpu.batch import Batch, Settings
from heldout.models.gpu.network import Network
from heldout.models.gpu.pipeline import Pipeline, PipelineClosed
from heldout.models.gpu.read import Reads
from heldout.models.gpu.threshold import Calibration
from heldout.models.predictions.pixels import ImageFiles
from heldout.models.predictions.predictions import TOP_K
from heldout.models.predictions.run_models import ModelRows


def devices_of(models: Sequence[Model]) -> tuple[str, ...]:
    """The devices to use: the one that a model names, or all of them for plain ``cuda``."""
    import torch

    named = {str(getattr(model, "device", "cuda")) for model in models}
    if named == {"cuda"}:
        return tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))
    return tuple(sorted("cuda:0" if name == "cuda" else name for name in named))


class RecheckNotes(Document, frozen=True, kw_only=True):
    """What a job keeps of one model's recheck; see :class:`Pipeline`."""

    schema_version: int = 1
    calibration: Calibration
    equal_kinds: tuple[int, ...]


@dataclass(eq=False)
class Device:
    """One device: its pipeline, made when first needed, and its batch size."""

    device: str
    batch: int
    pipeline: Pipeline | None = None
    users: int = 0


class GpuPredictor:
    """Predicts ranges of rows with all models, one pipeline per device; call it from many threads.

    ``notes``  where each model's threshold of the recheck is kept, so that a resumed job uses the
               same
    ``keep``   ``logits`` or ``topk``
    """

    def __init__(
        self,
        files: ImageFiles,
        models: Sequence[Model],
        *,
        notes: Sequence[Path],
        keep: str = "logits",
        settings: Settings | None = None,
        devices: Sequence[str] | None = None,
    ) -> None:
        self.files, self.models, self.keep, self._notes = files, models, keep, notes
        self.settings = settings or Settings()
        self._reads = Reads(files)
        names = devices_of(models) if devices is None else devices
        self._places = [Device(name, self.settings.batch) for name in names]
        self._lock = threading.Lock()

    def predict(
        self, start: int, stop: int, places: Sequence[int] | None = None
    ) -> tuple[ModelRows, ...]:
        """Outputs on rows ``start`` to ``stop`` of every model, or of those at ``places``.

        All models run in any case: they share every stage.
        """
        import torch

        with self._place() as place:
            while True:
                pipeline: Pipeline | None = None
                try:
                    pipeline = self._pipeline(place)
                    outputs = list(pipeline.run(start, stop))
                    self._remember(pipeline)
                    break
                except torch.OutOfMemoryError:
                    pass
                except PipelineClosed:  # another thread met the end of the memory, or a fault
                    continue
                except BaseException:
                    if pipeline is not None and pipeline.fault is not None:
                        # No threshold was found, perhaps because of one bad read.
                        self._drop(place, pipeline, batch=place.batch)
                    raise
                # Out of the handler, which holds the failed run's tensors.
                self._drop(place, pipeline, batch=place.batch // 2)
        wanted = range(len(self.models)) if places is None else places
        return tuple(self._model_rows(model, outputs, start, stop) for model in wanted)

    def close(self) -> None:
        """Stop the pipelines."""
        for place in self._places:
            if place.pipeline is not None:
                place.pipeline.close()
                place.pipeline = None

    @property
    def workers(self) -> int:
        """How many units should be in work at a time: a device always has the next one waiting."""
        return 3 * len(self._places)

    def record(self, model: int) -> Mapping[str, Any]:
        """How the model's outputs were made, for the run's record."""
        found: dict[str, Any] = {
            "device": ", ".join(place.device for place in self._places),
            "precision": self.settings.precision,
        }
        if self._notes[model].is_file():
            found["recheck"] = to_builtins(read(self._notes[model], RecheckNotes).calibration)
        return found

    # ------------------------------------------------------------------ devices

    @contextlib.contextmanager
    def _place(self) -> Iterator[Device]:
        with self._lock:
            place = min(self._places, key=lambda one: one.users)
            place.users += 1
        try:
            yield place
        finally:
            with self._lock:
                place.users -= 1

    def _pipeline(self, place: Device) -> Pipeline:
        with self._lock:
            if place.pipeline is None:
                notes: list[RecheckNotes] = []
                if all(path.is_file() for path in self._notes):
                    notes = [read(path, RecheckNotes) for path in self._notes]
                kinds = set(notes[0].equal_kinds) if notes else set()
                kinds.intersection_update(*(note.equal_kinds for note in notes))
                networks = [
                    Network(
                        model,
                        place.device,
                        precision=self.settings.precision,
                        k=min(TOP_K, len(model.label_space)),
                    )
                    for model in self.models
                ]
                place.pipeline = Pipeline(
                    self._reads,
                    networks,
                    device=place.device,
                    settings=replace(self.settings, batch=place.batch),
                    calibrations=tuple(note.calibration for note in notes) or None,
                    equal_kinds=frozenset(kinds),
                )
            return place.pipeline

    def _drop(self, place: Device, pipeline: Pipeline | None, *, batch: int) -> None:
        """Let the next unit begin anew, with batches of ``batch``, unless another thread has seen
        to it already.

        Nobody makes the next pipeline before the memory of this one is free.
        """
        import gc

        import torch

        with self._lock:
            if place.pipeline is not pipeline:
                return
            if batch < 1:
                raise HeldoutError(f"one image at a time does not fit into {place.device}")
            place.pipeline, place.batch = None, batch
            if pipeline is not None:
                pipeline.close()
            gc.collect()  # what failed and the steps it failed in hold each other
            torch.cuda.empty_cache()

    def _remember(self, pipeline: Pipeline) -> None:
        """Keep the thresholds that a pipeline has found."""
        with self._lock:
            for path, calibration in zip(
                self._notes, pipeline.rechecker.calibrations or (), strict=False
            ):
                if not path.is_file():
                    kinds = tuple(sorted(pipeline.rechecker.equal_kinds))
                    write(path, RecheckNotes(calibration=calibration, equal_kinds=kinds))

    # ------------------------------------------------------------------ results

    def _model_rows(self, model: int, outputs: Sequence[Batch], start: int, stop: int) -> ModelRows:
        mine = [output.models[model] for output in outputs]
        topk = np.concatenate([one.topk for one in mine])
        failures = {
            batch.start - start + place: why
            for batch, one in zip(outputs, mine, strict=True)
            for place, why in sorted(one.failures.items())
        }
        logits = None
        if self.keep == "logits":
            logits = np.concatenate([one.logits for one in mine])
            logits[sorted(failures)] = 0.0
        return ModelRows(topk, logits, failures, self.files.used(start, stop, failures))

"""Predicts units of a prediction job on GPUs: the same results as on the CPU, other hardware."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import HeldoutError, UserError
from heldout.core.files import read_json, write_json
from heldout.data.images import FolderSource
from heldout.data.images.sources import check_id
from heldout.models.adapters.model import Model
from heldout.models.gpu.batch import BatchOutput, Settings
from heldout.models.gpu.network import Network, TorchClassifier
from heldout.models.gpu.pipeline import Pipeline, PipelineClosed
from heldout.models.gpu.read import FileReads, Reads, SeenReads, SourceReads
from heldout.models.gpu.threshold import Calibration
from heldout.models.predictions.pixels import ImageFiles
from heldout.models.predictions.predictions import TOP_K
from heldout.models.predictions.run_models import ModelRows

_SCHEMA = 1


def devices_of(models: Sequence[Model]) -> tuple[str, ...]:
    """The devices to use: the one that a model names, or all of them for plain ``cuda``."""
    import torch

    named = {str(getattr(model, "device", "cuda")) for model in models}
    if named == {"cuda"}:
        return tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))
    return tuple(sorted("cuda:0" if name == "cuda" else name for name in named))


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
        self._reads = reads_of(files)
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
                    self._drop_faulty(place, pipeline)
                    raise
                # Out of the handler, which holds the failed run's tensors.
                self._halve(place, pipeline)
        wanted = range(len(self.models)) if places is None else places
        return tuple(self._model_rows(model, outputs, start, stop) for model in wanted)

    def close(self) -> None:
        """Stop the pipelines."""
        for place in self._places:
            if place.pipeline is not None:
                place.pipeline.close()
                place.pipeline = None

    def __enter__(self) -> GpuPredictor:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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
        if self.settings.fast:
            return {**found, "recheck": "none: some top classes may differ from the exact path's"}
        if self._notes[model].is_file():
            found["recheck"] = read_json(self._notes[model])["calibration"]
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
                calibrations, kinds = self._known() or (None, frozenset())
                place.pipeline = Pipeline(
                    self._reads,
                    [self._network(model, place.device) for model in self.models],
                    device=place.device,
                    settings=replace(self.settings, batch=place.batch),
                    calibrations=None if self.settings.fast else calibrations,
                    equal_kinds=kinds,
                )
            return place.pipeline

    def _network(self, model: Any, device: str) -> Network:
        classifier: TorchClassifier = model
        return Network(
            classifier,
            device,
            precision=self.settings.precision,
            exact_too=not self.settings.fast,
            k=min(TOP_K, len(model.label_space)),
        )

    def _drop_faulty(self, place: Device, pipeline: Pipeline | None) -> None:
        """Let the next unit begin anew where no threshold was found: one bad read may be why."""
        with self._lock:
            if pipeline is not None and pipeline.fault is not None and place.pipeline is pipeline:
                place.pipeline = None
                pipeline.close()

    def _halve(self, place: Device, pipeline: Pipeline | None) -> None:
        """Half the batch on this device from now on, unless another thread has done so already.

        Nobody makes the next pipeline before the memory of this one is free.
        """
        import gc

        import torch

        with self._lock:
            if place.pipeline is not pipeline:
                return
            if place.batch < 2:
                raise HeldoutError(f"one image at a time does not fit into {place.device}")
            place.pipeline = None
            place.batch //= 2
            if pipeline is not None:
                pipeline.close()
            gc.collect()  # what failed and the steps it failed in hold each other
            torch.cuda.empty_cache()

    # ------------------------------------------------------------------ thresholds

    def _known(self) -> tuple[tuple[Calibration, ...], frozenset[int]] | None:
        if not all(path.is_file() for path in self._notes):
            return None
        notes = [read_json(path) for path in self._notes]
        return (
            tuple(Calibration.from_dict(note["calibration"]) for note in notes),
            frozenset.intersection(*(frozenset(note["equal_kinds"]) for note in notes)),
        )

    def _remember(self, pipeline: Pipeline) -> None:
        calibrations = pipeline.calibrations
        if calibrations is None or self.settings.fast:
            return
        with self._lock:
            for path, calibration in zip(self._notes, calibrations, strict=True):
                if not path.is_file():
                    write_json(
                        path,
                        {
                            "schema_version": _SCHEMA,
                            "calibration": calibration.to_dict(),
                            "equal_kinds": sorted(pipeline.rechecker.equal_kinds),
                        },
                    )

    # ------------------------------------------------------------------ results

    def _model_rows(
        self, model: int, outputs: Sequence[BatchOutput], start: int, stop: int
    ) -> ModelRows:
        mine = [output.models[model] for output in outputs]
        topk = np.concatenate([one.topk for one in mine])
        failures = {row - start: why for one in mine for row, why in one.failures.items()}
        if len(topk) != stop - start:
            raise HeldoutError(f"{len(topk)} outputs for {stop - start} images")
        logits = None
        if self.keep == "logits":
            logits = np.concatenate([one.logits for one in mine])
            logits[sorted(failures)] = 0.0
        return ModelRows(topk, logits, None, failures, self.files.used(start, stop, failures))


def gpu_predictor(
    files: ImageFiles,
    models: Sequence[Model],
    *,
    notes: Sequence[Path],
    keep: str,
    fast: bool,
    max_pixels: int,
) -> GpuPredictor:
    """The GPUs for a prediction job, which finds this function by name; ``fast``: no recheck."""
    settings = Settings(fast=fast, max_pixels=max_pixels)
    return GpuPredictor(files, models, notes=notes, keep=keep, settings=settings)


def reads_of(files: ImageFiles) -> Reads:
    """Where the bytes of a test set's images are read; files on disk without a detour."""
    reads: Reads
    if isinstance(files.source, FolderSource) and all(map(_is_id, files.names)):
        reads = FileReads([os.path.join(files.source.root, name) for name in files.names])  # noqa: PTH118  a tenth of the time of Path
    else:
        reads = SourceReads(files.source, files.names)
    return SeenReads(reads, files.saw)


def _is_id(name: str) -> bool:
    """Whether a name stays below the folder that it is a path in."""
    try:
        return bool(check_id(name))
    except UserError:
        return False

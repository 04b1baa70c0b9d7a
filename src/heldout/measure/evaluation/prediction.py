"""Models given as arguments, sorted into stored, to run and files; forecasts; failed images."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from heldout.core.engine.executors import worker_count
from heldout.core.errors import MissingExtra, NotFound, UserError
from heldout.core.progress import format_seconds
from heldout.core.workspace import Workspace
from heldout.data.images import ImageSource
from heldout.data.testset import TestSet, part_of
from heldout.data.testset.hashing import row_hash
from heldout.models.adapters import Model, PredictionFile, load_models
from heldout.models.adapters.registry import can_be_run
from heldout.models.predictions import Predictions, PredictionStore
from heldout.models.predictions.pixels import good_pixels, image_files, load_pixels
from heldout.models.predictions.run_models import (
    PredictPlan,
    images_done,
    other_versions,
    plan_predictions,
    runs_on_gpu,
)

Choice = str | Predictions | Model | PredictionFile
"""One model as :func:`heldout.evaluate` takes it."""
Images = ImageSource | Path | str | None
"""Where image files are, if not where the test set says."""


@dataclass(frozen=True, eq=False)
class ChosenModels:
    """Models by what has to be done with them.

    ``names``    names or globs of stored predictions
    ``models``   models to run where they are not stored
    ``files``    files of outputs
    ``outputs``  predictions in memory
    ``notes``    what a user should know about the choice
    """

    names: tuple[str, ...]
    models: tuple[Model, ...]
    files: tuple[PredictionFile, ...]
    outputs: tuple[Predictions, ...]
    notes: tuple[str, ...] = ()


def choose(
    models: Sequence[Choice],
    testsets: Sequence[TestSet],
    *,
    model_args: Mapping[str, Any] | None = None,
    exclude: Sequence[str] = (),
    stored: bool = False,
    workspace: Workspace,
) -> ChosenModels:
    """Sort models into what is run, read from a file, read from the store, and in memory.

    ``exclude``  globs of models that are not loaded or taken from memory; the store knows its own
    ``stored``   names mean stored predictions, even those of models that could be run
    """
    names: list[str] = []
    loaded: list[Model | PredictionFile] = []
    outputs: list[Predictions] = []
    notes: list[str] = []
    store = PredictionStore(workspace.predictions)
    for item in models:
        if isinstance(item, str) and _runs(item, testsets, stored, store):
            try:
                loaded += load_models([item], model_args=model_args)
            except MissingExtra as missing:
                # It may still be stored under its name, on every set.
                stored_runs = [store.runs(one.card.images_hash) for one in testsets]
                if not all(item in {run.model for run in runs} for runs in stored_runs):
                    raise
                names.append(item)
                notes.append(f"{item} is scored as stored and was not loaded: {missing.line}")
        elif isinstance(item, str):
            names.append(item)
        elif isinstance(item, Predictions):
            outputs.append(item)
        elif stored and isinstance(item, Model):
            names.append(item.name)
        elif isinstance(item, PredictionFile | Model):
            loaded.append(item)
        else:
            raise UserError(
                f"a {type(item).__name__} is not a model",
                fix="wrap it: heldout.models.adapters.FunctionModel(function, name=..., label_space=..., "
                "preprocessing=..., identity=...)",
            )

    def kept(name: str) -> bool:
        return not any(fnmatchcase(name, glob) for glob in exclude)

    given = len(loaded) + len(outputs)
    loaded = [model for model in loaded if kept(model.name)]
    outputs = [output for output in outputs if kept(output.model)]
    if given and not (names or loaded or outputs):
        raise NotFound("every model is excluded", fix="exclude fewer")
    seen: set[str] = set()
    for model in loaded:
        if model.name in seen:
            raise UserError(f"two models are named {model.name!r}", fix="give each its own name")
        seen.add(model.name)
    return ChosenModels(
        tuple(names),
        tuple(model for model in loaded if not isinstance(model, PredictionFile)),
        tuple(model for model in loaded if isinstance(model, PredictionFile)),
        tuple(outputs),
        tuple(notes),
    )


def _runs(name: str, testsets: Sequence[TestSet], stored: bool, store: PredictionStore) -> bool:
    """Whether a name means a model to run.

    ``all``, globs and other names mean stored predictions; where nothing that is stored matches,
    they mean models, and one that does not exist is refused as such.
    """
    if stored or can_be_run(name):
        return not stored or name.startswith("predictions:")
    return not any(
        name == "all" or run.matches(name)
        for testset in testsets
        for run in store.runs(testset.card.images_hash)
    )


@dataclass(frozen=True)
class FailedImage:
    """An image that models have no output for, and why."""

    testset: str
    image_id: str
    reason: str
    models: tuple[str, ...]

    @property
    def line(self) -> str:
        """For a person."""
        return f"{self.testset} {self.image_id}: {self.reason} ({', '.join(self.models)})"


FailedRows = dict[int, tuple[str, list[str]]]
"""Row of the test set -> the first reason, and the models that have no output for it."""


def note_failures(predictions: Predictions, testset: TestSet, failed: FailedRows) -> None:
    """Add the images of a test set that a model has no output for to ``failed``."""
    if not predictions.failures:
        return
    rows = predictions.rows_for(testset.image_ids, testset=testset.name)
    place = {int(row): position for position, row in enumerate(rows)}
    for row, reason in sorted(predictions.failures.items()):
        if row in place:
            failed.setdefault(place[row], (reason, []))[1].append(predictions.model)


def failed_images(testset: TestSet, failed: FailedRows) -> list[FailedImage]:
    """Failed rows as a list, in the order of the test set."""
    return [
        FailedImage(testset.name, testset.image_ids[row].as_py(), reason, tuple(models))
        for row, (reason, models) in sorted(failed.items())
    ]


def limited(testset: TestSet, limit: int | None) -> TestSet:
    """A fixed sample of at most ``limit`` images: smaller samples are parts of larger ones."""
    if limit is None or limit >= len(testset):
        return testset
    if limit < 1:
        raise UserError(f"--limit {limit}", fix="give a number of images from 1 on")
    ids = testset.image_ids.to_pylist()
    hashes = row_hash(ids, seed=0)
    chosen = sorted(range(len(ids)), key=lambda row: (int(hashes[row]), ids[row]))[:limit]
    return part_of(
        testset,
        [ids[row] for row in chosen],
        name=f"{testset.name}-limit-{limit}",
        recipe={"name": "limit", "parameters": {"limit": limit}, "seed": 0},
    )


def distinct(testsets: Sequence[TestSet]) -> list[TestSet]:
    """Each test set once, whatever names it was given by; two of one name are refused."""
    found: dict[str, TestSet] = {}
    for testset in testsets:
        known = found.setdefault(testset.name, testset)
        if known.card.content_hash != testset.card.content_hash:
            raise UserError(
                f"two test sets are named {testset.name}", fix="evaluate them in two runs"
            )
    return list(found.values())


SAMPLE = 8
"""Images that are timed for the estimate."""
WORTH_TIMING = 500
"""Images times models below which nobody waits long enough to want an estimate."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """A plan, how many of its images are done already, and the seconds that the rest will take.

    ``done``     images that an interrupted run has left results of
    ``seconds``  None where it was not measured
    """

    record: ClassVar[str] = "plan"
    plan: PredictPlan
    done: int = 0
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "testset": self.plan.testset.name,
            "images": self.plan.images,
            "stored": [run.model for run in self.plan.stored],
            "to_run": [entry.model.name for entry in self.plan.pending],
            "images_done": self.done,
            "images_changed": self.plan.changed,
            "bytes": self.plan.bytes,
            "seconds": self.seconds,
        }

    @property
    def lines(self) -> Iterator[str]:
        """What will run, for a person: stored and pending models, images, disk, time."""
        plan, name = self.plan, self.plan.testset.name
        if plan.stale:
            ran = ", ".join(dict.fromkeys(run.model for run in plan.stale))
            yield (
                f"{name}: {plan.changed:,} of {plan.images:,} images have changed since {ran} ran on "
                "them; they run again"
            )
        for run in plan.stored:
            if other := other_versions(run):
                yield f"{run.model} ran with {', '.join(other)}; --rerun runs it again"
        if not plan.pending:
            yield f"{name}: everything is stored ({len(plan.stored)} models)"
            return
        names = ", ".join(entry.model.name for entry in plan.pending)
        done = f"; {self.done:,} were done before, going on from there" if self.done else ""
        time = "" if self.seconds is None else f", about {format_seconds(self.seconds)}"
        yield (
            f"{name}: {len(plan.stored)} models stored, {len(plan.pending)} to run ({names}) on "
            f"{plan.images:,} images, about {plan.bytes / 1e6:,.1f} MB to store{time}{done}"
        )


def forecast(
    testset: TestSet,
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: Images = None,
    workers: int | None = None,
    **kept: Any,
) -> Forecast:
    """Look at what is stored and what is missing; only a few images are run, to time them.

    Small jobs and those on GPUs are not timed. ``kept`` are further options of
    :func:`~heldout.models.predictions.run_models.plan_predictions`.
    """
    plan = plan_predictions(testset, models, workspace=workspace, images=images, **kept)
    if not plan.pending:
        return Forecast(plan)
    done = images_done(plan, workspace=workspace, images=images)
    left = plan.images - done
    on_gpu = any(runs_on_gpu(entry.model) for entry in plan.pending)
    if on_gpu or left * len(plan.pending) < WORTH_TIMING:
        return Forecast(plan, done)
    each = seconds_an_image(plan, images)
    return Forecast(plan, done, each and each * left / worker_count(workers))


def seconds_an_image(plan: PredictPlan, images: Images) -> float | None:
    """Seconds that one thread takes to decode an image and run all missing models on it.

    Measured on a few images spread over the set, after a first call that is not counted; None if
    none of them can be read or a model cannot run, which the run itself will report properly.
    """
    files = image_files(plan.testset, images)
    models = [entry.model for entry in plan.pending]
    geometries = list(
        {m.preprocessing.geometry.key: m.preprocessing.geometry for m in models}.values()
    )
    rows = np.unique(np.linspace(0, plan.images - 1, SAMPLE).astype(int))
    began = time.perf_counter()
    loaded = [load_pixels(files, int(row), geometries) for row in rows]
    decoding = (time.perf_counter() - began) / len(rows)
    good = [pixels for item in loaded if (pixels := good_pixels(item)) is not None]
    if not good:
        return None
    running = 0.0
    try:
        for model in models:
            batch = np.stack([pixels[model.preprocessing.geometry.key] for pixels in good])
            model(batch)
            began = time.perf_counter()
            model(batch)
            running += (time.perf_counter() - began) / len(batch)
    except Exception:  # whatever a model raises: the run will raise it again, with its place
        return None
    return decoding + running

"""Models given as arguments, sorted into stored, to run and files; forecasts; failed images tried again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from heldout.core.engine import Progress, Shard, no_progress
from heldout.core.engine.executors import worker_count
from heldout.core.errors import MissingExtra, NotFound, UserError
from heldout.core.files import read_versioned_json, remove_folder
from heldout.core.progress import format_seconds
from heldout.core.workspace import Workspace
from heldout.data.images import ImageSource
from heldout.data.testset import TestSet, part_of
from heldout.data.testset.hashing import row_hash
from heldout.models.adapters import Model, PredictionFile, load_models
from heldout.models.adapters.registry import can_be_run
from heldout.models.predictions import Predictions, PredictionStore, StoredRun
from heldout.models.predictions.import_predictions import import_predictions
from heldout.models.predictions.pixels import good_pixels, image_files, load_pixels
from heldout.models.predictions.run_models import (
    NothingRead,
    PredictPlan,
    images_done,
    plan_predictions,
    predict,
    runs_on_gpu,
)
from heldout.models.predictions.store import SCHEMA_VERSION

Choice = str | Predictions | StoredRun | Model | PredictionFile
"""One model as :func:`heldout.evaluate` takes it."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """Models by what has to be done with them.

    ``names``    names or globs of stored predictions
    ``runs``     stored runs
    ``models``   models to run where they are not stored
    ``files``    files of outputs
    ``outputs``  predictions in memory
    ``notes``    what a user should know about the choice
    """

    names: tuple[str, ...]
    runs: tuple[StoredRun, ...]
    models: tuple[Model, ...]
    files: tuple[PredictionFile, ...]
    outputs: tuple[Predictions, ...]
    notes: tuple[str, ...] = ()


def choose(
    models: Sequence[Choice],
    testsets: Sequence[TestSet],
    *,
    model_args: Mapping[str, Any] | None = None,
    stored: bool = False,
    workspace: Workspace,
) -> Chosen:
    """Sort models into what is run, read from a file, read from the store, and in memory.

    ``stored``  names mean stored predictions, even those of models that could be run
    """
    names: list[str] = []
    runs: list[StoredRun] = []
    loaded: list[Model | PredictionFile] = []
    outputs: list[Predictions] = []
    notes: list[str] = []
    for item in models:
        if isinstance(item, str) and _runs(item, testsets, stored, workspace):
            try:
                loaded += load_models([item], model_args=model_args)
            except MissingExtra as missing:
                _check_stored(item, testsets, missing, workspace)
                names.append(item)
                notes.append(f"{item} is scored as stored and was not loaded: {missing.line}")
        elif isinstance(item, str):
            names.append(item)
        elif isinstance(item, Predictions):
            outputs.append(item)
        elif isinstance(item, StoredRun):
            runs.append(item)
        elif isinstance(item, PredictionFile | Model):
            loaded.append(item)
        else:
            raise UserError(
                f"a {type(item).__name__} is no model",
                fix="wrap it: heldout.models.adapters.FunctionModel(function, name=..., label_space=..., "
                "preprocessing=..., identity=...)",
            )
    check_names(loaded)
    return Chosen(
        tuple(names),
        tuple(runs),
        tuple(model for model in loaded if not isinstance(model, PredictionFile)),
        tuple(model for model in loaded if isinstance(model, PredictionFile)),
        tuple(outputs),
        tuple(notes),
    )


def _runs(name: str, testsets: Sequence[TestSet], stored: bool, workspace: Workspace) -> bool:
    """Whether a name means a model to run.

    ``all``, globs and other names mean stored predictions; where nothing that is stored matches,
    they mean models, and one that does not exist is refused as such.
    """
    if stored or can_be_run(name):
        return not stored or name.startswith("predictions:")
    store = PredictionStore(workspace.predictions)
    return not any(
        name in ("all", run.folder.name) or fnmatchcase(run.model, name)
        for testset in testsets
        for run in store.runs(testset.card.images_hash)
    )


def check_names(models: Iterable[Model | PredictionFile]) -> None:
    """Refuse two models of one name: results are told apart by it."""
    seen: set[str] = set()
    for model in models:
        if model.name in seen:
            raise UserError(f"two models are named {model.name!r}", fix="give each its own name")
        seen.add(model.name)


def read_file(file: PredictionFile, testset: TestSet) -> tuple[Predictions, tuple[str, ...]]:
    """The outputs of ``predictions:PATH`` on a test set, and notes; PATH may be a stored run."""
    if not file.path.is_dir():
        imported = import_predictions(file.path, testset, model=file.name)
        return imported, tuple(imported.run["notes"])
    run = read_stored(file.path)
    found = PredictionStore(file.path.parent).read(run)
    return found.renamed(file.name), ()


def read_stored(folder: Path) -> StoredRun:
    """The stored run of a folder ``<model>@<key>``, from wherever it lies."""
    if not (folder / "run.json").is_file():
        raise NotFound(
            f"{folder} is no folder of stored predictions",
            fix="name a file of outputs, or a folder predictions/<images>/<model>@<key>",
        )
    return StoredRun(folder, read_versioned_json(folder / "run.json", version=SCHEMA_VERSION))


def _check_stored(
    name: str, testsets: Sequence[TestSet], missing: MissingExtra, workspace: Workspace
) -> None:
    """A model that cannot be loaded here may still be stored under its name on every set."""
    store = PredictionStore(workspace.predictions)
    for testset in testsets:
        if name not in {run.model for run in store.runs(testset.card.images_hash)}:
            raise missing from None


def retry_failed(
    testset: TestSet,
    models: Sequence[Model],
    runs: Sequence[StoredRun],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    **options: Any,
) -> list[StoredRun]:
    """Run models again on the images of a test set that they have no output for.

    ``runs`` are the models' stored runs, in the same order; those that gain something are stored
    anew, and what is kept stays what it was. ``options`` are those of
    :func:`~heldout.models.predictions.run_models.predict`.
    """
    store = PredictionStore(workspace.predictions)
    own = set(testset.image_ids.to_pylist())
    alike: dict[tuple[Any, ...], list[int]] = {}
    for place, run in enumerate(runs):
        if run.run["failed"]:
            failed = tuple(sorted(set(_failed_ids(store.read(run))) & own))
            alike.setdefault((failed, run.run["keeps"]), []).append(place)
    found = list(runs)
    for (failed, keep), places in alike.items():
        if not failed:
            continue
        what: dict[str, Any] = {"name": "retry", "parameters": {}, "seed": None}
        part = part_of(testset, failed, name=f"{testset.name}-retry", recipe=what)
        asked: dict[str, Any] = {
            "workspace": workspace,
            "images": images,
            "keep": keep,
        }
        some = [models[place] for place in places]
        before = {run.folder for run in plan_predictions(part, some, **asked).stored}
        with suppress(NothingRead):  # none of them can be read this time, either
            predict(part, some, **asked, **options)
        made = {run.model: run for run in plan_predictions(part, some, **asked).stored}
        for place in places:
            again = made.get(runs[place].model)
            if again is None:
                continue
            joined = _joined(store.read(runs[place]), store.read(again))
            images_hash = runs[place].run["images_hash"]
            found[place] = store.write(joined, images_hash=images_hash, replace=True)
            if again.folder not in before:
                remove_folder(again.folder)
                with suppress(OSError):  # other runs on the same images
                    again.folder.parent.rmdir()
    return found


def _failed_ids(predictions: Predictions) -> list[str]:
    return [predictions.image_ids[row].as_py() for row in predictions.failures]


def _joined(whole: Predictions, part: Predictions) -> Predictions:
    """Outputs, those on some images replaced by new ones."""
    place = {name: row for row, name in enumerate(whole.image_ids.to_pylist())}
    rows = np.array([place[name] for name in part.image_ids.to_pylist()], np.int64)
    new = {int(rows[row]): reason for row, reason in part.failures.items()}
    kept = {row: reason for row, reason in whole.failures.items() if row not in set(rows.tolist())}

    def put(name: str) -> np.ndarray | None:
        values: np.ndarray | None = getattr(whole, name)
        given: np.ndarray | None = getattr(part, name)
        if values is None or given is None:
            return values
        values = values.copy()
        values[rows] = given
        return values

    digests = whole.digests
    if digests is not None and part.digests is not None:
        new_digests = dict(zip(rows.tolist(), part.digests, strict=True))
        digests = [new_digests.get(row, old) for row, old in enumerate(digests)]
    topk = put("topk")
    return replace(
        whole,
        topk=whole.topk if topk is None else topk,
        logits=put("logits"),
        failures=kept | new,
        digests=digests,
        stored_hash="",
    )


ShowProgress = Callable[[str], AbstractContextManager[Progress]]


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


@dataclass(frozen=True)
class Predicted:
    """A test set and the stored runs of the models on it."""

    testset: TestSet
    runs: tuple[StoredRun, ...]
    ran: int

    @property
    def failed(self) -> int:
        """Images without an output, of the worst model."""
        return max((int(run.run["failed"]) for run in self.runs), default=0)

    def failures(self) -> list[FailedImage]:
        """The images without an output, in the order of the set; reads the runs that have some."""
        failed: FailedRows = {}
        for run in self.runs:
            if run.run["failed"]:
                outputs = PredictionStore(run.folder.parents[1]).read(run)
                note_failures(outputs, self.testset, failed)
        return failed_images(self.testset, failed)


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


def limited(testset: TestSet, limit: int | None, *, seed: int = 0) -> TestSet:
    """A fixed sample of at most ``limit`` images: smaller samples are parts of larger ones."""
    if limit is None or limit >= len(testset):
        return testset
    if limit < 1:
        raise UserError(f"--limit {limit}", fix="give a number of images from 1 on")
    ids = testset.image_ids.to_pylist()
    hashes = row_hash(ids, seed=seed)
    chosen = sorted(range(len(ids)), key=lambda row: (int(hashes[row]), ids[row]))[:limit]
    return part_of(
        testset,
        [ids[row] for row in chosen],
        name=f"{testset.name}-limit-{limit}",
        recipe={"name": "limit", "parameters": {"limit": limit}, "seed": seed},
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


def predict_all(
    testsets: Sequence[TestSet],
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    workers: int | None = None,
    shard: Shard | None = None,
    retry: bool = False,
    plans: Sequence[PredictPlan] | None = None,
    show: ShowProgress | None = None,
) -> list[Predicted]:
    """Run every model on every test set that it has not seen yet.

    ``retry``  run stored models again on the images that they have no output for
    ``plans``  what :func:`forecast` has just planned for each test set
    """
    if not models:
        raise UserError("no model is named", fix="name one with -m, such as -m lite0")
    check_names(models)
    found = []
    for place, testset in enumerate(testsets):
        plan = (
            plans[place]
            if plans
            else plan_predictions(
                testset,
                models,
                workspace=workspace,
                images=images,
                keep=keep,
            )
        )
        options: dict[str, Any] = {
            "workspace": workspace, "images": images, "workers": workers,
        }  # fmt: skip
        with contextlib.ExitStack() as stack:
            progress: Progress = no_progress
            failed = retry and any(run.run["failed"] for run in plan.stored)
            if (plan.pending or failed) and show is not None:
                what = f"{len(plan.pending)}" if plan.pending else "failed images"
                progress = stack.enter_context(show(f"{testset.name} × {what}"))
            runs = predict(
                testset,
                models,
                keep=keep,
                shard=shard,
                plan=plan,
                progress=progress,
                **options,
            )
            if failed:
                runs = retry_failed(testset, models, runs, progress=progress, **options)
        found.append(Predicted(testset, tuple(runs), len(plan.pending)))
    return found


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
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    workers: int | None = None,
    timed: bool = True,
) -> Forecast:
    """Look at what is stored and what is missing; only a few images are run, to time them.

    ``timed``  whether to measure; small jobs and those on GPUs are never measured
    """
    plan = plan_predictions(
        testset,
        models,
        workspace=workspace,
        images=images,
        keep=keep,
    )
    if not plan.pending:
        return Forecast(plan)
    done = images_done(plan, workspace=workspace, images=images)
    timed = timed and not any(runs_on_gpu(entry.model) for entry in plan.pending)
    if not timed or (plan.images - done) * len(plan.pending) < WORTH_TIMING:
        return Forecast(plan, done)
    each = seconds_an_image(plan, images=images)
    if each is None:
        return Forecast(plan, done)
    return Forecast(plan, done, each * (plan.images - done) / worker_count(workers))


def seconds_an_image(
    plan: PredictPlan, *, images: ImageSource | Path | str | None = None
) -> float | None:
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

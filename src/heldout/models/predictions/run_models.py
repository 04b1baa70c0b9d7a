"""Running models into the store: which are stored, stale or missing; resumable, each image decoded once.

A job is cut into units of a fixed number of images. Every worker thread decodes its images and
runs the models on them, so decoding and inference overlap on all cores without a queue, and the
results cannot depend on how many workers there are. Models run together, so that an image is
decoded once, but what is done of a unit is kept per model, in a folder that knows nothing of the
other models: a job resumes from whatever is there, also where it was begun with other models. The
store gets a model's predictions when all of its units are there.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from heldout.core.engine import (
    Job,
    JobResults,
    Progress,
    Shard,
    Threads,
    Unit,
    no_progress,
    unit_key,
)
from heldout.core.engine import run as run_job
from heldout.core.engine.results import remove_job, working
from heldout.core.errors import HeldoutError, MismatchError, NotApplicable, NotFound
from heldout.core.files import canonical_json, held, remove_folder, sha256_text
from heldout.core.plugins import load_object
from heldout.core.progress import Tick
from heldout.core.workspace import Workspace
from heldout.data.images import BadImage, ImageSource
from heldout.data.testset import TestSet
from heldout.models.adapters.model import Model, finite_rows
from heldout.models.predictions.ledger import CurrentImages, Ledger
from heldout.models.predictions.pixels import ImageFiles, image_files, load_pixels
from heldout.models.predictions.predictions import Predictions, as_stored, identity_key, top_k
from heldout.models.predictions.store import PredictionStore, StoredRun

WORK = "predict-5"
"""Name and version of the work: part of every unit's key, raised when results would change."""
BATCH = 16
# By name: the GPU path imports this module, and its libraries are needed by nobody else.
_GPU_PREDICTOR = "heldout.models.gpu.predictor:GpuPredictor"


@dataclass(frozen=True)
class Pending:
    """A model that still has to run on a test set, the key of its predictions, and the name of its
    job, which covers what is kept too."""

    model: Model
    identity: Mapping[str, Any]
    key: str
    job: str


@dataclass(frozen=True)
class PredictPlan:
    """What predicting a test set will do.

    ``stored``   runs that are there already, by model name
    ``pending``  models that have to run
    ``bytes``    estimate of what the store will grow by
    ``replaced`` runs of pending models that hold less than is asked for, are stale, or are asked for
                 again
    ``stale``    runs of pending models on images that have changed since, and ``changed`` how many
                 images that are
    """

    testset: TestSet
    stored: tuple[StoredRun, ...]
    pending: tuple[Pending, ...]
    images: int
    bytes: int
    replaced: tuple[StoredRun, ...] = ()
    stale: tuple[StoredRun, ...] = ()
    changed: int = 0


class NothingRead(NotApplicable):
    """Not one image of a test set gave an output."""


def plan_predictions(
    testset: TestSet,
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    rerun: bool = False,
) -> PredictPlan:
    """Look at what is stored and what is missing; nothing runs.

    A run on images that have changed since does not count, nor one that holds less than is asked
    for; with ``rerun`` none does. One that holds all logits will do for the top k.
    """
    if not len(testset):
        raise NotApplicable(f"{testset.name} has no images", fix="name a test set that has some")
    store, images_hash = PredictionStore(workspace.predictions), testset.card.images_hash
    known = {run.folder: run for run in store.runs(images_hash)}
    current = CurrentImages(testset, workspace=workspace, images=images)
    stored: list[StoredRun] = []
    replaced: list[StoredRun] = []
    stale: list[StoredRun] = []
    pending: list[Pending] = []
    size = changed = 0
    for model in models:
        identity = {**model.identity, "preprocessing": model.preprocessing.to_dict()}
        key = identity_key(identity, model.label_space)
        run = known.get(store.folder(images_hash, model.name, key))
        if run is not None:
            count = current.changed(run)
            if not (count or rerun) and (keep == "topk" or run.run["keeps"] == "logits"):
                stored.append(run)
                continue
            replaced.append(run)
            if count:
                stale.append(run)
                changed = max(changed, count)
        what = sha256_text(canonical_json([model.name, key, keep]))
        job = f"predict-{images_hash[:12]}-{what[:12]}"
        pending.append(Pending(model, identity, key, job))
        size += len(testset) * (2 * len(model.label_space) if keep == "logits" else 0)
    return PredictPlan(
        testset,
        tuple(stored),
        tuple(pending),
        len(testset),
        size,
        tuple(replaced),
        tuple(stale),
        changed,
    )


def runs_on_gpu(model: Model) -> bool:
    """Whether a model can take the GPU path: a torch module, in float32, on a CUDA device."""
    if not str(getattr(model, "device", "")).startswith("cuda"):
        return False
    from heldout.models.adapters.torch_model import TorchModel

    return (
        isinstance(model, TorchModel)
        and model.dtype == "float32"
        and model.preprocessing.layout == "NCHW"
    )


def predict(
    testset: TestSet,
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    rerun: bool = False,
    workers: int | None = None,
    shard: Shard | None = None,
    plan: PredictPlan | None = None,
    progress: Progress = no_progress,
) -> list[StoredRun]:
    """Run models on a test set; the stored runs, in the order of ``models``.

    The same call again does only what is missing. With ``shard`` only that share of the images is
    done here, and the store is written by whoever finds all shares there; until then the list
    holds only models that were complete before. ``plan`` is what :func:`plan_predictions` has just
    returned.
    """
    plan = plan or plan_predictions(
        testset, models, workspace=workspace, images=images, keep=keep, rerun=rerun
    )
    if not plan.pending:
        return list(plan.stored)
    if plan.replaced:
        with held(plan.replaced[0].folder.parent):
            # Once more: another process may have run them again meanwhile.
            plan = plan_predictions(
                testset, models, workspace=workspace, images=images, keep=keep, rerun=rerun
            )
            for run in plan.replaced:
                remove_folder(run.folder)
    files = image_files(testset, images)
    ledger = Ledger(files, workspace)
    try:
        for group in _groups(plan, files, workspace):
            with contextlib.ExitStack() as stack:
                for kept in group.models:
                    stack.enter_context(working(kept))
                    kept.prepare(kept.folder.name)
                running = [entry.model for entry in group.pending]
                predictor: Any
                if group.on_gpu:
                    predictor = load_object(_GPU_PREDICTOR)(
                        files,
                        running,
                        notes=[kept.folder / "recheck.json" for kept in group.models],
                        keep=keep,
                    )
                else:
                    predictor = PredictWork(files, running, keep, workers)
                with contextlib.closing(predictor):
                    summary = run_job(
                        Job(
                            name=group.folder.name,
                            work=_UnitWork(predictor, group.models),
                            fatal=(MismatchError,),
                        ),
                        group.units,
                        runs=workspace.runs,
                        results=group,
                        executor=Threads(predictor.workers),
                        shard=shard,
                        progress=in_images(progress, len(testset), len(group.units)),
                    )
                if summary.failed:
                    first = next(summary.results.failures(), None)
                    detail = f"; the first: {first.reason}\n{first.traceback}" if first else ""
                    raise HeldoutError(f"{summary.failed} units failed{detail}")
                _store(group, predictor, workspace)
            _clean_up(group, workspace)
    finally:
        ledger.note(files.seen)
    return _runs_of(plan, models, workspace=workspace, images=images, complete=shard is None)


def _runs_of(
    plan: PredictPlan,
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None,
    complete: bool,
) -> list[StoredRun]:
    """The runs of a plan that was done, in the order of ``models``.

    Images that changed while models ran on them, and with ``complete`` a run that is not there, are
    refused.
    """
    store, images_hash = PredictionStore(workspace.predictions), plan.testset.card.images_hash
    known = {run.folder: run for run in store.runs(images_hash)}
    places = [store.folder(images_hash, each.model.name, each.key) for each in plan.pending]
    runs = [*plan.stored, *(known[place] for place in places if place in known)]
    current = CurrentImages(plan.testset, workspace=workspace, images=images)
    changed = max((current.changed(run) for run in runs), default=0)
    if changed:
        raise MismatchError(
            f"{changed} images of {plan.testset.name} changed while models ran on them",
            fix="the same command again runs them on the images as they are now",
        )
    found = {run.model: run for run in runs}
    missing = [model.name for model in models if model.name not in found]
    if missing and complete:
        raise HeldoutError(
            f"results of {', '.join(missing)} on {plan.testset.name} were removed while they were "
            "made; the same command again makes what is missing"
        )
    return [found[model.name] for model in models if model.name in found]


def images_done(
    plan: PredictPlan, *, workspace: Workspace, images: ImageSource | Path | str | None = None
) -> int:
    """How many images interrupted runs have left results of all these models of.

    Of models that run in several groups, the fewest.
    """
    if not all((workspace.runs / entry.job).is_dir() for entry in plan.pending):
        return 0
    files = image_files(plan.testset, images)
    done: list[int] = [
        sum(unit.payload.stop - unit.payload.start for unit in group.units if group.has(unit.key))
        for group in _groups(plan, files, workspace)
    ]
    return min(done)


# --------------------------------------------------------------------------- units


class RowRange(NamedTuple):
    """Rows ``start`` to ``stop``, and the ``key`` that every model's outputs on them are kept under."""

    start: int
    stop: int
    key: str


def unit_images(images: int, *, on_gpu: bool = False) -> int:
    """The number of images of a unit in a job of ``images``; the same wherever it runs.

    On the CPU about 128 units, so that at the end no worker waits long for the last one; between 8
    images, as a unit costs about a millisecond (its result is safe on disk before the next begins),
    and 64, so that an interruption costs little.

    >>> [unit_images(n) for n in (1, 200, 2000, 5000, 50_000)]
    [8, 8, 8, 32, 64]
    >>> [unit_images(n, on_gpu=True) for n in (100, 10_000, 50_000)]
    [256, 1024, 4096]
    """
    fewest, most, units = (256, 4096, 8) if on_gpu else (8, 64, 128)
    return min(max(images // units // fewest * fewest, fewest), most)


def prediction_units(testset: TestSet, files: ImageFiles, *, on_gpu: bool = False) -> list[Unit]:
    """Units of equal size; a key covers the images' ids and hashes.

    The models are in the names of the folders that results are kept in.
    """
    ids = testset.image_ids.to_pylist()
    size = unit_images(len(ids), on_gpu=on_gpu)
    units = []
    for start in range(0, len(ids), size):
        stop = min(start + size, len(ids))
        key = unit_key(WORK, images=[[ids[row], files.digests[row]] for row in range(start, stop)])
        units.append(Unit(key, RowRange(start, stop, key)))
    return units


@dataclass(frozen=True, eq=False)
class ModelRows:
    """One model's outputs on a range of rows, and the images that failed (position -> reason).

    Failures are the model's own: what is stored of one model never depends on which others ran
    beside it. ``digests`` are the SHA-256 of the images that it ran on, None for failures.
    """

    topk: np.ndarray
    logits: np.ndarray | None
    failures: dict[int, str]
    digests: list[str | None]


@dataclass(frozen=True, eq=False)
class PredictWork:
    """Predicts ranges of rows with all models; each image is decoded once for all of them.

    The GPU path has a predictor with the same calls.

    ``keep``     ``logits`` (float16) or ``topk``
    ``workers``  units in work at a time; None: one per core
    """

    files: ImageFiles
    models: Sequence[Model]
    keep: str = "logits"
    workers: int | None = None

    def predict(
        self, start: int, stop: int, places: Sequence[int] | None = None
    ) -> Iterator[ModelRows]:
        """Outputs on rows ``start`` to ``stop`` of every model, or of those at ``places``; one after
        the other, so that one that breaks does not take the others' with it."""
        models = self.models if places is None else [self.models[place] for place in places]
        geometries = {m.preprocessing.geometry.key: m.preprocessing.geometry for m in models}
        loaded = [
            load_pixels(self.files, row, list(geometries.values())) for row in range(start, stop)
        ]
        for model in models:
            key = model.preprocessing.geometry.key
            found = [one if isinstance(one, BadImage) else one[key] for one in loaded]
            yield self._run(model, found, start)

    def record(self, model: int) -> Mapping[str, Any]:
        """How the outputs of the model at a place were made, for the record of its run."""
        return {"device": getattr(self.models[model], "device", "cpu")}

    def close(self) -> None:
        """Nothing is held."""

    def _run(self, model: Model, pixels: Sequence[np.ndarray | BadImage], start: int) -> ModelRows:
        n, classes = len(pixels), len(model.label_space)
        logits = np.zeros((n, classes), np.float32)
        failures: dict[int, str] = {}
        good: list[int] = []
        images: list[np.ndarray] = []
        for row, found in enumerate(pixels):
            if isinstance(found, BadImage):
                failures[row] = f"{found.trouble}: {found.reason}"
            else:
                good.append(row)
                images.append(found)
        for at in range(0, len(good), BATCH):
            rows = good[at : at + BATCH]
            output = model(np.stack(images[at : at + BATCH]))
            if output.logits.shape != (len(rows), classes):
                raise HeldoutError(
                    f"{model.name} gave logits of shape {output.logits.shape} for {len(rows)} images "
                    f"and {classes} classes"
                )
            for row, finite in zip(rows, finite_rows(output), strict=True):
                if not finite:
                    failures[row] = f"not finite: {model.name} gave no number"
            logits[rows] = output.logits
        failed = sorted(failures)
        logits[failed] = 0.0
        best = top_k(logits)
        best[failed] = -1
        # Full precision decides the order; float16 keeps the numbers.
        kept = as_stored(logits) if self.keep == "logits" else None
        return ModelRows(best, kept, failures, self.files.used(start, start + n, failures))


def pack_arrays(failures: Mapping[int, str], arrays: Mapping[str, np.ndarray | None]) -> bytes:
    """Failures by row, and arrays without those that are None, as the bytes of an uncompressed
    ``.npz`` archive; equal outputs, equal bytes."""
    text = json.dumps({str(row): reason for row, reason in sorted(failures.items())})
    kept: dict[str, Any] = {name: array for name, array in arrays.items() if array is not None}
    handle = io.BytesIO()
    np.savez(handle, failures=np.frombuffer(text.encode("utf-8"), np.uint8), **kept)
    return handle.getvalue()


def unpack_arrays(packed: IO[bytes]) -> tuple[dict[int, str], dict[str, np.ndarray]]:
    """What :func:`pack_arrays` wrote."""
    with np.load(packed, allow_pickle=False) as found:
        arrays = dict(found)
    failures = json.loads(arrays.pop("failures").tobytes().decode("utf-8"))
    return {int(row): reason for row, reason in failures.items()}, arrays


def pack(rows: ModelRows) -> bytes:
    """A model's outputs as bytes."""
    digests = np.array([digest or "" for digest in rows.digests], "S64")
    return pack_arrays(rows.failures, {"topk": rows.topk, "logits": rows.logits, "sha256": digests})


def unpack(packed: IO[bytes]) -> ModelRows:
    """What :func:`pack` wrote."""
    failures, arrays = unpack_arrays(packed)
    digests = [digest.decode() or None for digest in arrays["sha256"].tolist()]
    return ModelRows(arrays["topk"], arrays.get("logits"), failures, digests)


# --------------------------------------------------------------------------- groups


class _Group(JobResults):
    """Models that run together on a test set, and their results until all units are there.

    A unit is done when every model has it; ``models`` is where each one's own results are, and
    failures are recorded with the first.
    """

    def __init__(
        self, testset: TestSet, pending: Sequence[Pending], units: Sequence[Unit], runs: Path
    ) -> None:
        self.testset, self.pending, self.units = testset, pending, units
        self.models = [JobResults(runs / entry.job) for entry in pending]
        self.on_gpu = runs_on_gpu(pending[0].model)
        super().__init__(self.models[0].folder)

    def has(self, key: str) -> bool:
        """Whether every model has this unit."""
        return all(model.has(key) for model in self.models)

    def write(self, key: str, data: bytes) -> None:
        """Nothing: the work has stored every model's outputs already."""

    def stored(self, entry: Pending, store: PredictionStore) -> bool:
        """Whether a model's predictions are in the store."""
        return store.has(self.testset.card.images_hash, entry.model.name, entry.key)


@dataclass(frozen=True, eq=False)
class _UnitWork:
    """Predicts what models lack of a unit, and keeps it."""

    predictor: Any
    models: Sequence[JobResults]

    def __call__(self, rows: RowRange) -> bytes:
        missing = [place for place, model in enumerate(self.models) if not model.has(rows.key)]
        made = self.predictor.predict(rows.start, rows.stop, missing)
        # One by one: a model that fails does not lose the outputs of those before it.
        for place, output in zip(missing, made, strict=True):
            kept = self.models[place]
            kept.write(rows.key, pack(output))
        return b""


def _groups(plan: PredictPlan, files: ImageFiles, workspace: Workspace) -> list[_Group]:
    """Models that run together: those of the CPU; on GPUs those of one geometry."""
    members: dict[str, list[Pending]] = {}
    for entry in plan.pending:
        key = entry.model.preprocessing.geometry.key if runs_on_gpu(entry.model) else ""
        members.setdefault(key, []).append(entry)
    groups = []
    for key, pending in members.items():
        units = prediction_units(plan.testset, files, on_gpu=bool(key))
        groups.append(_Group(plan.testset, pending, units, workspace.runs))
    return groups


def _store(group: _Group, predictor: Any, workspace: Workspace) -> None:
    """Write the predictions of every model of a group whose units are all there."""
    store = PredictionStore(workspace.predictions)
    refused: list[NothingRead] = []
    for place, (entry, kept) in enumerate(zip(group.pending, group.models, strict=True)):
        if group.stored(entry, store) or not all(kept.has(unit.key) for unit in group.units):
            continue
        try:
            how = {**predictor.record(place), **store.owner(group.testset)}
            made = assemble(group.testset, entry, group.units, kept, how)
        except NothingRead as error:
            # Nothing of it is worth keeping, and the next time the images may be there.
            remove_folder(kept.folder)
            refused.append(error)
        except NotFound:
            # Where there are no locks, another process may have stored it and cleaned up meanwhile.
            if not group.stored(entry, store):
                raise
        else:
            store.write(made, images_hash=group.testset.card.images_hash)
    if refused:
        raise refused[0]


def _clean_up(group: _Group, workspace: Workspace) -> None:
    """Remove what stored models left, unless another process is still at it: that one will."""
    store = PredictionStore(workspace.predictions)
    for entry, kept in zip(group.pending, group.models, strict=True):
        if group.stored(entry, store):
            remove_job(kept.folder)


def assemble(
    testset: TestSet,
    entry: Pending,
    units: Sequence[Unit],
    results: JobResults,
    how: Mapping[str, Any],
) -> Predictions:
    """A model's predictions from its results of all units; ``how`` they were made goes into the
    record of the run."""
    parts = [unpack(io.BytesIO(results.read(unit.key))) for unit in units]
    failures = {
        unit.payload.start + row: reason
        for unit, part in zip(units, parts, strict=True)
        for row, reason in part.failures.items()
    }
    if len(failures) == len(testset):
        raise NothingRead(
            f"none of the {len(testset)} images of {testset.name} gave an output of "
            f"{entry.model.name} ({failures[0]})",
            fix="check where the images are (--images), and the model",
        )
    logits = [part.logits for part in parts if part.logits is not None]
    return Predictions(
        model=entry.model.name,
        image_ids=testset.image_ids,
        topk=np.concatenate([part.topk for part in parts]),
        logits=np.concatenate(logits) if logits else None,
        label_space=entry.model.label_space,
        failures=failures,
        identity=entry.identity,
        digests=[digest for part in parts for digest in part.digests],
        run={**how, "versions": _versions()},
    )


def other_versions(run: StoredRun) -> list[str]:
    """Which libraries a run was made with in another version than there is now, in words."""
    now = _versions()
    made = run.run.get("versions", {}).items()
    return [
        f"{name} {version} ({now[name]} is installed)"
        for name, version in made
        if name != "heldout" and now.get(name, version) != version
    ]


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("heldout", "numpy", "pillow", "onnxruntime", "torch", "timm", "torchvision"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def in_images(progress: Progress, images: int, units: int) -> Progress:
    """Progress that counts images instead of units."""
    scale = images / max(units, 1)

    def show(tick: Tick) -> None:
        counts = (round(count * scale) for count in (tick.done, tick.found, tick.failed))
        total = None if tick.total is None else round(tick.total * scale)
        done, found, failed = counts
        progress(Tick(done, found, failed, total, tick.seconds))

    return show

"""Running models on a test set into the store: planned, resumable, each image decoded once.

A job is cut into units of a fixed number of images. Every worker thread decodes its images and
runs the models on them, so decoding and inference overlap on all cores without a queue, and the
results cannot depend on how many workers there are. What is done survives anything, a model at a
time (:mod:`heldout.models.predictions.parts`); the store gets a model's predictions when all of its units
are there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.engine import (
    Job,
    JobResults,
    Progress,
    Shard,
    Threads,
    Unit,
    no_progress,
    run,
    unit_key,
)
from heldout.core.engine.results import is_worked_on, working
from heldout.core.errors import HeldoutError, MismatchError, NotApplicable, NotFound, UserError
from heldout.core.files import canonical_json, remove_folder, sha256_text
from heldout.core.progress import Tick
from heldout.core.workspace import Workspace
from heldout.data.images import MAX_PIXELS, ImageSource
from heldout.data.testset import TestSet
from heldout.models.adapters.model import Model
from heldout.models.gpu.work import GpuWork, gpu_unit_images, runs_on_gpu
from heldout.models.predictions.ledger import CurrentImages, Ledger
from heldout.models.predictions.parts import GroupResults, GroupWork, Part, kept_rows
from heldout.models.predictions.pixels import ImageFiles, image_files
from heldout.models.predictions.predictions import Predictions, identity_key
from heldout.models.predictions.store import PredictionStore, StoredRun
from heldout.models.predictions.units import BATCH, WORK, PredictWork, unit_images

KEEPS = ("logits", "topk")


@dataclass(frozen=True)
class Pending:
    """A model that still has to run on a test set, and where its predictions will be."""

    model: Model
    identity: Mapping[str, Any]
    key: str


@dataclass(frozen=True)
class PredictPlan:
    """What predicting a test set will do.

    ``stored``  runs that are there already, by model name
    ``pending`` models that have to run
    ``bytes``   estimate of what the store will grow by
    ``stale``   runs of pending models on images that have changed since, and ``changed`` how many
                images that are
    ``unknown`` models of stored runs of which nobody knows which bytes they have read
    """

    testset: TestSet
    stored: tuple[StoredRun, ...]
    pending: tuple[Pending, ...]
    images: int
    bytes: int
    stale: tuple[StoredRun, ...] = ()
    changed: int = 0
    unknown: tuple[str, ...] = ()


class NothingRead(NotApplicable):
    """Not one image of a test set gave an output."""


def full_identity(
    model: Model, *, keep: str = "logits", features: bool = False, fast: bool = False
) -> dict[str, Any]:
    """What predictions are filed under: the model's identity, its preprocessing, and what is kept.

    Outputs of the GPU path count as the model's own, as their near ties were run again exactly;
    ``fast`` ones, where that was skipped, do not.
    """
    found: dict[str, Any] = {**model.identity, "preprocessing": model.preprocessing.to_dict()}
    if keep != "logits":
        found["keep"] = keep
    if features:
        found["features"] = True
    if fast and not features and runs_on_gpu(model):
        found["fast"] = True
    return found


def plan_predictions(
    testset: TestSet,
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    features: bool = False,
    fast: bool = False,
) -> PredictPlan:
    """Look at what is stored and what is missing; nothing runs.

    A run on images that have changed since does not count. A stored run that holds more than is
    asked for will do: all logits for the top k, features that nobody needs, exact outputs for fast
    ones.
    """
    if keep not in KEEPS:
        raise UserError(f"--keep {keep!r}", fix=f"use {' or '.join(KEEPS)}")
    if not len(testset):
        raise NotApplicable(f"{testset.name} has no images", fix="name a test set that has some")
    store = PredictionStore(workspace.predictions)
    known = {run.folder.name: run for run in store.runs(testset.card.images_hash)}
    current = CurrentImages(testset, workspace=workspace, images=images)
    stored: list[StoredRun] = []
    stale: list[StoredRun] = []
    pending: list[Pending] = []
    size = changed = 0
    for model in models:
        answers = [
            full_identity(model, keep=kept, features=with_features, fast=quickly)
            for kept in dict.fromkeys((keep, "logits"))
            for with_features in dict.fromkeys((features, True))
            for quickly in dict.fromkeys((fast, False))
        ]
        keys = [identity_key(identity, model.label_space) for identity in answers]
        names = [store.folder_name(model.name, key) for key in keys]
        for there in (known[name] for name in dict.fromkeys(names) if name in known):
            count = current.changed(there)
            if not count:
                stored.append(there)
                break
            stale.append(there)
            changed = max(changed, count)
        else:
            pending.append(Pending(model, answers[0], keys[0]))
            size += len(testset) * (2 * len(model.label_space) if keep == "logits" else 0)
    return PredictPlan(
        testset,
        tuple(stored),
        tuple(pending),
        len(testset),
        size,
        tuple(stale),
        changed,
        tuple(run.model for run in stored if current.unknown(run)),
    )


def predict(
    testset: TestSet,
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    features: bool = False,
    fast: bool = False,
    workers: int | None = None,
    batch: int = BATCH,
    max_pixels: int = MAX_PIXELS,
    shard: Shard | None = None,
    plan: PredictPlan | None = None,
    progress: Progress = no_progress,
) -> list[StoredRun]:
    """Run models on a test set; the stored runs, in the order of ``models``.

    The same call again does only what is missing. With ``shard`` only that share of the images is
    done here, and the store is written by whoever finds all shares there; until then the list
    holds only models that were complete before. ``fast`` skips the recheck of models that run on
    a GPU. ``plan`` is what :func:`plan_predictions` has just said.
    """
    wanted: dict[str, Any] = {
        "workspace": workspace, "images": images, "keep": keep, "features": features, "fast": fast,
    }  # fmt: skip
    plan = plan or plan_predictions(testset, models, **wanted)
    if not plan.pending:
        return list(plan.stored)
    _check_room(plan, workspace)
    for stale in plan.stale:
        remove_folder(stale.folder)
    files = image_files(testset, images)
    ledger = Ledger(files, workspace)
    try:
        for group in groups_of(plan.pending, features=features):
            results = group_results(testset, group, workspace=workspace)
            units = group_units(testset, group, files, features=features)
            with contextlib.ExitStack() as locks:
                for kept in results.models:
                    locks.enter_context(working(kept))
                    kept.prepare(kept.folder.name)
                with contextlib.ExitStack() as stack:
                    running = [entry.model for entry in group]
                    work: PredictWork | GpuWork
                    if _on_gpu(group, features=features):
                        work = GpuWork(
                            files,
                            running,
                            notes=[kept.folder / "recheck.json" for kept in results.models],
                            keep=keep,
                            fast=fast,
                            max_pixels=max_pixels,
                        )
                        stack.callback(work.close)
                        executor = Threads(work.workers)
                    else:
                        work = PredictWork(files, running, keep, features, batch, max_pixels)
                        executor = Threads(workers)
                    summary = run(
                        Job(
                            name=results.folder.name,
                            work=GroupWork(work, results.models),
                            fatal=(MismatchError,),
                        ),
                        units,
                        runs=workspace.runs,
                        results=results,
                        executor=executor,
                        shard=shard,
                        progress=in_images(progress, len(testset), len(units)),
                    )
                if summary.failed:
                    first = next(summary.results.failures(), None)
                    told = f"; the first: {first.reason}\n{first.traceback}" if first else ""
                    raise HeldoutError(f"{summary.failed} units failed{told}")
                _store(testset, group, units, results, work, workspace)
            _clean_up(testset, group, results, workspace)
    finally:
        ledger.note(files.seen)
    again = plan_predictions(testset, models, **wanted)
    if again.changed:
        raise MismatchError(
            f"{again.changed} images of {testset.name} changed while models ran on them",
            fix="the same command again runs them on the images as they are now",
        )
    if again.pending and shard is None:
        names = ", ".join(entry.model.name for entry in again.pending)
        raise HeldoutError(
            f"results of {names} on {testset.name} were removed while they were made; the same "
            "command again makes what is missing"
        )
    return list(again.stored)


def groups_of(pending: Sequence[Pending], *, features: bool = False) -> list[list[Pending]]:
    """Models that run together: those of the CPU; on GPUs those of one geometry."""
    groups: dict[str, list[Pending]] = {}
    for entry in pending:
        on_gpu = _on_gpu([entry], features=features)
        key = entry.model.preprocessing.geometry.key if on_gpu else ""
        groups.setdefault(key, []).append(entry)
    return list(groups.values())


def group_results(
    testset: TestSet, group: Sequence[Pending], *, workspace: Workspace
) -> GroupResults:
    """Where a group's results are until all are there: a folder a model."""
    return GroupResults([JobResults(workspace.runs / job_name(testset, entry)) for entry in group])


def group_units(
    testset: TestSet, group: Sequence[Pending], files: ImageFiles, *, features: bool = False
) -> list[Unit]:
    """The units of a group, of a size that suits where it runs."""
    size = gpu_unit_images if _on_gpu(group, features=features) else unit_images
    return prediction_units(testset, files, size=size(len(testset)))


def _on_gpu(group: Sequence[Pending], *, features: bool) -> bool:
    return not features and all(runs_on_gpu(entry.model) for entry in group)


def _store(
    testset: TestSet,
    group: Sequence[Pending],
    units: Sequence[Unit],
    results: GroupResults,
    work: PredictWork | GpuWork,
    workspace: Workspace,
) -> None:
    """Write the predictions of every model of a group whose units are all there."""
    store = PredictionStore(workspace.predictions)
    refused: list[NothingRead] = []
    for place, (entry, kept) in enumerate(zip(group, results.models, strict=True)):
        if _stored(testset, entry, store) or not all(kept.has(unit.key) for unit in units):
            continue
        how = work.record(place) if isinstance(work, GpuWork) else None
        try:
            made = assemble(testset, entry, units, kept, how)
        except NothingRead as error:
            # Nothing of it is worth keeping, and the next time the images may be there.
            remove_folder(kept.folder)
            refused.append(error)
        except NotFound:
            # Where there are no locks, another process may have stored it and cleaned up meanwhile.
            if not _stored(testset, entry, store):
                raise
        else:
            store.write(made, images_hash=testset.card.images_hash)
    if refused:
        raise refused[0]


def _stored(testset: TestSet, entry: Pending, store: PredictionStore) -> bool:
    return store.has(testset.card.images_hash, entry.model.name, entry.key)


def _clean_up(
    testset: TestSet, group: Sequence[Pending], results: GroupResults, workspace: Workspace
) -> None:
    """Remove what stored models left, unless another process is still at it: that one will."""
    store = PredictionStore(workspace.predictions)
    for entry, kept in zip(group, results.models, strict=True):
        if _stored(testset, entry, store) and not is_worked_on(kept.folder):
            remove_folder(kept.folder)


def job_name(testset: TestSet, entry: Pending) -> str:
    """The name of a model's work on a test set: which images, and which model."""
    model = sha256_text(canonical_json([entry.model.name, entry.key]))
    return f"predict-{testset.card.images_hash[:12]}-{model[:12]}"


def prediction_units(testset: TestSet, files: ImageFiles, *, size: int | None = None) -> list[Unit]:
    """Units of ``size`` rows each; a key covers the images' ids and hashes.

    The models are in the names of the folders that results are kept in.
    """
    ids = testset.image_ids.to_pylist()
    size = size or unit_images(len(ids))
    units = []
    for start in range(0, len(ids), size):
        stop = min(start + size, len(ids))
        key = unit_key(WORK, images=[[ids[row], files.digests[row]] for row in range(start, stop)])
        units.append(Unit(key, Part(start, stop, key)))
    return units


def assemble(
    testset: TestSet,
    entry: Pending,
    units: Sequence[Unit],
    results: JobResults,
    how: Mapping[str, Any] | None = None,
) -> Predictions:
    """A model's predictions from its results of all units; ``how`` they were made goes into the
    record of the run."""
    topk: list[np.ndarray] = []
    logits: list[np.ndarray] = []
    features: list[np.ndarray] = []
    failures: dict[int, str] = {}
    digests: list[str | None] = []
    for unit in units:
        mine = kept_rows(results, unit.key)
        digests += mine.digests
        topk.append(mine.topk)
        if mine.logits is not None:
            logits.append(mine.logits)
        if mine.features is not None:
            features.append(mine.features)
        failures |= {unit.payload.start + row: reason for row, reason in mine.failures.items()}
    if len(failures) == len(testset):
        raise NothingRead(
            f"none of the {len(testset)} images of {testset.name} gave an output of "
            f"{entry.model.name} ({failures[0]})",
            fix="check where the images are (--images), and the model",
        )
    width = max((part.shape[1] for part in features), default=0)
    return Predictions(
        model=entry.model.name,
        image_ids=testset.image_ids,
        topk=np.concatenate(topk),
        logits=np.concatenate(logits) if logits else None,
        features=np.concatenate([_wide(part, width) for part in features]) if width else None,
        label_space=entry.model.label_space,
        failures=failures,
        identity=entry.identity,
        digests=digests,
        run={
            **(how or {"device": getattr(entry.model, "device", "cpu")}),
            "versions": _versions(),
        },
    )


def _wide(part: np.ndarray, width: int) -> np.ndarray:
    return part if part.shape[1] == width else np.zeros((len(part), width), part.dtype)


def _versions() -> dict[str, str]:
    import importlib.metadata

    found: dict[str, str] = {}
    for name in ("heldout", "numpy", "pillow", "onnxruntime", "torch", "timm", "torchvision"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _check_room(plan: PredictPlan, workspace: Workspace) -> None:
    place = workspace.root
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    # Units and the store exist together for a moment.
    if 2 * plan.bytes > free:
        raise UserError(
            f"predictions on {plan.testset.name} need about {2 * plan.bytes / 1e9:.1f} GB, "
            f"{free / 1e9:.1f} GB are free",
            fix="use --keep topk, or another --workspace; heldout prune removes what is not wanted",
        )


def in_images(progress: Progress, images: int, units: int) -> Progress:
    """Progress that counts images instead of units."""

    def show(tick: Tick) -> None:
        scale = images / max(units, 1)
        total = None if tick.total is None else round(tick.total * scale)
        progress(
            Tick(
                round(tick.done * scale),
                round(tick.found * scale),
                round(tick.failed * scale),
                total,
                tick.seconds,
            )
        )

    return show

"""Predicting as part of an evaluation: which models on which sets, what is stored, what will run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.engine import Progress, Shard, no_progress
from heldout.core.errors import UserError
from heldout.core.workspace import Workspace
from heldout.data.images import ImageSource
from heldout.data.testset import TestSet, part_of
from heldout.data.testset.hashing import row_hash
from heldout.measure.evaluation.choosing import check_names
from heldout.measure.evaluation.retrying import retry_failed
from heldout.models.adapters import Model, PredictionFile
from heldout.models.predictions import Predictions, PredictionStore, StoredRun
from heldout.models.predictions.run_models import plan_predictions, predict

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


def split_models(
    models: Sequence[Model | PredictionFile],
) -> tuple[list[Model], list[PredictionFile]]:
    """Models that run, and files of outputs that stand for one."""
    files = [model for model in models if isinstance(model, PredictionFile)]
    return [model for model in models if not isinstance(model, PredictionFile)], files


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
    features: bool = False,
    fast: bool = False,
    workers: int | None = None,
    shard: Shard | None = None,
    retry: bool = False,
    show: ShowProgress | None = None,
) -> list[Predicted]:
    """Run every model on every test set that it has not seen yet.

    ``retry``  run stored models again on the images that they have no output for
    """
    if retry and shard is not None:
        raise UserError("--retry-failed with --shard", fix="retry when all shards are done")
    if not models:
        raise UserError("no model is named", fix="name one with -m, such as -m lite0")
    check_names(models)
    found = []
    for testset in testsets:
        plan = plan_predictions(
            testset,
            models,
            workspace=workspace,
            images=images,
            keep=keep,
            features=features,
            fast=fast,
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
                features=features,
                fast=fast,
                shard=shard,
                plan=plan,
                progress=progress,
                **options,
            )
            if failed:
                runs = retry_failed(testset, models, runs, progress=progress, **options)
        found.append(Predicted(testset, tuple(runs), len(plan.pending)))
    return found

"""What an evaluation will run, what is there already, and how long the rest will take."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.workspace import Workspace
from heldout.data.images import ImageSource
from heldout.data.testset import TestSet
from heldout.models.adapters import Model
from heldout.models.predictions.pixels import good_pixels, image_files, load_pixels
from heldout.models.predictions.run_models import (
    PredictPlan,
    images_done,
    plan_predictions,
    runs_on_gpu,
)

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


def forecast(
    testset: TestSet,
    models: Sequence[Model],
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    features: bool = False,
    fast: bool = False,
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
        features=features,
        fast=fast,
    )
    if not plan.pending:
        return Forecast(plan)
    done = images_done(plan, workspace=workspace, images=images, features=features)
    timed = timed and not any(runs_on_gpu(entry.model) for entry in plan.pending)
    if not timed or (plan.images - done) * len(plan.pending) < WORTH_TIMING:
        return Forecast(plan, done)
    each = seconds_an_image(plan, images=images)
    if each is None:
        return Forecast(plan, done)
    return Forecast(plan, done, each * (plan.images - done) / (workers or os.cpu_count() or 1))


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

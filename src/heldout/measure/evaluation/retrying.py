"""A second look at images that failed: missing files that are back, broken ones that were mended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.files import remove_folder
from heldout.core.workspace import Workspace
from heldout.data.images import ImageSource
from heldout.data.testset import TestSet, part_of
from heldout.models.adapters import Model
from heldout.models.predictions import Predictions, PredictionStore, StoredRun
from heldout.models.predictions.run_models import NothingRead, plan_predictions, predict


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
            kept = (run.run["keeps"], bool(run.run["features"]))
            fast = bool(run.run["identity"].get("fast"))
            alike.setdefault((failed, *kept, fast), []).append(place)
    found = list(runs)
    for (failed, keep, features, fast), places in alike.items():
        if not failed:
            continue
        what: dict[str, Any] = {"name": "retry", "parameters": {}, "seed": None}
        part = part_of(testset, failed, name=f"{testset.name}-retry", recipe=what)
        asked: dict[str, Any] = {
            "workspace": workspace,
            "images": images,
            "keep": keep,
            "features": features,
            "fast": fast,
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
        features=put("features"),
        failures=kept | new,
        digests=digests,
        stored_hash="",
    )

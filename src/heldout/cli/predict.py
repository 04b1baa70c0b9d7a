"""``heldout predict``: run models on test sets into the store."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit_json, say
from heldout.cli.options import (
    FastOption,
    ImagesOption,
    JsonOption,
    KeepOption,
    LimitOption,
    ModelArgsOption,
    RetryOption,
    RunModelOption,
    ShardOption,
    TestsetOption,
    WorkersOption,
    WorkspaceOption,
)


def predict(
    model: RunModelOption,
    testset: TestsetOption,
    images: ImagesOption = None,
    keep: KeepOption = "logits",
    fast: FastOption = False,
    features: Annotated[
        bool, typer.Option("--features", help="Also keep the models' features.")
    ] = False,
    limit: LimitOption = None,
    workers: WorkersOption = None,
    shard: ShardOption = None,
    retry_failed: RetryOption = False,
    model_args: ModelArgsOption = None,
    dry_run: Annotated[bool, typer.Option("--plan", help="Only say what would run.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Run models on test sets; each image is decoded once, and the same command resumes."""
    from heldout.cli.tables import show_failures, show_plans
    from heldout.core.engine import Shard
    from heldout.core.errors import EXIT_FAILED_IMAGES, UserError
    from heldout.core.progress import image_progress
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.measure.evaluation.forecast import forecast
    from heldout.measure.evaluation.predicting import distinct, limited, predict_all, split_models
    from heldout.models.adapters import load_models, parse_model_args
    from heldout.models.adapters.user_code import check_models

    place = Workspace.find(workspace)
    models, files = split_models(load_models(model, model_args=parse_model_args(model_args or [])))
    if files:
        raise UserError(
            f"{files[0].path} holds predictions already", fix="use heldout import predictions"
        )
    whole = distinct([find_testset(place, name) for name in testset])
    testsets = [limited(item, limit) for item in whole]
    plans = [
        forecast(
            item,
            models,
            workspace=place,
            images=images or None,
            keep=keep,
            features=features,
            fast=fast,
            workers=workers,
        )
        for item in testsets
    ]
    show_plans(plans)
    pending = [entry.model for item in plans for entry in item.plan.pending]
    check_models(pending, features=features)
    if dry_run:
        if as_json:
            emit_json([plan.to_dict() for plan in plans])
        return
    found = predict_all(
        testsets,
        models,
        workspace=place,
        images=images or None,
        keep=keep,
        features=features,
        fast=fast,
        workers=workers,
        shard=None if shard is None else Shard.parse(shard),
        retry=retry_failed,
        show=image_progress,
    )
    if as_json:
        emit_json([run.run for item in found for run in item.runs])
    for item in found:
        done = f"{len(item.runs)} of {len(models)} models are complete"
        say(f"{item.testset.name}: {done}, {item.failed} images failed")
    failures = [failure for item in found for failure in item.failures()]
    show_failures(failures, place.runs / "predict-failed.csv")
    if failures:
        raise typer.Exit(EXIT_FAILED_IMAGES)

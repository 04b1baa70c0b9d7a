"""The verbs from models to a report: eval, predict, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import check_file, emit, emit_json, note, say
from heldout.cli.options import (
    BalanceOption,
    ByOption,
    ClusterOption,
    CurveOption,
    FastOption,
    ImagesOption,
    JsonOption,
    KeepOption,
    LabelMapOption,
    LevelOption,
    LimitOption,
    MetricOption,
    ModelArgsOption,
    OnErrorOption,
    ReplicatesOption,
    RetryOption,
    RunModelOption,
    SaveOption,
    SeedOption,
    ShardOption,
    TestsetOption,
    TruthOption,
    WorkersOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace


def evaluate(
    model: RunModelOption,
    testset: TestsetOption,
    metric: MetricOption = None,
    truth: TruthOption = None,
    by: ByOption = None,
    cluster: ClusterOption = None,
    balance: BalanceOption = None,
    curve: CurveOption = None,
    mistakes: Annotated[
        bool, typer.Option(help="Count mistakes by category, severity and slice.")
    ] = True,
    baseline: Annotated[
        str | None, typer.Option(help="The test set that the others are compared with.")
    ] = None,
    images: ImagesOption = None,
    label_map: LabelMapOption = None,
    keep: KeepOption = "logits",
    fast: FastOption = False,
    limit: LimitOption = None,
    workers: WorkersOption = None,
    retry_failed: RetryOption = False,
    model_args: ModelArgsOption = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under", help="Gate: exit 4 if a score is below, such as top1=0.75; repeatable."
        ),
    ] = None,
    absent_classes: Annotated[
        str, typer.Option(help="Classes without images under per-class metrics: error or skip.")
    ] = "error",
    on_error: OnErrorOption = "wrong",
    checks: Annotated[bool, typer.Option(help="Run the cheap doctor checks.")] = True,
    to: Annotated[
        Path | None,
        typer.Option("--report", "-o", help="The report; runs/eval/report.html by default."),
    ] = None,
    level: LevelOption = 0.95,
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    save: SaveOption = None,
    dry_run: Annotated[bool, typer.Option("--plan", help="Only say what would run.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Evaluate models on test sets: plan, predict what is missing, score, compare, report."""
    from heldout.cli.tables import show_failures, show_plans
    from heldout.core.errors import EXIT_FAILED_IMAGES, EXIT_GATE
    from heldout.core.progress import image_progress
    from heldout.core.workspace import Workspace
    from heldout.measure.evaluation.flow import evaluate_models, make_plans
    from heldout.measure.evaluation.options import Options, misses, parse_gate
    from heldout.models.adapters import load_models, parse_model_args
    from heldout.models.adapters.user_code import check_models
    from heldout.show.report import report_results

    check_file(to)
    check_file(save)
    place = Workspace.find(workspace)
    options = Options(
        metrics=tuple(metric or ()),
        truth=truth,
        by=tuple(by) if by else None,
        cluster=cluster,
        balance=balance,
        curves=curve,
        mistakes=mistakes,
        baseline=baseline,
        images=images or None,
        label_map=label_map,
        keep=keep,
        fast=fast,
        limit=limit,
        workers=workers,
        retry_failed=retry_failed,
        absent_classes=absent_classes,
        on_error=on_error,
        checks=checks,
        level=level,
        replicates=replicates,
        seed=seed,
        gates=tuple(parse_gate(text) for text in fail_under or []),
    )
    models = load_models(model, model_args=parse_model_args(model_args or []))
    plans = make_plans(models, testset, options, workspace=place)
    show_plans(plans)
    check_models(entry.model for item in plans for entry in item.plan.pending)
    if dry_run:
        if not plans:
            say("nothing to run: all outputs are in files")
        if as_json:
            emit_json([plan.to_dict() for plan in plans])
        return
    results = evaluate_models(models, testset, options, workspace=place, show=image_progress)
    for text in results.notes:
        note(text)
    page = to or place.runs / "eval" / "report.html"
    measured = _measured_name(baseline, testset, limit, place)
    report_results(results, page, workspace=place, baseline=measured)
    emit(results.records, as_json=as_json, save=save)
    say(f"report: {page}")
    show_failures(results.failures, page.with_name(f"{page.stem}-failed.csv"))
    missed = misses(results.records, options.gates)
    for miss in missed:
        say(f"gate not met: {miss.line}")
    if missed:
        raise typer.Exit(EXIT_GATE)
    if results.failures:
        raise typer.Exit(EXIT_FAILED_IMAGES)


def _measured_name(
    baseline: str | None, testsets: list[str], limit: int | None, workspace: Workspace
) -> str | None:
    """The name that scores on the baseline have: its own for an alias, its sample's with a limit."""
    from heldout.measure.evaluation.flow import find_testsets
    from heldout.measure.evaluation.prediction import limited

    for testset in find_testsets(testsets, workspace=workspace) if baseline is not None else ():
        if baseline in (testset.name, *testset.card.aliases):
            return limited(testset, limit).name
    return baseline


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
    from heldout.measure.evaluation.prediction import (
        distinct,
        forecast,
        limited,
        predict_all,
        split_models,
    )
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


def report(
    records: Annotated[
        list[Path], typer.Argument(help="JSON files of records, as --save or --json wrote them.")
    ],
    to: Annotated[Path, typer.Option("--to", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="The report's title.")] = "Evaluation",
    baseline: Annotated[
        str | None, typer.Option(help="The test set that the others are compared with.")
    ] = None,
    note: Annotated[
        list[str] | None, typer.Option(help="Something a reader should know; repeatable.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write every figure as SVG and PNG here.")
    ] = None,
    timm_csv: Annotated[
        Path | None, typer.Option(help="Also write a CSV a test set in timm's column order here.")
    ] = None,
    clip_benchmark: Annotated[
        Path | None, typer.Option(help="Also write CLIP_benchmark's JSON files into this folder.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Write a report: accuracy against the baseline, drops, ranks, slices, tables, provenance."""
    from heldout.core.workspace import Workspace
    from heldout.show.report import assemble, write_all

    data = assemble(
        records,
        workspace=Workspace.find(workspace),
        title=title,
        baseline=baseline,
        notes=note or (),
    )
    for path in write_all(
        data, to, figures=figures, timm_csv=timm_csv, clip_benchmark=clip_benchmark
    ):
        say(f"wrote {path}")
    if open_it:
        typer.launch(str(to.resolve().as_uri()))

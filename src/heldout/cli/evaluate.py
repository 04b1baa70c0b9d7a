"""``heldout eval``: predict, score, report over lists of models and test sets."""

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
    from heldout.measure.evaluation.arguments import check_absent_classes
    from heldout.measure.evaluation.evaluating import Options, evaluate_models, make_plans
    from heldout.measure.evaluation.gates import misses, parse_gate
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
        absent_classes=check_absent_classes(absent_classes),
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
    from heldout.measure.evaluation.evaluating import find_testsets
    from heldout.measure.evaluation.predicting import limited

    for testset in find_testsets(testsets, workspace=workspace) if baseline is not None else ():
        if baseline in (testset.name, *testset.card.aliases):
            return limited(testset, limit).name
    return baseline

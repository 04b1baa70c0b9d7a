"""The verbs over stored predictions: score, compare, fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import (
    BalanceOption,
    ByOption,
    ClusterOption,
    CurveOption,
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    MetricOption,
    ModelOption,
    OnErrorOption,
    ReplicatesOption,
    SaveOption,
    SeedOption,
    TestsetOption,
    TruthOption,
    WorkspaceOption,
)


def score(
    testset: TestsetOption,
    model: ModelOption = None,
    metric: MetricOption = None,
    truth: TruthOption = None,
    by: ByOption = None,
    exclude: ExcludeOption = None,
    label_map: LabelMapOption = None,
    cluster: ClusterOption = None,
    balance: BalanceOption = None,
    curve: CurveOption = None,
    mistakes: Annotated[
        bool, typer.Option(help="Count mistakes by category, severity and slice.")
    ] = False,
    ranks: Annotated[bool, typer.Option(help="Add ranks with simultaneous intervals.")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="The original test set: adds fits, and effective robustness.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="With --baseline: line for effective robustness: published, timm, or a CSV (x,y)."
        ),
    ] = None,
    pooled: Annotated[
        list[str] | None,
        typer.Option(
            "--from", help="Use predictions stored for these sets, joined by image id; repeatable."
        ),
    ] = None,
    confusions: Annotated[
        Path | None, typer.Option(help="Also write confusion matrices: a folder of CSV files.")
    ] = None,
    absent_classes: Annotated[
        str,
        typer.Option(
            help="Classes without images under a metric that averages over classes: error or skip."
        ),
    ] = "error",
    on_error: OnErrorOption = "wrong",
    minimum_n: Annotated[
        int, typer.Option(help="Smallest slice that may be called the worst.")
    ] = 20,
    level: LevelOption = 0.95,
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Score stored predictions: every model, test set and metric, with intervals."""
    from heldout.measure.evaluation import evaluate, evaluate_revisions
    from heldout.measure.evaluation.flow import (
        label_map_argument,
        reference_argument,
        write_confusions,
    )

    if pooled:
        results = evaluate_revisions(
            model or [],
            testset,
            pooled,
            metrics=metric or ("top1",),
            truth=truth,
            level=level,
            replicates=replicates,
            seed=seed,
            workspace=workspace,
        )
        emit(results.records, as_json=as_json, save=save)
        return
    judged_by = label_map_argument(label_map, testset, model or [], workspace=workspace)
    results = evaluate(
        model or [],
        testset,
        metrics=metric,
        truth=truth,
        by=by or None,
        exclude=exclude or (),
        label_map=judged_by,
        baseline=baseline,
        reference=reference_argument(reference),
        cluster=cluster,
        balance=balance,
        curves=curve,
        mistakes=mistakes,
        ranks=ranks,
        absent_classes=absent_classes,
        on_error=on_error,
        minimum_n=minimum_n,
        level=level,
        replicates=replicates,
        seed=seed,
        workspace=workspace,
    )
    for text in results.notes:
        note(text)
    if confusions is not None:
        written = write_confusions(
            testset, model or [], confusions, truth=truth, label_map=judged_by, workspace=workspace
        )
        say(f"wrote {len(written)} confusion matrices under {confusions}")
    emit(results.records, as_json=as_json, save=save)


def compare(
    models: Annotated[
        list[str], typer.Argument(help="Two or more models; each is compared with the first.")
    ],
    testset: TestsetOption,
    metric: Annotated[str, typer.Option(help="The metric to compare on.")] = "top1",
    truth: TruthOption = None,
    by: ByOption = None,
    cluster: ClusterOption = None,
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Compare every model with every other.")
    ] = False,
    consistency: Annotated[
        bool,
        typer.Option("--consistency", help="Error consistency (kappa of being right) instead."),
    ] = False,
    level: LevelOption = 0.95,
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Compare models on the same images: difference, interval, exact or bootstrap p, corrected for many."""
    from heldout.measure.evaluation.comparison import compare_models

    results = compare_models(
        models,
        testset,
        metric=metric,
        truth=truth,
        by=by or (),
        all_pairs=all_pairs,
        consistency=consistency,
        cluster=cluster,
        level=level,
        replicates=replicates,
        seed=seed,
        workspace=workspace,
    )
    emit(results.records, as_json=as_json, save=save)


def fit(
    testset: Annotated[
        list[str] | None,
        typer.Option("--testset", "-t", help="New test sets, with stored predictions."),
    ] = None,
    baseline: Annotated[str | None, typer.Option(help="The original test set.")] = None,
    model: ModelOption = None,
    exclude: ExcludeOption = None,
    metric: Annotated[str, typer.Option(help="The metric to fit.")] = "top1",
    population: Annotated[
        list[Path] | None,
        typer.Option(
            help="CSV of published accuracies; give two to join them by model and img_size."
        ),
    ] = None,
    x: Annotated[
        str | None, typer.Option("--x", help="Population: the column of original accuracies.")
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", help="Population: the column of new accuracies.")
    ] = None,
    axes: Annotated[
        list[str] | None,
        typer.Option(help="linear, probit or logit; repeatable; all three by default."),
    ] = None,
    level: LevelOption = 0.95,
    replicates: ReplicatesOption = 1000,
    seed: SeedOption = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Fit new on original accuracy: of stored predictions, or of a published --population."""
    from heldout.measure.evaluation.comparison import fit_population, fit_testsets

    if population:
        results = fit_population(
            population,
            x=x,
            y=y,
            axes=axes,
            exclude=exclude or (),
            level=level,
            replicates=replicates,
            seed=seed,
        )
    else:
        results = fit_testsets(
            testset or [],
            baseline=baseline,
            models=model or [],
            exclude=exclude or (),
            metric=metric,
            axes=axes,
            level=level,
            replicates=replicates,
            seed=seed,
            workspace=workspace,
        )
    for text in results.notes:
        note(text)
    emit(results.records, as_json=as_json, save=save)

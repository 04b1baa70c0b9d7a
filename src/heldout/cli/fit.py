"""``heldout fit``: new accuracy against original over many models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit, note
from heldout.cli.options import (
    ExcludeOption,
    JsonOption,
    LevelOption,
    ModelOption,
    ReplicatesOption,
    SaveOption,
    SeedOption,
    WorkspaceOption,
)


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
    from heldout.measure.evaluation.fitting import fit_population, fit_testsets

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

"""``heldout compare``: two or more models on the same images, paired."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit
from heldout.cli.options import (
    ByOption,
    ClusterOption,
    JsonOption,
    LevelOption,
    ReplicatesOption,
    SaveOption,
    SeedOption,
    TestsetOption,
    TruthOption,
    WorkspaceOption,
)


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
    from heldout.measure.evaluation.comparing import compare_models

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

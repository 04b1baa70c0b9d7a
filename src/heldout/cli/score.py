"""``heldout score``: stored predictions on test sets, with intervals and slices."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit
from heldout.cli.options import (
    ByOption,
    ExcludeOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    MetricOption,
    ModelOption,
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
    cluster: Annotated[
        str | None, typer.Option(help="Column whose images belong together, such as photographer.")
    ] = None,
    ranks: Annotated[bool, typer.Option(help="Add ranks with simultaneous intervals.")] = False,
    absent_classes: Annotated[
        str,
        typer.Option(
            help="Classes without images under a metric that averages over classes: error or skip."
        ),
    ] = "error",
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
    from heldout.evaluation import evaluate
    from heldout.evaluation.arguments import check_absent_classes, label_map_argument

    results = evaluate(
        model or [],
        testset,
        metrics=metric,
        truth=truth,
        by=by or (),
        exclude=exclude or (),
        label_map=label_map_argument(label_map, testset, model or [], workspace=workspace),
        cluster=cluster,
        ranks=ranks,
        absent_classes=check_absent_classes(absent_classes),
        minimum_n=minimum_n,
        level=level,
        replicates=replicates,
        seed=seed,
        workspace=workspace,
    )
    emit(results.records, as_json=as_json, save=save)

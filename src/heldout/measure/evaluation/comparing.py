"""The comparison flow: named models on test sets, paired."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from heldout.core.errors import UserError
from heldout.core.workspace import Workspace
from heldout.data.testset import find_testset
from heldout.measure.evaluation.flow import stored_predictions
from heldout.measure.evaluation.results import Results
from heldout.measure.score.compare import compare, consistency_records
from heldout.measure.score.estimate import LEVEL, REPLICATES
from heldout.measure.score.measure import Measured, measure
from heldout.measure.score.records import Comparison
from heldout.measure.score.slices import cluster_column


def compare_models(
    models: Sequence[str],
    testsets: Sequence[str],
    *,
    metric: str = "top1",
    truth: str | None = None,
    by: Sequence[str] = (),
    all_pairs: bool = False,
    consistency: bool = False,
    cluster: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    workspace: Workspace | Path | str | None = None,
) -> Results:
    """Compare each model with the first one, or all pairs, on every test set; p values are Holm's."""
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    records: list[Comparison] = []
    measured: list[Measured] = []
    for name in testsets:
        testset = find_testset(place, name)
        predictions = stored_predictions(testset, models, workspace=place)
        (found,) = measure(testset, predictions, metrics=[metric], truth=truth)
        if len(found.models) < 2:
            raise UserError(f"{', '.join(models)} is one model on {name}", fix="name at least two")
        first = models[0] if models[0] in found.models else found.models[0]
        others = [model for model in found.models if model != first]
        pairs = (
            list(combinations(found.models, 2))
            if all_pairs
            else [(model, first) for model in others]
        )
        if consistency:
            records += consistency_records(found, pairs, level=level)
        else:
            records += compare(
                found,
                pairs,
                by=by,
                cluster=cluster_column(testset, cluster),
                seed=seed,
                replicates=replicates,
                level=level,
            )
        measured.append(found)
    return Results(tuple(records), measured=tuple(measured))

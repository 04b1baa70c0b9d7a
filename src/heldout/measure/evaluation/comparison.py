"""What compare and fit measure over stored predictions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import cast

from heldout.core.errors import UserError
from heldout.core.workspace import Workspace
from heldout.data.testset import find_testset
from heldout.measure.evaluation.flow import Results, fits_to_baseline
from heldout.measure.score.compare import compare, consistency_records
from heldout.measure.score.estimate import LEVEL, REPLICATES
from heldout.measure.score.fits import AXES, Axes, fit_points, read_population
from heldout.measure.score.measure import Measured, measure
from heldout.measure.score.records import Comparison
from heldout.measure.score.slices import cluster_column
from heldout.models.predictions.ledger import stored_predictions


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


def check_axes(axes: Sequence[str] | None) -> list[Axes]:
    """Axes by name; all of them by default."""
    for name in axes or ():
        if name not in AXES:
            raise UserError(f"no axes {name!r}", fix=f"use one of {', '.join(AXES)}")
    return [cast(Axes, name) for name in axes or AXES]


def fit_population(
    paths: Sequence[Path],
    *,
    x: str | None,
    y: str | None,
    axes: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Results:
    """Fit published accuracies, y on x."""
    if x is None or y is None:
        raise UserError("a population needs its columns", fix="name them with --x and --y")
    population = read_population(paths, x=x, y=y, exclude=exclude)
    records = [
        fit_points(
            population.x,
            population.y,
            axes=kind,
            testset=population.y_name,
            baseline=population.x_name,
            seed=seed,
            replicates=replicates,
            level=level,
        )
        for kind in check_axes(axes)
    ]
    notes = []
    if population.dropped:
        notes.append(
            f"{population.dropped} models are left out: excluded, without both accuracies, or at 0 or 100 %"
        )
    return Results(tuple(records), tuple(notes))


def fit_testsets(
    testsets: Sequence[str],
    *,
    baseline: str | None,
    models: Sequence[str] = (),
    exclude: Sequence[str] = (),
    metric: str = "top1",
    axes: Sequence[str] | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    workspace: Workspace | Path | str | None = None,
) -> Results:
    """Fit stored models: each test set's metric against the baseline's."""
    if not testsets or baseline is None:
        raise UserError(
            "a fit needs test sets and a baseline",
            fix="give -t NEW and --baseline ORIGINAL, or --population",
        )
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    base = find_testset(place, baseline)
    new = [found for name in testsets if (found := find_testset(place, name)).name != base.name]
    measured = [
        measure(
            testset,
            stored_predictions(testset, models, workspace=place, exclude=exclude),
            metrics=[metric],
        )[0]
        for testset in [base, *new]
    ]
    records = fits_to_baseline(
        measured, base.name, axes=check_axes(axes), seed=seed, replicates=replicates, level=level
    )
    common = min(record.models for record in records)
    everywhere = {name for m in measured for name in m.models}
    notes = (
        [f"{len(everywhere) - common} models are not on every set"]
        if common < len(everywhere)
        else []
    )
    return Results(tuple(records), tuple(notes), tuple(measured))

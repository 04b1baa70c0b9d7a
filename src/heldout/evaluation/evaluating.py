"""The whole evaluation: plan, predict what is missing, check, score, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from heldout.doctor import diagnose
from heldout.evaluation.flow import Results, evaluate, fits_to_baseline
from heldout.evaluation.predicting import (
    Predicted,
    ShowProgress,
    limited,
    plan_all,
    predict_all,
    split_models,
)
from heldout.labels import LabelMap, load_label_map, subset_map
from heldout.models import Model, PredictionFile
from heldout.predictions import Predictions, PredictionStore
from heldout.predictions.importing import import_predictions
from heldout.predictions.running import PredictPlan
from heldout.score.comparing import compare
from heldout.score.measuring import Measured
from heldout.score.records import Record
from heldout.score.scoring import LEVEL, REPLICATES
from heldout.testset import TestSet, find_testset
from heldout.workspace import Workspace

MOST_COMPARED = 10
"""With more models than this, only the best is compared with each other one."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to evaluate; the same words as the command line's."""

    metrics: tuple[str, ...] = ()
    truth: str | None = None
    by: tuple[str, ...] = ()
    baseline: str | None = None
    images: Path | None = None
    label_map: str | None = None
    keep: str = "logits"
    limit: int | None = None
    workers: int | None = None
    absent_classes: str = "error"
    on_error: str = "wrong"
    checks: bool = True
    level: float = LEVEL
    replicates: int = REPLICATES
    seed: int = 0


def find_testsets(
    testsets: Sequence[str | TestSet], options: Options, *, workspace: Workspace
) -> list[TestSet]:
    """The test sets that arguments mean, cut to the limit."""
    found = [t if isinstance(t, TestSet) else find_testset(workspace, t) for t in testsets]
    return [limited(testset, options.limit) for testset in found]


def make_plans(
    models: Sequence[Model],
    testsets: Sequence[str | TestSet],
    options: Options,
    *,
    workspace: Workspace,
) -> list[PredictPlan]:
    """What an evaluation will run; nothing runs."""
    found = find_testsets(testsets, options, workspace=workspace)
    running, _ = split_models(models)
    return plan_all(found, running, workspace=workspace, keep=options.keep) if running else []


def evaluate_models(
    models: Sequence[Model | PredictionFile],
    testsets: Sequence[str | TestSet],
    options: Options,
    *,
    workspace: Workspace,
    show: ShowProgress | None = None,
) -> Results:
    """Evaluate models on test sets, paired comparisons and cheap checks included."""
    found = find_testsets(testsets, options, workspace=workspace)
    running, files = split_models(models)
    predicted = (
        predict_all(
            found,
            running,
            workspace=workspace,
            images=options.images,
            keep=options.keep,
            workers=options.workers,
            show=show,
        )
        if running
        else [Predicted(testset, (), 0) for testset in found]
    )
    store = PredictionStore(workspace.predictions)
    records: list[Record] = []
    measured: list[Measured] = []
    notes: list[str] = []
    for item in predicted:
        outputs = [store.read(run) for run in item.runs]
        for file in files:
            imported = import_predictions(file.path, item.testset)
            outputs.append(imported.predictions)
            notes += imported.notes
        if options.checks:
            notes += check_outputs(item.testset, outputs)
        results = evaluate(
            outputs,
            item.testset,
            metrics=options.metrics or None,
            truth=options.truth,
            by=[entry for entry in options.by if _has_columns(item.testset, entry)],
            label_map=_label_map(options.label_map, outputs[0], item.testset),
            absent_classes=options.absent_classes,
            on_error=options.on_error,
            level=options.level,
            replicates=options.replicates,
            seed=options.seed,
            ranks=len(outputs) > 2,
        )
        records += results.records
        measured += results.measured
        records += _comparisons(results.measured[0], options)
    if options.baseline is not None and len(found) > 1 and len(models) > 2:
        records += fits_to_baseline(
            measured,
            options.baseline,
            seed=options.seed,
            replicates=options.replicates,
            level=options.level,
        )
    return Results(tuple(records), tuple(notes), tuple(measured))


def check_outputs(testset: TestSet, outputs: Sequence[Predictions]) -> list[str]:
    """What the doctor's cheap checks find in the test set and in every model's outputs, as notes."""
    found = diagnose(testset, outputs, cheap=True)
    return list(dict.fromkeys(finding.line for finding in found))


def _comparisons(measured: Measured, options: Options) -> list[Record]:
    if len(measured.models) < 2:
        return []
    if len(measured.models) <= MOST_COMPARED:
        pairs = list(combinations(measured.models, 2))
    else:
        best = measured.models[int(measured.estimates().argmax())]
        pairs = [(best, other) for other in measured.models if other != best]
    return list(
        compare(
            measured, pairs, seed=options.seed, replicates=options.replicates, level=options.level
        )
    )


def _has_columns(testset: TestSet, entry: str) -> bool:
    return all(
        part.strip().partition("@")[0] in (*testset.card.columns, "class")
        for part in entry.split("&")
    )


def _label_map(text: str | None, outputs: Predictions, testset: TestSet) -> LabelMap | None:
    if text is None or text == "identity":
        return None
    if text in ("subset:restricted", "subset:full"):
        reading = "restricted" if text.endswith("restricted") else "full"
        return subset_map(outputs.label_space, testset.label_space, reading=reading)  # type: ignore[arg-type]
    return load_label_map(text, source=outputs.label_space)

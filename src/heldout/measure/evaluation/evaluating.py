"""The whole evaluation: plan, predict what is missing, check, score, compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from heldout.core.workspace import Workspace
from heldout.data.labels import LabelMap
from heldout.data.testset import TestSet, find_testset
from heldout.measure.doctor.diagnose import diagnose
from heldout.measure.doctor.findings import merged_lines
from heldout.measure.evaluation.choosing import read_file
from heldout.measure.evaluation.flow import evaluate, fits_or_notes
from heldout.measure.evaluation.forecast import Forecast, forecast
from heldout.measure.evaluation.options import Options, check_options
from heldout.measure.evaluation.predicting import (
    FailedImage,
    Predicted,
    ShowProgress,
    distinct,
    limited,
    predict_all,
    split_models,
)
from heldout.measure.evaluation.results import Results
from heldout.measure.mistakes.tally import Study
from heldout.measure.score.compare import compare
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Record
from heldout.measure.score.slices import cluster_column
from heldout.models.adapters import Model, PredictionFile
from heldout.models.predictions import Predictions, PredictionStore, StoredRun, top_k

__all__ = ["Options", "check_outputs", "evaluate_models", "find_testsets", "make_plans"]

MOST_COMPARED = 10
"""With more models than this, only the best is compared with each other one."""


def find_testsets(testsets: Sequence[str | TestSet], *, workspace: Workspace) -> list[TestSet]:
    """The test sets that arguments mean, each once, whole."""
    found = [t if isinstance(t, TestSet) else find_testset(workspace, t) for t in testsets]
    return distinct(found)


def make_plans(
    models: Sequence[Model | PredictionFile],
    testsets: Sequence[str | TestSet],
    options: Options,
    *,
    workspace: Workspace,
) -> list[Forecast]:
    """What an evaluation will run, and how long it will take; what cannot work is refused here."""
    found = find_testsets(testsets, workspace=workspace)
    check_options(options, found, models)
    running, _ = split_models(models)
    return [
        forecast(
            limited(testset, options.limit),
            running,
            workspace=workspace,
            images=options.images,
            keep=options.keep,
            fast=options.fast,
            workers=options.workers,
        )
        for testset in found
        if running
    ]


def evaluate_models(
    models: Sequence[Model | PredictionFile],
    testsets: Sequence[str | TestSet],
    options: Options,
    *,
    workspace: Workspace,
    show: ShowProgress | None = None,
) -> Results:
    """Evaluate models on test sets, paired comparisons and cheap checks included."""
    whole = find_testsets(testsets, workspace=workspace)
    check_options(options, whole, models)
    found = [limited(testset, options.limit) for testset in whole]
    running, files = split_models(models)
    predicted = (
        predict_all(
            found,
            running,
            workspace=workspace,
            images=options.images,
            keep=options.keep,
            fast=options.fast,
            workers=options.workers,
            retry=options.retry_failed,
            show=show,
        )
        if running
        else [Predicted(testset, (), 0) for testset in found]
    )
    records: list[Record] = []
    measured: list[Measured] = []
    failures: list[FailedImage] = []
    studies: list[Study] = []
    notes: list[str] = []
    for item, full in zip(predicted, whole, strict=True):
        outputs: list[StoredRun | Predictions] = list(item.runs)
        for file in files:
            predictions, noted = read_file(file, full)  # a file has rows for the whole set
            outputs.append(predictions)
            notes += noted
        label_map = _label_map(options, models, outputs, item.testset)
        if options.checks:
            notes += check_outputs(item.testset, outputs, label_map=label_map)
        results = evaluate(
            outputs,
            item.testset,
            metrics=options.metrics or None,
            truth=options.truth,
            by=options.reading.slices(item.testset),
            cluster=options.cluster,
            balance=options.balance,
            curves=options.curves,
            label_map=label_map,
            absent_classes=options.absent_classes,
            on_error=options.on_error,
            level=options.level,
            replicates=options.replicates,
            seed=options.seed,
            ranks=len(outputs) > 2,
            mistakes=options.mistakes,
            workspace=workspace,
        )
        records += results.records
        measured += results.measured
        failures += results.failures
        studies += results.studies
        notes += results.notes
        whole_scores = [m for m in results.measured if not m.metric.per_class]
        records += _comparisons(whole_scores[0], options) if whole_scores else []
    if options.baseline is not None and len(found) > 1 and len(models) > 2:
        fits, why_none = fits_or_notes(
            measured,
            _limited_name(options.baseline, whole, found),
            seed=options.seed,
            replicates=options.replicates,
            level=options.level,
        )
        records += fits
        notes += why_none
    return Results(
        tuple(records),
        tuple(_shortened(notes)),
        tuple(measured),
        tuple(failures),
        tuple(studies),
    )


def check_outputs(
    testset: TestSet,
    outputs: Sequence[StoredRun | Predictions],
    *,
    label_map: LabelMap | None = None,
) -> list[str]:
    """What the doctor's cheap checks find, as notes; models that show the same share a line.

    Under a label map the checks look at what is judged: guesses in the set's own classes.
    """
    hashes = {
        item.model: str(item.run["predictions_hash"])
        for item in outputs
        if isinstance(item, StoredRun)
    }
    guesses = _guesses(testset, outputs, label_map)
    return merged_lines(diagnose(testset, guesses, cheap=True, hashes=hashes))


def _guesses(
    testset: TestSet, outputs: Sequence[StoredRun | Predictions], label_map: LabelMap | None
) -> Iterator[Predictions]:
    """Outputs one at a time, without the logits, which the cheap checks do not look at."""
    own = testset.label_space.fingerprint
    for item in outputs:
        if isinstance(item, StoredRun):
            read = PredictionStore(item.folder.parents[1]).read(item)
        else:
            read = item
        if label_map is not None and not label_map.overlaps and own == label_map.target.fingerprint:
            read = _mapped(read, label_map)
        yield replace(read, logits=None, features=None) if isinstance(item, StoredRun) else read


def _mapped(predictions: Predictions, label_map: LabelMap) -> Predictions:
    """Predictions as the label map reads them: guesses in its target, best first."""
    if predictions.logits is not None and label_map.reading == "restricted":
        values = label_map.map_logits(predictions.logits.astype(np.float32))
        topk = top_k(values, min(predictions.topk.shape[1], values.shape[1]))
        failed = np.asarray((predictions.topk < 0).all(axis=1))
        topk = np.where(failed[:, None], -1, topk)
    else:
        topk = label_map.read_topk(predictions.topk).targets
    return replace(
        predictions,
        topk=topk.astype(np.int32),
        logits=None,
        label_space=label_map.target,
        stored_hash=predictions.hash,
    )


def _shortened(notes: Sequence[str]) -> Iterator[str]:
    """Each note once; advice that was given before is not given again."""
    given: set[str] = set()
    for note in dict.fromkeys(notes):
        finding, bracket, advice = note.partition("]: ")
        if bracket and advice in given:
            yield f"{finding}]"
        else:
            yield note
        given.add(advice)


def _comparisons(measured: Measured, options: Options) -> list[Record]:
    if len(measured.models) < 2:
        return []
    if len(measured.models) <= MOST_COMPARED:
        pairs = list(combinations(measured.models, 2))
    else:
        sign = 1 if measured.metric.higher_is_better else -1
        best = measured.models[int((sign * measured.one_row_per_image().estimates()).argmax())]
        pairs = [(best, other) for other in measured.models if other != best]
    made: dict[str, Any] = {
        "seed": options.seed,
        "replicates": options.replicates,
        "level": options.level,
    }
    cluster = cluster_column(measured.testset, options.cluster)
    return [
        *compare(measured, pairs, cluster=cluster, **made),
        *options.reading.comparisons(measured, pairs, **made),
    ]


def _limited_name(baseline: str, whole: Sequence[TestSet], found: Sequence[TestSet]) -> str:
    """The name under which the baseline was measured: a sample of it where there is a limit."""
    for testset, used in zip(whole, found, strict=True):
        if baseline in (testset.name, *testset.card.aliases):
            return used.name
    return baseline


def _label_map(
    options: Options,
    models: Sequence[Model | PredictionFile],
    outputs: Sequence[StoredRun | Predictions],
    testset: TestSet,
) -> LabelMap | None:
    """The label map from the models' label space, which is one for all of them."""
    spaces = [m.label_space for m in models if not isinstance(m, PredictionFile)]
    spaces += [item.label_space for item in outputs if isinstance(item, Predictions)]
    return options.map_from(spaces[0], testset)

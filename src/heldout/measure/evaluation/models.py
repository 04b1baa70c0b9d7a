"""What ``heldout eval`` does: check, plan, run what is missing, evaluate, compare, gate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.engine.executors import worker_count
from heldout.core.errors import LabelError, NotApplicable, NotFound, UserError
from heldout.core.workspace import Workspace
from heldout.data.labels import LabelMap, LabelSpace, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.doctor.diagnose import diagnose
from heldout.measure.doctor.findings import merged_lines
from heldout.measure.evaluation.flow import (
    ON_ERROR,
    Reading,
    Results,
    default_metrics,
    evaluate,
    fits_or_notes,
)
from heldout.measure.evaluation.prediction import (
    FailedImage,
    Forecast,
    Predicted,
    ShowProgress,
    check_names,
    distinct,
    forecast,
    limited,
    predict_all,
    read_file,
    split_models,
)
from heldout.measure.mistakes.tally import Study
from heldout.measure.score.compare import compare
from heldout.measure.score.estimate import LEVEL, REPLICATES
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import get_metric
from heldout.measure.score.records import Record, Score
from heldout.measure.score.slices import ALL, cluster_column, has_columns
from heldout.models.adapters import Model, PredictionFile
from heldout.models.predictions import Predictions, PredictionStore, StoredRun, top_k
from heldout.models.predictions.predictions import TOP_K
from heldout.models.predictions.run_models import KEEPS

_GATE = re.compile(r"(?P<metric>[A-Za-z][\w]*)=(?P<value>\d+(\.\d*)?|\.\d+)\Z")


@dataclass(frozen=True)
class Gate:
    """A metric and the least value it may have."""

    metric: str
    value: float


@dataclass(frozen=True)
class Miss:
    """A score that a gate does not let through."""

    gate: Gate
    score: Score

    @property
    def line(self) -> str:
        """What was missed, for a person."""
        s = self.score
        interval = "" if s.low is None else f"interval {s.low:.4f} to {s.high:.4f}, "
        return (
            f"{s.model} on {s.testset}: {s.metric} {s.value:.4f} is under {self.gate.value:g} "
            f"({interval}n = {s.n:,})"
        )


def parse_gate(text: str) -> Gate:
    """A gate written ``metric=value``.

    >>> parse_gate("top1=0.75")
    Gate(metric='top1', value=0.75)
    """
    match = _GATE.match(text)
    if not match:
        raise UserError(f"--fail-under {text!r}", fix="write metric=value, such as top1=0.75")
    value = float(match["value"])
    if value > 1:
        raise UserError(
            f"--fail-under {text!r} is above 1", fix="values are fractions, such as 0.75"
        )
    return Gate(match["metric"], value)


def misses(records: Sequence[Record], gates: Sequence[Gate]) -> list[Miss]:
    """Scores on whole sets that lie under a gate; a gate on a metric that was not scored is refused."""
    scores = [r for r in records if isinstance(r, Score) and r.slice == ALL]
    known = {score.metric for score in scores}
    for gate in gates:
        if gate.metric not in known:
            raise UserError(
                f"--fail-under {gate.metric}: that metric was not scored",
                fix=f"add --metric {gate.metric}, or use {', '.join(sorted(known))}",
            )
    return [
        Miss(gate, score)
        for gate in gates
        for score in scores
        if score.metric == gate.metric and score.value < gate.value
    ]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to evaluate; the same words as the command line's."""

    metrics: tuple[str, ...] = ()
    truth: str | None = None
    by: tuple[str, ...] | None = None
    cluster: str | None = None
    balance: str | None = None
    curves: bool | None = None
    mistakes: bool = False
    baseline: str | None = None
    images: Path | str | None = None
    label_map: str | None = None
    keep: str = "logits"
    fast: bool = False
    limit: int | None = None
    workers: int | None = None
    retry_failed: bool = False
    absent_classes: str = "error"
    on_error: str = "wrong"
    checks: bool = True
    level: float = LEVEL
    replicates: int = REPLICATES
    seed: int = 0
    gates: tuple[Gate, ...] = ()

    @property
    def reading(self) -> Reading:
        """How results are read along columns."""
        return Reading(by=self.by, cluster=self.cluster, balance=self.balance, curves=self.curves)

    def metrics_of(self, testset: TestSet) -> tuple[str, ...]:
        """The metrics that a test set is scored by."""
        return self.metrics or default_metrics(testset, self.truth)

    def map_from(self, source: LabelSpace, testset: TestSet) -> LabelMap | None:
        """The label map from a model's label space that the option names, if it names one."""
        if self.label_map is None or self.label_map == "identity":
            return None
        return load_label_map(self.label_map, source=source, target=testset.label_space)


def check_options(
    options: Options, testsets: Sequence[TestSet], models: Sequence[Model | PredictionFile]
) -> None:
    """Refuse what cannot work now, and not after hours of prediction."""
    check_names(models)
    for value, known, flag in (
        (options.on_error, ON_ERROR, "--on-error"),
        (options.keep, KEEPS, "--keep"),
    ):
        if value not in known:
            raise UserError(f"{flag} {value!r}", fix=f"use {' or '.join(known)}")
    worker_count(options.workers)
    if not 0 < options.level < 1:
        raise UserError(f"--level {options.level:g}", fix="give a fraction, such as 0.95")
    for testset in testsets:
        testset.truth(options.truth)
        _check_metrics(options, testset)
        _check_spaces(options, testset, models)
    for entry in options.by or ():
        if not any(has_columns(testset, entry) for testset in testsets):
            raise NotFound(
                f"no test set has the column {entry!r}", fix="heldout ls --columns lists them"
            )
    for testset in testsets:
        own = (
            ("--cluster", cluster_column(testset, options.cluster)),
            ("--balance", options.balance),
        )
        for flag, column in own:
            if column is not None and not has_columns(testset, column):
                raise NotFound(
                    f"{testset.name} has no column {column!r} for {flag}",
                    fix="heldout ls --columns lists them",
                )
    names = {name for testset in testsets for name in (testset.name, *testset.card.aliases)}
    if options.baseline is not None and options.baseline not in names:
        raise NotFound(
            f"baseline {options.baseline!r} is not among the test sets", fix="add it with -t"
        )
    _check_gates(options, testsets)


def _check_metrics(options: Options, testset: TestSet) -> None:
    for name in options.metrics_of(testset):
        metric = get_metric(name)
        if options.keep == "topk" and (metric.needs_logits or metric.ranks > TOP_K):
            raise NotApplicable(
                f"{name} needs more than the top {TOP_K}", fix="leave out --keep topk"
            )


def _check_gates(options: Options, testsets: Sequence[TestSet]) -> None:
    scored = sorted({name for testset in testsets for name in options.metrics_of(testset)})
    for gate in options.gates:
        if gate.metric not in scored:
            raise UserError(
                f"--fail-under {gate.metric}: that metric is not scored",
                fix=f"add --metric {gate.metric}, or use {', '.join(scored)}",
            )
        if not get_metric(gate.metric).higher_is_better:
            raise UserError(
                f"--fail-under {gate.metric}: lower is better there",
                fix="gate a metric such as top1",
            )


def _check_spaces(
    options: Options, testset: TestSet, models: Sequence[Model | PredictionFile]
) -> None:
    """Models and test set must be in one label space, or one label map must join them."""
    running = [model for model in models if not isinstance(model, PredictionFile)]
    for model in running:
        space = model.label_space
        label_map = options.map_from(running[0].label_space, testset)
        expected = testset.label_space if label_map is None else label_map.source
        if space.fingerprint == expected.fingerprint:
            continue
        if label_map is not None:
            raise LabelError(
                f"{model.name} answers in {space.name}, {running[0].name} in {expected.name}",
                fix="evaluate models of one label space at a time under --label-map",
            )
        raise LabelError(
            f"{model.name} answers in {space.name} ({len(space)} classes), {testset.name} is "
            f"labelled in {expected.name} ({len(expected)})",
            fix="name a --label-map: subset:restricted (argmax over the set's classes), "
            "subset:full (argmax over all the model's classes), or hierarchy:restricted and "
            "hierarchy:full (the model's classes under the set's in WordNet)",
        )


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
    """Outputs one at a time; logits are read only where the label map takes the argmax again."""
    own = testset.label_space.fingerprint
    mapped = label_map
    if label_map is not None and (label_map.overlaps or own != label_map.target.fingerprint):
        mapped = None
    for item in outputs:
        if isinstance(item, StoredRun):
            values = mapped is not None and mapped.reading == "restricted"
            item = PredictionStore(item.folder.parents[1]).read(item, values=values)
        yield item if mapped is None else _mapped(item, mapped)


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

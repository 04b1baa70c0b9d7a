"""How to evaluate, and the refusal of what cannot work before anything has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heldout.core.engine.executors import worker_count
from heldout.core.errors import LabelError, NotApplicable, NotFound, UserError
from heldout.data.labels import LabelMap, LabelSpace, load_label_map
from heldout.data.testset import TestSet
from heldout.measure.evaluation.choosing import check_names
from heldout.measure.evaluation.flow import ON_ERROR, default_metrics
from heldout.measure.evaluation.gates import Gate
from heldout.measure.evaluation.reading import Reading
from heldout.measure.score.estimate import LEVEL, REPLICATES
from heldout.measure.score.metrics import get_metric
from heldout.measure.score.slices import cluster_column, has_columns
from heldout.models.adapters import Model, PredictionFile
from heldout.models.predictions.predictions import TOP_K
from heldout.models.predictions.run_models import KEEPS


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

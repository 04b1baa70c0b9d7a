"""The options of an evaluation: what they mean on a test set, what is refused beforehand, and gates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.engine.executors import worker_count
from heldout.core.errors import LabelError, NotApplicable, NotFound, UserError
from heldout.data.images import ImageSource
from heldout.data.labels import LabelMap, LabelSpace, load_label_map
from heldout.data.testset import TestSet
from heldout.measure.score.estimate import LEVEL, MINIMUM_N, REPLICATES
from heldout.measure.score.fits import AXES, Axes, ReferenceLine
from heldout.measure.score.metrics import get_metric
from heldout.measure.score.records import Record, Score
from heldout.measure.score.slices import ALL, cluster_column, entry_columns, has_columns
from heldout.models.adapters import Model
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


ON_ERROR = ("wrong", "drop")
DEFAULT_METRICS = {
    "single": ("top1", "top5"),
    "real": ("real",),
    "multilabel": ("mla", "mla_micro", "mla_correct_only", "mla_upper"),
}


def default_metrics(testset: TestSet, truth: str | None = None) -> tuple[str, ...]:
    """The metrics that a truth names on the card, or those that fit its kind."""
    name = truth or testset.card.default_truth
    testset.truth(name)
    where = testset.card.truths[name]
    if where.get("metrics"):
        return tuple(where["metrics"])
    return DEFAULT_METRICS.get(where.get("kind", "single"), DEFAULT_METRICS["single"])


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to evaluate; the same words as the command line's.

    ``by``        columns, conjunctions or binned columns to slice by, such as
                  ``("domain", "x&y", "selection_frequency@0.2,0.4")``; None for the factors that a
                  test set declares
    ``cluster``   the column whose images belong together; None for the test set's own, ``none`` for
                  no clusters
    ``balance``   columns that name what is repeated at every value, such as ``object&background``;
                  None for the test set's own
    ``curves``    whether slices are summed up as curves; None: those by declared factors
    ``mistakes``  adds tallies of mistakes by category, severity and slice, and accuracy with some
                  of them forgiven
    ``compare``   adds paired comparisons; ``ranks`` ranks with intervals, None with three models or
                  more; ``checks`` the doctor's cheap checks
    ``baseline``  name of one of the test sets: adds fits of the others against it, on ``axes``
    ``reference`` a line, or ``published`` (or one of the published sources, such as ``timm``) for
                  the built-in ones: adds effective robustness against the baseline; fits are then
                  left out where there are too few models for a line of their own
    ``label_map`` how outputs in another label space are judged, or the text that names it
    ``on_error``  images without an output count as ``wrong``; ``drop`` leaves out those that any
                  model failed on, and records how many (``n_dropped``)
    ``images``, ``keep``, ``fast``, ``limit``, ``workers``, ``retry_failed``, ``model_args``  for
                  models that run: where the image files are if not where the set says, ``logits``
                  or ``topk``, whether GPUs skip the recheck, a sample of the images, worker
                  threads, whether failed images are tried again, arguments of models given by name
    """

    metrics: tuple[str, ...] = ()
    truth: str | None = None
    by: tuple[str, ...] | None = None
    cluster: str | None = None
    balance: str | None = None
    curves: bool | None = None
    mistakes: bool = False
    compare: bool = True
    ranks: bool | None = None
    checks: bool = True
    baseline: str | None = None
    axes: tuple[Axes, ...] = AXES
    reference: ReferenceLine | str | None = None
    label_map: LabelMap | str | None = None
    exclude: tuple[str, ...] = ()
    images: ImageSource | Path | str | None = None
    keep: str = "logits"
    fast: bool = False
    limit: int | None = None
    workers: int | None = None
    retry_failed: bool = False
    model_args: Mapping[str, Any] | None = None
    absent_classes: str = "error"
    on_error: str = "wrong"
    level: float = LEVEL
    replicates: int = REPLICATES
    seed: int = 0
    minimum_n: int = MINIMUM_N
    gates: tuple[Gate, ...] = ()

    @property
    def drawn(self) -> dict[str, Any]:
        """What every interval is made with."""
        return {"seed": self.seed, "replicates": self.replicates, "level": self.level}

    def slices(self, testset: TestSet) -> list[str]:
        """The entries of ``by`` that a test set has the columns for."""
        entries = testset.card.factors if self.by is None else self.by
        return [entry for entry in entries if has_columns(testset, entry)]

    def curve_entries(self, testset: TestSet) -> list[str]:
        """The entries that are read as curves."""
        if self.curves is not None:
            return self.slices(testset) if self.curves else []
        declared = {c for factor in testset.card.factors for c in entry_columns(factor, testset)}
        return [
            entry
            for entry in self.slices(testset)
            if (columns := set(entry_columns(entry, testset))) and columns <= declared
        ]

    def metrics_of(self, testset: TestSet) -> tuple[str, ...]:
        """The metrics that a test set is scored by."""
        return self.metrics or default_metrics(testset, self.truth)

    def map_from(self, source: LabelSpace, testset: TestSet) -> LabelMap | None:
        """The label map from a model's label space that the option names, if it names one."""
        if not isinstance(self.label_map, str):
            return self.label_map
        if self.label_map == "identity":
            return None
        return load_label_map(self.label_map, source=source, target=testset.label_space)


def check_absent_classes(value: str) -> str:
    """``error`` or ``skip``."""
    if value not in ("error", "skip"):
        raise UserError(f"--absent-classes {value!r}", fix="use error or skip")
    return value


def check_options(options: Options, testsets: Sequence[TestSet], models: Sequence[Model]) -> None:
    """Refuse what cannot work now, and not after hours of prediction."""
    for value, known, flag in (
        (options.on_error, ON_ERROR, "--on-error"),
        (options.keep, KEEPS, "--keep"),
    ):
        if value not in known:
            raise UserError(f"{flag} {value!r}", fix=f"use {' or '.join(known)}")
    check_absent_classes(options.absent_classes)
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
            try:
                there = column is None or has_columns(testset, column)
            except UserError as error:
                raise UserError(f"{flag}: {error.message}", fix=error.fix) from None
            if not there:
                raise NotFound(
                    f"{testset.name} has no column {column!r} for {flag}",
                    fix="heldout ls --columns lists them",
                )
    if options.reference is not None and options.baseline is None:
        raise UserError("effective robustness needs a baseline", fix="name it with --baseline")
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


def _check_spaces(options: Options, testset: TestSet, models: Sequence[Model]) -> None:
    """Models and test set must be in one label space, or one label map must join them."""
    for model in models:
        space = model.label_space
        label_map = options.map_from(models[0].label_space, testset)
        expected = testset.label_space if label_map is None else label_map.source
        if space.fingerprint == expected.fingerprint:
            continue
        if label_map is not None:
            raise LabelError(
                f"{model.name} answers in {space.name}, {models[0].name} in {expected.name}",
                fix="evaluate models of one label space at a time under --label-map",
            )
        raise LabelError(
            f"{model.name} answers in {space.name} ({len(space)} classes), {testset.name} is "
            f"labelled in {expected.name} ({len(expected)})",
            fix="name a --label-map: subset:restricted (argmax over the set's classes), "
            "subset:full (argmax over all the model's classes), or hierarchy:restricted and "
            "hierarchy:full (the model's classes under the set's in WordNet)",
        )

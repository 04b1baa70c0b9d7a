"""What an evaluation needs, found once: test sets, models, label maps, slices, gates; what cannot work."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heldout.core.context import Context
from heldout.core.errors import LabelError, NotApplicable, NotFound, UserError
from heldout.core.request import Request
from heldout.data.labels import LabelMap, LabelSpace, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.evaluation.prediction import ChosenModels, choose, distinct, limited
from heldout.measure.evaluation.requests import CompareRequest, EvaluateRequest, Scoring
from heldout.measure.mistakes.evidence import gather_knowledge
from heldout.measure.score.fits import ReferenceLine, published_line
from heldout.measure.score.measure import default_metrics
from heldout.measure.score.metrics import get_metric
from heldout.measure.score.records import Record, Score
from heldout.measure.score.slices import ALL, cluster_column, entry_columns, has_columns
from heldout.models.adapters import Model, parse_model_args
from heldout.models.predictions import PredictionStore
from heldout.models.predictions.predictions import TOP_K

_GATE = re.compile(r"(?P<metric>[A-Za-z][\w]*)=(?P<value>\d+(\.\d*)?|\.\d+)\Z")


class Gate(NamedTuple):
    """A metric and the least value it may have."""

    metric: str
    value: float


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


def misses(records: Sequence[Record], gates: Sequence[Gate]) -> list[str]:
    """The scores on whole sets that lie under a gate, each in words."""
    return [
        f"{s.model} on {s.testset}: {s.metric} {s.value:.4f} is under {gate.value:g} "
        + (f"(interval {s.low:.4f} to {s.high:.4f}, " if s.low is not None else "(")
        + f"n = {s.n:,})"
        for gate in gates
        for s in records
        if isinstance(s, Score)
        and (s.slice, s.statistic, s.metric) == (ALL, "value", gate.metric)
        and s.value < gate.value
    ]


def drawn(request: Scoring | CompareRequest) -> dict[str, Any]:
    """What every interval is made with."""
    return {"seed": request.seed, "replicates": request.replicates, "level": request.level}


def image_source(request: Request, context: Context) -> Any:
    """Where the image files are, if not where the test set says."""
    name = getattr(request, "images", None)
    return context.bound.get(str(name), name)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A request with all that it names at hand.

    ``whole``      the test sets, each once; ``testsets`` the same, or samples of them under a limit
    ``chosen``     the models, by what has to be done with them
    ``label_map``  how outputs in another label space are judged, or the text that names it
    ``baseline``   the name under which the baseline is measured
    """

    request: Scoring
    context: Context
    whole: tuple[TestSet, ...]
    testsets: tuple[TestSet, ...]
    chosen: ChosenModels
    label_map: LabelMap | str | None
    reference: ReferenceLine | str | None
    baseline: str | None
    gates: tuple[Gate, ...]

    @property
    def drawn(self) -> dict[str, Any]:
        """What every interval is made with."""
        return drawn(self.request)

    def slices(self, testset: TestSet) -> list[str]:
        """The entries of ``by`` that a test set has the columns for."""
        entries = testset.card.factors if self.request.by is None else self.request.by
        return [entry for entry in entries if has_columns(testset, entry)]

    def curve_entries(self, testset: TestSet) -> list[str]:
        """The entries that are read as curves."""
        if self.request.curves is not None:
            return self.slices(testset) if self.request.curves else []
        declared = {c for factor in testset.card.factors for c in entry_columns(factor, testset)}
        return [
            entry
            for entry in self.slices(testset)
            if (columns := set(entry_columns(entry, testset))) and columns <= declared
        ]

    def cluster(self, testset: TestSet) -> str | None:
        """The column of a test set whose images belong together."""
        return cluster_column(testset, self.request.cluster)

    def metrics_of(self, testset: TestSet) -> tuple[str, ...]:
        """The metrics that a test set is scored by."""
        return self.request.metrics or default_metrics(testset, self.request.truth)

    def map_from(self, source: LabelSpace, testset: TestSet) -> LabelMap | None:
        """The label map from a model's label space that the request names, if it names one."""
        if not isinstance(self.label_map, str):
            return self.label_map
        return load_label_map(self.label_map, source=source, target=testset.label_space)


def resolve(request: Scoring, context: Context) -> Evaluation:
    """Find everything that a request names, and refuse what cannot work before any work begins."""
    if not request.testsets:
        raise UserError("no test set is named", fix="name one with -t")
    whole = distinct([context.find(name, find_testset) for name in request.testsets])
    runs = isinstance(request, EvaluateRequest)
    chosen = choose(
        [context.bound.get(name, name) for name in request.models],
        whole,
        model_args=parse_model_args(request.model_args)
        if isinstance(request, EvaluateRequest)
        else None,
        exclude=request.exclude,
        workspace=context.workspace,
        stored=not runs,
    )
    limit = request.limit if isinstance(request, EvaluateRequest) else None
    testsets = [limited(testset, limit) for testset in whole]
    label_map = request.label_map
    found = Evaluation(
        request=request,
        context=context,
        whole=tuple(whole),
        testsets=tuple(testsets),
        chosen=chosen,
        label_map=None
        if label_map in (None, "identity")
        else context.bound.get(label_map, label_map),
        reference=context.bound.get(str(request.line), request.line),
        baseline=_baseline(request.baseline, whole, testsets),
        gates=tuple(map(parse_gate, request.fail_under))
        if isinstance(request, EvaluateRequest)
        else (),
    )
    _check(found)
    return found


def _baseline(name: str | None, whole: Sequence[TestSet], used: Sequence[TestSet]) -> str | None:
    """The name under which the baseline is measured: its own for an alias, its sample's with a limit."""
    if name is None:
        return None
    for testset, sample in zip(whole, used, strict=True):
        if name in (testset.name, *testset.card.aliases):
            return sample.name
    raise NotFound(f"baseline {name!r} is not among the test sets", fix="add it with -t")


def _check(job: Evaluation) -> None:
    """Refuse what cannot work now, and not after hours of prediction."""
    request = job.request
    for testset in job.whole:
        testset.truth(request.truth)
        _check_metrics(job, testset)
        _check_spaces(job, testset, job.chosen.models)
    _check_evidence(job)
    for entry in request.by or ():
        if not any(has_columns(testset, entry) for testset in job.whole):
            raise NotFound(
                f"no test set has the column {entry!r}", fix="heldout ls --columns lists them"
            )
    for testset in job.whole:
        own = (("--cluster", job.cluster(testset)), ("--balance", request.balance))
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
    if job.baseline is not None and len(job.whole) < 2:
        raise NotApplicable(
            f"there is no test set beside the baseline {job.baseline}", fix="add one with -t"
        )
    if job.reference is not None:
        _check_reference(job)
    _check_gates(job)


def _check_evidence(job: Evaluation) -> None:
    """Truths, groups and peers that are evidence about mistakes must be there, and say something."""
    request, store = job.request, PredictionStore(job.context.workspace.predictions)
    for testset in job.testsets:
        if request.superclasses or request.seen_together:
            gather_knowledge(
                testset,
                truth=request.truth or testset.card.default_truth,
                superclasses=request.superclasses,
                seen_together=request.seen_together,
            )
        if request.peers:
            store.select(testset.card.images_hash, request.peers, testset=testset.name)


def _check_reference(job: Evaluation) -> None:
    """Effective robustness is of top-1 accuracy, against a line that must be there."""
    if any("top1" not in job.metrics_of(testset) for testset in job.whole):
        raise NotApplicable("--line needs the metric top1", fix="add --metric top1")
    if job.label_map is not None or not isinstance(job.reference, str):
        return  # under a label map the baseline may be cut down, and goes by another name
    source = None if job.reference == "published" else job.reference
    base = next(item for item in job.testsets if item.name == job.baseline)
    for testset in job.testsets:
        if testset is not base:
            published_line(testset, base, source=source)


def _check_metrics(job: Evaluation, testset: TestSet) -> None:
    keep = job.request.keep if isinstance(job.request, EvaluateRequest) else "logits"
    for name in job.metrics_of(testset):
        metric = get_metric(name)
        if keep == "topk" and (metric.needs_logits or metric.ranks > TOP_K):
            raise NotApplicable(
                f"{name} needs more than the top {TOP_K}", fix="leave out --keep topk"
            )


def _check_gates(job: Evaluation) -> None:
    scored = sorted({name for testset in job.whole for name in job.metrics_of(testset)})
    for gate in job.gates:
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


def _check_spaces(job: Evaluation, testset: TestSet, models: Sequence[Model]) -> None:
    """Models and test set must be in one label space, or one label map must join them."""
    for model in models:
        space = model.label_space
        label_map = job.map_from(models[0].label_space, testset)
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

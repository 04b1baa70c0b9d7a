"""What ``heldout.evaluate`` does: outputs measured, scored, gathered; failed images wrong or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.extras import require
from heldout.core.workspace import Workspace, slug
from heldout.data.images import ImageSource
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels import LabelMap, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.evaluation.prediction import (
    Choice,
    Chosen,
    FailedImage,
    FailedRows,
    ShowProgress,
    choose,
    distinct,
    failed_images,
    note_failures,
    predict_all,
    read_file,
)
from heldout.measure.mistakes.categories import (
    Lessons,
    Proposal,
    decided,
    lessons_from,
    propose,
)
from heldout.measure.mistakes.evidence import EvidenceTable, evidence_table, gather_knowledge
from heldout.measure.mistakes.panel import judged_kinds, kinds_of
from heldout.measure.mistakes.tally import Study, forgiven, joined, tally, without_images
from heldout.measure.mistakes.verdicts import Verdicts, mistakes_of, verdicts
from heldout.measure.score.compare import compare
from heldout.measure.score.curve_summaries import curve_records
from heldout.measure.score.estimate import (
    LEVEL,
    MINIMUM_N,
    REPLICATES,
    class_counts,
    confusion_matrix,
    counts,
    rank_scores,
    scores,
)
from heldout.measure.score.fits import (
    AXES,
    MINIMUM_MODELS,
    Axes,
    ReferenceLine,
    fit_lines,
    line_between,
    read_population,
    reference_line,
    robustness_scores,
)
from heldout.measure.score.measure import Measured, measure
from heldout.measure.score.records import (
    Comparison,
    Count,
    Fit,
    Record,
    Score,
    Summary,
    Tally,
    to_dict,
    to_json,
)
from heldout.measure.score.revisions import score_revisions
from heldout.measure.score.slices import ALL, cluster_column, entry_columns, has_columns
from heldout.models.predictions import Predictions, PredictionStore, StoredRun
from heldout.models.predictions.ledger import CurrentImages

MOST_PAIRED = 3
"""Pairs of models that an evaluation compares along a factor without being asked."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How results are read along columns.

    ``by``       what to slice by; None for the factors that the test set declares
    ``cluster``  the column whose images belong together; None for the test set's own, ``none`` for
                 no clusters
    ``balance``  columns that name what is repeated at every value, such as ``object&background``;
                 None for the test set's own
    ``curves``   whether slices are summed up as curves; None: those by declared factors
    """

    by: tuple[str, ...] | None = None
    cluster: str | None = None
    balance: str | None = None
    curves: bool | None = None

    def slices(self, testset: TestSet) -> list[str]:
        """The entries of ``by`` that a test set has the columns for."""
        entries = testset.card.factors if self.by is None else self.by
        return [entry for entry in entries if has_columns(testset, entry)]

    def curve_entries(self, testset: TestSet) -> list[str]:
        """The entries that are read as curves."""
        if self.curves is not None:
            return self.slices(testset) if self.curves else []
        declared = {_key(testset, entry) for entry in testset.card.factors}
        return [entry for entry in self.slices(testset) if _within(testset, entry, declared)]

    def curve_records(
        self,
        measured: Measured,
        *,
        seed: int = 0,
        replicates: int = REPLICATES,
        level: float = LEVEL,
    ) -> list[Score | Summary]:
        """Balanced scores and summaries of a measurement."""
        return curve_records(
            measured,
            self.curve_entries(measured.testset),
            cluster=cluster_column(measured.testset, self.cluster),
            balance=self.balance,
            seed=seed,
            replicates=replicates,
            level=level,
        )

    def comparisons(
        self,
        measured: Measured,
        pairs: Sequence[tuple[str, str]],
        *,
        seed: int = 0,
        replicates: int = REPLICATES,
        level: float = LEVEL,
    ) -> Iterator[Comparison]:
        """Pairs of models at every value of each single factor, corrected factor by factor."""
        if len(pairs) > MOST_PAIRED or not measured.metric.counted:
            return
        for entry in self.curve_entries(measured.testset):
            if len(entry_columns(entry, measured.testset)) == 1:
                yield from compare(
                    measured,
                    pairs,
                    by=[entry],
                    whole=False,
                    cluster=cluster_column(measured.testset, self.cluster),
                    seed=seed,
                    replicates=replicates,
                    level=level,
                )


def reading_notes(records: Iterable[Record]) -> list[str]:
    """What a reader must know of some records: intervals refused, and a mix that changes.

    One line a test set and column, whatever the number of models, metrics and values.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        if isinstance(record, Summary) and record.model is None and record.reason:
            found.setdefault((record.testset, record.columns), {})[record.reason] = None
        elif isinstance(record, Score) and record.slice == ALL and record.reason:
            said = f"no interval: {record.reason}"
            found.setdefault((record.testset, ALL), {})[said] = None
    return [f"{testset}: {'; '.join(reasons)}" for (testset, _), reasons in found.items()]


def _key(testset: TestSet, entry: str) -> frozenset[str]:
    return frozenset(entry_columns(entry, testset))


def _within(testset: TestSet, entry: str, declared: set[frozenset[str]]) -> bool:
    """Whether an entry is a declared factor, an axis of one, or made of declared ones."""
    columns = _key(testset, entry)
    everything = frozenset().union(*declared)
    return bool(columns) and columns <= everything


@dataclass(frozen=True)
class Results:
    """Records of an evaluation, what was noticed on the way, and the values behind the records.

    ``failures`` lists every image that some model has no output for; ``studies`` hold the mistakes
    behind the tallies, where these were asked for.
    """

    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    measured: tuple[Measured, ...] = field(default=(), repr=False)
    failures: tuple[FailedImage, ...] = field(default=(), repr=False)
    studies: tuple[Study, ...] = field(default=(), repr=False)

    @property
    def scores(self) -> tuple[Score, ...]:
        """The score records."""
        return tuple(record for record in self.records if isinstance(record, Score))

    @property
    def fits(self) -> tuple[Fit, ...]:
        """The fit records."""
        return tuple(record for record in self.records if isinstance(record, Fit))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparison records."""
        return tuple(record for record in self.records if isinstance(record, Comparison))

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The summary records."""
        return tuple(record for record in self.records if isinstance(record, Summary))

    @property
    def counts(self) -> tuple[Count, ...]:
        """The count records."""
        return tuple(record for record in self.records if isinstance(record, Count))

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """The tally records."""
        return tuple(record for record in self.records if isinstance(record, Tally))

    def to_json(self) -> str:
        """All records as one JSON array."""
        return to_json(self.records)

    def to_pandas(self) -> Any:
        """The score records as a data frame (other records: ``pandas.DataFrame(results.fits)``)."""
        pandas = require("pandas", extra="pandas", purpose="a data frame")
        return pandas.DataFrame([to_dict(record) for record in self.scores])


class Watching:
    """Looks at every model's outputs as they pass, and keeps only its verdicts.

    ``refused`` says why there are none: a truth may have no image whose mistakes count, though some
    metric counts it.
    """

    def __init__(
        self, testset: TestSet, *, truth: str | None = None, label_map: LabelMap | None = None
    ) -> None:
        self._testset = testset
        self._truth = truth
        self._label_map = label_map
        self._parts: list[Verdicts] = []
        self._peers: list[Predictions] = []
        self.refused: str | None = None

    def see(self, predictions: Predictions) -> None:
        """Take one model's verdicts."""
        try:
            found = verdicts(
                self._testset, [predictions], truth=self._truth, label_map=self._label_map
            )
        except NotApplicable as refused:
            self.refused = refused.message
            return
        self._parts.append(found)
        light = replace(predictions, logits=None, features=None, stored_hash=predictions.hash)
        self._peers.append(light)

    def study(self, *, without: Iterable[int] = (), workspace: Workspace) -> Study:
        """The study of all that was seen, ``without`` some rows of the images table."""
        found = joined(self._parts)
        rows = list(without)
        return study_mistakes(
            without_images(found, rows) if rows else found,
            peers=self._peers,
            label_map=self._label_map,
            workspace=workspace,
        )


def study_mistakes(
    found: Verdicts,
    *,
    peers: Sequence[Predictions] = (),
    label_map: LabelMap | None = None,
    workspace: Workspace,
) -> Study:
    """Every mistake with its kind: as the workspace's judgements say, else as evidence proposes.

    ``peers`` are outputs of models on these images, those of the verdicts among them.
    """
    mistakes = mistakes_of(found)
    judgements = judgements_about(found.testset, workspace.judgements, questions=("mistake",))
    knowledge = gather_knowledge(
        found.testset,
        truth=found.truth.name,
        predictions=peers or None,
        label_map=label_map,
    )
    table = evidence_table(mistakes, knowledge)
    proposals = _with_severity(propose(table), table, _lessons(table, judgements))
    kinds = kinds_of(mistakes, judgements=judgements, proposals=proposals)
    return Study(verdicts=found, mistakes=mistakes, kinds=kinds)


def _with_severity(
    proposals: Sequence[Proposal], table: EvidenceTable, lessons: Lessons | None
) -> Sequence[Proposal]:
    """Proposals by rules, with what judged mistakes teach about severity.

    Categories are not taken from there: what was judged are a few models' mistakes, often better
    ones, among which nobody found a failure without a reason. Weaker models have many.
    """
    if lessons is None or lessons.severity is None:
        return proposals
    limits = zip(*(part.tolist() for part in lessons.severity.interval(table)), strict=True)
    return [
        structs.replace(item, severity_probability=p, severity_low=low, severity_high=high)
        for item, (p, low, high) in zip(proposals, limits, strict=True)
    ]


def _lessons(table: EvidenceTable, judgements: Sequence[Judgement]) -> Lessons | None:
    """What judged mistakes of these images teach; None where they are too few."""
    judged = decided(judged_kinds(judgements))
    try:
        return lessons_from(table, judged) if judged else None
    except NotApplicable:
        return None


def mistake_records(
    study: Study,
    measured: Sequence[Measured],
    reading: Reading,
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Tally | Score]:
    """Tallies by model and slice, and scores of the leading metric with mistakes forgiven."""
    testset = study.verdicts.testset
    cluster = cluster_column(testset, reading.cluster)
    records: list[Tally | Score] = []
    records += tally(study, by=reading.slices(testset), cluster=cluster, level=level)
    for item in forgiven(study, measured[:1]):
        records += scores(item, cluster=cluster, seed=seed, replicates=replicates, level=level)
    return records


DEFAULT_METRICS = {
    "single": ("top1", "top5"),
    "real": ("real",),
    "multilabel": ("mla", "mla_micro", "mla_correct_only", "mla_upper"),
}

ON_ERROR = ("wrong", "drop")


def default_metrics(testset: TestSet, truth: str | None = None) -> tuple[str, ...]:
    """The metrics that a truth names on the card, or those that fit its kind."""
    name = truth or testset.card.default_truth
    testset.truth(name)
    where = testset.card.truths[name]
    if where.get("metrics"):
        return tuple(where["metrics"])
    return DEFAULT_METRICS.get(where.get("kind", "single"), DEFAULT_METRICS["single"])


def stored_predictions(
    testset: TestSet, models: Sequence[str], *, workspace: Workspace, exclude: Sequence[str] = ()
) -> Iterator[Predictions]:
    """The stored predictions that model arguments mean, read one at a time.

    Those of images that have changed since are refused; where the images are not at hand, what is
    stored counts.
    """
    store = PredictionStore(workspace.predictions)
    runs = store.select(testset.card.images_hash, models, testset=testset.name, exclude=exclude)
    if not runs:
        raise NotFound(f"every model of {testset.name} is excluded", fix="exclude fewer")
    current = CurrentImages(testset, workspace=workspace)
    for run in runs:
        current.check(run)
        yield store.read(run)


def evaluate(
    models: Choice | Sequence[Choice],
    testsets: str | TestSet | Sequence[str | TestSet],
    *,
    metrics: Sequence[str] | None = None,
    truth: str | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
    axes: Sequence[Axes] = AXES,
    reference: ReferenceLine | str | None = None,
    label_map: LabelMap | None = None,
    exclude: Sequence[str] = (),
    cluster: str | None = None,
    balance: str | None = None,
    curves: bool | None = None,
    ranks: bool = False,
    mistakes: bool = False,
    absent_classes: str = "error",
    on_error: str = "wrong",
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    minimum_n: int = MINIMUM_N,
    images: ImageSource | Path | str | None = None,
    keep: str = "logits",
    fast: bool = False,
    workers: int | None = None,
    model_args: Mapping[str, Any] | None = None,
    show: ShowProgress | None = None,
    workspace: Workspace | Path | str | None = None,
) -> Results:
    """Score models on test sets: records with intervals, slices, ranks, and fits to a baseline.

    ``models``    models to run: objects with the :class:`~heldout.models.adapters.Model` protocol, or names
                  that can be loaded, such as ``lite0`` or ``onnx:model.onnx``; they are predicted
                  first, unless exactly these weights with this preprocessing are stored. Any
                  other name, a glob, ``all`` or ``name@key`` means stored predictions.
                  :class:`Predictions` in memory are taken as they are
    ``testsets``  names, aliases or paths, or :class:`TestSet` in memory
    ``by``        columns, conjunctions or binned columns to slice by, such as
                  ``["domain", "x&y", "selection_frequency@0.2,0.4"]``; by default the factors
                  that a test set declares
    ``cluster``, ``balance``, ``curves``  how results are read along columns: see
                  :class:`Reading`
    ``mistakes``  adds tallies of mistakes by category, severity and slice, and accuracy with some
                  of them forgiven: see :func:`study_mistakes`
    ``baseline``  name of one of the test sets: adds fits of the others against it
    ``reference`` a line, or ``published`` (or one of the published sources, such as ``timm``) for
                  the built-in ones: adds effective robustness against the baseline; fits are then
                  left out where there are too few models for a line of their own
    ``on_error``  images without an output count as ``wrong``; ``drop`` leaves out those that any
                  model failed on, and records how many (``n_dropped``)
    ``images``, ``keep``, ``fast``, ``workers``, ``model_args``, ``show``  for models that run:
                  where the image files are if not where the set says, ``logits`` or ``topk``,
                  whether GPUs skip the recheck, worker threads, arguments of models given by name,
                  and progress
    """
    if on_error not in ON_ERROR:
        raise UserError(f"on_error {on_error!r}", fix=f"use {' or '.join(ON_ERROR)}")
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    names = [testsets] if isinstance(testsets, str | TestSet) else list(testsets)
    if not names:
        raise UserError("no test set is named", fix="name one with -t")
    found = distinct([t if isinstance(t, TestSet) else find_testset(place, t) for t in names])
    chosen = choose(models, found, model_args=model_args, workspace=place)
    runs = _run_models(chosen, found, images, keep, fast, workers, show, place)
    reading = Reading(
        by=None if by is None else tuple(by), cluster=cluster, balance=balance, curves=curves
    )
    notes = list(chosen.notes)
    records: list[Record] = []
    measured: list[Measured] = []
    failures: list[FailedImage] = []
    studies: list[Study] = []
    for testset in found:
        failed: FailedRows = {}
        outputs = _predictions(testset, chosen, runs[testset.name], place, exclude, notes, images)
        watching = Watching(testset, truth=truth, label_map=label_map) if mistakes else None
        group = measure(
            testset,
            _noting_failures(outputs, testset, failed, watching),
            metrics=tuple(metrics or default_metrics(testset, truth)),
            truth=truth,
            label_map=label_map,
            absent_classes=absent_classes,
        )
        failures += failed_images(testset, failed)
        if failed and on_error == "drop":
            group = [_dropping(item, set(failed), absent_classes) for item in group]
            records.append(Count(name="n_dropped", value=len(failed), testset=testset.name))
        for item in group:
            records += scores(
                item,
                by=reading.slices(testset),
                cluster=cluster_column(testset, cluster),
                seed=seed,
                replicates=replicates,
                level=level,
                minimum_n=minimum_n,
            )
            records += reading.curve_records(item, seed=seed, replicates=replicates, level=level)
            if ranks and item.metric.counted:
                own = cluster_column(testset, cluster)
                records += rank_scores(item, cluster=own, level=level)
            if item.metric.per_class:
                records += class_counts(item)
        records += counts(group)
        measured += group
        if watching is not None and watching.refused:
            notes.append(f"mistakes are not counted: {watching.refused}")
        elif watching is not None:
            dropped = failed if on_error == "drop" else ()
            study = watching.study(without=dropped, workspace=place)
            studies.append(study)
            records += mistake_records(
                study, group, reading, seed=seed, replicates=replicates, level=level
            )
    notes += reading_notes(records)
    for entry in by or ():
        if not any(has_columns(testset, entry) for testset in found):
            raise NotFound(
                f"no test set has the column {entry!r}", fix="heldout ls --columns lists them"
            )
    if reference is not None and baseline is None:
        raise UserError("effective robustness needs a baseline", fix="name it with baseline=")
    if baseline is not None:
        if reference is None or len(measured[0].models) >= MINIMUM_MODELS:
            fits, why_none = fits_or_notes(
                measured, baseline, axes=axes, seed=seed, replicates=replicates, level=level
            )
            records += fits
            notes += why_none
        if reference is not None:
            records += robustness_to_baseline(measured, baseline, reference, level=level)
    return Results(tuple(records), tuple(notes), tuple(measured), tuple(failures), tuple(studies))


def _noting_failures(
    outputs: Iterable[Predictions],
    testset: TestSet,
    failed: FailedRows,
    watching: Watching | None,
) -> Iterator[Predictions]:
    """The same predictions; images that they have no output for are gathered in ``failed``."""
    for predictions in outputs:
        note_failures(predictions, testset, failed)
        if watching is not None:
            watching.see(predictions)
        yield predictions


def _dropping(measured: Measured, failed: set[int], absent_classes: str) -> Measured:
    """What was measured, without the images that failed."""
    kept = np.flatnonzero(~np.isin(measured.rows, list(failed)))
    name, metric = measured.testset.name, measured.metric
    if not len(kept):
        raise NotApplicable(f"every image of {name} failed", fix="leave out --on-error drop")
    found = measured.select(kept)
    if metric.average == "classes" and absent_classes == "error":
        lost = len(np.unique(measured.groups)) - len(np.unique(found.groups))
        if lost:
            raise NotApplicable(
                f"{metric.name}: {lost} of the classes of {name} lost all their images to failures",
                fix="--absent-classes skip averages over the classes that are there",
            )
    return found


def fits_to_baseline(
    measured: Sequence[Measured],
    baseline: str,
    *,
    metric: str | None = None,
    axes: Sequence[Axes] = AXES,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Fit]:
    """Fit records of every other set against the baseline, on its first metric unless one is named."""
    new, base = _against(measured, baseline, metric)
    return fit_lines(new, base, axes=axes, seed=seed, replicates=replicates, level=level)


def fits_or_notes(
    measured: Sequence[Measured], baseline: str, **options: Any
) -> tuple[list[Fit], list[str]]:
    """What :func:`fits_to_baseline` gives, or, where models have no line, why; scores stand anyway."""
    new, base = _against(measured, baseline, None)
    try:
        return fit_lines(new, base, **options), []
    except NotApplicable as refused:
        return [], [f"no line against {baseline}: {refused}"]


def robustness_to_baseline(
    measured: Sequence[Measured],
    baseline: str,
    reference: ReferenceLine | str = "published",
    *,
    level: float = LEVEL,
) -> list[Score]:
    """Effective robustness (top-1) of every other set against the baseline; see :func:`evaluate`."""
    new, base = _against(measured, baseline, "top1")
    records: list[Score] = []
    for item in new:
        if isinstance(reference, ReferenceLine):
            line = reference
        else:
            line = line_between(item, base, source=None if reference == "published" else reference)
        records += robustness_scores(item, base, line, level=level)
    return records


def evaluate_revisions(
    models: Sequence[str],
    revisions: Sequence[str],
    stored: Sequence[str],
    *,
    metrics: Sequence[str] = ("top1",),
    truth: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    workspace: Workspace | Path | str | None = None,
) -> Results:
    """Score revisions of a test set with the predictions stored for others, pooled by image id.

    ``models``  names or globs, all by default; ``revisions`` and ``stored`` name test sets; where
    two stored sets hold an image, the first one named is believed. Each score states its coverage.
    """
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    pools: dict[str, list[Predictions]] = {}
    for name in stored:
        for item in stored_predictions(find_testset(place, name), models, workspace=place):
            pools.setdefault(item.model, []).append(item)
    found = [find_testset(place, name) for name in revisions]
    records = score_revisions(
        found, pools, metrics=metrics, truth=truth, seed=seed, replicates=replicates, level=level
    )
    return Results(tuple(records))


def _against(
    measured: Sequence[Measured], baseline: str, metric: str | None
) -> tuple[list[Measured], Measured]:
    """The other sets' measurements and the baseline's, of one metric: its first unless one is named."""
    base = [m for m in measured if baseline in (m.testset.name, *m.testset.card.aliases)]
    if not base:
        raise NotFound(
            f"baseline {baseline!r} is not among the measured test sets", fix="add it with -t"
        )
    if metric is not None:
        base = [m for m in base if m.metric.name == metric]
    if not base:
        raise NotApplicable(
            f"{metric} was not measured on {baseline}", fix=f"add the metric {metric}"
        )
    name = base[0].metric.name
    new = [m for m in measured if m.metric.name == name and m.testset.name != base[0].testset.name]
    if not new:
        raise NotApplicable(
            f"there is no test set beside the baseline {baseline}", fix="add one with -t"
        )
    return new, base[0]


def _run_models(
    chosen: Chosen,
    testsets: Sequence[TestSet],
    images: ImageSource | Path | str | None,
    keep: str,
    fast: bool,
    workers: int | None,
    show: ShowProgress | None,
    workspace: Workspace,
) -> dict[str, tuple[StoredRun, ...]]:
    """By test set: the stored runs of the models that had to run, or were stored already."""
    if not chosen.models:
        return {testset.name: () for testset in testsets}
    predicted = predict_all(
        testsets,
        chosen.models,
        workspace=workspace,
        images=images,
        keep=keep,
        fast=fast,
        workers=workers,
        show=show,
    )
    return {item.testset.name: item.runs for item in predicted}


def _predictions(
    testset: TestSet,
    chosen: Chosen,
    ran: Sequence[StoredRun],
    workspace: Workspace,
    exclude: Sequence[str],
    notes: list[str],
    images: ImageSource | Path | str | None,
) -> Iterator[Predictions]:
    """Outputs of all chosen models on a test set, read one at a time."""
    store = PredictionStore(workspace.predictions)
    others = chosen.runs or chosen.models or chosen.files or chosen.outputs
    here = {run.folder for run in ran}
    if chosen.names or not others:
        named = store.select(
            testset.card.images_hash, chosen.names, testset=testset.name, exclude=exclude
        )
        if not named and not others:
            raise NotFound(f"every model of {testset.name} is excluded", fix="exclude fewer")
        current = CurrentImages(testset, workspace=workspace, images=images)
        for run in named:
            if run.folder not in here:  # "all" finds what has just run, too
                current.check(run)
                yield store.read(run)
    for run in (*chosen.runs, *ran):
        yield store.read(run)
    for file in chosen.files:
        predictions, noted = read_file(file, testset)
        notes += noted
        yield predictions
    yield from chosen.outputs


ABSENT_CLASSES = ("error", "skip")


def check_absent_classes(value: str) -> str:
    """``error`` or ``skip``."""
    if value not in ABSENT_CLASSES:
        raise UserError(f"--absent-classes {value!r}", fix="use error or skip")
    return value


def label_map_argument(
    text: str | None,
    testsets: Sequence[str],
    models: Sequence[str],
    *,
    workspace: Workspace | Path | str | None = None,
) -> LabelMap | None:
    """The label map that an argument names; ``subset:…`` and ``hierarchy:…`` fit the test set."""
    if text is None or text == "identity":
        return None
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    testset = find_testset(place, testsets[0])
    store = PredictionStore(place.predictions)
    runs = store.select(testset.card.images_hash, models, testset=testset.name)
    return load_label_map(text, source=runs[0].label_space, target=testset.label_space)


def reference_argument(text: str | None) -> ReferenceLine | str | None:
    """The line that ``--reference`` names: a published source, or ``FILE.csv:X:Y`` (columns X and Y)."""
    if text is None or not text.partition(":")[0].endswith(".csv"):
        return text
    path, _, columns = text.partition(":")
    x, colon, y = columns.partition(":")
    if not colon:
        raise UserError(
            f"--reference {text!r}", fix="write FILE.csv:X:Y with the columns of accuracies"
        )
    return reference_line(read_population([Path(path)], x=x, y=y))


def write_confusions(
    testsets: Sequence[str],
    models: Sequence[str],
    folder: Path,
    *,
    truth: str | None = None,
    label_map: LabelMap | None = None,
    workspace: Workspace | Path | str | None = None,
) -> list[Path]:
    """One CSV a test set and model with the counts of every (class, guess) pair."""
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    written = []
    for name in testsets:
        testset = find_testset(place, name)
        outputs = stored_predictions(testset, models, workspace=place)
        (measured,) = measure(
            testset, outputs, metrics=["recall"], truth=truth, label_map=label_map
        )
        for model in measured.models:
            path = folder / slug(testset.name) / f"{slug(model)}.csv"
            confusion_matrix(measured, model).write(path)
            written.append(path)
    return written

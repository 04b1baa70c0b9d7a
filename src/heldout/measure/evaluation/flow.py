"""One evaluation: outputs read once, measured, scored, compared; failed images wrong or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

import numpy as np
from msgspec import structs

from heldout.core.context import Context, Result
from heldout.core.errors import NotApplicable, NotFound
from heldout.core.records import Count
from heldout.core.workspace import Workspace
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.labels import LabelMap, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.doctor.diagnose import diagnose
from heldout.measure.doctor.findings import merged_lines
from heldout.measure.evaluation.headlines import claims, headline_lines, headlines
from heldout.measure.evaluation.prediction import (
    FailedImage,
    FailedRows,
    failed_images,
    note_failures,
)
from heldout.measure.evaluation.requests import ScoreRequest
from heldout.measure.evaluation.resolve import Evaluation, image_source
from heldout.measure.mistakes.categories import (
    Lessons,
    Proposal,
    decided,
    lessons_from,
    propose,
    reliability,
)
from heldout.measure.mistakes.evidence import EvidenceTable, evidence_table, named_knowledge
from heldout.measure.mistakes.panel import JUDGED, judged_kinds, kinds_of
from heldout.measure.mistakes.requests import EvidenceSources
from heldout.measure.mistakes.tally import Study, forgiven, joined, tally, without_images
from heldout.measure.mistakes.verdicts import Key, Verdicts, mistakes_of, verdicts
from heldout.measure.score.compare import Contrasts, contrasts, simultaneous
from heldout.measure.score.curve_summaries import curve_records
from heldout.measure.score.estimate import (
    IntervalOptions,
    class_counts,
    counts,
    rank_scores,
    scores,
)
from heldout.measure.score.fits import (
    ReferenceLine,
    fit_lines,
    line_between,
    robustness_scores,
)
from heldout.measure.score.measure import Measured, measure
from heldout.measure.score.metrics import get_metric
from heldout.measure.score.records import Comparison, Fit, Leak, Record, Score, Summary, Tally
from heldout.measure.score.slices import ALL, entry_columns
from heldout.models.predictions import Predictions, PredictionStore, StoredRun, top_k
from heldout.models.predictions.ledger import CurrentImages, stored_predictions

R = TypeVar("R")

MOST_PAIRED = 3
"""Pairs of models that an evaluation compares along a factor without being asked."""


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


@dataclass(repr=False)
class Results(Result):
    """Records of an evaluation, what was noticed on the way, and the values behind the records.

    ``failures`` lists every image that some model has no output for; ``studies`` hold the mistakes
    behind the tallies, where these were asked for; ``baseline`` is the set that the others are
    compared with.
    """

    measured: tuple[Measured, ...] = ()
    failures: tuple[FailedImage, ...] = ()
    studies: tuple[Study, ...] = ()
    baseline: str | None = None

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """The records of one kind."""
        return tuple(record for record in self.records if isinstance(record, kind))

    @property
    def scores(self) -> tuple[Score, ...]:
        """The scores as such; ranks, worst slices and scores with mistakes forgiven are in ``of(Score)``."""
        return tuple(score for score in self.of(Score) if score.statistic == "value")

    @property
    def fits(self) -> tuple[Fit, ...]:
        """The fit records."""
        return self.of(Fit)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparison records."""
        return self.of(Comparison)

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The summary records."""
        return self.of(Summary)

    @property
    def counts(self) -> tuple[Count, ...]:
        """The count records."""
        return self.of(Count)

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """The tally records."""
        return self.of(Tally)


class MistakeCollector:
    """Looks at every model's outputs as they pass, and keeps only its verdicts.

    ``refused`` says why there are none: a truth may have no image whose mistakes count, though some
    metric counts it.
    """

    def __init__(
        self, testset: TestSet, *, truth: str | None, label_map: LabelMap | None = None
    ) -> None:
        self._testset = testset
        self._truth = truth
        self._label_map = label_map
        self._parts: list[Verdicts] = []
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

    def study(
        self,
        *,
        without: Iterable[int] = (),
        workspace: Workspace,
        evidence: EvidenceSources | None = None,
        note: Callable[[str], object] = str,
    ) -> Study:
        """The study of all that was seen, ``without`` some rows of the images table."""
        found = joined(self._parts)
        rows = list(without)
        return study_mistakes(
            without_images(found, rows) if rows else found,
            evidence=evidence,
            label_map=self._label_map,
            workspace=workspace,
            note=note,
        )


def study_mistakes(
    found: Verdicts,
    *,
    evidence: EvidenceSources | None = None,
    label_map: LabelMap | None = None,
    workspace: Workspace,
    note: Callable[[str], object] = str,
) -> Study:
    """Every mistake with its kind: as the workspace's judgements say, else as evidence proposes.

    Proposals come from the hierarchy of the classes and from what ``evidence`` names, whatever the
    models of the verdicts are.
    """
    mistakes = mistakes_of(found)
    judgements = judgements_about(found.testset, workspace.judgements, questions=("mistake",))
    judged = decided(judged_kinds(judgements))
    knowledge = named_knowledge(
        found.testset,
        evidence or EvidenceSources(),
        truth=found.truth.name,
        workspace=workspace,
        label_map=label_map,
        note=note,
    )
    table = evidence_table(mistakes, knowledge)
    proposals = _with_severity(propose(table), table, _lessons(table, judged))
    kinds = kinds_of(mistakes, judgements=judgements, proposals=proposals)
    sources = [knowledge.sources or "nothing", reliability(table, proposals, judged)]
    proposed = any(kind.basis != JUDGED for kind in kinds.values())
    return Study(
        verdicts=found,
        mistakes=mistakes,
        kinds=kinds,
        evidence="; ".join(sources) if proposed else "",
        named=evidence is not None and evidence.named,
    )


def _with_severity(
    proposals: Sequence[Proposal], table: EvidenceTable, lessons: Lessons | None
) -> Sequence[Proposal]:
    """Proposals by rules, with what judged mistakes teach about severity.

    Categories are not taken from there: the judged mistakes are those of a few good models, among
    which nobody found a failure without a reason. Weaker models have many.
    """
    if lessons is None or lessons.severity is None:
        return proposals
    limits = zip(*(part.tolist() for part in lessons.severity.interval(table)), strict=True)
    return [
        structs.replace(item, severity_probability=p, severity_low=low, severity_high=high)
        for item, (p, low, high) in zip(proposals, limits, strict=True)
    ]


def _lessons(table: EvidenceTable, judged: Mapping[Key, tuple[str, str]]) -> Lessons | None:
    """What judged mistakes of these images teach; None where they are too few."""
    try:
        return lessons_from(table, judged) if judged else None
    except NotApplicable:
        return None


MOST_COMPARED = 10
"""With more models than this, only the best as observed is compared with each other one."""


def measure_outputs(job: Evaluation, ran: Sequence[Sequence[StoredRun]] | None = None) -> Results:
    """Read every output once and make the records; ``ran`` are the runs of models that ran, by set."""
    request = job.request
    notes = list(job.chosen.notes)
    told: set[str] = set()
    records: list[Record] = []
    measured: list[Measured] = []
    failures: list[FailedImage] = []
    studies: list[Study] = []
    compared: list[Contrasts] = []
    runs = ran or [() for _ in job.testsets]
    for testset, full, stored in zip(job.testsets, job.whole, runs, strict=True):
        outputs = find_outputs(job, testset, full, stored, notes)
        label_map = job.map_from(outputs[0].label_space, testset)
        metrics = job.metrics_of(testset)
        seen = OutputReader(testset, outputs, metrics, label_map)
        failed = seen.failed
        collector = None
        if request.mistakes:
            collector = MistakeCollector(testset, truth=request.truth, label_map=label_map)
        group = measure(
            testset,
            seen.read(collector),
            # A gate is of a score that must be there.
            metrics=metrics if job.gates else request.metrics,
            truth=request.truth,
            label_map=label_map,
            absent_classes=request.absent_classes,
            notes=notes,
        )
        notes += merged_lines(diagnose(testset, seen.guesses, cheap=True), told)
        failures += failed_images(testset, failed)
        dropped = failed if request.on_error == "drop" else {}
        if dropped:
            group = [_dropping(item, set(dropped), request.absent_classes) for item in group]
            records.append(Count(name="n_dropped", value=len(dropped), testset=testset.name))
        records += _score_records(group, job)
        if collector is not None and collector.refused:
            notes.append(f"mistakes are not counted: {collector.refused}")
        elif collector is not None:
            study = collector.study(
                without=dropped,
                workspace=job.context.workspace,
                evidence=request,
                note=notes.append,
            )
            studies.append(study)
            if study.evidence:
                notes.append(f"{testset.name}: categories of mistakes rest on {study.evidence}")
            records += _mistake_records(study, group, job)
        records += _leak_records(group, job, notes)
        compared += _contrasts([m for m in group if not m.metric.per_class][:1], job)
        measured += group
    records += simultaneous(compared, level=job.request.level)
    notes += reading_notes(records)
    if job.baseline is not None:
        records += _against_baseline(measured, job, notes)
    for text in dict.fromkeys(notes):
        job.context.note(text)
    leading = {m.testset.name: m for m in reversed(measured) if not m.metric.per_class}
    records += list(claims([leading[name] for name in reversed(leading)], records, job))
    return Results(
        records=tuple(records),
        brief=[*headlines(records), *(record for record in records if isinstance(record, Leak))],
        lines=list(headline_lines(records)),
        measured=tuple(measured),
        failures=tuple(failures),
        studies=tuple(studies),
        baseline=job.baseline,
    )


def _leak_records(group: Sequence[Measured], job: Evaluation, notes: list[str]) -> Iterator[Record]:
    """What images that another set holds too add to the scores, where the workspace knows of any."""
    testset = group[0].testset
    if not (job.context.workspace.root / "duplicates").is_dir():
        return
    from heldout.measure.evaluation.leaks import known_leaks, leak_records

    leaks = known_leaks(testset, job.context.workspace)
    notes += [f"{testset.name}: {line}" for line in leaks.lines]
    options = IntervalOptions(**job.drawn)
    yield from leak_records(group, leaks, cluster=job.cluster(testset), options=options)


def _against_baseline(
    measured: Sequence[Measured], job: Evaluation, notes: list[str]
) -> Iterator[Fit | Score]:
    """Lines through enough models, and effective robustness where a reference is named.

    What cannot be computed is a note: the scores are there without it.
    """
    baseline = str(job.baseline)
    try:
        request = job.request
        yield from fit_lines(
            *against(measured, baseline), cluster=request.cluster, level=request.level
        )
    except NotApplicable as refused:
        notes.append(f"no line against {baseline}: {refused}")
    if job.reference is None:
        return
    try:
        new, base = against(measured, baseline, "top1")
        source = None if job.reference == "published" else job.reference
        for item in new:
            line = (
                source
                if isinstance(source, ReferenceLine)
                else line_between(item, base, source=source)
            )
            yield from robustness_scores(item, base, line, cluster=job.request.cluster, **job.drawn)
    except (NotApplicable, NotFound) as refused:
        notes.append(f"no effective robustness against {baseline}: {refused}")


def find_outputs(
    job: Evaluation,
    testset: TestSet,
    full: TestSet,
    ran: Sequence[StoredRun] = (),
    notes: list[str] | None = None,
) -> list[StoredRun | Predictions]:
    """Outputs of all chosen models on a test set; what is stored is not read yet.

    ``full``  the test set that ``testset`` is a sample of: a file has rows for all of it
    """
    chosen, workspace = job.chosen, job.context.workspace
    found: list[StoredRun | Predictions] = []
    others = chosen.models or chosen.files or chosen.outputs
    here = {run.folder for run in ran}
    if chosen.names or not others:
        named = PredictionStore(workspace.predictions).select(
            testset.card.images_hash,
            chosen.names,
            testset=testset.name,
            exclude=job.request.exclude,
        )
        if not named and not others:
            raise NotFound(f"every model of {testset.name} is excluded", fix="exclude fewer")
        current = CurrentImages(
            testset, workspace=workspace, images=image_source(job.request, job.context)
        )
        for run in named:
            if run.folder not in here:  # "all" finds what has just run, too
                current.check(run)
                found.append(run)
    found += ran
    if chosen.files:
        from heldout.models.predictions.import_predictions import import_predictions
    for file in chosen.files:
        imported = import_predictions(file.path, full, model=file.name)
        (notes if notes is not None else []).extend(imported.run["notes"])
        found.append(imported)
    return [*found, *chosen.outputs]


def read_outputs(job: Evaluation, testset: TestSet) -> Iterator[Predictions]:
    """The outputs of all chosen models on a test set, one at a time."""
    return map(read_output, find_outputs(job, testset, testset))


def read_output(output: StoredRun | Predictions, *, values: bool = True) -> Predictions:
    """One model's outputs; those that are stored without logits unless ``values``."""
    if isinstance(output, Predictions):
        return output
    return PredictionStore(output.folder.parents[1]).read(output, values=values)


def _score_records(group: Sequence[Measured], job: Evaluation) -> Iterator[Record]:
    """Scores, curves, ranks and counts of all metrics on one test set."""
    for item in group:
        testset = item.testset
        cluster = job.cluster(testset)
        yield from scores(
            item,
            by=job.slices(testset),
            cluster=cluster,
            minimum_n=job.request.minimum_n,
            **job.drawn,
        )
        yield from curve_records(
            item,
            job.curve_entries(testset),
            cluster=cluster,
            balance=job.request.balance,
            **job.drawn,
        )
        if len(item.models) > 1 and item.metric.counted:
            yield from rank_scores(
                item, cluster=cluster, seed=job.request.seed, level=job.request.level
            )
        if item.metric.per_class:
            yield from class_counts(item)
    yield from counts(group)


def _mistake_records(
    study: Study, measured: Sequence[Measured], job: Evaluation
) -> Iterator[Tally | Score]:
    """Tallies by model and slice, and scores of the leading metric with mistakes forgiven."""
    testset = study.verdicts.testset
    cluster = job.cluster(testset)
    yield from tally(study, by=job.slices(testset), cluster=cluster, level=job.request.level)
    for item in forgiven(study, measured[:1]):
        for score in scores(item, cluster=cluster, **job.drawn):
            yield replace(score, evidence=study.evidence)


def _contrasts(leading: Sequence[Measured], job: Evaluation) -> Iterator[Contrasts]:
    """Pairs of models on the leading metric: on the whole set, and at every value of a factor."""
    for measured in leading:
        models = measured.models
        pairs = list(combinations(models, 2))
        many = len(models) > MOST_COMPARED
        if many:
            sign = 1 if measured.metric.higher_is_better else -1
            best = models[int((sign * measured.one_row_per_image().estimates()).argmax())]
            pairs = [(best, other) for other in models if other != best]
        if pairs:
            cluster = job.cluster(measured.testset)
            yield from contrasts(measured, pairs, of_all=many, cluster=cluster, **job.drawn)
            yield from factor_contrasts(measured, pairs, job)


def factor_contrasts(
    measured: Measured, pairs: Sequence[tuple[str, str]], job: Evaluation
) -> Iterator[Contrasts]:
    """Pairs of models at every value of each single factor."""
    if len(pairs) > MOST_PAIRED or not measured.metric.counted:
        return
    testset = measured.testset
    single = [e for e in job.curve_entries(testset) if len(entry_columns(e, testset)) == 1]
    cluster = job.cluster(testset)
    yield from contrasts(measured, pairs, by=single, whole=False, cluster=cluster, **job.drawn)


class OutputReader:
    """Reads every output once: logits only where a metric or the label map needs them.

    ``failed``   images without an output
    ``guesses``  what the doctor's cheap checks look at: outputs without logits; under a label map
                 what is judged, guesses in the set's own classes
    """

    def __init__(
        self,
        testset: TestSet,
        outputs: Sequence[StoredRun | Predictions],
        metrics: Sequence[str],
        label_map: LabelMap | None,
    ) -> None:
        self._testset, self._outputs, self._label_map = testset, outputs, label_map
        chosen = [get_metric(name) for name in metrics]
        restricted = label_map is not None and label_map.reading == "restricted"
        self._logits = restricted or any(metric.needs_logits for metric in chosen)
        self._ranks = max(metric.ranks for metric in chosen)
        own = testset.label_space.fingerprint
        self._mapped = label_map is not None and (
            not label_map.overlaps and label_map.target.fingerprint == own
        )
        self.failed: FailedRows = {}
        self.guesses: list[Predictions] = []

    def read(self, collector: MistakeCollector | None) -> Iterator[Predictions]:
        """The outputs one at a time."""
        for item in self._outputs:
            more = isinstance(item, StoredRun) and item.run["top_k"] < self._ranks
            found = read_output(item, values=self._logits or more)
            note_failures(found, self._testset, self.failed)
            if collector is not None:
                collector.see(found)
            if self._mapped and self._label_map is not None:
                self.guesses.append(_mapped(found, self._label_map))
            else:
                self.guesses.append(replace(found, logits=None, stored_hash=found.hash))
            yield found


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


def score_pooled(request: ScoreRequest, context: Context) -> Results:
    """Score revisions of a test set with the predictions stored for others, pooled by image id.

    Where two stored sets hold an image, the first one named is believed. Each score states its
    coverage.
    """
    from heldout.measure.score.revisions import score_revisions

    notes: list[str] = []
    pools: dict[str, list[Predictions]] = {}
    for name in request.pooled:
        testset = context.find(name, find_testset)
        for item in stored_predictions(testset, request.models, workspace=context.workspace):
            pools.setdefault(item.model, []).append(item)
    records = score_revisions(
        [context.find(name, find_testset) for name in request.testsets],
        pools,
        metrics=request.metrics,
        truth=request.truth,
        seed=request.seed,
        replicates=request.replicates,
        level=request.level,
        notes=notes,
    )
    for text in dict.fromkeys(notes):
        context.note(text)
    return Results(records=tuple(records))


def against(
    measured: Sequence[Measured], baseline: str, metric: str | None = None
) -> tuple[list[Measured], Measured]:
    """The other sets' measurements and the baseline's, of one metric: its first unless one is named."""
    of_baseline = [m for m in measured if m.testset.name == baseline]
    base = [m for m in of_baseline if metric in (None, m.metric.name)]
    if not base:
        raise NotApplicable(
            f"{metric} was not measured on {baseline}", fix=f"add the metric {metric}"
        )
    name = base[0].metric.name
    new = [m for m in measured if m.metric.name == name and m.testset.name != baseline]
    if not new:
        raise NotApplicable(
            f"{name} was measured on no test set beside the baseline {baseline}",
            fix=f"add one with -t, or --metric {name}",
        )
    return new, base[0]


def label_map_argument(
    text: str | None, testsets: Sequence[str], models: Sequence[str], *, workspace: Workspace
) -> LabelMap | None:
    """The label map that an argument names; ``subset:…`` and ``hierarchy:…`` fit the test set."""
    if text is None or text == "identity":
        return None
    testset = find_testset(workspace, testsets[0])
    store = PredictionStore(workspace.predictions)
    runs = store.select(testset.card.images_hash, models, testset=testset.name)
    return load_label_map(text, source=runs[0].label_space, target=testset.label_space)


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

"""What ``heldout.evaluate`` does: outputs measured, scored, gathered; failed images wrong or dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.extras import require
from heldout.core.records import Count, to_dict, to_json
from heldout.core.workspace import Workspace, slug
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels import LabelMap, load_label_map
from heldout.data.testset import TestSet, find_testset
from heldout.measure.doctor.diagnose import diagnose
from heldout.measure.doctor.findings import merged_lines
from heldout.measure.evaluation.options import Options, check_options
from heldout.measure.evaluation.prediction import (
    Choice,
    Chosen,
    FailedImage,
    FailedRows,
    Forecast,
    ShowProgress,
    choose,
    distinct,
    failed_images,
    forecast,
    limited,
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
from heldout.measure.score.records import Comparison, Fit, Record, Score, Summary, Tally
from heldout.measure.score.revisions import score_revisions
from heldout.measure.score.slices import ALL, cluster_column, entry_columns
from heldout.models.adapters import Model, PredictionFile
from heldout.models.predictions import Predictions, PredictionStore, StoredRun, top_k
from heldout.models.predictions.ledger import CurrentImages
from heldout.models.predictions.ledger import stored_predictions as stored_predictions

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


class MistakeCollector:
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


MOST_COMPARED = 10
"""With more models than this, only the best is compared with each other one."""


def find_testsets(testsets: Sequence[str | TestSet], *, workspace: Workspace) -> list[TestSet]:
    """The test sets that arguments mean, each once, whole."""
    if not testsets:
        raise UserError("no test set is named", fix="name one with -t")
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
    chosen = choose(models, found, workspace=workspace)
    check_options(options, found, chosen.models)
    return [
        forecast(
            limited(testset, options.limit),
            chosen.models,
            workspace=workspace,
            images=options.images,
            keep=options.keep,
            fast=options.fast,
            workers=options.workers,
        )
        for testset in found
        if chosen.models
    ]


def evaluate(
    models: Choice | Sequence[Choice],
    testsets: str | TestSet | Sequence[str | TestSet],
    *,
    show: ShowProgress | None = None,
    workspace: Workspace | Path | str | None = None,
    **options: Any,
) -> Results:
    """Score models on test sets: records with intervals, slices, ranks, and fits to a baseline.

    ``models``    models to run: objects with the :class:`~heldout.models.adapters.Model` protocol, or names
                  that can be loaded, such as ``lite0`` or ``onnx:model.onnx``; they are predicted
                  first, unless exactly these weights with this preprocessing are stored. Any
                  other name, a glob, ``all`` or ``name@key`` means stored predictions.
                  :class:`Predictions` in memory are taken as they are
    ``testsets``  names, aliases or paths, or :class:`TestSet` in memory
    ``options``   those of :class:`~heldout.measure.evaluation.options.Options`; comparisons, ranks
                  and checks only where asked for
    """
    asked: dict[str, Any] = {"compare": False, "ranks": False, "checks": False}
    asked |= {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
    asked["metrics"] = asked.get("metrics") or ()
    names = [testsets] if isinstance(testsets, str | TestSet) else list(testsets)
    place = workspace if isinstance(workspace, Workspace) else Workspace.find(workspace)
    return evaluate_models(models, names, Options(**asked), workspace=place, show=show)


def evaluate_models(
    models: Choice | Sequence[Choice],
    testsets: Sequence[str | TestSet],
    options: Options,
    *,
    workspace: Workspace,
    show: ShowProgress | None = None,
) -> Results:
    """Evaluate models on test sets: run what is missing, then measure, score, compare and fit."""
    whole = find_testsets(testsets, workspace=workspace)
    chosen = choose(models, whole, model_args=options.model_args, workspace=workspace)
    check_options(options, whole, chosen.models)
    found = [limited(testset, options.limit) for testset in whole]
    ran: list[tuple[StoredRun, ...]] = [() for _ in found]
    if chosen.models:
        predicted = predict_all(
            found,
            chosen.models,
            workspace=workspace,
            images=options.images,
            keep=options.keep,
            fast=options.fast,
            workers=options.workers,
            retry=options.retry_failed,
            show=show,
        )
        ran = [item.runs for item in predicted]
    notes = list(chosen.notes)
    records: list[Record] = []
    measured: list[Measured] = []
    failures: list[FailedImage] = []
    studies: list[Study] = []
    for testset, full, runs in zip(found, whole, ran, strict=True):
        outputs = _outputs(testset, full, chosen, runs, options, workspace, notes)
        label_map = options.map_from(outputs[0].label_space, testset)
        if options.checks:
            notes += check_outputs(testset, outputs, label_map=label_map)
        failed: FailedRows = {}
        collector = None
        if options.mistakes:
            collector = MistakeCollector(testset, truth=options.truth, label_map=label_map)
        group = measure(
            testset,
            _noting_failures(_read(outputs), testset, failed, collector),
            metrics=options.metrics_of(testset),
            truth=options.truth,
            label_map=label_map,
            absent_classes=options.absent_classes,
        )
        failures += failed_images(testset, failed)
        dropped = failed if options.on_error == "drop" else {}
        if dropped:
            group = [_dropping(item, set(dropped), options.absent_classes) for item in group]
            records.append(Count(name="n_dropped", value=len(dropped), testset=testset.name))
        records += _score_records(group, options)
        if collector is not None and collector.refused:
            notes.append(f"mistakes are not counted: {collector.refused}")
        elif collector is not None:
            study = collector.study(without=dropped, workspace=workspace)
            studies.append(study)
            records += _mistake_records(study, group, options)
        if options.compare:
            records += _comparisons([m for m in group if not m.metric.per_class][:1], options)
        measured += group
    notes += reading_notes(records)
    if options.baseline is not None:
        baseline = _limited_name(options.baseline, whole, found)
        enough = len(measured[0].models) >= MINIMUM_MODELS
        if (enough and len(found) > 1) or not (options.compare or options.reference):
            new, base = _against(measured, baseline, None)
            try:
                records += fit_lines(new, base, axes=options.axes, **options.drawn)
            except NotApplicable as refused:  # scores are there without a line
                notes.append(f"no line against {baseline}: {refused}")
        if options.reference is not None:
            records += robustness_to_baseline(
                measured, baseline, options.reference, level=options.level
            )
    return Results(
        tuple(records),
        tuple(_shortened(notes)),
        tuple(measured),
        tuple(failures),
        tuple(studies),
    )


def _outputs(
    testset: TestSet,
    full: TestSet,
    chosen: Chosen,
    ran: Sequence[StoredRun],
    options: Options,
    workspace: Workspace,
    notes: list[str],
) -> list[StoredRun | Predictions]:
    """Outputs of all chosen models on a test set; what is stored is not read yet.

    ``full``  the test set that ``testset`` is a sample of: a file has rows for all of it
    """
    found: list[StoredRun | Predictions] = []
    others = chosen.runs or chosen.models or chosen.files or chosen.outputs
    here = {run.folder for run in ran}
    if chosen.names or not others:
        named = PredictionStore(workspace.predictions).select(
            testset.card.images_hash, chosen.names, testset=testset.name, exclude=options.exclude
        )
        if not named and not others:
            raise NotFound(f"every model of {testset.name} is excluded", fix="exclude fewer")
        current = CurrentImages(testset, workspace=workspace, images=options.images)
        for run in named:
            if run.folder not in here:  # "all" finds what has just run, too
                current.check(run)
                found.append(run)
    found += [*chosen.runs, *ran]
    for file in chosen.files:
        predictions, noted = read_file(file, full)
        notes += noted
        found.append(predictions)
    return [*found, *chosen.outputs]


def _read(outputs: Sequence[StoredRun | Predictions]) -> Iterator[Predictions]:
    for item in outputs:
        if isinstance(item, StoredRun):
            item = PredictionStore(item.folder.parents[1]).read(item)
        yield item


def _score_records(group: Sequence[Measured], options: Options) -> Iterator[Record]:
    """Scores, curves, ranks and counts of all metrics on one test set."""
    for item in group:
        testset = item.testset
        cluster = cluster_column(testset, options.cluster)
        yield from scores(
            item,
            by=options.slices(testset),
            cluster=cluster,
            minimum_n=options.minimum_n,
            **options.drawn,
        )
        yield from curve_records(
            item,
            options.curve_entries(testset),
            cluster=cluster,
            balance=options.balance,
            **options.drawn,
        )
        ranks = len(item.models) > 2 if options.ranks is None else options.ranks
        if ranks and item.metric.counted:
            yield from rank_scores(item, cluster=cluster, level=options.level)
        if item.metric.per_class:
            yield from class_counts(item)
    yield from counts(group)


def _mistake_records(
    study: Study, measured: Sequence[Measured], options: Options
) -> Iterator[Tally | Score]:
    """Tallies by model and slice, and scores of the leading metric with mistakes forgiven."""
    testset = study.verdicts.testset
    cluster = cluster_column(testset, options.cluster)
    yield from tally(study, by=options.slices(testset), cluster=cluster, level=options.level)
    for item in forgiven(study, measured[:1]):
        yield from scores(item, cluster=cluster, **options.drawn)


def _comparisons(leading: Sequence[Measured], options: Options) -> Iterator[Comparison]:
    """Pairs of models on the leading metric: on the whole set, and at every value of a factor."""
    for measured in leading:
        models = measured.models
        pairs = list(combinations(models, 2))
        if len(models) > MOST_COMPARED:
            sign = 1 if measured.metric.higher_is_better else -1
            best = models[int((sign * measured.one_row_per_image().estimates()).argmax())]
            pairs = [(best, other) for other in models if other != best]
        if pairs:
            cluster = cluster_column(measured.testset, options.cluster)
            yield from compare(measured, pairs, cluster=cluster, **options.drawn)
            yield from factor_comparisons(measured, pairs, options)


def factor_comparisons(
    measured: Measured, pairs: Sequence[tuple[str, str]], options: Options
) -> Iterator[Comparison]:
    """Pairs of models at every value of each single factor, corrected factor by factor."""
    if len(pairs) > MOST_PAIRED or not measured.metric.counted:
        return
    cluster = cluster_column(measured.testset, options.cluster)
    for entry in options.curve_entries(measured.testset):
        if len(entry_columns(entry, measured.testset)) == 1:
            yield from compare(
                measured, pairs, by=[entry], whole=False, cluster=cluster, **options.drawn
            )


def _noting_failures(
    outputs: Iterable[Predictions],
    testset: TestSet,
    failed: FailedRows,
    collector: MistakeCollector | None,
) -> Iterator[Predictions]:
    """The same predictions; images that they have no output for are gathered in ``failed``."""
    for predictions in outputs:
        note_failures(predictions, testset, failed)
        if collector is not None:
            collector.see(predictions)
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


def _limited_name(baseline: str, whole: Sequence[TestSet], found: Sequence[TestSet]) -> str:
    """The name under which the baseline was measured: a sample of it where there is a limit."""
    for testset, used in zip(whole, found, strict=True):
        if baseline in (testset.name, *testset.card.aliases):
            return used.name
    return baseline

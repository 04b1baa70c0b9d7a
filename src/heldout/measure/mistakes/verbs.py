"""The verbs that read mistakes: confusions, shared, diff, slices, cooccurrence, summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from heldout.core.context import Context, Result
from heldout.core.errors import UserError
from heldout.core.records import Table, counts
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import SEVERITIES
from heldout.data.labels import LabelSpace, read_superclasses
from heldout.measure.mistakes import requests
from heldout.measure.mistakes.between_models import (
    CHANGES,
    Suspect,
    changed_images,
    changes,
    model_consensus,
    overlaps,
    suspects,
)
from heldout.measure.mistakes.class_similarity import cooccurrence as count_pairs
from heldout.measure.mistakes.confusions import (
    ClassPair,
    Confusions,
    FileComparison,
    compare_with_file,
    confusion_changes,
    read_confusion_file,
    write_confusion_file,
)
from heldout.measure.mistakes.confusions import confusions as confusions_of
from heldout.measure.mistakes.inputs import MistakeInputs, read_inputs, truth_of_kind
from heldout.measure.mistakes.panel import (
    MistakeFile,
    file_agreement,
    panel_answers,
    read_mistake_file,
)
from heldout.measure.mistakes.review_queue import label_queue, queue_rows, write_queue
from heldout.measure.mistakes.verdicts import Verdicts
from heldout.measure.score.compare import compare
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.measure.score.records import Score
from heldout.measure.score.slice_search import discover, discovery_records
from heldout.measure.score.slices import class_names, cluster_column, parse_slice, slice_text
from heldout.stats.intervals import wilson


def confusions(request: requests.ConfusionsRequest, context: Context) -> Result:
    """Pairs of classes with counts; beside those of a published file, or written as one."""
    found = [
        confusions_of(verdicts, directed=request.directed)
        for verdicts in read_inputs(request, context).verdicts()
    ]
    if (request.out or request.against) and len(found) > 1:
        raise UserError(
            f"a file holds one list of pairs, there are {len(found)}", fix="name one truth"
        )
    numbers: list[Any] = []
    rows: list[Any] = []
    for item in found:
        totals, pairs = item.totals, item.top(request.top, level=request.level)
        named = {"n_errors": totals.errors, "n_pairs": totals.pairs, "n_confusions": totals.sum}
        numbers += counts(
            {f"{name}_{totals.truth}": n for name, n in named.items()},
            model=totals.model,
            testset=totals.testset,
        )
        rows += [totals, *pairs]
    if request.against is not None:
        rows += _against(found[0], request.against)
    if request.out is not None:
        write_confusion_file(found[0], request.out)
        context.say(f"{request.out}: {len(found[0]):,} pairs")
    return Result(records=[*numbers, *rows], brief=rows)


def _against(found: Confusions, path: Path) -> Iterator[Any]:
    file = read_confusion_file(path, label_space=found.space)
    differences = compare_with_file(found, file)
    yield FileComparison(
        file=path.name,
        form=file.form,
        pairs=len(file.pairs),
        sum=file.total,
        differences=len(differences),
    )
    yield from differences


def shared(request: requests.SharedRequest, context: Context) -> Result:
    """What models miss together under each truth, images to doubt, and pairs of models."""
    inputs = read_inputs(request, context, every_truth=request.out is None)
    judged = inputs.verdicts()
    paired = inputs.truths if request.truths else (inputs.testset.card.default_truth,)
    numbers: list[Any] = []
    rows: list[Any] = []
    for verdicts in judged:
        found, truth = model_consensus(verdicts, level=request.level), verdicts.truth.name
        missed = {"missed_by_all": found.missed_by_all, "right_by_all": found.right_by_all}
        numbers += counts(
            {f"{name}_{truth}": n for name, n in missed.items()}, testset=inputs.testset.name
        )
        doubted = suspects(verdicts, at_least=request.wrong)
        rows += [found, *doubted[: request.top]]
        if request.out is not None:
            _write_label_queue(request.out, verdicts, doubted, context)
    for verdicts in judged:
        if verdicts.truth.name in paired and (len(verdicts.models) > 1 or request.of):
            rows += _overlaps(verdicts, request)[: request.top]
    return Result(records=[*numbers, *rows], brief=rows)


def _write_label_queue(
    path: Path, verdicts: Verdicts, doubted: Sequence[Suspect], context: Context
) -> None:
    answers = judgements_about(verdicts.testset, context.workspace.judgements)
    queue, evidence = label_queue(verdicts, doubted, panel_answers(answers))
    write_queue(path, queue_rows(queue, evidence))
    context.say(
        f"{path}: {len(queue.entries):,} labels of {len(doubted):,} images to look at, "
        f"{queue.judged:,} are judged already"
    )
    context.note(
        "answer: correct, unclear or wrong; who: your name; then heldout import judgements"
    )


def _overlaps(verdicts: Verdicts, request: requests.SharedRequest) -> list[Any]:
    """Pairs of models, those first that are more alike than their accuracies explain."""
    return sorted(
        overlaps(verdicts, request.of, level=request.level),
        key=lambda o: (2.0 if o.kappa is None else -o.kappa, o.model, o.other),
    )


@dataclass(frozen=True, kw_only=True)
class ModelChanges:
    """What a new model fixes and breaks, and the difference in accuracy with its test."""

    record: ClassVar[str] = "changes"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: from {old} to {new_model}, {n:,} images",
        ("fixed:,", "new:,", "p:.2g", "shared:,", "of these the same class=same:,"),
    )
    testset: str
    truth: str
    old: str
    new_model: str
    n: int
    fixed: int
    new: int
    shared: int
    same: int
    difference: float
    low: float | None
    high: float | None
    level: float
    p: float | None
    test: str | None
    reason: str | None


_COMPARED = ("difference", "low", "high", "p", "test", "reason")


def diff(request: requests.MistakeDiffRequest, context: Context) -> Result:
    """What became of mistakes between two models, image by image; the page draws the first truth."""
    files = [path.stem.removesuffix("_mistakes") for path in request.mistake_files]
    old, new = request.old, request.new
    stored = [name for name in (old, new) if name not in files]
    inputs = read_inputs(request, context, models=stored)
    numbers: list[Any] = []
    rows: list[Any] = []
    found = [changes(verdicts, old, new) for verdicts in inputs.verdicts()]
    for item in found:
        verdicts = item.verdicts
        testset, truth = verdicts.testset, verdicts.truth.name
        (compared,) = compare(
            verdicts.measured(),
            [(new, old)],
            cluster=cluster_column(testset, None),
            level=request.level,
        )
        if compared.reason:
            context.note(f"no interval and no test: {compared.reason}")
        many: dict[str, Any] = {change: len(item.rows[change]) for change in CHANGES}
        numbers += counts(
            {f"{name}_{truth}": n for name, n in many.items()}, model=new, testset=testset.name
        )
        rows.append(
            ModelChanges(
                testset=testset.name,
                truth=truth,
                old=old,
                new_model=new,
                n=len(verdicts),
                **many,
                same=int(item.same.sum()),
                level=request.level,
                **{name: getattr(compared, name) for name in _COMPARED},
            )
        )
        rows += changed_images(item)[: request.top]
        rows += confusion_changes(verdicts, old, new)[: request.top]
    brief = [row for row in rows if row.record != "changed" or row.change == "new"]
    return Result(records=[*numbers, *rows], brief=brief, drawn=found[0])


def slices(request: requests.SlicesRequest, context: Context) -> Result:
    """The worst conjunctions of columns for each model, corrected for the search."""
    inputs = read_inputs(request, context)
    testset, truth = inputs.testset, inputs.truth
    kind = testset.card.truths.get(truth, {}).get("kind", "single")
    plain = {"real": "real", "multilabel": "mla_micro"}.get(kind, "top1")
    searches = [
        discover(
            measured.of_models([name]),
            request.columns or None,
            minimum_n=request.minimum_n,
            most=request.top,
            cluster=cluster_column(testset, request.cluster),
            seed=request.seed,
            level=request.level,
        )
        for measured in measure(
            testset,
            inputs.predictions(truth),
            metrics=request.metrics or [plain],
            truth=truth,
            label_map=inputs.label_map,
        )
        for name in measured.models
    ]
    # Every model is one more search: a slice is named where its p holds for all of them.
    least = (1.0 - request.level) / max(len(searches), 1)
    named = [[item for item in s.found if item.p is not None and item.p <= least] for s in searches]
    return Result(
        records=[record for search in searches for record in discovery_records(search)],
        brief=[
            replace(item, slice=slice_text(parse_slice(item.slice), class_names(s.measured.space)))
            for s, found in zip(searches, named, strict=True)
            for item in found
        ],
        lines=[
            f"{s.measured.models[0]}, {s.measured.metric.name}: {len(found)} of the worst {len(s.found)} "
            f"of {s.searched:,} slices can be told from the rest (found on one half, measured on the other)"
            for s, found in zip(searches, named, strict=True)
        ],
    )


@dataclass(frozen=True, kw_only=True)
class SeenTogether(ClassPair):
    """Two classes that are labels of the same ``n`` images."""

    record: ClassVar[str] = "cooccurrence"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: classes seen together most often",
        ("class=first_name", "and class=second_name", "ids", "images=n:,"),
        rows=8,
    )
    n: int


def cooccurrence(request: requests.CooccurrenceRequest, context: Context) -> Result:
    """Pairs of classes that a truth sees together, with how many images have both."""
    inputs = read_inputs(request, context)
    testset = inputs.testset
    found = count_pairs(
        testset,
        truth=inputs.truth if request.truth else truth_of_kind(testset, "real", "multilabel"),
        without=request.without_truth,
    )
    apart = None
    if request.superclasses is not None:
        apart = read_superclasses(request.superclasses, label_space=found.space)
    if not len(found):
        context.note(
            f"no image has two labels in truth {found.truth}: name a truth of several labels"
        )
    space, pairs = found.space, found.pairs(apart=apart)
    numbers = counts(
        {
            "images": found.images,
            "images_without_label": found.empty,
            "images_with_one_label": found.single,
            "images_with_several_labels": found.images - found.empty - found.single,
            "cooccurrences": found.total,
            "cooccurring_pairs": len(found),
            "cooccurring_pairs_of_2_images": len(pairs),
        },
        testset=found.testset,
    )
    rows = [
        SeenTogether.between(found.testset, found.truth, space, space.index(a), space.index(b), n=n)
        for (a, b), n in list(pairs.items())[: request.top]
    ]
    return Result(records=[*numbers, *rows])


@dataclass(frozen=True, kw_only=True)
class CategoryCount:
    """Mistakes of a file by category and severity; ``all`` for their sums."""

    record: ClassVar[str] = "category"
    table: ClassVar[Table] = Table("{file}: {of:,} mistakes", ("category", "n:,"), "severity")
    model: str
    file: str
    category: str
    severity: str
    n: int
    of: int
    share: float
    low: float
    high: float
    interval: str
    level: float


def summary(request: requests.SummaryRequest, context: Context) -> Result:
    """Judged mistakes of files, whether the files agree, and the accuracy that they leave."""
    inputs = None
    if request.testset is None:
        space = LabelSpace.load("imagenet-1k")
        files: Sequence[MistakeFile] = [
            read_mistake_file(path, label_space=space) for path in request.files
        ]
    else:
        inputs = read_inputs(request, context, mistake_files=request.files)
        files = inputs.files
    numbers: list[Any] = []
    rows: list[Any] = []
    for file in files:
        major = sum(n for (_, severity), n in file.table().items() if severity == "Major")
        numbers += counts(
            {"n_mistakes": len(file), "n_major": major},
            model=file.name,
            testset=None if inputs is None else inputs.testset.name,
        )
        rows += _categories(file, fold=request.fold, level=request.level)
    rows += [file_agreement(a, b) for a, b in combinations(files, 2)]
    left = [] if inputs is None else _scores(inputs, request.level)
    return Result(records=[*numbers, *left, *rows], brief=[*rows, *left])


def _categories(file: MistakeFile, *, fold: bool, level: float) -> Iterator[CategoryCount]:
    """A record for each category and severity, and for their sums."""
    many = dict(file.table(fold=fold))
    for (category, severity), n in list(many.items()):
        for key in ((category, "all"), ("all", severity), ("all", "all")):
            many[key] = many.get(key, 0) + n

    def order(key: tuple[str, str]) -> tuple[bool, str, int]:
        category, severity = key
        place = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
        return category == "all", category, place

    for category, severity in sorted(many, key=order):
        n, of = many[category, severity], len(file)
        limits = wilson(n, of, level=level)
        yield CategoryCount(
            model=file.name,
            file=file.path.name,
            category=category,
            severity=severity,
            n=n,
            of=of,
            share=n / of,
            low=float(limits.low),
            high=float(limits.high),
            interval=limits.method,
            level=level,
        )


def _scores(inputs: MistakeInputs, level: float) -> list[Score]:
    """The accuracy that lists of mistakes leave, if they are complete."""
    testset, truth = inputs.testset, inputs.truth
    many = testset.card.truths[truth].get("kind") == "multilabel"
    found = measure(
        testset,
        inputs.predictions(truth),
        metrics=("mla", "mla_micro") if many else ("top1",),
        truth=truth,
        absent_classes="skip",
    )
    absent = len(found[0].space) - len(np.unique(found[0].groups))
    if absent and many:
        inputs.context.note(
            f"{absent} classes have no image that counts: mla is the mean over the others"
        )
    return [score for measured in found for score in scores(measured, level=level)]

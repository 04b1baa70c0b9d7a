"""The verb ``dedupe``: search, what people said, which images stay, and what the leaks are worth."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, EXIT_FAILED_IMAGES, ExistsError, UserError
from heldout.core.files import canonical_json, csv_text, sha256_text, write_text
from heldout.core.records import Table
from heldout.core.request import did_you_mean
from heldout.curate.dedupe.calibration import calibration_of
from heldout.curate.dedupe.requests import DedupeRequest, Measure
from heldout.curate.dedupe.search import encoder_of, search
from heldout.curate.zero_shot.label_pool import find_images, note_failures
from heldout.data.judgements.duplicates import THRESHOLD, current_verdicts
from heldout.data.judgements.files import rows_of_file
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement, pair_subject
from heldout.data.judgements.neighbours import Neighbours, saved_searches
from heldout.data.judgements.pairs import Pair, decided_pairs
from heldout.data.judgements.resolution import NearDuplicates, Priorities, graph_of
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import TestSet, save, subset
from heldout.measure.evaluation.requests import ScoreRequest
from heldout.measure.score.records import Leak
from heldout.models.embeddings import Embeddings, embed, encoder_key
from heldout.models.predictions.store import PredictionStore

ITSELF = "itself"
"""How a test set is called among the sets that it is compared with."""
_NEVER_DECIDES = "hash"


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What one search found: a test set compared with one reference by one measure."""

    record: ClassVar[str] = "search"
    table: ClassVar[Table] = Table(
        "{testset}, {images:,} images compared",
        ("with=reference", "of them=reference_images:,", "measure", "encoder", "found up to=threshold",
         "threshold from=threshold_from", "pairs:,", "images with one=images_found:,"),
    )  # fmt: skip
    testset: str
    reference: str
    measure: str
    encoder: str
    images: int
    reference_images: int
    threshold: float | None
    threshold_from: str
    pairs: int
    images_found: int


@dataclass(frozen=True, kw_only=True)
class Decided:
    """What holds of the pairs that were found with one reference, and of the images in them."""

    record: ClassVar[str] = "duplicates"
    table: ClassVar[Table] = Table(
        "{testset}: what holds of the pairs, and images in them",
        ("with=reference", "duplicate pairs=duplicates:,", "different:,", "open=unresolved:,",
         "images with a duplicate=images:,", "images in doubt=images_in_doubt:,"),
    )  # fmt: skip
    testset: str
    reference: str
    duplicates: int
    different: int
    unresolved: int
    images: int
    images_in_doubt: int


@dataclass(frozen=True, kw_only=True)
class PlannedSearch:
    """What ``--plan`` says of one search: how many pairs, and what counts as found."""

    record: ClassVar[str] = "planned search"
    table: ClassVar[Table] = Table(
        "{testset}, {images:,} images",
        ("with=reference", "of them=reference_images:,", "measure", "comparisons:,",
         "found up to=threshold", "threshold from=threshold_from"),
    )  # fmt: skip
    testset: str
    reference: str
    measure: str
    images: int
    reference_images: int
    comparisons: int
    threshold: float | None
    threshold_from: str


@dataclass(frozen=True, eq=False)
class Duplicates(NearDuplicates):
    """What one ``dedupe`` found: near duplicates in a set and in the references that it named.

    ``leaks``  every stored model's score with and without the images that leaked
    """

    references: Mapping[str, TestSet]
    leaks: Sequence[Leak]

    @property
    def leaked(self) -> set[str]:
        """Images that are duplicates of an image of a reference."""
        return {p.image_id for p in self.pairs if p.reference and p.decision == "duplicate"}

    @cached_property
    def failures(self) -> dict[str, str]:
        """Images that could not be compared, with the reason."""
        return {
            image: reason
            for search in self.searches
            for image, reason in search.search["failures"].items()
        }

    @property
    def kept(self) -> list[str]:
        """The images that stay when every component of duplicates is resolved."""
        out = self.graph.removed
        return [name for name in self.testset.image_ids.to_pylist() if name not in out]

    @property
    def records(self) -> list[Searched | Decided | Leak]:
        """What a person is shown: searches, decisions and leaks."""
        return [*map(_searched, self.searches), *_decided(self), *self.leaks]


def dedupe(request: DedupeRequest, context: Context) -> Result:
    """Find near duplicates within a set and in references, and say what holds of them."""
    testset = _images(context, request.testset)
    references = {}
    for text in request.references:
        other = _images(context, text)
        if other.name == testset.name or other.name in references:
            raise UserError(f"{other.name} is named twice", fix="the set itself is always compared")
        references[other.name] = other
    thresholds = {measure: _threshold(measure, request, context) for measure in request.measures}
    page = request.out or context.workspace.runs / "dedupe" / f"{testset.name}.html"
    check_unanswered(page)
    if request.plan:
        return Result(records=_plan(testset, references, thresholds))
    _search_all(testset, references, thresholds, request, context)
    searches = [
        found
        for found in saved_searches(context.workspace, testset.name)
        if found.within or found.search["reference"]["name"] in references
    ]
    searches.sort(key=lambda found: (not found.within, found.search["reference"]["name"]))
    verdicts = current_verdicts(testset, context.workspace)
    pairs = decided_pairs(testset, searches, verdicts)
    if request.accept and _accept(testset, pairs, context):
        verdicts = current_verdicts(testset, context.workspace)
        pairs = decided_pairs(testset, searches, verdicts)
    photos = None
    if request.photo is not None:
        photos = {image: str(photo) for image, photo in _column(testset, request.photo).items()}
    found = Duplicates(
        testset,
        searches,
        verdicts,
        pairs,
        graph_of(pairs, _selection(testset, request, context), photos=photos),
        references,
        _leaks(testset, request, context),
    )
    write_tables(found, page)
    if request.name is not None:
        _write_set(found, request, context)
    return Result(
        records=[*found.records, *found.graph.counts(testset.name), *pairs],
        brief=found.records,
        lines=_lines(found, page),
        value=found,
        drawn=page,
        code=EXIT_FAILED_IMAGES if found.failures else EXIT_DONE,
    )


def _images(context: Context, text: str) -> TestSet:
    found = find_images(context, text)
    if found.pool is None:
        raise UserError(f"{text} holds vectors, not images", fix="name a test set, pool or folder")
    return found.pool


def _threshold(
    measure: Measure, request: DedupeRequest, context: Context
) -> tuple[float | None, str]:
    """Down to which distance a pair counts as found, and where that is from."""
    if measure in request.thresholds:
        return request.thresholds[measure], "given"
    encoder = encoder_of(measure, request.features)
    known = calibration_of(context.workspace, measure, encoder_key(encoder))
    if known is None:
        context.note(
            f"{measure} ({encoder.name}) is not calibrated: pairs are ranked, and none counts as found; "
            "heldout calibrate finds a threshold"
        )
        return None, "not calibrated"
    return known.threshold, known.source


def _plan(
    testset: TestSet,
    references: Mapping[str, TestSet],
    thresholds: Mapping[Measure, tuple[float | None, str]],
) -> list[PlannedSearch]:
    return [
        PlannedSearch(
            testset=testset.name,
            reference=other.name if other is not testset else ITSELF,
            measure=measure,
            images=len(testset),
            reference_images=len(other),
            comparisons=len(testset) * (len(other) - (other is testset)),
            threshold=limit,
            threshold_from=source,
        )
        for measure, (limit, source) in thresholds.items()
        for other in (testset, *references.values())
    ]


def _search_all(
    testset: TestSet,
    references: Mapping[str, TestSet],
    thresholds: Mapping[Measure, tuple[float | None, str]],
    request: DedupeRequest,
    context: Context,
) -> None:
    """Vectors and neighbours by every measure, in the set itself and in every reference."""
    for measure, (limit, source) in thresholds.items():
        encoder = encoder_of(measure, request.features)

        def vectors_of(which: TestSet, encoder: Any = encoder) -> Embeddings:
            with context.progress(f"{encoder.name} of {which.name}") as progress:
                return embed(
                    which,
                    encoder,
                    workspace=context.workspace,
                    images=request.images if which is testset else None,
                    workers=request.workers,
                    progress=progress,
                )

        ours = vectors_of(testset)
        for other in (testset, *references.values()):
            theirs = ours if other is testset else vectors_of(other)
            if measure == request.measures[0]:
                note_failures(theirs, context)
            with context.progress(f"{measure} in {other.name}", what="pairs") as progress:
                search(
                    testset,
                    other,
                    measure,
                    vectors=ours,
                    reference_vectors=theirs,
                    workspace=context.workspace,
                    keep=request.top,
                    near_classes=request.near_classes,
                    threshold=limit,
                    threshold_from=source,
                    memory=round(request.memory * 2**30),
                    device=request.device,
                    workers=request.workers,
                    progress=progress,
                )


def _accept(testset: TestSet, pairs: Sequence[Pair], context: Context) -> int:
    """Store that found pairs are duplicates, as said by their threshold; how many were open."""
    now = datetime.now(UTC)
    made = [
        Judgement(
            question="duplicate",
            subject=pair_subject(pair.image_id, pair.other),
            answer="duplicate",
            who=THRESHOLD,
            when=now,
            evidence=_seen(pair),
            testset=testset.name,
        )
        for pair in pairs
        if pair.decision == "unresolved" and set(pair.distances) - {_NEVER_DECIDES}
    ]
    with JudgementStore(context.workspace.judgements) as store:
        store.add(made)
    context.say(f"{len(made):,} pairs are taken for duplicates by their distance")
    return len(made)


def _leaks(testset: TestSet, request: DedupeRequest, context: Context) -> list[Leak]:
    """What leaks add to the score of every stored model; none where nothing can be scored."""
    from heldout.measure.evaluation.verbs import score

    stored = PredictionStore(context.workspace.predictions).runs(testset.card.images_hash)
    if not request.references or not testset.truths or not stored:
        return []
    asked = ScoreRequest(
        testsets=(request.testset,), models=request.models, mistakes=False, curves=False, by=()
    )
    quiet = Context(context.workspace, bound=context.bound)
    return [record for record in score(asked, quiet).records if isinstance(record, Leak)]


def _searched(found: Neighbours) -> Searched:
    search = found.search
    pairs = found.found()
    return Searched(
        testset=search["testset"]["name"],
        reference=ITSELF if found.within else search["reference"]["name"],
        measure=search["measure"],
        encoder=search["encoder"]["name"],
        images=len(found.candidates.ids),
        reference_images=len(found.references.ids),
        threshold=search["threshold"],
        threshold_from=search["threshold_from"],
        pairs=len(pairs),
        images_found=len({p.image_id for p in pairs} | {p.other_id for p in pairs if found.within}),
    )


def _decided(found: Duplicates) -> Iterator[Decided]:
    """What holds of pairs and images, for the set itself and for every reference."""
    for reference in ("", *found.references):
        pairs = [pair for pair in found.pairs if pair.reference == reference]
        images: dict[str, set[str]] = {"duplicate": set(), "unresolved": set(), "different": set()}
        for pair in pairs:
            images[pair.decision] |= (
                {pair.image_id} if reference else {pair.image_id, pair.other_id}
            )
        said = Counter(pair.decision for pair in pairs)
        yield Decided(
            testset=found.testset.name,
            reference=reference or ITSELF,
            duplicates=said["duplicate"],
            different=said["different"],
            unresolved=said["unresolved"],
            images=len(images["duplicate"]),
            images_in_doubt=len(images["unresolved"] - images["duplicate"]),
        )


def _selection(testset: TestSet, request: DedupeRequest, context: Context) -> Priorities:
    """What decides which of several duplicates stays."""
    about = judgements_about(
        testset, context.workspace.judgements, questions=("duplicate", "review")
    )
    said = {(given.answer, given.subject.get("image_id", "")) for given in about}
    known = request.frequency is not None
    frequencies = _column(testset, str(request.frequency)) if known else None
    if frequencies and not all(isinstance(value, int | float) for value in frequencies.values()):
        raise UserError(
            f"the column {request.frequency} of {testset.name} is not a number",
            fix="name a column of numbers",
        )
    return Priorities(
        overrides={image for answer, image in said if answer == "keep"},
        blacklisted={image for answer, image in said if answer == "blacklisted"},
        frequencies=frequencies,
        classes=class_of_images(testset) if known and testset.truths else {},
    )


def _column(testset: TestSet, name: str) -> dict[str, Any]:
    """Image -> its value in a column; images without one are left out."""
    if name not in testset.images.column_names:
        raise UserError(
            f"{testset.name} has no column {name!r}",
            fix=did_you_mean(name, testset.images.column_names),
        )
    values = testset.images[name].to_pylist()
    pairs = zip(testset.image_ids.to_pylist(), values, strict=True)
    return {image: value for image, value in pairs if value is not None}


def class_of_images(testset: TestSet) -> dict[str, str]:
    """Image -> its class in the default truth; the first of several."""
    truth = testset.truth()
    rows = zip(truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True)
    found: dict[str, str] = {}
    for image, label in rows:
        if label is not None:
            found.setdefault(image, label)
    return found


def tables_beside(page: Path) -> tuple[Path, Path, Path]:
    """The CSV files beside the page: all pairs, all images, and the open pairs as questions."""
    pairs, images, questions = (
        page.with_name(f"{page.stem}-{what}.csv") for what in ("pairs", "images", "questions")
    )
    return pairs, images, questions


def check_unanswered(page: Path) -> None:
    """Refuse to write over questions that somebody has begun to answer."""
    path = tables_beside(page)[-1]
    if not path.is_file():
        return
    answers = sum(bool(row.get("answer")) for _, row in rows_of_file(path))
    if answers:
        raise ExistsError(
            f"{path} holds {answers:,} answers",
            fix="read them with heldout import judgements and remove the file, or name another --out",
        )


def write_tables(found: Duplicates, page: Path) -> None:
    """Write all pairs, which images stay and why, and the open pairs as questions."""
    pairs, images, questions = tables_beside(page)
    measures = sorted({search.search["measure"] for search in found.searches})
    rows: list[list[Any]] = [
        [p.image_id, p.reference or None, p.other_id, p.decision, p.by or None, p.when]
        + [p.distances.get(measure) for measure in measures]
        for p in found.pairs
    ]
    head = ["image_id", "reference", "other_id", "decision", "by", "when", *measures]
    write_text(pairs, csv_text(head, rows))
    rows = []
    for image in found.testset.image_ids.to_pylist():
        part = found.graph.component(image)
        removed = part is not None and image in part.removed
        known: list[Any] = [None] * 4
        if part is not None:
            known = [part.reason, part.why, part.stays, part.component]
        elif image in found.failures:
            known[:2] = ["not compared", found.failures[image]]
        rows.append([image, "remove" if removed else "keep", *known])
    write_text(
        images, csv_text(["image_id", "decision", "reason", "why", "stays", "component"], rows)
    )
    rows = [
        ["duplicate", *pair_subject(p.image_id, p.other).values(), None, None, None,
         found.testset.name, canonical_json(_seen(p))]
        for p in found.pairs
        if p.decision == "unresolved"
    ]  # fmt: skip
    if rows:
        head = ["question", "image_id", "other_id", "answer", "who", "when", "testset", "evidence"]
        write_text(questions, csv_text(head, rows))
    else:
        questions.unlink(missing_ok=True)


def _seen(pair: Pair) -> dict[str, Any]:
    """What a judgement of a pair rests on: from which image it was seen, and how far apart they are."""
    return {"seen_from": pair.image_id, "distances": dict(pair.distances)}


def _write_set(found: Duplicates, request: DedupeRequest, context: Context) -> None:
    """The set without its duplicates, with what it was made from."""
    testset = found.testset
    if not found.kept:
        raise UserError(
            f"every image of {testset.name} goes: {request.name} would be empty",
            fix="ask for smaller distances with --up-to, or withdraw verdicts",
        )
    used = [
        {
            "measure": search.search["measure"],
            "encoder": search.search["encoder"]["key"],
            "reference": "" if search.within else search.search["reference"]["name"],
            "threshold": search.search["threshold"],
        }
        for search in found.searches
    ]
    decided = sorted((p.image_id, p.other) for p in found.pairs if p.decision == "duplicate")
    made = subset(
        testset,
        found.kept,
        name=str(request.name),
        recipe={
            "name": "dedupe",
            "version": "1",
            "parameters": {
                "searches": used,
                "frequency": request.frequency,
                "photo": request.photo,
                "duplicates": sha256_text(canonical_json(decided)),
            },
            "seed": 0,
        },
        parents=[
            {"name": other.name, "content_hash": other.content_hash, "relation": "reference"}
            for other in found.references.values()
        ],
        notes=[*testset.card.notes, *_open_note(found)],
    )
    pool = made.card.stage == "pool"
    if pool:  # a pool's card has no recipe and no parents: its facts say where it came from
        facts = {"source": "dedupe", **made.card.recipe, "parents": [*made.card.parents]}
        made = dataclasses.replace(made, card=made.card.updated(facts=facts))
    parent = context.workspace.pools if pool else context.workspace.testsets
    saved = save(made, parent / str(request.name), replace=request.replace)
    context.say(
        f"{saved.folder}: {len(saved):,} of {len(testset):,} images, {saved.content_hash[:12]}"
    )


def _open_note(found: Duplicates) -> list[str]:
    open_pairs = sum(pair.decision == "unresolved" for pair in found.pairs)
    if not open_pairs:
        return []
    return [f"{open_pairs:,} pairs were near enough to be duplicates, and nobody had decided"]


def _lines(found: Duplicates, page: Path) -> list[str]:
    """What a person reads after the tables."""
    pairs, images, questions = tables_beside(page)
    lines = [f"page: {page}; beside it {pairs.name} and {images.name} (which images stay)"]
    if questions.is_file():
        lines.append(
            f"open pairs: fill in answer (duplicate or different) and who in {questions}, then heldout "
            "import judgements; or --accept"
        )
    return lines

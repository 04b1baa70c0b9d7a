"""The verb ``dedupe``: search, what people said, which images stay, and what the leaks are worth."""

from __future__ import annotations

import dataclasses
import math
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
from heldout.core.workspace import slug
from heldout.curate.dedupe.calibration import calibration_of
from heldout.curate.dedupe.requests import DedupeRequest, Measure
from heldout.curate.dedupe.search import encoder_of, search
from heldout.curate.pool_images import find_images, folder_pool, note_failures
from heldout.data.judgements.duplicates import FIRST, THRESHOLD
from heldout.data.judgements.files import rows_of_file
from heldout.data.judgements.judgement import Judgement, pair_subject
from heldout.data.judgements.neighbours import Neighbours, forget, outdate
from heldout.data.judgements.pairs import Pair, named
from heldout.data.judgements.resolution import (
    NearDuplicates,
    column,
    near_duplicates,
    number_column,
)
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import TestSet, save, subset
from heldout.measure.evaluation.requests import ScoreRequest
from heldout.measure.score.records import Leak
from heldout.models.embeddings import Embeddings, embed, encoder_key
from heldout.models.predictions.store import PredictionStore

ITSELF = "itself"
"""How a test set is called among the sets that it is compared with."""
_NEVER_DECIDES = "hash"
_IDS = ("image_id", "other_id")


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What one search found: a test set compared with one reference by one measure."""

    record: ClassVar[str] = "search"
    table: ClassVar[Table] = Table(
        "{testset}, {images:,} images compared",
        ("with=reference", "images there=reference_images:,", "measure", "found up to=threshold", "pairs:,",
         "images with one=images_found:,"),
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
    """What ``--plan`` says of one search, as if nothing had been compared before.

    ``comparisons``  how many pairs of images
    ``megabytes``    what the vectors of both sets take on disk
    """

    record: ClassVar[str] = "planned search"
    table: ClassVar[Table] = Table(
        "{testset}, {images:,} images",
        ("with=reference", "images there=reference_images:,", "measure", "comparisons:,",
         "found up to=threshold", "vectors, MB=megabytes:,"),
    )  # fmt: skip
    testset: str
    reference: str
    measure: str
    images: int
    reference_images: int
    comparisons: int
    threshold: float | None
    threshold_from: str
    megabytes: int


@dataclass(frozen=True, eq=False)
class Duplicates(NearDuplicates):
    """What one ``dedupe`` found: near duplicates in a set and in the references that it named.

    ``leaks``  every stored model's score with and without the images that leaked
    """

    references: Mapping[str, TestSet]
    leaks: Sequence[Leak]
    images: str | None = None

    @cached_property
    def failures(self) -> dict[str, str]:
        """Images that could not be compared, with the reason; those of a reference by its name too."""
        found: dict[str, str] = {}
        for ran in self.searches:
            found |= ran.search["failures"]
            theirs = ran.search["reference_failures"] if ran.reference else {}
            found |= {named(ran.reference, image): reason for image, reason in theirs.items()}
        return found

    @property
    def records(self) -> list[Searched | Decided | Leak]:
        """What a person is shown: searches, decisions and leaks."""
        return [*map(_searched, self.searches), *_decided(self), *self.leaks]

    @property
    def thresholds(self) -> dict[str, str]:
        """What is said of the threshold of each measure."""
        return {
            ran.label: _of_threshold(ran.search["threshold"], ran.search["threshold_from"])
            for ran in self.searches
        }


def _of_threshold(threshold: float | None, source: str) -> str:
    return (
        source if threshold is None else f"pairs up to {threshold:.4g} apart are found ({source})"
    )


def dedupe(request: DedupeRequest, context: Context) -> Result:
    """Find near duplicates within a set and in references, and say what holds of them."""
    testset = _images(context, request.testset)
    references = _references(testset, request, context)
    if request.forget:
        gone = sum(forget(context.workspace, testset.name, name) for name in request.forget)
        context.say(f"{gone} searches are forgotten")
    thresholds = {measure: _threshold(measure, request, context) for measure in request.measures}
    _check(testset, references, request)
    if request.plan:
        return Result(records=_plan(testset, references, thresholds, request))
    page = request.out or context.workspace.runs / "dedupe" / f"{testset.name}.html"
    check_unanswered(page, context)
    searches = _search_all(testset, references, thresholds, request, context)
    outdate(context.workspace, searches)
    how: dict[str, Any] = {
        "searches": searches,
        "frequency": request.frequency,
        "photo": request.photo,
    }
    known = near_duplicates(testset, context.workspace, **how)
    accepted = _accepted(known) if request.accept else []
    if accepted:
        known = near_duplicates(testset, context.workspace, also=accepted, **how)
    if request.name is not None:
        _write_set(known, references, request, context)
    if request.accept:  # nothing is said before all that can fail is done
        with JudgementStore(context.workspace.judgements) as store:
            store.add(accepted)
        context.say(f"{_many(len(accepted), 'pair')} taken for duplicates by their distance")
    found = Duplicates(
        **{part.name: getattr(known, part.name) for part in dataclasses.fields(known)},
        references=references,
        leaks=_leaks(testset, request, context),
        images=request.images,
    )
    write_tables(found, page)
    return Result(
        records=[*found.records, *found.graph.counts(testset.name), *found.pairs],
        brief=found.records,
        lines=_lines(found, page),
        value=found,
        drawn=page,
        code=EXIT_FAILED_IMAGES if found.failures else EXIT_DONE,
    )


def _references(testset: TestSet, request: DedupeRequest, context: Context) -> dict[str, TestSet]:
    """The sets to compare with, by name; ``NAME=FOLDER`` gives a folder another name than its own."""
    found: dict[str, TestSet] = {}
    for text in request.references:
        name, equals, folder = text.partition("=")
        if equals and not Path(text).exists() and Path(folder).is_dir():
            other = folder_pool(Path(folder), name=slug(name))
        else:
            other = _images(context, text)
        if other.name == testset.name or other.name in found:
            raise UserError(
                f"two sets are called {other.name}",
                fix=f"give a folder another name: --reference NAME={folder or text}",
            )
        found[other.name] = other
    return found


def _check(testset: TestSet, references: Mapping[str, TestSet], request: DedupeRequest) -> None:
    """What can be refused before anything is compared."""
    if request.near_classes is not None:
        for each in (testset, *references.values()):
            if not each.truths:
                raise UserError(
                    f"{each.name} has no classes", fix="leave --near-classes out, or import labels"
                )
    if request.frequency is not None:
        number_column(testset, request.frequency)
    if request.photo is not None:
        column(testset, request.photo)
    if request.name == testset.name:
        raise UserError(f"{request.name} is the set itself", fix="give the new set another --name")


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
    request: DedupeRequest,
) -> list[PlannedSearch]:
    planned = []
    for measure, (limit, source) in thresholds.items():
        encoder = encoder_of(measure, request.features)
        width = encoder.dimension * (4 if measure == "features" else 1)
        for other in (testset, *references.values()):
            own = other is testset
            planned.append(
                PlannedSearch(
                    testset=testset.name,
                    reference=ITSELF if own else other.name,
                    measure=measure,
                    images=len(testset),
                    reference_images=len(other),
                    comparisons=len(testset) * (len(other) - own),
                    threshold=limit,
                    threshold_from=source,
                    megabytes=math.ceil((len(testset) + (0 if own else len(other))) * width / 1e6),
                )
            )
    return planned


def _search_all(
    testset: TestSet,
    references: Mapping[str, TestSet],
    thresholds: Mapping[Measure, tuple[float | None, str]],
    request: DedupeRequest,
    context: Context,
) -> list[Neighbours]:
    """Neighbours by every measure, in the set itself and in every reference."""
    found: list[Neighbours] = []
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
                found.append(
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
                )
    return sorted(found, key=lambda ran: (ran.reference, ran.label))


def _accepted(known: NearDuplicates) -> list[Judgement]:
    """Judgements that found pairs about which nobody said anything are duplicates, by their threshold."""
    now = datetime.now(UTC)
    return [
        Judgement(
            question="duplicate",
            subject=pair_subject(pair.image_id, pair.other),
            answer="duplicate",
            who=THRESHOLD,
            when=now,
            evidence=_seen(pair),
            testset=known.testset.name,
        )
        for pair in known.pairs
        if pair.decision == "unresolved" and not pair.by and {*pair.found_by} - {_NEVER_DECIDES}
    ]


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
    pairs = found.found(first=FIRST)
    return Searched(
        testset=search["testset"]["name"],
        reference=found.reference or ITSELF,
        measure=found.label,
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
        said: dict[str, list[Pair]] = {"duplicate": [], "different": [], "unresolved": []}
        for pair in found.pairs:
            if pair.reference == reference:
                said[pair.decision].append(pair)
        within = {name for pair in said["duplicate"] for name in (pair.image_id, pair.other_id)}
        images = found.leaked.get(reference, frozenset()) if reference else within
        yield Decided(
            testset=found.testset.name,
            reference=reference or ITSELF,
            duplicates=len(said["duplicate"]),
            different=len(said["different"]),
            unresolved=len(said["unresolved"]),
            images=len(images),
            images_in_doubt=len(found.in_doubt.get(reference, frozenset()) - images),
        )


def tables_beside(page: Path) -> tuple[Path, Path, Path]:
    """The CSV files beside the page: all pairs, all images, and the open pairs as questions."""
    pairs, images, questions = (
        page.with_name(f"{page.stem}-{what}.csv") for what in ("pairs", "images", "questions")
    )
    return pairs, images, questions


def check_unanswered(page: Path, context: Context) -> None:
    """Refuse to write over answers that the workspace does not have."""
    path = tables_beside(page)[-1]
    if not path.is_file():
        return
    given = {
        canonical_json([row.get("image_id"), row.get("other_id"), row["answer"], row.get("who")])
        for _, row in rows_of_file(path)
        if row.get("answer")
    }
    if given and Path(context.workspace.judgements).exists():
        with JudgementStore(context.workspace.judgements) as store:
            given -= {
                canonical_json([*(each.subject.get(name) for name in _IDS), each.answer, each.who])
                for each in store.stream(question="duplicate")
            }
    if given:
        raise ExistsError(
            f"{path} holds {len(given):,} answers that were not read yet",
            fix="read them with heldout import judgements, or name another --out",
        )


def write_tables(found: Duplicates, page: Path) -> None:
    """Write all pairs, which images stay and why, and the open pairs as questions."""
    pairs, images, questions = tables_beside(page)
    measures = sorted({search.label for search in found.searches})
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
    """What a judgement of a pair rests on: from which image it was seen, how far apart, which files."""
    return {
        "seen_from": pair.image_id,
        "distances": dict(pair.distances),
        "files": dict(pair.files),
    }


def _write_set(
    found: NearDuplicates,
    references: Mapping[str, TestSet],
    request: DedupeRequest,
    context: Context,
) -> None:
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
            "reference": search.reference,
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
            for other in references.values()
        ],
        notes=[*testset.card.notes, *_open_note(found)],
    )
    pool = made.card.stage == "pool"
    if pool:  # a pool's card has no recipe and no parents: its facts say where it came from
        facts = {"source": "dedupe", **made.card.recipe, "parents": [*made.card.parents]}
        made = dataclasses.replace(made, card=made.card.updated(facts=facts, recipe={}, parents=()))
    parent = context.workspace.pools if pool else context.workspace.testsets
    saved = save(made, parent / str(request.name), replace=request.replace)
    context.say(
        f"{saved.folder}: {len(saved):,} of {len(testset):,} images, {saved.content_hash[:12]}"
    )


def _open_note(found: NearDuplicates) -> list[str]:
    open_pairs = sum(pair.decision == "unresolved" for pair in found.pairs)
    if not open_pairs:
        return []
    return [f"{open_pairs:,} pairs were near enough to be duplicates, and nobody had decided"]


def _lines(found: Duplicates, page: Path) -> list[str]:
    """What a person reads after the tables."""
    pairs, images, questions = tables_beside(page)
    lines = [f"{label}: {text}" for label, text in found.thresholds.items()]
    lines.append(f"page: {page}; beside it {pairs.name} and {images.name} (which images stay)")
    if found.failures:
        lines.append(f"{_many(len(found.failures), 'image')} could not be read, and not compared")
    together = sum(
        pair.decision == "different"
        and (part := found.component(pair.image_id)) is not None
        and pair.other in part.images
        for pair in found.pairs
    )
    if together:
        lines.append(
            f"{_many(together, 'pair')} said to be different, but joined by other duplicates: the images "
            "go or stay together"
        )
    if questions.is_file():
        lines.append(
            f"open pairs: fill in answer (duplicate or different) and who in {questions}, then heldout "
            "import judgements; or --accept"
        )
    return lines


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

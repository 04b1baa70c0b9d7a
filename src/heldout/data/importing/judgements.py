"""Importing judgements: our own files, and the shapes in which others published theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, MismatchError, UserError
from heldout.core.files import existing_file
from heldout.core.workspace import Workspace
from heldout.data.judgements.consensus import current_answers, not_replaced
from heldout.data.judgements.files import read_judgements, rows_of_file
from heldout.data.judgements.for_testset import SubjectCheck, sets_of
from heldout.data.judgements.judgement import (
    AIM,
    CATEGORIES,
    NO_MISTAKE,
    QUESTIONS,
    QUEUE,
    SEVERITIES,
    WITHDRAWN,
    Judgement,
)
from heldout.data.judgements.store import JudgementStore
from heldout.data.published.answers import (
    category_name,
    read_label_errors,
    read_mistakes,
    severity_name,
)
from heldout.data.published.imagenetv2 import (
    read_blacklist,
    read_class_reviews,
    read_duplicate_overrides,
    read_duplicate_reviews,
    read_near_duplicates,
)
from heldout.data.testset import TestSet, find_testset

ASKED: tuple[str, ...] = (
    "rank",
    "testset",
    "image_id",
    "prediction",
    "prediction_name",
    "labels",
    "label_names",
    "models",
    "proposed_category",
    "evidence",
    "path",
    QUEUE,
    AIM,
)
"""The columns that a queue fills in."""

ANSWERED: tuple[str, ...] = ("answer", "category", "severity", "who", "when", "note")
"""The columns that a reviewer fills in."""

_REQUIRED = (QUEUE, "image_id", "prediction", "answer")


@dataclass(frozen=True)
class Filled:
    """What a filled queue says; ``empty`` counts rows without an answer."""

    judgements: tuple[Judgement, ...]
    empty: int


def is_queue(path: Path) -> bool:
    """Whether a CSV, JSONL or Parquet file has the columns of a queue."""
    first = next(rows_of_file(path), None)
    return first is not None and all(name in first[1] for name in _REQUIRED)


def answers_in(path: Path) -> int:
    """How many rows of a queue have an answer; 0 for a file that is not there, or is not a queue."""
    if not path.is_file() or not is_queue(path):
        return 0
    return sum(any(_text(row.get(n)) for n in ANSWERED[:3]) for _, row in rows_of_file(path))


def testset_of(path: Path) -> str | None:
    """The one test set that a queue names, or None."""
    names = {_text(row.get("testset")) for _, row in rows_of_file(path)} - {""}
    return names.pop() if len(names) == 1 else None


def read_filled(path: Path, *, testset: TestSet | None, who: str | None = None) -> Filled:
    """Read a filled queue; ``who`` stands for reviewers where the file names none.

    Refused, with the line: an image that ``testset`` does not have, a class that its label space
    does not have, an answer that is none, half a mistake verdict, an answer that contradicts
    itself, and a reviewer who says two things of one (image, prediction).
    """
    check = None if testset is None else SubjectCheck(testset)
    seen: dict[tuple[str, str, str], tuple[str, tuple[str, ...]]] = {}
    judgements: list[Judgement] = []
    empty = 0
    for where, row in rows_of_file(path):
        try:
            answer = _answer(row)
            if answer is None:
                empty += 1
                continue
            made = list(_judgements(row, answer, who=who, source=path.name, testset=testset))
            for judgement in made:
                QUESTIONS[judgement.question].check(judgement)
                if check is not None:
                    check(judgement)
            key = (made[0].who, made[0].subject["image_id"], _text(row.get("prediction")))
            first = seen.setdefault(key, (where, answer))
            if first[1] != answer:
                raise UserError(
                    f"{key[0]} says {_said(answer)} of {key[2]} in image {key[1]!r}, and "
                    f"{_said(first[1])} in {first[0]}",
                    fix="keep one of the two rows",
                )
        except UserError as error:
            raise BadFile(path, f"{where}: {error.message}", fix=error.fix) from None
        if first[0] == where:
            judgements += made
    return Filled(tuple(judgements), empty)


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _said(answer: tuple[str, ...]) -> str:
    return " / ".join(part for part in answer if part)


def _answer(row: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Answer, category and severity in the spelling of the questions; None for an empty row."""
    given, category, severity = (_text(row.get(n)) for n in ("answer", "category", "severity"))
    if not (given or category or severity):
        return None
    answer = given.casefold()
    answers = QUESTIONS["label"].answers
    if answer and answer not in answers:
        raise UserError(f"{given!r} is no answer", fix=f"use one of {', '.join(answers)}")
    if category and category.casefold() == NO_MISTAKE.casefold():
        if answer == "wrong" or severity:
            raise UserError(
                f"{NO_MISTAKE!r} is no category of a wrong prediction",
                fix="answer correct, or choose another category",
            )
        return (answer or "correct", "", "")
    if not (category or severity):
        return (answer, "", "")
    if answer in ("correct", "unclear"):
        raise UserError(
            f"a prediction that is {answer} has the category {category!r} and the severity "
            f"{severity!r}",
            fix="answer wrong, or leave category and severity empty",
        )
    kind, grade = category_name(category), severity_name(severity)
    for name, text, other, meant, known in (
        ("category", category, f"severity {severity!r}", kind, (*CATEGORIES, NO_MISTAKE)),
        ("severity", severity, f"category {category!r}", grade, SEVERITIES),
    ):
        if meant is None:
            what = f"{text!r} is no {name}" if text else f"{other} alone"
            raise UserError(what, fix=f"use one of {', '.join(known)}")
    return ("wrong", str(kind), str(grade))


def _judgements(
    row: Mapping[str, Any],
    answer: tuple[str, str, str],
    *,
    who: str | None,
    source: str,
    testset: TestSet | None,
) -> Iterator[Judgement]:
    image_id, prediction = _text(row.get("image_id")), _text(row.get("prediction"))
    if not image_id or not prediction:
        raise UserError(
            f"an answer without {'an image_id' if not image_id else 'a class (prediction)'}",
            fix="leave the columns of the queue as they were written",
        )
    person = _text(row.get("who")) or who
    if not person:
        raise UserError("an answer that nobody gave", fix="fill the column who, or give --who")
    named: str | None = _text(row.get("testset")) or None
    if testset is not None and (named is None or named not in sets_of(testset)):
        named = testset.name  # a set that was renamed, or that the file leaves open
    evidence = {name: value for name in (QUEUE, AIM, "note") if (value := _text(row.get(name)))}
    label = Judgement(
        question="label",
        subject={"image_id": image_id, "class_id": prediction},
        answer=answer[0],
        who=person,
        when=_text(row.get("when")) or None,
        evidence=evidence,
        source=source,
        testset=named,
    )
    yield label
    if answer[1]:
        verdict = {"category": answer[1], "severity": answer[2]}
        yield dataclasses.replace(_mistake_beside(label), answer=verdict, judgement_id="")


_BATCH = 5_000
TABLES = (".jsonl", ".csv", ".parquet")
_PUBLISHED: dict[str, Callable[[Path], Iterable[Judgement]]] = {
    "class-reviews": read_class_reviews,
    "blacklist": read_blacklist,
    "near-duplicates": read_near_duplicates,
    "duplicate-reviews": read_duplicate_reviews,
    "duplicate-overrides": read_duplicate_overrides,
    "label-errors": read_label_errors,
    "mistakes": read_mistakes,
}
FORMATS = ("table", "queue", *_PUBLISHED)
_BY_NAME = (
    ("neighbor_reviews", "duplicate-reviews"),
    ("_review", "class-reviews"),
    ("blacklist", "blacklist"),
    ("near_duplicates", "near-duplicates"),
    ("resolution_override", "duplicate-overrides"),
    ("label_errors", "label-errors"),
    ("mistakes", "mistakes"),
)


@dataclass(frozen=True)
class ImportedAnswers:
    """What an import did.

    ``added``, ``known``  new judgements, and those that were there already
    ``empty``             rows of a table or a queue without an answer
    ``replaced``          earlier answers of the same reviewers that new ones stand for
    """

    added: int
    known: int
    empty: int = 0
    replaced: int = 0


def judgement_format(path: Path) -> str:
    """The format of a file of judgements, told from its ending, columns and published name."""
    existing_file(path, "file of judgements")
    if path.suffix.lower() in TABLES:
        return "queue" if is_queue(path) else "table"
    for part, form in _BY_NAME:
        if part in path.stem:
            return form
    raise BadFile(path, "is of no known shape", fix=f"name its --format: {', '.join(FORMATS)}")


def import_judgement_file(
    path: Path,
    workspace: Workspace,
    *,
    form: str = "auto",
    testset: TestSet | None = None,
    who: str | None = None,
    revise: bool = False,
) -> ImportedAnswers:
    """Add the judgements of a file to the workspace's table; known ones are not added again.

    ``testset``  refuses judgements about images and classes that it does not have; a queue names
                 its own
    ``who``      the reviewer of a queue's rows that name none
    ``revise``   answers of a queue replace what the same reviewer said before; without it a reviewer who
                 says something else is refused, unless the new answer has a later time

    A file in which one reviewer answers one question about one subject in two ways, neither later
    than the other, is refused; so is one that says something else than the reviewer said before.
    Somebody who called a prediction a mistake and now calls it right takes that verdict back.
    """
    chosen = judgement_format(path) if form == "auto" else form
    if chosen != "queue" and (who is not None or revise):
        raise UserError("--who and --revise are for a filled queue", fix="leave them out")
    with JudgementStore(workspace.judgements) as store:
        if chosen == "queue":
            return _import_queue(path, workspace, store, testset, who, revise)
        unanswered: list[str] = []
        source = (
            read_judgements(path, unanswered=unanswered)
            if chosen == "table"
            else _PUBLISHED[chosen](path)
        )
        check = None if testset is None else SubjectCheck(testset)
        added = store.add(_unlike_before(_checked(source, path, check), path, store))
        return ImportedAnswers(added.added, added.known, len(unanswered))


def _import_queue(
    path: Path,
    workspace: Workspace,
    store: JudgementStore,
    testset: TestSet | None,
    who: str | None,
    revise: bool,
) -> ImportedAnswers:
    named = testset_of(path)
    if testset is None and named is not None:
        testset = find_testset(workspace, named)
    if testset is None:
        raise BadFile(path, "does not say which test set was judged", fix="name it with --testset")
    filled = read_filled(path, testset=testset, who=who)
    names = sets_of(testset)
    known = replaced = 0

    def fresh() -> Iterator[Judgement]:
        # Called by the store when nobody else can write: what stands before is what stands.
        nonlocal known, replaced
        asked = [*filled.judgements, *map(_mistake_beside, filled.judgements)]
        given: dict[tuple[str, str, str], list[Judgement]] = {}
        for answer in store.alike(asked):
            if answer.testset in names:
                given.setdefault(answer.key, []).append(answer)
        for judgement in filled.judgements:
            earlier = given.get(judgement.key, [])
            before = next(iter(current_answers(earlier)), None)
            # An answer with its time that is read again is known, although a later one stands.
            again = judgement.when and (judgement.answer_key, judgement.when) in {
                (answer.answer_key, answer.when) for answer in earlier
            }
            if again or (before is not None and before.answer_key == judgement.answer_key):
                known += 1
                continue
            # Who now calls a prediction right takes a verdict back.
            right = judgement.question == "label" and judgement.answer != "wrong"
            verdicts = given.get(_mistake_beside(judgement).key, []) if right else []
            refuted = next(iter(current_answers(verdicts)), None)
            against = before or refuted
            if against is not None:
                later = judgement.when is not None and str(judgement.when) > str(against.when or "")
                if not (later or revise):
                    raise MismatchError(
                        f"{path}: {judgement.who} says {judgement.answer_key} of "
                        f"{judgement.subject_key}, and said {against.answer_key} before",
                        fix="--revise replaces the earlier answer; so does a later time in the column "
                        "when",
                    )
                replaced += 1
            yield from _in_place(judgement, not_replaced(earlier))
            if refuted is not None:
                withdrawal = dataclasses.replace(
                    refuted, answer=WITHDRAWN, when=judgement.when, judgement_id=""
                )
                yield from _in_place(withdrawal, not_replaced(verdicts))

    added = store.add(fresh())
    return ImportedAnswers(added.added, known + added.known, filled.empty, replaced)


def _in_place(judgement: Judgement, earlier: Sequence[Judgement]) -> list[Judgement]:
    """The judgement in the place of earlier ones: a row for each, so that none of them comes back."""
    if not earlier:
        return [judgement]
    return [
        dataclasses.replace(judgement, supersedes=old.judgement_id, judgement_id="")
        for old in earlier
    ]


def _mistake_beside(judgement: Judgement) -> Judgement:
    """The question whether and how the same prediction is a mistake, to the same person."""
    if judgement.question != "label":
        return judgement
    subject = judgement.subject
    return dataclasses.replace(
        judgement,
        question="mistake",
        subject={"image_id": subject["image_id"], "prediction": subject["class_id"]},
        answer=WITHDRAWN,
        judgement_id="",
    )


def _unlike_before(
    judgements: Iterable[Judgement], path: Path, store: JudgementStore
) -> Iterator[Judgement]:
    """The same judgements; one that says something else than its person did before ends the import.

    Two answers of which neither is later would leave it to chance which of them stands.
    """
    source = iter(judgements)
    while batch := list(islice(source, _BATCH)):
        history = list(store.alike(batch))
        ids = {given.judgement_id for given in history}
        asked: dict[tuple[str, ...], list[Judgement]] = {}
        for given in history:
            asked.setdefault(_asked(given), []).append(given)
        for judgement in batch:
            before = next(iter(current_answers(asked.get(_asked(judgement), ()))), None)
            if (
                before is not None
                and before.answer_key != judgement.answer_key
                and judgement.when in (None, before.when)
                and judgement.judgement_id not in ids
                and judgement.supersedes is None
                and (
                    None in (judgement.testset, before.testset)
                    or judgement.testset == before.testset
                )
            ):
                raise BadFile(
                    path,
                    f"{judgement.who} says {judgement.answer_key} of {judgement.subject_key}, and "
                    f"said {before.answer_key} before",
                    fix="give the answer a later time in the column when, or name the earlier one "
                    "in supersedes",
                )
        yield from batch


def _asked(judgement: Judgement) -> tuple[str, ...]:
    """Who was asked what about what, and on which grid: who votes on two grids may differ."""
    return (*judgement.key, str(judgement.evidence.get("grid")))


def _checked(
    judgements: Iterable[Judgement], path: Path, check: SubjectCheck | None
) -> Iterator[Judgement]:
    """The same judgements; one that contradicts another of the file ends the import."""
    seen: dict[tuple[object, ...], tuple[str, str]] = {}
    for judgement in judgements:
        if check is not None:
            try:
                check(judgement)
            except UserError as error:
                raise BadFile(path, error.message, fix=error.fix) from None
        key = (*_asked(judgement), judgement.when)
        answer, first = seen.setdefault(key, (judgement.answer_key, judgement.judgement_id))
        if answer != judgement.answer_key and judgement.supersedes != first:
            raise BadFile(
                path,
                f"{judgement.who} answers {judgement.question} about {judgement.subject_key} with "
                f"{answer} and with {judgement.answer_key}",
                fix="keep one answer, or give the later one a later time",
            )
        yield judgement

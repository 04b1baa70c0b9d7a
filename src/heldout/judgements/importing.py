"""Importing judgements: our own files, and the shapes in which others published theirs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heldout.errors import BadFile, MismatchError, UserError
from heldout.files import existing_file
from heldout.judgements.filled import is_queue, read_filled, testset_of
from heldout.judgements.formats import read_judgements
from heldout.judgements.judgement import Judgement
from heldout.judgements.published.imagenetv2 import (
    read_blacklist,
    read_class_reviews,
    read_near_duplicates,
)
from heldout.judgements.published.label_errors import read_label_errors
from heldout.judgements.published.mistakes import read_mistakes
from heldout.judgements.store import JudgementStore
from heldout.judgements.subjects import SubjectCheck
from heldout.testset import TestSet, find_testset
from heldout.workspace import Workspace

TABLES = (".jsonl", ".csv", ".parquet")
_PUBLISHED: dict[str, Callable[[Path], Iterable[Judgement]]] = {
    "class-reviews": read_class_reviews,
    "blacklist": read_blacklist,
    "near-duplicates": read_near_duplicates,
    "label-errors": read_label_errors,
    "mistakes": read_mistakes,
}
FORMATS = ("table", "queue", *_PUBLISHED)
_BY_NAME = (
    ("_review", "class-reviews"),
    ("blacklist", "blacklist"),
    ("near_duplicates", "near-duplicates"),
    ("label_errors", "label-errors"),
    ("mistakes", "mistakes"),
)


@dataclass(frozen=True)
class Imported:
    """What an import did.

    ``added``, ``known``  new judgements, and those that were there already
    ``empty``             rows of a queue without an answer
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
) -> Imported:
    """Add the judgements of a file to the workspace's table; known ones are not added again.

    ``testset``  refuses judgements about images and classes that it does not have; a queue names
                 its own
    ``who``      the reviewer of a queue's rows that name none
    ``revise``   answers replace what the same reviewer said before; without it a reviewer who
                 says something else is refused, unless the new answer has a later time

    A file in which one reviewer answers one question about one subject in two ways, neither later
    than the other, is refused.
    """
    chosen = judgement_format(path) if form == "auto" else form
    if chosen not in FORMATS:
        raise UserError(f"no format {chosen!r}", fix=f"use one of {', '.join(FORMATS)}")
    if who is not None and chosen != "queue":
        raise UserError("--who is for a filled queue", fix="leave it out")
    with JudgementStore(workspace.judgements) as store:
        if chosen == "queue":
            return _import_queue(path, workspace, store, testset, who, revise)
        source = read_judgements(path) if chosen == "table" else _PUBLISHED[chosen](path)
        check = None if testset is None else SubjectCheck(testset)
        added = store.add(_checked(source, path, check))
        return Imported(added.added, added.known)


def _import_queue(
    path: Path,
    workspace: Workspace,
    store: JudgementStore,
    testset: TestSet | None,
    who: str | None,
    revise: bool,
) -> Imported:
    named = testset_of(path)
    if testset is None and named is not None:
        testset = find_testset(workspace, named)
    if testset is None:
        raise BadFile(path, "does not say which test set was judged", fix="name it with --testset")
    filled = read_filled(path, testset=testset, who=who)
    new: list[Judgement] = []
    known = replaced = 0
    standing = _standing(store, filled.judgements)
    for judgement in filled.judgements:
        before = standing.get(judgement.key)
        if before is None:
            new.append(judgement)
        elif before.answer_key == judgement.answer_key:
            known += 1
        elif judgement.when is not None and str(judgement.when) > str(before.when or ""):
            new.append(judgement)
            replaced += 1
        elif revise:
            new.append(
                dataclasses.replace(judgement, supersedes=before.judgement_id, judgement_id="")
            )
            replaced += 1
        else:
            raise MismatchError(
                f"{path}: {judgement.who} says {judgement.answer_key} of "
                f"{judgement.subject_key}, and said {before.answer_key} before",
                fix="--revise replaces the earlier answer; so does a later time in the column when",
            )
    added = store.add(new)
    return Imported(added.added, known + added.known, filled.empty, replaced)


def _standing(
    store: JudgementStore, judgements: Iterable[Judgement]
) -> dict[tuple[str, str, str], Judgement]:
    """The answers that stand of the people and questions of some judgements, by key."""
    asked = sorted({(judgement.question, judgement.who) for judgement in judgements})
    return {
        judgement.key: judgement
        for question, person in asked
        for judgement in store.current(question=question, who=person)
    }


def _checked(
    judgements: Iterable[Judgement], path: Path, check: SubjectCheck | None
) -> Iterator[Judgement]:
    """The same judgements; one that contradicts another of the file ends the import."""
    seen: dict[tuple[str, str, str, object], tuple[str, str]] = {}
    for judgement in judgements:
        if check is not None:
            try:
                check(judgement)
            except UserError as error:
                raise BadFile(path, error.message, fix=error.fix) from None
        key = (*judgement.key, judgement.when)
        answer, first = seen.setdefault(key, (judgement.answer_key, judgement.judgement_id))
        if answer != judgement.answer_key and judgement.supersedes != first:
            raise BadFile(
                path,
                f"{judgement.who} answers {judgement.question} about {judgement.subject_key} with "
                f"{answer} and with {judgement.answer_key}",
                fix="keep one answer, or give the later one a later time",
            )
        yield judgement

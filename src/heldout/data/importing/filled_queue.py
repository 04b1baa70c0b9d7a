"""A queue of mistakes that came back filled in: every answer checked, then made judgements.

A row asks about one (image, prediction). ``answer`` says whether the prediction is ``correct``,
``unclear`` or ``wrong`` for the image; ``category`` and ``severity`` say what kind of mistake it is
where it is wrong. So a row gives a ``label`` judgement and, with category and severity, a
``mistake`` judgement. Rows without any of the three are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, UserError
from heldout.data.judgements.about import sets_of
from heldout.data.judgements.formats import rows_of_file
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.questions import CATEGORIES, NO_MISTAKE, QUESTIONS, SEVERITIES
from heldout.data.judgements.subjects import SubjectCheck
from heldout.data.published.mistakes import category_name, severity_name
from heldout.data.testset import TestSet

QUEUE, AIM = "queue", "aim"
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
    "proposed_severity",
    "major_probability",
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
    """What a filled queue says.

    ``rows``      rows with an answer; ``empty`` rows without one
    ``repeated``  rows that say again what the same reviewer said before in this file
    """

    judgements: tuple[Judgement, ...]
    rows: int
    empty: int
    repeated: int


def is_queue(path: Path) -> bool:
    """Whether a CSV, JSONL or Parquet file has the columns of a queue."""
    first = next(rows_of_file(path), None)
    return first is not None and all(name in first[1] for name in _REQUIRED)


def answers_in(path: Path) -> int:
    """How many rows of a queue have an answer; 0 for a file that is not there, or is no queue."""
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
    rows = empty = repeated = 0
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
        rows += 1
        if first[0] != where:
            repeated += 1
            continue
        judgements += made
    return Filled(tuple(judgements), rows, empty, repeated)


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
    if kind is None:
        raise UserError(
            f"{category!r} is no category" if category else f"severity {severity!r} alone",
            fix=f"use one of {', '.join((*CATEGORIES, NO_MISTAKE))}",
        )
    if grade is None:
        raise UserError(
            f"{severity!r} is no severity" if severity else f"category {category!r} alone",
            fix=f"use one of {', '.join(SEVERITIES)}",
        )
    return ("wrong", kind, grade)


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
    shared: dict[str, Any] = {
        "who": person,
        "when": _text(row.get("when")) or None,
        "evidence": evidence,
        "source": source,
        "testset": named,
    }
    yield Judgement(
        question="label",
        subject={"image_id": image_id, "class_id": prediction},
        answer=answer[0],
        **shared,
    )
    if answer[1]:
        yield Judgement(
            question="mistake",
            subject={"image_id": image_id, "prediction": prediction},
            answer={"category": answer[1], "severity": answer[2]},
            **shared,
        )

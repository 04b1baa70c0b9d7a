"""One judgement: an answer by one person to one question about one subject; and the questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from heldout.core.errors import UserError
from heldout.core.files import canonical_json
from heldout.core.workspace import check_slug

WITHDRAWN = "withdrawn"
"""The answer, open to every question, by which a person takes an earlier answer back."""

QUEUE, AIM = "queue", "aim"
"""Keys of evidence: the review queue that an answer belongs to, and what the queue was for."""

FIELDS: tuple[str, ...] = (
    "judgement_id",
    "question",
    "subject",
    "answer",
    "who",
    "when",
    "evidence",
    "source",
    "testset",
    "supersedes",
)
"""The columns of the table, in the order in which every format writes them."""

Answer = str | Mapping[str, str]
_UNSET = {"testset": None, "supersedes": None, "source": ""}


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """One row of the table of human answers.

    ``question``      the kind of question, such as ``vote``: see :class:`Question`
    ``subject``       what was asked about: ids by name, such as ``image_id`` and ``class_id``
    ``answer``        one of the question's answers, or named parts such as category and severity
    ``who``           the person or simulated worker; may be a hash
    ``when``          ISO 8601 with an offset, or a ``datetime`` that knows its zone; kept in UTC to
                      the microsecond; ``None`` when it is not known
    ``evidence``      anything JSON can hold: a grid's id, a note, the state of an assignment
    ``source``        the file or page it came from; not part of the identity
    ``testset``       the test set on whose behalf it was asked, if any
    ``supersedes``    the id of the same person's earlier answer that this one replaces
    ``judgement_id``  32 hexadecimal digits from the content; another one is refused

    Equal content means equal id. ``subject_key`` and ``answer_key`` are the canonical texts under
    which answers are stored and grouped.
    """

    question: str
    subject: Mapping[str, str]
    answer: Answer
    who: str
    when: str | datetime | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    testset: str | None = None
    supersedes: str | None = None
    judgement_id: str = ""
    subject_key: str = field(init=False, repr=False, compare=False)
    answer_key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("question", "who", *_UNSET):
            value = getattr(self, name)
            if name not in _UNSET or value != _UNSET[name]:
                _plain(value, name)
        put(self, "subject", _ids(self.subject, "subject"))
        put(self, "subject_key", canonical_json(self.subject))
        if isinstance(self.answer, Mapping):
            put(self, "answer", _ids(self.answer, "answer"))
            put(self, "answer_key", canonical_json(self.answer))
        else:
            _plain(self.answer, "answer")
            if self.answer.startswith("{"):
                raise UserError(
                    f"the answer {_short(self.answer)} starts with a brace",
                    fix="give an answer of several parts as a mapping, not as text",
                )
            put(self, "answer_key", self.answer)
        if self.when is not None:
            put(self, "when", utc_time(self.when))
        evidence_text = "{}"
        if self.evidence != {}:
            evidence_text = json_text(self.evidence, "evidence")
            # Read back, so that what is compared today equals what a file gives tomorrow.
            put(self, "evidence", json.loads(evidence_text))
        rest = [self.question, self.answer_key, self.who, self.when, self.testset, self.supersedes]
        content = f"{canonical_json(rest)}\n{self.subject_key}\n{evidence_text}"
        try:
            digest = hashlib.sha256(content.encode("utf-8")).hexdigest()[:32]
        except UnicodeEncodeError:
            raise UserError(
                f"a judgement by {self.who!a} holds text that is not Unicode",
                fix="remove unpaired surrogates",
            ) from None
        if self.judgement_id not in ("", digest):
            raise UserError(
                f"the judgement_id {_short(self.judgement_id)} is not that of its content",
                fix="leave it empty",
            )
        put(self, "judgement_id", digest)

    def __hash__(self) -> int:
        return hash(self.judgement_id)

    @property
    def key(self) -> tuple[str, str, str]:
        """Who answered what about what: of equal keys only the latest answer counts."""
        return (self.question, self.subject_key, self.who)

    @property
    def recency(self) -> tuple[str, bool, str]:
        """Sorts answers of one key, oldest first.

        An unknown time is older than any known one. At equal times a withdrawal comes last, and
        otherwise the id decides, which means nothing but is the same everywhere.
        """
        return (str(self.when or ""), self.answer == WITHDRAWN, self.judgement_id)


def utc_time(value: str | datetime) -> str:
    """A moment as text that sorts by time: ISO 8601, UTC, microseconds.

    >>> utc_time("2018-12-13T09:53:50+01:00")
    '2018-12-13T08:53:50.000000Z'
    """
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise TypeError(value)
        if moment.tzinfo is None:
            raise UserError(
                f"the time {value} has no time zone", fix="add its offset, such as Z for UTC"
            )
        text = moment.astimezone(UTC).isoformat(timespec="microseconds")
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            f"{_short(value)} is not a time", fix="use ISO 8601, such as 2018-12-13T09:53:50Z"
        ) from None
    return text.replace("+00:00", "Z")


def pair_subject(one: str, other: str) -> dict[str, str]:
    """The subject of a question about two images, the same whichever comes first.

    >>> pair_subject("b", "a")
    {'image_id': 'a', 'other_id': 'b'}
    """
    if one == other:
        raise UserError(f"image {one!r} is paired with itself", fix="name two different images")
    first, second = sorted((one, other))
    return {"image_id": first, "other_id": second}


def to_texts(judgement: Judgement) -> dict[str, str | None]:
    """The row as text by column, as CSV, Parquet and the database hold it."""
    texts = {name: getattr(judgement, name) for name in FIELDS}
    evidence = canonical_json(judgement.evidence)
    return texts | {
        "subject": judgement.subject_key, "answer": judgement.answer_key, "evidence": evidence
    }  # fmt: skip


def from_texts(row: Mapping[Any, str | None]) -> Judgement:
    """The judgement that :func:`to_texts` gave; absent columns take their defaults."""
    given: dict[str, Any] = dict.fromkeys(("question", "subject", "answer", "who"), "")
    given |= {name: row[name] for name in FIELDS if row.get(name)}
    for name in ("subject", "answer", "evidence"):
        if name == "subject" or str(given.get(name, "")).startswith("{"):
            given[name] = _parsed(given[name], name)
    return Judgement(**given)


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)  # evidence may hold integers of any size
    except (ValueError, TypeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(
            f"the {name} {_short(text)} is not a JSON object",
            fix='write it like {"image_id":"a","class_id":"b"}',
        )
    return value


def _plain(value: object, name: str) -> None:
    if not isinstance(value, str) or not value or "\0" in value:
        raise UserError(
            f"a judgement's {name} is {_short(value)}", fix=f"give {name} as text that is not empty"
        )


def _ids(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, Mapping) or not value:
        raise UserError(
            f"a judgement's {name} is {_short(value)}", fix="give at least one name with its value"
        )
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str) or not key or not item:
            raise UserError(
                f"the {name} {_short(dict(value))} holds something that is not text",
                fix="names and values are text that is not empty: write numbers as text",
            )
    return {key: value[key] for key in sorted(value)}


def json_text(value: object, name: str) -> str:
    """A mapping as canonical JSON; one that JSON cannot hold is a user error that says ``name``."""
    if not isinstance(value, Mapping):
        raise UserError(
            f"a judgement's {name} is {_short(value)}", fix="give a mapping of names to values"
        )
    try:
        return _as_read(canonical_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"a judgement's {name} cannot be written as JSON ({error})",
            fix="use text, finite numbers, true, false, null, lists and mappings with text keys",
        ) from None


@lru_cache(maxsize=64)
def _as_read(text: str) -> str:
    """Canonical JSON of what a text holds; remembered, as all votes of an assignment share theirs."""
    return canonical_json(json.loads(text))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of question.

    ``kind``      its name, a slug
    ``subjects``  the sets of ids that a subject may consist of; each a tuple of names
    ``answers``   the plain answers; empty together with ``parts``: any text
    ``parts``     for answers of several parts: the values of each; empty values: any text
    ``truths``    the answers that can be true, for inference; empty: all of them
    """

    kind: str
    subjects: tuple[tuple[str, ...], ...]
    answers: tuple[str, ...] = ()
    parts: dict[str, tuple[str, ...]] = {}
    truths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_slug(self.kind, "a kind of question")
        if not self.subjects or not all(self.subjects):
            raise UserError(
                f"the question {self.kind} names no subject", fix="such as (('image_id',),)"
            )

    def check(self, judgement: Judgement) -> None:
        """Refuse a judgement whose subject or answer does not fit this question."""
        names = sorted(judgement.subject)
        if all(sorted(allowed) != names for allowed in self.subjects):
            known = " or ".join(" + ".join(allowed) for allowed in self.subjects)
            raise UserError(
                f"a {self.kind} judgement is about {' + '.join(names)}", fix=f"it takes {known}"
            )
        pair = judgement.subject
        if "other_id" in pair and "image_id" in pair and pair["image_id"] > pair["other_id"]:
            raise UserError(
                f"a {self.kind} judgement names its two images out of order",
                fix="sort the two ids, or make the subject with pair_subject",
            )
        answer = judgement.answer
        if answer == WITHDRAWN:
            return
        if isinstance(answer, str):
            if (self.parts and not self.answers) or (self.answers and answer not in self.answers):
                raise UserError(f"{answer!r} does not answer {self.kind}", fix=self._answers())
            return
        if sorted(answer) != sorted(self.parts):
            raise UserError(
                f"a {self.kind} answer has the parts {', '.join(sorted(answer))}",
                fix=self._answers(),
            )
        for name, value in answer.items():
            if self.parts[name] and value not in self.parts[name]:
                raise UserError(
                    f"{value!r} is no {name} of a {self.kind} answer",
                    fix=f"use one of {', '.join(self.parts[name])}",
                )

    def _answers(self) -> str:
        if self.parts:
            return f"give the parts {', '.join(self.parts)}"
        return f"use one of {', '.join(self.answers)}"


CATEGORIES: tuple[str, ...] = (
    "Fine-grained error",
    "Fine-grained error with OOV",
    "Fine-grained with Multilabel Options",
    "Non-prototypical",
    "Spurious Correlation",
    "Other",
)
"""Categories of a mistake, as ImageNet Mistakes publishes them, and ``Other`` for the rest."""

NO_MISTAKE = "Multi-label or synonym"
"""What is proposed or said of a prediction that is right after all; no category of a mistake."""

SEVERITIES: tuple[str, ...] = ("Major", "Minor", "Borderline")
"""Severities of a mistake, worst first; reports fold Borderline into Minor."""

_BUILT_IN = (
    Question(
        kind="vote",
        subjects=(("image_id", "class_id"),),
        answers=("selected", "not-selected"),
    ),
    Question(
        kind="label",
        subjects=(("image_id", "class_id"),),
        answers=("correct", "unclear", "wrong"),
        truths=("correct", "wrong"),
    ),
    Question(
        kind="choice",
        subjects=(("image_id", "class_id", "other_class_id"),),
        answers=("given", "guessed", "both", "neither"),
    ),
    Question(
        kind="duplicate",
        subjects=(("image_id", "other_id"), ("image_id",)),
        answers=("duplicate", "different", "keep"),
    ),
    Question(
        kind="review",
        subjects=(("testset", "class_id"), ("image_id",)),
        answers=("reviewed", "problematic", "blacklisted"),
    ),
    Question(
        kind="mistake",
        subjects=(("image_id", "prediction"),),
        parts={"category": CATEGORIES, "severity": SEVERITIES},
    ),
)

QUESTIONS: Mapping[str, Question] = MappingProxyType({q.kind: q for q in _BUILT_IN})
"""The built-in kinds by name."""

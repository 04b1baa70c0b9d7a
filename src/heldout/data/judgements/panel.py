"""A panel: many people's answers to one question, coded as arrays.

Consensus, agreement and worker quality are computed on a panel, so a million answers cost seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.files import canonical_json
from heldout.data.judgements.judgement import WITHDRAWN, Judgement
from heldout.data.judgements.questions import QUESTIONS, Question

IntArray = npt.NDArray[np.int64]
Repeats = Literal["latest", "all"]


@dataclass(frozen=True, eq=False)
class Panel:
    """The answers of many people to one question.

    ``subjects``, ``workers``, ``answers``  what the codes stand for; subjects as canonical text
    ``subject``, ``worker``, ``answer``     one code each a judgement, sorted by subject, worker
    ``anonymous``                           whether the workers are places, not people (published
                                            totals): then nothing can be said about a worker

    Every subject and every worker has at least one answer.
    """

    question: str
    subjects: tuple[str, ...]
    workers: tuple[str, ...]
    answers: tuple[str, ...]
    subject: IntArray
    worker: IntArray
    answer: IntArray
    anonymous: bool = False

    def __len__(self) -> int:
        return len(self.subject)

    def counts(self) -> IntArray:
        """How often each subject got each answer: shape (subjects, answers); Fleiss' kappa."""
        width = len(self.answers)
        flat = np.bincount(self.subject * width + self.answer, minlength=len(self.subjects) * width)
        return flat.reshape(len(self.subjects), width).astype(np.int64)

    def matrix(self) -> npt.NDArray[np.float64]:
        """Each worker's answer to each subject: shape (workers, subjects), NaN where none.

        The reliability data of Krippendorff's alpha. Needs one answer a person and subject.
        """
        self._need_single()
        cells = np.full((len(self.workers), len(self.subjects)), np.nan)
        cells[self.worker, self.subject] = self.answer
        return cells

    def pair(self, one: str, other: str) -> tuple[IntArray, IntArray]:
        """The answers of two workers to the subjects that both answered; Cohen's kappa."""
        self.need_people()
        self._need_single()
        rows = []
        for who in (one, other):
            if who not in self.workers:
                raise NotFound(f"no answers by {who!r}", fix="see the panel's workers")
            mine = self.worker == self.workers.index(who)
            rows.append((self.subject[mine], self.answer[mine]))
        _, first, second = np.intersect1d(
            rows[0][0], rows[1][0], assume_unique=True, return_indices=True
        )
        return rows[0][1][first], rows[1][1][second]

    @property
    def is_shared(self) -> bool:
        """Whether some subject has answers of two workers or more."""
        return bool(len(self.subject)) and int(np.bincount(self.subject).max()) > 1

    def need_people(self) -> None:
        """Refuse what asks who answered, where published totals do not say."""
        if self.anonymous:
            raise NotApplicable(
                "these answers were published as totals, so their workers are not people",
                fix="use a rule that only counts votes, such as majority",
            )

    def _need_single(self) -> None:
        keys = self.subject * len(self.workers) + self.worker
        if len(np.unique(keys)) != len(keys):
            raise NotApplicable(
                "a person answered about one subject more than once",
                fix='make the panel with repeats="latest"',
            )


def subject_key(subject: Mapping[str, str]) -> str:
    """The canonical text by which a subject is stored and grouped.

    >>> subject_key({"image_id": "a", "class_id": "b"})
    '{"class_id":"b","image_id":"a"}'
    """
    return canonical_json(dict(subject))


def current_answers(judgements: Iterable[Judgement]) -> list[Judgement]:
    """The answers that stand: the latest of each person, question and subject; none taken back.

    An answer that another of the same person, question and subject supersedes is out; of the rest
    the latest by time counts; an unknown time is the oldest; ties go to the larger id. Sorted by
    question, subject, person.
    """
    latest: dict[tuple[str, str, str], Judgement] = {}
    for judgement in not_replaced(judgements):
        known = latest.get(judgement.key)
        if known is None or known.recency < judgement.recency:
            latest[judgement.key] = judgement
    return [latest[key] for key in sorted(latest) if latest[key].answer != WITHDRAWN]


def panel(
    judgements: Iterable[Judgement],
    *,
    part: str | None = None,
    answers: Sequence[str] | None = None,
    repeats: Repeats = "latest",
) -> Panel:
    """Code the judgements of one question.

    ``part``     for answers of several parts: which one, such as ``severity``; else all of it
    ``answers``  the answers in the order to code them; else the question's own order, then others
    ``repeats``  ``latest``: one answer a person and subject counts; ``all``: each that was neither
                 superseded nor withdrawn counts, as when assignments are pooled
    """
    if repeats not in ("latest", "all"):
        raise UserError(f"repeats is {repeats!r}", fix="use latest or all")
    kept = current_answers(judgements) if repeats == "latest" else _standing(judgements)
    kinds = sorted({judgement.question for judgement in kept})
    if len(kinds) > 1:
        raise UserError(
            f"a panel answers one question, these are {', '.join(kinds)}", fix="choose one of them"
        )
    if not kept:
        raise NotApplicable("there are no judgements", fix="check the question and the filters")
    texts = [answer_text(judgement.answer_key, part) for judgement in kept]
    return coded_panel(
        kinds[0],
        [judgement.subject_key for judgement in kept],
        [judgement.who for judgement in kept],
        texts,
        order=answer_order(texts, QUESTIONS.get(kinds[0]), part=part, given=answers),
        anonymous=any(judgement.evidence.get("anonymous") is True for judgement in kept),
    )


def coded_panel(
    question: str,
    subjects: Sequence[str],
    workers: Sequence[str],
    answers: Sequence[str],
    *,
    order: Sequence[str],
    anonymous: bool = False,
) -> Panel:
    """A panel from three columns of equal length; ``order`` lists every answer."""
    subject_names, worker_names = sorted(set(subjects)), sorted(set(workers))
    return from_codes(
        question,
        tuple(subject_names),
        tuple(worker_names),
        tuple(order),
        _codes(subjects, subject_names),
        _codes(workers, worker_names),
        _codes(answers, order),
        anonymous=anonymous,
    )


def _codes(texts: Sequence[str], names: Sequence[str]) -> IntArray:
    place = {name: number for number, name in enumerate(names)}
    return np.fromiter(map(place.__getitem__, texts), dtype=np.int64, count=len(texts))


def from_codes(
    question: str,
    subjects: tuple[str, ...],
    workers: tuple[str, ...],
    answers: tuple[str, ...],
    subject: IntArray,
    worker: IntArray,
    answer: IntArray,
    *,
    anonymous: bool = False,
) -> Panel:
    """A panel from codes in any order."""
    by = np.lexsort((answer, worker, subject))
    return Panel(
        question, subjects, workers, answers, subject[by], worker[by], answer[by], anonymous
    )


def not_replaced(judgements: Iterable[Judgement]) -> list[Judgement]:
    """The judgements that no other of the same person, question and subject supersedes."""
    everything = {judgement.judgement_id: judgement for judgement in judgements}
    replaced = {
        judgement.supersedes
        for judgement in everything.values()
        if judgement.supersedes in everything
        and everything[judgement.supersedes].key == judgement.key
    }
    return [item for item in everything.values() if item.judgement_id not in replaced]


def _standing(judgements: Iterable[Judgement]) -> list[Judgement]:
    kept = not_replaced(judgements)
    # A withdrawal takes back everything that the same person said before it.
    never = ("", False, "")
    withdrawn: dict[tuple[str, str, str], tuple[str, bool, str]] = {}
    for judgement in kept:
        if judgement.answer == WITHDRAWN:
            known = withdrawn.get(judgement.key, never)
            withdrawn[judgement.key] = max(known, judgement.recency)
    return [
        judgement
        for judgement in kept
        if judgement.answer != WITHDRAWN and judgement.recency > withdrawn.get(judgement.key, never)
    ]


def answer_text(key: str, part: str | None) -> str:
    """The answer whose canonical text is ``key``, or that part of it."""
    if part is None:
        return key
    parts: dict[str, str] = json.loads(key) if key.startswith("{") else {}
    if part not in parts:
        raise UserError(f"the answer {key} has no part {part!r}", fix="leave the part out")
    return parts[part]


def answer_order(
    texts: Sequence[str],
    question: Question | None,
    *,
    part: str | None = None,
    given: Sequence[str] | None = None,
) -> list[str]:
    """The answers in the order to code them: ``given``, else the question's, then others sorted."""
    seen = set(texts)
    if given is not None:
        missing = sorted(seen - set(given))
        if missing:
            raise UserError(
                f"the answer {missing[0]!r} is not among those listed", fix="list every answer"
            )
        return list(dict.fromkeys(given))
    known: Sequence[str] = ()
    if question is not None:
        known = question.answers if part is None else question.parts.get(part, ())
    return [*known, *sorted(seen - set(known))]

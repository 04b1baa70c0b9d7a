"""Consensus: many answers about a subject to one, by a stated rule or Dawid and Skene's model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.files import canonical_json
from heldout.data.judgements.judgement import QUESTIONS, WITHDRAWN, Judgement, Question

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
        cells = np.full((2, len(self.subjects)), -1)
        for row, who in zip(cells, (one, other), strict=True):
            if who not in self.workers:
                raise NotFound(f"no answers by {who!r}", fix="see the panel's workers")
            mine = self.worker == self.workers.index(who)
            row[self.subject[mine]] = self.answer[mine]
        first, second = cells[:, (cells >= 0).all(axis=0)]
        return first, second

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
    judgements: Iterable[Judgement], *, part: str | None = None, repeats: Repeats = "latest"
) -> Panel:
    """Code the judgements of one question: its own answers in their order, then others sorted.

    ``part``     for answers of several parts: which one, such as ``severity``; else all of it
    ``repeats``  ``latest``: one answer a person and subject counts; ``all``: each that was neither
                 superseded nor withdrawn counts, as when assignments are pooled
    """
    kept = current_answers(judgements) if repeats == "latest" else standing_answers(judgements)
    return panel_of(kept, QUESTIONS, part=part)


def panel_of(
    standing: Iterable[Judgement], questions: Mapping[str, Question], *, part: str | None
) -> Panel:
    """The panel of answers that all count; ``questions`` say in which order they are coded."""
    kinds: set[str] = set()
    rows: list[tuple[str, str, str]] = []
    anonymous = False
    for judgement in standing:
        kinds.add(judgement.question)
        rows.append((judgement.subject_key, judgement.who, _answer_text(judgement, part)))
        anonymous = anonymous or judgement.evidence.get("anonymous") is True
    if not rows:
        raise NotApplicable("there are no judgements", fix="check the question and the filters")
    kind, *others = sorted(kinds)
    if others:
        raise UserError(
            f"a panel answers one question, these are {', '.join([kind, *others])}",
            fix="choose one of them",
        )
    subjects, workers, answers = zip(*rows, strict=True)
    known: Sequence[str] = ()
    if kind in questions:
        question = questions[kind]
        known = question.answers if part is None else question.parts.get(part, ())
    order = [*known, *sorted(set(answers) - set(known))]
    return coded_panel(kind, subjects, workers, answers, order=order, anonymous=anonymous)


def _answer_text(judgement: Judgement, part: str | None) -> str:
    """An answer, or that part of it."""
    if part is None:
        return judgement.answer_key
    if isinstance(judgement.answer, str) or part not in judgement.answer:
        raise UserError(
            f"the answer {judgement.answer_key} has no part {part!r}", fix="leave the part out"
        )
    return judgement.answer[part]


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


def standing_answers(judgements: Iterable[Judgement]) -> list[Judgement]:
    """All answers but those that were superseded, or given before the person took them back."""
    by_key: dict[tuple[str, str, str], list[Judgement]] = {}
    # Oldest first: a withdrawal takes back everything that the same person said before it.
    for judgement in sorted(not_replaced(judgements), key=lambda one: one.recency):
        said = by_key.setdefault(judgement.key, [])
        if judgement.answer == WITHDRAWN:
            said.clear()
        else:
            said.append(judgement)
    return [judgement for said in by_key.values() for judgement in said]


FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reliability:
    """What the model inferred.

    ``truths``      the answers that can be true; ``answers`` all that can be given
    ``posterior``   probability of each truth: shape (subjects, truths), rows sum to 1
    ``confusion``   shape (workers, truths, answers), last axis sums to 1
    ``prior``       share of each truth: shape (truths,)
    ``objective``   what EM raises, at each step: log likelihood plus log Dirichlet prior
    ``converged``   whether no probability moved by more than the tolerance in the last step
    """

    truths: tuple[str, ...]
    answers: tuple[str, ...]
    workers: tuple[str, ...]
    posterior: FloatArray
    confusion: FloatArray
    prior: FloatArray
    objective: FloatArray
    converged: bool

    @property
    def accuracy(self) -> FloatArray:
        """Each worker's expected share of right answers: shape (workers,)."""
        right = [self.answers.index(truth) for truth in self.truths]
        return np.asarray(self.confusion[:, np.arange(len(right)), right] @ self.prior)


def dawid_skene(
    panel: Panel,
    *,
    truths: Sequence[str] | None = None,
    smoothing: float = 0.01,
    tolerance: float = 1e-6,
    max_steps: int = 2000,
) -> Reliability:
    """Fit the model by EM, starting from the shares of votes; no randomness.

    ``truths``     the answers that can be true; unless given, the question's own (a label is
                   correct or wrong, however unclear it looks), else all answers
    ``smoothing``  a count added to every cell (a Dirichlet prior), so that a worker who never gave
                   an answer does not rule it out
    """
    panel.need_people()
    names = _truths(panel, truths)
    shape = (len(names), len(panel.workers), len(panel.answers))
    given = panel.worker * shape[2] + panel.answer
    starts = np.flatnonzero(np.diff(panel.subject, prepend=-1))  # rows are sorted by subject
    posterior = _vote_shares(panel, names)
    objective: list[float] = []
    while True:
        prior = posterior.sum(axis=0) + smoothing
        prior /= prior.sum()
        weight = posterior[panel.subject]
        expected = np.stack(
            [
                np.bincount(given, weights=weight[:, truth], minlength=shape[1] * shape[2])
                for truth in range(shape[0])
            ]
        )
        by_worker = expected.reshape(shape).swapaxes(0, 1)
        confusion = np.asarray(by_worker + smoothing, dtype=np.float64)
        confusion /= confusion.sum(axis=2, keepdims=True)
        log_confusion = np.log(confusion)
        joint = np.add.reduceat(log_confusion[panel.worker, :, panel.answer], starts, axis=0)
        joint += np.log(prior)
        top = joint.max(axis=1, keepdims=True)
        updated = np.exp(joint - top)
        total = updated.sum(axis=1, keepdims=True)
        updated /= total
        penalty = smoothing * (float(np.log(prior).sum()) + float(log_confusion.sum()))
        objective.append(float((top + np.log(total)).sum()) + penalty)
        converged = bool(np.abs(updated - posterior).max() < tolerance)
        posterior = updated
        if converged or len(objective) == max_steps:
            break
    return Reliability(
        names,
        panel.answers,
        panel.workers,
        posterior,
        confusion,
        prior,
        np.array(objective),
        converged,
    )


def _truths(panel: Panel, given: Sequence[str] | None) -> tuple[str, ...]:
    question = QUESTIONS.get(panel.question)
    own = question.truths if question is not None else ()
    # A part of an answer, or a user's own list, may not have the question's truths.
    default = own if own and set(own) <= set(panel.answers) else panel.answers
    names = tuple(dict.fromkeys(default if given is None else given))
    if not names or not set(names) <= set(panel.answers):
        raise UserError(
            f"the truths {', '.join(names) or 'none'} are not answers of this panel",
            fix=f"choose among {', '.join(panel.answers)}",
        )
    return names


def _vote_shares(panel: Panel, truths: tuple[str, ...]) -> FloatArray:
    """Share of votes for each truth; votes for what cannot be true are split evenly."""
    votes = panel.counts()
    columns = votes[:, [panel.answers.index(truth) for truth in truths]].astype(np.float64)
    n = votes.sum(axis=1, keepdims=True)
    split = (n - columns.sum(axis=1, keepdims=True)) / len(truths)
    return np.asarray((columns + split) / n)


Rule = Literal["majority", "plurality", "unanimous", "threshold", "dawid-skene", "score"]

RULES: tuple[Rule, ...] = get_args(Rule)
UNCLEAR = "unclear"
_ROUNDING = 1e-12  # 7 of 10 reaches a share of 0.7 however the division rounds


@dataclass(frozen=True)
class Verdict:
    """The consensus on one subject.

    ``share``      the part of the votes that the answer got; for ``dawid-skene`` and ``score`` its
                   probability; for an unclear subject that of the leading answer
    ``agreement``  share of pairs of answers that agree (Fleiss' P_i); NaN below two answers
    """

    subject: dict[str, str]
    answer: str
    votes: dict[str, int]
    share: float
    n: int
    agreement: float


@dataclass(frozen=True, eq=False)
class Consensus:
    """The consensus on every subject of a panel, in columns that run along its subjects."""

    question: str
    rule: Rule
    subjects: tuple[str, ...]
    answers: tuple[str, ...]
    answer: tuple[str, ...]
    votes: IntArray
    share: FloatArray
    n: IntArray
    agreement: FloatArray

    def __len__(self) -> int:
        return len(self.subjects)

    def __iter__(self) -> Iterator[Verdict]:
        for row, text in enumerate(self.subjects):
            votes = dict(zip(self.answers, self.votes[row].tolist(), strict=True))
            yield Verdict(
                json.loads(text),
                self.answer[row],
                votes,
                float(self.share[row]),
                int(self.n[row]),
                float(self.agreement[row]),
            )

    def by_subject(self) -> dict[str, str]:
        """The answer by subject (canonical text), as gold for worker quality."""
        return dict(zip(self.subjects, self.answer, strict=True))


def consensus(
    judgements: Iterable[Judgement] | Panel,
    *,
    rule: Rule = "majority",
    share: float | None = None,
    positive: str | None = None,
    truths: Sequence[str] | None = None,
    part: str | None = None,
) -> Consensus:
    """One answer a subject, by ``rule``; where the rule does not decide, :data:`UNCLEAR`.

    ``majority``     more than half of the votes
    ``plurality``    more votes than any other answer
    ``unanimous``    all votes
    ``threshold``    at least ``share`` of the votes, and more than any other answer
    ``dawid-skene``  the most probable answer once workers are weighted by their reliability
                     (:func:`dawid_skene`); with ``share``, only if it is at least that probable
    ``score``        ``positive`` where its probability is at least ``share`` (0.8 unless given,
                     the cut of the ReaL labels), else the most probable other answer

    ``truths`` are the answers that can be true, for the last two (see :func:`dawid_skene`). Of a
    person's several answers about a subject the latest counts. Raises if the model does not
    converge, or has nothing to weigh people by: no two of them answered about one subject.
    """
    if rule not in RULES:
        raise UserError(
            f"{rule!r} is not a rule of consensus", fix=f"use one of {', '.join(RULES)}"
        )
    answers = judgements if isinstance(judgements, Panel) else panel(judgements, part=part)
    cut = _checked_share(rule, share)
    votes = answers.counts()
    n = votes.sum(axis=1)
    if rule in ("dawid-skene", "score"):
        weight = _probabilities(answers, truths)
    else:
        weight = votes / n[:, None]
    best = weight.argmax(axis=1)
    rows = np.arange(len(weight))
    decided = np.ones(len(weight), dtype=bool)
    if rule == "score":
        best = _scored(answers, weight, positive, cut)
    elif rule == "dawid-skene":
        decided = weight[rows, best] >= cut - _ROUNDING
    else:
        top = votes[rows, best]
        alone = (votes == top[:, None]).sum(axis=1) == 1
        reached = 2 * top > n if rule == "majority" else weight[rows, best] >= cut - _ROUNDING
        decided = reached & alone
    names = [
        answers.answers[code] if sure else UNCLEAR for code, sure in zip(best, decided, strict=True)
    ]
    return Consensus(
        answers.question,
        rule,
        answers.subjects,
        answers.answers,
        tuple(names),
        votes,
        weight[rows, best],
        n,
        _agreement(votes, n),
    )


def _checked_share(rule: Rule, share: float | None) -> float:
    if share is None:
        if rule == "threshold":
            raise UserError("the rule threshold needs a share", fix="such as share = 0.7")
        return {"unanimous": 1.0, "score": 0.8}.get(rule, 0.0)
    if rule not in ("threshold", "dawid-skene", "score"):
        raise UserError(f"the rule {rule} takes no share", fix="use threshold")
    if not 0.0 < share <= 1.0:
        raise UserError(f"a share of {share}", fix="give a fraction above 0 and up to 1")
    return float(share)


def _probabilities(panel: Panel, truths: Sequence[str] | None) -> FloatArray:
    if not panel.is_shared:
        raise NotApplicable(
            "no two people answered about the same thing, so nothing weighs one against another",
            fix="ask a second person about some of it, or use the rule majority",
        )
    fit = dawid_skene(panel, truths=truths)
    if not fit.converged:
        raise NotApplicable(
            f"Dawid-Skene did not settle in {len(fit.objective)} steps",
            fix="collect more answers a subject, or use a rule that counts votes",
        )
    wide = np.zeros((len(panel.subjects), len(panel.answers)))
    wide[:, [panel.answers.index(truth) for truth in fit.truths]] = fit.posterior
    return wide


def _scored(
    panel: Panel, probability: FloatArray, positive: str | None, cut: float
) -> npt.NDArray[np.intp]:
    if positive not in panel.answers:
        raise UserError(
            f"the rule score needs the answer to score, not {positive!r}",
            fix=f"use one of {', '.join(panel.answers)}",
        )
    column = panel.answers.index(positive)
    others = probability.copy()
    others[:, column] = -1.0
    kept = probability[:, column] >= cut
    return np.where(kept, column, others.argmax(axis=1))


def _agreement(votes: IntArray, n: IntArray) -> FloatArray:
    pairs = (n * (n - 1)).astype(np.float64)
    agreeing = (votes * (votes - 1)).sum(axis=1)
    share: FloatArray = np.full(len(n), np.nan)
    np.divide(agreeing, pairs, out=share, where=pairs > 0)
    return share

"""Consensus: from many answers about a subject to one, by a stated rule."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.dawid_skene import dawid_skene
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.panel import IntArray, Panel, panel

FloatArray = npt.NDArray[np.float64]
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
    unclear: str = UNCLEAR,
) -> Consensus:
    """One answer a subject, by ``rule``; where the rule does not decide, ``unclear``.

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
        raise UserError(f"{rule!r} is no rule of consensus", fix=f"use one of {', '.join(RULES)}")
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
        answers.answers[code] if sure else unclear for code, sure in zip(best, decided, strict=True)
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

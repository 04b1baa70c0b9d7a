"""The kind of every mistake: what people judged, and what is proposed where nobody has.

A verdict belongs to an (image, prediction) pair, so it holds for every model that makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from heldout.data.judgements.consensus import UNCLEAR, Rule, consensus
from heldout.data.judgements.judgement import Judgement
from heldout.measure.mistakes.categories import OTHER, Evidence, Proposal
from heldout.measure.mistakes.mistake import Mistake

Basis = Literal["judged", "proposed", "unreviewed"]
JUDGED: Basis = "judged"
PROPOSED: Basis = "proposed"
UNREVIEWED: Basis = "unreviewed"
BASES: tuple[Basis, ...] = (JUDGED, PROPOSED, UNREVIEWED)

UNJUDGED = "unjudged"
"""The severity of a mistake that nobody has judged: it may be suggested, but never decided."""

NO_OUTPUT = "No output"
"""The model has no answer for the image."""
NO_CLASS = "No class of the set"
"""The model's answer is a class that the set does not have."""

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What kind of mistake one (image, prediction) pair is.

    ``severity``  as judged, or ``unjudged``
    ``basis``     ``judged`` by people; ``proposed`` from evidence; ``unreviewed``: proposed, and
                  nobody has looked whether the prediction is wrong at all
    ``major``     the suggested probability that it is Major, with its limits; None without one
    ``reviewers`` how many people judged it
    """

    category: str
    severity: str = UNJUDGED
    basis: Basis = PROPOSED
    evidence: tuple[Evidence, ...] = ()
    major: tuple[float, float, float] | None = None
    reviewers: int = 0


def kinds_of(
    mistakes: Iterable[Mistake],
    *,
    judgements: Iterable[Judgement] = (),
    proposals: Iterable[Proposal] = (),
    rule: Rule = "majority",
) -> dict[Key, Kind]:
    """By (image, prediction): the kind of every mistake.

    ``judgements`` answer the question ``mistake``; those of other pairs are passed over. Several
    people's answers become one by ``rule``, category and severity each for itself; what the rule
    does not decide is ``unclear``. A mistake without judgement and proposal is ``Other``.
    """
    listed = list(mistakes)
    wanted = {(mistake.image_id, mistake.prediction) for mistake in listed}
    judged = judged_kinds((j for j in judgements if _key(j) in wanted), rule=rule)
    proposed = {proposal.key: proposal for proposal in proposals}
    found = {}
    for mistake in listed:
        key = (mistake.image_id, mistake.prediction)
        proposal = proposed.get(key)
        evidence = () if proposal is None else proposal.evidence
        if key in judged:
            category, severity, people = judged[key]
            found[key] = Kind(
                category=category,
                severity=severity,
                basis=JUDGED,
                evidence=evidence,
                reviewers=people,
            )
        else:
            found[key] = Kind(
                category=OTHER if proposal is None else proposal.category,
                basis=PROPOSED if mistake.reviewed else UNREVIEWED,
                evidence=evidence,
                major=_major(proposal),
            )
    return found


def judged_kinds(
    judgements: Iterable[Judgement], *, rule: Rule = "majority"
) -> dict[Key, tuple[str, str, int]]:
    """By (image, prediction): category, severity and how many people, by a rule of consensus."""
    answers = [judgement for judgement in judgements if judgement.question == "mistake"]
    if not answers:
        return {}
    categories = consensus(answers, rule=rule, part="category")
    severities = consensus(answers, rule=rule, part="severity", unclear=UNCLEAR).by_subject()
    found = {}
    for subject, category, people in zip(
        categories.subjects, categories.answer, categories.n.tolist(), strict=True
    ):
        about: Mapping[str, str] = json.loads(subject)
        found[about["image_id"], about["prediction"]] = (category, severities[subject], people)
    return found


def _key(judgement: Judgement) -> Key:
    subject = judgement.subject
    return subject.get("image_id", ""), subject.get("prediction", "")


def _major(proposal: Proposal | None) -> tuple[float, float, float] | None:
    if proposal is None or proposal.severity_probability is None:
        return None
    value = proposal.severity_probability
    low, high = proposal.severity_low, proposal.severity_high
    return value, value if low is None else low, value if high is None else high

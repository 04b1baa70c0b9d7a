"""Proposals: the category of every mistake, with the evidence for it, and how bad it may be.

Without judged mistakes, rules decide (:mod:`.rules`) and nothing is said about severity.
With some, both are learned from them (:mod:`.learning`, :mod:`.severity`).
Either way a prediction that is another name of a right label comes first: it is no mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.data.judgements.questions import CATEGORIES, SEVERITIES
from heldout.measure.mistakes.categories import NO_MISTAKE, PROPOSABLE, Evidence, Proposal
from heldout.measure.mistakes.evidence import EvidenceTable, evidence_table
from heldout.measure.mistakes.evidence_text import Wording
from heldout.measure.mistakes.folds import grouped_folds
from heldout.measure.mistakes.knowledge import Knowledge
from heldout.measure.mistakes.learning import Learned, learn
from heldout.measure.mistakes.mistake import Mistake
from heldout.measure.mistakes.rules import ORDER, Rules, first_that_holds, reasons, strengths
from heldout.measure.mistakes.severity import SeverityModel, learn_severity, suggested

Key = tuple[str, str]
SHOWN = 4
_FACTS = ("affinity", "lca_size", "cooccurrence", "peers_same")


@dataclass(frozen=True, eq=False)
class Lessons:
    """What judged mistakes teach: categories, and severity where it can be learned."""

    categories: Learned
    severity: SeverityModel | None = None


def propose(
    mistakes: Sequence[Mistake],
    knowledge: Knowledge,
    *,
    lessons: Lessons | None = None,
    rules: Rules | None = None,
    shown: int = SHOWN,
) -> tuple[Proposal, ...]:
    """A proposal for each mistake, in their order; ``shown`` is the most evidence each carries."""
    return propose_from(evidence_table(mistakes, knowledge), lessons, rules=rules, shown=shown)


def propose_from(
    table: EvidenceTable,
    lessons: Lessons | None = None,
    *,
    rules: Rules | None = None,
    shown: int = SHOWN,
) -> tuple[Proposal, ...]:
    """:func:`propose` from evidence that is at hand."""
    if not len(table):
        return ()
    if lessons is None:
        names, scores = ORDER, strengths(table, rules)
        chosen = first_that_holds(scores)
    else:
        learned = lessons.categories
        scores = learned.probabilities(table)
        chosen = learned.choose(scores) + 1
        chosen[table.collapsed] = 0
        # What is no mistake is not a matter of probability: the table says so, or it does not.
        sure = table.collapsed.astype(np.float64)[:, None]
        names, scores = (NO_MISTAKE, *learned.categories), np.hstack([sure, scores * (1 - sure)])
    order = [names.index(name) if name in names else -1 for name in PROPOSABLE]
    words = Wording(table)
    ranked = _ranked(table, lessons, chosen, names)
    severity = None if lessons is None else lessons.severity
    limits = None if severity is None else [part.tolist() for part in severity.suggest(table)]
    listed = scores.tolist()
    proposals = []
    for row, place in enumerate(chosen.tolist()):
        mistake, mine = table.mistakes[row], listed[row]
        major, low, high = (None, None, None) if limits is None else (part[row] for part in limits)
        proposals.append(
            Proposal(
                image_id=mistake.image_id,
                prediction=mistake.prediction,
                category=names[place],
                severity=None if low is None or high is None else suggested(low, high),
                severity_probability=major,
                severity_low=low,
                severity_high=high,
                evidence=_evidence(words, row, names[place], ranked[row], shown),
                scores={
                    name: 0.0 if at < 0 else mine[at]
                    for name, at in zip(PROPOSABLE, order, strict=True)
                },
                basis="rules" if lessons is None else "learned",
            )
        )
    return tuple(proposals)


def lessons_from(
    table: EvidenceTable, verdicts: Mapping[Key, tuple[str, str]], *, seed: int = 0
) -> Lessons:
    """What can be learned from judged mistakes.

    ``verdicts`` are category and severity by (image, prediction); mistakes of ``table`` that are not
    among them are passed over. Severity is left out where too few are of either kind.
    """
    rows = [
        row
        for row, mistake in enumerate(table.mistakes)
        if (mistake.image_id, mistake.prediction) in verdicts
    ]
    judged = rows_of_table(table, rows)
    answers = [verdicts[mistake.image_id, mistake.prediction] for mistake in judged.mistakes]
    kinds, values = judged.features()
    images = [mistake.image_id for mistake in judged.mistakes]
    categories = learn(judged, [category for category, _ in answers], seed=seed)
    try:
        severity = learn_severity(
            kinds, values, images, [severity for _, severity in answers], seed=seed
        )
    except NotApplicable:
        return Lessons(categories)
    return Lessons(categories, severity)


def propose_learning(
    table: EvidenceTable,
    judged: EvidenceTable,
    verdicts: Mapping[Key, tuple[str, str]],
    *,
    folds: int = 10,
    seed: int = 0,
    shown: int = SHOWN,
) -> tuple[Proposal, ...]:
    """Proposals for the mistakes of ``table``, learned from those of ``judged``.

    Nothing is proposed for an image from judgements of the same image: these images are dealt into
    folds, and each fold's mistakes are proposed from the other folds.
    """
    known = [
        (mistake.image_id, verdicts[mistake.image_id, mistake.prediction][0])
        for mistake in judged.mistakes
        if (mistake.image_id, mistake.prediction) in verdicts
    ]
    lessons = lessons_from(judged, verdicts, seed=seed)
    mine = {mistake.image_id for mistake in table.mistakes}
    if mine.isdisjoint(image for image, _ in known):
        return propose_from(table, lessons, shown=shown)
    parts = grouped_folds(
        [image for image, _ in known],
        [answer for _, answer in known],
        folds,
        rng=np.random.default_rng(seed),
    )
    fold_of = {image: fold for (image, _), fold in zip(known, parts.tolist(), strict=True)}
    places = [fold_of.get(mistake.image_id, -1) for mistake in table.mistakes]
    found: list[Proposal | None] = [None] * len(table)
    for fold in sorted(set(places)):
        rows = [row for row, place in enumerate(places) if place == fold]
        if fold >= 0:
            others = {
                key: answer for key, answer in verdicts.items() if fold_of.get(key[0]) != fold
            }
            lessons_now = lessons_from(judged, others, seed=seed)
        else:
            lessons_now = lessons
        proposed = propose_from(rows_of_table(table, rows), lessons_now, shown=shown)
        for row, proposal in zip(rows, proposed, strict=True):
            found[row] = proposal
    return tuple(proposal for proposal in found if proposal is not None)


def decided(verdicts: Mapping[Key, tuple[str, str]]) -> dict[Key, tuple[str, str]]:
    """Verdicts that name a category and a severity; those that reviewers did not agree on are out."""
    return {
        key: (category, severity)
        for key, (category, severity) in sorted(verdicts.items())
        if category in CATEGORIES and severity in SEVERITIES
    }


def rows_of_table(table: EvidenceTable, rows: Sequence[int]) -> EvidenceTable:
    """An evidence table cut to some of its rows, in that order."""
    where = np.asarray(rows, dtype=np.int64)
    return EvidenceTable(
        knowledge=table.knowledge,
        mistakes=tuple(table.mistakes[row] for row in rows),
        predictions=table.predictions[where],
        columns={kind: values[where] for kind, values in table.columns.items()},
        nearest={kind: values[where] for kind, values in table.nearest.items()},
        nodes=table.nodes[where],
        groups=table.groups[where],
        collapsed=table.collapsed[where],
    )


def _ranked(
    table: EvidenceTable, lessons: Lessons | None, chosen: np.ndarray, names: Sequence[str]
) -> list[tuple[str, ...]]:
    """For each mistake the kinds of evidence that speak for its category, strongest first."""
    if lessons is None:
        known = {
            name: tuple(kind for kind in kinds if kind in table.columns)
            for name, kinds in reasons().items()
        }
        return [known[names[place]] for place in chosen.tolist()]
    learned = lessons.categories
    kinds = tuple(dict.fromkeys(learned.kinds))
    joined = np.array([[kind == other for other in kinds] for kind in learned.kinds], dtype=float)
    pulls = learned.pulls(table)
    mine = pulls[np.arange(len(table)), np.maximum(chosen - 1, 0)] @ joined
    order = np.argsort(-mine, axis=1, kind="stable")
    return [
        tuple(kinds[at] for at in ranks if row[at] > 0)
        for ranks, row in zip(order.tolist(), mine.tolist(), strict=True)
    ]


def _evidence(
    words: Wording, row: int, category: str, ranked: Sequence[str], shown: int
) -> tuple[Evidence, ...]:
    if shown < 1:
        return ()
    if category == NO_MISTAKE:
        return (words.same(row),)
    said = [words.say(kind, row) for kind in (ranked or _FACTS)]
    return tuple(item for item in said if item is not None)[:shown]

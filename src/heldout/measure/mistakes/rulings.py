"""Rulings: what a panel makes of its members' answers about (image, prediction) pairs.

Each member says whether a prediction is correct, unclear or wrong for the image (question
``label``) and, of a wrong one, its category and severity (question ``mistake``). A mistake verdict
alone says wrong as well. One rule turns the members' answers into one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.importing.filled_queue import AIM, QUEUE
from heldout.data.judgements.consensus import UNCLEAR, Rule, consensus
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.panel import Panel, coded_panel, current_answers, subject_key
from heldout.data.judgements.questions import QUESTIONS, SEVERITIES
from heldout.stats.agreement import cohen_kappa, krippendorff_alpha
from heldout.stats.bootstrap import bootstrap_statistic

MINOR, BORDERLINE = SEVERITIES[1], SEVERITIES[2]
PARTS = ("answer", "category", "severity")
Key = tuple[str, str]


@dataclass(frozen=True)
class Ruling:
    """What the panel says of one (image, prediction) pair.

    ``answer``    correct, unclear or wrong; unclear also where the rule does not decide
    ``category``, ``severity``  of a wrong one: by the rule among those who said, ``unclear`` where
                  it does not decide; None where nobody said, or where it is not wrong
    ``people``    how many answered; ``votes`` what, in the order correct, unclear, wrong
    ``queues``    the queues from which they were asked: a name for each, none for answers that
                  came another way
    """

    image_id: str
    prediction: str
    answer: str
    category: str | None
    severity: str | None
    people: int
    votes: tuple[int, int, int]
    queues: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """(image, prediction)."""
        return self.image_id, self.prediction

    @property
    def accepted(self) -> bool:
        """Whether the prediction counts as right: correct, or unclear."""
        return self.answer != "wrong"


@dataclass(frozen=True, eq=False)
class PanelAnswers:
    """The answers that stand, by person and pair; what rulings and agreement are made of.

    ``answers``  (person, image, prediction) -> (answer, category or None, severity or None)
    ``queues``   (image, prediction) -> the queues that asked
    """

    answers: Mapping[tuple[str, str, str], tuple[str, str | None, str | None]]
    queues: Mapping[Key, tuple[str, ...]]

    def part(self, name: str) -> Panel:
        """The panel on ``answer``, ``category`` or ``severity``."""
        place = PARTS.index(name)
        rows = [
            (subject_key({"image_id": image, "prediction": prediction}), who, value)
            for (who, image, prediction), given in self.answers.items()
            if (value := given[place]) is not None
        ]
        if not rows:
            raise NotApplicable(
                f"nobody on the panel gave {'an answer' if place == 0 else f'a {name}'}",
                fix="import judgements first: heldout import judgements",
            )
        subjects, people, values = zip(*rows, strict=True)
        question = QUESTIONS["label" if place == 0 else "mistake"]
        order = question.answers if place == 0 else question.parts[name]
        return coded_panel(question.kind, subjects, people, values, order=order)


def panel_answers(judgements: Iterable[Judgement], *, fold: bool = True) -> PanelAnswers:
    """The answers of the questions ``label`` and ``mistake`` that stand, laid together.

    ``fold`` counts Borderline as Minor, so that two who differ only in that agree. A person who
    calls a prediction correct or unclear and also gave it a category is believed on the first.
    """
    given: dict[tuple[str, str, str], dict[str, Judgement]] = {}
    for judgement in current_answers(j for j in judgements if j.question in ("label", "mistake")):
        subject = judgement.subject
        label = subject["class_id"] if judgement.question == "label" else subject["prediction"]
        key = (judgement.who, subject["image_id"], label)
        given.setdefault(key, {})[judgement.question] = judgement
    answers: dict[tuple[str, str, str], tuple[str, str | None, str | None]] = {}
    queues: dict[Key, set[str]] = {}
    for key in sorted(given):
        both = given[key]
        answer = both["label"].answer_key if "label" in both else "wrong"
        category: str | None = None
        severity: str | None = None
        if answer == "wrong" and "mistake" in both:
            parts = both["mistake"].answer
            if isinstance(parts, Mapping):
                category, severity = parts["category"], parts["severity"]
                severity = MINOR if fold and severity == BORDERLINE else severity
        answers[key] = (answer, category, severity)
        asked = queues.setdefault(key[1:], set())
        for judgement in both.values():
            evidence = judgement.evidence
            if evidence.get(QUEUE) and evidence.get(AIM) != "hard":
                asked.add(str(evidence[QUEUE]))
    return PanelAnswers(answers, {key: tuple(sorted(names)) for key, names in queues.items()})


def rulings(
    judgements: Iterable[Judgement] | PanelAnswers,
    *,
    rule: Rule = "majority",
    share: float | None = None,
    people: int = 1,
    fold: bool = True,
) -> dict[Key, Ruling]:
    """The panel's ruling on every pair that at least ``people`` have judged, sorted by pair.

    ``rule`` and ``share`` are those of :func:`heldout.data.judgements.consensus`; what it does not decide
    is unclear.
    """
    if people < 1:
        raise UserError(f"a panel of {people} people", fix="ask for 1 or more")
    given = (
        judgements if isinstance(judgements, PanelAnswers) else panel_answers(judgements, fold=fold)
    )
    if not given.answers:
        return {}
    labels = consensus(given.part("answer"), rule=rule, share=share)
    columns = [labels.answers.index(answer) for answer in QUESTIONS["label"].answers]
    kinds = {part: _by_subject(given, part, rule, share) for part in PARTS[1:]}
    found = {}
    for row, subject in enumerate(labels.subjects):
        if labels.n[row] < people:
            continue
        about = json.loads(subject)
        key = (about["image_id"], about["prediction"])
        answer = labels.answer[row]
        wrong = answer == "wrong"
        correct, unclear, against = (int(labels.votes[row, column]) for column in columns)
        found[key] = Ruling(
            *key,
            answer,
            kinds["category"].get(subject) if wrong else None,
            kinds["severity"].get(subject) if wrong else None,
            int(labels.n[row]),
            (correct, unclear, against),
            given.queues.get(key, ()),
        )
    return dict(sorted(found.items()))


def _by_subject(
    given: PanelAnswers, part: str, rule: Rule, share: float | None
) -> Mapping[str, str]:
    place = PARTS.index(part)
    if all(answer[place] is None for answer in given.answers.values()):
        return {}
    panel = given.part(part)
    if (
        not panel.is_shared
    ):  # sole verdicts stand as they are; there is nobody to weigh them against
        return consensus(panel, rule="majority", unclear=UNCLEAR).by_subject()
    # A rule that does not come to an end says so: nobody's verdicts are dropped without a word.
    return consensus(panel, rule=rule, share=share, unclear=UNCLEAR).by_subject()


@dataclass(frozen=True)
class Agreement:
    """How far the panel's members agree on one part of their answers.

    ``subjects``    pairs that at least two judged; ``people`` who did
    ``share``       of pairs of answers about the same subject, those that are equal
    ``alpha``       Krippendorff's, with its interval over subjects; None where it does not exist
    ``kappas``      Cohen's kappa of every two people with subjects in common, and how many
    """

    part: str
    subjects: int
    people: int
    share: float
    alpha: float | None
    low: float | None
    high: float | None
    kappas: tuple[tuple[str, str, int, float], ...]


def agreement(
    answers: PanelAnswers, part: str, *, seed: int = 0, replicates: int = 200, level: float = 0.95
) -> Agreement:
    """Agreement on ``answer``, ``category`` or ``severity``.

    The interval of alpha comes from drawing subjects anew, all their answers together.
    """
    if part not in PARTS:
        raise UserError(f"no part {part!r}", fix=f"use one of {', '.join(PARTS)}")
    panel = answers.part(part)
    counts = panel.counts()
    several = np.flatnonzero(counts.sum(axis=1) > 1)
    if not len(several):
        raise NotApplicable(
            f"nobody's {part} can be compared: no (image, prediction) has two",
            fix="ask a second reviewer",
        )
    matrix = panel.matrix()[:, several]
    kept = counts[several].astype(np.float64)
    n = kept.sum(axis=1)
    same = float((kept * (kept - 1)).sum() / (n * (n - 1)).sum())
    alpha: float | None = None
    low: float | None = None
    high: float | None = None
    if len(np.unique(matrix[~np.isnan(matrix)])) > 1:
        alpha = krippendorff_alpha(matrix)
        if len(several) > 2:

            def drawn(rows: np.ndarray) -> float:
                part_of = matrix[:, rows]
                if len(np.unique(part_of[~np.isnan(part_of)])) < 2:
                    return 1.0  # all of one answer: nobody disagrees
                return krippendorff_alpha(part_of)

            made = bootstrap_statistic(
                drawn,
                len(several),
                rng=np.random.default_rng(seed),
                replicates=replicates,
                level=level,
                method="percentile",
            )
            low, high = float(made.interval.low), float(made.interval.high)
    return Agreement(part, len(several), len(panel.workers), same, alpha, low, high, _kappas(panel))


def _kappas(panel: Panel) -> tuple[tuple[str, str, int, float], ...]:
    found = []
    for place, one in enumerate(panel.workers):
        for other in panel.workers[place + 1 :]:
            first, second = panel.pair(one, other)
            if len(first) and len(np.unique([*first, *second])) > 1:
                found.append((one, other, len(first), cohen_kappa(first, second)))
    return tuple(found)

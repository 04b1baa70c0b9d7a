"""A panel's verdicts on mistakes: from judgements and from published files to one ruling per prediction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from heldout.core.errors import BadFile, MismatchError, NotApplicable
from heldout.core.files import existing_file
from heldout.core.records import Table
from heldout.data.judgements.consensus import (
    Panel,
    Rule,
    coded_panel,
    consensus,
    current_answers,
    subject_key,
)
from heldout.data.judgements.files import read_judgements
from heldout.data.judgements.judgement import AIM, QUESTIONS, QUEUE, SEVERITIES, Judgement
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.mistakes.categories import OTHER, Evidence, Proposal
from heldout.measure.mistakes.verdicts import Key, Mistakes
from heldout.measure.score.truth import truth_arrays
from heldout.models.predictions import Predictions
from heldout.stats.bootstrap import bootstrap_statistic

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


@dataclass(frozen=True)
class Kind:
    """What kind of mistake one (image, prediction) pair is.

    ``severity``  as judged, or ``unjudged``
    ``basis``     ``judged`` by people; ``proposed`` from evidence; ``unreviewed``: proposed, and
                  nobody has looked whether the prediction is wrong at all
    ``major``     the suggested probability that it is Major, with its limits; None without one
    """

    category: str
    severity: str = UNJUDGED
    basis: Basis = PROPOSED
    evidence: tuple[Evidence, ...] = ()
    major: tuple[float, float, float] | None = None


def kinds_of(
    mistakes: Mistakes,
    *,
    judgements: Iterable[Judgement] = (),
    proposals: Iterable[Proposal] = (),
) -> dict[Key, Kind]:
    """By (image, prediction): the kind of every mistake.

    ``judgements`` answer the question ``mistake``; those of other pairs are passed over. A mistake
    without judgement and proposal is ``Other``.
    """
    judged = judged_kinds(judgements)
    proposed = {proposal.key: proposal for proposal in proposals}
    found = {}
    for key, reviewed in zip(mistakes.keys, mistakes.reviewed.tolist(), strict=True):
        proposal = proposed.get(key, Proposal(*key, OTHER))
        if key in judged:
            found[key] = Kind(*judged[key], JUDGED, proposal.evidence)
            continue
        limits = proposal.severity_probability, proposal.severity_low, proposal.severity_high
        value, low, high = limits
        found[key] = Kind(
            proposal.category,
            basis=PROPOSED if reviewed else UNREVIEWED,
            evidence=proposal.evidence,
            major=None if value is None or low is None or high is None else (value, low, high),
        )
    return found


def judged_kinds(judgements: Iterable[Judgement]) -> dict[Key, tuple[str, str]]:
    """By (image, prediction), sorted: category and severity.

    Several people's answers become one by majority, category and severity each for itself; what has
    none is ``unclear``.
    """
    answers = [judgement for judgement in judgements if judgement.question == "mistake"]
    if not answers:
        return {}
    severities = consensus(answers, part="severity").by_subject()
    found = {}
    for subject, category in consensus(answers, part="category").by_subject().items():
        about = json.loads(subject)
        found[about["image_id"], about["prediction"]] = (category, severities[subject])
    return dict(sorted(found.items()))


MINOR, BORDERLINE = SEVERITIES[1], SEVERITIES[2]
PARTS = ("answer", "category", "severity")


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
    given: PanelAnswers,
    *,
    rule: Rule = "majority",
    share: float | None = None,
    people: int = 1,
) -> dict[Key, Ruling]:
    """The panel's ruling on every pair that at least ``people`` have judged, sorted by pair.

    ``rule`` and ``share`` are those of :func:`heldout.data.judgements.consensus`; what it does not decide
    is unclear.
    """
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
    try:
        panel = given.part(part)
    except NotApplicable:  # nobody said
        return {}
    if not panel.is_shared:
        # Sole verdicts are kept as they are: there is nobody to weigh them against.
        return consensus(panel).by_subject()
    # A rule that does not come to an end says so: nobody's verdicts are dropped without a word.
    return consensus(panel, rule=rule, share=share).by_subject()


@dataclass(frozen=True)
class PanelAgreement:
    """How far the panel's members agree on one part of their answers.

    ``subjects``    pairs that at least two judged; ``people`` who did
    ``share``       of pairs of answers about the same subject, those that are equal
    ``alpha``       Krippendorff's, with its interval over subjects; None where it does not exist
    ``kappas``      Cohen's kappa of every two people with subjects in common, and how many
    """

    record: ClassVar[str] = "panel_agreement"
    table: ClassVar[Table] = Table(
        "agreement of reviewers",
        (
            "on=part",
            "pairs=subjects:,",
            "people:,",
            "equal answers=share:%1",
            "Krippendorff's alpha=alpha:.2f[]",
        ),
    )
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
) -> PanelAgreement:
    """Agreement on ``answer``, ``category`` or ``severity``.

    The interval of alpha comes from drawing subjects anew, all their answers together.
    """
    from heldout.stats.agreement import krippendorff_alpha

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
    alpha = low = high = None
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
    return PanelAgreement(
        part, len(several), len(panel.workers), same, alpha, low, high, _kappas(panel)
    )


def _kappas(panel: Panel) -> tuple[tuple[str, str, int, float], ...]:
    from heldout.stats.agreement import cohen_kappa

    found = []
    for place, one in enumerate(panel.workers):
        for other in panel.workers[place + 1 :]:
            first, second = panel.pair(one, other)
            if len(first) and len(np.unique([*first, *second])) > 1:
                found.append((one, other, len(first), cohen_kappa(first, second)))
    return tuple(found)


@dataclass(frozen=True)
class MistakeFile:
    """Mistakes with their category and severity, one verdict an (image, prediction).

    ``verdicts``   (image id, class id) to (category, severity), sorted; ``unclear`` where several
                   reviewers do not agree
    """

    path: Path
    verdicts: Mapping[Key, tuple[str, str]]

    @property
    def name(self) -> str:
        """What to call the model whose mistakes these are: ``vit3b`` of ``vit3b_mistakes.json``."""
        return self.path.stem.removesuffix("_mistakes")

    def __len__(self) -> int:
        return len(self.verdicts)

    def table(self, *, fold: bool = False) -> dict[tuple[str, str], int]:
        """How many mistakes each (category, severity) has; ``fold`` counts Borderline as Minor."""
        counts = Counter(
            (category, MINOR if fold and severity == BORDERLINE else severity)
            for category, severity in self.verdicts.values()
        )
        return dict(sorted(counts.items()))


def read_mistake_file(path: Path, *, label_space: LabelSpace) -> MistakeFile:
    """The published JSON, or a table of judgements (.jsonl, .csv, .parquet) with majority verdicts."""
    from heldout.data.published.answers import read_mistakes

    existing_file(path, "file of mistakes")
    if path.suffix.lower() in (".jsonl", ".csv", ".parquet"):
        judged = judged_kinds(read_judgements(path, question="mistake"))
        if not judged:
            raise BadFile(path, "holds no judgements of mistakes", fix="choose the right file")
        return MistakeFile(path, judged)
    verdicts = {}
    for judgement in read_mistakes(path, classes=label_space.ids):
        answer = judgement.answer
        if isinstance(answer, Mapping):
            key = (judgement.subject["image_id"], judgement.subject["prediction"])
            verdicts[key] = (answer["category"], answer["severity"])
    if not verdicts:
        raise BadFile(path, "names no mistakes", fix="choose the right file")
    return MistakeFile(path, dict(sorted(verdicts.items())))


@dataclass(frozen=True, kw_only=True)
class FileAgreement:
    """What two files say of the same mistakes.

    ``images``  images that both name; ``shared`` (image, prediction) pairs that both judge, of which
    so many get the same category, the same severity, and both
    """

    record: ClassVar[str] = "agreement"
    table: ClassVar[Table] = Table(
        "judgements that two files share",
        (
            "first", "second", "images in both=images:,", "shared:,",
            "same category=same_category:,", "same severity=same_severity:,", "same:,",
        ),
    )  # fmt: skip
    first: str
    second: str
    images: int
    shared: int
    same_category: int
    same_severity: int
    same: int


def file_agreement(one: MistakeFile, other: MistakeFile) -> FileAgreement:
    """Whether two files agree on what both judge."""
    shared = [
        (verdict, other.verdicts[key])
        for key, verdict in one.verdicts.items()
        if key in other.verdicts
    ]
    images = {image for image, _ in one.verdicts} & {image for image, _ in other.verdicts}
    return FileAgreement(
        first=one.name,
        second=other.name,
        images=len(images),
        shared=len(shared),
        same_category=sum(a[0] == b[0] for a, b in shared),
        same_severity=sum(a[1] == b[1] for a, b in shared),
        same=sum(a == b for a, b in shared),
    )


def listed_predictions(
    testset: TestSet, file: MistakeFile, *, truth: str | None = None
) -> tuple[Predictions, int]:
    """The predictions of a model whose mistakes are all in a file: right wherever it is silent.

    On an image that the file does not name, the prediction is the first label that ``truth`` takes as
    right; on one that the truth does not have either, there is none. A file with several predictions
    for one image holds the mistakes of several models and is refused. Also returns how many of its
    images are not in the test set.
    """
    from heldout.data.published.truths import match_images

    pairs = list(file.verdicts)
    images = [image for image, _ in pairs]
    if len(set(images)) < len(images):
        twice = next(image for image in images if images.count(image) > 1)
        raise MismatchError(
            f"{file.path.name} has several predictions for image {twice!r}",
            fix="give the mistakes of one model",
        )
    match = match_images(testset, images, source=file.path.name)
    space = testset.label_space
    guesses = _first_labels(testset, truth)
    place = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
    for image, (_, prediction) in zip(match.image_ids, pairs, strict=True):
        if image is not None:
            guesses[place[image]] = space.index(prediction)
    predictions = Predictions(
        model=file.name,
        image_ids=testset.image_ids,
        topk=guesses[:, None],
        label_space=space,
        identity={"mistakes": file.path.name, "truth": truth},
    )
    return predictions, match.missing


def _first_labels(testset: TestSet, truth: str | None) -> np.ndarray:
    """A label that is right for each image of the set, -1 where the truth names none; int32."""
    labels = np.full(len(testset), -1, dtype=np.int32)
    if not testset.truths:
        return labels
    arrays = truth_arrays(testset, truth)
    for lists in (arrays.unclear, arrays.correct):  # a correct label is written over an unclear one
        some = np.flatnonzero(lists.lengths > 0)
        labels[arrays.rows[some]] = lists.values[lists.starts[some]]
    return labels

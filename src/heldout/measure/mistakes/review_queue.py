"""Queues for people: predictions and labels not reviewed yet, the most useful first."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heldout.core.errors import ExistsError, NotApplicable, UserError
from heldout.core.files import atomic_path, canonical_json
from heldout.data.importing.judgements import ANSWERED, ASKED, answers_in
from heldout.data.judgements.judgement import CATEGORIES, NO_MISTAKE, QUESTIONS, SEVERITIES
from heldout.data.testset import TestSet
from heldout.data.testset.hashing import row_hash, uniform
from heldout.measure.mistakes.between_models import ModelConsensus, Suspect, suspects
from heldout.measure.mistakes.categories import Evidence, Proposal
from heldout.measure.mistakes.panel import Key, PanelAnswers, Ruling
from heldout.measure.mistakes.verdicts import (
    UNREVIEWED,
    WRONG,
    Mistake,
    Verdicts,
    acceptability,
    mistakes_of,
    standing_odds,
)
from heldout.stats.prediction_powered import drawing_order

AVERAGES = ("images", "classes")
_FLOOR = 0.02  # what is thought certain is still looked at now and then


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenPairs:
    """Every open (image, prediction) pair of some models.

    ``rows``, ``classes``  int64 (pairs,): row of the verdicts, class index; sorted by both
    ``made``               bool (pairs, models): who predicts it
    ``weights``            float64 (rows,): what a row counts for in the accuracy; they sum to one
    ``odds``               float64 (pairs,): the probability that the prediction is acceptable, as
                           far as these models and the truth's own lists tell
    ``keys``               float64 (pairs,): the order in which to ask, smallest first; a pair's key
                           never depends on the models
    ``sizes``              float64 (pairs,): what the keys were divided by
    ``design``             12 hexadecimal digits: truth, average and seed from which keys follow
    """

    verdicts: Verdicts
    rows: np.ndarray
    classes: np.ndarray
    made: np.ndarray
    weights: np.ndarray
    odds: np.ndarray
    keys: np.ndarray
    sizes: np.ndarray
    design: str

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def pairs(self) -> tuple[Key, ...]:
        """(image id, class id) of every pair."""
        images, ids = self.verdicts.image_ids, self.verdicts.truth.space.ids
        return tuple(
            (images[row], ids[label])
            for row, label in zip(self.rows.tolist(), self.classes.tolist(), strict=True)
        )

    def answers(self, rulings: Mapping[Key, Ruling]) -> tuple[np.ndarray, np.ndarray]:
        """What a panel says: float64 (pairs,), 1 accepted, 0 wrong, NaN open; and which were drawn.

        Drawn are pairs that were asked from this queue. The others came another way: they are
        known, and say nothing about the rest.
        """
        values = np.full(len(self), np.nan)
        drawn = np.zeros(len(self), dtype=bool)
        for place, key in enumerate(self.pairs):
            ruling = rulings.get(key)
            if ruling is not None:
                values[place] = float(ruling.accepted)
                drawn[place] = self.design in ruling.queues
        return values, drawn


def open_pairs(verdicts: Verdicts, *, average: str = "classes", seed: int = 0) -> OpenPairs:
    """The open pairs of all models of ``verdicts``, and the order in which to ask about them.

    ``average``  ``classes`` weighs images so that every class counts the same, ``images`` equally

    The order is random, so that answers tell about what was not asked, and yet pairs that matter
    more come earlier: their sizes follow their weight and how unsure the truth's own lists leave
    one about them.
    """
    state = UNREVIEWED if verdicts.reviewed else WRONG
    rows, models = np.nonzero((verdicts.states == state) & (verdicts.guesses >= 0))
    guesses = verdicts.guesses[rows, models].astype(np.int64)
    width = len(verdicts.truth.space)
    codes, place = np.unique(rows * width + guesses, return_inverse=True)
    made = np.zeros((len(codes), len(verdicts.models)), dtype=bool)
    made[place.reshape(-1), models] = True
    rows, classes = np.divmod(codes, width)
    weights = row_weights(verdicts, average)
    design = _design(verdicts, average, seed)
    settled = standing_odds(verdicts, rows, classes)
    sizes = weights[rows] * len(weights) * np.sqrt(settled * (1.0 - settled) + _FLOOR)
    images, ids = verdicts.image_ids, verdicts.truth.space.ids
    names = [
        f"{design}\t{images[row]}\t{ids[label]}"
        for row, label in zip(rows.tolist(), classes.tolist(), strict=True)
    ]
    chance = uniform(row_hash(names, seed=seed))
    return OpenPairs(
        verdicts=verdicts,
        rows=rows,
        classes=classes,
        made=made,
        weights=weights,
        odds=acceptability(verdicts, rows, classes),
        keys=drawing_order(chance, sizes),
        sizes=sizes,
        design=design,
    )


def row_weights(verdicts: Verdicts, average: str) -> np.ndarray:
    """What each row counts for in an accuracy, float64 (rows,), summing to one.

    An average over classes needs a class for every row; classes without any row do not count, as
    :func:`empty_classes` says.
    """
    if average not in AVERAGES:
        raise UserError(f"no average {average!r}", fix=f"use {' or '.join(AVERAGES)}")
    n = len(verdicts)
    if average == "images":
        return np.full(n, 1.0 / n)
    labels = verdicts.truth.labels
    if (labels < 0).any():
        raise NotApplicable(
            f"an average over classes, and truth {verdicts.truth.name} of {verdicts.testset.name} "
            "has images without a class",
            fix="average over images",
        )
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(sizes) * sizes[codes.reshape(-1)]))


def empty_classes(verdicts: Verdicts) -> tuple[str, ...]:
    """The classes of the label space without a row that counts."""
    counts = np.bincount(
        verdicts.truth.labels[verdicts.truth.labels >= 0], minlength=len(verdicts.truth.space)
    )
    return tuple(verdicts.truth.space.ids[place] for place in np.flatnonzero(counts == 0).tolist())


def _design(verdicts: Verdicts, average: str, seed: int) -> str:
    card = verdicts.testset.card
    parts = [
        "order 1",
        card.images_hash,
        card.tables.get(f"truth/{verdicts.truth.name}", verdicts.truth.name),
        verdicts.label_map,
        average,
        seed,
    ]
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:12]


Aim = Literal["accuracy", "hard", "labels"]
AIMS: tuple[Aim, ...] = ("accuracy", "hard")
ENDINGS = (".csv", ".jsonl")
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Queue:
    """Pairs to ask about, first things first.

    ``name``     12 hexadecimal digits: what the order follows from; kept with every answer
    ``entries``  the mistakes, in order
    ``judged``   pairs that were left out because enough people have judged them
    """

    name: str
    aim: Aim
    testset: TestSet
    entries: tuple[Mistake, ...]
    judged: int

    def head(self, limit: int | None) -> Queue:
        """The first ``limit`` entries; a smaller queue is the head of a larger one."""
        if limit is not None and limit < 1:
            raise UserError(f"a queue of {limit} rows", fix="ask for 1 or more")
        return Queue(self.name, self.aim, self.testset, self.entries[:limit], self.judged)


def accuracy_queue(
    pairs: OpenPairs, panel: PanelAnswers, *, people: int = 1, who: str | None = None
) -> Queue:
    """Open pairs in the order that narrows the estimates of accuracy fastest.

    A pair stays in the queue until ``people`` have answered; ``who`` leaves out what this person has
    answered. The order does not depend on which models are asked about, so that answers to an
    earlier queue of the same truth and seed stay the head of a later one.
    """
    done = _done(panel, people, who, verdict=False)
    mistakes = {(m.image_id, m.prediction): m for m in mistakes_of(pairs.verdicts)}
    order = np.lexsort((np.arange(len(pairs)), pairs.keys))
    keys = list(dict.fromkeys(pairs.pairs[place] for place in order.tolist()))
    known = [key for key in keys if key in mistakes]
    left = tuple(mistakes[key] for key in known if key not in done)
    return Queue(pairs.design, "accuracy", pairs.verdicts.testset, left, len(known) - len(left))


def hard_queue(
    verdicts: Verdicts,
    panel: PanelAnswers,
    *,
    wrong: int | None = None,
    people: int = 1,
    who: str | None = None,
    proposals: Iterable[Proposal] = (),
) -> Queue:
    """Mistakes on images that at least ``wrong`` models miss (all of them by default).

    Images that more models miss come first, then those with a mistake more likely to be Major by
    its proposal, then by id; all mistakes of an image stand together, as a set of hard images needs
    every one of them judged. A mistake stays in the queue until ``people`` have given it category
    and severity, or called the prediction right.
    """
    least = len(verdicts.models) if wrong is None else wrong
    if not 1 <= least <= len(verdicts.models):
        raise UserError(
            f"images that {least} of {len(verdicts.models)} models miss",
            fix=f"ask for 1 to {len(verdicts.models)}",
        )
    missed: dict[str, int] = {}
    for image, n in zip(verdicts.image_ids, verdicts.wrong.sum(axis=1).tolist(), strict=True):
        missed[image] = max(missed.get(image, 0), n)
    done = _done(panel, people, who, verdict=True)
    major = {p.key: p.severity_probability or 0.0 for p in proposals}
    wanted = [m for m in mistakes_of(verdicts) if missed[m.image_id] >= least]
    worst: dict[str, float] = {}
    for mistake in wanted:
        chance = major.get((mistake.image_id, mistake.prediction), 0.0)
        worst[mistake.image_id] = max(worst.get(mistake.image_id, 0.0), chance)
    wanted.sort(
        key=lambda m: (
            -missed[m.image_id],
            -worst[m.image_id],
            m.image_id,
            -len(m.models),
            m.prediction,
        )
    )
    left = tuple(m for m in wanted if (m.image_id, m.prediction) not in done)
    card = verdicts.testset.card
    parts = ["hard 1", card.images_hash, card.tables.get(f"truth/{verdicts.truth.name}", "")]
    name = hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:12]
    return Queue(name, "hard", verdicts.testset, left, len(wanted) - len(left))


def _done(panel: PanelAnswers, people: int, who: str | None, *, verdict: bool) -> set[Key]:
    """Pairs that need no further answer; with ``verdict``, wrong ones need category and severity."""
    if people < 1:
        raise UserError(f"answers of {people} people", fix="ask for 1 or more")
    counts: dict[Key, int] = {}
    mine: set[Key] = set()
    for (person, image, prediction), (answer, category, _) in panel.answers.items():
        if verdict and answer == "wrong" and category is None:
            continue
        key = (image, prediction)
        counts[key] = counts.get(key, 0) + 1
        if person == who:
            mine.add(key)
    return {key for key, n in counts.items() if n >= people} | mine


def queue_rows(queue: Queue, proposals: Iterable[Proposal] = ()) -> list[dict[str, Any]]:
    """The queue as rows: what is asked and what is known of it, and empty cells for the answers."""
    space = queue.testset.label_space
    names = {label.id: label.name for label in space.classes}
    known = {proposal.key: proposal for proposal in proposals}
    table = queue.testset.images.select(["image_id", "path"])
    paths = dict(zip(table["image_id"].to_pylist(), table["path"].to_pylist(), strict=True))
    rows = []
    for rank, mistake in enumerate(queue.entries, 1):
        proposal = known.get((mistake.image_id, mistake.prediction))
        row: dict[str, Any] = {
            "rank": rank,
            "testset": queue.testset.name,
            "image_id": mistake.image_id,
            "prediction": mistake.prediction,
            "prediction_name": names[mistake.prediction],
            "labels": list(mistake.acceptable),
            "label_names": [names[label] for label in mistake.acceptable],
            "models": list(mistake.models),
            "proposed_category": "",
            "proposed_severity": "",
            "major_probability": None,
            "evidence": [],
            "path": paths.get(mistake.image_id) or "",
            "queue": queue.name,
            "aim": queue.aim,
        }
        if proposal is not None:
            row |= {
                "proposed_category": proposal.category,
                "proposed_severity": proposal.severity or "",
                "major_probability": proposal.severity_probability,
                "evidence": [part.text for part in proposal.evidence],
            }
        rows.append(row | dict.fromkeys(ANSWERED, ""))
    return rows


def write_queue(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a queue as CSV (lists joined by ``; ``) or JSONL (lists as lists), by its ending.

    A queue that somebody has begun to fill in is never written over.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UserError(
            f"{path}: a queue is not kept in this kind of file", fix="use .csv or .jsonl"
        )
    answers = answers_in(path)
    if answers:
        raise ExistsError(
            f"{path} holds {answers:,} answers",
            fix="read them with heldout import judgements, and name another file",
        )
    columns = (*ASKED, *ANSWERED)
    with atomic_path(path) as temporary:
        if ending == ".jsonl":
            with temporary.open("w", encoding="utf-8", newline="\n") as handle:
                for row in rows:
                    line = {"schema_version": SCHEMA_VERSION} | {n: row[n] for n in columns}
                    handle.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            return
        with temporary.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle, lineterminator="\r\n")
            writer.writerow(columns)
            for row in rows:
                writer.writerow([_cell(row[name]) for name in columns])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def how_to_answer() -> str:
    """One line for a reviewer: what may stand in the empty columns."""
    return (
        f"answer: {', '.join(QUESTIONS['label'].answers)}; of a wrong one also category "
        f"({', '.join(CATEGORIES)}; {NO_MISTAKE} where it is right after all) and severity "
        f"({', '.join(SEVERITIES)}); who: your name"
    )


def label_queue(
    found: ModelConsensus,
    panel: PanelAnswers,
    *,
    at_least: int | None = None,
    people: int = 1,
) -> tuple[Queue, tuple[Proposal, ...]]:
    """The queue about images that at least so many models miss, and the evidence for its rows.

    Images on which more models agree on another class come first. A class of an image that
    ``people`` have judged is not asked again.
    """
    verdicts = found.verdicts
    answered: dict[tuple[str, str], int] = {}
    for _, image, prediction in panel.answers:
        answered[image, prediction] = answered.get((image, prediction), 0) + 1
    place = {image: row for row, image in enumerate(verdicts.image_ids)}
    names = {item.id: item.name for item in verdicts.truth.space}
    entries: list[Mistake] = []
    evidence: list[Proposal] = []
    asked = 0
    for suspect in suspects(found, at_least=at_least):
        for class_id in dict.fromkeys((suspect.majority, suspect.original)):
            if class_id is None:
                continue
            asked += 1
            if answered.get((suspect.image_id, class_id), 0) >= people:
                continue
            entries.append(
                Mistake(
                    image_id=suspect.image_id,
                    prediction=class_id,
                    acceptable=suspect.acceptable,
                    original=suspect.original,
                    models=_who_says(found, place[suspect.image_id], class_id),
                    reviewed=False,
                )
            )
            evidence.append(
                Proposal(suspect.image_id, class_id, "", evidence=(_reason(suspect, names),))
            )
    card = verdicts.testset.card
    parts = ["labels 1", card.images_hash, card.tables.get(f"truth/{verdicts.truth.name}", "")]
    name = hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:12]
    queue = Queue(name, "labels", verdicts.testset, tuple(entries), asked - len(entries))
    return queue, tuple(evidence)


def _who_says(found: ModelConsensus, row: int, class_id: str) -> tuple[str, ...]:
    verdicts = found.verdicts
    said = verdicts.guesses[row] == verdicts.truth.space.index(class_id)
    return tuple(model for model, yes in zip(verdicts.models, said.tolist(), strict=True) if yes)


def _reason(suspect: Suspect, names: dict[str, str]) -> Evidence:
    text = f"{suspect.missed_by} of {suspect.models} models miss the image"
    if suspect.majority is not None:
        text += f"; {suspect.votes} of them say {names[suspect.majority]}"
    if suspect.original is not None:
        text += f"; its label is {names[suspect.original]}"
    return Evidence("missed together", text, suspect.votes / suspect.models)

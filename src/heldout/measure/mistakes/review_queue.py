"""Queues for people: predictions and labels not reviewed yet, the most useful first."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heldout.core.errors import ExistsError, NotApplicable, UserError
from heldout.core.files import canonical_json, csv_cells, sha256_text, write_text
from heldout.data.importing.judgements import ANSWERED, ASKED, answers_in
from heldout.data.judgements.judgement import CATEGORIES, NO_MISTAKE, QUESTIONS, SEVERITIES
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.data.testset.hashing import row_hash, uniform
from heldout.measure.mistakes.between_models import (
    Suspect,
    checked_models,
)
from heldout.measure.mistakes.categories import Evidence, Proposal
from heldout.measure.mistakes.logistic import fit_logistic
from heldout.measure.mistakes.panel import PanelAnswers, Ruling
from heldout.measure.mistakes.verdicts import (
    UNREVIEWED,
    WRONG,
    Key,
    Mistakes,
    Verdicts,
    mistakes_of,
)
from heldout.stats.prediction_powered import drawing_order

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
    made[place, models] = True
    rows, classes = np.divmod(codes, width)
    weights = row_weights(verdicts, average)
    design = _design(
        verdicts, "order 1", verdicts.label_map, average, seed, truth=verdicts.truth.name
    )
    settled, odds = review_odds(verdicts, rows, classes)
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
        odds=odds,
        keys=drawing_order(chance, sizes),
        sizes=sizes,
        design=design,
    )


def row_weights(verdicts: Verdicts, average: str) -> np.ndarray:
    """What each row counts for in an accuracy, float64 (rows,), summing to one.

    An average over classes needs a class for every row; classes without any row do not count, as
    :func:`empty_classes` says.
    """
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
    return np.asarray(1.0 / (len(sizes) * sizes[codes]))


def empty_classes(verdicts: Verdicts) -> tuple[str, ...]:
    """The classes of the label space without a row that counts."""
    counts = np.bincount(
        verdicts.truth.labels[verdicts.truth.labels >= 0], minlength=len(verdicts.truth.space)
    )
    return tuple(verdicts.truth.space.ids[place] for place in np.flatnonzero(counts == 0).tolist())


def _design(verdicts: Verdicts, kind: str, *more: object, truth: str = "") -> str:
    """What an order follows from, as 12 hexadecimal digits; ``truth`` names one without a hash."""
    card = verdicts.testset.card
    parts = [kind, card.images_hash, card.tables.get(f"truth/{verdicts.truth.name}", truth), *more]
    return sha256_text(canonical_json(parts))[:12]


_RIDGE = 1.0
_PRIOR = 2.0  # answers that a pair of classes starts with, at the rate of the whole truth
_ENOUGH = 20


def review_odds(
    verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The probability that ``classes[i]`` is acceptable for row ``rows[i]``; float64 (pairs,), twice.

    First by the truth's lists alone, 1/2 where there are too few; then with what the models say.
    Under a truth without reviews nothing can be learned: then the second is the share of models that
    say so, one more model counted that does not.

    Learned is from labels other than an image's own: how often the class was accepted beside this
    label on other images, how often beside any label, and how many models say it.
    """
    truth = verdicts.truth

    def said(rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        return np.asarray((verdicts.guesses[rows] == classes[:, None]).mean(axis=1))

    listed, good = _listed_others(verdicts)
    known = len(good)
    if min(good.sum(), known - good.sum()) < _ENOUGH:
        models = len(verdicts.models)
        return np.full(len(rows), 0.5), said(rows, classes) * models / (models + 1.0)
    rows, classes = (np.concatenate(two) for two in zip(listed, (rows, classes), strict=True))
    own = np.arange(len(rows)) < known
    value = np.concatenate([good, np.zeros(len(rows) - known)])

    def rate(keys: np.ndarray, prior: np.ndarray | float) -> np.ndarray:
        """The smoothed share of acceptance among listed pairs of this key, a pair's own left out."""
        _, at = np.unique(keys, return_inverse=True)
        n, accepted = np.bincount(at, own), np.bincount(at, value)
        return np.asarray((accepted[at] - value + _PRIOR * prior) / (n[at] - own + _PRIOR))

    by_class = rate(classes, float((good.sum() + 1.0) / (known + 2.0)))
    by_pair = rate((truth.labels[rows] + 1) * len(truth.space) + classes, by_class)
    inside = [np.clip(share, 1e-4, 1.0 - 1e-4) for share in (by_pair, by_class)]
    columns = np.stack([*(np.log(p / (1.0 - p)) for p in inside), said(rows, classes)], axis=1)
    model = fit_logistic(columns[:known], good.astype(np.int64), 2, ridge=_RIDGE)
    return by_pair[known:], model.probabilities(columns[known:])[:, 1]


def _listed_others(verdicts: Verdicts) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Row and class of what a truth's lists say of labels other than an image's own; 1 for accepted."""
    truth, acceptable = verdicts.truth, verdicts.acceptable.keys
    # A label that is both counts as accepted: the hit wins here too.
    refused = np.setdiff1d(truth.wrong.keys, acceptable)
    good = np.concatenate([np.ones(len(acceptable)), np.zeros(len(refused))])
    rows, classes = np.divmod(np.concatenate([acceptable, refused]), len(truth.space))
    other = classes != truth.labels[rows]
    return (rows[other], classes[other]), good[other]


Aim = Literal["accuracy", "hard", "labels"]
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
    entries: Mistakes
    judged: int

    def head(self, limit: int | None) -> Queue:
        """The first ``limit`` entries; a smaller queue is the head of a larger one."""
        return replace(self, entries=self.entries.take(range(len(self.entries))[:limit]))


def accuracy_queue(pairs: OpenPairs, panel: PanelAnswers, *, people: int = 1) -> Queue:
    """Open pairs in the order that narrows the estimates of accuracy fastest.

    A pair stays in the queue until ``people`` have answered. The order does not depend on which models
    are asked about, so that answers to an earlier queue of the same truth and seed stay the head of a
    later one.
    """
    done = _done(panel, people, verdict=False)
    mistakes = mistakes_of(pairs.verdicts)
    row_of = {key: row for row, key in enumerate(mistakes.keys)}
    order = np.lexsort((np.arange(len(pairs)), pairs.keys))
    known = [key for key in dict.fromkeys(pairs.pairs[at] for at in order) if key in row_of]
    left = mistakes.take([row_of[key] for key in known if key not in done])
    return Queue(pairs.design, "accuracy", pairs.verdicts.testset, left, len(known) - len(left))


def hard_queue(
    verdicts: Verdicts, panel: PanelAnswers, *, wrong: int | None = None, people: int = 1
) -> Queue:
    """Mistakes on images that at least ``wrong`` models miss (all of them by default).

    Images that more models miss come first, then by id; all mistakes of an image are together, as a
    set of hard images needs every one of them judged. A mistake stays in the queue until ``people``
    have given it category and severity, or called the prediction right.
    """
    least = checked_models(verdicts, wrong)
    missed: dict[str, int] = {}
    for image, n in zip(verdicts.image_ids, verdicts.wrong.sum(axis=1).tolist(), strict=True):
        missed[image] = max(missed.get(image, 0), n)
    done = _done(panel, people, verdict=True)
    mistakes = mistakes_of(verdicts)
    makers = mistakes.made.sum(axis=1).tolist()

    def rank(row: int) -> tuple[int, str, int, str]:
        image, prediction = mistakes.keys[row]
        return -missed[image], image, -makers[row], prediction

    wanted = [row for row, image in enumerate(mistakes.image_ids) if missed[image] >= least]
    left = [row for row in sorted(wanted, key=rank) if mistakes.keys[row] not in done]
    name = _design(verdicts, "hard 1")
    return Queue(name, "hard", verdicts.testset, mistakes.take(left), len(wanted) - len(left))


def _done(panel: PanelAnswers, people: int, *, verdict: bool) -> set[Key]:
    """Pairs that need no further answer; with ``verdict``, wrong ones need category and severity."""
    counts = Counter(
        (image, prediction)
        for (_, image, prediction), (answer, category, _) in panel.answers.items()
        if not verdict or answer != "wrong" or category is not None
    )
    return {key for key, n in counts.items() if n >= people}


def queue_rows(queue: Queue, proposals: Iterable[Proposal] = ()) -> list[dict[str, Any]]:
    """The queue as rows: what is asked and what is known of it, and empty cells for the answers."""
    names = {label.id: label.name for label in queue.testset.label_space.classes}
    known = {proposal.key: proposal for proposal in proposals}
    table = queue.testset.images.select(["image_id", "path"])
    paths = dict(zip(table["image_id"].to_pylist(), table["path"].to_pylist(), strict=True))
    rows = []
    for rank, mistake in enumerate(queue.entries, 1):
        key = (mistake.image_id, mistake.prediction)
        proposal = known.get(key, Proposal(*key, ""))
        rows.append(
            {
                "rank": rank,
                "testset": queue.testset.name,
                "image_id": mistake.image_id,
                "prediction": mistake.prediction,
                "prediction_name": names[mistake.prediction],
                "labels": list(mistake.acceptable),
                "label_names": [names[label] for label in mistake.acceptable],
                "models": list(mistake.models),
                "proposed_category": proposal.category,
                "evidence": [part.text for part in proposal.evidence],
                "path": paths.get(mistake.image_id) or "",
                "queue": queue.name,
                "aim": queue.aim,
                **dict.fromkeys(ANSWERED, ""),
            }
        )
    return rows


def write_queue(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a queue as CSV (lists joined by ``; ``) or JSONL (lists as lists), by its ending.

    A queue that somebody has begun to fill in is never written over.
    """
    ending = path.suffix.lower()
    if ending not in (".csv", ".jsonl"):
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
    buffer = io.StringIO(newline="")
    if ending == ".csv":
        writer = csv.writer(buffer)  # lines end as spreadsheets write them
        writer.writerow(columns)
        writer.writerows(csv_cells(_cell(row[name]) for name in columns) for row in rows)
    else:
        for row in rows:
            line = {"schema_version": SCHEMA_VERSION} | {name: row[name] for name in columns}
            buffer.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(path, buffer.getvalue())


def _cell(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def how_to_answer() -> str:
    """One line for a reviewer: what may stand in the empty columns."""
    return (
        f"answer: {', '.join(QUESTIONS['label'].answers)}; of a wrong one also category "
        f"({', '.join(CATEGORIES)}; {NO_MISTAKE} where it is right after all) and severity "
        f"({', '.join(SEVERITIES)}); who: your name"
    )


def label_queue(
    verdicts: Verdicts, doubted: Iterable[Suspect], panel: PanelAnswers
) -> tuple[Queue, tuple[Proposal, ...]]:
    """The queue about images to doubt, in their order, and the evidence for its rows.

    A class of an image that somebody has judged is not asked again.
    """
    space = verdicts.truth.space
    answered = {(image, prediction) for _, image, prediction in panel.answers}
    asked = [
        (suspect, class_id)
        for suspect in doubted
        for class_id in dict.fromkeys((suspect.majority, suspect.original))
        if class_id is not None
    ]
    left = [(one, label) for one, label in asked if (one.image_id, label) not in answered]
    rows = np.array([suspect.row for suspect, _ in left], dtype=np.int64)
    classes = space.indices(label for _, label in left)
    entries = Mistakes(
        space=space,
        image_ids=tuple(suspect.image_id for suspect, _ in left),
        predictions=classes,
        acceptable=verdicts.acceptable.select(rows),
        models=verdicts.models,
        made=verdicts.guesses[rows] == classes[:, None],
        reviewed=np.zeros(len(rows), dtype=bool),
    )
    queue = Queue(
        _design(verdicts, "labels 1"), "labels", verdicts.testset, entries, len(asked) - len(left)
    )
    return queue, tuple(
        Proposal(suspect.image_id, label, "", evidence=(_reason(suspect, space),))
        for suspect, label in left
    )


def _reason(suspect: Suspect, space: LabelSpace) -> Evidence:
    text = f"{suspect.missed_by} of {suspect.models} models miss the image"
    if suspect.majority is not None:
        text += f"; {suspect.votes} of them say {space.get(suspect.majority).name}"
    if suspect.original is not None:
        text += f"; its label is {space.get(suspect.original).name}"
    return Evidence("missed together", text, suspect.votes / suspect.models)

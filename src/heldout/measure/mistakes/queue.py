"""The queue: which (image, prediction) pairs a person should judge next, as a file to fill in.

Two aims. ``accuracy`` asks about predictions that nobody has reviewed, in the order in which answers
narrow the estimate of accuracy (:mod:`heldout.measure.mistakes.open_pairs`). ``hard`` asks for category and
severity of mistakes on images that many models miss, as a set of hard images needs them. What is
judged is never asked again.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from heldout.core.errors import ExistsError, UserError
from heldout.core.files import atomic_path, canonical_json
from heldout.data.importing.filled_queue import ANSWERED, ASKED, answers_in
from heldout.data.judgements.questions import CATEGORIES, NO_MISTAKE, QUESTIONS, SEVERITIES
from heldout.data.testset import TestSet
from heldout.measure.mistakes.categories import Proposal
from heldout.measure.mistakes.mistake import Mistake, mistakes_of
from heldout.measure.mistakes.open_pairs import OpenPairs
from heldout.measure.mistakes.rulings import Key, PanelAnswers
from heldout.measure.mistakes.verdicts import Verdicts

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

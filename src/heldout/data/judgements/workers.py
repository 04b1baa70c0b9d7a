"""Workers: selection frequency, and accuracy on control subjects."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.consensus import Panel, not_replaced, panel_of, standing_answers
from heldout.data.judgements.judgement import QUESTIONS, Judgement


@dataclass(frozen=True)
class WorkerQuality:
    """One worker's answers to control subjects.

    ``n``, ``right``   controls answered, and answered as gold says; ``accuracy`` is their ratio
    ``low``, ``high``  Wilson interval of the accuracy
    ``by_gold``        (n, right) by what gold says: for votes, ``selected`` holds the positive
                       controls and ``not-selected`` the negative ones
    """

    who: str
    n: int
    right: int
    accuracy: float
    low: float
    high: float
    by_gold: dict[str, tuple[int, int]]


def worker_quality(
    panel: Panel, gold: Mapping[str, str], *, level: float = 0.95
) -> tuple[WorkerQuality, ...]:
    """The quality of each worker who answered at least one control, worst first.

    ``gold`` gives the right answer by subject (:func:`subject_key`, or
    :meth:`Consensus.by_subject` of an expert panel). Subjects outside it are ignored. Equal
    accuracies are ordered by worker.
    """
    from heldout.stats.intervals import wilson

    panel.need_people()
    order = tuple(dict.fromkeys([*panel.answers, *sorted(set(gold.values()))]))
    cells: dict[int, dict[str, list[bool]]] = {}
    for subject, worker, answer in zip(
        *(codes.tolist() for codes in (panel.subject, panel.worker, panel.answer)), strict=True
    ):
        if (wanted := gold.get(panel.subjects[subject])) is not None:
            mine = cells.setdefault(worker, {name: [] for name in order})
            mine[wanted].append(panel.answers[answer] == wanted)
    if not cells:
        raise NotApplicable(
            "no answer of the panel is about a control",
            fix="check the subjects of the gold answers",
        )
    found = []
    for worker, mine in cells.items():
        by_gold = {name: (len(hits), sum(hits)) for name, hits in mine.items() if hits}
        n, right = (sum(column) for column in zip(*by_gold.values(), strict=True))
        interval = wilson(right, n, level=level)
        found.append(
            WorkerQuality(
                panel.workers[worker],
                n,
                right,
                right / n,
                float(interval.low),
                float(interval.high),
                by_gold,
            )
        )
    return tuple(sorted(found, key=lambda quality: (quality.accuracy, quality.who)))


COUNTED: tuple[str, ...] = ("Submitted", "Approved")
"""States of a crowd assignment whose votes count; a rejected one's do not."""


@dataclass(frozen=True)
class SelectionFrequency:
    """How often one image was selected for one class: ``selected`` of ``n`` votes; ``low`` and
    ``high`` are Wilson's interval of the frequency."""

    image_id: str
    class_id: str
    selected: int
    n: int
    frequency: float
    low: float
    high: float


def counted_votes(
    votes: Iterable[Judgement],
    *,
    leave_out: Collection[str] = (),
    counted: Collection[str] = COUNTED,
) -> list[Judgement]:
    """The votes of assignments that count, in grids that do; see :func:`selection_frequency`.

    What a vote supersedes is out even where the vote itself does not count: that is how a
    rejection takes back votes that counted.
    """
    kept = []
    for vote in not_replaced(votes):
        if vote.question != "vote":
            raise UserError(
                f"a {vote.question} judgement is not a vote", fix="choose the question vote"
            )
        status = vote.evidence.get("status")
        if (status is None or status in counted) and vote.evidence.get("grid") not in leave_out:
            kept.append(vote)
    return kept


def selection_frequency(
    votes: Iterable[Judgement],
    *,
    level: float = 0.95,
    leave_out: Collection[str] = (),
    counted: Collection[str] = COUNTED,
) -> tuple[SelectionFrequency, ...]:
    """The selection frequency of every (image, class) that was voted on, by class, then image.

    As ImageNetV2 defines it: selections over votes, pooled over all grids of the class that held
    the image, a worker who met it in two grids counting twice. Votes of assignments whose
    ``evidence["status"]`` is not in ``counted`` are left out, and so are those of the grids
    (``evidence["grid"]``) in ``leave_out``. Superseded and withdrawn votes do not count. Without
    any vote that counts there is no frequency.
    """
    from heldout.stats.intervals import wilson

    kept = standing_answers(counted_votes(votes, leave_out=leave_out, counted=counted))
    if not kept:
        return ()
    answers = panel_of(kept, QUESTIONS, part=None)
    counts = answers.counts()
    column = answers.answers.index("selected")
    selected, n = counts[:, column], counts.sum(axis=1)
    interval = wilson(selected, n, level=level)
    columns = (selected, n, selected / n, interval.low, interval.high)
    rows = zip(answers.subjects, *(np.asarray(column).tolist() for column in columns), strict=True)
    found = []
    for text, *numbers in rows:
        subject = json.loads(text)
        found.append(SelectionFrequency(subject["image_id"], subject["class_id"], *numbers))
    return tuple(found)

"""Workers against gold: how often each answers control subjects as they should be answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.data.judgements.panel import Panel


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
    code = {answer: number for number, answer in enumerate(order)}
    truth = np.array([code[gold[s]] if s in gold else -1 for s in panel.subjects], dtype=np.int64)
    expected = truth[panel.subject]
    control = expected >= 0
    if not control.any():
        raise NotApplicable(
            "no answer of the panel is about a control",
            fix="check the subjects of the gold answers",
        )
    expected, given, worker = expected[control], panel.answer[control], panel.worker[control]
    shape = (len(panel.workers), len(order))
    cell = worker * len(order) + expected
    n = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    right = np.bincount(cell[given == expected], minlength=shape[0] * shape[1]).reshape(shape)
    totals, rights = n.sum(axis=1), right.sum(axis=1)
    answered = np.flatnonzero(totals)
    interval = wilson(rights[answered], totals[answered], level=level)
    found = [
        WorkerQuality(
            panel.workers[row],
            int(totals[row]),
            int(rights[row]),
            float(rights[row] / totals[row]),
            float(interval.low[place]),
            float(interval.high[place]),
            {
                name: (int(n[row, number]), int(right[row, number]))
                for number, name in enumerate(order)
                if n[row, number]
            },
        )
        for place, row in enumerate(answered)
    ]
    return tuple(sorted(found, key=lambda quality: (quality.accuracy, quality.who)))

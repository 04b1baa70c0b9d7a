"""Selection frequency: the share of workers who selected an image for a class."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.panel import panel

FloatArray = npt.NDArray[np.float64]
COUNTED: tuple[str, ...] = ("Submitted", "Approved")
"""States of a crowd assignment whose votes count; a rejected one's do not."""


@dataclass(frozen=True)
class SelectionFrequency:
    """How often one image was selected for one class: ``selected`` of ``n`` votes."""

    image_id: str
    class_id: str
    selected: int
    n: int
    frequency: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class SelectionFrequencies:
    """Selection frequencies in columns, by class, then image; Wilson intervals at ``level``."""

    image_id: tuple[str, ...]
    class_id: tuple[str, ...]
    selected: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    frequency: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    def __len__(self) -> int:
        return len(self.image_id)

    def __iter__(self) -> Iterator[SelectionFrequency]:
        for row, image_id in enumerate(self.image_id):
            yield SelectionFrequency(
                image_id,
                self.class_id[row],
                int(self.selected[row]),
                int(self.n[row]),
                float(self.frequency[row]),
                float(self.low[row]),
                float(self.high[row]),
            )

    def to_table(self) -> Any:
        """As a pyarrow table with the columns of :class:`SelectionFrequency`."""
        import pyarrow as pa

        return pa.table(
            {
                "image_id": list(self.image_id),
                "class_id": list(self.class_id),
                "selected": self.selected,
                "n": self.n,
                "frequency": self.frequency,
                "low": self.low,
                "high": self.high,
            }
        )


def selection_frequency(
    votes: Iterable[Judgement],
    *,
    level: float = 0.95,
    leave_out: Collection[str] = (),
    counted: Collection[str] = COUNTED,
) -> SelectionFrequencies:
    """The selection frequency of every (image, class) that was voted on.

    As ImageNetV2 defines it: selections over votes, pooled over all grids of the class that held
    the image, a worker who met it in two grids counting twice. Votes of assignments whose
    ``evidence["status"]`` is not in ``counted`` are left out, and so are those of the grids
    (``evidence["grid"]``) in ``leave_out``. Superseded and withdrawn votes do not count.
    """
    from heldout.stats.intervals import wilson

    kept = []
    for vote in votes:
        if vote.question != "vote":
            raise UserError(
                f"a {vote.question} judgement is not a vote", fix="choose the question vote"
            )
        status = vote.evidence.get("status")
        if (status is None or status in counted) and vote.evidence.get("grid") not in leave_out:
            kept.append(vote)
    answers = panel(kept, repeats="all")
    counts = answers.counts()
    column = answers.answers.index("selected")
    selected, n = counts[:, column], counts.sum(axis=1)
    interval = wilson(selected, n, level=level)
    subjects = [json.loads(text) for text in answers.subjects]
    return SelectionFrequencies(
        tuple(subject["image_id"] for subject in subjects),
        tuple(subject["class_id"] for subject in subjects),
        selected,
        n,
        selected / n,
        np.asarray(interval.low),
        np.asarray(interval.high),
        level,
    )

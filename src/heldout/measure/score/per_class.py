"""Scores a class: precision, recall, and the confusion matrix behind them.

All from first guesses. A class without images has no recall, a class that is never guessed no
precision: such a record is left out, and :func:`class_counts` says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.files import atomic_path
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.score.measuring import Measured
from heldout.measure.score.records import Count, Score
from heldout.measure.score.slices import format_slice
from heldout.stats import clopper_pearson, wilson

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Images of one class with one other first guess; ``share`` is of the images of the class."""

    class_id: str
    class_name: str
    guess_id: str
    guess_name: str
    n: int
    share: float


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """How often images of class ``i`` got the first guess ``j``, cells with n > 0 only.

    ``classes``, ``guesses``  int64 (cells,), sorted by class, then guess; a guess of -1 is none:
                              no output, or a class that is not of the set
    ``n``                     int64 (cells,)
    """

    model: str
    space: LabelSpace
    classes: np.ndarray
    guesses: np.ndarray
    n: np.ndarray

    def dense(self) -> np.ndarray:
        """As an array (classes, classes + 1), class by guess; the last column counts no guess."""
        size = len(self.space)
        counts = np.zeros((size, size + 1), dtype=np.int64)
        counts[self.classes, self.guesses] = self.n  # -1 is the last column
        return counts

    def sparse(self) -> Any:
        """As a ``scipy.sparse.csr_array`` of the same shape: the way to hold thousands of classes."""
        from scipy.sparse import csr_array

        size = len(self.space)
        columns = np.where(self.guesses < 0, size, self.guesses)
        return csr_array((self.n, (self.classes, columns)), shape=(size, size + 1))

    def top(self, count: int = 20) -> list[Confusion]:
        """The most frequent confusions, directed: class to guess; ties by class, then guess, in order."""
        totals = np.bincount(self.classes, self.n, minlength=len(self.space))
        wrong = np.flatnonzero((self.guesses >= 0) & (self.guesses != self.classes))
        order = wrong[np.lexsort((self.guesses[wrong], self.classes[wrong], -self.n[wrong]))]
        return [
            Confusion(
                class_id=actual.id,
                class_name=actual.name,
                guess_id=guess.id,
                guess_name=guess.name,
                n=int(self.n[cell]),
                share=float(self.n[cell] / totals[self.classes[cell]]),
            )
            for cell in order[:count]
            for actual in [self.space.classes[self.classes[cell]]]
            for guess in [self.space.classes[self.guesses[cell]]]
        ]

    def write(self, path: Path) -> None:
        """Write the cells as ``.csv`` or ``.parquet``: class_id, class_name, guess_id, guess_name, n.

        Where there was no guess, the last two are empty (null in Parquet).
        """
        if path.suffix not in (".csv", ".parquet"):
            raise UserError(f"{path.name} is neither .csv nor .parquet", fix="name such a file")
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq

        items = self.space.classes
        table = pa.table(
            {
                "class_id": pa.array([items[c].id for c in self.classes], pa.string()),
                "class_name": pa.array([items[c].name for c in self.classes], pa.string()),
                "guess_id": pa.array([_of(items, g, "id") for g in self.guesses], pa.string()),
                "guess_name": pa.array([_of(items, g, "name") for g in self.guesses], pa.string()),
                "n": pa.array(self.n, pa.int64()),
            }
        )
        with atomic_path(path) as temporary:
            if path.suffix == ".csv":
                options = pa.csv.WriteOptions(quoting_style="needed")
                pa.csv.write_csv(table, temporary, write_options=options)
            else:
                pq.write_table(table, temporary)


def _of(items: Any, guess: int, field: str) -> str | None:
    return None if guess < 0 else str(getattr(items[guess], field))


def confusion_matrix(measured: Measured, model: str) -> ConfusionMatrix:
    """The confusion matrix of one model, from a measurement of ``recall`` or ``precision``."""
    guesses = _guesses(measured)[:, measured.position(model)].astype(np.int64)
    size = len(measured.space) + 1
    cells, n = np.unique(measured.groups * size + guesses + 1, return_counts=True)
    classes, shifted = np.divmod(cells, size)
    return ConfusionMatrix(model, measured.space, classes, shifted - 1, n.astype(np.int64))


def class_scores(measured: Measured, *, level: float = LEVEL, exact: bool = False) -> list[Score]:
    """Precision or recall of every model and class, slice ``class=<id>``, with Wilson intervals.

    ``n`` is the number of images of the class (recall), or of images guessed to be of it
    (precision).
    """
    records = []
    for m, hits, n in _tallies(measured):
        known = np.flatnonzero(n > 0)
        limits = (clopper_pearson if exact else wilson)(hits[known], n[known], level=level)
        for place, c in enumerate(known):
            records.append(
                measured.record(
                    m,
                    slice=format_slice({"class": measured.space.ids[c]}),
                    n=int(n[c]),
                    value=float(hits[c] / n[c]),
                    low=float(limits.low[place]),
                    high=float(limits.high[place]),
                    interval=limits.method,
                    level=level,
                )
            )
    return records


def class_counts(measured: Measured) -> list[Count]:
    """How many classes have no record: ``n_classes_without_images`` or ``n_classes_never_guessed``."""
    where = measured.testset.name
    if measured.metric.per_class == "class":
        absent = len(measured.space) - len(np.unique(measured.groups))
        return (
            [Count(name="n_classes_without_images", value=absent, testset=where)] if absent else []
        )
    return [
        Count(name="n_classes_never_guessed", value=absent, model=measured.models[m], testset=where)
        for m, _, n in _tallies(measured)
        if (absent := int((n == 0).sum()))
    ]


def _tallies(measured: Measured) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Model, and hits and images a class (classes,) for each model.

    An image of several classes counts in each of them, and once in the class that it is guessed to
    be of: its hit is then the mean over its rows.
    """
    guesses = _guesses(measured)
    size = len(measured.space)
    by_guess = measured.metric.per_class == "guess"
    values = measured.image_means() if by_guess else measured.values
    for m in range(len(measured.models)):
        group = guesses[measured.firsts, m] if by_guess else measured.groups
        some = group >= 0
        n = np.bincount(group[some], minlength=size)
        hits = np.bincount(group[some], values[some, m], minlength=size)
        yield m, hits, n


def _guesses(measured: Measured) -> np.ndarray:
    if measured.guesses is None:
        raise NotApplicable(
            f"{measured.metric.name} keeps no guesses", fix="measure recall or precision"
        )
    return measured.guesses

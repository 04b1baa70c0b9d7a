"""Training conflicts: which training subsets help, and which hurt, which evaluation subsets.

A log has checkpoints. At each, every evaluation subset has a score; and since the checkpoint before,
some images of each training subset were trained on. Let ``X`` (intervals x S) be those numbers of
images and ``Y`` (intervals x E) the changes of score. The effect ``C`` (S x E) is the least-squares
solution of ``Y = X C``: the change of score by one image of a training subset, everything else in
the interval accounted for. Where one subset is trained on at a time it is simply the mean change by
image.

The *contribution* is ``C`` divided, for each evaluation subset, by the largest absolute effect on
it: 1 is the training subset that helps it most (or -1 the one that hurts it most), 0 has no effect.
It is the matrix of figure 4 of Liang and Zou (MetaShift, 2022), whose own script was not published.

Subsets that are always trained in the same proportion cannot be told apart. The solution of least
norm shares an effect among them in that proportion, and ``rank`` says that it happened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import BadFile, NotApplicable
from heldout.core.tables import read_table_file

FloatArray = npt.NDArray[np.float64]
COLUMNS = ("step", "subset", "trained", "score")


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingLog:
    """What was trained on between checkpoints, and what each checkpoint scored.

    ``steps``      T + 1 checkpoints, rising
    ``trained``    S names, sorted; ``exposure`` float64 (T, S): images since the checkpoint before
    ``evaluated``  E names, sorted; ``scores`` float64 (T + 1, E), higher is better
    """

    steps: tuple[int, ...]
    trained: tuple[str, ...]
    evaluated: tuple[str, ...]
    exposure: FloatArray
    scores: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class ConflictMatrix:
    """Effects of training subsets (rows, S) on evaluation subsets (columns, E).

    ``effect``        change of score by one image of the row's subset
    ``contribution``  the same, in [-1, 1] for each column
    ``rank``          of the exposures; below S some rows cannot be told apart
    """

    trained: tuple[str, ...]
    evaluated: tuple[str, ...]
    effect: FloatArray
    contribution: FloatArray
    intervals: int
    rank: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know before believing it."""
        found = []
        if self.rank < len(self.trained):
            found.append(
                f"{len(self.trained)} training subsets with exposures of rank {self.rank}: effects "
                "of subsets that are trained together are shared between them"
            )
        if self.intervals < 2 * len(self.trained):
            found.append(
                f"{self.intervals} intervals for {len(self.trained)} training subsets: log more "
                "checkpoints before believing single cells"
            )
        return tuple(found)


def conflict_matrix(log: TrainingLog) -> ConflictMatrix:
    """The conflict matrix of a training log; see the module's head for what a cell is."""
    exposure, change = log.exposure, np.diff(log.scores, axis=0)
    if not len(change):
        raise NotApplicable("the log has one checkpoint", fix="log scores more than once")
    if not exposure.any():
        raise NotApplicable("nothing was trained on between checkpoints", fix="log the images")
    found, _, rank, _ = np.linalg.lstsq(exposure, change, rcond=None)
    effect = found.astype(np.float64)
    most = np.abs(effect).max(axis=0, keepdims=True)
    return ConflictMatrix(
        trained=log.trained,
        evaluated=log.evaluated,
        effect=effect,
        contribution=np.divide(effect, most, out=np.zeros_like(effect), where=most > 0),
        intervals=len(change),
        rank=int(rank),
    )


def read_training_log(path: Path) -> TrainingLog:
    """Read a log: CSV, JSON lines or Parquet with the columns step, subset, trained, score.

    A row says of a subset at a checkpoint how many of its images were ``trained`` on since the
    checkpoint before (empty: none), and its ``score`` there (empty: it is not evaluated). A subset
    that is evaluated must be so at every checkpoint. What was trained on before the first
    checkpoint, or after the last, has no score to compare with and does not count.
    """
    trained: dict[tuple[int, str], float] = {}
    scores: dict[tuple[int, str], float] = {}
    seen: set[tuple[int, str]] = set()
    for number, row in enumerate(read_table_file(path).to_pylist(), 1):
        step, images, score = (
            _number(path, number, row.get(name), name) for name in ("step", "trained", "score")
        )
        subset = row.get("subset")
        if step is None or step != int(step) or not subset:
            raise BadFile(path, f"row {number} lacks a whole step or a subset", fix="fill it in")
        key = (int(step), str(subset))
        if key in seen:
            raise BadFile(path, f"{subset} is there twice at step {key[0]}", fix="keep one row")
        seen.add(key)
        if images:
            trained[key] = images
        if score is not None:
            scores[key] = score
    steps = sorted({step for step, _ in scores})
    evaluated = sorted({subset for _, subset in scores})
    if not steps:
        raise BadFile(path, "has no scores", fix=f"write the columns {', '.join(COLUMNS)}")
    for step in steps:
        for subset in evaluated:
            if (step, subset) not in scores:
                raise BadFile(
                    path, f"{subset} has no score at step {step}", fix="score it at every one"
                )
    counted = {key: n for key, n in trained.items() if steps[0] < key[0] <= steps[-1]}
    names = sorted({subset for _, subset in counted})
    exposure = np.zeros((len(steps) - 1, len(names)))
    for (step, subset), images in counted.items():
        # Rows between two checkpoints count for the one that follows.
        exposure[int(np.searchsorted(steps, step)) - 1, names.index(subset)] += images
    return TrainingLog(
        steps=tuple(steps),
        trained=tuple(names),
        evaluated=tuple(evaluated),
        exposure=exposure,
        scores=np.array([[scores[step, name] for name in evaluated] for step in steps]),
    )


def _number(path: Path, number: int, value: Any, column: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found) or (column == "trained" and found < 0):
        raise BadFile(path, f"row {number} has the {column} {value!r}", fix="write a number >= 0")
    return found

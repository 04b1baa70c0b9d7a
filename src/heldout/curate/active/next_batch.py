"""The next images to label, from a pool and the labels so far; as a file to fill in.

There is no validation part here: labels are too dear. Where a strategy needs numbers on images that
were not trained on, the labelled images are cut into folds, and each fold is judged by a classifier
that was trained on the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from heldout.core.errors import BadFile, ExistsError, NotApplicable, UserError
from heldout.core.files import csv_text, write_text
from heldout.core.records import Table
from heldout.curate.active.classifier import Trainer
from heldout.curate.active.strategies import Strategy, confidence, margin
from heldout.curate.active.study import choose_next, trained_on
from heldout.curate.active.task import LabelingTask
from heldout.data.judgements.files import rows_of_file
from heldout.data.testset.hashing import derived_seed, row_hash

FIELDS = (
    "rank",
    "image_id",
    "path",
    "domain",
    "class_id",
    "predicted",
    "confidence",
    "margin",
    "strategy",
    "seed",
)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How one domain stands, and how many of its images were chosen.

    ``error``, ``loss``  on held-out images; ``confidence`` on candidates; None where there is no number
    """

    record: ClassVar[str] = "standing"
    table: ClassVar[Table] = Table(
        "{testset}, next labels by {strategy}; error and confidence in percent",
        (
            "domain",
            "images:,",
            "labelled:,",
            "candidates:,",
            "chosen:,",
            "error:%1",
            "loss:.3f",
            "confidence:%1",
        ),
    )
    testset: str
    strategy: str
    domain: str
    images: int
    labelled: int
    candidates: int
    chosen: int
    error: float | None
    loss: float | None
    confidence: float | None


def check_batch(problem: LabelingTask, strategy: Strategy, budget: int) -> None:
    """Refuse a batch that cannot be chosen."""
    candidates = int((problem.labels < 0).sum())
    if not 1 <= budget <= candidates:
        raise UserError(
            f"{budget:,} images are asked for, {problem.name} has {candidates:,} without a label",
            fix=f"give 1 to {candidates:,} (--budget)" if candidates else "nothing is left",
        )
    if strategy.needs_model and not _trainable(problem):
        raise NotApplicable(
            f"strategy {strategy.name} needs labels of two classes or more",
            fix="begin with random or k-centre",
        )


def _trainable(problem: LabelingTask) -> bool:
    return len(np.unique(problem.labels[problem.labels >= 0])) >= 2


def next_batch(
    problem: LabelingTask,
    trainer: Trainer,
    strategy: Strategy,
    *,
    budget: int,
    seed: int = 0,
    folds: int = 5,
    paths: Mapping[str, str | None] | None = None,
) -> tuple[list[dict[str, Any]], list[Standing]]:
    """Choose ``budget`` of the images without a class; those with one (``labels >= 0``) are labelled.

    One mapping per image, best first, with the keys of :data:`FIELDS`: ``predicted``, ``confidence``
    and ``margin`` are the classifier's, None without one; ``class_id`` is for people to fill in.
    And how every domain stands. Parts of the problem make no difference.

    ``paths``  of images, by id
    """
    check_batch(problem, strategy, budget)
    labelled, candidates = np.flatnonzero(problem.labels >= 0), np.flatnonzero(problem.labels < 0)
    trainable = _trainable(problem)
    held_out = None
    if strategy.needs_validation:
        held_out = (labelled, out_of_fold(problem, trainer, labelled, folds=folds, seed=seed))
    count = len(problem.domain_names)
    rows, status, logits = choose_next(
        problem,
        strategy,
        budget,
        candidates=candidates,
        labelled=labelled,
        answer=trained_on(problem, trainer, labelled, seed=seed) if trainable else None,
        held_out=held_out,
        sizes=np.bincount(problem.domains, minlength=count),
        seed=derived_seed("active next", seed),
    )
    answers: list[tuple[str | None, float | None, float | None]] = [(None, None, None)] * budget
    if logits is not None:
        given = logits[np.searchsorted(candidates, rows)]
        names = [problem.classes[place] for place in given.argmax(axis=1)]
        sure, lead = (score(given).round(6).tolist() for score in (confidence, margin))
        answers = list(zip(names, sure, lead, strict=True))
    chosen = []
    for rank, (row, answer) in enumerate(zip(rows.tolist(), answers, strict=True), start=1):
        image, domain = problem.ids[row], problem.domain_names[problem.domains[row]]
        path = (paths or {}).get(image)
        values = (rank, image, path, domain, None, *answer, strategy.name, seed)
        chosen.append(dict(zip(FIELDS, values, strict=True)))
    taken = np.bincount(problem.domains[rows], minlength=count)
    standing = [
        Standing(
            testset=problem.name,
            strategy=strategy.name,
            domain=name,
            images=int(status.sizes[place]),
            labelled=int(status.labelled[place]),
            candidates=int(status.capacities[place]),
            chosen=int(taken[place]),
            error=_null(status.errors[place]),
            loss=_null(status.losses[place]),
            confidence=_null(status.confidences[place]),
        )
        for place, name in enumerate(problem.domain_names)
    ]
    return chosen, standing


def out_of_fold(
    problem: LabelingTask, trainer: Trainer, labelled: np.ndarray, *, folds: int, seed: int
) -> np.ndarray:
    """Logits of labelled images by classifiers that never saw them, float64 (n, classes).

    Folds are dealt out class by class, by hashes of ids.
    """
    if not 2 <= folds <= len(labelled):
        raise UserError(
            f"{folds} folds of {len(labelled)} labelled images",
            fix="give 2 folds or more, and no more than labels (--folds)",
        )
    hashes = row_hash(problem.id_column.take(labelled), seed=derived_seed("active folds", seed))
    order = np.lexsort((hashes, problem.domains[labelled], problem.labels[labelled]))
    fold = np.empty(len(labelled), np.int64)
    fold[order] = np.arange(len(labelled)) % folds
    logits = np.empty((len(labelled), len(problem.classes)))
    for number in range(folds):
        mine = fold == number
        answer = trained_on(problem, trainer, labelled[~mine], seed=seed)
        logits[mine] = answer(labelled[mine]).logits
    return logits


def write_batch(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a CSV file, one row per image.

    With ``class_id`` filled in it is what :func:`read_labels` reads, and is never written over.
    """
    if path.suffix != ".csv":
        raise UserError(f"{path} is not a CSV file", fix="give a name that ends in .csv")
    known = sum(bool(row.get("class_id")) for _, row in rows_of_file(path)) if path.is_file() else 0
    if known:
        raise ExistsError(
            f"{path} holds {known:,} labels", fix="give it as --labelled, and name another file"
        )
    write_text(path, csv_text(FIELDS, [list(row.values()) for row in rows]))


def read_labels(*paths: Path) -> dict[str, str]:
    """Labels so far: CSV files with the columns image_id and class_id, or JSON lines of both.

    An image that is there twice with different classes is refused; one without a class is no label.
    """
    found: dict[str, str] = {}
    for path in paths:
        for where, row in rows_of_file(path):
            image, label = row.get("image_id"), row.get("class_id")
            if not isinstance(image, str) or not image or "class_id" not in row:
                raise BadFile(
                    path, f"{where} has no image_id and class_id", fix="name both columns in line 1"
                )
            if label is None or label == "":
                continue
            if not isinstance(label, str):
                raise BadFile(path, f"{where}: class_id is not text", fix="write class ids as text")
            if found.setdefault(image, label) != label:
                raise BadFile(
                    path,
                    f"{where}: {image!r} is {label!r} here and {found[image]!r} before",
                    fix="settle on one class",
                )
    return found


def _null(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

"""One round: train on the labels so far, evaluate, allocate, select."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.active.allocators import Standing
from heldout.curate.active.measuring import Cells, count_cells, domain_accuracy, domain_loss
from heldout.curate.active.problem import TEST, TRAIN, VALIDATION, Problem
from heldout.curate.active.selectors import View
from heldout.curate.active.strategy import Strategy
from heldout.curate.active.threshold import atc_threshold, estimated_errors
from heldout.curate.active.training import Trainer, outputs
from heldout.curate.active.uncertainty import confidence
from heldout.data.testset.rowhash import derived_seed, row_hash


@dataclass(frozen=True, eq=False, kw_only=True)
class Round:
    """What came out of a round.

    ``labels``   how many images were trained on
    ``cells``    counts on the test images by domain and class
    ``correct``  which test images are right, bool (test,)
    ``chosen``   rows of the problem to label next, best first; empty in the last round
    ``quota``    of every domain, int64 (domains,): what ``chosen`` holds of it
    """

    labels: int
    cells: Cells
    correct: np.ndarray
    chosen: np.ndarray
    quota: np.ndarray


def first_labels(problem: Problem, count: int, *, seed: int) -> np.ndarray:
    """The images that are labelled first: drawn evenly from the candidates, int64 (count,).

    The same for every strategy; a smaller count gives a part of a larger.
    """
    rows = problem.rows(TRAIN)
    if not 0 < count <= len(rows):
        raise UserError(
            f"{count:,} first labels of {len(rows):,} candidates",
            fix=f"give 1 to {len(rows):,} (--initial)",
        )
    hashes = row_hash(problem.id_column.take(rows), seed=derived_seed("active first labels", seed))
    return rows[np.argsort(hashes, kind="stable")[:count]]


def do_round(
    problem: Problem,
    trainer: Trainer,
    strategy: Strategy,
    labelled: np.ndarray,
    *,
    budget: int,
    seed: int,
    number: int,
) -> Round:
    """Train on the rows ``labelled``, evaluate on the test images, choose ``budget`` more.

    The order of ``labelled`` makes no difference. ``number`` counts rounds from 0.
    """
    rows = np.sort(labelled)
    if (problem.labels[rows] < 0).any():
        raise UserError(
            f"{problem.name} lacks classes of candidates",
            fix="simulate on images that have them all",
        )
    classes, domains = len(problem.classes), len(problem.domain_names)
    trained = trainer(
        problem.images(rows),
        problem.labels[rows],
        classes=classes,
        seed=derived_seed("train", seed),
    )

    def answer(at: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        found = outputs(trained, problem.images(at), classes=classes, name=trainer.name)
        return found.logits, found.features

    test = problem.rows(TEST)
    logits = answer(test)[0]
    cells = count_cells(logits, problem.labels[test], problem.domains[test], count=domains)
    correct = logits.argmax(axis=1) == problem.labels[test]
    chosen = np.zeros(0, np.int64)
    if budget:
        train = problem.rows(TRAIN)
        candidates = train[~np.isin(train, rows)]
        candidate_logits, features = answer(candidates)
        validation = problem.rows(VALIDATION)
        validation_logits = answer(validation)[0]
        view = View(
            ids=problem.id_column.take(candidates),
            groups=problem.domains[candidates],
            domains=domains,
            seed=derived_seed(f"active round {number}", seed),
            logits=candidate_logits,
            features=features,
            labelled=None if features is None else answer(rows)[1],
            validation_logits=validation_logits if len(validation) else None,
            validation_labels=problem.labels[validation] if len(validation) else None,
            validation_groups=problem.domains[validation] if len(validation) else None,
        )
        standing = make_standing(
            view,
            names=problem.domain_names,
            sizes=problem.domain_sizes,
            labelled=np.bincount(problem.domains[rows], minlength=domains),
        )
        quota = strategy.allocator(standing, budget)
        chosen = candidates[strategy.selector(view, budget, quota)]
    return Round(
        labels=len(rows),
        cells=cells,
        correct=correct,
        chosen=chosen,
        quota=np.bincount(problem.domains[chosen], minlength=domains),
    )


def make_standing(
    view: View, *, names: tuple[str, ...], sizes: np.ndarray, labelled: np.ndarray
) -> Standing:
    """How the domains stand, from what a selector sees."""
    count = view.domains
    unknown = np.full(count, np.nan)
    errors = losses = sure = expected = unknown
    confidences = unknown
    if view.logits is not None:
        confidences = _means(confidence(view.logits), view.groups, count)
    if view.validation_logits is not None:
        known, groups = view.validation_labels, view.validation_groups
        if known is None or groups is None:
            raise ValueError("validation images need labels and domains")
        cells = count_cells(view.validation_logits, known, groups, count=count)
        errors, losses = 1.0 - domain_accuracy(cells), domain_loss(cells)
        scores = confidence(view.validation_logits)
        sure = _means(scores, groups, count)
        if view.logits is not None:
            limit = atc_threshold(scores, view.validation_logits.argmax(axis=1) == known)
            expected = estimated_errors(confidence(view.logits), view.groups, limit, count)
    return Standing(
        names=names,
        sizes=sizes,
        labelled=labelled,
        capacities=np.bincount(view.groups, minlength=count),
        errors=errors,
        losses=losses,
        confidences=confidences,
        validation_confidences=sure,
        estimated_errors=expected,
    )


def _means(values: np.ndarray, groups: np.ndarray, count: int) -> np.ndarray:
    sizes = np.bincount(groups, minlength=count)
    sums = np.bincount(groups, weights=values, minlength=count)
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)


def pack_round(made: Round) -> bytes:
    """A round as bytes; equal rounds, equal bytes."""
    handle = io.BytesIO()
    np.savez(
        handle,
        labels=np.int64(made.labels),
        images=made.cells.images,
        right=made.cells.right,
        losses=made.cells.losses,
        correct=np.packbits(made.correct),
        tested=np.int64(len(made.correct)),
        chosen=made.chosen,
        quota=made.quota,
    )
    return handle.getvalue()


def unpack_round(data: bytes) -> Round:
    """What :func:`pack_round` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return Round(
            labels=int(arrays["labels"]),
            cells=Cells(arrays["images"], arrays["right"], arrays["losses"]),
            correct=np.unpackbits(arrays["correct"], count=int(arrays["tested"])).astype(bool),
            chosen=arrays["chosen"],
            quota=arrays["quota"],
        )


def pack_many(parts: Sequence[bytes]) -> bytes:
    """Several byte strings as one, in their order."""
    sizes = np.array([len(part) for part in parts], "<i8")
    return np.array([len(parts)], "<i8").tobytes() + sizes.tobytes() + b"".join(parts)


def unpack_many(data: bytes) -> list[bytes]:
    """What :func:`pack_many` wrote."""
    count = int(np.frombuffer(data, "<i8", 1)[0])
    sizes = np.frombuffer(data, "<i8", count, 8)
    ends = 8 * (count + 1) + np.cumsum(sizes)
    return [data[end - size : end] for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)]

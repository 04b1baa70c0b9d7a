"""Guesses: a model's stored outputs laid beside the rows of a truth, through a label map if any."""

from __future__ import annotations

import numpy as np

from heldout.core.errors import LabelError, NotApplicable
from heldout.data.labels.label_map import LabelMap
from heldout.data.testset import TestSet
from heldout.measure.score.hits import Truth
from heldout.measure.score.metrics import Guesses
from heldout.models.predictions import Predictions, top_k


def guesses_for(
    predictions: Predictions,
    testset: TestSet,
    truth: Truth,
    label_map: LabelMap | None,
    *,
    logits: bool,
    ranks: int = 1,
) -> Guesses:
    """A model's outputs beside a truth's rows, in the label space in which they are judged.

    ``ranks`` guesses are taken from the logits where fewer are stored. Rows without an output
    have guesses of -1 and logits of zero, which is the uniform guess.
    """
    expected = testset.label_space if label_map is None else label_map.source
    if predictions.label_space.fingerprint != expected.fingerprint:
        raise _foreign_space(predictions, testset, label_map)
    rows = predictions.rows_for(testset.image_ids, testset=testset.name)[truth.rows]
    topk = predictions.topk[rows]
    failed = np.asarray((topk < 0).all(axis=1))
    if predictions.failures:
        failed |= np.isin(rows, np.fromiter(predictions.failures, dtype=np.int64))
    restricted = label_map is not None and label_map.reading == "restricted"
    short = topk.shape[1] < min(ranks, len(expected))
    values = None
    # Under a restriction the best remaining class may stand anywhere: all logits are looked at.
    if predictions.logits is not None and (logits or restricted or short):
        values = _checked_logits(predictions, rows, failed)
    if label_map is None or not restricted:
        if short and values is not None:
            topk = np.where(failed[:, None], -1, top_k(values, ranks))
        return Guesses(topk, expected, values if logits else None, failed)
    if values is None:
        mapped = label_map.read_topk(topk)
        return Guesses(mapped.targets, label_map.target, failed=failed, known=mapped.known)
    # The larger type: half precision is enough to store logits, and slow to compare.
    values = label_map.map_logits(values.astype(np.float32, copy=False))
    best = np.where(failed[:, None], -1, top_k(values, max(ranks, topk.shape[1])))
    return Guesses(best, label_map.target, values if logits else None, failed)


def first_guesses(guesses: Guesses, label_map: LabelMap | None) -> np.ndarray:
    """First guesses as classes of the test set, -1 for none of them; int32 (n,)."""
    firsts = guesses.topk[:, :1]
    if label_map is not None and label_map.reading == "full":
        firsts = label_map.map_topk(firsts)
    return firsts[:, 0].astype(np.int32)


def _checked_logits(predictions: Predictions, rows: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """The logits of some rows, those without an output zero; NaN and +inf are refused."""
    if predictions.logits is None:
        raise NotApplicable(
            f"{predictions.model} keeps no logits", fix="predict or import with logits"
        )
    values: np.ndarray = predictions.logits[rows]
    values[failed] = 0
    # A row's maximum is NaN or +inf if any of its logits is.
    bad = ~np.isfinite(values.max(axis=1))
    if bad.any():
        example = predictions.image_ids[int(rows[int(bad.argmax())])].as_py()
        raise NotApplicable(
            f"{predictions.model} has NaN or infinite logits for {int(bad.sum())} images, "
            f"such as {example!r}",
            fix="predict these images again, or mark them as failed",
        )
    return values


def _foreign_space(
    predictions: Predictions, testset: TestSet, label_map: LabelMap | None
) -> LabelError:
    model, space = predictions.model, predictions.label_space
    if label_map is not None:
        return LabelError(
            f"label map {label_map.name} reads {label_map.source.name}, {model} predicts {space.name}",
            fix="use a map from the model's own label space",
        )
    return LabelError(
        f"{model} predicts {space.name} ({len(space)} classes), {testset.name} is labelled in "
        f"{testset.label_space.name} ({len(testset.label_space)})",
        fix="name a --label-map, such as subset:restricted (argmax over the set's classes) "
        "or subset:full (argmax over all the model's classes)",
    )

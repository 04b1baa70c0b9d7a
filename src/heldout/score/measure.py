"""Measuring: many models on one truth of one test set, a value an image and model.

The matrix of values is what scores, slices, comparisons, ranks and fits are all computed from, so
that no two of them can disagree about which images were counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from heldout.errors import LabelError, NotApplicable, UserError
from heldout.labels.label_maps import LabelMap
from heldout.predictions import Predictions, top_k
from heldout.score.hits import Truth, truth_arrays
from heldout.score.metrics import Guesses, Metric, get_metric, unreviewed
from heldout.testset import TestSet


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """Values of one metric: ``values[i, m]`` is model m's value on included row i.

    ``rows``    int64 (n,): row of the test set's images table
    ``groups``  int64 (n,): class index of each row, for metrics averaged a class at a time
    ``unreviewed``, ``failed``, ``unknown``  counts a model: first guesses that nobody has judged;
                images without an output; images whose stored top k holds no class of the set
    """

    testset: TestSet
    truth: str
    metric: Metric
    models: tuple[str, ...]
    values: np.ndarray
    rows: np.ndarray
    groups: np.ndarray
    label_map: str = "identity"
    hashes: tuple[str, ...] = ()
    unreviewed: tuple[int, ...] = ()
    left_out: int = 0
    failed: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, model: str) -> np.ndarray:
        """The values of one model; (n,)."""
        if model not in self.models:
            raise UserError(f"no model {model!r} among the measured", fix=f"there is {', '.join(self.models)}")
        return self.values[:, self.models.index(model)]

    def estimates(self) -> np.ndarray:
        """The metric of every model; float64 (models,)."""
        if self.metric.average == "images":
            return self.values.mean(axis=0, dtype=np.float64)
        sums, counts = class_sums(self.values, self.groups)
        means: np.ndarray = (sums / counts[:, None]).mean(axis=0)
        return means


def class_sums(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums (classes present, models) and counts (classes present,) of rows a class."""
    present, codes = np.unique(groups, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(present)))
    sums = np.add.reduceat(values[order].astype(np.float64), starts, axis=0)
    return sums, np.bincount(codes)


def guesses_for(
    predictions: Predictions, testset: TestSet, truth: Truth, label_map: LabelMap | None, *, logits: bool
) -> Guesses:
    """A model's outputs beside a truth's rows, in the label space in which they are judged."""
    rows = predictions.rows_for(testset.image_ids, testset=testset.name)[truth.rows]
    topk = predictions.topk[rows]
    wanted = predictions.logits[rows] if logits and predictions.logits is not None else None
    expected = testset.label_space if label_map is None else label_map.source
    if predictions.label_space.fingerprint != expected.fingerprint:
        raise _foreign_space(predictions, testset, label_map)
    if label_map is None or label_map.reading == "full":
        return Guesses(topk, wanted)
    if predictions.logits is None:
        mapped = label_map.read_topk(topk)
        return Guesses(mapped.targets, unknown=int(mapped.unknown(1).sum()))
    # The best of the remaining classes may stand anywhere among the logits, so all are looked at.
    values = label_map.map_logits(predictions.logits[rows].astype(np.float32))
    return Guesses(top_k(values), values if logits else None)


def _foreign_space(predictions: Predictions, testset: TestSet, label_map: LabelMap | None) -> LabelError:
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


def measure(
    testset: TestSet,
    predictions: Iterable[Predictions],
    *,
    metrics: Sequence[str] = ("top1",),
    truth: str | None = None,
    label_map: LabelMap | None = None,
    absent_classes: str = "error",
) -> list[Measured]:
    """Measure models on a test set: one :class:`Measured` for each metric, models in the order given.

    Each model is read once and its outputs are dropped before the next, so that memory stays at
    one model's logits whatever the number of models. ``absent_classes`` says what a metric that
    averages over classes does about a class without images: ``error`` or ``skip``.
    """
    plain = truth_arrays(testset, truth)
    arrays = plain.judged_by(label_map) if label_map and label_map.reading == "full" else plain
    chosen = [get_metric(name) for name in metrics]
    included = [metric.include(arrays) for metric in chosen]
    for metric, mask in zip(chosen, included, strict=True):
        _check_rows(metric, mask, plain, testset, absent_classes)
    columns: list[list[np.ndarray]] = [[] for _ in chosen]
    unseen: list[list[int]] = [[] for _ in chosen]
    names: list[str] = []
    hashes: list[str] = []
    failed: list[int] = []
    unknown: list[int] = []
    for model in predictions:
        guesses = guesses_for(
            model, testset, arrays, label_map, logits=any(metric.needs_logits for metric in chosen)
        )
        for i, (metric, mask) in enumerate(zip(chosen, included, strict=True)):
            if guesses.topk.shape[1] < metric.ranks:
                raise NotApplicable(
                    f"{metric.name} needs {metric.ranks} guesses, {model.model} keeps {guesses.topk.shape[1]}",
                    fix="predict or import with more",
                )
            values = metric.values(arrays, guesses)[mask]
            columns[i].append(values if metric.plain else values.astype(np.float64))
            unseen[i].append(int(unreviewed(arrays, guesses)[mask].sum()))
        names.append(model.model)
        hashes.append(model.hash)
        failed.append(len(model.failures))
        unknown.append(guesses.unknown)
    if not names:
        raise UserError(f"no models to measure on {testset.name}", fix="name some with --model")
    return [
        Measured(
            testset=testset,
            truth=arrays.name,
            metric=metric,
            models=tuple(names),
            values=np.stack(columns[i], axis=1),
            rows=arrays.rows[mask],
            groups=arrays.labels[mask],
            label_map=label_map.describe() if label_map else "identity",
            hashes=tuple(hashes),
            unreviewed=tuple(unseen[i]),
            left_out=int((~mask).sum()),
            failed=tuple(failed),
            unknown=tuple(unknown),
        )
        for i, (metric, mask) in enumerate(zip(chosen, included, strict=True))
    ]


def _check_rows(metric: Metric, mask: np.ndarray, truth: Truth, testset: TestSet, absent: str) -> None:
    where = f"truth {truth.name} of {testset.name}"
    if not mask.any():
        raise NotApplicable(f"{metric.name}: {where} has no image to count", fix="choose another truth or metric")
    if metric.average != "classes":
        return
    if (truth.labels[mask] < 0).any():
        raise NotApplicable(
            f"{metric.name} averages over classes, and {where} has images without a class",
            fix="choose a metric that averages over images",
        )
    counts = np.bincount(truth.labels[mask], minlength=len(truth.space))
    if absent == "error" and (counts == 0).any():
        empty = truth.space.classes[int(counts.argmin())]
        raise NotApplicable(
            f"{metric.name}: {int((counts == 0).sum())} of {len(truth.space)} classes have no image in "
            f"{where}, such as {empty.id} ({empty.name})",
            fix="--absent-classes skip averages over the classes that are there",
        )

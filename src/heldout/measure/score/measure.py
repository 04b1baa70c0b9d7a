"""Many models measured on one truth of one test set: one value per image and model.

The matrix of values is what scores, slices, comparisons, ranks and fits are all computed from, so
that no two of them can disagree about which images were counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.score.metrics import (
    BINS,
    Metric,
    bin_codes,
    confidence_rows,
    get_metric,
    unreviewed,
)
from heldout.measure.score.truth import (
    RankedPredictions,
    Truth,
    ranked_predictions,
    top1_predictions,
    truth_arrays,
)
from heldout.models.predictions import Predictions

_MATRICES = ("values", "confidence", "folded", "guesses")  # one column per model
_COUNTS = ("unreviewed", "failed", "unknown")  # one number per model


FEW_CLASSES = 10
"""With so few classes the best five guesses say nothing."""
DEFAULT_METRICS = {
    "single": ("top1", "top5"),
    "real": ("real",),
    "multilabel": ("mla", "mla_micro", "mla_correct_only", "mla_upper"),
}


def default_metrics(testset: TestSet, truth: str | None = None) -> tuple[str, ...]:
    """The metrics that a truth names on the card, or those that fit its kind."""
    name = truth or testset.card.default_truth
    testset.truth(name)
    where = testset.card.truths[name]
    if where.get("metrics"):
        return tuple(where["metrics"])
    found = DEFAULT_METRICS.get(where.get("kind", "single"), DEFAULT_METRICS["single"])
    few = testset.label_space is not None and len(testset.label_space) <= FEW_CLASSES
    return tuple(name for name in found if not (few and name == "top5"))


@dataclass(frozen=True, eq=False, kw_only=True)
class Measured:
    """Values of one metric: ``values[i, m]`` is model m's value on included row i.

    ``space``       the label space of ``groups`` and ``guesses``
    ``rows``        int64 (n,): row of the test set's images table; rows are in order of image id,
                    and an image of several classes has one for each (:meth:`one_row_per_image`)
    ``groups``      int64 (n,): class index of each row, -1 where it has none
    ``weights``     float64 (n,) for a weighted metric
    ``confidence``  float64 (n, models) for a calibration error
    ``folded``      float64 (n, models) for a classwise calibration error: see
                    :func:`~heldout.measure.score.metrics.classwise_rows`
    ``guesses``     int32 (n, models) for a score per class: top-1 predictions as classes of the set,
                    -1 for none
    ``left_out``    rows of the truth that the metric does not count
    ``unreviewed``, ``failed``, ``unknown``  counts per model: top-1 predictions that nobody has judged;
                    images without an output; images whose best classes are not all on file
    """

    testset: TestSet
    truth: str
    space: LabelSpace
    metric: Metric
    models: tuple[str, ...]
    values: np.ndarray
    rows: np.ndarray
    groups: np.ndarray
    label_map: str = "identity"
    hashes: tuple[str, ...] = ()
    weights: np.ndarray | None = None
    confidence: np.ndarray | None = None
    folded: np.ndarray | None = None
    guesses: np.ndarray | None = None
    left_out: int = 0
    unreviewed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, model: str) -> np.ndarray:
        """The values of one model; (n,)."""
        return self.values[:, self.position(model)]

    def position(self, model: str) -> int:
        """Which column a model is."""
        if model not in self.models:
            raise UserError(
                f"no model {model!r} among the measured", fix=f"there is {', '.join(self.models)}"
            )
        return self.models.index(model)

    def select(self, positions: np.ndarray) -> Measured:
        """The same measurement on some of its rows; the counts stay those of the whole."""
        if self.metric.classwise and len(positions) < len(self.first_row_of_image):
            raise NotApplicable(
                f"{self.metric.name} is a number of all images, not of some of them",
                fix="use ece",
            )
        arrays: dict[str, Any] = {
            name: None if (array := getattr(self, name)) is None else array[positions]
            for name in ("rows", "groups", "weights", *_MATRICES)
        }
        return replace(self, **arrays)

    def of_models(self, models: Sequence[str]) -> Measured:
        """The same measurement of some models, in that order."""
        where = [self.position(model) for model in models]
        matrices: dict[str, Any] = {
            name: None if (array := getattr(self, name)) is None else array[:, where]
            for name in _MATRICES
        }
        tuples: dict[str, Any] = {
            name: tuple(given[i] for i in where) if (given := getattr(self, name)) else given
            for name in ("hashes", *_COUNTS)
        }
        return replace(self, models=tuple(models), **matrices, **tuples)

    def has_weight(self, positions: np.ndarray) -> bool:
        """Whether some of these rows weigh anything: a mean over weights of zero is not a number."""
        return self.weights is None or bool(self.weights[positions].any())

    @cached_property
    def first_row_of_image(self) -> np.ndarray:
        """The first row of each image, in order of image; int64 (images,)."""
        return np.unique(self.rows, return_index=True)[1]

    @property
    def counted(self) -> bool:
        """Whether the score is k of n images: a value is a hit or a miss, and no image has two."""
        return self.metric.counted and self.values.dtype == bool

    def one_row_per_image(self) -> Measured:
        """The same measurement with every image once: an image's value is the mean of its rows'.

        A truth has a row for each class of an image. Metrics that average over images count such
        an image once; those that average over classes, or score each, count it in each of its
        classes, and stay as they are. Rows are those of :attr:`first_row_of_image`.
        """
        metric = self.metric
        if (
            metric.average == "classes"
            or metric.per_class
            or len(self.first_row_of_image) == len(self)
        ):
            return self
        return replace(self.select(self.first_row_of_image), values=self.image_means())

    def image_means(self) -> np.ndarray:
        """The mean over the rows of each image, in order of image; float64 (images, models)."""
        _, image = np.unique(self.rows, return_inverse=True)
        means = np.zeros((len(self.first_row_of_image), len(self.models)))
        np.add.at(means, image, self.values)
        return np.asarray(means / np.bincount(image)[:, None])

    def estimates(self) -> np.ndarray:
        """The metric of every model over rows as they are; float64 (models,)."""
        metric = self.metric
        if metric.per_class:
            raise NotApplicable(
                f"{metric.name} is a score for each class, not one number",
                fix="use mean_per_class, or scores()",
            )
        if metric.debiased and len(self) > 1:
            from heldout.stats.calibration import binned_gaps

            return binned_gaps(self.values, self.bin_codes, BINS).debiased()
        if metric.binned and not metric.classwise:
            # Sum over bins of |sum of (hit - confidence)|, of the mean over images.
            pairs = zip(self.bin_codes.T, self.values.T, strict=True)
            gaps = [np.abs(np.bincount(codes, gap)).sum() for codes, gap in pairs]
            return np.array(gaps) / len(self)
        if metric.average == "classes":
            sums, counts = class_sums(self.values, self.groups)
            return np.asarray((sums / counts[:, None]).mean(axis=0))
        if self.weights is not None:
            if not self.weights.any():
                raise NotApplicable(
                    f"all images of {self.testset.name} that count weigh nothing",
                    fix="correct the column weight, or use a metric that is not weighted",
                )
            return np.asarray(self.weights @ self.values / self.weights.sum())
        return np.asarray(self.values.mean(axis=0, dtype=np.float64))

    def subject(self, m: int | None) -> dict[str, Any]:
        """The fields of a record that say what it is about; ``m`` is the model, None for none."""
        return {
            "model": None if m is None else self.models[m],
            "testset": self.testset.name,
            "truth": self.truth,
            **self.metric.subject,
            "label_map": self.label_map,
            "testset_hash": self.testset.card.content_hash,
            "predictions_hash": self.hashes[m] if m is not None and self.hashes else "",
        }

    @cached_property
    def bin_codes(self) -> np.ndarray:
        """For a calibration error: the bin of each value; int64 (n, models)."""
        return bin_codes(np.asarray(self.confidence))


def class_sums(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums (classes present, models) and counts (classes present,) of rows per class."""
    present, codes = np.unique(groups, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(present)))
    sums = np.add.reduceat(values[order].astype(np.float64), starts, axis=0)
    return sums, np.bincount(codes)


def _column(
    metric: Metric, mask: np.ndarray, truth: Truth, found: RankedPredictions, where: str
) -> dict[str, Any]:
    """What is kept of one model for one metric, by field of :class:`Measured`."""
    values = metric.values(truth, found)[mask]
    if not np.isfinite(values).all():
        raise NotApplicable(
            f"{metric.name} of {where} is infinite: {int((~np.isfinite(values)).sum())} images "
            "have probability 0 for their class",
            fix="use brier, which is bounded, or predict with finite logits",
        )
    unknown = found.unknown(metric.ranks) & ~found.failed
    folded: dict[str, Any] = {}
    if metric.classwise:
        values, folded["folded"] = values.T
    column: dict[str, Any] = folded | {
        "values": values.astype(bool if metric.plain else np.float64),
        # Of images, not of rows: an image of several classes has a row for each.
        "failed": len(np.unique(truth.rows[mask & found.failed])),
        "unknown": len(np.unique(truth.rows[mask & unknown])),
        "unreviewed": int(unreviewed(truth, found)[mask].sum()) if metric.reviewed else 0,
    }
    if metric.binned and not metric.classwise:
        column["confidence"] = confidence_rows(found)[mask]
    return column


def _joined(columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is kept of all models, by field of :class:`Measured`."""
    lists = {name: [column[name] for column in columns] for name in columns[0]}
    return {
        name: np.stack(made, axis=1) if name in _MATRICES else tuple(made)
        for name, made in lists.items()
    }


def measure(
    testset: TestSet,
    predictions: Iterable[Predictions],
    *,
    metrics: Sequence[str] = ("top1",),
    truth: str | None = None,
    label_map: LabelMap | None = None,
    absent_classes: str = "error",
    notes: list[str] | None = None,
) -> list[Measured]:
    """Measure models on a test set: one :class:`Measured` for each metric, models in the order given.

    Each model is read once and its outputs are dropped before the next, so that memory stays at
    one model's logits whatever the number of models. ``absent_classes`` says what a metric that
    averages over classes does about a class without images: ``error`` or ``skip``.

    Without ``metrics`` those of the truth are measured: one that a model or the truth has not enough
    for is left out, which ``notes`` tell. A metric that is named is refused instead.
    """
    refusals: dict[str, list[NotApplicable]] = {}

    def applies(check: Callable[..., None], metric: Metric, *about: Any) -> bool:
        try:
            check(metric, *about)
        except NotApplicable as refused:
            if metrics:
                raise
            refusals.setdefault(metric.name, []).append(refused)
            return False
        return True

    plain = whole = truth_arrays(testset, truth)
    if label_map is not None:
        plain = whole.in_target(label_map)
    arrays = plain.judged_by(label_map) if label_map and label_map.reading == "full" else plain
    named = [get_metric(name) for name in metrics or default_metrics(testset, truth)]
    counted = [(metric, metric.include(arrays)) for metric in named]
    chosen = [
        (metric, mask)
        for metric, mask in counted
        if applies(_check_rows, metric, mask, plain, testset, absent_classes)
    ]
    ranks = max((metric.ranks for metric, _ in chosen), default=1)
    logits = any(metric.needs_logits for metric, _ in chosen)
    seen: set[str] = set()
    columns: list[list[dict[str, Any]]] = [[] for _ in chosen]
    for model in predictions:
        if model.model in seen:
            raise UserError(
                f"{model.model} is there twice", fix="give each model a name of its own"
            )
        seen.add(model.model)
        able = [applies(_check_model, metric, model, label_map) for metric, _ in chosen]
        found = ranked_predictions(model, testset, arrays, label_map, logits=logits, ranks=ranks)
        for (metric, mask), made in compress(zip(chosen, columns, strict=True), able):
            made.append(_column(metric, mask, arrays, found, f"{model.model} on {testset.name}"))
            made[-1] |= {"models": model.model, "hashes": model.hash}
            if metric.per_class:
                made[-1]["guesses"] = top1_predictions(found, label_map)[mask]
    if not seen:
        raise UserError(f"no models to measure on {testset.name}", fix="name some with --model")
    for first, *more in refusals.values():
        if not any(columns):
            raise first
        others = f", and {len(more)} models more" if more else ""
        (notes if notes is not None else []).append(f"not scored: {first.message}{others}")
    return [
        Measured(
            testset=testset,
            truth=arrays.name,
            space=arrays.space,
            metric=metric,
            rows=arrays.rows[mask],
            groups=arrays.labels[mask],
            label_map=label_map.describe() if label_map else "identity",
            weights=image_weights(testset)[plain.rows[mask]] if metric.weighted else None,
            left_out=len(whole) - int(mask.sum()),
            **_joined(made),
        )
        for (metric, mask), made in zip(chosen, columns, strict=True)
        if made
    ]


def image_weights(testset: TestSet) -> np.ndarray:
    """The weight of every image, from the set's column ``weight``; float64 (images,)."""
    column = testset.images["weight"]
    if column.null_count:
        raise NotApplicable(
            f"{column.null_count} of the {len(testset)} images of {testset.name} have no weight",
            fix="fill the column weight, or use a metric that is not weighted",
        )
    weights: np.ndarray = column.to_numpy().astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise NotApplicable(
            f"{testset.name} has weights that are below zero, not finite, or all zero",
            fix="correct the column weight",
        )
    return weights


def _check_model(metric: Metric, model: Predictions, label_map: LabelMap | None) -> None:
    """Refuse a model that does not keep what a metric needs."""
    stored = model.topk.shape[1]
    if model.logits is not None:
        return
    if metric.needs_logits:
        raise NotApplicable(
            f"{metric.name} needs logits, {model.model} keeps only its top {stored}",
            fix="predict or import with logits",
        )
    space = model.label_space if label_map is None else label_map.target
    if stored < min(metric.ranks, len(space)):
        raise NotApplicable(
            f"{metric.name} needs {metric.ranks} guesses, {model.model} keeps {stored}",
            fix="predict or import with more",
        )


def _check_rows(
    metric: Metric, mask: np.ndarray, truth: Truth, testset: TestSet, absent: str
) -> None:
    where = f"truth {truth.name} of {testset.name}"
    if not mask.any():
        raise NotApplicable(
            f"{metric.name}: {where} has no image to count", fix="choose another truth or metric"
        )
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

"""Estimates with intervals: which interval a metric gets, for one part of a measurement.

k of n images: Wilson (or Clopper-Pearson). Everything else is resampled: means and means of class
means by the bootstrap over images, inside classes where classes are averaged, whole clusters at a
time where a cluster column is named; a calibration error with its bins held in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.measuring import Measured
from heldout.stats import (
    bootstrap_mean,
    bootstrap_statistic,
    clopper_pearson,
    interval_from_replicates,
    wilson,
)

REPLICATES = 1000
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Estimates:
    """The metric of every model, (models,) each; limits and method are None without an interval.

    ``reason`` then says why.
    """

    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    method: str | None
    reason: str | None = None


def generator(seed: int, measured: Measured, purpose: str) -> np.random.Generator:
    """The generator for one purpose: the same images, truth and seed give the same draws.

    Neither the order of images or models matters, nor what else the test set holds.
    """
    card = measured.testset.card
    hashes = (card.images_hash, card.tables.get(f"truth/{measured.truth}", ""))
    words = [int(text[i : i + 8], 16) for text in hashes if text for i in (0, 8)]
    return np.random.default_rng([seed, *words, *purpose.encode()])


def estimate(
    part: Measured,
    *,
    rng: np.random.Generator,
    clusters: np.ndarray | None = None,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    exact: bool = False,
) -> Estimates:
    """The metric of every model on the rows of ``part``, with its interval.

    ``clusters`` (n,) are codes of rows that belong together. Too few images or clusters to tell
    anything of their spread is refused, as :mod:`heldout.stats` does.
    """
    # In order of name: what is drawn for a model must not depend on where it stands.
    order = sorted(range(len(part.models)), key=part.models.__getitem__)
    named = part.of_models([part.models[m] for m in order])
    value, low, high, method = _estimate(named, rng, clusters, replicates, level, exact)
    back = np.argsort(order)
    return Estimates(value[back], low[back], high[back], method)


def _estimate(
    part: Measured,
    rng: np.random.Generator,
    clusters: np.ndarray | None,
    replicates: int,
    level: float,
    exact: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    metric = part.metric
    if part.counted and clusters is None:
        k, n = part.values.sum(axis=0), len(part)
        interval = clopper_pearson(k, n, level=level) if exact else wilson(k, n, level=level)
        return k / n, interval.low, interval.high, interval.method
    if metric.bins is not None:
        return _calibration(part, rng, clusters, replicates, level)
    if metric.per_class:
        raise NotApplicable(f"{metric.name} is a score for each class", fix="use class_scores")
    classes = metric.average == "classes"
    found = bootstrap_mean(
        part.values,
        rng=rng,
        replicates=replicates,
        level=level,
        strata=part.groups if classes and clusters is None else None,
        clusters=clusters,
        weights=class_weights(part) if classes and clusters is not None else part.weights,
        statistic="mean_of_strata_means" if classes and clusters is None else "mean",
        bounds=(0.0, 1.0) if metric.plain else None,
    )
    return found.value, found.interval.low, found.interval.high, found.interval.method


def class_weights(part: Measured) -> np.ndarray:
    """Weights under which the mean over images is the mean of class means.

    Clusters such as photographers cut across classes, so classes cannot be strata for them.
    """
    _, codes, sizes = np.unique(part.groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / sizes[codes])


def _calibration(
    part: Measured,
    rng: np.random.Generator,
    clusters: np.ndarray | None,
    replicates: int,
    level: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """ECE takes absolute values, so noise pushes it up, and a resample's noise pushes twice.

    Where the error is small against its noise no one bootstrap interval holds its level; the union
    of the basic interval (which mirrors the replicates at the estimate and so takes the push off)
    and of estimate ± t times the standard error does. The low limit is 0 where a model that means
    its confidences could well have shown as much.
    """
    codes = part.bin_codes()
    found = bootstrap_statistic(
        lambda weights: part.calibration_errors(weights, codes),
        len(part),
        rng=rng,
        replicates=replicates,
        level=level,
        clusters=clusters,
        takes="weights",
        method="t",
        bounds=(0.0, 1.0),
    )
    value, symmetric = np.atleast_1d(found.value), found.interval
    basic = interval_from_replicates(
        value, found.replicates, level=level, method="basic", bounds=(0.0, 1.0)
    )
    low, high = np.minimum(symmetric.low, basic.low), np.maximum(symmetric.high, basic.high)
    chance = np.quantile(_calibrated_errors(part, codes, rng, replicates), (1 + level) / 2, axis=0)
    bins = "" if part.metric.bins is None else f", {part.metric.bins.about}"
    method = symmetric.method.removesuffix("-t") + "-basic-or-t"
    return value, np.where(value <= chance, 0.0, low), high, method + bins


def _calibrated_errors(
    part: Measured, codes: np.ndarray, rng: np.random.Generator, replicates: int
) -> np.ndarray:
    """What ECE would show if every confidence were meant; (replicates, models).

    In each bin, hits less confidence then sum to about a normal of variance ``sum c (1 - c)``.
    """
    if part.confidence is None or part.metric.bins is None:
        raise NotApplicable(f"{part.metric.name} has no bins", fix="measure ece")
    count = part.metric.bins.count
    draws = np.abs(rng.standard_normal((replicates, count)))
    columns = zip(codes.T, part.confidence.T, strict=True)
    spread = [np.sqrt(np.bincount(code, c * (1 - c), minlength=count)) for code, c in columns]
    return np.asarray(draws @ np.stack(spread, axis=1) / len(part))


def estimate_or_value(
    part: Measured,
    *,
    rng: np.random.Generator,
    clusters: np.ndarray | None = None,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    exact: bool = False,
) -> Estimates:
    """As :func:`estimate`, and the value alone where a slice is too small for an interval."""
    try:
        return estimate(
            part, rng=rng, clusters=clusters, replicates=replicates, level=level, exact=exact
        )
    except NotApplicable as refused:
        return Estimates(part.estimates(), None, None, None, refused.message)

"""Estimates with intervals: which interval a metric gets, for one part of a measurement.

k of n images: Wilson (or Clopper-Pearson). Everything else is resampled: means and means of class
means by the bootstrap over images, inside classes where classes are averaged, whole clusters at a
time where a cluster column is named; a calibration error by the basic bootstrap of its bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.errors import NotApplicable
from heldout.score.measure import Measured
from heldout.stats import bootstrap_mean, bootstrap_statistic, clopper_pearson, wilson

REPLICATES = 1000
LEVEL = 0.95
EXACT = "clopper-pearson"


@dataclass(frozen=True, eq=False)
class Estimates:
    """The metric of every model, (models,) each; ``low`` and ``high`` are None without an interval."""

    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    method: str | None


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
    if metric.counted and clusters is None:
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
        weights=_importance(part) if classes and clusters is not None else part.weights,
        statistic="mean_of_strata_means" if classes and clusters is None else "mean",
        bounds=(0.0, 1.0) if metric.plain else None,
    )
    return found.value, found.interval.low, found.interval.high, found.interval.method


def _importance(part: Measured) -> np.ndarray:
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

    The basic interval mirrors the replicates at the estimate and so takes that push off again;
    the estimate itself always stays inside.
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
        method="basic",
        bounds=(0.0, 1.0),
    )
    low, high = (
        np.minimum(found.interval.low, found.value),
        np.maximum(found.interval.high, found.value),
    )
    bins = "" if part.metric.bins is None else f", {part.metric.bins.about}"
    return found.value, low, high, f"{found.interval.method}{bins}"


def estimate_or_value(part: Measured, **options: object) -> Estimates:
    """As :func:`estimate`, and the value alone where a slice is too small for an interval."""
    try:
        return estimate(part, **options)  # type: ignore[arg-type]
    except NotApplicable:
        return Estimates(part.estimates(), None, None, None)

"""Score records: estimates with intervals for the whole set, slices and classes, and ranks.

k of n images: Wilson; a mean log loss: limits that know what a wrong answer costs. Everything else is
resampled: means and means of class means by the bootstrap over images, inside classes where classes
are averaged, whole clusters at a time where a cluster column is named. Calibration errors have limits
of the true one, drawn bin by bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.core.records import Count
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import BINS, nll_rows
from heldout.measure.score.records import Score, estimated
from heldout.measure.score.slices import (
    Partition,
    cluster_codes,
    format_slice,
    partitions,
    with_cluster_name,
)
from heldout.stats.bootstrap import bootstrap_mean, design, equal_weights
from heldout.stats.intervals import Interval, t_quantile, wilson
from heldout.stats.log_loss import mean_log_loss
from heldout.stats.multiple import rank_intervals, worst_slice_interval

REPLICATES = 1000
LEVEL = 0.95
MINIMUM_N = 20
"""Slices with fewer images are shown but never called the worst."""


@dataclass(frozen=True)
class IntervalOptions:
    """How intervals are made."""

    seed: int = 0
    replicates: int = REPLICATES
    level: float = LEVEL


@dataclass(frozen=True, eq=False)
class Estimates:
    """The metric of every model, (models,), with its interval or the ``reason`` why it has none."""

    value: np.ndarray
    interval: Interval | None
    reason: str | None = None

    def of_model(self, m: int) -> dict[str, Any]:
        """The estimate of one model, as fields of a record."""
        return estimated(self.value, self.interval, m, reason=self.reason)


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
    options: IntervalOptions,
    purpose: str,
    *,
    clusters: np.ndarray | None = None,
    cluster: str | None = None,
) -> Estimates:
    """The metric of every model on the rows of ``part``, with its interval.

    ``purpose`` names the draws. ``clusters`` (n,) are codes of rows that belong together, by the
    column ``cluster``. Too few images or clusters to estimate a spread give the value alone and a
    reason.
    """
    # In order of name: the last digits of float32 sums depend on a model's place.
    order = sorted(range(len(part.models)), key=part.models.__getitem__)
    named = part.of_models([part.models[m] for m in order])
    rng = generator(options.seed, part, purpose)
    try:
        if part.counted and clusters is None:
            k, n = named.values.sum(axis=0), len(part)
            value, interval = k / n, wilson(k, n, level=options.level)
        elif part.metric.classwise:
            value, interval = _classwise(named, options, clusters)
        elif part.metric.binned:
            value, interval = _calibration(named, options, rng, clusters)
        elif part.metric.values is nll_rows:
            value, interval = mean_log_loss(
                named.values, level=options.level, clusters=clusters, weights=named.weights
            )
        else:
            drawn = sampling_design(named, clusters)
            draws = {"rng": rng, "replicates": options.replicates, "level": options.level}
            found = bootstrap_mean(named.values, **drawn | draws)
            value, interval = found.value, found.interval
    except NotApplicable as refused:
        return Estimates(part.estimates(), None, with_cluster_name(refused.message, cluster))
    back = np.argsort(order)
    limits = Interval(interval.low[back], interval.high[back], interval.method, options.level)
    return Estimates(value[back], limits)


def sampling_design(part: Measured, clusters: np.ndarray | None) -> dict[str, Any]:
    """How the mean over ``part`` is resampled, as options of the bootstrap.

    Weights make the mean over images the mean of class means. Averages over classes are resampled
    inside each class; clusters such as photographers cut across classes, so classes cannot be
    strata for them.
    """
    classes = part.metric.average == "classes"
    return {
        "strata": part.groups if classes and clusters is None else None,
        "clusters": clusters,
        "weights": equal_weights(part.groups) if classes else part.weights,
        "bounds": (0.0, 1.0) if part.metric.plain else None,
    }


def _calibration(
    part: Measured,
    options: IntervalOptions,
    rng: np.random.Generator,
    clusters: np.ndarray | None,
) -> tuple[np.ndarray, Interval]:
    """Calibration errors with limits of the true ones, which are not below 0.

    Noise pushes the plain error up, so it often lies near its high limit, and the interval is
    stretched to it where it lies beyond.
    """
    from heldout.stats.calibration import binned_gaps

    gaps = binned_gaps(part.values, part.bin_codes, BINS, clusters=clusters)
    low, high = gaps.limits(rng, level=options.level, replicates=options.replicates)
    value = np.clip(part.estimates(), 0.0, 1.0)
    name = "plain" if clusters is None else "cluster"
    method = f"{name}-simulated-t, {BINS} bins of equal width"
    return value, Interval(np.minimum(low, value), np.maximum(high, value), method, options.level)


def _classwise(
    part: Measured,
    options: IntervalOptions,
    clusters: np.ndarray | None,
) -> tuple[np.ndarray, Interval]:
    """What sets of as many images have on average, with the noise that is part of it.

    The values of images say how the sum of gaps varies while their signs hold. Absolute values vary
    less where a gap is small against its noise; about half of what is taken off is left where sums
    of gaps do not vary at all.
    """
    n, value = len(part), part.estimates()
    layout = design(n, clusters=clusters)
    sums = layout.unit_sums((part.values - value) / n)
    held = layout.variance(sums)
    folded = np.asarray(part.folded).sum(axis=0) / n**2
    error = np.sqrt(np.maximum(held - folded, folded / 2.0))
    degrees = layout.degrees(sums, layout.unit_sums(np.ones(n)))
    half = t_quantile(options.level, degrees) * error
    low, high = np.maximum(value - half, 0.0), np.minimum(value + half, 2.0 / len(part.space))
    method = f"{layout.name}-t, {BINS} bins of equal width, noise of {n:,} images included"
    return value, Interval(low, np.maximum(high, value), method, options.level)


def part_of(
    measured: Measured, rows: np.ndarray, clusters: np.ndarray | None
) -> tuple[Measured, np.ndarray | None]:
    """Some rows of a measurement, every image once, with the clusters of what is left."""
    part = measured.select(rows)
    once = part.one_row_per_image()
    if clusters is not None:
        clusters = clusters[rows if once is part else rows[part.first_row_of_image]]
    return once, clusters


def scores(
    measured: Measured,
    *,
    by: Sequence[str] = (),
    cluster: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    minimum_n: int = MINIMUM_N,
) -> list[Score]:
    """Score records of every model: the whole set, then each slice of each entry of ``by``.

    ``by`` names columns, conjunctions or binned columns (``domain``, ``x&y``,
    ``frequency@0.2,0.5``; see :mod:`heldout.measure.score.slices`). For each, a further record
    with the statistic ``worst`` gives the worst slice of at least ``minimum_n`` images, its interval
    widened for having looked at all of them. An image counts once in each, even where the truth has
    several rows for it, unless the metric averages over classes. What is too small for its kind of
    interval has none, and so has everything under ``cluster`` where there are too few clusters; the
    records say why. Under a weighted metric, a slice whose images weigh nothing has no record.
    Precision and recall give a record for each class and are not sliced further; nor is a
    classwise calibration error.
    """
    options = IntervalOptions(seed, replicates, level)
    if measured.metric.per_class:
        return class_scores(measured, options, cluster=cluster)
    clusters = None if cluster is None else cluster_codes(measured, cluster)

    def some(name: str, rows: np.ndarray) -> list[Score]:
        part, together = part_of(measured, rows, clusters)
        purpose = f"score {measured.metric.name} {name}"
        found = estimate(part, options, purpose, clusters=together, cluster=cluster)
        return [
            Score(**part.subject(m), slice=name, n=len(part), **found.of_model(m))
            for m in range(len(part.models))
        ]

    records = some("all", np.arange(len(measured)))
    for partition in partitions(measured, () if measured.metric.classwise else by):
        for name, rows in partition.slices().items():
            if measured.has_weight(rows):
                records += some(name, rows)
        if measured.metric.counted and clusters is None:
            records += _worst(measured, partition, level, minimum_n)
    return records


def _worst(measured: Measured, partition: Partition, level: float, minimum_n: int) -> list[Score]:
    """The lowest slice of each model as observed; of slices with equal values the largest, then the first.

    Images of several rows may be right in part: the limits of whole hits then are wider than needed.
    """
    parts = {
        name: measured.select(rows).one_row_per_image() for name, rows in partition.slices().items()
    }
    large = {name: part for name, part in parts.items() if len(part) >= minimum_n}
    if len(large) < 2:
        return []
    n = np.array([len(part) for part in large.values()])
    k = np.stack([part.values.sum(axis=0) for part in large.values()])
    records = []
    for m in range(len(measured.models)):
        worst = worst_slice_interval(k[:, m], n, level=level)
        subject = measured.subject(m) | {"statistic": "worst"}
        subject |= {"slice": list(large)[worst.index], "n": int(n[worst.index])}
        records.append(Score(**subject, **estimated(worst.value, worst.interval)))
    return records


def rank_scores(
    measured: Measured, *, cluster: str | None = None, seed: int = 0, level: float = LEVEL
) -> list[Score]:
    """Ranks (1 is best; equal values by ascending name) with simultaneous intervals, as records.

    ``cluster`` is the column whose images belong together; with too few clusters there are no
    intervals, and the records say why.
    """
    if not measured.metric.counted:
        raise NotApplicable(
            f"ranks are of plain accuracies, not of {measured.metric.name}", fix="rank by top1"
        )
    once = measured.one_row_per_image()
    clusters = None if cluster is None else cluster_codes(once, cluster)
    reason = None
    drawn: dict[str, Any] = {
        "level": level,
        "rng": generator(seed, once, f"rank {once.metric.name}"),
    }
    try:
        ranked = rank_intervals(once.values, once.models, clusters=clusters, **drawn)
    except NotApplicable as refused:
        reason = with_cluster_name(refused.message, cluster)
        ranked = rank_intervals(once.values, once.models, **drawn)
    method = "max-t" if cluster is None else "cluster-max-t"
    interval = Interval(ranked.low, ranked.high, method, level) if reason is None else None
    found = Estimates(ranked.rank, interval, reason)
    return [
        Score(**once.subject(m) | {"statistic": "rank"}, n=len(once), **found.of_model(m))
        for m in range(len(measured.models))
    ]


def counts(measured: Sequence[Measured]) -> list[Count]:
    """What the scores of one test set leave out or cannot know, each number once.

    ``n_left_out`` rows that a metric does not count (``n_left_out_<metric>`` where metrics differ);
    ``n_failed`` images without an output; ``n_unknown`` images whose best class is not among the
    stored ones, so that a miss is not certain (``n_unknown_top<k>`` for more ranks);
    ``n_unreviewed`` top-1 predictions that nobody has judged, reported also when it is none; and
    ``n_accepted``, the number of hits under ``accepted``, as ImageNet-M is reported.
    """
    found: dict[tuple[str, str | None, str], int] = {}
    left = {item.left_out for item in measured}
    for item in measured:
        name = "n_left_out" if len(left) == 1 else f"n_left_out_{item.metric.name}"
        if item.left_out:
            found[name, None, item.testset.name] = item.left_out
    for item in measured:
        metric = item.metric
        unknown = "n_unknown" if metric.ranks == 1 else f"n_unknown_top{metric.ranks}"
        for m, model in enumerate(item.models):
            known = {"n_failed": item.failed[m], unknown: item.unknown[m]}
            known = {name: n for name, n in known.items() if n}
            if metric.reviewed:
                known = {"n_unreviewed": item.unreviewed[m], **known}
            if metric.name == "accepted":
                hits = float(item.one_row_per_image().values[:, m].sum())
                known = {"n_accepted": round(hits), **known}
            for name, value in known.items():
                key = (name, model, item.testset.name)
                found[key] = max(value, found.get(key, 0))
    return [
        Count(name=name, value=value, model=model, testset=where)
        for (name, model, where), value in found.items()
    ]


def class_scores(
    measured: Measured, options: IntervalOptions | None = None, *, cluster: str | None = None
) -> list[Score]:
    """Precision or recall of every model and class, slice ``class=<id>``.

    ``n`` is the number of images of the class (recall), or of images predicted to be of it
    (precision). A class without images has no recall, a class that is never predicted no
    precision: such a record is left out, and :func:`class_counts` says how many there are. Intervals
    are Wilson's; where the column ``cluster`` says which images belong together, those of the
    cluster bootstrap, and a class with images of too few clusters has none.
    """
    options = options or IntervalOptions()
    codes = None if cluster is None else cluster_codes(measured, cluster)
    records = []
    for m, model in enumerate(measured.models):
        part, group, together = _by_class(measured.of_models([model]), codes)
        n = np.bincount(group[group >= 0], minlength=len(measured.space))
        hits = np.bincount(group[group >= 0], part.values[group >= 0, 0], minlength=len(n))
        known = np.flatnonzero(n)
        names = [format_slice({"class": measured.space.ids[c]}) for c in known]
        if together is None:
            found = Estimates(
                hits[known] / n[known], wilson(hits[known], n[known], level=options.level)
            )
            fields = [found.of_model(place) for place in range(len(known))]
        else:
            order = np.argsort(group, kind="stable")
            ends = np.searchsorted(group[order], np.stack([known, known + 1]))
            rows = [order[start:end] for start, end in ends.T]
            fields = [
                estimate(
                    part.select(some),
                    options,
                    f"score {measured.metric.name} {name}",
                    clusters=together[some],
                    cluster=cluster,
                ).of_model(0)
                for some, name in zip(rows, names, strict=True)
            ]
        records += [
            Score(**measured.subject(m), slice=name, n=int(n[c]), **given)
            for c, name, given in zip(known, names, fields, strict=True)
        ]
    return records


def class_counts(measured: Measured) -> list[Count]:
    """How many classes have no record: ``n_classes_without_images`` or ``n_classes_never_guessed``."""
    where = measured.testset.name
    if measured.metric.per_class == "class":
        absent = len(measured.space) - len(np.unique(measured.groups))
        return (
            [Count(name="n_classes_without_images", value=absent, testset=where)] if absent else []
        )
    found = []
    for model in measured.models:
        _, group, _ = _by_class(measured.of_models([model]), None)
        absent = len(measured.space) - len(np.unique(group[group >= 0]))
        if absent:
            found.append(
                Count(name="n_classes_never_guessed", value=absent, model=model, testset=where)
            )
    return found


def _by_class(
    measured: Measured, clusters: np.ndarray | None
) -> tuple[Measured, np.ndarray, np.ndarray | None]:
    """One model's values as shares, the class that each counts for (-1 for none), and its cluster.

    An image of several classes counts in each of them, and once in the class that it is predicted
    to be of: its hit is then the mean over its rows.
    """
    part = replace(measured, metric=replace(measured.metric, per_class=None))
    if measured.metric.per_class == "class":
        return part, measured.groups, clusters
    once = part.one_row_per_image()
    if clusters is not None and once is not part:
        clusters = clusters[part.first_row_of_image]
    return once, np.asarray(once.guesses)[:, 0], clusters

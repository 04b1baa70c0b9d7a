"""From measured values to score records: an estimate, its interval, and the same for every slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.clustering import cluster_codes, naming_clusters
from heldout.measure.score.estimating import (
    LEVEL,
    REPLICATES,
    Estimates,
    estimate,
    estimate_or_value,
    generator,
)
from heldout.measure.score.measuring import Measured
from heldout.measure.score.per_class import class_scores
from heldout.measure.score.records import Count, Score
from heldout.measure.score.slicing import Partition, partitions
from heldout.stats import rank_intervals, worst_slice_interval

__all__ = ["LEVEL", "MINIMUM_N", "REPLICATES", "counts", "generator", "rank_scores", "scores"]

MINIMUM_N = 20
"""Slices with fewer images are shown but never called the worst."""


def scores(
    measured: Measured,
    *,
    by: Sequence[str] = (),
    cluster: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    minimum_n: int = MINIMUM_N,
    exact: bool = False,
) -> list[Score]:
    """Score records of every model: the whole set, then each slice of each entry of ``by``.

    ``by`` names columns, conjunctions or binned columns (``domain``, ``x&y``,
    ``frequency@0.2,0.5``; see :mod:`heldout.measure.score.slicing`). For each, a further record
    ``<metric>_worst`` gives the worst slice of at least ``minimum_n`` images, its interval widened
    for having looked at all of them. An image counts once in each, even where the truth has several
    rows for it, unless the metric averages over classes. A slice too small for its kind of interval
    has none, and so has everything under ``cluster`` where there are too few clusters; the records
    say why. Under a weighted metric, a slice whose images weigh nothing has no record.
    Precision and recall give a record for each class and are not sliced further.
    """
    if measured.metric.per_class:
        return class_scores(measured, level=level, exact=exact)
    clusters = None if cluster is None else cluster_codes(measured, cluster)

    def some(name: str, rows: np.ndarray) -> list[Score]:
        # Without clusters, what cannot be told of the whole set is refused; a slice just lacks it.
        whole = len(rows) == len(measured) and clusters is None
        how = estimate if whole else estimate_or_value
        part = measured.take(rows)
        once = part.by_image()
        together = None
        if clusters is not None:
            together = clusters[rows] if once is part else clusters[rows[part.firsts]]
        found = how(
            once,
            rng=generator(seed, measured, f"score {measured.metric.name} {name}"),
            clusters=together,
            replicates=replicates,
            level=level,
            exact=exact,
        )
        return _records(once, name, found, cluster, level)

    records = some("all", np.arange(len(measured)))
    for partition in partitions(measured, by):
        for name, rows in partition.slices().items():
            if measured.has_weight(rows):
                records += some(name, rows)
        if measured.metric.counted and clusters is None:
            records += _worst(measured, partition, level, minimum_n)
    return records


def _records(
    part: Measured, name: str, found: Estimates, cluster: str | None, level: float
) -> list[Score]:
    return [
        part.record(
            m,
            slice=name,
            n=len(part),
            value=float(found.value[m]),
            low=None if found.low is None else float(found.low[m]),
            high=None if found.high is None else float(found.high[m]),
            interval=found.method,
            level=None if found.method is None else level,
            reason=naming_clusters(found.reason, cluster),
        )
        for m in range(len(part.models))
    ]


def _worst(measured: Measured, partition: Partition, level: float, minimum_n: int) -> list[Score]:
    """The worst slice of each model; of slices with equal values the largest, then the first.

    Images of several rows may be right in part: the limits of whole hits then are wider than needed.
    """
    parts = {name: measured.take(rows).by_image() for name, rows in partition.slices().items()}
    large = {name: part for name, part in parts.items() if len(part) >= minimum_n}
    if len(large) < 2:
        return []
    n = np.array([len(part) for part in large.values()])
    k = np.stack([part.values.sum(axis=0) for part in large.values()])
    records = []
    for m in range(len(measured.models)):
        worst = worst_slice_interval(k[:, m], n, level=level)
        record = measured.record(
            m,
            slice=list(large)[worst.index],
            n=int(n[worst.index]),
            value=worst.value,
            low=worst.slice_interval.low,
            high=worst.slice_interval.high,
            interval=worst.slice_interval.method,
            level=level,
        )
        records.append(replace(record, metric=f"{measured.metric.name}_worst"))
    return records


def rank_scores(
    measured: Measured, *, cluster: str | None = None, level: float = LEVEL
) -> list[Score]:
    """Ranks (1 is best; equal values by ascending name) with simultaneous intervals, as records.

    ``cluster`` is the column whose images belong together; with too few clusters there are no
    intervals, and the records say why.
    """
    if not measured.metric.counted:
        raise NotApplicable(
            f"ranks are of plain accuracies, not of {measured.metric.name}", fix="rank by top1"
        )
    once = measured.by_image()
    clusters = None if cluster is None else cluster_codes(once, cluster)
    reason = None
    try:
        ranked = rank_intervals(once.values, once.models, level=level, clusters=clusters)
    except NotApplicable as refused:
        if clusters is None:
            raise
        reason = naming_clusters(refused.message, cluster)
        ranked = rank_intervals(once.values, once.models, level=level)
    return [
        replace(
            once.record(
                m,
                slice="all",
                n=len(once),
                value=float(ranked.rank[m]),
                low=float(ranked.low[m]) if reason is None else None,
                high=float(ranked.high[m]) if reason is None else None,
                interval=_rank_method(ranked.method, cluster) if reason is None else None,
                level=level if reason is None else None,
                reason=reason,
            ),
            metric=f"{measured.metric.name}_rank",
        )
        for m in range(len(measured.models))
    ]


def _rank_method(method: str, cluster: str | None) -> str:
    return method if cluster is None else f"cluster-{method}"


def counts(measured: Sequence[Measured]) -> list[Count]:
    """What the scores of one test set leave out or cannot know, each number once.

    ``n_left_out`` rows that a metric does not count (``n_left_out_<metric>`` where metrics differ);
    ``n_failed`` images without an output; ``n_unknown`` images whose best class is not among the
    stored ones, so that a miss is not certain (``n_unknown_top<k>`` for more ranks); and
    ``n_unreviewed`` first guesses that nobody has judged, which is told also when it is none; and
    ``n_accepted``, the number of hits under ``accepted``, as ImageNet-M is reported.
    """
    found: dict[tuple[str, str | None, str], int] = {}
    left = {item.left_out for item in measured}
    for item in measured:
        name = "n_left_out" if len(left) == 1 else f"n_left_out_{item.metric.name}"
        if item.left_out:
            found[name, None, item.testset.name] = item.left_out
    for item in measured:
        ranks = item.metric.ranks
        for m, model in enumerate(item.models):
            numbers = {
                "n_unreviewed": item.unreviewed[m] if item.metric.reviewed else -1,
                "n_accepted": round(float(item.by_image().values[:, m].sum()))
                if item.metric.name == "accepted"
                else -1,
                "n_failed": item.failed[m] or -1,
                "n_unknown" if ranks == 1 else f"n_unknown_top{ranks}": item.unknown[m] or -1,
            }
            for name, value in numbers.items():
                if value >= 0:
                    key = (name, model, item.testset.name)
                    found[key] = max(value, found.get(key, 0))
    return [
        Count(name=name, value=value, model=model, testset=where)
        for (name, model, where), value in found.items()
    ]

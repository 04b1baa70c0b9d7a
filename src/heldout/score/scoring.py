"""From measured values to score records: an estimate, its interval, and the same for every slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heldout.errors import NotApplicable
from heldout.score.measure import Measured
from heldout.score.records import Count, Score
from heldout.score.slicing import Partition, partitions
from heldout.stats import bootstrap_mean, clopper_pearson, rank_intervals, wilson, worst_slice_interval

REPLICATES = 1000
LEVEL = 0.95
MINIMUM_N = 20
"""Slices with fewer images are shown but never called the worst."""


def generator(seed: int, measured: Measured, purpose: str) -> np.random.Generator:
    """The generator for one purpose: the same content and seed give the same draws, in any order."""
    words = [int(measured.testset.card.content_hash[i : i + 8], 16) for i in (0, 8)]
    return np.random.default_rng([seed, *words, *purpose.encode()])


def interval_of(
    values: np.ndarray,
    measured: Measured,
    *,
    groups: np.ndarray,
    clusters: np.ndarray | None,
    rng: np.random.Generator,
    replicates: int,
    level: float,
    exact: bool = False,
) -> tuple[np.ndarray, Any]:
    """Estimates (models,) and their Interval for some rows of a measurement."""
    metric = measured.metric
    if metric.plain and metric.average == "images" and clusters is None:
        k, n = values.sum(axis=0), len(values)
        interval = clopper_pearson(k, n, level=level) if exact else wilson(k, n, level=level)
        return k / n, interval
    estimate = bootstrap_mean(
        values,
        rng=rng,
        replicates=replicates,
        level=level,
        strata=groups if metric.average == "classes" else None,
        clusters=clusters,
        statistic="mean_of_strata_means" if metric.average == "classes" else "mean",
        bounds=(0.0, 1.0) if metric.plain else None,
    )
    return np.atleast_1d(estimate.value), estimate.interval


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
    """Score records of every model: the whole set, then each slice of each column of ``by``.

    ``by`` names columns or conjunctions (``domain``, ``x&y``). For each, a further record
    ``<metric>_worst`` gives the worst slice of at least ``minimum_n`` images, its interval widened
    for having looked at all of them.
    """
    clusters = None if cluster is None else _cluster_codes(measured, cluster)
    records = _slice_scores(
        measured, "all", np.arange(len(measured)), clusters, seed, replicates, level, exact
    )
    for partition in partitions(measured.testset, by):
        records += _partition_scores(
            measured, partition, clusters, seed, replicates, level, minimum_n, exact
        )
    return records


def _cluster_codes(measured: Measured, column: str) -> np.ndarray:
    (partition,) = partitions(measured.testset, [column])
    codes = partition.codes_for(measured.rows)
    if codes is None:
        raise NotApplicable(
            f"{column!r} has several values an image, so it cannot say which images belong together",
            fix="cluster by a single-valued column",
        )
    return codes


def _slice_scores(
    measured: Measured,
    name: str,
    rows: np.ndarray,
    clusters: np.ndarray | None,
    seed: int,
    replicates: int,
    level: float,
    exact: bool,
) -> list[Score]:
    values, interval = interval_of(
        measured.values[rows],
        measured,
        groups=measured.groups[rows],
        clusters=None if clusters is None else clusters[rows],
        rng=generator(seed, measured, f"score {measured.metric.name} {name}"),
        replicates=replicates,
        level=level,
        exact=exact,
    )
    low, high = np.atleast_1d(interval.low), np.atleast_1d(interval.high)
    return [
        _record(measured, m, name, len(rows), values[m], low[m], high[m], interval.method, level)
        for m in range(len(measured.models))
    ]


def _partition_scores(
    measured: Measured,
    partition: Partition,
    clusters: np.ndarray | None,
    seed: int,
    replicates: int,
    level: float,
    minimum_n: int,
    exact: bool,
) -> list[Score]:
    records: list[Score] = []
    slices = partition.slices_of(measured.rows)
    for name, rows in slices.items():
        records += _slice_scores(measured, name, rows, clusters, seed, replicates, level, exact)
    large = {name: rows for name, rows in slices.items() if len(rows) >= minimum_n}
    simple = measured.metric.plain and measured.metric.average == "images" and clusters is None
    if simple and len(large) > 1:
        n = np.array([len(rows) for rows in large.values()])
        k = np.stack([measured.values[rows].sum(axis=0) for rows in large.values()])
        for m in range(len(measured.models)):
            worst = worst_slice_interval(k[:, m], n, level=level)
            low, high = worst.slice_interval.low, worst.slice_interval.high
            record = _record(
                measured, m, list(large)[worst.index], int(n[worst.index]), worst.value, low, high,
                worst.slice_interval.method, level,
            )  # fmt: skip
            records.append(replace(record, metric=f"{measured.metric.name}_worst"))
    return records


def _record(
    measured: Measured, m: int, name: str, n: int, value: float, low: float, high: float, method: str, level: float
) -> Score:
    return Score(
        model=measured.models[m],
        testset=measured.testset.name,
        truth=measured.truth,
        metric=measured.metric.name,
        slice=name,
        n=n,
        value=float(value),
        low=float(low),
        high=float(high),
        interval=method,
        level=level,
        label_map=measured.label_map,
        testset_hash=measured.testset.card.content_hash,
        predictions_hash=measured.hashes[m],
    )


def rank_scores(measured: Measured, *, level: float = LEVEL) -> list[Score]:
    """Ranks (1 is best; equal values by ascending name) with simultaneous intervals, as records."""
    ranked = rank_intervals(measured.values, measured.models, level=level)
    return [
        replace(
            _record(
                measured, m, "all", len(measured), ranked.rank[m], ranked.low[m], ranked.high[m],
                ranked.method, level,
            ),
            metric=f"{measured.metric.name}_rank",
        )  # fmt: skip
        for m in range(len(measured.models))
    ]


def counts(measured: Measured) -> list[Count]:
    """How many rows were left out, failed, unknown or never reviewed; the last also when it is none."""
    where = measured.testset.name
    found = []
    if measured.left_out:
        found.append(Count(name="n_left_out", value=measured.left_out, testset=where))
    for m, model in enumerate(measured.models):
        per_model = {"n_failed": measured.failed[m], "n_unknown": measured.unknown[m]}
        if measured.metric.name.startswith("mla"):
            found.append(
                Count(name="n_unreviewed", value=measured.unreviewed[m], model=model, testset=where)
            )
        found += [
            Count(name=name, value=value, model=model, testset=where)
            for name, value in per_model.items()
            if value
        ]
    return found

"""Comparing models on the same images: paired, so that what both get right cancels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heldout.score.measure import Measured
from heldout.score.records import Comparison
from heldout.score.scoring import LEVEL, REPLICATES, generator
from heldout.score.slicing import partitions
from heldout.stats import holm, mcnemar_exact, paired_bootstrap, paired_difference


def compare(
    measured: Measured,
    pairs: Sequence[tuple[str, str]],
    *,
    by: Sequence[str] = (),
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Comparison]:
    """Differences of pairs of models, on the whole set and on slices.

    Plain accuracies: exact McNemar and Tango's interval. Everything else: the paired bootstrap.
    With several comparisons the p values are Holm's, and the name of the test says so.
    """
    found = []
    slices = {"all": np.arange(len(measured))}
    for partition in partitions(measured.testset, by):
        slices |= partition.slices_of(measured.rows)
    for model, other in pairs:
        for name, rows in slices.items():
            found.append(_one(measured, model, other, name, rows, seed, replicates, level))
    return adjusted(found)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with Holm's p values, if there are several."""
    known = [c for c in comparisons if c.p is not None]
    if len(known) < 2:
        return list(comparisons)
    corrected = iter(holm(np.array([c.p for c in known])))
    return [
        c if c.p is None else replace(c, p=float(next(corrected)), test=f"{c.test}, Holm over {len(known)}")
        for c in comparisons
    ]


def _one(
    measured: Measured,
    model: str,
    other: str,
    name: str,
    rows: np.ndarray,
    seed: int,
    replicates: int,
    level: float,
) -> Comparison:
    a, b = measured.column(model)[rows], measured.column(other)[rows]
    metric = measured.metric
    if metric.plain and metric.average == "images":
        only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
        interval = paired_difference(only_a, only_b, len(rows), level=level)
        difference = (only_a - only_b) / len(rows)
        p, test = float(mcnemar_exact(only_a, only_b)), "exact McNemar"
    else:
        result = paired_bootstrap(
            a,
            b,
            rng=generator(seed, measured, f"compare {metric.name} {model} {other} {name}"),
            replicates=replicates,
            level=level,
            strata=measured.groups[rows] if metric.average == "classes" else None,
            statistic="mean_of_strata_means" if metric.average == "classes" else "mean",
        )
        difference, p, test = result.difference, result.p, "paired bootstrap"
        interval = result.interval
    return Comparison(
        model=model,
        other=other,
        testset=measured.testset.name,
        truth=measured.truth,
        metric=metric.name,
        slice=name,
        n=len(rows),
        difference=float(difference),
        low=float(interval.low),
        high=float(interval.high),
        p=p,
        test=test,
    )

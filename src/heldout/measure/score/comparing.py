"""Comparing models on the same images: paired, so that what both get right cancels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.clustering import cluster_codes, naming_clusters
from heldout.measure.score.estimating import LEVEL, REPLICATES, class_weights, generator
from heldout.measure.score.measuring import Measured
from heldout.measure.score.records import Comparison
from heldout.measure.score.slicing import partitions
from heldout.stats import (
    bootstrap_statistic,
    holm,
    mcnemar_exact,
    paired_bootstrap,
    paired_difference,
)


def compare(
    measured: Measured,
    pairs: Sequence[tuple[str, str]],
    *,
    by: Sequence[str] = (),
    whole: bool = True,
    cluster: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Comparison]:
    """Differences of pairs of models, on the ``whole`` set and on slices.

    Plain accuracies: exact McNemar and Tango's interval. Everything else, and everything where a
    column says which images belong together (``cluster``): the paired bootstrap. With several
    comparisons the p values are Holm's, and the name of the test says so. A slice too small for
    the bootstrap, or with too few clusters, has the difference alone, and a reason.
    """
    clusters = None if cluster is None else cluster_codes(measured, cluster)
    found = []
    slices = {"all": np.arange(len(measured))} if whole else {}
    for partition in partitions(measured, by):
        parts = partition.slices().items()
        slices |= {name: rows for name, rows in parts if measured.has_weight(rows)}
    for model, other in pairs:
        both = measured.of_models([model, other])
        for name, rows in slices.items():
            # The draws depend on the slice alone, so that swapping two models turns the sign only.
            rng = generator(seed, measured, f"compare {measured.metric.name} {name}")
            part = both.take(rows)
            once = part.by_image()
            together = None
            if clusters is not None:
                together = clusters[rows] if once is part else clusters[rows[part.firsts]]
            record = _one(once, name, together, rng, replicates, level)
            found.append(replace(record, reason=naming_clusters(record.reason, cluster)))
    return adjusted(found)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with Holm's p values, if there are several."""
    known = [c.p for c in comparisons if c.p is not None]
    if len(known) < 2:
        return list(comparisons)
    corrected = iter(holm(np.array(known)))
    return [
        c
        if c.p is None
        else replace(c, p=float(next(corrected)), test=f"{c.test}, Holm over {len(known)}")
        for c in comparisons
    ]


def _one(
    both: Measured,
    name: str,
    clusters: np.ndarray | None,
    rng: np.random.Generator,
    replicates: int,
    level: float,
) -> Comparison:
    a, b = both.values[:, 0], both.values[:, 1]
    values = both.estimates()
    record = Comparison(
        model=both.models[0],
        other=both.models[1],
        testset=both.testset.name,
        truth=both.truth,
        metric=both.metric.name,
        slice=name,
        n=len(both),
        difference=float(values[0] - values[1]),
    )
    if both.counted and clusters is None:
        only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
        limits = paired_difference(only_a, only_b, len(both), level=level)
        return replace(
            record,
            difference=(only_a - only_b) / len(both),
            low=float(limits.low),
            high=float(limits.high),
            p=float(mcnemar_exact(only_a, only_b)),
            test="exact McNemar",
        )
    try:
        if both.metric.bins is not None:
            return _calibration(record, both, clusters, rng, replicates, level)
        classes = both.metric.average == "classes"
        result = paired_bootstrap(
            a,
            b,
            rng=rng,
            replicates=replicates,
            level=level,
            strata=both.groups if classes and clusters is None else None,
            clusters=clusters,
            weights=class_weights(both) if classes and clusters is not None else both.weights,
            statistic="mean_of_strata_means" if classes and clusters is None else "mean",
            bounds=(0.0, 1.0) if both.metric.plain else None,
        )
    except NotApplicable as refused:
        if name == "all" and clusters is None:
            raise
        return replace(record, reason=refused.message)  # such as one image, or three clusters
    limits = result.interval
    return replace(
        record, low=float(limits.low), high=float(limits.high), p=result.p, test=_test(clusters)
    )


def _test(clusters: np.ndarray | None) -> str:
    return "paired bootstrap" if clusters is None else "paired cluster bootstrap"


def _calibration(
    record: Comparison,
    both: Measured,
    clusters: np.ndarray | None,
    rng: np.random.Generator,
    replicates: int,
    level: float,
) -> Comparison:
    """The difference of two calibration errors, ± t times its bootstrap standard error."""
    from scipy.special import stdtr

    codes = both.bin_codes()

    def difference(weights: np.ndarray) -> float:
        first, second = both.calibration_errors(weights, codes)
        return float(first - second)

    found = bootstrap_statistic(
        difference,
        len(both),
        rng=rng,
        replicates=replicates,
        level=level,
        clusters=clusters,
        takes="weights",
        method="t",
    )
    error = float(found.standard_error)
    certain = 1.0 if found.value == 0 else 0.0
    p = (
        float(2 * stdtr(found.degrees_of_freedom, -abs(found.value) / error))
        if error > 0
        else certain
    )
    return replace(
        record,
        low=float(found.interval.low),
        high=float(found.interval.high),
        p=p,
        test=_test(clusters),
    )

"""Two models on the same images: paired differences. Pairing cancels what both get right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.estimate import (
    LEVEL,
    REPLICATES,
    IntervalOptions,
    generator,
    part_of,
    sampling_design,
)
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Comparison
from heldout.measure.score.slices import cluster_codes, partitions, with_cluster_name
from heldout.stats.bootstrap import bootstrap_statistic
from heldout.stats.multiple import holm
from heldout.stats.paired import (
    mcnemar_exact,
    no_difference,
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
    options = IntervalOptions(seed, replicates, level)
    clusters = None if cluster is None else cluster_codes(measured, cluster)
    slices = {"all": np.arange(len(measured))} if whole else {}
    for partition in partitions(measured, by):
        parts = partition.slices().items()
        slices |= {name: rows for name, rows in parts if measured.has_weight(rows)}
    found = []
    for model, other in pairs:
        both = measured.of_models([model, other])
        for name, rows in slices.items():
            part, together = part_of(both, rows, clusters)
            values = part.estimates()
            record = Comparison(
                model=model,
                other=other,
                testset=part.testset.name,
                truth=part.truth,
                metric=part.metric.name,
                slice=name,
                n=len(part),
                difference=float(values[0] - values[1]),
            )
            try:
                fields = _test(part, together, options, name)
            except NotApplicable as refused:  # such as one image, or three clusters
                fields = {"reason": with_cluster_name(refused.message, cluster)}
            found.append(replace(record, **fields))
    return adjusted(found)


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with Holm's p values, if there are several."""
    found = list(comparisons)
    known = {place: c.p for place, c in enumerate(found) if c.p is not None}
    if len(known) > 1:
        for place, p in zip(known, holm(list(known.values())), strict=True):
            test = f"{found[place].test}, Holm over {len(known)}"
            found[place] = replace(found[place], p=float(p), test=test)
    return found


def _test(
    both: Measured, clusters: np.ndarray | None, options: IntervalOptions, name: str
) -> dict[str, Any]:
    """Limits, p and test of the difference of two models, as fields of a record."""
    a, b = both.values.T
    if both.counted and clusters is None:
        only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
        limits = paired_difference(only_a, only_b, len(both), level=options.level)
        p, test = mcnemar_exact(only_a, only_b), "exact McNemar"
        difference = {"difference": (only_a - only_b) / len(both)}
        return difference | {"low": limits.low, "high": limits.high, "p": p, "test": test}
    # The draws depend on the slice alone, so that swapping two models turns the sign only.
    rng = generator(options.seed, both, f"compare {both.metric.name} {name}")
    draws: dict[str, Any] = {"rng": rng, "replicates": options.replicates, "level": options.level}
    if not both.metric.binned:
        found = paired_bootstrap(a, b, **draws, **sampling_design(both, clusters))
        limits, p = found.interval, found.p
    else:
        # The difference of two calibration errors, ± t times its bootstrap standard error.
        gap = bootstrap_statistic(
            lambda weights: -float(np.diff(both.calibration_errors(weights))[0]),
            len(both),
            **draws,
            clusters=clusters,
            takes="weights",
            method="t",
        )
        limits, p = gap.interval, no_difference(gap)
    test = "paired bootstrap" if clusters is None else "paired cluster bootstrap"
    return {"low": float(limits.low), "high": float(limits.high), "p": p, "test": test}

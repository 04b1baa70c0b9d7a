"""Two models on the same images: paired differences. Pairing cancels what both get right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
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
from heldout.stats.intervals import normal_quantile
from heldout.stats.multiple import holm
from heldout.stats.paired import (
    mcnemar_exact,
    no_difference,
    paired_bootstrap,
    paired_difference,
)

_DUST = 1e-6  # a standard error below this is rounding: the formula gives none


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


@dataclass(frozen=True, eq=False)
class ErrorConsistency:
    """Agreement of every pair of models on right and wrong; (models, models) each, symmetric.

    ``observed``  share of images on which both are right or both wrong
    ``expected``  what two independent models of these accuracies would share:
                  ``a b + (1 - a) (1 - b)``
    ``kappa``     ``(observed - expected) / (1 - expected)``: 1 same errors, 0 independent ones,
                  below 0 avoiding each other's; NaN where both models are always right, or both
                  always wrong
    ``error``     standard error of kappa (Fleiss, Cohen, Everitt 1969)
    """

    models: tuple[str, ...]
    n: int
    observed: np.ndarray
    expected: np.ndarray
    kappa: np.ndarray
    error: np.ndarray


def error_consistency(measured: Measured) -> ErrorConsistency:
    """Error consistency of all pairs of models, from one matrix product over images.

    An image with several rows in the truth counts once, shared evenly among them.
    """
    metric = measured.metric
    if not metric.plain or metric.weighted or metric.per_class:
        raise NotApplicable(f"{metric.name} has no hits and misses", fix="measure top1")
    n = len(measured.first_row_of_image)
    _, image, rows = np.unique(measured.rows, return_inverse=True, return_counts=True)
    hits = measured.values.astype(np.float64)
    # Rounded: three thirds of an image are one.
    both = (hits.T @ (hits / rows[image, None])).round(9)
    right = np.diag(both)
    only = right[:, None] - both
    neither = n - right[:, None] - only.T
    observed = (both + neither) / n
    a, b = right[:, None] / n, right[None, :] / n
    expected = a * b + (1 - a) * (1 - b)
    everyone = right[:, None] + right[None, :]
    defined = (everyone > 0) & (everyone < 2 * n)
    room = np.where(defined, 1 - expected, 1.0)
    kappa = np.where(defined, (observed - expected) / room, np.nan)
    # Large-sample error of kappa: Fleiss, Cohen, Everitt (1969), equation 13.
    diagonal = both / n * (room - (a + b) * (1 - observed)) ** 2
    diagonal += neither / n * (room - (2 - a - b) * (1 - observed)) ** 2
    # Off the diagonal the margins cross: the share that the other model puts on this answer.
    crossed = only / n * (b + 1 - a) ** 2 + only.T / n * (a + 1 - b) ** 2
    last = (observed * expected - 2 * expected + observed) ** 2
    variance = (diagonal + (1 - observed) ** 2 * crossed - last) / room**4
    error = np.where(defined, np.sqrt(np.maximum(variance, 0.0)) / np.sqrt(n), np.nan)
    return ErrorConsistency(measured.models, n, observed, expected, kappa, error)


def consistency_records(
    measured: Measured, pairs: Sequence[tuple[str, str]] | None = None, *, level: float = LEVEL
) -> list[Comparison]:
    """Error consistency as comparison records, metric ``error_consistency``: of all pairs by default.

    ``difference`` holds kappa, which is symmetric; its interval is kappa ± z times its standard
    error, held inside -1 and 1. There is no p. Where the formula gives no spread (the same errors,
    or a model without any) there is no interval. Pairs without kappa are left out.
    """
    found = error_consistency(measured)
    z = normal_quantile(level)
    records = []
    for model, other in pairs if pairs is not None else combinations(found.models, 2):
        at = measured.position(model), measured.position(other)
        kappa, half = float(found.kappa[at]), z * float(found.error[at])
        if np.isnan(kappa):
            continue
        records.append(
            Comparison(
                model=model,
                other=other,
                testset=measured.testset.name,
                truth=measured.truth,
                metric="error_consistency",
                n=found.n,
                difference=kappa,
                low=max(-1.0, kappa - half) if half > _DUST else None,
                high=min(1.0, kappa + half) if half > _DUST else None,
                test=f"kappa of {measured.metric.name}: observed agreement "
                f"{found.observed[at]:.4f}, expected {found.expected[at]:.4f}",
            )
        )
    return records

"""Two models on the same images: paired differences, and whether they fail on the same images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.estimate import LEVEL, REPLICATES, class_weights, generator
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Comparison
from heldout.measure.score.slices import cluster_codes, partitions, with_cluster_name
from heldout.stats.bootstrap import bootstrap_statistic
from heldout.stats.intervals import normal_quantile
from heldout.stats.multiple import holm
from heldout.stats.paired import mcnemar_exact, paired_bootstrap, paired_difference


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
            part = both.select(rows)
            once = part.one_row_per_image()
            together = None
            if clusters is not None:
                together = (
                    clusters[rows] if once is part else clusters[rows[part.first_row_of_image]]
                )
            record = _one(once, name, together, rng, replicates, level)
            found.append(replace(record, reason=with_cluster_name(record.reason, cluster)))
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


_DUST = 1e-6  # a standard error below this is rounding: the formula gives none
_ROWS = 1 << 20  # float32 counts are exact up to 2^24; a block of rows stays below that


@dataclass(frozen=True, eq=False)
class ErrorConsistency:
    """Agreement of every pair of models on right and wrong; (models, models) each, symmetric.

    ``observed``  share of images on which both are right or both wrong
    ``expected``  what two independent models of these accuracies would share:
                  ``a b + (1 - a) (1 - b)``
    ``kappa``     ``(observed - expected) / (1 - expected)``: 1 same errors, 0 independent ones,
                  below 0 avoiding each other's. NaN where ``defined`` is not.
    ``error``     standard error of kappa (Fleiss, Cohen, Everitt 1969)
    ``defined``   False where both models are always right, or both always wrong
    """

    models: tuple[str, ...]
    n: int
    observed: np.ndarray
    expected: np.ndarray
    kappa: np.ndarray
    error: np.ndarray
    defined: np.ndarray


def error_consistency(measured: Measured) -> ErrorConsistency:
    """Error consistency of all pairs of models, from one matrix product over images.

    An image with several rows in the truth counts once, shared evenly among them.
    """
    metric = measured.metric
    if not metric.plain or metric.weighted or metric.per_class:
        raise NotApplicable(f"{metric.name} has no hits and misses", fix="measure top1")
    n = len(measured.first_row_of_image)
    both = _both_right(measured)
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
    cells = np.stack([both, only, only.T, neither]) / n
    error = np.where(
        defined, _kappa_error(cells, a, b, observed, expected, room) / np.sqrt(n), np.nan
    )
    return ErrorConsistency(measured.models, n, observed, expected, kappa, error, defined)


def _both_right(measured: Measured) -> np.ndarray:
    """On how many images both models of each pair are right; float64 (models, models)."""
    rows, models = measured.values.shape
    share = None
    if len(measured.first_row_of_image) < rows:
        _, image, counts = np.unique(measured.rows, return_inverse=True, return_counts=True)
        share = 1.0 / counts[image]
    both = np.zeros((models, models))
    for first in range(0, rows, _ROWS):
        block = measured.values[first : first + _ROWS]
        if share is None:
            whole = block.astype(np.float32)
            both += whole.T @ whole
        else:
            hits = block.astype(np.float64)
            both += hits.T @ (hits * share[first : first + _ROWS, None])
    return both if share is None else both.round(9)  # three thirds are one


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
    place = {model: m for m, model in enumerate(found.models)}
    records = []
    for model, other in pairs if pairs is not None else combinations(found.models, 2):
        for name in (model, other):
            if name not in place:
                raise UserError(
                    f"no model {name!r} among the measured", fix=f"there is {', '.join(place)}"
                )
        i, j = place[model], place[other]
        if not found.defined[i, j]:
            continue
        kappa, half = float(found.kappa[i, j]), z * float(found.error[i, j])
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
                test=f"kappa of {measured.metric.name}: observed agreement {found.observed[i, j]:.4f}, "
                f"expected {found.expected[i, j]:.4f}",
            )
        )
    return records


def _kappa_error(
    cells: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    observed: np.ndarray,
    expected: np.ndarray,
    room: np.ndarray,
) -> np.ndarray:
    """Large-sample standard error of kappa for n = 1: Fleiss, Cohen, Everitt (1969), equation 13.

    ``cells``  (4, models, models): both right, only the row's model, only the column's, neither
    """
    both, only_row, only_column, neither = cells
    diagonal = both * (room - (a + b) * (1 - observed)) ** 2
    diagonal += neither * (room - (2 - a - b) * (1 - observed)) ** 2
    # Off the diagonal the margins cross: the share that the other model puts on this answer.
    crossed = only_row * (b + 1 - a) ** 2 + only_column * (a + 1 - b) ** 2
    last = (observed * expected - 2 * expected + observed) ** 2
    variance = (diagonal + (1 - observed) ** 2 * crossed - last) / room**4
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

"""Two models on the same images: paired differences. Pairing cancels what both get right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from heldout.measure.score.metrics import BINS
from heldout.measure.score.records import Comparison
from heldout.measure.score.slices import (
    ALL,
    cluster_codes,
    partitions,
    with_cluster_name,
)
from heldout.stats.bootstrap import design
from heldout.stats.intervals import t_quantile
from heldout.stats.multiple import PairTests, SmallestP, joint_p, pair_tests, shared_tail

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Pairs of models on one slice, not yet corrected for what else is compared.

    ``records``  difference, n and reason of each pair
    ``places``   where each pair is in ``tests``, the tests of all pairs of models
    ``chance``   how small the smallest p of this slice is by chance
    """

    records: tuple[Comparison, ...]
    places: tuple[tuple[int, int], ...] = ()
    tests: PairTests | None = None
    chance: SmallestP | None = None
    test: str = ""


def contrasts(
    measured: Measured,
    pairs: Pairs,
    *,
    of_all: bool = False,
    by: Sequence[str] = (),
    whole: bool = True,
    cluster: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Iterator[Contrasts]:
    """Pairs of models on the ``whole`` set and on slices, for :func:`simultaneous`.

    ``of_all`` says that the pairs were chosen by their results, such as the best as observed and each
    other model: they are then corrected for all pairs of the measured models.
    """
    if measured.metric.per_class:
        measured.estimates()  # refuses what is not one number
    options = IntervalOptions(seed, replicates, level)
    clusters = None if cluster is None else cluster_codes(measured, cluster)
    slices = {ALL: np.arange(len(measured))} if whole else {}
    for partition in partitions(measured, () if measured.metric.classwise else by):
        parts = partition.slices().items()
        slices |= {name: rows for name, rows in parts if measured.has_weight(rows)}
    # In order of name: what is drawn must not depend on a model's place.
    named = {name for pair in pairs for name in pair}
    some = measured.of_models(sorted(measured.models if of_all else named))
    places = tuple((some.position(model), some.position(other)) for model, other in pairs)
    asked = np.full((len(some.models),) * 2, of_all)
    for place in places:
        asked[place] = True
    for name, rows in slices.items():
        part, together = part_of(some, rows, clusters)
        tests, test, reason = None, "", None
        try:
            tests, test = _tests(part, together, options, name)
            difference = tests.difference
        except NotApplicable as refused:  # such as one image, or three clusters
            reason = with_cluster_name(refused.message, cluster)
            debiased = part.metric.binned and not part.metric.classwise
            metric = replace(part.metric, debiased=debiased)
            values = replace(part, metric=metric).estimates()
            difference = values[:, None] - values
        records = tuple(
            Comparison(
                model=pair[0],
                other=pair[1],
                testset=part.testset.name,
                truth=part.truth,
                metric=part.metric.name,
                slice=name,
                n=len(part),
                difference=float(difference[place]),
                reason=reason,
            )
            for pair, place in zip(pairs, places, strict=True)
        )
        if tests is None:
            yield Contrasts(records)
        else:
            yield Contrasts(records, places, tests, tests.smallest_p(asked), test)


def simultaneous(found: Sequence[Contrasts], *, level: float = LEVEL) -> list[Comparison]:
    """All that is asked at once, as records: p values and intervals that hold together.

    Whole sets, and slices of them, have half of ``1 - level`` each where there are both, so that
    many slices take little from the leading comparison. Within each, p is corrected by the law of the
    smallest p (max-t), and the intervals are those of the largest p that is still significant:
    an interval leaves out 0 where p is at most ``1 - level``. The name of the test says how many
    comparisons are corrected together.
    """
    kinds = [
        [part for part in found if part.tests and (part.records[0].slice == ALL) == whole]
        for whole in (True, False)
    ]
    shares = sum(map(bool, kinds))
    laws = [[part.chance for part in kind if part.chance] for kind in kinds]
    count = sum(law.count for kind in laws for law in kind)
    tails = [shared_tail(law, 1 - (1 - level) / shares) if law else 0.0 for law in laws]
    records: list[Comparison] = []
    for part in found:
        if part.tests is None:
            records += part.records
            continue
        kind = int(part.records[0].slice != ALL)
        p = np.minimum(shares * joint_p(part.tests.p, laws[kind]), 1.0)
        low, high = part.tests.limits(tails[kind])
        test = part.test if count == 1 else f"{part.test}, simultaneous over {count:,}"
        records += [
            replace(
                record,
                low=float(low[place]) if np.isfinite(low[place]) else None,
                high=float(high[place]) if np.isfinite(high[place]) else None,
                p=float(p[place]),
                test=test,
            )
            for record, place in zip(part.records, part.places, strict=True)
        ]
    return records


def compare(
    measured: Measured, pairs: Pairs, *, level: float = LEVEL, **options: Any
) -> list[Comparison]:
    """Differences of pairs of models, on the whole set and on slices, corrected together.

    Plain accuracies: McNemar's test (of two models its mid-p) and Tango's interval. Calibration
    errors: both debiased.
    Everything else, and everything where a column says which images belong together (``cluster``):
    the score test of paired differences. A slice too small for it, or with too few clusters, has
    the difference alone, and a reason. Options are those of :func:`contrasts`.
    """
    return simultaneous(list(contrasts(measured, pairs, level=level, **options)), level=level)


def _tests(
    part: Measured, clusters: np.ndarray | None, options: IntervalOptions, name: str
) -> tuple[PairTests, str]:
    """Tests of all pairs of the models of a slice, and what they are called."""
    # The draws depend on the slice alone, so that swapping two models turns the sign only.
    rng = generator(options.seed, part, f"compare {part.metric.name} {name}")
    kind = "paired score" if clusters is None else "paired cluster score"
    if part.metric.classwise:
        raise NotApplicable(
            "classwise calibration errors have no test: noise adds more to those of one model than "
            "of another",
            fix="compare ece",
        )
    if part.metric.binned:
        from heldout.stats.calibration import binned_gaps

        gaps = binned_gaps(part.values, part.bin_codes, BINS, clusters=clusters)
        return gaps.errors(rng, options.replicates).pairs(), f"{kind}, debiased"
    tests = pair_tests(part.values, rng=rng, **sampling_design(part, clusters))
    if part.counted and clusters is None:
        kind = "McNemar mid-p" if len(part.models) == 2 else "McNemar score"
    return tests, kind


@dataclass(frozen=True, eq=False)
class ErrorConsistency:
    """Agreement of every pair of models on right and wrong; (models, models) each, symmetric.

    ``observed``  share of images on which both are right or both wrong
    ``expected``  what two independent models of these accuracies would share:
                  ``a b + (1 - a) (1 - b)``
    ``kappa``     ``(observed - expected) / (1 - expected)``: 1 same errors, 0 independent ones,
                  below 0 avoiding each other's; NaN where both models are always right, or both
                  always wrong
    ``low``, ``high``  its limits (:func:`heldout.stats.agreement.kappa_limits`); NaN without kappa,
                  and where ``reason`` says why there are none
    """

    models: tuple[str, ...]
    n: int
    observed: np.ndarray
    expected: np.ndarray
    kappa: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reason: str | None = None


def error_consistency(
    measured: Measured, *, cluster: str | None = None, level: float = LEVEL
) -> ErrorConsistency:
    """Error consistency of all pairs of models, from one matrix product over images.

    An image with several rows in the truth counts once, shared evenly among them. ``cluster`` is the
    column whose images belong together: the limits then rest on as many images as would give the
    spread between clusters.
    """
    metric = measured.metric
    if not metric.plain or metric.weighted or metric.per_class:
        raise NotApplicable(f"{metric.name} has no hits and misses", fix="measure top1")
    _, image, rows = np.unique(measured.rows, return_inverse=True, return_counts=True)
    codes = None if cluster is None else cluster_codes(measured, cluster)
    found = kappa_of(measured.values, codes, part=1.0 / rows[image], level=level)
    reason = with_cluster_name(found.reason, cluster)
    return replace(found, models=measured.models, reason=reason)


def kappa_of(
    hits: np.ndarray,
    clusters: np.ndarray | None = None,
    *,
    part: np.ndarray | None = None,
    level: float = LEVEL,
) -> ErrorConsistency:
    """The same from ``hits`` (rows, models), of which each is the ``part`` (rows,) of an image."""
    hits = hits.astype(np.float64)
    part = np.ones(len(hits)) if part is None else part
    n = round(float(part.sum()))
    # Rounded: three thirds of an image are one.
    both = (hits.T @ (hits * part[:, None])).round(9)
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
    known, reason = np.where(defined, kappa, 0.0), None
    images, degrees = np.full(kappa.shape, float(n)), None
    if clusters is not None:
        try:
            images, degrees = _clustered(hits, part, known, n, clusters)
        except NotApplicable as refused:
            reason = refused.message
    quantile = t_quantile(level, degrees)
    from heldout.stats.agreement import kappa_limits

    low, high = kappa_limits(known, right[:, None], right[None, :], n, quantile, images=images)
    known = defined & (reason is None)
    low, high = (np.where(known, limit, np.nan) for limit in (low, high))
    return ErrorConsistency((), n, observed, expected, kappa, low, high, reason)


def _clustered(
    hits: np.ndarray, part: np.ndarray, kappa: np.ndarray, n: int, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How many single images would give each kappa's spread, and its degrees of freedom.

    Kappa is linearised: a cluster pulls it by what its images add to disagreement and to both
    accuracies. Images of a cluster are taken to be at least as alike as single ones: that they look
    less so is chance. Where nearly all answers are right a few clusters pull most, and the sum of
    their squares is known less well: its degrees are those of a chi-square with its relative
    variance, from the fourth powers.
    """
    from heldout.stats.agreement import kappa_variance

    layout = design(len(hits), clusters=clusters)
    sums, sizes = layout.unit_sums(hits * part[:, None]), layout.unit_sums(part)
    mean, units = sums.sum(axis=0) / n, layout.units
    images, degrees = np.empty_like(kappa), np.empty_like(kappa)
    for m, a in enumerate(mean):
        chance = np.maximum(a * (1 - mean) + mean * (1 - a), 1e-12)
        differ = (1 - kappa[m]) * chance
        both = layout.unit_sums(hits * (hits[:, m] * part)[:, None])
        more = sums[:, m : m + 1] + sums - 2 * both - sizes[:, None] * differ
        margins = (sums[:, m] - a * sizes)[:, None] * (1 - 2 * mean)
        margins += (sums - mean * sizes[:, None]) * (1 - 2 * a)
        pull = (margins * differ / chance - more) / chance
        squares = np.square(pull)
        spread = squares.sum(axis=0)
        alone = n * kappa_variance(kappa[m], a, mean)
        # Where nothing varies between clusters, each is taken for one image.
        varies = spread > 1e-9 * n
        effect = spread * units / (units - 1) / np.maximum(alone, 1e-9)
        images[m] = np.where(varies, n / np.maximum(effect, 1.0), units)
        fourth = np.square(squares).sum(axis=0) / np.square(np.where(varies, spread, 1.0))
        free = 2.0 / np.maximum(fourth - 1.0 / units, 1e-9)
        degrees[m] = np.minimum(free, units - 1.0)
    return images, degrees


def consistency_records(
    measured: Measured,
    pairs: Pairs | None = None,
    *,
    cluster: str | None = None,
    level: float = LEVEL,
) -> list[Comparison]:
    """Error consistency as comparison records, metric ``error_consistency``: of all pairs by default.

    ``difference`` holds kappa, which is symmetric. There is no p. Pairs without kappa are left out.
    """
    found = error_consistency(measured, cluster=cluster, level=level)
    records = []
    for model, other in pairs if pairs is not None else combinations(found.models, 2):
        at = measured.position(model), measured.position(other)
        if np.isnan(found.kappa[at]):
            continue
        records.append(
            Comparison(
                model=model,
                other=other,
                testset=measured.testset.name,
                truth=measured.truth,
                metric="error_consistency",
                n=found.n,
                difference=float(found.kappa[at]),
                low=None if found.reason else float(found.low[at]),
                high=None if found.reason else float(found.high[at]),
                reason=found.reason,
                test=f"kappa of {measured.metric.name}: observed agreement "
                f"{found.observed[at]:.4f}, expected {found.expected[at]:.4f}",
            )
        )
    return records

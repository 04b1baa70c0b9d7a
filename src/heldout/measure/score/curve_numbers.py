"""The numbers that sum a curve up: means two ways, area, critical value, extremes, flips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.cell_numbers import interaction, symmetry
from heldout.measure.score.clustering import naming_clusters
from heldout.measure.score.crossing import SHARE, first_crossing
from heldout.measure.score.curves import Curve
from heldout.measure.score.estimating import estimate_or_value, generator
from heldout.measure.score.flips import flips
from heldout.measure.score.records import Summary
from heldout.measure.score.summary_records import (
    How,
    contrast,
    few_clusters,
    method_name,
    no_interval,
    place_text,
    summary,
)
from heldout.measure.score.support import Support
from heldout.stats import MINIMUM_CLUSTERS, bootstrap_mean, interval_from_error, joint_quantile


def summaries(curve: Curve, support: Support | None, how: How) -> list[Summary]:
    """Every summary that the shape of a curve has, model by model within each."""
    found = [*_means(curve, how)]
    if curve.shape in ("curve", "circle") and curve.numbers is not None:
        found += _area(curve, how)
    if curve.shape == "curve" and curve.numbers is not None:
        found += _critical(curve, how)
    found += _extremes(curve, how)
    if curve.shape == "grid":
        found += symmetry(curve, how)
    if curve.shape == "table":
        found += interaction(curve, how)
    if support is not None and len(curve.steps):
        found += _flip_rate(curve, support, how)
    return found


def area_weights(curve: Curve) -> np.ndarray:
    """Weights (values,) whose sum with the curve is its mean height between its ends.

    Trapezoids between neighbouring values; on a circle also from the last to the first, one turn
    later.
    """
    numbers = curve.numbers
    if numbers is None:
        raise NotApplicable(f"{curve.entry} has no distances between its values")
    if curve.shape == "circle":
        period = float(curve.types[0].period or 0.0)
        steps = np.diff(np.append(numbers, numbers[0] + period))
        weights = (steps + np.roll(steps, 1)) / 2
    else:
        steps = np.diff(numbers)
        weights = (np.append(steps, 0.0) + np.insert(steps, 0, 0.0)) / 2
    return np.asarray(weights / weights.sum())


def _means(curve: Curve, how: How) -> Iterator[Summary]:
    """Over images, and over values: the second counts every value once, however many it has."""
    purpose = f"mean {curve.measured.metric.name} {curve.entry} {curve.support}"
    found = estimate_or_value(
        curve.measured,
        rng=generator(how.seed, curve.measured, purpose),
        clusters=curve.clusters,
        replicates=how.replicates,
        level=how.level,
    )
    for m in range(len(curve.measured.models)):
        yield replace(
            summary(curve, m, "image_mean", float(found.value[m])),
            low=None if found.low is None else float(found.low[m]),
            high=None if found.high is None else float(found.high[m]),
            interval=found.method,
            level=None if found.method is None else how.level,
            reason=naming_clusters(found.reason, curve.cluster),
        )
    yield from contrast(curve, "group_mean", np.full(len(curve), 1.0 / len(curve)), how)


def _area(curve: Curve, how: How) -> Iterator[Summary]:
    yield from contrast(curve, "area", area_weights(curve), how)


def _critical(curve: Curve, how: How) -> Iterator[Summary]:
    """Where the curve first reaches half of its maximum, and where it last has it."""
    numbers, means = curve.numbers, curve.means
    if numbers is None:
        return
    back = replace(
        means,
        value=means.value[::-1],
        n=means.n[::-1],
        clusters=means.clusters[::-1],
        covariance=means.covariance[:, ::-1, ::-1],
        shares=None if means.shares is None else means.shares[:, ::-1],
    )
    reason = no_interval(curve)
    for m in range(len(curve.measured.models)):
        rising = first_crossing(numbers, means, m, level=how.level)
        falling = first_crossing(numbers[::-1], back, m, level=how.level)
        if rising is None or falling is None:
            yield summary(curve, m, "critical_value", None, reason="nothing is right at any value")
            continue
        for name, found, end in (
            ("critical_value", rising, "first"),
            ("breaking_value", falling, "last"),
        ):
            record = summary(curve, m, name, found.value)
            if not found.inside:
                said = f"already above {SHARE:.0%} of its maximum at the {end} value"
                if name == "critical_value":
                    yield replace(record, reason=said)
            elif reason is not None:
                yield replace(record, reason=naming_clusters(reason, curve.cluster))
            elif not found.varies:
                yield replace(record, reason="nothing varies beside it, which hides the spread")
            else:
                yield replace(
                    record,
                    low=found.low,
                    high=found.high,
                    interval=method_name(curve, "inverted-t"),
                    level=how.level,
                )


def _extremes(curve: Curve, how: How) -> Iterator[Summary]:
    """The lowest and the highest value, with limits that hold for all values together."""
    means = curve.means
    needed = MINIMUM_CLUSTERS if curve.clusters is not None else 2
    kept = np.flatnonzero(means.clusters >= needed)
    purpose = f"extremes {curve.measured.metric.name} {curve.entry} {curve.support}"
    order = sorted(range(len(curve.measured.models)), key=lambda m: curve.measured.models[m])
    rng = generator(how.seed, curve.measured, purpose)
    found: dict[int, list[Summary]] = {}
    for m in order:  # by name: what is drawn for a model must not depend on where it stands
        values = means.value[kept if len(kept) else slice(None), m]
        places = kept if len(kept) else np.arange(len(curve))
        if len(kept) > 1:
            one = np.eye(len(curve))[kept[int(values.argmin())]]
            degrees = float(means.contrast(one).degrees[m])
            covariance = means.covariance[m][np.ix_(kept, kept)]
            quantile = joint_quantile(covariance, degrees, rng=rng, level=how.level)
        for name, place in (("worst_value", values.argmin()), ("best_value", values.argmax())):
            at = int(places[int(place)])
            record = replace(
                summary(curve, m, name, float(means.value[at, m])),
                at=place_text(curve, at),
                n=int(means.n[at]),
            )
            if len(kept) < 2:
                few = few_clusters(curve, int(means.clusters.max()), needed)
                record = replace(record, reason=naming_clusters(few, curve.cluster))
            else:
                limits = interval_from_error(
                    float(means.value[at, m]),
                    float(means.error[at, m]),
                    quantile=quantile,
                    level=how.level,
                    bounds=(0.0, 1.0),
                    units=float(means.clusters[at]),
                    tail=(1.0 - how.level) / 2.0 / len(kept),
                )
                record = replace(
                    record,
                    low=limits.low,
                    high=limits.high,
                    interval=method_name(curve, "wilson, all values together"),
                    level=how.level,
                )
            found.setdefault(m, []).append(record)
    for m in sorted(found):
        yield from found[m]


def _flip_rate(curve: Curve, support: Support, how: How) -> Iterator[Summary]:
    models = range(len(curve.measured.models))
    try:
        steps = flips(curve, support.units)
    except NotApplicable as refused:
        for m in models:
            yield summary(curve, m, "flip_rate", None, reason=refused.message)
        return
    rate, n = steps.flipped.mean(axis=0), len(steps.flipped)
    order = sorted(models, key=lambda m: curve.measured.models[m])
    purpose = f"flips {curve.measured.metric.name} {curve.entry} {curve.support}"
    try:
        found = bootstrap_mean(
            steps.flipped[:, order],
            rng=generator(how.seed, curve.measured, purpose),
            replicates=how.replicates,
            level=how.level,
            clusters=steps.clusters,
        ).interval
    except NotApplicable as refused:
        for m in models:
            record = summary(curve, m, "flip_rate", float(rate[m]), reason=refused.message)
            yield replace(record, n=n)
        return
    for m in models:
        yield replace(
            summary(curve, m, "flip_rate", float(rate[m])),
            n=n,
            low=float(found.low[order.index(m)]),
            high=float(found.high[order.index(m)]),
            interval=found.method,
            level=how.level,
        )

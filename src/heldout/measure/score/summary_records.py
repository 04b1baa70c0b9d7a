"""Records of curves: what every summary carries, and when there is no interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from heldout.measure.score.clustering import naming_clusters
from heldout.measure.score.curves import Curve
from heldout.measure.score.records import Summary
from heldout.stats import MINIMUM_CLUSTERS, interval_from_error, t_quantile


@dataclass(frozen=True)
class How:
    """How intervals are made."""

    seed: int
    replicates: int
    level: float


def summary(
    curve: Curve, m: int | None, name: str, value: float | None, *, reason: str | None = None
) -> Summary:
    """A record of a curve, without an interval yet; ``m`` is the model's place, None for none."""
    measured = curve.measured
    return Summary(
        model=None if m is None else measured.models[m],
        testset=measured.testset.name,
        truth=measured.truth,
        metric=measured.metric.name,
        columns=curve.entry,
        name=name,
        support=curve.support,
        n=len(measured),
        value=value,
        label_map=measured.label_map,
        testset_hash=measured.testset.card.content_hash,
        predictions_hash=measured.hashes[m] if m is not None and measured.hashes else "",
        reason=naming_clusters(reason, curve.cluster),
    )


def contrast(
    curve: Curve, name: str, weights: np.ndarray, how: How, *, bounded: bool = True
) -> Iterator[Summary]:
    """A weighted sum of the accuracies at all values."""
    found = curve.means.contrast(weights)
    reason = no_interval(curve)
    limits = interval_from_error(
        found.value,
        found.error,
        quantile=t_quantile(how.level, found.degrees),
        level=how.level,
        bounds=(0.0, 1.0) if bounded else None,
        units=found.degrees + 1.0,
    )
    for m in range(len(curve.measured.models)):
        record = summary(curve, m, name, float(found.value[m]))
        if reason is not None:
            yield replace(record, reason=naming_clusters(reason, curve.cluster))
        else:
            yield replace(
                record,
                low=float(limits.low[m]),
                high=float(limits.high[m]),
                interval=method_name(curve, limits.method),
                level=how.level,
            )


def place_text(curve: Curve, code: int) -> str:
    """Where a number was found: the value of a column, or the slice of two."""
    return curve.texts[code][0] if len(curve.columns) == 1 else curve.slices[code]


def method_name(curve: Curve, name: str) -> str:
    """The name of an interval's method, which says whether it is clustered."""
    return f"cluster-{name}" if curve.clusters is not None else name


def few_clusters(curve: Curve, count: int, needed: int) -> str:
    """Why there is no interval where there are too few clusters, or images."""
    if curve.clusters is None:
        return "a single image has no spread"
    return f"{count} clusters are too few for an interval, which needs {needed}"


def no_interval(curve: Curve) -> str | None:
    """Why what is computed from all values has no interval; None where it has one."""
    least = int(curve.means.clusters.min())
    if curve.clusters is not None:
        count = len(np.unique(curve.clusters))
        if count < MINIMUM_CLUSTERS:
            return few_clusters(curve, count, MINIMUM_CLUSTERS)
    if least < 2:
        where = place_text(curve, int(curve.means.clusters.argmin()))
        what = "image" if curve.clusters is None else "cluster"
        return f"{curve.entry} has a single {what} at {where}, which tells nothing of the spread"
    return None

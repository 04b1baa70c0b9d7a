"""The numbers that sum a curve up: means, area, critical value, worst value, flips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.curves import Curve, balanced, curve_of, mixes, support_of
from heldout.measure.score.estimate import (
    LEVEL,
    REPLICATES,
    Estimates,
    IntervalOptions,
    estimate,
    generator,
)
from heldout.measure.score.measure import Measured
from heldout.measure.score.memberships import membership_records
from heldout.measure.score.records import Score, Summary, estimated
from heldout.measure.score.slices import (
    ALL,
    CLASS,
    Partition,
    cluster_codes,
    entry_columns,
    partitions,
    unit_columns,
    with_cluster_name,
)
from heldout.stats.bootstrap import MINIMUM_CLUSTERS, bootstrap_mean
from heldout.stats.intervals import Interval, interval_from_error, t_quantile
from heldout.stats.slices import SliceMeans, joint_quantile

SHARE = 0.5
"""The critical value is where a curve reaches this share of its maximum."""
_STEPS = 60
_ADDED = 1.0 / 3.0
_MOST_CELLS = 40_000_000  # of all models' covariances between values: 320 MB


def curve_records(
    measured: Measured,
    by: Sequence[str],
    *,
    cluster: str | None = None,
    balance: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Score | Summary]:
    """What each entry of ``by`` shows as a curve, beside the scores of its slices.

    For every model: summaries of all images and, where some unit is missing at some value, scores
    with the statistic ``balanced`` and summaries of the units that are present at every value. ``cluster`` is
    the column whose images belong together; ``balance`` names what is repeated at every value, such
    as ``object&background`` (by default what the card says). For plain accuracies; other metrics
    have no summaries. Memberships, whose slices overlap, are read as
    :func:`heldout.measure.score.memberships.membership_records` says.
    """
    if not measured.metric.counted:
        return []
    options = IntervalOptions(seed, replicates, level)
    records: list[Score | Summary] = []
    for entry, rows in zip(by, partitions(measured, by), strict=True):
        if not len(rows.positions):
            continue  # a column without values shows nothing
        counted, partition = _each_image_once(measured, entry, rows)
        clusters = None if cluster is None else cluster_codes(counted, cluster)
        if not partition.single:
            if len(entry_columns(entry, measured.testset)) == 1:
                records += membership_records(
                    counted, entry, partition=partition, clusters=clusters, options=options
                )
            continue
        # In order of name: what is drawn for a model must not depend on its place.
        named = counted.of_models(sorted(counted.models))
        curve = curve_of(named, entry, partition, clusters=clusters, cluster=cluster)
        if len(curve) < 2:
            continue
        if len(measured.models) * len(curve) ** 2 > _MOST_CELLS:
            said = f"{curve.entry} has {len(curve):,} values, too many for a curve: cut it at edges"
            said += f", such as {curve.columns[0]}@0.2,0.5"
            records.append(_summary(curve, None, "values", None, reason=said, n=len(curve)))
            continue
        for mix in mixes(curve_of(measured, entry, rows)):
            value, reason = mix.kept / mix.total, mix.text or None
            records.append(
                _summary(curve, None, "mix", value, reason=reason, at=mix.column, n=mix.total)
            )
        columns = unit_columns(measured.testset, curve.columns, balance)
        units, complete = support_of(curve, columns) if columns else (None, None)
        groups: list[Iterable[Score | Summary]] = list(summaries(curve, units, options))
        if units is not None and complete is not None and not complete.all():
            groups.append([_support_record(curve, columns, units, complete)])
            if complete.any():
                even = balanced(curve, complete)
                groups += _balanced_scores(even, options)
                groups += summaries(even, units[complete], options)
        for group in groups:
            records += sorted(
                group, key=lambda r: measured.models.index(r.model or named.models[0])
            )
    return records


def _each_image_once(
    measured: Measured, entry: str, partition: Partition
) -> tuple[Measured, Partition]:
    """The measurement that an entry's curve is read from, and its slices.

    Where the truth has several rows for an image, it counts once, as in the scores; but a slice
    that is about a class takes the row of that class.
    """
    once, card = measured.one_row_per_image(), measured.testset.card
    names = entry_columns(entry, measured.testset)
    of_class = any(name in card.columns and card.columns[name].of_class for name in names)
    if once is measured or CLASS in names or of_class:
        return measured, partition
    return once, partitions(once, [entry])[0]


def _balanced_scores(curve: Curve, options: IntervalOptions) -> Iterator[list[Score]]:
    measured = curve.measured
    for code, name in enumerate(curve.slices):
        rows = np.flatnonzero(curve.codes == code)
        found = estimate(
            measured.select(rows),
            options,
            f"balanced {measured.metric.name} {name}",
            clusters=None if curve.clusters is None else curve.clusters[rows],
            cluster=curve.cluster,
        )
        yield [
            Score(
                **measured.subject(m) | {"statistic": "balanced"},
                slice=name,
                n=len(rows),
                **found.of_model(m),
            )
            for m in range(len(measured.models))
        ]


def _support_record(
    curve: Curve, columns: Sequence[str], units: np.ndarray, complete: np.ndarray
) -> Summary:
    total, kept = (len(np.unique(some)) for some in (units, units[complete]))
    named = "&".join(columns)
    said = f"{kept} of {total} units ({named}) are at every value of {curve.entry}"
    if not kept:
        said += ": there is no balanced curve"
    return _summary(curve, None, "support", kept / total, reason=said, n=total, at=named)


def summaries(
    curve: Curve, units: np.ndarray | None, options: IntervalOptions
) -> Iterator[Iterable[Summary]]:
    """Every summary that the shape of a curve has, each for all models; ``units`` (n,) are codes."""
    # Drawn as the score of the whole set, which it is where every image has a value.
    whole = f"score {curve.measured.metric.name} {ALL}"
    mean = estimate(curve.measured, options, whole, clusters=curve.clusters)
    yield _each_model(curve, "image_mean", mean)
    # Every value counts once, however many images it has.
    yield _contrast(curve, "group_mean", np.full(len(curve), 1.0 / len(curve)), options)
    if curve.shape in ("curve", "circle") and curve.numbers is not None:
        yield _contrast(curve, "area", area_weights(curve), options)
    if curve.shape == "curve" and curve.numbers is not None:
        yield _critical(curve, curve.numbers, options)
    yield _worst(curve, options)
    if curve.shape == "grid":
        cells, _ = curve.cells
        edge = ((cells == 0) | (cells == cells.max(axis=1, keepdims=True))).any(axis=0)
        if cells.max(axis=1).min() >= 2 and edge.any() and not edge.all():
            weights = np.where(edge, -1.0 / edge.sum(), 1.0 / (~edge).sum())
            yield _contrast(curve, "centre_over_edge", weights, options, bounded=False)
    if units is not None and curve.neighbours:
        yield _flip_rate(curve, units, options)


def _summary(
    curve: Curve,
    m: int | None,
    name: str,
    value: Any,
    interval: Interval | None = None,
    *,
    reason: str | None = None,
    **fields: Any,
) -> Summary:
    """A record of a curve; ``m`` is the model's place, None for what holds whatever the model."""
    return Summary(
        **curve.measured.subject(m),
        columns=curve.entry,
        name=name,
        support=curve.support,
        **{"n": len(curve.measured)} | fields,
        **estimated(value, interval, reason=with_cluster_name(reason, curve.cluster)),
    )


def _each_model(curve: Curve, name: str, found: Estimates, **fields: Any) -> Iterator[Summary]:
    """A record for each model, from estimates in their order."""
    for m, value in enumerate(found.value):
        interval = None if found.interval is None else found.interval.at(m)
        yield _summary(curve, m, name, value, interval, reason=found.reason, **fields)


def _purpose(curve: Curve, what: str) -> str:
    """The name of a curve's draws for one number."""
    return f"{what} {curve.measured.metric.name} {curve.entry} {curve.support}"


def _interval(curve: Curve, low: Any, high: Any, method: str, level: float) -> Interval:
    """An interval whose method says whether it is clustered."""
    return Interval(low, high, f"cluster-{method}" if curve.clusters is not None else method, level)


def _place(curve: Curve, code: int) -> str:
    """Where a number was found: the value of a column, or the slice of two."""
    return curve.texts[code][0] if len(curve.columns) == 1 else curve.slices[code]


def _few_clusters(curve: Curve, count: int, needed: int) -> str:
    """Why there is no interval where there are too few clusters, or images."""
    if curve.clusters is None:
        return "a single image has no spread"
    return f"{count} clusters are too few for an interval, which needs {needed}"


def _no_interval(curve: Curve) -> str | None:
    """Why what is computed from all values has no interval; None where it has one."""
    if curve.clusters is not None:
        count = len(np.unique(curve.clusters))
        if count < MINIMUM_CLUSTERS:
            return _few_clusters(curve, count, MINIMUM_CLUSTERS)
    if int(curve.means.clusters.min()) < 2:
        where = _place(curve, int(curve.means.clusters.argmin()))
        what = "image" if curve.clusters is None else "cluster"
        return f"{curve.entry} has a single {what} at {where}, which says nothing of the spread"
    return None


def _contrast(
    curve: Curve, name: str, weights: np.ndarray, options: IntervalOptions, *, bounded: bool = True
) -> Iterator[Summary]:
    """A weighted sum of the accuracies at all values."""
    found = curve.means.contrast(weights)
    reason = _no_interval(curve)
    limits = interval_from_error(
        found.value,
        found.error,
        quantile=t_quantile(options.level, found.degrees),
        level=options.level,
        bounds=(0.0, 1.0) if bounded else None,
        units=found.degrees + 1.0,
    )
    interval = _interval(curve, limits.low, limits.high, limits.method, options.level)
    yield from _each_model(
        curve, name, Estimates(found.value, None if reason else interval, reason)
    )


def area_weights(curve: Curve) -> np.ndarray:
    """Weights (values,) whose sum with a curve of numbers is its mean height between its ends.

    Trapezoids between neighbouring values; on a circle also from the last to the first, one turn
    later.
    """
    numbers = np.asarray(curve.numbers)
    if curve.shape == "circle":
        steps = np.diff(numbers, append=numbers[0] + float(curve.types[0].period or 0.0))
        weights = steps + np.roll(steps, 1)
    else:
        weights = np.diff(numbers, append=numbers[-1]) + np.diff(numbers, prepend=numbers[0])
    return np.asarray(weights / weights.sum())


def _critical(curve: Curve, numbers: np.ndarray, options: IntervalOptions) -> Iterator[Summary]:
    """Where the curve first reaches half of its maximum, and, where it falls again, last has it."""
    reason = _no_interval(curve)
    for m in range(len(curve.measured.models)):
        for name, back in (("critical_value", False), ("breaking_value", True)):
            found = first_crossing(numbers, curve.means, m, level=options.level, back=back)
            if back and (found is None or not found.inside):
                continue
            said = interval = None
            if found is None:
                said = "nothing is right at any value"
            elif not found.inside:
                said = f"already above {SHARE:.0%} of its maximum at the first value"
            elif reason is not None:
                said = reason
            else:
                interval = _interval(curve, found.low, found.high, "inverted-t", options.level)
            yield _summary(curve, m, name, found and found.value, interval, reason=said)


@dataclass(frozen=True)
class Crossing:
    """The first place where a curve reaches a share of its maximum; limits None where open.

    ``inside`` is False where the curve is there from its first value on.
    """

    value: float
    low: float | None
    high: float | None
    inside: bool


def first_crossing(
    numbers: np.ndarray, means: SliceMeans, column: int, *, level: float, back: bool = False
) -> Crossing | None:
    """The first value at which the curve reaches half of its maximum, linearly interpolated.

    ``numbers`` (values,) rise; ``back`` goes along them from the last. None where the curve is 0
    everywhere. The interval inverts a test: x is left out where the curve at x, interpolated, less
    half of the curve at its maximum, is surely below (or surely above) zero. It needs no
    resampling, and where the data never rule out the far end it stays open there.

    A value at which nearly all is right, or wrong, shows too little of its spread: with a third of a
    unit (image or cluster) that is right and a third that is wrong it is that of a share between.
    """
    order = slice(None, None, -1 if back else None)
    numbers, curve = numbers[order], means.value[order, column]
    units = means.clusters[order].astype(np.float64)
    inner = (units * curve + _ADDED) / (units + 2.0 * _ADDED)
    unseen = np.maximum(inner * (1.0 - inner) - curve * (1.0 - curve), 0.0) / units
    covariance = means.covariance[column][order, order] + np.diag(unseen)
    top = int(curve.argmax())
    if curve[top] <= 0:
        return None
    gaps = curve - SHARE * curve[top]
    end = int(np.argmax(gaps >= 0))
    weights = np.eye(len(curve))
    weights[:, top] -= SHARE
    degrees = float(means.contrast(weights[end][order]).degrees[column])
    quantile = float(t_quantile(level, degrees))

    def between(place: int, part: float) -> float:
        """The number ``part`` of the way to ``place`` from the one before."""
        return float(numbers[place - 1] + part * (numbers[place] - numbers[place - 1]))

    def limit(place: int, part: float, sign: float) -> float:
        """The upper (sign 1) or lower (-1) limit of the gap, ``part`` of the way to ``place``."""
        w = part * weights[place] + (1 - part) * weights[max(place - 1, 0)]
        return float(w @ curve + sign * quantile * np.sqrt(max(w @ covariance @ w, 0.0)))

    def reached(sign: float) -> float | None:
        """Where that limit reaches zero first, by bisection between two values."""
        reach = (place for place in range(len(curve)) if limit(place, 1.0, sign) >= 0)
        place = next(reach, None)
        if not place:
            return None if place is None else float(numbers[0])
        below, above = 0.0, 1.0
        for _ in range(_STEPS):
            middle = 0.5 * (below + above)
            if limit(place, middle, sign) >= 0:
                above = middle
            else:
                below = middle
        return between(place, above)

    value = float(numbers[0])
    if end > 0:
        value = between(end, -gaps[end - 1] / (gaps[end] - gaps[end - 1]))
    first, second = reached(1.0), reached(-1.0)
    return Crossing(value, *((second, first) if back else (first, second)), end > 0)


def _worst(curve: Curve, options: IntervalOptions) -> Iterator[Summary]:
    """The lowest value, with limits that hold for all values together."""
    means, level = curve.means, options.level
    needed = MINIMUM_CLUSTERS if curve.clusters is not None else 2
    kept = np.flatnonzero(means.clusters >= needed)
    alone = len(kept) < 2
    places = kept if len(kept) else np.arange(len(curve))
    reason = _few_clusters(curve, int(means.clusters.max()), needed) if alone else None
    rng = generator(options.seed, curve.measured, _purpose(curve, "extremes"))
    for m in range(len(curve.measured.models)):
        at = int(places[means.value[places, m].argmin()])
        value, interval = float(means.value[at, m]), None
        if not alone:
            degrees = float(means.contrast(np.eye(len(curve))[at]).degrees[m])
            covariance = means.covariance[m][np.ix_(kept, kept)]
            limits = interval_from_error(
                value,
                float(means.error[at, m]),
                quantile=joint_quantile(covariance, degrees, rng=rng, level=level),
                level=level,
                bounds=(0.0, 1.0),
                units=float(means.clusters[at]),
                tail=(1.0 - level) / 2.0 / len(kept),
            )
            method = "wilson, all values together"
            interval = _interval(curve, limits.low, limits.high, method, level)
        where = {"at": _place(curve, at), "n": int(means.n[at])}
        yield _summary(curve, m, "worst_value", value, interval, reason=reason, **where)


def _flip_rate(curve: Curve, units: np.ndarray, options: IntervalOptions) -> Iterator[Summary]:
    """How often a unit turns from right to wrong, or back, between neighbouring values."""
    rates: Any = [None] * len(curve.measured.models)
    limits = reason = None
    fields: dict[str, Any] = {}
    try:
        flipped, clusters = _flips(curve, units)
        rates, fields = flipped.mean(axis=0), {"n": len(flipped)}
        limits = bootstrap_mean(
            flipped,
            rng=generator(options.seed, curve.measured, _purpose(curve, "flips")),
            replicates=options.replicates,
            level=options.level,
            clusters=clusters,
        ).interval
    except NotApplicable as refused:
        reason = refused.message
    yield from _each_model(curve, "flip_rate", Estimates(rates, limits, reason), **fields)


def _flips(curve: Curve, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every step that a unit makes from one value to the next, where it is present at both.

    Whether it flips, bool (steps, models), and the cluster of the unit, or the unit itself. A unit
    that has several images at one value cannot be followed, and is refused: which of them would be
    compared with which?
    """
    cells = units * len(curve) + curve.codes
    present, rows, counts = np.unique(cells, return_index=True, return_counts=True)
    if (counts > 1).any():
        several = len(np.unique(present[counts > 1] // len(curve)))
        raise NotApplicable(
            f"{several} units have several images at one value of {curve.entry}",
            fix="name more columns with --balance",
        )
    codes, before, after = present % len(curve), [rows[:0]], [rows[:0]]
    for beside in curve.neighbours:
        wanted = present - codes + beside[codes]
        place = np.minimum(np.searchsorted(present, wanted), len(present) - 1)
        both = (beside[codes] >= 0) & (present[place] == wanted)
        before.append(rows[both])
        after.append(rows[place[both]])
    old, new = np.concatenate(before), np.concatenate(after)
    if not len(old):
        raise NotApplicable(
            f"no unit is there at two neighbouring values of {curve.entry}",
            fix="name fewer columns with --balance",
        )
    values = curve.measured.values
    together = units if curve.clusters is None else curve.clusters
    return values[old] != values[new], together[old]

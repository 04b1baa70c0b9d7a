"""The numbers that sum a curve up: means, area, critical value, extremes, flips, interactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.curves import Curve, Support, balanced, curve_of, mixes, support_of
from heldout.measure.score.estimate import LEVEL, REPLICATES, estimate_or_value, generator
from heldout.measure.score.measure import Measured
from heldout.measure.score.memberships import membership_records
from heldout.measure.score.records import Score, Summary
from heldout.measure.score.slices import (
    CLASS,
    Partition,
    cluster_codes,
    entry_columns,
    partitions,
    unit_columns,
    with_cluster_name,
)
from heldout.stats.bootstrap import MINIMUM_CLUSTERS, bootstrap_mean
from heldout.stats.intervals import interval_from_error, t_quantile
from heldout.stats.slices import SliceMeans, joint_quantile


@dataclass(frozen=True)
class IntervalOptions:
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
        reason=with_cluster_name(reason, curve.cluster),
    )


def contrast(
    curve: Curve, name: str, weights: np.ndarray, how: IntervalOptions, *, bounded: bool = True
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
            yield replace(record, reason=with_cluster_name(reason, curve.cluster))
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


SHARE = 0.5
_STEPS = 60


@dataclass(frozen=True)
class Crossing:
    """The first place where a curve reaches a share of its maximum; limits None where open.

    ``inside`` is False where the curve is there from its first value on; ``varies`` is False where
    all images on both sides of the place agree, so that nothing is known of the spread.
    """

    value: float
    low: float | None
    high: float | None
    inside: bool
    varies: bool = True


def first_crossing(
    numbers: np.ndarray, means: SliceMeans, column: int, *, level: float, share: float = SHARE
) -> Crossing | None:
    """The first value at which the curve reaches ``share`` of its maximum, linearly interpolated.

    ``numbers`` (values,) rise or fall. None where the curve is 0 everywhere.
    """
    curve = means.value[:, column]
    top = int(curve.argmax())
    if curve[top] <= 0:
        return None
    gaps = curve - share * curve[top]
    end = int(np.argmax(gaps >= 0))
    value = float(numbers[0]) if end == 0 else _root(numbers, end, gaps[end - 1], gaps[end])
    weights = -share * np.eye(len(curve))[top] + np.eye(len(curve))
    degrees = float(means.contrast(weights[end]).degrees[column])
    quantile = float(t_quantile(level, degrees))
    covariance = means.covariance[column]

    def limit(place: int, part: float, sign: float) -> float:
        """The upper (sign 1) or lower (-1) limit of the gap, ``part`` of the way to ``place``."""
        w = part * weights[place] + (1 - part) * weights[max(place - 1, 0)]
        return float(w @ curve + sign * quantile * np.sqrt(max(w @ covariance @ w, 0.0)))

    def reached(sign: float) -> float | None:
        ends = [limit(place, 1.0, sign) >= 0 for place in range(len(curve))]
        if not any(ends):
            return None
        place = ends.index(True)
        if place == 0:
            return float(numbers[0])
        below, above = 0.0, 1.0
        for _ in range(_STEPS):
            middle = 0.5 * (below + above)
            if limit(place, middle, sign) >= 0:
                above = middle
            else:
                below = middle
        return float(numbers[place - 1] + above * (numbers[place] - numbers[place - 1]))

    beside = [weights[place] for place in (max(end - 1, 0), end)]
    if max(float(w @ covariance @ w) for w in beside) <= 0.0:
        return Crossing(value, None, None, end > 0, varies=False)
    low, high = reached(1.0), reached(-1.0)
    if numbers[-1] < numbers[0]:
        low, high = high, low
    return Crossing(value, low, high, end > 0)


def _root(numbers: np.ndarray, end: int, before: float, after: float) -> float:
    part = -before / (after - before)
    return float(numbers[end - 1] + part * (numbers[end] - numbers[end - 1]))


@dataclass(frozen=True, eq=False)
class Flips:
    """Steps of units between neighbouring values.

    ``flipped``   bool (steps, models)
    ``clusters``  int64 (steps,): the cluster of the unit, or the unit itself
    """

    flipped: np.ndarray
    clusters: np.ndarray


def flips(curve: Curve, units: np.ndarray) -> Flips:
    """Every step that a unit makes from one value to the next, where it is there at both.

    A unit that has several images at one value cannot be followed, and is refused: which of them
    would be compared with which?
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
    for beside in _neighbours(curve):
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
    return Flips(values[old] != values[new], together[old])


def _neighbours(curve: Curve) -> list[np.ndarray]:
    """Tables (values,) that name for each value one that comes after it, -1 for none.

    One table for a curve or a circle; two for a grid, to the right and below.
    """
    tables: list[np.ndarray] = []
    for a, b in curve.steps:
        free = next((table for table in tables if table[a] < 0), None)
        if free is None:
            free = np.full(len(curve), -1, dtype=np.int64)
            tables.append(free)
        free[a] = b
    return tables


def interaction_weights(curve: Curve) -> np.ndarray:
    """Weights (cells, cells): row c times the accuracies is the interaction of cell c.

    ``a_ij - a_i. - a_.j + a_..`` with plain means over rows, columns and all cells. The table must
    have every cell: a mean over some of a row is the mean of another row.
    """
    rows, columns = curve.axis(0), curve.axis(1)
    if len(curve) < len(rows) * len(columns):
        missing = len(rows) * len(columns) - len(curve)
        raise NotApplicable(
            f"{missing} of {len(rows) * len(columns)} cells of {curve.entry} have no images",
            fix="slice by values that occur together",
        )
    if min(len(rows), len(columns)) < 2:
        raise NotApplicable(f"{curve.entry} has a single row or column", fix="read it as a curve")
    first = np.array([rows.index(text[0]) for text in curve.texts])
    second = np.array([columns.index(text[1]) for text in curve.texts])
    same_row = first[:, None] == first[None, :]
    same_column = second[:, None] == second[None, :]
    return np.asarray(
        np.eye(len(curve)) - same_row / len(columns) - same_column / len(rows) + 1 / len(curve)
    )


def symmetry(curve: Curve, how: IntervalOptions) -> Iterator[Summary]:
    """What the middle of a grid has over its edge, the left over the right, the top over the bottom."""
    across = 0 if curve.types[0].axis == "x" else 1
    axes = [curve.axis(across), curve.axis(1 - across)]
    cells = [(axes[0].index(text[across]), axes[1].index(text[1 - across])) for text in curve.texts]
    place = {cell: code for code, cell in enumerate(cells)}
    last = (len(axes[0]) - 1, len(axes[1]) - 1)
    mirrors = [_mirrored(axis) for axis in axes]
    edge = np.array([x in (0, last[0]) or y in (0, last[1]) for x, y in cells])
    if min(last) >= 2 and edge.any() and not edge.all():
        weights = np.where(edge, -1.0 / edge.sum(), 1.0 / (~edge).sum())
        yield from contrast(curve, "centre_over_edge", weights, how, bounded=False)
    for name, axis in (("left_over_right", 0), ("top_over_bottom", 1)):
        pairs = []
        for cell, code in place.items():
            mirror = mirrors[axis].get(cell[axis])
            other = (mirror, cell[1]) if axis == 0 else (cell[0], mirror)
            if mirror is not None and other in place and cell[axis] < mirror:
                pairs.append((code, place[other]))
        if pairs:
            weights = np.zeros(len(curve))
            for first, second in pairs:
                weights[first] += 1.0 / len(pairs)
                weights[second] -= 1.0 / len(pairs)
            yield from contrast(curve, name, weights, how, bounded=False)


def _mirrored(values: Sequence[str]) -> dict[int, int]:
    """By the place of a value on its axis: the place of the value as far from the other end.

    Values that are no numbers lie one step apart.
    """
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = list(map(float, range(len(values))))
    ends, near = min(numbers) + max(numbers), 1e-6 * (max(numbers) - min(numbers))
    return {
        i: j
        for i, one in enumerate(numbers)
        for j, other in enumerate(numbers)
        if abs(one + other - ends) <= near
    }


def interaction(curve: Curve, how: IntervalOptions) -> Iterator[Summary]:
    """The cell that departs most from row plus column, its limits good for all cells together."""
    models = curve.measured.models
    try:
        weights = interaction_weights(curve)
    except NotApplicable as refused:
        yield from (
            summary(curve, m, "interaction", None, reason=refused.message)
            for m in range(len(models))
        )
        return
    reason, means = no_interval(curve), curve.means
    values = weights @ means.value
    found: dict[int, Summary] = {}
    rng = generator(
        how.seed,
        curve.measured,
        f"interaction {curve.measured.metric.name} {curve.entry} {curve.support}",
    )
    for m in sorted(range(len(models)), key=lambda m: models[m]):
        at = int(np.abs(values[:, m]).argmax())
        record = replace(
            summary(curve, m, "interaction", float(values[at, m]), reason=reason),
            at=place_text(curve, at),
        )
        if reason is None:
            covariance = weights @ means.covariance[m] @ weights.T
            one = means.contrast(weights[at])
            half = float(one.error[m]) * joint_quantile(
                covariance, float(one.degrees[m]), rng=rng, level=how.level
            )
            record = replace(
                record,
                low=float(values[at, m]) - half,
                high=float(values[at, m]) + half,
                interval=method_name(curve, "t, all cells together"),
                level=how.level,
            )
        found[m] = record
    yield from (found[m] for m in sorted(found))


def summaries(curve: Curve, support: Support | None, how: IntervalOptions) -> list[Summary]:
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


def _means(curve: Curve, how: IntervalOptions) -> Iterator[Summary]:
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
            reason=with_cluster_name(found.reason, curve.cluster),
        )
    yield from contrast(curve, "group_mean", np.full(len(curve), 1.0 / len(curve)), how)


def _area(curve: Curve, how: IntervalOptions) -> Iterator[Summary]:
    yield from contrast(curve, "area", area_weights(curve), how)


def _critical(curve: Curve, how: IntervalOptions) -> Iterator[Summary]:
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
                yield replace(record, reason=with_cluster_name(reason, curve.cluster))
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


def _extremes(curve: Curve, how: IntervalOptions) -> Iterator[Summary]:
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
                record = replace(record, reason=with_cluster_name(few, curve.cluster))
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


def _flip_rate(curve: Curve, support: Support, how: IntervalOptions) -> Iterator[Summary]:
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


BALANCED = "_balanced"
"""Ends the metric's name in scores of the units that are there at every value."""
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
    ``<metric>_balanced`` and summaries of the units that are there at every value. ``cluster`` is
    the column whose images belong together; ``balance`` names what is repeated at every value, such
    as ``object&background`` (by default what the card says). For plain accuracies; other metrics
    have no summaries. Memberships, whose slices overlap, are read as
    :func:`heldout.measure.score.memberships.membership_records` says.
    """
    if not measured.metric.counted:
        return []
    how = IntervalOptions(seed, replicates, level)
    records: list[Score | Summary] = []
    for entry, rows in zip(by, partitions(measured, by), strict=True):
        if not len(rows.positions):
            continue  # a column without values shows nothing
        counted, partition = _each_image_once(measured, entry, rows)
        clusters = None if cluster is None else cluster_codes(counted, cluster)
        if not partition.single:
            if len(entry_columns(entry, measured.testset)) == 1:
                records += membership_records(
                    counted, entry, partition=partition, clusters=clusters, level=level
                )
            continue
        curve = curve_of(counted, entry, partition, clusters=clusters, cluster=cluster)
        if len(curve) < 2:
            continue
        if len(measured.models) * len(curve) ** 2 > _MOST_CELLS:
            records.append(_too_many(curve))
            continue
        columns = unit_columns(measured.testset, curve.columns, balance)
        support = support_of(curve, columns) if columns else None
        records += _mix_records(curve_of(measured, entry, rows, cluster=cluster))
        records += summaries(curve, support, how)
        if support is None or support.is_balanced:
            continue
        records.append(_support_record(curve, support))
        if support.complete.any():
            even = balanced(curve, support)
            records += _balanced_scores(even, how)
            records += summaries(even, support.of_complete(), how)
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


def _balanced_scores(curve: Curve, how: IntervalOptions) -> Iterator[Score]:
    measured = curve.measured
    for code, name in enumerate(curve.slices):
        rows = np.flatnonzero(curve.codes == code)
        found = estimate_or_value(
            measured.select(rows),
            rng=generator(how.seed, measured, f"balanced {measured.metric.name} {name}"),
            clusters=None if curve.clusters is None else curve.clusters[rows],
            replicates=how.replicates,
            level=how.level,
        )
        for m in range(len(measured.models)):
            record = measured.record(
                m,
                slice=name,
                n=len(rows),
                value=float(found.value[m]),
                low=None if found.low is None else float(found.low[m]),
                high=None if found.high is None else float(found.high[m]),
                interval=found.method,
                level=None if found.method is None else how.level,
                reason=with_cluster_name(found.reason, curve.cluster),
            )
            yield replace(record, metric=f"{measured.metric.name}{BALANCED}")


def _mix_records(curve: Curve) -> Iterator[Summary]:
    for mix in mixes(curve):
        yield replace(
            summary(curve, None, "mix", mix.kept / mix.total, reason=mix.text or None),
            at=mix.column,
            n=mix.total,
        )


def _too_many(curve: Curve) -> Summary:
    said = f"{curve.entry} has {len(curve):,} values, too many for a curve: cut it at edges"
    return replace(
        summary(curve, None, "values", None, reason=f"{said}, such as {curve.columns[0]}@0.2,0.5"),
        n=len(curve),
    )


def _support_record(curve: Curve, support: Support) -> Summary:
    total, kept = len(support.complete), int(support.complete.sum())
    units = "&".join(support.columns)
    said = f"{kept} of {total} units ({units}) are at every value of {curve.entry}"
    if not kept:
        said += ": there is no balanced curve"
    return replace(summary(curve, None, "support", kept / total, reason=said), n=total, at=units)

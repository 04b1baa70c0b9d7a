"""Overlapping slices of one set of images: what holds over all of them, and against a number.

An image may be in ten slices. Here it counts once where all images are meant, the average over
slices knows which slices share images, and the worst of many small slices is shrunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.estimate import LEVEL
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Score, Summary
from heldout.measure.score.slices import Partition, parse_slice, partitions
from heldout.stats.intervals import Interval, interval_from_error, t_quantile
from heldout.stats.multiple import worst_slice_interval
from heldout.stats.slices import Shrunken, shrink

SHRUNK = "_shrunk"
"""Ends the metric's name in scores of slices that were read together."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Overlapping:
    """Slices of one measurement that may share images.

    ``names``      slices as records name them
    ``positions``, ``codes``  int64 (pairs,): a measured row and the slice that it is in
    ``clusters``   int64 (n,): which measured rows belong together; by default those of one image
    """

    measured: Measured
    column: str
    names: tuple[str, ...]
    positions: np.ndarray
    codes: np.ndarray
    clusters: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def values(self) -> list[str]:
        """The value of the column that each slice stands for."""
        return [parse_slice(name)[self.column] for name in self.names]

    @cached_property
    def n(self) -> np.ndarray:
        """Rows of each slice; int64 (slices,)."""
        return np.bincount(self.codes, minlength=len(self))

    @cached_property
    def hits(self) -> np.ndarray:
        """Sums of the metric over each slice; float64 (slices, models)."""
        found = np.zeros((len(self), len(self.measured.models)))
        np.add.at(found, self.codes, self.measured.values[self.positions].astype(np.float64))
        return found

    @cached_property
    def means(self) -> np.ndarray:
        """The metric on each slice; float64 (slices, models)."""
        return np.asarray(self.hits / self.n[:, None])

    @property
    def units(self) -> np.ndarray:
        """What was drawn together with each measured row: its image, or its cluster; int64 (n,)."""
        return self.measured.rows if self.clusters is None else self.clusters

    @cached_property
    def images(self) -> int:
        """Images that are in some slice."""
        return len(np.unique(self.measured.rows[self.positions]))

    def influence(self, weights: np.ndarray) -> np.ndarray:
        """How far each image (or cluster) pulls ``weights`` (slices,) times the means; (u, models).

        The linear part of a sum of ratios: row i pulls the mean of its slice s by
        ``(value_i - mean_s) / n_s``. An image's pulls over all its slices and rows are one number,
        which is how overlap enters every error below.
        """
        part = (weights / self.n)[self.codes][:, None] * (
            self.measured.values[self.positions] - self.means[self.codes]
        )
        return unit_sums(part, self.units[self.positions])

    def combined(self, weights: np.ndarray, *, level: float = LEVEL) -> tuple[np.ndarray, Interval]:
        """``weights`` (slices,) times the means, with limits; arrays (models,).

        Images are what was drawn: the variance is the sum of squared pulls, times ``n / (n - 1)``.
        """
        pulls = self.influence(weights)
        n = len(pulls)
        error = np.sqrt(np.square(pulls).sum(axis=0) * n / max(n - 1, 1))
        value = weights @ self.means
        share = bool((weights >= 0).all()) and abs(float(weights.sum()) - 1) < 1e-9
        return value, interval_from_error(
            value,
            error,
            quantile=t_quantile(level, float(max(n - 1, 1))),
            level=level,
            bounds=(0.0, 1.0) if share else None,
            units=float(n),
        )


def unit_sums(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Sums of rows (n, models) that belong together, in order of their unit; (units, models)."""
    _, code = np.unique(units, return_inverse=True)
    found = np.zeros((int(code.max()) + 1, values.shape[1]))
    np.add.at(found, code, values)
    return found


def overlapping_slices(
    measured: Measured,
    column: str,
    *,
    partition: Partition | None = None,
    clusters: np.ndarray | None = None,
    minimum_n: int = 1,
) -> Overlapping:
    """The slices of a column that have at least ``minimum_n`` rows, in the column's order."""
    if not measured.metric.counted:
        raise NotApplicable(
            f"{measured.metric.name} is no plain accuracy, which these readings are of",
            fix="read top1",
        )
    found = partition or partitions(measured, [column])[0]
    sizes = np.bincount(found.codes, minlength=len(found.names))
    kept = np.flatnonzero(sizes >= max(minimum_n, 1))
    if not len(kept):
        raise NotApplicable(
            f"no value of {column} has {max(minimum_n, 1)} images", fix="lower the minimum n"
        )
    place = np.full(len(found.names), -1)
    place[kept] = np.arange(len(kept))
    chosen = place[found.codes] >= 0
    return Overlapping(
        measured=measured,
        column=column,
        names=tuple(found.names[code] for code in kept),
        positions=found.positions[chosen],
        codes=place[found.codes[chosen]],
        clusters=clusters,
    )


def membership_records(
    measured: Measured,
    column: str,
    *,
    partition: Partition | None = None,
    clusters: np.ndarray | None = None,
    minimum_n: int = 1,
    worst_n: int = 20,
    level: float = LEVEL,
) -> list[Score | Summary]:
    """What a membership shows beyond the scores of its slices, for every model.

    Scores ``<metric>_shrunk`` of each slice, read together with all others
    (:func:`heldout.stats.slices.shrink`), and summaries:

    ``image_mean``     over images in some slice, each once however many slices and rows it has
    ``group_mean``     over slices, each once
    ``class_mean``     over classes of their mean over slices, where slices are of several classes
    ``spread``         standard deviation of true accuracies over slices, chance taken off
    ``worst_value``    the lowest slice of ``worst_n`` rows, limits for having looked at all
    ``worst_shrunk``   the lowest slice after shrinking: what one would see on fresh images

    ``clusters`` (n,) are codes of rows that belong together, such as frames of one film: the means
    then allow for that, and what rests on images drawn one by one (all else) is left out.
    """
    slices = overlapping_slices(
        measured, column, partition=partition, clusters=clusters, minimum_n=minimum_n
    )
    records: list[Score | Summary] = []
    shrunken = (
        [shrink(slices.hits[:, m], slices.n, level=level) for m in range(len(measured.models))]
        if len(slices) > 1 and clusters is None
        else []
    )
    for m, found in enumerate(shrunken):
        records += _shrunk_scores(slices, m, found, level)
    records += _image_mean(slices, level)
    even = np.full(len(slices), 1 / len(slices))
    records += _combined(slices, "group_mean", even, level)
    classes = _classes(slices)
    if len(np.unique(classes)) > 1:
        _, code, size = np.unique(classes, return_inverse=True, return_counts=True)
        records += _combined(slices, "class_mean", 1 / size[code] / len(size), level)
    for m, found in enumerate(shrunken):
        records += _read_together(slices, m, found, level, worst_n)
    return records


def _shrunk_scores(slices: Overlapping, m: int, found: Shrunken, level: float) -> Iterator[Score]:
    for code, name in enumerate(slices.names):
        record = slices.measured.record(
            m,
            slice=name,
            n=int(slices.n[code]),
            value=float(found.value[code]),
            low=float(found.interval.low[code]),
            high=float(found.interval.high[code]),
            interval=found.interval.method,
            level=level,
        )
        yield replace(record, metric=f"{slices.measured.metric.name}{SHRUNK}")


def _each_once(
    measured: Measured, rows: np.ndarray, units: np.ndarray, level: float
) -> tuple[np.ndarray, Interval, int]:
    """The mean over the images of some rows, each once, with limits; and how many images."""
    part = measured.select(rows)
    means, images = part.image_means(), len(part.first_row_of_image)
    value = means.mean(axis=0)
    pulls = unit_sums((means - value) / images, units[rows][part.first_row_of_image])
    n = len(pulls)
    error = np.sqrt(np.square(pulls).sum(axis=0) * n / max(n - 1, 1))
    limits = interval_from_error(
        value,
        error,
        quantile=t_quantile(level, float(max(n - 1, 1))),
        level=level,
        bounds=(0.0, 1.0),
        units=float(n),
    )
    return value, limits, images


def _image_mean(slices: Overlapping, level: float) -> Iterator[Summary]:
    rows = np.unique(slices.positions)
    value, limits, _ = _each_once(slices.measured, rows, slices.units, level)
    for m in range(len(slices.measured.models)):
        yield _summary(slices, m, "image_mean", value, limits, level)


def _combined(
    slices: Overlapping, name: str, weights: np.ndarray, level: float
) -> Iterator[Summary]:
    value, limits = slices.combined(weights, level=level)
    for m in range(len(slices.measured.models)):
        yield _summary(slices, m, name, value, limits, level)


def _read_together(
    slices: Overlapping, m: int, found: Shrunken, level: float, worst_n: int
) -> Iterator[Summary]:
    blank = _summary(slices, m, "spread", None, None, level)
    ends = found.spread_interval
    yield replace(
        blank,
        value=found.spread,
        low=float(ends.low),
        high=float(ends.high),
        interval=ends.method,
        level=level,
    )
    large = np.flatnonzero(slices.n >= worst_n)
    if len(large) > 1:
        worst = worst_slice_interval(slices.hits[large, m], slices.n[large], level=level)
        at = int(large[worst.index])
        yield replace(
            blank,
            name="worst_value",
            n=int(slices.n[at]),
            at=slices.values[at],
            value=worst.value,
            low=float(worst.slice_interval.low),
            high=float(worst.slice_interval.high),
            interval=worst.slice_interval.method,
            level=level,
        )
    at = int(np.lexsort((-slices.n, found.value))[0])
    yield replace(
        blank,
        name="worst_shrunk",
        n=int(slices.n[at]),
        at=slices.values[at],
        value=float(found.value[at]),
        low=float(found.interval.low[at]),
        high=float(found.interval.high[at]),
        interval=found.interval.method,
        level=level,
    )


def _method(slices: Overlapping, name: str) -> str:
    return name if slices.clusters is None else f"cluster-{name}"


def _classes(slices: Overlapping) -> np.ndarray:
    """The class that most rows of each slice have; int64 (slices,), the first of equals."""
    groups = slices.measured.groups[slices.positions]
    width = int(groups.max()) + 2
    counts = np.bincount(slices.codes * width + groups + 1, minlength=len(slices) * width)
    return np.asarray(counts.reshape(len(slices), width).argmax(axis=1) - 1)


def _summary(
    slices: Overlapping,
    m: int,
    name: str,
    value: np.ndarray | None,
    limits: Interval | None,
    level: float,
) -> Summary:
    measured = slices.measured
    return Summary(
        model=measured.models[m],
        testset=measured.testset.name,
        truth=measured.truth,
        metric=measured.metric.name,
        columns=slices.column,
        name=name,
        n=slices.images,
        value=None if value is None else float(value[m]),
        low=None if limits is None else float(limits.low[m]),
        high=None if limits is None else float(limits.high[m]),
        interval=None if limits is None else _method(slices, limits.method),
        level=None if limits is None else level,
        label_map=measured.label_map,
        testset_hash=measured.testset.card.content_hash,
        predictions_hash=measured.hashes[m] if measured.hashes else "",
    )


MINIMUM_SLICES = 4


@dataclass(frozen=True, kw_only=True)
class SliceNumber:
    """A number that one slice has, with its limits where they are known."""

    value: float
    low: float | None = None
    high: float | None = None


def property_records(
    measured: Measured,
    column: str,
    numbers: Mapping[str, SliceNumber],
    *,
    name: str = "distance",
    minimum_n: int = 1,
    level: float = LEVEL,
) -> list[Summary]:
    """How accuracy on the values of ``column`` goes with a number that these values have.

    ``numbers`` are by value, such as ``cat(sofa)``; values without one are left out. First a
    summary called ``name`` for each value (no model), then for each model

    ``slope``             change of accuracy a unit of the number: least squares, slices weighted by
                          their images; its error is the larger of two: that of the images drawn,
                          overlap between slices counted, and that of slices about the line (HC3,
                          Long and Ervin 2000), so that the line need not be true
    ``rank_correlation``  Spearman's, with Fisher's transformation and the error of Bonett and
                          Wright (2000), over slices

    Where fewer than four slices have a number, slope and correlation say so and have no interval.
    """
    slices = overlapping_slices(measured, column, minimum_n=minimum_n)
    kept = [code for code, value in enumerate(slices.values) if value in numbers]
    if not kept:
        raise NotApplicable(
            f"no value of {column} has a {name}", fix="check how the values are written"
        )
    slices = _only(slices, kept)
    values = slices.values
    x = np.array([numbers[value].value for value in values])
    records = [
        _record(slices, None, name, float(number), n=int(slices.n[code]), at=values[code])
        for code, number in enumerate(x)
    ]
    records = [
        _with_limits(record, numbers[value].low, numbers[value].high, None, None)
        for record, value in zip(records, values, strict=True)
    ]
    for m in range(len(measured.models)):
        records.append(_slope(slices, m, x, name, level))
        records.append(_correlation(slices, m, x, name, level))
    return records


def weighted_line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Intercept and slope of weighted least squares; x must not be all equal."""
    share = weights / weights.sum()
    middle = float(share @ x)
    slope = float(share @ ((x - middle) * y)) / float(share @ np.square(x - middle))
    return float(share @ y) - slope * middle, slope


def _slope(slices: Overlapping, m: int, x: np.ndarray, name: str, level: float) -> Summary:
    blank = _record(slices, m, "slope", None, n=slices.images, at=name)
    if len(x) < 2 or np.ptp(x) == 0:
        return _without(blank, None, f"all slices have one {name}")
    y = slices.means[:, m]
    intercept, slope = weighted_line(x, y, slices.n.astype(np.float64))
    if len(x) < MINIMUM_SLICES:
        return _without(blank, slope, f"{len(x)} slices are too few, {MINIMUM_SLICES} are needed")
    share = slices.n / slices.n.sum()
    across = x - float(share @ x)
    pull = share * across / float(share @ np.square(across))  # the slope is pull @ y
    drawn = np.sqrt(np.square(slices.influence(pull)[:, m]).sum())
    leverage = np.minimum(
        share + share * np.square(across) / float(share @ np.square(across)), 0.99
    )
    left = (y - intercept - slope * x) / (1 - leverage)
    about = np.sqrt(np.square(pull * left).sum())
    half = float(t_quantile(level, float(len(x) - 2))) * float(max(drawn, about))
    method = "t, images drawn" if drawn >= about else "t, slices about the line (HC3)"
    return _with_limits(_without(blank, slope, None), slope - half, slope + half, method, level)


def _correlation(slices: Overlapping, m: int, x: np.ndarray, name: str, level: float) -> Summary:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    blank = _record(slices, m, "rank_correlation", None, n=slices.images, at=name)
    ranks = [rankdata(x), rankdata(slices.means[:, m])]
    if min(np.ptp(r) for r in ranks) == 0:
        return _without(blank, None, "all slices are equal")
    value = float(np.corrcoef(*ranks)[0, 1])
    if len(x) < MINIMUM_SLICES:
        return _without(blank, value, f"{len(x)} slices are too few, {MINIMUM_SLICES} are needed")
    error = np.sqrt((1 + value**2 / 2) / (len(x) - 3))
    middle = np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12))
    half = float(ndtri((1 + level) / 2)) * error
    low, high = float(np.tanh(middle - half)), float(np.tanh(middle + half))
    return _with_limits(_without(blank, value, None), low, high, "fisher-bonett-wright", level)


def _only(slices: Overlapping, kept: list[int]) -> Overlapping:
    place = np.full(len(slices), -1)
    place[kept] = np.arange(len(kept))
    chosen = place[slices.codes] >= 0
    return Overlapping(
        measured=slices.measured,
        column=slices.column,
        names=tuple(slices.names[code] for code in kept),
        positions=slices.positions[chosen],
        codes=place[slices.codes[chosen]],
    )


def _record(
    slices: Overlapping, m: int | None, name: str, value: float | None, *, n: int, at: str
) -> Summary:
    measured = slices.measured
    return Summary(
        model=None if m is None else measured.models[m],
        testset=measured.testset.name,
        truth=measured.truth,
        metric=measured.metric.name,
        columns=slices.column,
        name=name,
        n=n,
        value=value,
        at=at,
        label_map=measured.label_map,
        testset_hash=measured.testset.card.content_hash,
        predictions_hash=measured.hashes[m] if m is not None and measured.hashes else "",
    )


def _without(record: Summary, value: float | None, reason: str | None) -> Summary:
    return replace(record, value=value, reason=reason)


def _with_limits(
    record: Summary, low: float | None, high: float | None, method: str | None, level: float | None
) -> Summary:
    return replace(record, low=low, high=high, interval=method, level=level)

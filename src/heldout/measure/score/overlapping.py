"""Reading a membership: many overlapping slices of one set of images, and what holds over all.

An image may be in ten slices. Here it counts once where all images are meant, the average over
slices knows which slices share images, and the worst of many small slices is not taken at its word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.estimating import LEVEL
from heldout.measure.score.measuring import Measured
from heldout.measure.score.records import Score, Summary
from heldout.measure.score.slices import parse_slice
from heldout.measure.score.slicing import Partition, partitions
from heldout.stats import (
    Interval,
    Shrunken,
    interval_from_error,
    shrink,
    t_quantile,
    worst_slice_interval,
)

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

    def pulls(self, weights: np.ndarray) -> np.ndarray:
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
        pulls = self.pulls(weights)
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
    (:func:`heldout.stats.shrinkage.shrink`), and summaries:

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
    part = measured.take(rows)
    means, images = part.image_means(), len(part.firsts)
    value = means.mean(axis=0)
    pulls = unit_sums((means - value) / images, units[rows][part.firsts])
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

"""Slice search: in which slice a model fails most, corrected for having looked at all of them.

Every conjunction of up to three columns is looked at. The worst of thousands of slices looks bad by
chance alone, so slices are found on one half of the images and measured on the other, which had no
part in choosing them. Whole clusters go to one half. ``p`` is Holm's over the slices listed, and
the intervals hold together for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.records import Table
from heldout.data.testset import TestSet
from heldout.measure.score.estimate import LEVEL, generator
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import (
    DISCOVERED,
    DISCOVERED_P,
    DISCOVERED_REST,
    SEARCHED,
    Summary,
    estimated,
)
from heldout.measure.score.slices import (
    CLASS,
    Partition,
    cluster_codes,
    format_value,
    join,
    parse_slice,
    partitions,
    split_edges,
    with_cluster_name,
)
from heldout.stats.bootstrap import MINIMUM_CLUSTERS
from heldout.stats.intervals import Interval, clopper_pearson, interval_from_error, t_quantile
from heldout.stats.multiple import holm, simultaneous_level
from heldout.stats.slices import slice_means

DEPTH = 3
"""Most columns of a conjunction."""
FINEST = 12
"""A column of numbers with more values than this is cut at its quartiles."""
MINIMUM_N = 20
MOST = 10
SAME = 0.5
"""Slices that share more than this part of their joint images are one finding; the worse is reported."""
_MOST_PAIRS = 30_000_000  # of rows and slices: about 500 MB


def search_entries(testset: TestSet, columns: Sequence[str] | None = None) -> list[str]:
    """What a search slices by: the columns asked for, else the class and every column but text.

    Numbers of more than :data:`FINEST` values are cut at quartiles. The cuts come from the columns
    alone, never from what a model did, so that no search can profit from them.
    """
    if columns is None:
        kinds = testset.card.columns
        columns = [CLASS, *(name for name, kind in kinds.items() if kind.kind != "text")]
    return [_cut(testset, name) for name in dict.fromkeys(columns)]


def _cut(testset: TestSet, name: str) -> str:
    kind = testset.card.columns.get(name)
    if kind is None or kind.multi or kind.kind == "text":
        return name
    import pyarrow.types as types

    column = testset.images[name].drop_null()
    if not types.is_floating(column.type) and not types.is_integer(column.type):
        return name
    numbers = column.to_numpy().astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if len(np.unique(numbers)) <= FINEST:
        return name
    edges = np.unique(np.quantile(numbers, [0.25, 0.5, 0.75]))
    texts = dict.fromkeys(format_value(float(edge)) for edge in edges if edge > numbers.min())
    return f"{name}@{','.join(texts)}"


def conjunctions(
    measured: Measured, entries: Sequence[str], *, minimum_n: int, among: np.ndarray
) -> Partition:
    """Every slice by one to three of the entries with ``minimum_n`` rows ``among`` (n,), but not all.

    Columns of one conjunction are distinct. An image without a value is in no slice of that column.
    """
    testset = measured.testset
    if any("&" in entry and entry not in testset.card.columns for entry in entries):
        raise UserError("a search makes the conjunctions itself", fix="name single columns")
    # In order of name, as slices write their columns; a conjunction is made from them in order, once.
    ordered = sorted(entries, key=lambda entry: split_edges(entry, testset)[0])
    singles = [_large(part, among, minimum_n) for part in partitions(measured, ordered)]
    level = list(enumerate(singles))
    every = list(singles)
    for _ in range(DEPTH - 1):
        deeper = []
        for last, part in level:
            for place in range(last + 1, len(singles)):
                made = _large(join(part, singles[place]), among, minimum_n)
                deeper.append((place, made))
                every.append(made)
            if sum(len(part.codes) for part in every) > _MOST_PAIRS:
                raise UserError(
                    "these columns make too many conjunctions to search",
                    fix="name fewer with --column, or raise --minimum-n",
                )
        level = deeper
    firsts = np.cumsum([0, *(len(part.names) for part in every)])
    found = Partition(
        np.concatenate([part.positions for part in every]),
        np.concatenate(
            [part.codes + first for part, first in zip(every, firsts[:-1], strict=True)]
        ),
        tuple(name for part in every for name in part.names),
        False,
    )
    if not found.names:
        raise NotApplicable(
            f"no slice of {testset.name} has {minimum_n} images in the half that is searched",
            fix="lower --minimum-n, or import the set with columns that have more images per value",
        )
    kept = np.flatnonzero(_sizes(found, among) < among.sum())  # all images are not a slice
    if not len(kept):
        raise NotApplicable(
            f"every slice of {testset.name} holds all images", fix="name other columns"
        )
    return found.of_slices(kept)


def _sizes(slices: Partition, among: np.ndarray) -> np.ndarray:
    """How many of some rows, bool (n,), each slice holds; float64 (slices,)."""
    return np.bincount(slices.codes, among[slices.positions], minlength=len(slices.names))


def _large(slices: Partition, among: np.ndarray, minimum_n: int) -> Partition:
    return slices.of_slices(np.flatnonzero(_sizes(slices, among) >= minimum_n))


@dataclass(frozen=True, eq=False, kw_only=True)
class Discovered:
    """One slice in which a model fails more than elsewhere.

    ``rows``      measured rows of the slice that ``value`` is about: those of the held-out half
    ``value``     the metric there, ``rest`` on all other images of that half
    ``p``         corrected for the search; None where the held-out half cannot say
    ``interval``  of ``value``, corrected for the search, or None with a ``reason``
    """

    record: ClassVar[str] = "worst_slice"
    table: ClassVar[Table] = Table(
        "{model}: where it fails most",
        ("slice", "images=n:,", "percent=value:%1[]", "elsewhere=rest:%1", "p:.3g"),
    )
    model: str
    slice: str
    rows: np.ndarray
    value: float
    rest: float
    p: float | None = None
    interval: Interval | None = None
    reason: str | None = None

    @property
    def n(self) -> int:
        """Images of the slice."""
        return len(self.rows)

    @property
    def low(self) -> float | None:
        """The lower limit."""
        return None if self.interval is None else float(self.interval.low)

    @property
    def high(self) -> float | None:
        """The upper limit."""
        return None if self.interval is None else float(self.interval.high)


@dataclass(frozen=True, eq=False, kw_only=True)
class Discovery:
    """The worst slices of one model, of ``searched``, measured on ``held_out`` images."""

    measured: Measured
    searched: int
    held_out: int
    found: tuple[Discovered, ...]


def discover(
    measured: Measured,
    columns: Sequence[str] | None = None,
    *,
    minimum_n: int = MINIMUM_N,
    most: int = MOST,
    cluster: str | None = None,
    seed: int = 0,
    level: float = LEVEL,
) -> Discovery:
    """The worst conjunctions of columns for the one model measured, corrected for the search.

    ``columns``    what to search; by default the class and every column of the set but text
    ``cluster``    the column whose images belong together
    """
    if not measured.metric.counted:
        raise NotApplicable(
            f"slices are searched by a plain accuracy, not by {measured.metric.name}",
            fix="use top1, real, mla_micro or accepted",
        )
    (model,) = measured.models
    clusters = None
    if cluster is not None:
        clusters = cluster_codes(measured, cluster)
    elif len(measured.first_row_of_image) < len(measured):
        clusters = measured.rows  # rows of one image were drawn together
    rng = generator(seed, measured, f"discover {measured.metric.name} held-out {model}")
    first = _half(measured, clusters, rng)
    entries = search_entries(measured.testset, columns)
    slices = conjunctions(measured, entries, minimum_n=max(2, minimum_n // 2), among=first)
    hits, other = measured.values[:, 0], np.flatnonzero(~first)
    there = hits[other].astype(np.float64)
    parts = {
        name: np.isin(other, rows, assume_unique=True)
        for name, rows in _worst_first(slices, ~hits, first, most).items()
    }
    parts = {name: part for name, part in parts.items() if 2 <= part.sum() < len(other)}
    together = None if clusters is None else clusters[other]
    shared = simultaneous_level(level, max(len(parts), 1))
    found = []
    for name, part in parts.items():
        p, interval, reason = _held_out(there, part, together, shared)
        found.append(
            Discovered(
                model=model,
                slice=name,
                rows=other[part],
                value=float(there[part].mean()),
                rest=float(there[~part].mean()),
                p=p,
                interval=interval and replace(interval, level=level),
                reason=with_cluster_name(reason, cluster),
            )
        )
    known = [place for place, item in enumerate(found) if item.p is not None]
    for place, p in zip(known, holm([found[place].p or 0.0 for place in known]), strict=True):
        found[place] = replace(found[place], p=float(p))
    found.sort(key=lambda item: 2.0 if item.p is None else item.p)
    return Discovery(
        measured=measured, searched=len(slices.names), held_out=len(other), found=tuple(found)
    )


def _half(measured: Measured, clusters: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """The rows to search, bool (n,): half of the images, or of the clusters, which are kept whole."""
    units, unit = np.unique(measured.rows if clusters is None else clusters, return_inverse=True)
    if len(units) < 4:
        raise NotApplicable(
            f"{len(units)} clusters cannot be halved" if clusters is not None else "too few images",
            fix="search a larger test set",
        )
    return np.isin(unit, rng.permutation(len(units))[: len(units) // 2])


def excesses(slices: Partition, errors: np.ndarray, among: np.ndarray) -> np.ndarray:
    """How far each slice's errors ``among`` some rows lie above their rate, in standard deviations.

    float64 (slices,), from bool (n,). A slice of n of N images drawn at random, without return, has
    ``n p`` errors on average with variance ``n p (1 - p) (N - n) / (N - 1)``.
    """
    total, n, rate = int(among.sum()), _sizes(slices, among), errors[among].mean()
    spread = np.sqrt(n * rate * (1 - rate) * (total - n) / (total - 1))
    gap = _sizes(slices, errors & among) - n * rate
    return np.asarray(np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0))


def _worst_first(
    slices: Partition, errors: np.ndarray, among: np.ndarray, most: int
) -> dict[str, np.ndarray]:
    """The worst slices ``among`` some rows, each with all its rows.

    Of equals fewer columns, more images, the name; near copies are left out.
    """
    excess, sizes = excesses(slices, errors, among), _sizes(slices, among)
    columns = np.array([name.count("&") for name in slices.names])
    order = np.lexsort((np.array(slices.names), -sizes, columns, -excess.round(9)))
    members = slices.slices()
    chosen: dict[str, np.ndarray] = {}
    taken: list[np.ndarray] = []
    for number in order:
        if excess[number] <= 0 or len(chosen) == most:
            break
        name = slices.names[number]
        rows = members[name][among[members[name]]]
        shares = [len(np.intersect1d(rows, other, assume_unique=True)) for other in taken]
        if all(
            shared <= SAME * (len(rows) + len(other) - shared)
            for shared, other in zip(shares, taken, strict=True)
        ):
            chosen[name] = members[name]
            taken.append(rows)
    return chosen


def _held_out(
    hits: np.ndarray, inside: np.ndarray, clusters: np.ndarray | None, level: float
) -> tuple[float | None, Interval | None, str | None]:
    """p and interval of the rows ``inside``, or why there are none."""
    from scipy.stats import hypergeom
    from scipy.stats import t as student

    if clusters is None:
        right, n = int(hits[inside].sum()), int(inside.sum())
        limits = clopper_pearson(right, n, level=level)
        p = float(hypergeom.cdf(right, len(hits), hits.sum(), n))
        return p, replace(limits, method=f"held-out-{limits.method}"), None
    means = slice_means(hits[:, None], inside.astype(np.int64), count=2, clusters=clusters)
    fewest = int(means.clusters.min())
    if fewest < MINIMUM_CLUSTERS:
        few = f"{fewest} clusters are too few for an interval, which needs {MINIMUM_CLUSTERS}"
        return None, None, few
    there, gap = means.contrast([0.0, 1.0]), means.contrast([1.0, -1.0])
    limits = interval_from_error(
        there.value,
        there.error,
        quantile=t_quantile(level, there.degrees),
        level=level,
        bounds=(0.0, 1.0),
        units=there.degrees + 1.0,
    ).at(0)
    error, distance = float(gap.error[0]), float(gap.value[0])
    if error > 0:
        p = float(student.sf(distance / error, gap.degrees[0]))
    else:  # nothing varies on either side: as unlikely as that many clusters that all toss the same
        p = 0.5**fewest if distance > 0 else 1.0
    return p, replace(limits, method=f"held-out-cluster-{limits.method}"), None


def discovery_records(discovery: Discovery) -> list[Summary]:
    """A search as summaries: how many slices were looked at, then three numbers per slice.

    ``searched``         slices looked at (``n``)
    ``discovered``       the metric on the slice ``at``, with its corrected interval
    ``discovered_rest``  the metric on all other images of the held-out half
    ``discovered_p``     the corrected p-value, None where there is none
    """
    subject: dict[str, Any] = discovery.measured.subject(0)
    said = f"{discovery.searched:,} slices were searched on one half and measured on the other"
    records = [
        Summary(**subject, columns="", name=SEARCHED, n=discovery.searched, value=None, reason=said)
    ]
    for item in discovery.found:
        subject |= {"columns": "&".join(parse_slice(item.slice)), "at": item.slice}
        value = estimated(item.value, item.interval, reason=item.reason)
        p = estimated(item.p, reason=item.reason)
        rest = discovery.held_out - item.n
        records += [
            Summary(**subject, name=DISCOVERED, n=item.n, **value),
            Summary(**subject, name=DISCOVERED_REST, n=rest, value=item.rest),
            Summary(**subject, name=DISCOVERED_P, n=item.n, **p),
        ]
    return records

"""Slice search: in which slice a model fails most, corrected for having looked at all of them.

Every conjunction of up to three columns is looked at. The worst of thousands of slices looks bad by
chance alone, so a slice is reported only after a correction for the search:

``permutation``  which images a model misses is shuffled, and the search is run again on every
                 shuffle. ``p`` is how often the worst of all slices then looks as bad as this one
                 (Westfall and Young 1993), so it holds for all slices together. The interval is
                 exact, its level divided among all slices that were searched.
``held-out``     slices are found on one half and measured on the other, which had no part in
                 choosing them. Whole clusters go to one half. ``p`` is Holm's over the slices
                 listed, and the intervals hold together for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.records import Table
from heldout.data.testset import TestSet
from heldout.measure.score.estimate import LEVEL, generator
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Summary, estimated
from heldout.measure.score.slices import (
    CLASS,
    cluster_codes,
    format_value,
    parse_slice,
    partitions,
    with_cluster_name,
)
from heldout.stats.bootstrap import MINIMUM_CLUSTERS
from heldout.stats.intervals import Interval, clopper_pearson, interval_from_error, t_quantile
from heldout.stats.multiple import holm
from heldout.stats.slices import slice_means

DEPTH = 3
FINEST = 12
"""A column of numbers with more values than this is cut at its quartiles."""
_MOST_PAIRS = 60_000_000  # of rows and slices: about 500 MB


@dataclass(frozen=True, eq=False)
class Conjunctions:
    """Slices by one to three columns, each of at least the asked number of rows.

    ``names``    as records name them, those of one column first
    ``columns``  (slices,): how many columns each has
    ``rows``     a sparse matrix (slices, n) of ones, int32: which measured rows a slice holds
    """

    names: tuple[str, ...]
    columns: np.ndarray
    rows: Any

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n(self) -> np.ndarray:
        """Rows of each slice; int64 (slices,)."""
        return np.asarray(np.diff(self.rows.indptr), dtype=np.int64)

    def positions(self, slice_number: int) -> np.ndarray:
        """The sorted measured rows of a slice."""
        start, end = self.rows.indptr[slice_number : slice_number + 2]
        return np.sort(self.rows.indices[start:end])


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
    measured: Measured, entries: Sequence[str], *, depth: int = DEPTH, minimum_n: int
) -> Conjunctions:
    """Every slice by one to ``depth`` of the entries with ``minimum_n`` rows or more, but not all.

    Columns of one conjunction are distinct. An image without a value is in no slice of that column.
    """
    from scipy.sparse import csr_array, vstack

    if not 1 <= depth <= DEPTH:
        raise UserError(f"conjunctions of {depth} columns", fix=f"choose 1 to {DEPTH}")
    if any("&" in entry and entry not in measured.testset.card.columns for entry in entries):
        raise UserError("a search makes the conjunctions itself", fix="name single columns")
    n = len(measured)
    singles: list[tuple[list[str], Any]] = []
    for partition in partitions(measured, entries):
        ones = np.ones(len(partition.codes), dtype=np.int32)
        whole = csr_array(
            (ones, (partition.codes, partition.positions)), shape=(len(partition.names), n)
        )
        large = np.flatnonzero(np.diff(whole.indptr) >= minimum_n)
        singles.append(([partition.names[code] for code in large], whole[large]))
    # A conjunction is made from its columns in order, so each is made once.
    level = [(place, names, rows) for place, (names, rows) in enumerate(singles)]
    every = list(level)
    for _ in range(depth - 1):
        deeper = []
        for last, names, rows in level:
            for place in range(last + 1, len(singles)):
                made = _shared(names, rows, *singles[place], minimum_n)
                if made[0]:
                    deeper.append((place, *made))
                if sum(rows.nnz for _, _, rows in [*every, *deeper]) > _MOST_PAIRS:
                    raise UserError(
                        "these columns make too many conjunctions to search",
                        fix="name fewer with --column, raise --minimum-n, or lower --depth",
                    )
        every += deeper
        level = deeper
    found = [name for _, names, _ in every for name in names]
    if not found:
        raise NotApplicable(
            f"no slice of {measured.testset.name} has {minimum_n} images", fix="lower --minimum-n"
        )
    rows = vstack([rows for _, names, rows in every if names], format="csr")
    part = np.flatnonzero(np.diff(rows.indptr) < n)  # all images are not a slice
    if not len(part):
        raise NotApplicable(
            f"every slice of {measured.testset.name} holds all images", fix="name other columns"
        )
    kept = tuple(found[row] for row in part)
    return Conjunctions(kept, np.array([name.count("&") + 1 for name in kept]), rows[part])


def _shared(
    names: list[str], rows: Any, others: list[str], other_rows: Any, minimum_n: int
) -> tuple[list[str], Any]:
    """The slices that hold what a slice of each side shares, where that is enough."""
    sizes = (rows @ other_rows.T).tocoo()
    large = sizes.data >= minimum_n
    first, second = sizes.coords[0][large], sizes.coords[1][large]
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    both = rows[first].multiply(other_rows[second]).tocsr()
    made = []
    for a, b in zip(first, second, strict=True):
        # The parts of both by column, as slices are written.
        parts = [*names[a].split("&"), others[b]]
        made.append("&".join(sorted(parts, key=lambda part: unquote(part.partition("=")[0]))))
    return made, both


Method = Literal["permutation", "held-out"]
METHODS: tuple[Method, ...] = ("permutation", "held-out")
MINIMUM_N = 20
PERMUTATIONS = 999
MOST = 10
SAME = 0.5
"""Slices that share more than this part of their joint images are one finding; the worse is reported."""
DISCOVERED, DISCOVERED_P, DISCOVERED_REST = "discovered", "discovered_p", "discovered_rest"
SEARCHED = "searched"
_BLOCK = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class Discovered:
    """One slice in which a model fails more than elsewhere.

    ``rows``      measured rows of the slice that ``value`` is about
    ``value``     the metric there, ``rest`` on all other images
    ``p``         corrected for the search; None where the held-out half cannot say
    ``interval``  of ``value``, corrected for the search, or None with a ``reason``
    """

    record: ClassVar[str] = "worst_slice"
    table: ClassVar[Table] = Table(
        "{model}: where it fails most",
        ("slice", "images=n:,", "percent=value:%1[]", "elsewhere=rest:%1", "p:.3g"),
    )
    model: str = ""
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
    """The worst slices of one model; ``searched`` conjunctions were looked at."""

    measured: Measured
    model: str
    method: Method
    searched: int
    found: tuple[Discovered, ...]


def discover(
    measured: Measured,
    columns: Sequence[str] | None = None,
    *,
    model: str | None = None,
    depth: int = DEPTH,
    minimum_n: int = MINIMUM_N,
    most: int = MOST,
    method: Method | None = None,
    cluster: str | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    level: float = LEVEL,
) -> Discovery:
    """The worst conjunctions of columns for one model, corrected for the search.

    ``columns``    what to search; by default the class and every column of the set but text
    ``model``      which of the measured; the only one needs no name
    ``method``     one of :data:`METHODS`; by default ``held-out`` where images come in clusters,
                   which shuffling would break up, and else ``permutation``
    ``cluster``    the column whose images belong together
    """
    if not measured.metric.counted:
        raise NotApplicable(
            f"slices are searched by a plain accuracy, not by {measured.metric.name}",
            fix="use top1, real, mla_micro or accepted",
        )
    if method is not None and method not in METHODS:
        raise UserError(f"no method {method!r}", fix=f"use {' or '.join(METHODS)}")
    if minimum_n < 2 or most < 1 or permutations < 1:
        raise UserError(
            "a search needs slices of 2 images or more, a slice to list and a permutation",
            fix="raise --minimum-n, --top or --permutations",
        )
    if model is None and len(measured.models) > 1:
        raise UserError("slices are searched for one model", fix="name it with model=")
    name = model or measured.models[0]
    one = measured.of_models([name])
    clusters = _clusters(one, cluster)
    chosen: Method = method or ("permutation" if clusters is None else "held-out")
    if chosen == "permutation" and clusters is not None:
        raise NotApplicable(
            "images that come in clusters cannot be shuffled one by one", fix="use held-out"
        )
    entries = search_entries(measured.testset, columns)
    rng = generator(seed, measured, f"discover {measured.metric.name} {chosen} {name}")
    if chosen == "permutation":
        slices = conjunctions(one, entries, depth=depth, minimum_n=minimum_n)
        found = _by_permutation(one, slices, most, permutations, rng, level)
    else:
        first, kept = _halves(one, clusters, rng)
        least = max(2, minimum_n // 2)
        slices = conjunctions(first, entries, depth=depth, minimum_n=least)
        excess = excesses(slices, 1 - first.values.astype(np.int32))[:, 0]
        names = [slices.names[number] for number in _worst_first(slices, excess, most)]
        found = _on_other_half(one, kept, entries, names, clusters, level)
        found = [replace(item, reason=with_cluster_name(item.reason, cluster)) for item in found]
    listed = tuple(replace(item, model=name) for item in found)
    return Discovery(measured=one, model=name, method=chosen, searched=len(slices), found=listed)


def _clusters(measured: Measured, cluster: str | None) -> np.ndarray | None:
    """Which rows were drawn together: by a column, or rows of one image; None where all are alone."""
    if cluster is not None:
        return cluster_codes(measured, cluster)
    return None if len(np.unique(measured.rows)) == len(measured) else measured.rows


def excesses(slices: Conjunctions, errors: np.ndarray) -> np.ndarray:
    """How far each slice's errors (n, k) lie above the overall rate, in standard deviations.

    float64 (slices, k). A slice of n of N images drawn at random, without return, has ``n p``
    errors on average with variance ``n p (1 - p) (N - n) / (N - 1)``.
    """
    total, n = len(errors), slices.n[:, None].astype(np.float64)
    rate = errors.mean(axis=0, dtype=np.float64)
    spread = np.sqrt(n * rate * (1 - rate) * (total - n) / (total - 1))
    gap = np.asarray(slices.rows @ errors, dtype=np.float64) - n * rate
    return np.asarray(np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0))


def _worst_first(slices: Conjunctions, excess: np.ndarray, most: int) -> list[int]:
    """The worst slices; of equals fewer columns, more images, the name; near copies left out."""
    order = np.lexsort((np.array(slices.names), -slices.n, slices.columns, -excess.round(9)))
    chosen: list[int] = []
    taken: list[np.ndarray] = []
    for number in order:
        if excess[number] <= 0 or len(chosen) == most:
            break
        rows = slices.positions(number)
        shares = [len(np.intersect1d(rows, other, assume_unique=True)) for other in taken]
        if all(
            shared <= SAME * (len(rows) + len(other) - shared)
            for shared, other in zip(shares, taken, strict=True)
        ):
            chosen.append(int(number))
            taken.append(rows)
    return chosen


def _in_slice(hits: np.ndarray, name: str, rows: np.ndarray) -> Discovered:
    """The metric inside a slice and outside it."""
    rest = float(np.delete(hits, rows).mean())
    return Discovered(slice=name, rows=rows, value=float(hits[rows].mean()), rest=rest)


def _exact(hits: np.ndarray, level: float, looks: int, by: str) -> Interval:
    """Clopper and Pearson's interval, its level divided among ``looks`` slices."""
    found = clopper_pearson(hits.sum(), len(hits), level=1 - (1 - level) / looks)
    return Interval(found.low, found.high, f"{by}-clopper-pearson", level)


def _by_permutation(
    measured: Measured,
    slices: Conjunctions,
    most: int,
    permutations: int,
    rng: np.random.Generator,
    level: float,
) -> list[Discovered]:
    hits = measured.values[:, 0].astype(bool)
    errors = (~hits).astype(np.int32)
    excess = excesses(slices, errors[:, None])[:, 0]
    largest = np.empty(permutations)
    for start in range(0, permutations, _BLOCK):
        end = min(start + _BLOCK, permutations)
        shuffled = rng.permuted(np.repeat(errors[None], end - start, axis=0), axis=1).T
        largest[start:end] = excesses(slices, np.ascontiguousarray(shuffled)).max(axis=0)
    found = []
    for number in _worst_first(slices, excess, most):
        item = _in_slice(hits, slices.names[number], slices.positions(number))
        as_bad = int((largest >= excess[number] - 1e-9).sum())
        limits = _exact(hits[item.rows], level, len(slices), "bonferroni")
        found.append(replace(item, p=(1 + as_bad) / (1 + permutations), interval=limits))
    return found


def _halves(
    measured: Measured, clusters: np.ndarray | None, rng: np.random.Generator
) -> tuple[Measured, np.ndarray]:
    """One half of a measurement to search, and the rows of the other; clusters are kept whole."""
    units, unit = np.unique(measured.rows if clusters is None else clusters, return_inverse=True)
    if len(units) < 4:
        raise NotApplicable(
            f"{len(units)} clusters cannot be halved" if clusters is not None else "too few images",
            fix="search a larger test set",
        )
    first = np.isin(unit, rng.permutation(len(units))[: len(units) // 2])
    return measured.select(np.flatnonzero(first)), np.flatnonzero(~first)


def _on_other_half(
    measured: Measured,
    kept: np.ndarray,
    entries: Sequence[str],
    names: Sequence[str],
    clusters: np.ndarray | None,
    level: float,
) -> list[Discovered]:
    """The slices called ``names`` on the rows ``kept``, which had no part in finding them."""
    other = measured.select(kept)
    single: dict[str, np.ndarray] = {}
    for partition in partitions(other, entries):
        single |= partition.slices()
    empty = np.empty(0, dtype=np.int64)
    rows = {
        name: reduce(np.intersect1d, [single.get(part, empty) for part in name.split("&")])
        for name in names
    }
    rows = {name: mine for name, mine in rows.items() if 2 <= len(mine) < len(other)}
    together = clusters[kept] if clusters is not None else None
    hits = other.values[:, 0].astype(np.float64)
    made = [_held_out(hits, *item, together, len(rows), level) for item in rows.items()]
    known = {item.slice: item.p for item in made if item.p is not None}
    corrected = holm(list(known.values())).tolist() if known else []
    p = dict(zip(known, corrected, strict=True))
    found = [replace(item, p=p.get(item.slice), rows=kept[item.rows]) for item in made]
    return sorted(found, key=lambda item: 2.0 if item.p is None else item.p)


def _held_out(
    hits: np.ndarray,
    name: str,
    rows: np.ndarray,
    clusters: np.ndarray | None,
    listed: int,
    level: float,
) -> Discovered:
    """One slice, with limits and p of its own; ``listed`` intervals hold together."""
    from scipy.stats import hypergeom
    from scipy.stats import t as student

    item = _in_slice(hits, name, rows)
    if clusters is None:
        p = float(hypergeom.cdf(int(hits[rows].sum()), len(hits), hits.sum(), len(rows)))
        return replace(item, p=p, interval=_exact(hits[rows], level, listed, "held-out"))
    inside = np.zeros(len(hits), dtype=np.int64)
    inside[rows] = 1
    means = slice_means(hits[:, None], inside, count=2, clusters=clusters)
    fewest = int(means.clusters.min())
    if fewest < MINIMUM_CLUSTERS:
        few = f"{fewest} clusters are too few for an interval, which needs {MINIMUM_CLUSTERS}"
        return replace(item, reason=few)
    there, gap = means.contrast([0.0, 1.0]), means.contrast([1.0, -1.0])
    shared = 1 - (1 - level) / listed
    wilson = interval_from_error(
        there.value,
        there.error,
        quantile=t_quantile(shared, there.degrees),
        level=shared,
        bounds=(0.0, 1.0),
        units=there.degrees + 1.0,
    ).at(0)
    error, distance = float(gap.error[0]), float(gap.value[0])
    if error > 0:
        p = float(student.sf(distance / error, gap.degrees[0]))
    else:  # nothing varies on either side: as unlikely as that many clusters that all toss the same
        p = 0.5**fewest if distance > 0 else 1.0
    limits = Interval(wilson.low, wilson.high, f"held-out-cluster-{wilson.method}", level)
    return replace(item, p=p, interval=limits)


def discovery_records(discovery: Discovery) -> list[Summary]:
    """A search as summaries: how many slices were looked at, then three numbers per slice.

    ``searched``         slices looked at (``n``)
    ``discovered``       the metric on the slice ``at``, with its corrected interval
    ``discovered_rest``  the metric on all other images
    ``discovered_p``     the corrected p-value, None where there is none
    """
    measured = discovery.measured
    subject = measured.subject(0)
    said = f"{discovery.searched:,} slices were searched, corrected by {discovery.method}"
    records = [
        Summary(**subject, columns="", name=SEARCHED, n=discovery.searched, value=None, reason=said)
    ]
    for item in discovery.found:
        subject |= {"columns": "&".join(parse_slice(item.slice)), "at": item.slice}
        value = estimated(item.value, item.interval, reason=item.reason)
        p = estimated(item.p, reason=item.reason)
        rest = len(measured) - item.n
        records += [
            Summary(**subject, name=DISCOVERED, n=item.n, **value),
            Summary(**subject, name=DISCOVERED_REST, n=rest, value=item.rest),
            Summary(**subject, name=DISCOVERED_P, n=item.n, **p),
        ]
    return records


def is_discovery(record: Summary) -> bool:
    """Whether a summary is one of :func:`discovery_records`."""
    return record.name in (SEARCHED, DISCOVERED, DISCOVERED_REST, DISCOVERED_P)

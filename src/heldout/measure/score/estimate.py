"""Score records: estimates with intervals for the whole set, slices and classes, and ranks.

k of n images: Wilson (or Clopper-Pearson). Everything else is resampled: means and means of class
means by the bootstrap over images, inside classes where classes are averaged, whole clusters at a
time where a cluster column is named; a calibration error with its bins held in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.files import atomic_path
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Count, Score
from heldout.measure.score.slices import (
    Partition,
    cluster_codes,
    format_slice,
    partitions,
    with_cluster_name,
)
from heldout.stats.bootstrap import bootstrap_mean, bootstrap_statistic
from heldout.stats.intervals import clopper_pearson, interval_from_replicates, wilson
from heldout.stats.multiple import rank_intervals, worst_slice_interval

REPLICATES = 1000
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Estimates:
    """The metric of every model, (models,) each; limits and method are None without an interval.

    ``reason`` then says why.
    """

    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    method: str | None
    reason: str | None = None


def generator(seed: int, measured: Measured, purpose: str) -> np.random.Generator:
    """The generator for one purpose: the same images, truth and seed give the same draws.

    Neither the order of images or models matters, nor what else the test set holds.
    """
    card = measured.testset.card
    hashes = (card.images_hash, card.tables.get(f"truth/{measured.truth}", ""))
    words = [int(text[i : i + 8], 16) for text in hashes if text for i in (0, 8)]
    return np.random.default_rng([seed, *words, *purpose.encode()])


def estimate(
    part: Measured,
    *,
    rng: np.random.Generator,
    clusters: np.ndarray | None = None,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    exact: bool = False,
) -> Estimates:
    """The metric of every model on the rows of ``part``, with its interval.

    ``clusters`` (n,) are codes of rows that belong together. Too few images or clusters to tell
    anything of their spread is refused, as :mod:`heldout.stats` does.
    """
    # In order of name: what is drawn for a model must not depend on where it stands.
    order = sorted(range(len(part.models)), key=part.models.__getitem__)
    named = part.of_models([part.models[m] for m in order])
    value, low, high, method = _estimate(named, rng, clusters, replicates, level, exact)
    back = np.argsort(order)
    return Estimates(value[back], low[back], high[back], method)


def _estimate(
    part: Measured,
    rng: np.random.Generator,
    clusters: np.ndarray | None,
    replicates: int,
    level: float,
    exact: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    metric = part.metric
    if part.counted and clusters is None:
        k, n = part.values.sum(axis=0), len(part)
        interval = clopper_pearson(k, n, level=level) if exact else wilson(k, n, level=level)
        return k / n, interval.low, interval.high, interval.method
    if metric.bins is not None:
        return _calibration(part, rng, clusters, replicates, level)
    if metric.per_class:
        raise NotApplicable(f"{metric.name} is a score for each class", fix="use class_scores")
    classes = metric.average == "classes"
    found = bootstrap_mean(
        part.values,
        rng=rng,
        replicates=replicates,
        level=level,
        strata=part.groups if classes and clusters is None else None,
        clusters=clusters,
        weights=class_weights(part) if classes and clusters is not None else part.weights,
        statistic="mean_of_strata_means" if classes and clusters is None else "mean",
        bounds=(0.0, 1.0) if metric.plain else None,
    )
    return found.value, found.interval.low, found.interval.high, found.interval.method


def class_weights(part: Measured) -> np.ndarray:
    """Weights under which the mean over images is the mean of class means.

    Clusters such as photographers cut across classes, so classes cannot be strata for them.
    """
    _, codes, sizes = np.unique(part.groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / sizes[codes])


def _calibration(
    part: Measured,
    rng: np.random.Generator,
    clusters: np.ndarray | None,
    replicates: int,
    level: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, str]:
    """ECE takes absolute values, so noise pushes it up, and a resample's noise pushes twice.

    Where the error is small against its noise no one bootstrap interval holds its level; the union
    of the basic interval (which mirrors the replicates at the estimate and so takes the push off)
    and of estimate ± t times the standard error does. The low limit is 0 where a model that means
    its confidences could well have shown as much.
    """
    codes = part.bin_codes()
    found = bootstrap_statistic(
        lambda weights: part.calibration_errors(weights, codes),
        len(part),
        rng=rng,
        replicates=replicates,
        level=level,
        clusters=clusters,
        takes="weights",
        method="t",
        bounds=(0.0, 1.0),
    )
    value, symmetric = np.atleast_1d(found.value), found.interval
    basic = interval_from_replicates(
        value, found.replicates, level=level, method="basic", bounds=(0.0, 1.0)
    )
    low, high = np.minimum(symmetric.low, basic.low), np.maximum(symmetric.high, basic.high)
    chance = np.quantile(_calibrated_errors(part, codes, rng, replicates), (1 + level) / 2, axis=0)
    bins = "" if part.metric.bins is None else f", {part.metric.bins.about}"
    method = symmetric.method.removesuffix("-t") + "-basic-or-t"
    return value, np.where(value <= chance, 0.0, low), high, method + bins


def _calibrated_errors(
    part: Measured, codes: np.ndarray, rng: np.random.Generator, replicates: int
) -> np.ndarray:
    """What ECE would show if every confidence were meant; (replicates, models).

    In each bin, hits less confidence then sum to about a normal of variance ``sum c (1 - c)``.
    """
    if part.confidence is None or part.metric.bins is None:
        raise NotApplicable(f"{part.metric.name} has no bins", fix="measure ece")
    count = part.metric.bins.count
    draws = np.abs(rng.standard_normal((replicates, count)))
    columns = zip(codes.T, part.confidence.T, strict=True)
    spread = [np.sqrt(np.bincount(code, c * (1 - c), minlength=count)) for code, c in columns]
    return np.asarray(draws @ np.stack(spread, axis=1) / len(part))


def estimate_or_value(
    part: Measured,
    *,
    rng: np.random.Generator,
    clusters: np.ndarray | None = None,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    exact: bool = False,
) -> Estimates:
    """As :func:`estimate`, and the value alone where a slice is too small for an interval."""
    try:
        return estimate(
            part, rng=rng, clusters=clusters, replicates=replicates, level=level, exact=exact
        )
    except NotApplicable as refused:
        return Estimates(part.estimates(), None, None, None, refused.message)


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Images of one class with one other first guess; ``share`` is of the images of the class."""

    class_id: str
    class_name: str
    guess_id: str
    guess_name: str
    n: int
    share: float


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """How often images of class ``i`` got the first guess ``j``, cells with n > 0 only.

    ``classes``, ``guesses``  int64 (cells,), sorted by class, then guess; a guess of -1 is none:
                              no output, or a class that is not of the set
    ``n``                     int64 (cells,)
    """

    model: str
    space: LabelSpace
    classes: np.ndarray
    guesses: np.ndarray
    n: np.ndarray

    def dense(self) -> np.ndarray:
        """As an array (classes, classes + 1), class by guess; the last column counts no guess."""
        size = len(self.space)
        counts = np.zeros((size, size + 1), dtype=np.int64)
        counts[self.classes, self.guesses] = self.n  # -1 is the last column
        return counts

    def sparse(self) -> Any:
        """As a ``scipy.sparse.csr_array`` of the same shape: the way to hold thousands of classes."""
        from scipy.sparse import csr_array

        size = len(self.space)
        columns = np.where(self.guesses < 0, size, self.guesses)
        return csr_array((self.n, (self.classes, columns)), shape=(size, size + 1))

    def top(self, count: int = 20) -> list[Confusion]:
        """The most frequent confusions, directed: class to guess; ties by class, then guess, in order."""
        totals = np.bincount(self.classes, self.n, minlength=len(self.space))
        wrong = np.flatnonzero((self.guesses >= 0) & (self.guesses != self.classes))
        order = wrong[np.lexsort((self.guesses[wrong], self.classes[wrong], -self.n[wrong]))]
        return [
            Confusion(
                class_id=actual.id,
                class_name=actual.name,
                guess_id=guess.id,
                guess_name=guess.name,
                n=int(self.n[cell]),
                share=float(self.n[cell] / totals[self.classes[cell]]),
            )
            for cell in order[:count]
            for actual in [self.space.classes[self.classes[cell]]]
            for guess in [self.space.classes[self.guesses[cell]]]
        ]

    def write(self, path: Path) -> None:
        """Write the cells as ``.csv`` or ``.parquet``: class_id, class_name, guess_id, guess_name, n.

        Where there was no guess, the last two are empty (null in Parquet).
        """
        if path.suffix not in (".csv", ".parquet"):
            raise UserError(f"{path.name} is neither .csv nor .parquet", fix="name such a file")
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq

        items = self.space.classes
        table = pa.table(
            {
                "class_id": pa.array([items[c].id for c in self.classes], pa.string()),
                "class_name": pa.array([items[c].name for c in self.classes], pa.string()),
                "guess_id": pa.array([_of(items, g, "id") for g in self.guesses], pa.string()),
                "guess_name": pa.array([_of(items, g, "name") for g in self.guesses], pa.string()),
                "n": pa.array(self.n, pa.int64()),
            }
        )
        with atomic_path(path) as temporary:
            if path.suffix == ".csv":
                options = pa.csv.WriteOptions(quoting_style="needed")
                pa.csv.write_csv(table, temporary, write_options=options)
            else:
                pq.write_table(table, temporary)


def _of(items: Any, guess: int, field: str) -> str | None:
    return None if guess < 0 else str(getattr(items[guess], field))


def confusion_matrix(measured: Measured, model: str) -> ConfusionMatrix:
    """The confusion matrix of one model, from a measurement of ``recall`` or ``precision``."""
    guesses = _guesses(measured)[:, measured.position(model)].astype(np.int64)
    size = len(measured.space) + 1
    cells, n = np.unique(measured.groups * size + guesses + 1, return_counts=True)
    classes, shifted = np.divmod(cells, size)
    return ConfusionMatrix(model, measured.space, classes, shifted - 1, n.astype(np.int64))


def class_scores(measured: Measured, *, level: float = LEVEL, exact: bool = False) -> list[Score]:
    """Precision or recall of every model and class, slice ``class=<id>``, with Wilson intervals.

    ``n`` is the number of images of the class (recall), or of images guessed to be of it
    (precision).
    """
    records = []
    for m, hits, n in _tallies(measured):
        known = np.flatnonzero(n > 0)
        limits = (clopper_pearson if exact else wilson)(hits[known], n[known], level=level)
        for place, c in enumerate(known):
            records.append(
                measured.record(
                    m,
                    slice=format_slice({"class": measured.space.ids[c]}),
                    n=int(n[c]),
                    value=float(hits[c] / n[c]),
                    low=float(limits.low[place]),
                    high=float(limits.high[place]),
                    interval=limits.method,
                    level=level,
                )
            )
    return records


def class_counts(measured: Measured) -> list[Count]:
    """How many classes have no record: ``n_classes_without_images`` or ``n_classes_never_guessed``."""
    where = measured.testset.name
    if measured.metric.per_class == "class":
        absent = len(measured.space) - len(np.unique(measured.groups))
        return (
            [Count(name="n_classes_without_images", value=absent, testset=where)] if absent else []
        )
    return [
        Count(name="n_classes_never_guessed", value=absent, model=measured.models[m], testset=where)
        for m, _, n in _tallies(measured)
        if (absent := int((n == 0).sum()))
    ]


def _tallies(measured: Measured) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Model, and hits and images a class (classes,) for each model.

    An image of several classes counts in each of them, and once in the class that it is guessed to
    be of: its hit is then the mean over its rows.
    """
    guesses = _guesses(measured)
    size = len(measured.space)
    by_guess = measured.metric.per_class == "guess"
    values = measured.image_means() if by_guess else measured.values
    for m in range(len(measured.models)):
        group = guesses[measured.first_row_of_image, m] if by_guess else measured.groups
        some = group >= 0
        n = np.bincount(group[some], minlength=size)
        hits = np.bincount(group[some], values[some, m], minlength=size)
        yield m, hits, n


def _guesses(measured: Measured) -> np.ndarray:
    if measured.guesses is None:
        raise NotApplicable(
            f"{measured.metric.name} keeps no guesses", fix="measure recall or precision"
        )
    return measured.guesses


MINIMUM_N = 20
"""Slices with fewer images are shown but never called the worst."""


def scores(
    measured: Measured,
    *,
    by: Sequence[str] = (),
    cluster: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    minimum_n: int = MINIMUM_N,
    exact: bool = False,
) -> list[Score]:
    """Score records of every model: the whole set, then each slice of each entry of ``by``.

    ``by`` names columns, conjunctions or binned columns (``domain``, ``x&y``,
    ``frequency@0.2,0.5``; see :mod:`heldout.measure.score.slices`). For each, a further record
    ``<metric>_worst`` gives the worst slice of at least ``minimum_n`` images, its interval widened
    for having looked at all of them. An image counts once in each, even where the truth has several
    rows for it, unless the metric averages over classes. A slice too small for its kind of interval
    has none, and so has everything under ``cluster`` where there are too few clusters; the records
    say why. Under a weighted metric, a slice whose images weigh nothing has no record.
    Precision and recall give a record for each class and are not sliced further.
    """
    if measured.metric.per_class:
        return class_scores(measured, level=level, exact=exact)
    clusters = None if cluster is None else cluster_codes(measured, cluster)

    def some(name: str, rows: np.ndarray) -> list[Score]:
        # Without clusters, what cannot be told of the whole set is refused; a slice just lacks it.
        whole = len(rows) == len(measured) and clusters is None
        how = estimate if whole else estimate_or_value
        part = measured.select(rows)
        once = part.one_row_per_image()
        together = None
        if clusters is not None:
            together = clusters[rows] if once is part else clusters[rows[part.first_row_of_image]]
        found = how(
            once,
            rng=generator(seed, measured, f"score {measured.metric.name} {name}"),
            clusters=together,
            replicates=replicates,
            level=level,
            exact=exact,
        )
        return _records(once, name, found, cluster, level)

    records = some("all", np.arange(len(measured)))
    for partition in partitions(measured, by):
        for name, rows in partition.slices().items():
            if measured.has_weight(rows):
                records += some(name, rows)
        if measured.metric.counted and clusters is None:
            records += _worst(measured, partition, level, minimum_n)
    return records


def _records(
    part: Measured, name: str, found: Estimates, cluster: str | None, level: float
) -> list[Score]:
    return [
        part.record(
            m,
            slice=name,
            n=len(part),
            value=float(found.value[m]),
            low=None if found.low is None else float(found.low[m]),
            high=None if found.high is None else float(found.high[m]),
            interval=found.method,
            level=None if found.method is None else level,
            reason=with_cluster_name(found.reason, cluster),
        )
        for m in range(len(part.models))
    ]


def _worst(measured: Measured, partition: Partition, level: float, minimum_n: int) -> list[Score]:
    """The worst slice of each model; of slices with equal values the largest, then the first.

    Images of several rows may be right in part: the limits of whole hits then are wider than needed.
    """
    parts = {
        name: measured.select(rows).one_row_per_image() for name, rows in partition.slices().items()
    }
    large = {name: part for name, part in parts.items() if len(part) >= minimum_n}
    if len(large) < 2:
        return []
    n = np.array([len(part) for part in large.values()])
    k = np.stack([part.values.sum(axis=0) for part in large.values()])
    records = []
    for m in range(len(measured.models)):
        worst = worst_slice_interval(k[:, m], n, level=level)
        record = measured.record(
            m,
            slice=list(large)[worst.index],
            n=int(n[worst.index]),
            value=worst.value,
            low=worst.slice_interval.low,
            high=worst.slice_interval.high,
            interval=worst.slice_interval.method,
            level=level,
        )
        records.append(replace(record, metric=f"{measured.metric.name}_worst"))
    return records


def rank_scores(
    measured: Measured, *, cluster: str | None = None, level: float = LEVEL
) -> list[Score]:
    """Ranks (1 is best; equal values by ascending name) with simultaneous intervals, as records.

    ``cluster`` is the column whose images belong together; with too few clusters there are no
    intervals, and the records say why.
    """
    if not measured.metric.counted:
        raise NotApplicable(
            f"ranks are of plain accuracies, not of {measured.metric.name}", fix="rank by top1"
        )
    once = measured.one_row_per_image()
    clusters = None if cluster is None else cluster_codes(once, cluster)
    reason = None
    try:
        ranked = rank_intervals(once.values, once.models, level=level, clusters=clusters)
    except NotApplicable as refused:
        if clusters is None:
            raise
        reason = with_cluster_name(refused.message, cluster)
        ranked = rank_intervals(once.values, once.models, level=level)
    return [
        replace(
            once.record(
                m,
                slice="all",
                n=len(once),
                value=float(ranked.rank[m]),
                low=float(ranked.low[m]) if reason is None else None,
                high=float(ranked.high[m]) if reason is None else None,
                interval=_rank_method(ranked.method, cluster) if reason is None else None,
                level=level if reason is None else None,
                reason=reason,
            ),
            metric=f"{measured.metric.name}_rank",
        )
        for m in range(len(measured.models))
    ]


def _rank_method(method: str, cluster: str | None) -> str:
    return method if cluster is None else f"cluster-{method}"


def counts(measured: Sequence[Measured]) -> list[Count]:
    """What the scores of one test set leave out or cannot know, each number once.

    ``n_left_out`` rows that a metric does not count (``n_left_out_<metric>`` where metrics differ);
    ``n_failed`` images without an output; ``n_unknown`` images whose best class is not among the
    stored ones, so that a miss is not certain (``n_unknown_top<k>`` for more ranks); and
    ``n_unreviewed`` first guesses that nobody has judged, which is told also when it is none; and
    ``n_accepted``, the number of hits under ``accepted``, as ImageNet-M is reported.
    """
    found: dict[tuple[str, str | None, str], int] = {}
    left = {item.left_out for item in measured}
    for item in measured:
        name = "n_left_out" if len(left) == 1 else f"n_left_out_{item.metric.name}"
        if item.left_out:
            found[name, None, item.testset.name] = item.left_out
    for item in measured:
        ranks = item.metric.ranks
        for m, model in enumerate(item.models):
            numbers = {
                "n_unreviewed": item.unreviewed[m] if item.metric.reviewed else -1,
                "n_accepted": round(float(item.one_row_per_image().values[:, m].sum()))
                if item.metric.name == "accepted"
                else -1,
                "n_failed": item.failed[m] or -1,
                "n_unknown" if ranks == 1 else f"n_unknown_top{ranks}": item.unknown[m] or -1,
            }
            for name, value in numbers.items():
                if value >= 0:
                    key = (name, model, item.testset.name)
                    found[key] = max(value, found.get(key, 0))
    return [
        Count(name=name, value=value, model=model, testset=where)
        for (name, model, where), value in found.items()
    ]

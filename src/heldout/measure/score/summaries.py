"""Curves as records: balanced scores beside the raw ones, summaries, and what changes the mix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from heldout.measure.score.clustering import cluster_codes, naming_clusters, unit_columns
from heldout.measure.score.curve_numbers import summaries
from heldout.measure.score.curves import Curve, curve_of
from heldout.measure.score.estimating import LEVEL, REPLICATES, estimate_or_value, generator
from heldout.measure.score.measuring import Measured
from heldout.measure.score.overlapping import membership_records
from heldout.measure.score.records import Score, Summary
from heldout.measure.score.slicing import CLASS, Partition, entry_columns, partitions
from heldout.measure.score.summary_records import How, summary
from heldout.measure.score.support import Support, balanced, mixes, support_of

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
    :func:`heldout.measure.score.overlapping.membership_records` says.
    """
    if not measured.metric.counted:
        return []
    how = How(seed, replicates, level)
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
    once, card = measured.by_image(), measured.testset.card
    names = entry_columns(entry, measured.testset)
    of_class = any(name in card.columns and card.columns[name].of_class for name in names)
    if once is measured or CLASS in names or of_class:
        return measured, partition
    return once, partitions(once, [entry])[0]


def _balanced_scores(curve: Curve, how: How) -> Iterator[Score]:
    measured = curve.measured
    for code, name in enumerate(curve.slices):
        rows = np.flatnonzero(curve.codes == code)
        found = estimate_or_value(
            measured.take(rows),
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
                reason=naming_clusters(found.reason, curve.cluster),
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

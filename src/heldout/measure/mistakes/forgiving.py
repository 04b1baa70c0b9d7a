"""Accuracy with some kinds of mistakes forgiven: how much of what is lost is lost badly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from heldout.data.judgements.questions import CATEGORIES, SEVERITIES
from heldout.measure.mistakes.categories import NO_MISTAKE, NON_PROTOTYPICAL, SPURIOUS
from heldout.measure.mistakes.kinds import JUDGED, Kind
from heldout.measure.mistakes.study import Study
from heldout.measure.score.measure import Measured

MINOR_CATEGORIES: frozenset[str] = frozenset(
    {NO_MISTAKE, *(name for name in CATEGORIES if name.startswith("Fine-grained"))}
)
"""Fine-grained confusions, in the vocabulary and out of it; and what is no mistake at all."""

EXPLAINED_CATEGORIES: frozenset[str] = MINOR_CATEGORIES | {SPURIOUS, NON_PROTOTYPICAL}
"""These, and mistakes that context or an unusual instance explains."""

MINOR, EXPLAINED, LENIENT = "_minor", "_explained", "_judged_minor"


def _judged_minor(kind: Kind) -> bool:
    return kind.basis == JUDGED and kind.severity in SEVERITIES[1:]


FORGIVEN: Mapping[str, Callable[[Kind], bool]] = {
    MINOR: lambda kind: kind.category in MINOR_CATEGORIES,
    EXPLAINED: lambda kind: kind.category in EXPLAINED_CATEGORIES,
    LENIENT: _judged_minor,
}
"""What each ending of a metric's name forgives (docs/metrics.md)."""

FORGIVABLE = ("mla", "mla_micro", "real", "top1", "mean_per_class")
"""Metrics of first guesses to which mistakes can be forgiven."""


def forgiven(study: Study, measured: Iterable[Measured]) -> list[Measured]:
    """Measurements in which some kinds of mistakes count as hits: ``<metric>_minor`` and so on.

    ``measured`` are those of the same test set; of them, metrics in :data:`FORGIVABLE` on the rows
    of the study are taken. ``_judged_minor`` is there only where people judged severities.
    """
    codes = study.row_kinds()
    found = []
    for item in measured:
        if item.metric.name not in FORGIVABLE or not _same_rows(study, item):
            continue
        order = [study.verdicts.position(model) for model in item.models]
        for ending, forgives in FORGIVEN.items():
            chosen = np.array([forgives(kind) for kind in study.table] + [False])
            if ending == LENIENT and not any(kind.basis == JUDGED for kind in study.table):
                continue
            pardon = chosen[codes[:, order]]
            metric = replace(item.metric, name=f"{item.metric.name}{ending}")
            found.append(replace(item, metric=metric, values=item.values | pardon))
    return found


def _same_rows(study: Study, measured: Measured) -> bool:
    truth = study.verdicts.truth
    return np.array_equal(measured.rows, truth.rows) and np.array_equal(
        measured.groups, truth.labels
    )

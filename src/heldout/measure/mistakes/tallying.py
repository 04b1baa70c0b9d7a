"""Tallies: how many mistakes of each category and severity, by model and slice, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heldout.data.judgements.questions import SEVERITIES
from heldout.measure.mistakes.categories import PROPOSABLE
from heldout.measure.mistakes.kinds import BASES, JUDGED, NO_CLASS, NO_OUTPUT, PROPOSED, UNJUDGED
from heldout.measure.mistakes.study import Study
from heldout.measure.score.estimate import LEVEL
from heldout.measure.score.records import Tally
from heldout.measure.score.slices import cluster_codes, format_slice, with_cluster_name
from heldout.stats.bootstrap import MINIMUM_CLUSTERS
from heldout.stats.intervals import interval_from_error, t_quantile, wilson
from heldout.stats.slices import slice_means

ALL = "all"
GROUP = "class_group"
"""The name under which organism, artifact and other are sliced like a column."""
MAJOR = SEVERITIES[0]
CATEGORY_ORDER: tuple[str, ...] = (*PROPOSABLE, NO_OUTPUT, NO_CLASS)
"""Categories in the order in which tables list them; others follow by name."""
SEVERITY_ORDER: tuple[str, ...] = (*SEVERITIES, "unclear", UNJUDGED)
MOST_VALUES = 60
"""A column of more values than this is tallied only where there is something to count."""


@dataclass(frozen=True)
class _Cell:
    """One thing to count: any kind whose parts are these; ``all`` stands for any."""

    category: str = ALL
    severity: str = ALL
    basis: str = ALL


def tally(
    study: Study,
    *,
    by: Sequence[str] = (),
    cluster: str | None = None,
    level: float = LEVEL,
) -> list[Tally]:
    """Tally records of every model: the whole set, groups of classes, and slices by columns.

    On the whole set: every (category, severity, basis) that occurs, and the margins, with ``all``
    where a part is summed over. On slices and groups: categories, judged Major mistakes, and all.
    ``value`` is the share of images, its interval Wilson's, or linearised over clusters where
    ``cluster`` names the column whose images belong together. Suggested severities are told as the
    expected number of Major mistakes among those that nobody has judged (``basis`` proposed).
    """
    clusters = None
    if cluster is not None:
        clusters = cluster_codes(study.measured, cluster)[study.firsts]
    counting = _Counting(study, clusters, cluster, level)
    everything = np.arange(len(study.images))
    records = list(counting.records(ALL, everything, _whole_cells(study)))
    records += counting.expected_major()
    cells = _slice_cells(study)
    for name, images in study.group_images.items():
        records += counting.records(format_slice({GROUP: name}), images, cells)
    for slices in study.slices(by):
        sparse = len(slices) > MOST_VALUES
        for name, images in slices.items():
            records += counting.records(name, images, cells, sparse=sparse)
    return records


def categories_of(study: Study) -> list[str]:
    """The categories that occur, in the order of tables."""
    return ordered({kind.category for kind in study.table}, CATEGORY_ORDER)


def ordered(names: set[str], order: Sequence[str]) -> list[str]:
    """Names in a given order, those that it lacks after it by alphabet."""
    place = {name: number for number, name in enumerate(order)}
    return sorted(names, key=lambda name: (place.get(name, len(place)), name))


def _whole_cells(study: Study) -> list[_Cell]:
    categories = categories_of(study)
    severities = ordered({kind.severity for kind in study.table}, SEVERITY_ORDER)
    bases = ordered({kind.basis for kind in study.table}, BASES)
    there = {(kind.category, kind.severity, kind.basis) for kind in study.table}
    cells = [_Cell(), *(_Cell(category=name) for name in categories)]
    cells += [_Cell(severity=name) for name in severities]
    cells += [_Cell(basis=name) for name in bases]
    cells += [
        _Cell(category, severity, basis)
        for category in categories
        for severity in severities
        for basis in bases
        if (category, severity, basis) in there
    ]
    return cells


def _slice_cells(study: Study) -> list[_Cell]:
    cells = [_Cell(), *(_Cell(category=name) for name in categories_of(study))]
    if any(kind.severity == MAJOR for kind in study.table):
        cells.append(_Cell(severity=MAJOR, basis=JUDGED))
    return cells


class _Counting:
    """Counts of kinds among some images, as records."""

    def __init__(
        self, study: Study, clusters: np.ndarray | None, cluster: str | None, level: float
    ) -> None:
        self.study = study
        self.clusters = clusters
        self.cluster = cluster
        self.level = level
        self.table: Mapping[str, np.ndarray] = {
            "category": np.array([kind.category for kind in study.table]),
            "severity": np.array([kind.severity for kind in study.table]),
            "basis": np.array([kind.basis for kind in study.table]),
        }

    def records(
        self, name: str, images: np.ndarray, cells: Sequence[_Cell], *, sparse: bool = False
    ) -> Iterator[Tally]:
        """A record for each cell and model; with ``sparse`` only where something was counted."""
        codes = self.study.codes[images]
        kinds, models = len(self.study.table), codes.shape[1]
        counts = np.zeros((models, kinds), dtype=np.int64)
        for m in range(models):
            counts[m] = np.bincount(codes[:, m] + 1, minlength=kinds + 1)[1:]
        for cell in cells:
            chosen = self._chosen(cell)
            k = counts[:, chosen].sum(axis=1)
            if sparse and not k.any() and cell.category != ALL:
                continue
            low, high, method, reason = self._limits(k, codes, chosen, images)
            for m in range(models):
                if sparse and not k[m] and cell.category != ALL:
                    continue
                yield replace(
                    self._base(m, cell, name, int(k[m]), len(images)),
                    low=None if low is None else float(low[m]),
                    high=None if high is None else float(high[m]),
                    interval=method,
                    level=None if method is None else self.level,
                    reason=reason,
                )

    def _chosen(self, cell: _Cell) -> np.ndarray:
        """Which kinds a cell counts; bool (kinds,)."""
        chosen = np.ones(len(self.study.table), dtype=bool)
        for part, values in self.table.items():
            wanted = getattr(cell, part)
            if wanted != ALL:
                chosen &= values == wanted
        return chosen

    def _base(self, m: int, cell: _Cell, name: str, n: int, of: int) -> Tally:
        verdicts = self.study.verdicts
        return Tally(
            model=verdicts.models[m],
            testset=verdicts.testset.name,
            truth=verdicts.truth.name,
            category=cell.category,
            severity=cell.severity,
            basis=cell.basis,
            slice=name,
            n=n,
            of=of,
            value=n / of if of else None,
            testset_hash=verdicts.testset.card.content_hash,
            predictions_hash=verdicts.hashes[m],
        )

    def _limits(
        self, k: np.ndarray, codes: np.ndarray, chosen: np.ndarray, images: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray | None, str | None, str | None]:
        n = len(images)
        if not n:
            return None, None, None, "no image counts"
        if self.clusters is None:
            limits = wilson(k, np.full_like(k, n), level=self.level)
            return limits.low, limits.high, limits.method, None
        # Which models have such mistakes; without any there is no spread to linearise.
        values = np.append(chosen, False)[codes].astype(np.float64)
        means = slice_means(
            values, np.zeros(n, dtype=np.int64), count=1, clusters=self.clusters[images]
        )
        units = int(means.clusters[0])
        if units < MINIMUM_CLUSTERS:
            many = "a single cluster is" if units == 1 else f"{units} clusters are"
            few = f"{many} too few for an interval, which needs {MINIMUM_CLUSTERS}"
            return None, None, None, with_cluster_name(few, self.cluster)
        found = means.contrast([1.0])
        limits = interval_from_error(
            found.value,
            found.error,
            quantile=t_quantile(self.level, found.degrees),
            level=self.level,
            bounds=(0.0, 1.0),
            units=found.degrees + 1.0,
        )
        low, high = np.atleast_1d(limits.low), np.atleast_1d(limits.high)
        return low, high, f"cluster-{limits.method}", None

    def expected_major(self) -> Iterator[Tally]:
        """For each model: how many of its unjudged mistakes are Major if suggestions are right.

        The limits are those of the suggestions, summed: they hold even if all err the same way.
        """
        study, verdicts = self.study, self.study.verdicts
        ids, names = verdicts.truth.space.ids, verdicts.image_ids
        guesses = verdicts.guesses[study.firsts]
        suggested = {key: kind.major for key, kind in study.kinds.items() if kind.major is not None}
        if not suggested:
            return
        for m in range(len(verdicts.models)):
            total = np.zeros(3)
            for place in np.flatnonzero((study.codes[:, m] >= 0) & (guesses[:, m] >= 0)).tolist():
                key = (names[study.firsts[place]], ids[guesses[place, m]])
                total += suggested.get(key, (0.0, 0.0, 0.0))
            of = len(study.images)
            cell = _Cell(severity=MAJOR, basis=PROPOSED)
            yield replace(
                self._base(m, cell, ALL, round(float(total[0])), of),
                value=float(total[0]) / of,
                low=float(total[1]) / of,
                high=float(total[2]) / of,
                interval="suggested",
                level=self.level,
            )

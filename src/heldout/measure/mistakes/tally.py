"""Tallies of mistakes by category and severity, and accuracy that forgives some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.judgement import CATEGORIES, SEVERITIES
from heldout.measure.mistakes.categories import (
    NO_MISTAKE,
    NON_PROTOTYPICAL,
    PROPOSABLE,
    SPURIOUS,
)
from heldout.measure.mistakes.class_similarity import groups_of
from heldout.measure.mistakes.panel import (
    BASES,
    JUDGED,
    NO_CLASS,
    NO_OUTPUT,
    PROPOSED,
    UNJUDGED,
    Kind,
)
from heldout.measure.mistakes.verdicts import NOTHING, Key, Mistakes, Verdicts, rows_of
from heldout.measure.score.estimate import LEVEL
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Tally
from heldout.measure.score.slices import cluster_codes, format_slice, partitions, with_cluster_name
from heldout.stats.intervals import Interval, wilson
from heldout.stats.slices import share_in_clusters


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """The mistakes of some models under one truth, each with its kind.

    ``mistakes``  the wrong (image, prediction) pairs of any model
    ``kinds``     by (image, prediction): the kind of each
    ``evidence``  what kinds that nobody has judged are proposed from, and how often that is right
    ``named``     whether evidence was named, beside the hierarchy of the classes
    """

    verdicts: Verdicts
    mistakes: Mistakes
    kinds: dict[Key, Kind]
    evidence: str = ""
    named: bool = False

    @cached_property
    def images(self) -> np.ndarray:
        """The row of the images table of every image that counts, each once; int64 (images,)."""
        return np.unique(self.verdicts.truth.rows)

    @cached_property
    def firsts(self) -> np.ndarray:
        """The first row of the verdicts of each image; int64 (images,)."""
        return np.unique(self.verdicts.truth.rows, return_index=True)[1]

    @cached_property
    def table(self) -> tuple[Kind, ...]:
        """The distinct kinds, for :attr:`codes`; those of failed outputs come last."""
        return self._coded[0]

    @cached_property
    def codes(self) -> np.ndarray:
        """The kind of mistake of each image and model, -1 where it is right; int32 (images, models).

        A guess that is wrong by one of an image's rows and right by another is not a mistake of the
        image.
        """
        return self._coded[1]

    @cached_property
    def _coded(self) -> tuple[tuple[Kind, ...], np.ndarray]:
        verdicts, mistakes = self.verdicts, self.mistakes
        table: dict[Kind, int] = {}

        def code(kind: Kind) -> int:
            plain = Kind(kind.category, kind.severity, kind.basis)
            return table.setdefault(plain, len(table))

        found = np.full((len(self.firsts), len(verdicts.models)), -1, dtype=np.int32)
        codes = np.array([code(self.kinds[key]) for key in mistakes.keys], dtype=np.int32)
        row_of = {verdicts.image_ids[first]: row for row, first in enumerate(self.firsts)}
        rows = np.array([row_of[image] for image in mistakes.image_ids], dtype=np.int64)
        who, models = np.nonzero(mistakes.made)
        found[rows[who], models] = codes[who]
        none = (verdicts.wrong & (verdicts.guesses < 0))[self.firsts]
        failed = verdicts.states[self.firsts] == NOTHING
        for name, where in ((NO_OUTPUT, none & failed), (NO_CLASS, none & ~failed)):
            if where.any():
                found[where] = code(Kind(name))
        return tuple(table), found

    @cached_property
    def _places(self) -> np.ndarray:
        """For every row of the verdicts: the place of its image in :attr:`images`."""
        return np.searchsorted(self.images, self.verdicts.truth.rows)

    def row_kinds(self) -> np.ndarray:
        """The codes of :attr:`codes` at every row of the verdicts, -1 where that row is right."""
        return np.where(self.verdicts.wrong, self.codes[self._places], -1)

    def slices(self, by: Sequence[str]) -> list[dict[str, np.ndarray]]:
        """For each column: slice name to the images in it, as places in :attr:`images`."""
        return [
            {name: np.unique(self._places[rows]) for name, rows in partition.slices().items()}
            for partition in partitions(self.measured, by)
        ]

    @cached_property
    def measured(self) -> Measured:
        """The verdicts as a measurement of hits, for what reads one."""
        return self.verdicts.measured()

    @cached_property
    def group_images(self) -> dict[str, np.ndarray]:
        """By group of classes: its images, as places in :attr:`images`.

        An image is in the groups of all its correct and unclear labels.
        """
        truth, found = self.verdicts.truth, {}
        for name, members in groups_of(truth.space).items():
            inside = np.zeros(len(truth), dtype=bool)
            for lists in (truth.correct, truth.unclear):
                rows, labels = lists.pairs()
                inside[rows[members[labels]]] = True
            if inside.any():
                found[name] = np.unique(self._places[inside])
        return found


def joined(parts: Sequence[Verdicts]) -> Verdicts:
    """Verdicts of one truth on several lists of models, as verdicts on all of them."""
    if not parts:
        raise UserError("no models to look at", fix="name some with --model")
    first = parts[0]
    return replace(
        first,
        models=tuple(model for part in parts for model in part.models),
        hashes=tuple(value for part in parts for value in part.hashes),
        guesses=np.concatenate([part.guesses for part in parts], axis=1),
        states=np.concatenate([part.states for part in parts], axis=1),
    )


def without_images(verdicts: Verdicts, images: Iterable[int]) -> Verdicts:
    """The verdicts without some images, given by their rows of the images table."""
    kept = np.flatnonzero(~np.isin(verdicts.truth.rows, list(images)))
    return replace(
        verdicts,
        truth=rows_of(verdicts.truth, kept),
        guesses=verdicts.guesses[kept],
        states=verdicts.states[kept],
        left_out=verdicts.left_out + len(verdicts) - len(kept),
    )


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

    def holds(self, kind: Kind) -> bool:
        """Whether a kind is counted."""
        parts = zip(astuple(self), (kind.category, kind.severity, kind.basis), strict=True)
        return all(wanted in (ALL, part) for wanted, part in parts)


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
    there = {(kind.category, kind.severity, kind.basis) for kind in study.table}
    orders = (CATEGORY_ORDER, SEVERITY_ORDER, BASES)
    named = [ordered({parts[at] for parts in there}, order) for at, order in enumerate(orders)]
    cells = [_Cell()]
    for field, names in zip(("category", "severity", "basis"), named, strict=True):
        cells += [_Cell(**{field: name}) for name in names]
    return cells + [_Cell(*parts) for parts in product(*named) if parts in there]


def _slice_cells(study: Study) -> list[_Cell]:
    cells = [_Cell(), *(_Cell(category=name) for name in categories_of(study))]
    if any(kind.severity == MAJOR for kind in study.table):
        cells.append(_Cell(severity=MAJOR, basis=JUDGED))
    return cells


@dataclass(frozen=True, eq=False)
class _Counting:
    """Counts of kinds among some images, as records."""

    study: Study
    clusters: np.ndarray | None
    cluster: str | None
    level: float

    def records(
        self, name: str, images: np.ndarray, cells: Sequence[_Cell], *, sparse: bool = False
    ) -> Iterator[Tally]:
        """A record for each cell and model; with ``sparse`` only where something was counted."""
        codes = self.study.codes[images]
        kinds, models = len(self.study.table), codes.shape[1]
        counts = np.stack([np.bincount(column + 1, minlength=kinds + 1)[1:] for column in codes.T])
        for cell in cells:
            chosen = np.array([cell.holds(kind) for kind in self.study.table], dtype=bool)
            k = counts[:, chosen].sum(axis=1)
            if sparse and not k.any() and cell.category != ALL:
                continue
            limits, reason = self._limits(k, codes, chosen, images)
            for m in range(models):
                if sparse and not k[m] and cell.category != ALL:
                    continue
                yield replace(
                    self._base(m, cell, name, int(k[m]), len(images)),
                    low=None if limits is None else float(np.atleast_1d(limits.low)[m]),
                    high=None if limits is None else float(np.atleast_1d(limits.high)[m]),
                    interval=None if limits is None else limits.method,
                    level=None if limits is None else self.level,
                    reason=reason,
                )

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
            evidence=self.study.evidence or None,
        )

    def _limits(
        self, k: np.ndarray, codes: np.ndarray, chosen: np.ndarray, images: np.ndarray
    ) -> tuple[Interval | None, str | None]:
        n = len(images)
        if not n:
            return None, "no image counts"
        if self.clusters is None:
            return wilson(k, n, level=self.level), None
        # Which models have such mistakes; without any there is no spread to linearise.
        values = np.append(chosen, False)[codes].astype(np.float64)
        try:
            return share_in_clusters(values, self.clusters[images], level=self.level), None
        except NotApplicable as refused:
            return None, with_cluster_name(refused.message, self.cluster)

    def expected_major(self) -> Iterator[Tally]:
        """For each model: how many of its unjudged mistakes are Major if suggestions are right.

        The limits are those of the suggestions, summed: they hold even if all err the same way.
        """
        mistakes, nothing = self.study.mistakes, (0.0, 0.0, 0.0)
        suggested = [self.study.kinds[key].major for key in mistakes.keys]
        if not any(suggested):
            return
        totals = mistakes.made.T.astype(np.float64) @ np.array([s or nothing for s in suggested])
        of = len(self.study.images)
        for m, (value, low, high) in enumerate(totals.tolist()):
            yield replace(
                self._base(m, _Cell(severity=MAJOR, basis=PROPOSED), ALL, round(value), of),
                value=value / of,
                low=low / of,
                high=high / of,
                interval="suggested",
                level=self.level,
            )


MINOR_CATEGORIES: frozenset[str] = frozenset(
    {NO_MISTAKE, *(name for name in CATEGORIES if name.startswith("Fine-grained"))}
)
"""Fine-grained confusions, in the vocabulary and out of it; and what is no mistake at all."""

EXPLAINED_CATEGORIES: frozenset[str] = MINOR_CATEGORIES | {SPURIOUS, NON_PROTOTYPICAL}
"""These, and mistakes that context or an unusual instance explains."""

MINOR, EXPLAINED, LENIENT = "minor", "explained", "judged_minor"


def _judged_minor(kind: Kind) -> bool:
    return kind.basis == JUDGED and kind.severity in SEVERITIES[1:]


FORGIVEN: Mapping[str, Callable[[Kind], bool]] = {
    MINOR: lambda kind: kind.category in MINOR_CATEGORIES,
    EXPLAINED: lambda kind: kind.category in EXPLAINED_CATEGORIES,
    LENIENT: _judged_minor,
}
"""What each statistic of a score forgives (docs/metrics.md)."""

FORGIVABLE = ("mla", "mla_micro", "real", "top1", "mean_per_class")
"""Metrics of first guesses to which mistakes can be forgiven."""


def forgiven(study: Study, measured: Iterable[Measured]) -> list[Measured]:
    """Measurements in which some kinds of mistakes count as hits: ``minor`` and so on.

    ``measured`` are those of the same test set; of them, metrics in :data:`FORGIVABLE` on the rows
    of the study are taken. ``judged_minor`` is there only where people judged severities, the others
    only where all is judged or evidence was named: by the hierarchy alone too many proposals are wrong.
    """
    codes = study.row_kinds()
    found = []
    for item in measured:
        if item.metric.name not in FORGIVABLE or not _same_rows(study, item):
            continue
        order = [study.verdicts.position(model) for model in item.models]
        for name, forgives in FORGIVEN.items():
            bases = {kind.basis for kind in study.kinds.values()}
            if not (JUDGED in bases if name == LENIENT else study.named or bases <= {JUDGED}):
                continue
            chosen = np.array([forgives(kind) for kind in study.table] + [False])
            pardon = chosen[codes[:, order]]
            metric = replace(item.metric, name=f"{item.metric.name}_{name}", forgives=name)
            found.append(replace(item, metric=metric, values=item.values | pardon))
    return found


def _same_rows(study: Study, measured: Measured) -> bool:
    truth = study.verdicts.truth
    return np.array_equal(measured.rows, truth.rows) and np.array_equal(
        measured.groups, truth.labels
    )

"""Reading results along columns: which slices, which clusters, which curves; and what to say of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from heldout.data.testset import TestSet
from heldout.measure.score.compare import compare
from heldout.measure.score.curve_summaries import curve_records
from heldout.measure.score.estimate import LEVEL, REPLICATES
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Comparison, Record, Score, Summary
from heldout.measure.score.slices import ALL, cluster_column, entry_columns, has_columns

MOST_PAIRED = 3
"""Pairs of models that an evaluation compares along a factor without being asked."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How results are read along columns.

    ``by``       what to slice by; None for the factors that the test set declares
    ``cluster``  the column whose images belong together; None for the test set's own, ``none`` for
                 no clusters
    ``balance``  columns that name what is repeated at every value, such as ``object&background``;
                 None for the test set's own
    ``curves``   whether slices are summed up as curves; None: those by declared factors
    """

    by: tuple[str, ...] | None = None
    cluster: str | None = None
    balance: str | None = None
    curves: bool | None = None

    def slices(self, testset: TestSet) -> list[str]:
        """The entries of ``by`` that a test set has the columns for."""
        entries = testset.card.factors if self.by is None else self.by
        return [entry for entry in entries if has_columns(testset, entry)]

    def curve_entries(self, testset: TestSet) -> list[str]:
        """The entries that are read as curves."""
        if self.curves is not None:
            return self.slices(testset) if self.curves else []
        declared = {_key(testset, entry) for entry in testset.card.factors}
        return [entry for entry in self.slices(testset) if _within(testset, entry, declared)]

    def curve_records(
        self,
        measured: Measured,
        *,
        seed: int = 0,
        replicates: int = REPLICATES,
        level: float = LEVEL,
    ) -> list[Score | Summary]:
        """Balanced scores and summaries of a measurement."""
        return curve_records(
            measured,
            self.curve_entries(measured.testset),
            cluster=cluster_column(measured.testset, self.cluster),
            balance=self.balance,
            seed=seed,
            replicates=replicates,
            level=level,
        )

    def comparisons(
        self,
        measured: Measured,
        pairs: Sequence[tuple[str, str]],
        *,
        seed: int = 0,
        replicates: int = REPLICATES,
        level: float = LEVEL,
    ) -> Iterator[Comparison]:
        """Pairs of models at every value of each single factor, corrected factor by factor."""
        if len(pairs) > MOST_PAIRED or not measured.metric.counted:
            return
        for entry in self.curve_entries(measured.testset):
            if len(entry_columns(entry, measured.testset)) == 1:
                yield from compare(
                    measured,
                    pairs,
                    by=[entry],
                    whole=False,
                    cluster=cluster_column(measured.testset, self.cluster),
                    seed=seed,
                    replicates=replicates,
                    level=level,
                )


def reading_notes(records: Iterable[Record]) -> list[str]:
    """What a reader must know of some records: intervals refused, and a mix that changes.

    One line a test set and column, whatever the number of models, metrics and values.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        if isinstance(record, Summary) and record.model is None and record.reason:
            found.setdefault((record.testset, record.columns), {})[record.reason] = None
        elif isinstance(record, Score) and record.slice == ALL and record.reason:
            said = f"no interval: {record.reason}"
            found.setdefault((record.testset, ALL), {})[said] = None
    return [f"{testset}: {'; '.join(reasons)}" for (testset, _), reasons in found.items()]


def _key(testset: TestSet, entry: str) -> frozenset[str]:
    return frozenset(entry_columns(entry, testset))


def _within(testset: TestSet, entry: str, declared: set[frozenset[str]]) -> bool:
    """Whether an entry is a declared factor, an axis of one, or made of declared ones."""
    columns = _key(testset, entry)
    everything = frozenset().union(*declared)
    return bool(columns) and columns <= everything

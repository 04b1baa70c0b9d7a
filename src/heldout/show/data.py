"""What a report is made of, and which of its records the headline figures show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from heldout.core.errors import NotApplicable
from heldout.data.testset.columns import ColumnType
from heldout.measure.score.records import Comparison, Count, Fit, Record, Score, Summary
from heldout.measure.score.slice_search import is_discovery
from heldout.measure.score.slices import ALL
from heldout.show.mistake_cards import MistakeCard
from heldout.show.wording import merit

PREFERRED_METRICS = ("top1", "accuracy", "mla", "mean_per_class")


@dataclass(frozen=True, kw_only=True)
class Example:
    """A small image that shows what some values of columns look like.

    ``values`` follow ``columns``, which are sorted as slices sort them; ``image`` is a data URI.
    """

    testset: str
    columns: tuple[str, ...]
    values: tuple[str, ...]
    image: str
    alt: str


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything one report shows; nothing is read from anywhere else, not even the clock.

    ``records``     the numbers, in any order
    ``columns``     column types by test set and column: ``{testset: {column: ColumnType}}``
    ``provenance``  one mapping a test set (``testset``, ``content_hash``, ``images_hash``,
                    ``recipe``, ``n``, ``parents`` …) and one a set of predictions (``model``,
                    ``testset``, ``predictions_hash``, ``source`` …); all keys are shown
    ``warnings``    what was repaired or is doubtful: shown above every number
    ``notes``       what a reader should know
    ``settings``    how the report came about, such as ``command``, ``heldout`` and ``created``
    ``examples``    small images along columns that were read as curves
    ``mistakes``    single mistakes to look at, with their images where present
    ``baseline``    the test set that the others are compared with; by default the fits' baseline
    ``metric``      the metric of the headline figures; by default top1, else the first one
    """

    title: str
    records: Sequence[Record]
    columns: Mapping[str, Mapping[str, ColumnType]] = field(default_factory=dict)
    provenance: Sequence[Mapping[str, object]] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[Example] = ()
    mistakes: Sequence[MistakeCard] = ()
    baseline: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class Headline:
    """The records of a report, sorted out: which metric, which baseline, which scores lead."""

    data: ReportData

    @cached_property
    def scores(self) -> list[Score]:
        """All score records, in their order."""
        return [record for record in self.data.records if isinstance(record, Score)]

    @cached_property
    def summaries(self) -> list[Summary]:
        """The summary records of each test set's leading truth and label map, in their order.

        Those of a search for slices are not among them: see :attr:`discovered`.
        """
        found = [r for r in self.data.records if isinstance(r, Summary) and not is_discovery(r)]
        first: dict[tuple[str, str], tuple[str, str]] = {}
        for record in found:
            first.setdefault((record.testset, record.metric), (record.truth, record.label_map))
        return [
            record
            for record in found
            if first[record.testset, record.metric] == (record.truth, record.label_map)
        ]

    @cached_property
    def discovered(self) -> list[Summary]:
        """The summaries of searches for the worst slices, in their order."""
        return [r for r in self.data.records if isinstance(r, Summary) and is_discovery(r)]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """All comparison records, in their order."""
        return [record for record in self.data.records if isinstance(record, Comparison)]

    @cached_property
    def fits(self) -> list[Fit]:
        """All fit records, in their order."""
        return [record for record in self.data.records if isinstance(record, Fit)]

    @cached_property
    def counts(self) -> list[Count]:
        """All count records, in their order."""
        return [record for record in self.data.records if isinstance(record, Count)]

    @cached_property
    def metrics(self) -> list[str]:
        """Every metric, in order of first appearance."""
        return list(dict.fromkeys(score.metric for score in self.scores))

    @cached_property
    def worst(self) -> list[Score]:
        """The scorer's own worst slices, whose intervals allow for having looked at many."""
        return [score for score in self.scores if score.metric == f"{self.metric}_worst"]

    @cached_property
    def metric(self) -> str:
        """The metric of the headline figures; empty when there is no score."""
        if self.data.metric is not None:
            if self.scores and self.data.metric not in self.metrics:
                raise NotApplicable(
                    f"no score has the metric {self.data.metric!r}",
                    fix=f"choose one of {', '.join(self.metrics)}",
                )
            return self.data.metric
        preferred = [metric for metric in PREFERRED_METRICS if metric in self.metrics]
        return (preferred or self.metrics or [""])[0]

    @cached_property
    def testsets(self) -> list[str]:
        """Every scored test set, the baseline first, then in order of first appearance."""
        names = dict.fromkeys(score.testset for score in self.scores)
        first = [self.baseline] if self.baseline in names else []
        return [
            name for name in (*first, *(n for n in names if n not in first)) if name is not None
        ]

    @cached_property
    def baseline(self) -> str | None:
        """The test set that the others are compared with."""
        names = {score.testset for score in self.scores}
        if self.data.baseline is not None:
            if self.scores and self.data.baseline not in names:
                raise NotApplicable(
                    f"no score is on the baseline {self.data.baseline!r}",
                    fix=f"choose one of {', '.join(sorted(names))}",
                )
            return self.data.baseline
        fitted = [fit.baseline for fit in self.fits if fit.baseline in names]
        return fitted[0] if fitted else None

    @cached_property
    def new_testsets(self) -> list[str]:
        """The test sets other than the baseline that share a model with it."""
        if self.baseline is None:
            return []
        known = self.overall(self.baseline)
        return [
            name
            for name in self.testsets
            if name != self.baseline and known.keys() & self.overall(name).keys()
        ]

    @cached_property
    def _first_truth(self) -> dict[tuple[str, str], tuple[str, str]]:
        """By test set and metric: the truth and label map that the headline figures use."""
        first: dict[tuple[str, str], tuple[str, str]] = {}
        for score in self.scores:
            first.setdefault((score.testset, score.metric), (score.truth, score.label_map))
        return first

    def leads(self, score: Score) -> bool:
        """Whether the score is judged by its test set's leading truth and label map.

        A test set may be scored against several truths; a figure shows the first of them, the
        table of all scores shows every one.
        """
        return self._first_truth[score.testset, score.metric] == (score.truth, score.label_map)

    @cached_property
    def _overall(self) -> dict[tuple[str, str], dict[str, Score]]:
        found: dict[tuple[str, str], dict[str, Score]] = {}
        for score in self.scores:
            if score.slice == ALL and self.leads(score):
                found.setdefault((score.testset, score.metric), {}).setdefault(score.model, score)
        return found

    def overall(self, testset: str, *, metric: str | None = None) -> dict[str, Score]:
        """By model: its score on the whole test set (headline metric unless another is named)."""
        return self._overall.get((testset, metric or self.metric), {})

    @cached_property
    def models(self) -> list[str]:
        """Every model, best first by the headline metric on the first test set that has it."""
        names = dict.fromkeys(score.model for score in self.scores)
        lead = self.overall(self.testsets[0]) if self.testsets else {}
        return sorted(
            names,
            key=lambda name: (
                name not in lead,
                -merit(self.metric, lead[name].value) if name in lead else 0.0,
                name,
            ),
        )

    @cached_property
    def images(self) -> dict[str, int]:
        """By test set: how many images its largest score counts."""
        sizes: dict[str, int] = {}
        for score in self.scores:
            sizes[score.testset] = max(score.n, sizes.get(score.testset, 0))
        return sizes

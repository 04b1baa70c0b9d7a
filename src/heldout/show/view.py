"""What a report is made of, and its records sorted out: one view for figures, tables and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from heldout.core.errors import NotApplicable
from heldout.core.records import Count, Grid, grids
from heldout.data.testset.columns import ColumnType
from heldout.measure.score.records import (
    Adjusted,
    Claim,
    Comparison,
    Fit,
    Leak,
    Learning,
    Predicted,
    Record,
    Score,
    Summary,
    Tally,
    is_discovery,
)
from heldout.measure.score.slices import (
    ALL,
    number_of,
    parse_slice,
    slice_text,
    values_in_order,
)
from heldout.show.learning import LearningSection
from heldout.show.mistakes import MistakeCard, MistakeSection
from heldout.show.thumbnails import Example
from heldout.show.wording import best_middle_worst, is_share, merit
from heldout.stats.intervals import Bounded, square_and_add

PREFERRED_METRICS = ("top1", "accuracy", "mla", "mean_per_class")
_CHANCE = 0.05
Values = tuple[str, ...]
SliceScores = Mapping[str, Mapping[Values, Score]]
R = TypeVar("R", bound=Record)
J = TypeVar("J", Score, Summary)
T = TypeVar("T", Tally, Learning)


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything one report shows; nothing is read from anywhere else, not even the clock.

    ``records``     the numbers, in any order
    ``columns``     column types by test set and column: ``{testset: {column: ColumnType}}``
    ``classes``     what classes are called, by test set and id, where scores are of single classes
    ``provenance``  one mapping per test set (``testset``, ``content_hash``, ``images_hash``,
                    ``recipe``, ``n``, ``parents`` …) and one per set of predictions (``model``,
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
    classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    provenance: Sequence[Mapping[str, object]] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[Example] = ()
    mistakes: Sequence[MistakeCard] = ()
    baseline: str | None = None
    metric: str | None = None


@dataclass(frozen=True, kw_only=True)
class SlicePanel:
    """All scores of the headline metric on the slices of one test set by the same columns.

    A panel is what one figure shows; how it is drawn follows from its columns' types alone.

    ``columns``    sorted as slices sort them; ``scores[model][values]`` follows their order
    ``balanced``   the same for the units that are present at every value
    ``summaries``  sum the columns up: those that were read as a curve have some
    ``overall``    by model: its score on the whole test set
    ``classes``    what classes are called, by id
    ``shown``      the best, a middle and the worst model by that score
    """

    testset: str
    columns: tuple[str, ...]
    types: tuple[ColumnType, ...]
    scores: SliceScores
    overall: Mapping[str, Score]
    shown: Sequence[str]
    balanced: SliceScores = field(default_factory=dict)
    summaries: Sequence[Summary] = ()
    classes: Mapping[str, str] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """Whether there is more than one model, so that a legend names them."""
        return len(self.scores) > 1

    @property
    def every(self) -> list[Score]:
        """All scores, model by model."""
        return [score for scores in self.scores.values() for score in scores.values()]

    def values(self, position: int = 0) -> list[str]:
        """The distinct values of one column, in the order to show them."""
        present = (v[position] for scores in self.scores.values() for v in scores)
        return values_in_order(present, self.types[position])

    @property
    def is_grid(self) -> bool:
        """Whether the two columns are the two axes of one grid."""
        kinds = {(kind.grid, kind.axis) for kind in self.types if kind.kind == "grid"}
        return len(self.types) == 2 and len({g for g, _ in kinds}) == 1 and len(kinds) == 2

    @property
    def across(self) -> int:
        """Which of two columns runs across: the grid's x axis, else the first."""
        return 1 if self.is_grid and self.types[0].axis == "y" else 0

    @property
    def title(self) -> str:
        """The columns; a grid by the name that its two axes share."""
        names = " × ".join(self.columns)
        return f"{self.types[0].grid} ({names})" if self.is_grid else names

    def column_title(self, position: int = 0) -> str:
        """A column with its unit."""
        unit = self.types[position].unit
        return self.columns[position] + (f" ({unit})" if unit else "")


@dataclass(frozen=True)
class Change:
    """One model from the baseline to a new test set; ranks count from 1, ties share the better.

    ``low`` and ``high`` are the interval of the difference, None where one of the scores has none.
    """

    model: str
    testset: str
    old: Score
    new: Score
    low: float | None
    high: float | None
    old_rank: int
    new_rank: int

    @property
    def difference(self) -> float:
        """New minus baseline."""
        return self.new.value - self.old.value

    @property
    def rank_gain(self) -> int:
        """How many ranks the model climbs; negative when it falls."""
        return self.old_rank - self.new_rank


def difference_interval(old: Score, new: Score) -> tuple[float | None, float | None]:
    """The interval of ``new − old`` for scores on different images."""
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return None, None
    return square_and_add(
        Bounded(new.value, new.low, new.high), Bounded(old.value, old.low, old.high)
    )


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """By name: 1 plus the number of strictly larger values, so ties share the better rank.

    >>> ranks({"a": 0.7, "b": 0.9, "c": 0.7, "d": 0.1})
    {'a': 2, 'b': 1, 'c': 2, 'd': 4}
    """
    first: dict[float, int] = {}
    for position, value in enumerate(sorted(values.values(), reverse=True), start=1):
        first.setdefault(value, position)
    return {name: first[value] for name, value in values.items()}


class ReportView:
    """The records of a report, sorted out once: which metric, baseline and scores lead.

    A test set may be scored against several truths, or under several label maps. Figures show the
    first of them; the table of all scores shows every one.

    ``scores``, ``comparisons``, ``claims``, ``fits``, ``counts``, ``leaks``  all records of a kind,
                    in their order
    ``leading``     the scores by each test set's leading truth and label map
    ``summaries``   those by the leading truth, without those of a search for slices
    ``discovered``  the summaries of searches for the worst slices
    ``metrics``     every metric, in order of first appearance
    ``metric``      that of the headline figures; empty when there is no score
    ``images``      by test set: how many images its largest score counts
    ``baseline``    the test set that the others are compared with, or None
    ``testsets``    every scored test set, the baseline first, then in order of first appearance
    ``models``      every model, best first by the headline metric on the first test set
    ``worst``       the scorer's own worst slices, whose intervals allow for having looked at many
    """

    def __init__(self, data: ReportData) -> None:
        self.data = data
        # Tables and figures name a score by metric and statistic in one: top1, top1_rank.
        self.scores = [
            replace(score, metric=score.name, statistic="value") for score in self._all(Score)
        ]
        self.comparisons = self._all(Comparison)
        self.claims = self._all(Claim)
        self.fits = self._all(Fit)
        self.leaks = self._all(Leak)
        self.counts = self._all(Count)
        self.leading = _leading(self.scores)
        summaries = self._all(Summary)
        self.discovered = [record for record in summaries if is_discovery(record)]
        self.summaries = _leading([record for record in summaries if not is_discovery(record)])
        self.metrics = list(dict.fromkeys(score.metric for score in self.scores))
        preferred = [metric for metric in PREFERRED_METRICS if metric in self.metrics]
        self.metric = (preferred or self.metrics or [""])[0]
        if data.metric is not None:
            self.metric = self._given(data.metric, self.metrics, "no score has the metric")
        self.worst = [score for score in self.scores if score.metric == f"{self.metric}_worst"]
        self.images: dict[str, int] = {}
        for score in self.scores:
            self.images[score.testset] = max(score.n, self.images.get(score.testset, 0))
        self.baseline = next((f.baseline for f in self.fits if f.baseline in self.images), None)
        if data.baseline is not None:
            known = sorted(self.images)
            self.baseline = self._given(data.baseline, known, "no score is on the baseline")
        self.testsets = sorted(self.images, key=lambda name: name != self.baseline)
        names = dict.fromkeys(score.model for score in self.scores)
        self.models = self.ranked(names, self.testsets[0]) if self.testsets else []

    def slice_words(self, testset: str, name: str) -> str:
        """A slice as a person reads it, classes by name."""
        return slice_text(parse_slice(name), self.data.classes.get(testset, {}))

    def stated(self, kind: str) -> set[tuple[str, str | None, str | None]]:
        """Test set, model, and slice or other model, of what can be stated of a kind."""
        found = [claim for claim in self.claims if claim.stated and claim.kind == kind]
        return {(c.testset, c.model, c.other if kind == "difference" else c.slice) for c in found}

    def is_stated(self, c: Comparison) -> bool:
        """Whether two models are told apart: by the claims, where there are any, else by p."""
        if not self.claims:
            return c.p is not None and c.p <= _CHANCE
        apart = self.stated("difference")
        return (c.testset, c.model, c.other) in apart or (c.testset, c.other, c.model) in apart

    def _all(self, kind: type[R]) -> list[R]:
        return [record for record in self.data.records if isinstance(record, kind)]

    def _given(self, given: str, known: Iterable[str], problem: str) -> str:
        """What was asked for; refused where there are scores, and none of them has it."""
        names = list(known)
        if self.scores and given not in names:
            raise NotApplicable(f"{problem} {given!r}", fix=f"choose one of {', '.join(names)}")
        return given

    @cached_property
    def mistakes(self) -> list[MistakeSection]:
        """Tallies of mistakes, by test set and truth."""
        tallies = [tally for tally in self._all(Tally) if tally.model is not None]
        groups = _by_truth(tallies).items()
        return [MistakeSection(*key, found, self.scores, self.models) for key, found in groups]

    @cached_property
    def learning(self) -> list[LearningSection]:
        """Learning records, by test set and truth."""
        return [
            LearningSection(*key, found) for key, found in _by_truth(self._all(Learning)).items()
        ]

    @property
    def predicted(self) -> list[Grid]:
        """Tables of transfer between domains, and of what it predicts."""
        return grids(record for record in self.data.records if isinstance(record, Predicted))

    @property
    def adjusted(self) -> list[Grid]:
        """Tables of scores at the selection frequencies of an original set."""
        return grids(record for record in self.data.records if isinstance(record, Adjusted))

    @cached_property
    def new_testsets(self) -> list[str]:
        """The test sets other than the baseline that share a model with it."""
        if self.baseline is None:
            return []
        known = self.overall(self.baseline).keys()
        return [n for n in self.testsets if n != self.baseline and known & self.overall(n).keys()]

    @cached_property
    def _overall(self) -> dict[tuple[str, str], dict[str, Score]]:
        found: dict[tuple[str, str], dict[str, Score]] = {}
        for score in self.leading:
            if score.slice == ALL:
                found.setdefault((score.testset, score.metric), {}).setdefault(score.model, score)
        return found

    def overall(self, testset: str, *, metric: str | None = None) -> dict[str, Score]:
        """By model: its score on the whole test set (headline metric unless another is named)."""
        return self._overall.get((testset, metric or self.metric), {})

    def ranked(self, models: Iterable[str], testset: str) -> list[str]:
        """Models, best first by the headline metric on a test set; those without a score last."""
        merits = {m: merit(self.metric, s.value) for m, s in self.overall(testset).items()}
        return sorted(models, key=lambda m: (m not in merits, -merits.get(m, 0.0), m))

    def ranks(self, testset: str, models: Iterable[str]) -> dict[str, int]:
        """By model: its rank among some models by the headline metric on a test set."""
        scores = self.overall(testset)
        return ranks({model: merit(self.metric, scores[model].value) for model in models})

    @cached_property
    def changes(self) -> dict[str, list[Change]]:
        """By new test set: every model with both scores, best on the baseline first.

        Empty where the headline metric is not a share: differences are in points.
        """
        if not is_share(self.metric):
            return {}
        return {testset: self._changes(testset) for testset in self.new_testsets}

    def _changes(self, testset: str) -> list[Change]:
        baseline = str(self.baseline)
        old, new = self.overall(baseline), self.overall(testset)
        models = [model for model in self.models if model in old and model in new]
        before, after = self.ranks(baseline, models), self.ranks(testset, models)
        return [
            Change(
                model,
                testset,
                old[model],
                new[model],
                *difference_interval(old[model], new[model]),
                before[model],
                after[model],
            )
            for model in models
        ]

    @cached_property
    def panels(self) -> list[SlicePanel]:
        """Every panel of the headline metric, in order of test set, then of first appearance."""
        found = self._by_columns(self.metric)
        even = self._by_columns(f"{self.metric}_balanced")
        order = sorted(found, key=lambda key: (self.testsets.index(key[0]), len(key[1])))
        return [
            SlicePanel(
                testset=testset,
                columns=columns,
                types=self._types(testset, columns, found[testset, columns]),
                scores=found[testset, columns],
                overall=self.overall(testset),
                shown=best_middle_worst(self.ranked(found[testset, columns], testset)),
                classes=self.data.classes.get(testset, {}),
                balanced=even.get((testset, columns), {}),
                summaries=[
                    record
                    for record in self.summaries
                    if (record.testset, record.metric) == (testset, self.metric)
                    and tuple(sorted(record.columns.split("&"))) == columns
                ],
            )
            for testset, columns in order
        ]

    def _by_columns(
        self, metric: str
    ) -> dict[tuple[str, tuple[str, ...]], dict[str, dict[Values, Score]]]:
        """By test set and columns, model, and values: the slice scores of one metric."""
        found: dict[tuple[str, tuple[str, ...]], dict[str, dict[Values, Score]]] = {}
        for score in self.leading:
            if score.slice != ALL and score.metric == metric:
                parts = parse_slice(score.slice)
                columns = tuple(sorted(parts))
                by_model = found.setdefault((score.testset, columns), {})
                by_model.setdefault(score.model, {})[tuple(parts[c] for c in columns)] = score
        return found

    def _types(
        self, testset: str, columns: Sequence[str], scores: SliceScores
    ) -> tuple[ColumnType, ...]:
        known = self.data.columns.get(testset, {})
        types = []
        for position, column in enumerate(columns):
            texts = (v[position] for by_value in scores.values() for v in by_value)
            # Someone asked for slices by it, so an untyped column is never mere text.
            numeric = all(number_of(text) is not None for text in texts)
            inferred = ColumnType(kind="ordered" if numeric else "categorical")
            types.append(known.get(column, inferred))
        return tuple(types)


def _by_truth(records: Iterable[T]) -> dict[tuple[str, str], list[T]]:
    """Records by test set and truth, in order of first appearance."""
    groups: dict[tuple[str, str], list[T]] = {}
    for record in records:
        groups.setdefault((record.testset, record.truth), []).append(record)
    return groups


def _leading(records: Sequence[J]) -> list[J]:
    """The records of the first truth and label map of each test set and metric."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for r in records:
        first.setdefault((r.testset, r.metric), (r.truth, r.label_map))
    return [r for r in records if first[r.testset, r.metric] == (r.truth, r.label_map)]

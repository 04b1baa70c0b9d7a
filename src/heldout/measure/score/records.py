"""Results are records: the one form in which numbers leave heldout.

``--json`` prints one array of them. Values are fractions; percent appears only where a person
reads. ``None`` is where an interval or a test does not exist, and only there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import msgspec

from heldout.core.records import Count, Table, limits_text, with_limits

if TYPE_CHECKING:
    from heldout.stats.intervals import Interval


class _OfSlice:
    """A record that is about one slice of a test set."""

    slice: str

    @property
    def shown_slice(self) -> str:
        """The slice for a person; nothing for the whole set."""
        return "" if self.slice == "all" else unquote(self.slice)


@dataclass(frozen=True, kw_only=True)
class Score(_OfSlice):
    """One number of one model on one slice of one test set, with its interval.

    ``statistic``  what is said of the metric: its ``value``; the model's ``rank`` by it; the
                   lowest slice as observed (``worst``), its interval widened for having looked at
                   all; whether it is harder than the rest is said by a claim; the value on
                   ``balanced`` support; the value with some mistakes forgiven:
                   ``minor``, ``explained``, ``judged_minor``
    ``reason``     says why there is no interval, where there could have been one
    ``evidence``   where mistakes are forgiven, what their categories are proposed from
    """

    record: ClassVar[str] = "score"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}, percent where a share",
        ("model", "slice=shown_slice", "n:,", "shown"),
        across="name",
    )
    model: str
    testset: str
    truth: str
    metric: str
    n: int
    value: float
    slice: str = "all"
    statistic: str = "value"
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    level: float | None = None
    label_map: str = "identity"
    testset_hash: str = ""
    predictions_hash: str = ""
    reason: str | None = None
    evidence: str | None = None

    @property
    def name(self) -> str:
        """Metric and statistic in one word, such as ``top1`` or ``top1_rank``."""
        return self.metric if self.statistic == "value" else f"{self.metric}_{self.statistic}"

    @property
    def shown(self) -> str:
        """The value with its interval, for a person: shares in percent, ranks and losses as they are."""
        return with_limits(self, _form(self.metric, self.statistic))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One number that sums up how a metric runs along a column, or over a grid of two.

    ``columns``  the column, or ``x&y``
    ``name``     which number: ``area``, ``critical_value``, ``flip_rate``, … (docs/factors.md)
    ``support``  ``all`` images, or the ``balanced`` ones: units that are there at every value
    ``at``       the value of the column where it was found, where that is part of the answer
    ``model``    None for what holds whatever the model, such as classes that drop out
    ``value``    None where there is no such number; ``reason`` then says why, or why there is no
                 interval; a limit alone is None where the interval is open on that side
    """

    record: ClassVar[str] = "summary"
    table: ClassVar[Table] = Table(
        "{testset}, {metric} along {columns}, percent where a share",
        ("=shown_name", "images=support", "shown"),
        across="model",
    )
    model: str | None
    testset: str
    truth: str
    metric: str
    columns: str
    name: str
    n: int
    value: float | None
    support: str = "all"
    at: str | None = None
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    level: float | None = None
    label_map: str = "identity"
    testset_hash: str = ""
    predictions_hash: str = ""
    reason: str | None = None

    @property
    def shown_name(self) -> str:
        """Which number, for a person."""
        return self.name.replace("worst", "lowest").replace("_", " ")

    @property
    def shown(self) -> str:
        """The number with its interval and place: shares in percent, places as they are."""
        from heldout.measure.score.slices import parse_slice

        if self.value is None:
            return "–"
        text = with_limits(self, ".3g" if self.name in PLACES else "%1")
        if self.at is None:
            return text
        # Of a grid the place is a slice; of what drops out it is the name of a column.
        found = parse_slice(self.at).values() if "=" in self.at else [self.at]
        return f"{text} at {', '.join(found)}"


SEARCHED = "searched"
DISCOVERED, DISCOVERED_P, DISCOVERED_REST = "discovered", "discovered_p", "discovered_rest"
"""Names of the summaries of a search for slices."""


def is_discovery(record: Summary) -> bool:
    """Whether a summary is one of a search for slices."""
    return record.name in (SEARCHED, DISCOVERED, DISCOVERED_REST, DISCOVERED_P)


PLACES = ("critical_value", "breaking_value", "rank_correlation")
"""Summaries that are values of the column or plain numbers, not shares."""


@dataclass(frozen=True, kw_only=True)
class Comparison(_OfSlice):
    """The difference between two models on the same images: ``model`` minus ``other``."""

    record: ClassVar[str] = "comparison"
    table: ClassVar[Table] = Table(
        "{title}",
        ("model", "other", "test set=testset", "metric", "slice=shown_slice", "n:,", "difference=shown",
         "p:.3g", "test"),
    )  # fmt: skip
    model: str
    other: str
    testset: str
    truth: str
    metric: str
    n: int
    difference: float
    slice: str = "all"
    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: str | None = None
    reason: str | None = None

    @property
    def title(self) -> str:
        """What the numbers are."""
        if self.metric == "error_consistency":
            return "error consistency (kappa)"
        return "differences (model minus other), in points where of shares"

    @property
    def shown(self) -> str:
        """The difference with its interval, for a person."""
        return with_limits(self, f"+{_form(self.metric)}", "difference")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A line through models: accuracy on ``testset`` against accuracy on ``baseline``.

    ``slope``, ``intercept``, ``r2``  least squares through the points, as papers report them
    ``corrected_slope``, ``corrected_intercept``  without the noise of the baseline's images, which
                    makes the slope too flat; ``slope_low`` to ``intercept_high`` are their limits (in
                    records written before, those of a bootstrap that left this noise out)
    ``covariance``  variance of the corrected slope, covariance, variance of the intercept
    ``reason``      why there is no corrected line, and so no interval
    """

    record: ClassVar[str] = "fit"
    table: ClassVar[Table] = Table(
        "accuracy on the test set against the baseline",
        ("test set=testset", "baseline", "metric", "axes", "models:,", "slope:.3f", "intercept:.3f",
         "r2:.4f", "slope without noise=shown_slope", "reason"),
    )  # fmt: skip
    testset: str
    baseline: str
    metric: str
    axes: str
    models: int
    slope: float
    intercept: float
    r2: float
    slope_low: float | None = None
    slope_high: float | None = None
    intercept_low: float | None = None
    intercept_high: float | None = None
    corrected_slope: float | None = None
    corrected_intercept: float | None = None
    covariance: tuple[float, ...] | None = None
    interval: str | None = None
    level: float | None = None
    reason: str | None = None

    @property
    def line(self) -> tuple[float, float]:
        """Slope and intercept: the corrected ones, or those of least squares."""
        if self.corrected_slope is None or self.corrected_intercept is None:
            return self.slope, self.intercept
        return self.corrected_slope, self.corrected_intercept

    @property
    def shown_slope(self) -> str:
        """The corrected slope with its interval; nothing where there is none."""
        if self.slope_low is None:
            return ""
        return limits_text(self.line[0], self.slope_low, self.slope_high, ".3f")


@dataclass(frozen=True, kw_only=True)
class Tally(_OfSlice):
    """How many mistakes of one category and severity a model makes, and on which share of images.

    ``category``  ``Fine-grained error`` and so on; ``all`` for every one of them
    ``severity``  ``Major``, ``Minor``, ``Borderline``, ``unclear`` or ``unjudged``; ``all`` for any
    ``basis``    how the category came about: ``judged`` by people, ``proposed`` from evidence, or
                 ``unreviewed``: proposed, and nobody has looked whether the prediction is wrong at
                 all; ``all`` for any
    ``n``        mistakes; ``of`` the images that count; ``value`` is ``n / of``, None where no
                 image counts
    ``model``    None for what holds whatever the model, such as a published list of mistakes
    ``evidence`` what categories that nobody has judged are proposed from, and how often that is right
    """

    record: ClassVar[str] = "tally"
    table: ClassVar[Table] = Table(
        "mistakes on {testset}, truth {truth}: number, and percent of images",
        ("category=shown_category", "slice=shown_slice", "shown"),
        across="model",
    )
    model: str | None
    testset: str
    truth: str
    category: str
    severity: str
    basis: str
    n: int
    of: int
    value: float | None
    slice: str = "all"
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    level: float | None = None
    testset_hash: str = ""
    predictions_hash: str = ""
    reason: str | None = None
    evidence: str | None = None

    @property
    def shown_category(self) -> str:
        """Category, severity and basis in one text."""
        parts = [self.category if self.category != "all" else "all mistakes"]
        parts += [part for part in (self.severity, self.basis) if part != "all"]
        return ", ".join(parts)

    @property
    def shown(self) -> str:
        """The number, and the share of images with its interval."""
        return f"{self.n:,}" + ("" if self.value is None else f" {with_limits(self, '%')}")


EFFICIENCY = "efficiency"
"""How metrics begin that are labels which the other strategy needs over a strategy's own."""


@dataclass(frozen=True, kw_only=True)
class Learning(_OfSlice):
    """One number of a strategy for spending labels: at a point of its curve, or of the whole curve.

    ``labels``      how many labels there are at that point; None for the mean over the curve
    ``other``       the strategy that it is compared with; ``value`` is then the difference
    ``seeds``       runs that it is the mean over
    ``n``           test images
    ``adjusted_p``  ``p``, adjusted for all strategies that were compared (Holm)
    ``value``       None where there is no such number; ``reason`` then says why, or why there is no
                    interval
    """

    record: ClassVar[str] = "learning"
    strategy: str
    testset: str
    truth: str
    metric: str
    n: int
    seeds: int
    value: float | None
    labels: int | None = None
    other: str | None = None
    slice: str = "all"
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    level: float | None = None
    p: float | None = None
    adjusted_p: float | None = None
    testset_hash: str = ""
    reason: str | None = None

    @property
    def table(self) -> Table:
        """Values beside each other by metric; a difference in a row of its own, with its p."""
        if self.metric.startswith(EFFICIENCY):
            title = "{testset}, labels of {other} over those of a strategy, {point}; {interval}"
            return Table(title, ("strategy", "metric", "value:.2f[]"))
        unit, form = ("", ".3f") if self.metric == "loss" else (", percent", "%1")
        if self.other is None:
            columns = ("strategy", "slice=shown_slice", f"value:{form}[]")
            return Table(f"{{testset}}, {{point}}{unit}, {{seeds}} seeds", columns, across="metric")
        return Table(
            f"{{testset}}, {{point}} minus that of {{other}}{unit}; {{interval}}",
            ("strategy", "metric", f"difference=value:+{form}[]", "adjusted p=adjusted_p:.2g"),
        )

    @property
    def point(self) -> str:
        """Where on the curve."""
        return "mean of the curve" if self.labels is None else f"at {self.labels:,} labels"


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The accuracy on test images of one domain after training on ``labels`` images of another."""

    record: ClassVar[str] = "transfer"
    table: ClassVar[Table] = Table(
        "{testset}: accuracy after {labels} labels of one domain, percent",
        ("trained on=trained_on", "value:%1"),
        across="tested_on",
    )
    testset: str
    trained_on: str
    tested_on: str
    labels: int
    seeds: int
    value: float | None


@dataclass(frozen=True, kw_only=True)
class EfficiencyPredictors:
    """CLIP-GeoYFCC's m1 to m4 of a strategy for spending labels, and the data efficiency that it had.

    What is not known is null. ``heldout.curate.active.transfer`` has the formulas.
    """

    record: ClassVar[str] = "efficiency predictors"
    table: ClassVar[Table] = Table(
        "{testset}: what the domains selected first predict of data efficiency",
        ("strategy", "m1:.3f", "m2:.3f", "m3:.3f", "m4:.3f", "efficiency:.2f"),
    )
    testset: str
    strategy: str
    m1: float | None
    m2: float | None
    m3: float | None
    m4: float | None
    efficiency: float | None = None


@dataclass(frozen=True, kw_only=True)
class PredictorCorrelation:
    """How a predictor goes with data efficiency over ``n`` strategies or mixtures of domains.

    ``value``  Pearson's correlation, with Fisher's interval as of ``n`` independent pairs: mixtures
               that share domains are not independent
    ``ranks``  Spearman's
    """

    record: ClassVar[str] = "predictor correlation"
    table: ClassVar[Table] = Table(
        "correlation of predictors with data efficiency, over {n} of them",
        ("predictor", "correlation=value:.2f[]", "of ranks=ranks:.2f"),
    )
    predictor: str
    n: int
    value: float
    low: float
    high: float
    ranks: float
    level: float


@dataclass(frozen=True, kw_only=True)
class Claim(_OfSlice):
    """One statement that a report makes of a test set, or that it can make none of a kind.

    ``kind``        ``difference``: ``model`` is better than ``other``; ``slice``: it is right less often
                    on the ``slice`` than on all other images; ``change`` or ``rank``: its score or its
                    rank is another than on ``other``, the baseline (no model: the mean of all)
    ``stated``      False where none of the ``family`` that was looked at can be stated
    ``difference``  with limits that hold for all statements of a report together; of ranks, those won
    ``p``           corrected for the family and for the other kinds; the least one if nothing is stated
    ``told``        how many slices of these columns can be stated; the record is of the lowest
    ``where``       the slice in words
    """

    record: ClassVar[str] = "claim"
    table: ClassVar[Table] = Table(
        "statements, all of them together at {level}",
        ("kind", "test set=testset", "stated", "model", "other", "slice=where", "n:,",
         "difference=shown", "p:.3g", "of=family:,"),
    )  # fmt: skip
    kind: str
    testset: str
    truth: str
    metric: str
    stated: bool
    n: int
    family: int
    level: float
    model: str | None = None
    other: str | None = None
    slice: str = "all"
    where: str = ""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    told: int = 1

    @property
    def shown(self) -> str:
        """The difference with its interval, for a person."""
        form = "+.0f" if self.kind == "rank" else f"+{_form(self.metric)}"
        return "" if self.difference is None else with_limits(self, form, "difference")


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What a model's score would be without the images of a test set that a reference holds too.

    ``images``         which are left out: ``leaked``, or ``leaked or unresolved``
    ``left_out``       how many of the ``n`` images they are
    ``value_without``  the score on the other images; None where none is left
    ``difference``     ``value`` less ``value_without``, in points: what leaks add to the score
    """

    record: ClassVar[str] = "leak"
    table: ClassVar[Table] = Table(
        "{testset}: with and without images that {known} too, percent",
        ("model", "metric", "without=images", "images=left_out:,", "of=n:,", "score=value:%",
         "score without=value_without:%", "leaks add=difference:+%[]"),
    )  # fmt: skip
    model: str
    testset: str
    truth: str
    metric: str
    references: tuple[str, ...]
    images: str
    n: int
    left_out: int
    value: float
    value_without: float | None
    difference: float | None
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    level: float | None = None
    testset_hash: str = ""
    predictions_hash: str = ""
    reason: str | None = None

    @property
    def known(self) -> str:
        """The references, and that they hold them."""
        return f"{' or '.join(self.references)} {'hold' if len(self.references) > 1 else 'holds'}"


@dataclass(frozen=True, kw_only=True)
class AdjustedScore:
    """Accuracy of one model on a pool, at the true selection frequencies of an original set.

    ``estimator``   ``polynomial`` (the one to report), ``naive``, ``jackknife``, ``beta_binomial``
    ``estimand``    what all of them estimate; ``s`` is an image's true frequency
    ``n``           images of the pool with enough votes; ``n_original`` those of the original set
    ``votes``       how many are enough
    ``reason``      says why there is no interval
    """

    record: ClassVar[str] = "adjusted score"
    table: ClassVar[Table] = Table(
        "{testset}, {metric} at the true selection frequencies of {original}, percent",
        ("model", "n:,", "original=n_original:,", "shown"),
        across="estimator",
    )
    model: str
    testset: str
    truth: str
    metric: str
    original: str
    estimator: str
    estimand: str
    n: int
    n_original: int
    votes: int
    value: float
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    level: float | None = None
    label_map: str = "identity"
    testset_hash: str = ""
    original_hash: str = ""
    predictions_hash: str = ""
    reason: str | None = None

    @property
    def shown(self) -> str:
        """The value with its interval, for a person."""
        return with_limits(self, "%")


@dataclass(frozen=True, kw_only=True)
class HeldOutFrequencies:
    """A pool that is matched to an original set on half of the votes, seen by the other half.

    ``selected``  the matched images' mean frequency in the votes by which they were selected
    ``held_out``  the same in the other votes
    ``drop``      ``selected`` less ``held_out``: how much harder the matched images truly are; 0
                  where matching is without bias
    """

    record: ClassVar[str] = "held-out votes"
    table: ClassVar[Table] = Table(
        "{testset} matched to {original} on half of the votes, mean frequency in percent",
        ("n:,", "original=n_original:,", "votes:,", "when selected=selected:%1",
         "in the other votes=held_out:%1", "drop:+%1[]"),
    )  # fmt: skip
    testset: str
    original: str
    n: int
    n_original: int
    votes: int
    selected: float
    held_out: float
    drop: float
    low: float | None = None
    high: float | None = None
    level: float | None = None
    testset_hash: str = ""
    original_hash: str = ""
    reason: str | None = None


Adjusted = AdjustedScore | HeldOutFrequencies
Predicted = Transfer | EfficiencyPredictors | PredictorCorrelation
Record = (
    Score
    | Summary
    | Comparison
    | Fit
    | Count
    | Tally
    | Learning
    | Predicted
    | Claim
    | Leak
    | Adjusted
)
KINDS = (
    *(Score, Summary, Comparison, Fit, Count, Tally, Learning),
    *(Transfer, EfficiencyPredictors, PredictorCorrelation),
    *(Claim, Leak, AdjustedScore, HeldOutFrequencies),
)
_TYPES = {kind.record: kind for kind in KINDS}


def estimated(
    value: Any,
    interval: Interval | None = None,
    at: int | None = None,
    *,
    reason: str | None = None,
) -> dict[str, Any]:
    """The fields of a record that hold a value, its interval, and why there is none.

    ``value`` and the limits are numbers, or arrays of which ``at`` picks one.
    """

    def number(given: Any) -> float | None:
        return None if given is None else float(given if at is None else given[at])

    fields: dict[str, Any] = {"value": number(value), "reason": reason}
    if interval is not None:
        fields |= {"low": number(interval.low), "high": number(interval.high)}
        fields |= {"interval": interval.method, "level": interval.level}
    return fields


STATISTICS = ("rank", "worst", "balanced", "shrunk", "judged_minor", "minor", "explained")
"""What a score may say of a metric beside its value; before version 2 the metric's name ended with it."""


def from_dict(value: dict[str, Any]) -> Record:
    """The record that :func:`to_dict` wrote; a field that is missing or foreign is a TypeError."""
    if not isinstance(value, dict):
        raise TypeError("not an object")
    fields = dict(value)
    kind = fields.pop("record")
    if kind == "score" and "statistic" not in fields:
        for name in STATISTICS:
            if fields["metric"].endswith(f"_{name}"):
                fields |= {"metric": fields["metric"].removesuffix(f"_{name}"), "statistic": name}
                break
    if kind == "fit":
        for name in ("r2_low", "r2_high"):  # written before; they left out the noise of the images
            fields.pop(name, None)
        fields |= {"covariance": tuple(fields["covariance"])} if fields.get("covariance") else {}
    if kind == "leak":
        fields["references"] = tuple(fields["references"])
    record: Record = _TYPES[kind](**fields)
    try:
        msgspec.convert(fields, _TYPES[kind])
    except msgspec.ValidationError as error:
        raise TypeError(f"the {kind}: {error}") from None
    for name, given in fields.items():
        if isinstance(given, float) and not math.isfinite(given):
            raise TypeError(f"the {kind} {name!r} is {given!r}")
    return record


def _form(metric: str, statistic: str = "value") -> str:
    """How a person reads a metric."""
    from heldout.measure.score.metrics import is_share

    if statistic == "rank":
        return ".0f"
    return "%" if is_share(metric) else ".3f"

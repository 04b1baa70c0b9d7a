"""Results are records: the one form in which numbers leave heldout.

``--json`` prints one array of them. Values are fractions; percent appears only where a person
reads. ``None`` is where an interval or a test does not exist, and only there.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from heldout.core.records import Count, Table

if TYPE_CHECKING:
    from heldout.stats.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class Score:
    """One number of one model on one slice of one test set, with its interval.

    ``reason`` says why there is no interval, where there could have been one.
    """

    record: ClassVar[str] = "score"
    model: str
    testset: str
    truth: str
    metric: str
    n: int
    value: float
    slice: str = "all"
    low: float | None = None
    high: float | None = None
    interval: str | None = None
    level: float | None = None
    label_map: str = "identity"
    testset_hash: str = ""
    predictions_hash: str = ""
    reason: str | None = None


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


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference between two models on the same images: ``model`` minus ``other``."""

    record: ClassVar[str] = "comparison"
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


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A line through models: accuracy on ``testset`` against accuracy on ``baseline``."""

    record: ClassVar[str] = "fit"
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
    r2_low: float | None = None
    r2_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How many mistakes of one category and severity a model makes, and on which share of images.

    ``category``  ``Fine-grained error`` and so on; ``all`` for every one of them
    ``severity``  ``Major``, ``Minor``, ``Borderline``, ``unclear`` or ``unjudged``; ``all`` for any
    ``basis``    how the category came about: ``judged`` by people, ``proposed`` from evidence, or
                 ``unreviewed``: proposed, and nobody has looked whether the prediction is wrong at
                 all; ``all`` for any
    ``n``        mistakes; ``of`` the images that count; ``value`` is ``n / of``, None where no
                 image counts
    ``model``    None for what holds whatever the model, such as a published list of mistakes
    """

    record: ClassVar[str] = "tally"
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


EFFICIENCY = "efficiency"
"""How metrics begin that are labels which the other strategy needs over a strategy's own."""


@dataclass(frozen=True, kw_only=True)
class Learning:
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
            columns = ("strategy", "slice=part", f"value:{form}[]")
            return Table(f"{{testset}}, {{point}}{unit}, {{seeds}} seeds", columns, across="metric")
        return Table(
            f"{{testset}}, {{point}} minus that of {{other}}{unit}; {{interval}}",
            ("strategy", "metric", f"difference=value:+{form}[]", "adjusted p=adjusted_p:.2g"),
        )

    @property
    def point(self) -> str:
        """Where on the curve."""
        return "mean of the curve" if self.labels is None else f"at {self.labels:,} labels"

    @property
    def part(self) -> str:
        """The slice, where it is not every image."""
        return "" if self.slice == "all" else self.slice


Record = Score | Summary | Comparison | Fit | Count | Tally | Learning
KINDS = (Score, Summary, Comparison, Fit, Count, Tally, Learning)
_TYPES = {kind.record: kind for kind in KINDS}
_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "None": (type(None),),
}
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    kind.record: {
        field.name: tuple(plain for word in str(field.type).split(" | ") for plain in _PLAIN[word])
        for field in dataclasses.fields(kind)
    }
    for kind in KINDS
}
"""By kind of record and field: what its value may be in JSON."""


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


def from_dict(value: dict[str, Any]) -> Record:
    """The record that :func:`to_dict` wrote; a field that is missing or foreign is a TypeError."""
    fields = dict(value)
    kind = fields.pop("record")
    record: Record = _TYPES[kind](**fields)
    for name, allowed in _FIELDS[kind].items():
        given = getattr(record, name)
        if type(given) not in allowed or (type(given) is float and not math.isfinite(given)):
            raise TypeError(f"the {kind} {name!r} is {given!r}")
    return record

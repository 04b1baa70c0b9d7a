"""How numbers, metrics and values of columns are written for a person, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from heldout.measure.score import metrics
from heldout.measure.score.slices import format_value

MINUS = "−"
PERCENT = "\N{NO-BREAK SPACE}%"
_METRICS = {
    "top1": "top-1 accuracy",
    "top5": "top-5 accuracy",
    "accuracy": "accuracy",
    "mean_per_class": "mean per-class accuracy",
    "mean_per_class_recall": "mean per-class recall",
    "real": "ReaL accuracy",
    "mla": "multi-label accuracy",
    "mla_micro": "multi-label accuracy (micro)",
    "mla_correct_only": "multi-label accuracy (correct only)",
    "mla_upper": "multi-label accuracy (upper bound)",
    "ece": "expected calibration error",
    "nll": "negative log-likelihood",
    "brier": "Brier score",
}
_INTERVALS = {
    "wilson": "Wilson",
    "clopper_pearson": "Clopper–Pearson",
    "clopper-pearson": "Clopper–Pearson",
    "cluster-wilson": "Wilson over clusters",
    "cluster-bootstrap-studentised": "cluster bootstrap",
    "cluster-bootstrap-studentised-or-wilson": "cluster bootstrap (few clusters)",  # records of before
    "cluster-beta-binomial": "few clusters, beta-binomial",
}
_RANK = "_rank"
_ENDINGS = {
    "_worst": "lowest slice, {}",
    "_balanced": "{}, balanced support",
    "_shrunk": "{}, read with all other slices",
    "_judged_minor": "{}, mistakes judged minor forgiven",
    "_minor": "{}, fine-grained mistakes forgiven",
    "_explained": "{}, explained mistakes forgiven",
}


@dataclass(frozen=True)
class Cell:
    """One number of a table or a tooltip; as text with its interval in brackets.

    ``ends``   its interval; ``value`` is what a column is sorted by
    ``title``  what pointing at it says, such as why there is no interval
    ``sure``   whether it is printed in bold: a difference that chance hardly makes
    """

    text: str
    ends: str = ""
    value: float | None = None
    title: str = ""
    sure: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.ends})" if self.ends else self.text


def forgives(metric: str) -> bool:
    """Whether a metric counts some kinds of mistakes as hits."""
    return metric.endswith(("_minor", "_explained"))


def metric_name(metric: str) -> str:
    """A metric as a sentence names it.

    >>> metric_name("top1"), metric_name("top1_rank"), metric_name("my_metric")
    ('top-1 accuracy', 'rank by top-1 accuracy', 'my_metric')
    """
    for ending, words in {_RANK: "rank by {}", **_ENDINGS}.items():
        if metric.endswith(ending):
            return words.format(metric_name(metric.removesuffix(ending)))
    return _METRICS.get(metric, metric)


def _base(name: str) -> str:
    """The scorer's metric behind the name of a score."""
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name


def is_share(metric: str) -> bool:
    """Whether a person reads the score in percent.

    >>> is_share("top1_worst"), is_share("top1_rank"), is_share("nll")
    (True, False, False)
    """
    return not metric.endswith(_RANK) and metrics.is_share(_base(metric))


def merit(metric: str, value: float) -> float:
    """The value, or its negative where lower is better: larger is always better.

    >>> merit("top1", 0.7), merit("nll_worst", 1.5)
    (0.7, -1.5)
    """
    return metrics.merit(_base(metric), value)


def higher_is_better(metric: str) -> bool:
    """Whether a larger value is a better one."""
    return merit(metric, 1.0) > 0


def plain_digits(metric: str) -> int:
    """Decimals of a metric that is no share: none for a rank, else three."""
    return 0 if metric.endswith(_RANK) else 3


def percent(value: float, *, digits: int = 1) -> str:
    """A fraction in percent, without the sign.

    >>> percent(0.78312), percent(-0.004)
    ('78.3', '−0.4')
    """
    return signed(100 * value, digits=digits, plus=False)


def signed(value: float, *, digits: int = 1, plus: bool = True) -> str:
    """A number with a true minus sign, and a plus sign where ``plus``.

    >>> signed(-11.84), signed(0.3), signed(-0.01)
    ('−11.8', '+0.3', '0.0')
    """
    text = f"{abs(value):.{digits}f}"
    if not float(text):
        return text
    return (MINUS if value < 0 else "+" if plus else "") + text


def points(difference: float, *, digits: int = 1) -> str:
    """A difference of two fractions in percentage points, signed."""
    return signed(100 * difference, digits=digits)


def difference_text(metric: str, difference: float) -> str:
    """A difference of two values of a metric, signed: in points for a share, else as it is.

    >>> difference_text("top1", 0.0123), difference_text("nll", -0.0123)
    ('+1.23', '−0.012')
    """
    if is_share(metric):
        return points(difference, digits=2)
    return signed(difference, digits=plain_digits(metric))


def value_text(metric: str, value: float) -> str:
    """One value of a metric: percent for a share, else the plain number.

    >>> value_text("nll", 1.23456), value_text("top1", 0.78312).replace(PERCENT, " %")
    ('1.235', '78.3 %')
    """
    return _bare(metric, value) + (PERCENT if is_share(metric) else "")


def _bare(metric: str, value: float) -> str:
    """One value of a metric without its unit."""
    if is_share(metric):
        return percent(value)
    return signed(value, digits=plain_digits(metric), plus=False)


def range_text(metric: str, low: float | None, high: float | None) -> str:
    """An interval's ends, or nothing where there is none.

    >>> range_text("top1", 0.7795, 0.7867)
    '78.0–78.7'
    """
    if low is None or high is None:
        return ""
    return f"{_bare(metric, low)}–{_bare(metric, high)}"


def score_cell(record: Any, metric: str = "") -> Cell:
    """A record's value and interval in the words of its metric, or of another."""
    metric = metric or record.metric
    ends = range_text(metric, record.low, record.high)
    return Cell(value_text(metric, record.value), ends, record.value, record.reason or "")


def points_cell(
    difference: float, record: Any, digits: int = 1, end_digits: int = 1, unit: str = ""
) -> Cell:
    """A difference of two fractions in points, with the interval of its record.

    >>> from types import SimpleNamespace
    >>> str(points_cell(0.005, SimpleNamespace(low=-0.01, high=0.02)))
    '+0.5 (−1.0 to +2.0)'
    """
    ends = ""
    if record.low is not None and record.high is not None:
        ends = " to ".join(points(end, digits=end_digits) for end in (record.low, record.high))
    return Cell(points(difference, digits=digits) + unit, ends, difference)


def limits(value: float, record: Any, scale: float = 1.0) -> dict[str, float]:
    """Where a chart draws a value and the interval of its record; one without any has no length."""
    low = value if record.low is None else record.low
    high = value if record.high is None else record.high
    return {"value": scale * value, "low": scale * low, "high": scale * high}


def count(number: int) -> str:
    """A count with thin separators of thousands.

    >>> count(50000)
    '50,000'
    """
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """A count and its noun.

    >>> plural(1, "model"), plural(22, "model"), plural(3, "class")
    ('1 model', '22 models', '3 classes')
    """
    ending = "" if number == 1 else "es" if noun.endswith(("s", "x", "ch")) else "s"
    return f"{count(number)} {noun}{ending}"


def p_text(p: float | None) -> str:
    """A p-value: three digits, or how small it is.

    >>> p_text(0.0312), p_text(1e-9), p_text(None)
    ('0.031', '< 0.001', '')
    """
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def interval_names(records: Iterable[Any], words: str = "{}") -> str:
    """The interval methods behind some records, in some words, or nothing where there are none.

    ``" Bars: {}."`` becomes ``" Bars: 95 % Wilson."``
    """
    names = {
        f"{100 * record.level:.4g}{PERCENT} {_INTERVALS.get(record.interval, record.interval)}"
        for record in records
        if record.level is not None and record.interval and record.low is not None
    }
    return words.format(", ".join(sorted(names))) if names else ""


def best_middle_worst(ranked: Sequence[str]) -> list[str]:
    """The names that stand for all of them: the first, one in the middle, and the last."""
    if len(ranked) <= 3:
        return list(ranked)
    return [ranked[0], ranked[len(ranked) // 2], ranked[-1]]


def sentence(text: str) -> str:
    """A text with a capital first letter and nothing else changed.

    >>> sentence("top-1 accuracy of ResNet")
    'Top-1 accuracy of ResNet'
    """
    return text[:1].upper() + text[1:]


# ---- values of columns ---------------------------------------------------------------------------


def value_label(value: object) -> str | None:
    """A value of a table as slices name it; None where there is none.

    >>> value_label(0.30000000000000004), value_label(True), value_label(float("nan"))
    ('0.3', 'true', None)
    """
    return None if value is None or value != value else unquote(format_value(value))

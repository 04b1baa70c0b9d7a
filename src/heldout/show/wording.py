"""How numbers and metrics are written for a person: percent, points, intervals, counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from heldout.core.errors import UserError
from heldout.measure.score.metrics import Metric, get_metric
from heldout.measure.score.records import Score

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
    "cluster-bootstrap-studentised": "cluster bootstrap",
    "cluster-bootstrap-studentised-or-wilson": "cluster bootstrap (few clusters)",
}
# Metrics that the scorer does not know and that are no shares: shown as they are, not as percent.
_PLAIN = frozenset({"perplexity", "kappa", "error_consistency"})
_RANK, _WORST, _BALANCED, _SHRUNK = "_rank", "_worst", "_balanced", "_shrunk"
_FORGIVEN = {
    "_judged_minor": "mistakes judged minor forgiven",
    "_minor": "fine-grained mistakes forgiven",
    "_explained": "explained mistakes forgiven",
}


def forgives(metric: str) -> bool:
    """Whether a metric counts some kinds of mistakes as hits."""
    return metric.endswith(tuple(_FORGIVEN))


def metric_name(metric: str) -> str:
    """A metric as a sentence names it.

    >>> metric_name("top1"), metric_name("top1_rank"), metric_name("my_metric")
    ('top-1 accuracy', 'rank by top-1 accuracy', 'my_metric')
    """
    if metric.endswith(_RANK):
        return f"rank by {metric_name(metric.removesuffix(_RANK))}"
    if metric.endswith(_WORST):
        return f"worst slice, {metric_name(metric.removesuffix(_WORST))}"
    if metric.endswith(_BALANCED):
        return f"{metric_name(metric.removesuffix(_BALANCED))}, balanced support"
    if metric.endswith(_SHRUNK):
        return f"{metric_name(metric.removesuffix(_SHRUNK))}, read with all other slices"
    for ending, text in _FORGIVEN.items():
        if metric.endswith(ending):
            return f"{metric_name(metric.removesuffix(ending))}, {text}"
    return _METRICS.get(metric, metric)


@cache
def _known(metric: str) -> Metric | None:
    """The scorer's metric behind a score's name; None for a metric that is not the scorer's."""
    for ending in (_WORST, _BALANCED, _SHRUNK, *_FORGIVEN):
        metric = metric.removesuffix(ending)
    try:
        return get_metric(metric)
    except UserError:
        return None


def is_share(metric: str) -> bool:
    """Whether the metric is a share, so that a person reads it in percent.

    >>> is_share("top1_weighted"), is_share("ece20"), is_share("nll"), is_share("lca_height")
    (True, True, False, False)
    """
    if metric.endswith(_RANK):
        return False
    known = _known(metric)
    if known is None:
        return metric not in _PLAIN
    return known.plain or known.bins is not None


def merit(metric: str, value: float) -> float:
    """The value, or its negative where lower is better: larger is always better.

    >>> merit("top1", 0.7), merit("nll", 1.5), merit("ece_mass", 0.1)
    (0.7, -1.5, -0.1)
    """
    known = _known(metric)
    return value if known is None or known.higher_is_better else -value


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
    if is_share(metric):
        return f"{percent(value)}{PERCENT}"
    return signed(value, digits=plain_digits(metric), plus=False)


def range_text(metric: str, low: float | None, high: float | None) -> str:
    """An interval's ends, or nothing where there is none.

    >>> range_text("top1", 0.7795, 0.7867)
    '78.0–78.7'
    """
    if low is None or high is None:
        return ""
    if is_share(metric):
        return f"{percent(low)}–{percent(high)}"
    digits = plain_digits(metric)
    return f"{signed(low, digits=digits, plus=False)}–{signed(high, digits=digits, plus=False)}"


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


def interval_names(scores: Sequence[Score]) -> str:
    """The interval methods behind some scores, such as ``95 % Wilson``; empty without any."""
    names = {
        f"{100 * score.level:.4g}{PERCENT} {_INTERVALS.get(score.interval, score.interval)}"
        for score in scores
        if score.level is not None and score.interval is not None and score.low is not None
    }
    return ", ".join(sorted(names))

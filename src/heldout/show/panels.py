"""Slice scores gathered into panels: one panel a test set and set of columns.

A panel is what one figure shows. How it is drawn follows from its columns' types alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from heldout.data.testset.columns import ColumnType
from heldout.measure.score.curve_summaries import BALANCED
from heldout.measure.score.records import Score, Summary
from heldout.measure.score.slices import ALL, parse_slice
from heldout.show.data import Headline
from heldout.show.wording import MINUS

Values = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """All scores of the headline metric on the slices of one test set by the same columns.

    ``columns`` are sorted as slices sort them; ``scores[model][values]`` follows their order, and so
    does ``balanced``, of the units that are there at every value. ``summaries`` sum the columns up.
    """

    testset: str
    columns: tuple[str, ...]
    types: tuple[ColumnType, ...]
    scores: Mapping[str, Mapping[Values, Score]]
    balanced: Mapping[str, Mapping[Values, Score]] = field(default_factory=dict)
    summaries: Sequence[Summary] = ()

    @property
    def has_reading(self) -> bool:
        """Whether the columns were read as a curve, and not only sliced."""
        return bool(self.summaries)

    def values(self, position: int = 0) -> list[str]:
        """The distinct values of one column, in the order to show them.

        The column type's order where it has one; else numbers by size, else text by alphabet.
        """
        present = [v[position] for scores in self.scores.values() for v in scores]
        return in_order(present, self.types[position])

    @property
    def is_grid(self) -> bool:
        """Whether the two columns are the two axes of one grid."""
        kinds = {(kind.grid, kind.axis) for kind in self.types if kind.kind == "grid"}
        return len(self.types) == 2 and len({g for g, _ in kinds}) == 1 and len(kinds) == 2


def panels(headline: Headline) -> list[Panel]:
    """Every panel of the headline metric, in order of test set, then of first appearance."""
    found = _by_columns(headline, headline.metric)
    even = _by_columns(headline, f"{headline.metric}{BALANCED}")
    place = {testset: number for number, testset in enumerate(headline.testsets)}
    order = sorted(found, key=lambda key: (place[key[0]], len(key[1])))  # stable: else as found
    return [
        Panel(
            testset=testset,
            columns=columns,
            types=_types(headline, testset, columns, found[testset, columns]),
            scores=found[testset, columns],
            balanced=even.get((testset, columns), {}),
            summaries=[
                record
                for record in headline.summaries
                if record.testset == testset
                and record.metric == headline.metric
                and tuple(sorted(record.columns.split("&"))) == columns
            ],
        )
        for testset, columns in order
    ]


def _by_columns(
    headline: Headline, metric: str
) -> dict[tuple[str, tuple[str, ...]], dict[str, dict[Values, Score]]]:
    """By test set and columns, model, and values: the slice scores of one metric."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, dict[Values, Score]]] = {}
    for score in headline.scores:
        if score.slice == ALL or score.metric != metric or not headline.leads(score):
            continue
        parts = parse_slice(score.slice)
        columns = tuple(sorted(parts))
        by_model = found.setdefault((score.testset, columns), {})
        by_model.setdefault(score.model, {})[tuple(parts[c] for c in columns)] = score
    return found


def in_order(values: Iterable[str], kind: ColumnType) -> list[str]:
    """Distinct values of a column in the order to show them: the type's, else by size or alphabet."""
    given = [_as_text(value) for value in kind.order]
    known = {value: place for place, value in enumerate(given)}
    return sorted(set(values), key=lambda v: (known.get(v, len(known)), *_natural(v)))


def number(value: str) -> float | None:
    """The number that a slice's value writes, or None for other text."""
    try:
        result = float(value)
    except ValueError:
        return None
    return result if result == result and abs(result) != float("inf") else None


def slice_text(parts: Mapping[str, str]) -> str:
    """A slice as a person reads it.

    >>> slice_text({"x": "0.5", "y": "-1", "z": ":3"})
    'x = 0.5, y = −1, z under 3'
    """
    return ", ".join(
        f"{column} {'' if is_open(value) else '= '}{value_words(value)}"
        for column, value in parts.items()
    )


def value_words(value: str) -> str:
    """A value as a person reads it. ``0.5:0.7`` stays: it may also be a ratio or a time.

    >>> value_words("-1"), value_words(":0.5"), value_words("0.5:0.7"), value_words("0.7:")
    ('−1', 'under 0.5', '0.5:0.7', '0.7 and over')
    """
    if number(value) is not None:
        return value.replace("-", MINUS)
    if not is_open(value):
        return value
    low, _, high = value.replace("-", MINUS).partition(":")
    return f"{low} and over" if low else f"under {high}"


def is_open(value: str) -> bool:
    """Whether a value is a range with one end, ``:0.5`` or ``0.7:``."""
    return bounds(value) is not None and (value.startswith(":") or value.endswith(":"))


def bounds(value: str) -> tuple[float, float] | None:
    """The ends of a range such as ``0.5:0.7``, ``:0.5`` or ``0.7:``; None for other text."""
    low, colon, high = value.partition(":")
    first = -inf if not low else number(low)
    last = inf if not high else number(high)
    if not colon or first is None or last is None or (not low and not high):
        return None
    return first, last


def _types(
    headline: Headline,
    testset: str,
    columns: Sequence[str],
    scores: Mapping[str, Mapping[Values, Score]],
) -> tuple[ColumnType, ...]:
    known = headline.data.columns.get(testset, {})
    types = []
    for position, column in enumerate(columns):
        texts = sorted({v[position] for by_value in scores.values() for v in by_value})
        # Someone asked for slices by it, so an untyped column is never mere text.
        numeric = all(number(text) is not None for text in texts)
        guessed = ColumnType(kind="ordered" if numeric else "categorical")
        types.append(known.get(column, guessed))
    return tuple(types)


def _as_text(value: str | float) -> str:
    """An entry of a column type's order, as a slice writes and parses it."""
    return format(value + 0.0, ".6g") if isinstance(value, float) else str(value)


def _natural(value: str) -> tuple[bool, float, str]:
    as_number = number(value)
    ends = bounds(value)
    if as_number is None and ends is not None:
        as_number = ends[0]
    return (as_number is None, as_number if as_number is not None else 0.0, value)

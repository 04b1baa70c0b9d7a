"""Slices: their names, which measured rows belong to which, and which images belong together.

An entry of ``by`` is

``domain``                    a column: a slice for each value
``x&y``                       a conjunction: a slice for each combination that occurs
``class``                     the class of each row under the truth that was measured
``frequency@0.2,0.5``         a column of numbers cut at edges, into ``:0.2``, ``0.2:0.5`` and
                              ``0.5:``; an edge belongs to the bin that it opens

An image without a value is in no slice of that column. An image may be in many slices of a
membership, so these overlap. Where a membership's values name their class, ``cat(sofa)``, an image
of two classes lends each slice only the row of that slice's class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.data.testset import ColumnType, TestSet

if TYPE_CHECKING:
    from heldout.data.labels import LabelSpace
    from heldout.measure.score.measure import Measured


ALL = "all"


def format_value(value: object) -> str:
    """One value as a slice writes it: floats to six significant digits, text percent-escaped.

    >>> format_value(0.30000000000000004), format_value("New York & co")
    ('0.3', 'New%20York%20%26%20co')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(value + 0.0, ".6g")
    return quote(str(value), safe="-._~ ,()/+:").replace(" ", "%20")


def format_slice(values: Mapping[str, object]) -> str:
    """The name of a slice: ``all``, or ``a=x&b=y`` with columns sorted.

    >>> format_slice({"y": 0.0, "x": 0.5})
    'x=0.5&y=0'
    >>> format_slice({})
    'all'
    """
    return format_columns({column: format_value(value) for column, value in values.items()})


def format_columns(texts: Mapping[str, str]) -> str:
    """The name of a slice from values that :func:`format_value` has written.

    >>> format_columns({"x": "0.5"})
    'x=0.5'
    """
    return "&".join(f"{quote(column)}={texts[column]}" for column in sorted(texts)) or ALL


def parse_slice(text: str) -> dict[str, str]:
    """The columns and (textual) values of a slice's name.

    >>> parse_slice("x=0.5&y=0")
    {'x': '0.5', 'y': '0'}
    """
    if text == ALL:
        return {}
    parts: dict[str, str] = {}
    for part in text.split("&"):
        column, equals, value = part.partition("=")
        if not equals or not column:
            raise UserError(
                f"{text!r} is not a slice", fix="write all, or column=value&column=value"
            )
        parts[unquote(column)] = unquote(value)
    return parts


CLASS = "class"
"""The name under which the class of an image can be sliced like any column."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The slices of a column (or conjunction): pairs of measured row and slice code.

    ``positions``, ``codes``  int64 (pairs,), sorted; one pair per row for single-valued columns
    ``names``                 the slice's name for each code, in the column's own order
    ``single``                whether no row is in two slices
    """

    positions: np.ndarray
    codes: np.ndarray
    names: tuple[str, ...]
    single: bool

    def of_slices(self, kept: np.ndarray) -> Partition:
        """Some of the slices, by their codes in the order that they shall have."""
        table = np.full(len(self.names), -1)
        table[kept] = np.arange(len(kept))
        codes = table[self.codes]
        names = tuple(self.names[code] for code in kept)
        return replace(
            self, positions=self.positions[codes >= 0], codes=codes[codes >= 0], names=names
        )

    def slices(self) -> dict[str, np.ndarray]:
        """Slice name -> sorted positions among the measured rows; empty ones omitted."""
        order = np.argsort(self.codes, kind="stable")
        edges = np.searchsorted(self.codes[order], np.arange(len(self.names) + 1))
        return {
            name: np.sort(self.positions[order[edges[code] : edges[code + 1]]])
            for code, name in enumerate(self.names)
            if edges[code + 1] > edges[code]
        }


def partitions(measured: Measured, by: Sequence[str], *, text: bool = False) -> list[Partition]:
    """One partition for each entry of ``by``; ``text`` admits columns of type text."""
    return [
        reduce(
            join,
            [_part(measured, name, text) for name in entry_columns(entry, measured.testset)],
        )
        for entry in by
    ]


def entry_columns(entry: str, testset: TestSet) -> list[str]:
    """The columns of an entry, each perhaps with edges, in the order in which slices name them."""
    if entry in testset.card.columns:
        return [entry]
    parts = [part.strip() for part in entry.split("&")]
    names = [split_edges(part, testset)[0] for part in parts]
    if not all(names) or len(set(names)) < len(names):
        raise UserError(
            f"{entry!r} is not a column to slice by", fix="write column, or column&column"
        )
    return sorted(parts, key=lambda part: split_edges(part, testset)[0])


def has_columns(testset: TestSet, entry: str) -> bool:
    """Whether a test set has all columns of an entry."""
    names = [split_edges(part, testset)[0] for part in entry_columns(entry, testset)]
    return all(name == CLASS or name in testset.card.columns for name in names)


def split_edges(part: str, testset: TestSet) -> tuple[str, str | None]:
    """The column of one part of an entry, and its edges where it has some."""
    if part in testset.card.columns or "@" not in part:
        return part, None
    name, _, edges = part.rpartition("@")
    return name, edges


def _part(measured: Measured, part: str, text: bool) -> Partition:
    """The slices of one column of an entry."""
    testset = measured.testset
    name, edges = split_edges(part, testset)
    if name == CLASS:
        known = np.flatnonzero(measured.groups >= 0)
        names = tuple(format_slice({CLASS: class_id}) for class_id in measured.space.ids)
        return Partition(known, measured.groups[known], names, True)
    kind = testset.card.columns.get(name)
    if kind is None:
        have = ", ".join([CLASS, *testset.card.columns])
        raise NotFound(f"test set {testset.name} has no column {name!r}", fix=f"it has {have}")
    if kind.kind == "text" and not text:
        raise UserError(
            f"column {name!r} is text and cannot be sliced", fix="choose another column"
        )
    image_rows, codes, values = _column(testset, name, kind)
    if edges is not None:
        codes, texts = _binned(codes, values, edges, name)
    else:
        codes, texts = _by_text(codes, values, kind)
    positions, codes = _on_measured(measured.rows, image_rows, codes)
    if kind.of_class:
        kept = _same_class(measured, positions, codes, [unquote(text) for text in texts])
        positions, codes = positions[kept], codes[kept]
    names = tuple(format_columns({name: text}) for text in texts)
    return Partition(positions, codes, names, not kind.multi)


def _column(
    testset: TestSet, name: str, kind: ColumnType
) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Image row and value code of every value, and the distinct values; nulls and NaN left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind.multi:
        mine = testset.memberships.filter(pc.equal(testset.memberships["column"], name))
        found = pc.index_in(mine["image_id"].combine_chunks(), value_set=testset.image_ids)
        rows = found.to_numpy(zero_copy_only=False).astype(np.int64)
        column = mine["value"]
    else:
        rows = np.arange(len(testset))
        column = testset.images[name]
    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    values = encoded.dictionary.to_pylist()
    absent = [code for code, value in enumerate(values) if value is None or value != value]
    present = (codes >= 0) & ~np.isin(codes, absent)
    return rows[present], codes[present], values


def values_in_order(values: Iterable[str], kind: ColumnType | None) -> list[str]:
    """Distinct values of a column, as slices write them, in the order in which they are shown.

    First the values that the column type lists, in its order; then numbers and ranges by size;
    then other text.
    """
    known = map(format_value, () if kind is None else kind.order)
    listed = {unquote(text): place for place, text in enumerate(known)}

    def key(value: str) -> tuple[int, bool, float, str]:
        text = unquote(value)
        size = number_of(text)
        size = range_start(text) if size is None else size
        return listed.get(text, len(listed)), size is None, size or 0.0, value

    return sorted(set(values), key=key)


def _by_text(
    codes: np.ndarray, values: list[Any], kind: ColumnType
) -> tuple[np.ndarray, list[str]]:
    """Codes by the text that a slice shows, so that two values never share a name; in order."""
    names = values_in_order((format_value(values[code]) for code in np.unique(codes)), kind)
    place = {text: code for code, text in enumerate(names)}
    table = np.array([place.get(format_value(value), -1) for value in values], dtype=np.int64)
    return (table[codes] if len(codes) else codes), names


def number_of(text: Any) -> float | None:
    """The finite number that a text writes, or None."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def range_start(text: str) -> float | None:
    """Where a range such as ``0.5:0.7``, ``:0.5`` or ``0.7:`` begins; None for other text."""
    low, colon, high = text.partition(":")
    first = number_of(low) if low else -np.inf
    if not colon or not (low or high) or first is None or (high and number_of(high) is None):
        return None
    return first


def _binned(
    codes: np.ndarray, values: list[Any], edges: str, name: str
) -> tuple[np.ndarray, list[str]]:
    """Codes of half-open bins between edges."""
    try:
        cuts = [float(edge) for edge in edges.split(",")]
    except ValueError:
        raise UserError(
            f"{name}@{edges} has edges that are not numbers", fix=f"such as {name}@0.2,0.5"
        ) from None
    if not all(a < b for a, b in pairwise(cuts)) or not np.isfinite(cuts).all():
        raise UserError(f"{name}@{edges} has edges that do not rise", fix=f"such as {name}@0.2,0.5")
    if not all(isinstance(value, int | float) for value in values if value is not None):
        raise UserError(f"column {name!r} does not hold numbers", fix="slice by it without edges")
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    table = np.searchsorted(cuts, numbers, side="right")
    shown = ["", *map(format_value, cuts), ""]
    names = [f"{low}:{high}" for low, high in pairwise(shown)]
    return (table[codes] if len(codes) else codes), names


def _on_measured(
    rows: np.ndarray, image_rows: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of image row and code as pairs of measured row and code, sorted, each once."""
    order = np.argsort(rows, kind="stable")
    places, lengths = _matches(rows[order], image_rows)
    size = int(codes.max(initial=0)) + 1
    return np.divmod(np.unique(order[places] * size + np.repeat(codes, lengths)), size)


def _matches(ordered: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in ``ordered`` of each wanted number in turn, and how many each has."""
    low = np.searchsorted(ordered, wanted, side="left")
    lengths = np.searchsorted(ordered, wanted, side="right") - low
    starts = np.repeat(low - (np.cumsum(lengths) - lengths), lengths)
    return starts + np.arange(lengths.sum()), lengths


def _same_class(
    measured: Measured, positions: np.ndarray, codes: np.ndarray, values: list[str]
) -> np.ndarray:
    """Which pairs of row and value agree on the class; bool (pairs,).

    ``cat(sofa)`` is about the class with the id or the name ``cat``: the longest one that fits, so
    that names may hold parentheses. Values that name no class, or one of two, hold all rows.
    """
    named: dict[str, set[int]] = {}
    for number, one in enumerate(measured.space.classes):
        for name in one.names:
            named.setdefault(name, set()).add(number)
    classes = {name: min(found) for name, found in named.items() if len(found) == 1}
    classes |= {class_id: number for number, class_id in enumerate(measured.space.ids)}
    owner = np.full(len(values), -1)
    for code, value in enumerate(values):
        ends = [place for place, letter in enumerate(value) if letter == "("]
        found = (classes[value[:end]] for end in reversed(ends) if value[:end] in classes)
        if value.endswith(")"):
            owner[code] = next(found, -1)
    wanted = owner[codes] if len(codes) else codes
    return np.asarray((wanted < 0) | (wanted == measured.groups[positions]))


def join(left: Partition, right: Partition) -> Partition:
    """The conjunction of two columns: every pair of codes that some row has."""
    places, lengths = _matches(right.positions, left.positions)
    second = right.codes[places]
    width = len(right.names)
    present, codes = np.unique(np.repeat(left.codes, lengths) * width + second, return_inverse=True)
    names = tuple(f"{left.names[c // width]}&{right.names[c % width]}" for c in present)
    positions = np.repeat(left.positions, lengths)
    return Partition(positions, codes, names, left.single and right.single)


def slice_text(parts: Mapping[str, str], classes: Mapping[str, str] = MappingProxyType({})) -> str:
    """A slice as a person reads it; ``classes`` are names by id, of the column ``class``.

    >>> slice_text({"x": "0.5", "y": "-1", "z": ":3"})
    'x = 0.5, y = −1, z under 3'
    """
    return ", ".join(
        f"{column} {'' if _is_open(value) else '= '}{value_words(value)}"
        for column, value in (
            (column, classes.get(value, value) if column == CLASS else value)
            for column, value in parts.items()
        )
    )


def value_words(value: str) -> str:
    """A value as a person reads it. ``0.5:0.7`` stays: it may also be a ratio or a time.

    >>> value_words("-1"), value_words(":0.5"), value_words("0.5:0.7"), value_words("0.7:")
    ('−1', 'under 0.5', '0.5:0.7', '0.7 and over')
    """
    if number_of(value) is not None:
        return value.replace("-", "−")
    if not _is_open(value):
        return value
    low, _, high = value.replace("-", "−").partition(":")
    return f"{low} and over" if low else f"under {high}"


def _is_open(value: str) -> bool:
    """Whether a value is a range with one end, ``:0.5`` or ``0.7:``."""
    return range_start(value) is not None and (value.startswith(":") or value.endswith(":"))


def class_names(space: LabelSpace) -> dict[str, str]:
    """By id: what each class is called, with its id where others are called the same."""
    counts = Counter(item.name for item in space)
    return {c.id: f"{c.name} ({c.id})" if counts[c.name] > 1 else c.name for c in space}


NO_CLUSTERS = "none"


def cluster_column(testset: TestSet, asked: str | None) -> str | None:
    """The column to cluster by: the one asked for, else the card's; ``none`` is none at all."""
    card = testset.card
    if asked == NO_CLUSTERS and NO_CLUSTERS not in card.columns:
        return None
    return asked or (card.clusters if card.clusters in card.columns else None)


def cluster_codes(measured: Measured, column: str) -> np.ndarray:
    """Which rows belong together by a column; int64 (n,). A row without a value is alone."""
    (partition,) = partitions(measured, [column], text=True)  # such as photographers' names
    if not partition.single:
        raise NotApplicable(
            f"{column!r} has several values per image, so it cannot say which images belong together",
            fix="cluster by a single-valued column",
        )
    codes = len(partition.names) + measured.rows
    codes[partition.positions] = partition.codes
    return codes


def with_cluster_name(reason: str | None, column: str | None) -> str | None:
    """Why there is no interval, with the column that the clusters come from.

    >>> with_cluster_name("5 clusters are too few", "object")
    '5 clusters (object) are too few'
    """
    if reason is None or column is None:
        return reason
    return reason.replace(" clusters ", f" clusters ({column}) ", 1)


def unit_columns(testset: TestSet, columns: Sequence[str], asked: str | None) -> list[str]:
    """The columns that name what is repeated at every value of ``columns``.

    Those asked for, such as ``object&background``; else the card's units (or its clusters)
    together with all factors. ``columns`` themselves are left out: they are what varies.
    """
    card = testset.card
    if asked is not None:
        given = [asked] if asked in card.columns else [part.strip() for part in asked.split("&")]
        if not all(given):
            raise UserError(f"--balance {asked!r}", fix="write column, or column&column")
    else:
        given = list(card.units) or ([card.clusters] if card.clusters else [])
        if given:
            given += [column for entry in card.factors for column in factor_columns(testset, entry)]
        given = [column for column in given if column in card.columns]
    return [column for column in dict.fromkeys(given) if column not in columns]


def factor_columns(testset: TestSet, entry: str) -> list[str]:
    """The columns of a factor: itself, or the two axes of ``x&y``."""
    return [entry] if entry in testset.card.columns else entry.split("&")


def unit_codes(measured: Measured, columns: Sequence[str]) -> np.ndarray:
    """Which rows belong to one unit: those that share all of ``columns``; int64 (n,).

    Values are compared as slices write them, so that 0.15000000000000002 is 0.15.
    """
    together = np.stack([cluster_codes(measured, column) for column in columns], axis=1)
    codes: np.ndarray = np.unique(together, axis=0, return_inverse=True)[1].ravel()
    return codes.astype(np.int64)

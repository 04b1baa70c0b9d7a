"""Records: the one form in which numbers leave heldout.

A record is a frozen dataclass or Struct with ``record``, its kind, and ``table``, how a person is
shown many of them. ``--json`` prints one array of them. Values are fractions; percent appears only
where a person reads. ``None`` is where an interval or a test does not exist, and only there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import msgspec

from heldout.core.files import sealed


class Table(NamedTuple):
    """How records of one kind are shown to a person.

    ``title``    a format text; records that fill it alike share a table: ``"{testset}, truth {truth}"``
    ``columns``  ``"field"``, ``"field:form"`` or ``"heading=field:form"``. A field is any attribute,
                 a property too. Forms: ``,`` a count with thousands; ``%`` or ``%1`` percent with 2
                 or 1 digits; ``+%`` signed points; any format text such as ``.3f``; after each of
                 them ``[]`` adds the interval ``[low, high]``
    ``across``   a field whose values become columns, such as ``metric``; the cell is the last column
    ``rows``     at most so many, unless ``--full`` is given
    """

    title: str
    columns: tuple[str, ...]
    across: str = ""
    rows: int = 12


@dataclass(frozen=True, kw_only=True)
class Count:
    """A named count; ``model`` and ``testset`` say of what, where that applies."""

    record: ClassVar[str] = "count"
    table: ClassVar[Table] = Table("counts", ("name", "model", "test set=testset", "value:,"))
    name: str
    value: int
    model: str | None = None
    testset: str | None = None


def counts(
    values: Mapping[str, int], *, testset: str | None = None, model: str | None = None
) -> list[Count]:
    """A count for each name."""
    return [
        Count(name=name, value=value, testset=testset, model=model)
        for name, value in values.items()
    ]


def to_dict(record: Any) -> dict[str, Any]:
    """The record as a JSON object, ``record`` first."""
    if hasattr(record, "to_dict"):
        plain = record.to_dict()
    elif dataclasses.is_dataclass(record):
        plain = dataclasses.asdict(record)  # type: ignore[arg-type]
    else:
        plain = msgspec.to_builtins(record, enc_hook=str)
    return {"record": record.record, **plain}


def to_json(records: Iterable[Any], *, seal: bool = False) -> str:
    """All records as one JSON array, one record per line; with ``seal`` each with its ``check``."""
    lines = [
        json.dumps(to_dict(record), ensure_ascii=False, allow_nan=False, default=str)
        for record in records
    ]
    if seal:
        lines = [json.dumps(sealed(json.loads(line)), ensure_ascii=False) for line in lines]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def formatted(value: float, form: str) -> str:
    """A number in one of the forms of :class:`Table`.

    >>> formatted(0.7831, "%"), formatted(-0.01, "+%1"), formatted(1234, ",")
    ('78.31', '-1.0', '1,234')
    """
    if "%" in form:
        sign, _, digits = form.partition("%")
        return f"{100 * value:{sign}.{digits or 2}f}"
    return f"{value:{form}}"


def limits_text(value: float, low: float | None, high: float | None, form: str) -> str:
    """A number with its interval; a limit that does not exist is an ellipsis.

    >>> limits_text(0.7831, 0.7795, 0.7867, "%")
    '78.31 [77.95, 78.67]'
    """
    text = formatted(value, form)
    if low is None and high is None:
        return text
    shown = ("…" if limit is None else formatted(limit, form) for limit in (low, high))
    return f"{text} [{', '.join(shown)}]"


def with_limits(record: Any, form: str, field: str = "value") -> str:
    """A number of a record with the record's interval."""
    return limits_text(getattr(record, field), record.low, record.high, form)


class Column(NamedTuple):
    """One column of a :class:`Table`: its heading, its field, and the form of its cells."""

    head: str
    field: str
    form: str

    @classmethod
    def parse(cls, text: str) -> Column:
        """As a table declares it.

        >>> Column.parse("test set=testset")
        Column(head='test set', field='testset', form='')
        >>> Column.parse("n_models:,")
        Column(head='n models', field='n_models', form=',')
        """
        head, equals, rest = text.partition("=")
        field, _, form = (rest if equals else text).partition(":")
        return cls(head if equals else field.replace("_", " "), field, form)

    def cell(self, record: Any) -> str:
        """What a person reads of a record; nothing where there is no value."""
        value = getattr(record, self.field)
        if value is None or value == "":
            return ""
        if not self.form:
            return plain(value)
        if self.form.endswith("[]"):
            return with_limits(record, self.form.removesuffix("[]"), self.field)
        return formatted(value, self.form)


def plain(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Grid(NamedTuple):
    """Records of one kind and title as the cells of a table; columns without a value are left out.

    ``left``  of each column whether it is text, and stands to the left
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[bool, ...]
    records: tuple[Any, ...]

    @property
    def shown(self) -> int:
        """How many rows a person is shown unless all are asked for."""
        most: int = self.records[0].table.rows
        return len(self.rows) if len(self.rows) <= most + 2 else most


def grids(records: Iterable[Any]) -> list[Grid]:
    """The records that declare a table: a grid for each kind and title."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for record in records:
        if getattr(record, "table", None) is not None:
            title = record.table.title.format_map(_Attributes(record))
            groups.setdefault((record.record, title), []).append(record)
    return [_grid(title, members) for (_, title), members in groups.items()]


class _Attributes(dict[str, Any]):
    """The attributes of a record, for a format text."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __missing__(self, name: str) -> Any:
        return getattr(self.record, name)


def _grid(title: str, records: Sequence[Any]) -> Grid:
    table: Table = records[0].table
    columns = [Column.parse(text) for text in table.columns]
    if table.across:
        heads, rows = _pivoted(table.across, columns, records)
    else:
        heads = [column.head for column in columns]
        rows = [[column.cell(record) for column in columns] for record in records]
    left = [not column.form for column in columns] + [False] * (len(heads) - len(columns))
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows) or place == 0]
    return Grid(
        title,
        tuple(heads[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in rows),
        tuple(left[place] for place in kept),
        tuple(records),
    )


def _pivoted(
    across: str, columns: Sequence[Column], records: Sequence[Any]
) -> tuple[list[str], list[list[str]]]:
    """Rows by all columns but the last, and the last one for each value of a field beside them."""
    *names, last = columns
    values = list(dict.fromkeys(str(getattr(record, across)) for record in records))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for record in records:
        key = tuple(name.cell(record) for name in names)
        rows.setdefault(key, {})[str(getattr(record, across))] = last.cell(record)
    heads = [name.head for name in names] + [value.replace("_", " ") for value in values]
    return heads, [
        [*key, *(cells.get(value, "") for value in values)] for key, cells in rows.items()
    ]

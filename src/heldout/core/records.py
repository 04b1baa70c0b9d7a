"""Records: the one form in which numbers leave heldout.

A record is a frozen dataclass or Struct with ``record``, its kind, and ``table``, how a person is
shown many of them. ``--json`` prints one array of them. Values are fractions; percent appears only
where a person reads. ``None`` is where an interval or a test does not exist, and only there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import msgspec


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
    values: dict[str, int], *, testset: str | None = None, model: str | None = None
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


def to_json(records: Iterable[Any]) -> str:
    """All records as one JSON array, one record per line."""
    lines = [
        json.dumps(to_dict(record), ensure_ascii=False, allow_nan=False, default=str)
        for record in records
    ]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"

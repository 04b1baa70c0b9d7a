"""Column types: what a property of images is, so that results can be read and drawn by type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from heldout.core.errors import UserError

Kind = Literal["categorical", "ordered", "circular", "grid", "text"]
KINDS: tuple[Kind, ...] = ("categorical", "ordered", "circular", "grid", "text")


@dataclass(frozen=True, kw_only=True)
class ColumnType:
    """The type of one column.

    ``kind``    categorical (bars), ordered (a curve), circular (a closed curve), grid (one axis of
                a heat map), or text (never sliced)
    ``unit``    what numbers count, such as ``degrees``
    ``period``  circular columns: the value at which it comes round, such as 360
    ``order``   ordered or categorical columns: the values in the order to show them
    ``grid``    grid columns: the name that the two axes of one heat map share
    ``axis``    grid columns: ``x`` or ``y``
    ``multi``   a membership: an image may have many values
    ``of_class``  a membership whose values name the class that they are about, ``class(…)``: such a
                value holds the rows of that class alone, where an image has rows of several
    """

    kind: Kind
    unit: str | None = None
    period: float | None = None
    order: tuple[str | float, ...] = ()
    grid: str | None = None
    axis: Literal["x", "y"] | None = None
    multi: bool = False
    of_class: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(
                f"{self.kind!r} is no column type", fix=f"use one of {', '.join(KINDS)}"
            )
        if self.kind == "circular" and not self.period:
            raise UserError("a circular column needs its period", fix="such as period = 360")
        if self.kind == "grid" and (not self.grid or self.axis not in ("x", "y")):
            raise UserError(
                "a grid column needs the grid's name and its axis", fix="axis = 'x' or 'y'"
            )
        if self.of_class and not self.multi:
            raise UserError("only a membership can be of classes", fix="multi = true")

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, without the fields that are not set."""
        fields = {
            key: value for key, value in asdict(self).items() if value not in (None, (), False)
        }
        if "order" in fields:
            fields["order"] = list(self.order)
        return fields

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ColumnType:
        """The type that :meth:`to_dict` wrote."""
        return cls(**{**value, "order": tuple(value.get("order", ()))})


def guess_type(values: Sequence[object]) -> ColumnType:
    """The type of an untyped column: numbers ordered, few repeated texts categorical, else text."""
    present = [value for value in values if value is not None]
    if present and all(isinstance(v, int | float) and not isinstance(v, bool) for v in present):
        return ColumnType(kind="ordered")
    distinct = len(set(map(str, present)))
    if distinct > 50 and distinct > len(present) / 2:
        return ColumnType(kind="text")
    return ColumnType(kind="categorical")

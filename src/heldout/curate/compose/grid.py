"""The values that factors take: the published grids, and ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heldout.core.errors import UserError

MOST_VALUES = 100_000
"""A range of more values than this is taken for a slip."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published grid: centres (x outside, y inside), areas, rotations, image size, filter."""

    x: tuple[float, ...] = (0.5,)
    y: tuple[float, ...] = (0.5,)
    size: tuple[float, ...]
    rotation: tuple[int | float, ...] = (0,)
    resolution: str = "512x512"
    min_inside: float = 0.95


def _location() -> tuple[float, ...]:
    # Multiplied, not divided: 0.15000000000000002 is what the published metadata have.
    return tuple(i * 0.05 for i in range(21))


PRESETS: Mapping[str, Preset] = {
    "size": Preset(size=tuple(i / 100 for i in range(1, 101))),
    "demo": Preset(size=tuple(i / 10 for i in range(1, 9))),
    "rotation": Preset(size=(0.2, 0.5, 0.8, 1.0), rotation=tuple(range(1, 342, 20))),
    "location": Preset(
        x=_location(), y=_location(), size=(0.2,), resolution="500x500", min_inside=0.0
    ),
    "custom": Preset(size=(0.25,)),
}
"""SI-SCORE's three sets and its demonstration; ``custom`` is one image a pair, to start from.

Rotations avoid multiples of 90 degrees on purpose: these need no resampling, so that the object
would be sharper there than at all other angles.
"""


def expand_values(value: Any, where: str) -> list[Any]:
    """A list of values from a list, one value, or a range ``{from, to, step}``, ends included.

    >>> expand_values({"from": 0.1, "to": 0.4, "step": 0.1}, "size")
    [0.1, 0.2, 0.3, 0.4]
    """
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, Mapping):
        return [value]
    if set(value) != {"from", "to", "step"} or any(
        isinstance(v, bool) or not isinstance(v, int | float) or not math.isfinite(v)
        for v in value.values()
    ):
        raise UserError(
            f"{where}: a range is {dict(value)}", fix="write {from = 0.1, to = 0.8, step = 0.1}"
        )
    start, end, step = value["from"], value["to"], value["step"]
    if not step or (end - start) / step < 0:
        raise UserError(f"{where}: the range never ends", fix="let step lead from from to to")
    count = math.floor((end - start) / step + 1e-9) + 1
    if count > MOST_VALUES:
        raise UserError(f"{where}: the range has {count:,} values", fix="use a larger step")
    if all(isinstance(v, int) for v in (start, step)):
        return [start + i * step for i in range(count)]
    # Rounded, so that values join with what people write: 0.3, not 0.30000000000000004.
    return [round(start + i * step, 12) for i in range(count)]


def read_values(text: str, where: str) -> list[Any]:
    """Values as a command line gives them: ``0.1,0.2``, ``from:to:step``, or words.

    >>> read_values("0:90:30", "rotation"), read_values("hard,poisson", "blend")
    ([0, 30, 60, 90], ['hard', 'poisson'])
    """
    parts = text.split(":")
    if len(parts) == 3 and all(_number(part) is not None for part in parts):
        start, end, step = map(_number, parts)
        return expand_values({"from": start, "to": end, "step": step}, where)
    values = [part.strip() for part in text.split(",") if part.strip()]
    if not values:
        raise UserError(f"{where} has no values", fix="write such as 0.1,0.2 or 0:1:0.05")
    return [part if (number := _number(part)) is None else number for part in values]


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None

"""SubpopBench's metadata file: filename, y, a, split (Yang et al., Change is Hard, ICML 2023).

``y`` is the number of the class, ``a`` that of the attribute (here the context), ``split`` is 0 for
train, 1 for validation, 2 for test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heldout.core.errors import UserError
from heldout.core.files import csv_text

FIELDS = ("filename", "y", "a", "split")
NUMBERS = {"train": 0, "validation": 1, "test": 2}


@dataclass(frozen=True, kw_only=True)
class SubpopRow:
    """One image: its class, its attribute and its part."""

    image: str
    label: str
    attribute: str
    part: str


def subpopbench_csv(
    rows: Iterable[SubpopRow],
    *,
    classes: Sequence[str] | None = None,
    attributes: Sequence[str] | None = None,
    filename: str = "{image}",
) -> str:
    """The metadata file as text, rows in the order given.

    ``classes``     in the order of their numbers. Without it, in falling order of their names,
                    which gives SubpopBench's own numbers: dog 0, cat 1.
    ``attributes``  likewise: outdoor 0, indoor 1
    ``filename``    how a file is named by the image's id, such as ``images/{image}.jpg``
    """
    if "{image}" not in filename:
        raise UserError(f"file names by {filename!r}", fix="write {image} where the id goes")
    listed = list(rows)
    y = _numbers((row.label for row in listed), classes, "class")
    a = _numbers((row.attribute for row in listed), attributes, "attribute")
    lines = []
    for row in listed:
        if row.part not in NUMBERS:
            raise UserError(f"no part {row.part!r}", fix=f"use {', '.join(NUMBERS)}")
        name = filename.replace("{image}", row.image)
        lines.append((name, y[row.label], a[row.attribute], NUMBERS[row.part]))
    return csv_text(FIELDS, lines)


def _numbers(values: Iterable[str], order: Sequence[str] | None, what: str) -> dict[str, int]:
    found = set(values)
    given = sorted(found, reverse=True) if order is None else list(order)
    missing = sorted(found - set(given))
    if missing:
        raise UserError(f"{what} {missing[0]!r} has no number", fix=f"name every {what} in order")
    if len(set(given)) < len(given):
        twice = next(value for value in given if given.count(value) > 1)
        raise UserError(f"{what} {twice!r} is named twice", fix=f"name every {what} once")
    return {value: number for number, value in enumerate(given)}

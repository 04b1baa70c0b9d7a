"""A split: which images train, validate and test, with the class and the group of each.

As files: ``train.csv``, ``validation.csv`` (where there is one) and ``test.csv`` with the columns
image, class and group, rows in the order of the rule that made the split; ``images.csv`` with every
image, all its groups and the part it went to; and ``split.json`` with the rule and the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from heldout.core.errors import BadFile, UserError
from heldout.core.files import csv_text, existing_file
from heldout.data.testset.exporters.owned_folder import write_documents

PARTS = ("train", "validation", "test")
COLUMNS = ("image", "class", "group")


class SplitRow(NamedTuple):
    """One image of a part: its class and the group that it stands for."""

    image: str
    label: str
    group: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """A split of images into parts; no image is in two of them, nor twice in one.

    ``parts``   part name (one of :data:`PARTS`) to its rows, in order
    ``rule``    how it was made: name, parameters, seed
    ``groups``  every image that was there with all its groups, used or not
    ``notes``   what the user should know
    """

    parts: Mapping[str, tuple[SplitRow, ...]]
    rule: Mapping[str, Any]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for part, rows in self.parts.items():
            if part not in PARTS:
                raise ValueError(f"no part {part!r}")
            for row in rows:
                if row.image in seen:
                    raise UserError(
                        f"image {row.image!r} is in {seen[row.image]} and again in {part}",
                        fix="give each image one group, or drop the ambiguous ones",
                    )
                seen[row.image] = part

    def part_of(self) -> dict[str, str]:
        """The part of each image that is used."""
        return {row.image: part for part, rows in self.parts.items() for row in rows}

    def counts(self) -> dict[str, int]:
        """Images of each part, and of each group in it."""
        found: dict[str, int] = {}
        for part, rows in self.parts.items():
            found[part] = len(rows)
            for group in dict.fromkeys(row.group for row in rows):
                found[f"{part} {group}"] = sum(row.group == group for row in rows)
        return found


def split_documents(split: Split) -> dict[str, str]:
    """The CSV files of a split, name to text."""
    documents = {f"{part}.csv": csv_text(COLUMNS, rows) for part, rows in split.parts.items()}
    part_of = split.part_of()
    groups = dict(split.groups)
    for rows in split.parts.values():
        for row in rows:
            groups.setdefault(row.image, (row.group,))
    documents["images.csv"] = csv_text(
        ("image", "groups", "part"),
        [
            (image, "|".join(sorted(groups[image])), part_of.get(image, ""))
            for image in sorted(groups)
        ],
    )
    return documents


def save_split(
    split: Split,
    folder: Path,
    *,
    further: Mapping[str, str] | None = None,
    replace: bool = False,
) -> bool:
    """Write a split to a folder; the same one again is no change (False).

    ``further``  more files for the folder, name to text. Nothing that was not written here is ever
    deleted, see :func:`heldout.data.testset.exporters.owned_folder.write_documents`.
    """
    return write_documents(
        folder,
        split_documents(split) | dict(further or {}),
        kind="split",
        about={"rule": dict(split.rule), "counts": split.counts(), "notes": list(split.notes)},
        replace=replace,
    )


def read_columns(path: Path, columns: Sequence[str], what: str) -> list[tuple[str, ...]]:
    """Some columns of a table as texts, none empty; further columns are passed over.

    CSV, TSV, JSON lines or Parquet, by the file's ending; ``what`` names the file in messages.
    """
    from heldout.core.tables import read_table_file

    table = read_table_file(existing_file(path, what))
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise BadFile(
            path,
            f"lacks the column {missing[0]}",
            fix=f"write {','.join(columns)} as its first line",
        )
    cells = [["" if v is None else str(v) for v in table[name].to_pylist()] for name in columns]
    rows = list(zip(*cells, strict=True))
    for number, row in enumerate(rows, 1):
        if not all(row):
            empty = columns[row.index("")]
            raise BadFile(path, f"row {number} has no {empty}", fix="fill it in")
    return rows

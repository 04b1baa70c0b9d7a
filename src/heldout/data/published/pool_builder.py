"""Pools as readers build them: images and memberships as numbers, tables at the end, and a report."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from heldout.core.errors import BadFile, UserError
from heldout.core.files import atomic_path
from heldout.data.images import check_id
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.annotations import clean_names
from heldout.data.testset.tables import (
    IMAGE_COLUMNS,
    image_schema,
    image_table,
    membership_schema,
    truth_table,
)

if TYPE_CHECKING:
    import pyarrow as pa


_EXAMPLES = 5
_LONGEST = 300


class ReadProblem(msgspec.Struct, frozen=True):
    """Something that was met ``count`` times.

    ``kind``      what it is and what was done about it
    ``examples``  where, the first few
    ``images``    whether whole images were lost by it
    """

    kind: str
    count: int
    examples: tuple[str, ...] = ()
    images: bool = False

    @property
    def line(self) -> str:
        """The problem on one line."""
        shown = f", such as {self.examples[0]}" if self.examples else ""
        return f"{self.count:,} × {self.kind}{shown}"


class Report(msgspec.Struct, frozen=True):
    """What came of reading metadata.

    ``counts``    images, memberships, and for each column its memberships and distinct values
    ``problems``  what could not be used as it was
    """

    counts: dict[str, int]
    problems: tuple[ReadProblem, ...] = ()

    @property
    def lost_images(self) -> bool:
        """Whether some images are not in the pool that the files name, or should have named."""
        return any(problem.images for problem in self.problems)


class Problems:
    """Problems as they are met. Kinds are few; places are many and only counted."""

    def __init__(self) -> None:
        self._met: dict[str, ReadProblem] = {}

    def add(self, kind: str, where: str, *, image_lost: bool = False, times: int = 1) -> None:
        """Count one more of ``kind``, met at ``where``."""
        known = self._met.get(kind) or ReadProblem(kind, 0)
        shown = known.examples
        if len(shown) < _EXAMPLES:
            # Half of a surrogate pair can be in a file, but not in one that we write.
            text = where.encode("utf-8", "backslashreplace").decode("utf-8")
            shown = (*shown, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
        lost = known.images or image_lost
        self._met[kind] = ReadProblem(kind, known.count + times, shown, lost)

    def found(self) -> tuple[ReadProblem, ...]:
        """All of them, lost images first, then by kind."""
        return tuple(sorted(self._met.values(), key=lambda one: (not one.images, one.kind)))


_MOST_PIXELS = 2**31 - 1


@dataclass
class _Column:
    """One membership column: image ``images[i]`` has the value of number ``codes[i]``."""

    vocabulary: dict[str, int] = field(default_factory=dict)
    images: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("q"))


class PoolBuilder:
    """Images and memberships of one pool while they are read.

    An image that comes again (in another file, or twice in one) is merged: its memberships are
    the union, and of every other fact the first that was stated counts.
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self._places: dict[str, int] = {}
        self._facts: dict[str, list[Any]] = {}
        self._columns: dict[str, _Column] = {}

    def __len__(self) -> int:
        return len(self._places)

    def knows(self, image_id: str) -> bool:
        """Whether an image of this id was met."""
        return image_id in self._places

    def image(self, image_id: object, where: str, facts: Mapping[str, Any] | None = None) -> int:
        """The number of an image, new or known; -1 for something that cannot be an id.

        ``facts`` are single values of the image; those that are None are not stated.
        """
        text = id_text(image_id)
        place = self._places.get(text)
        if place is None:
            try:
                check_id(text)
            except UserError:
                self.problems.add("image without a usable id, left out", where, image_lost=True)
                return -1
            place = self._places[text] = len(self._places)
        for name, value in (facts or {}).items():
            if value is not None:
                self.state(name, place, value, where)
        return place

    def sizes(self, entry: Mapping[str, Any], where: str) -> dict[str, Any]:
        """``width`` and ``height`` of an entry; None, and counted, for what is not a size."""
        found = {side: pixels(entry.get(side)) for side in ("width", "height")}
        for side, size in found.items():
            if size is None and entry.get(side) is not None:
                self.problems.add("width or height that is no size, left empty", where)
        return found

    def state(self, name: str, place: int, value: Any, where: str) -> None:
        """Image number ``place`` has this single value; of two that differ the first is kept."""
        stated = self._facts.setdefault(name, [])
        if len(stated) <= place:
            stated.extend([None] * (place + 1 - len(stated)))
        if stated[place] is None:
            stated[place] = value
        elif stated[place] != value:
            self.problems.add(f"image with two values of {name}, the first kept", where)

    def fact(self, name: str, place: int) -> Any:
        """A single value of an image, or None where none was stated."""
        stated = self._facts.get(name, [])
        return stated[place] if place < len(stated) else None

    def add(self, column: str, place: int, values: Collection[str]) -> None:
        """Image number ``place`` has these values of ``column``."""
        if values:
            kept = self._columns.setdefault(column, _Column())
            known = kept.vocabulary
            kept.codes.extend([known.setdefault(value, len(known)) for value in values])
            kept.images.extend([place] * len(values))

    def images_table(self) -> pa.Table:
        """The images, in the order they were met."""
        n = len(self._places)
        columns: dict[str, Any] = {"image_id": list(self._places)}
        for name, stated in self._facts.items():
            columns[name] = stated + [None] * (n - len(stated))
        return image_table(columns)

    def memberships(self) -> tuple[pa.Table, dict[str, int]]:
        """The table of memberships; and how many, in all and a column, and of how many values."""
        import pyarrow as pa

        ids = pa.array(self._places, pa.string())
        parts = [membership_schema().empty_table()]
        counts: dict[str, int] = {}
        for name, column in sorted(self._columns.items()):
            words = sorted(column.vocabulary)
            rank = np.empty(len(words), dtype=np.int64)
            rank[[column.vocabulary[word] for word in words]] = np.arange(len(words))
            # Each pair of image and value once, by image and then by value.
            keys = np.array(column.images) * len(words) + rank[np.array(column.codes)]
            places, codes = np.divmod(np.unique(keys), len(words))
            columns = [
                ids.take(pa.array(places)),
                pa.repeat(pa.scalar(name, pa.string()), len(places)),
                pa.array(words, pa.string()).take(pa.array(codes)),
            ]
            parts.append(pa.table(columns, schema=membership_schema()))
            counts[f"{name}_memberships"] = len(codes)
            counts[f"{name}_values"] = len(words)
        table = pa.concat_tables(parts)
        return table, {"images": len(self), "memberships": len(table), **counts}


def id_text(value: object) -> str:
    """An id as text: whole numbers as their digits; what cannot be an id is empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    # A float beyond 2^53 may not be the id that was meant, and no id has thousands of digits.
    if isinstance(value, float) and not (value.is_integer() and abs(value) <= 2**53):
        return ""
    return str(int(value)) if abs(value) < 2**64 else ""


def plain_text(value: object) -> str | None:
    """A text such as an address; None for what is none, empty, or not printable."""
    return value if isinstance(value, str) and value.isprintable() and value else None


def pixels(value: object) -> int | None:
    """A width or height in pixels; None for anything that is not a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 < value <= _MOST_PIXELS or value != int(value):  # NaN is in no range
        return None
    return int(value)


_GROUP = 1 << 17
MEMBERSHIPS = {
    "tags": "tag",
    "machine_tags": "machine_tag",
    "autotags": "autotag",
    "label_ids": "label",
    "in_5k_label_ids": "in_5k_label",
    "in_imagenet21k_label_indices": "in_imagenet21k_label",
}
"""Columns of lists, and the memberships that they become."""


@dataclass
class RowStream:
    """Tables of rows with ``image_id``, one after another; the rest is filled in by the last."""

    tables: Iterator[pa.Table] = field(default_factory=lambda: iter(()))
    counts: Mapping[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    space: LabelSpace | None = None
    truth: str = "keywords"


def gather_rows(rows: RowStream, builder: PoolBuilder) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The images table and truths of all rows; memberships go to ``builder``.

    A photo that comes again is left out and counted: its rows are one photo's.
    """
    import pyarrow as pa

    parts: list[pa.Table] = []
    labelled: list[pa.Table] = []
    for table in rows.tables:
        lists = {
            name: table[of].to_pylist()
            for of, name in MEMBERSHIPS.items()
            if of in table.column_names
        }
        fresh = []
        for row, image_id in enumerate(table["image_id"].to_pylist()):
            if builder.knows(image_id):
                builder.problems.add("photo that comes again, the first kept", image_id)
                continue
            place = builder.image(image_id, "rows")
            if place >= 0:
                fresh.append(row)
                for name, values in lists.items():
                    words = clean_names([str(value) for value in values[row] or ()])
                    builder.add(name, place, words)
        if len(fresh) < len(table):
            table = table.take(fresh)
        if "class_ids" in table.column_names:
            labelled.append(table.select(["image_id", "class_ids"]))
        single = [n for n in table.column_names if not pa.types.is_list(table[n].type)]
        parts.append(table.select(single))
    if not parts:
        return image_schema().empty_table(), {}
    images = _with_fixed(pa.concat_tables(parts, promote_options="default").combine_chunks())
    truths = {}
    if labelled and rows.space is not None:
        table = pa.concat_tables(labelled)
        ids, lists = (table[name].to_pylist() for name in ("image_id", "class_ids"))
        truths[rows.truth] = truth_table(ids, _only_class(table), correct=lists)
    return images, truths


def write_rows(rows: RowStream, path: Path) -> int:
    """Write all rows to a Parquet file as they come; returns how many."""
    import pyarrow.parquet as pq

    count = 0
    with atomic_path(path) as temporary:
        writer = None
        try:
            for table in map(_with_class, _groups(rows.tables)):
                writer = writer or pq.ParquetWriter(temporary, table.schema, compression="zstd")
                writer.write_table(table)
                count += len(table)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise BadFile(path, "would have no rows", fix="check the files and the filters")
    return count


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of about the size of a row group, so that readers have fewer."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= _GROUP:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _with_class(table: pa.Table) -> pa.Table:
    """The table with ``class_id`` beside ``class_ids``."""
    import pyarrow as pa

    if "class_ids" not in table.column_names:
        return table
    return table.append_column("class_id", pa.array(_only_class(table), pa.string()))


def _only_class(table: pa.Table) -> list[str | None]:
    """The class of each row that has one only; None for others."""
    return [one[0] if one and len(one) == 1 else None for one in table["class_ids"].to_pylist()]


def _with_fixed(table: pa.Table) -> pa.Table:
    """The table with all fixed columns of images first."""
    import pyarrow as pa

    fixed = [
        table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type)
        for f in image_schema()
    ]
    further = [name for name in table.column_names if name not in IMAGE_COLUMNS]
    return pa.table([*fixed, *(table[name] for name in further)], names=[*IMAGE_COLUMNS, *further])

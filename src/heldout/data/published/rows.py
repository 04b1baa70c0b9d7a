"""Readers that give rows as Arrow tables: into a pool, or straight into a Parquet file.

Lists become memberships of a pool under their own names (``tags`` as ``tag``); ``class_ids`` becomes
a truth with several labels. A Parquet file keeps the lists (and has ``class_id`` for rows of one class),
and is written as the rows come, so the whole archive fits through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.core.errors import BadFile
from heldout.core.files import atomic_path
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.gathering import Gathering
from heldout.data.published.names import Names
from heldout.data.testset.tables import IMAGE_COLUMNS, image_schema, truth_table

if TYPE_CHECKING:
    import pyarrow as pa

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
class Found:
    """What a reader of rows knows once all rows were read."""

    counts: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    space: LabelSpace | None = None
    truth: str = "keywords"
    images_root: Path | None = None


@dataclass(frozen=True)
class Rows:
    """Tables of rows with ``image_id``, one after another; ``found`` is filled in by the last."""

    tables: Iterator[pa.Table]
    found: Found


def gather_rows(rows: Rows, gathering: Gathering) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The images table and truths of all rows; memberships go to ``gathering``.

    A photo that comes again is left out and counted: its rows are one photo's.
    """
    import pyarrow as pa

    parts: list[pa.Table] = []
    labelled: list[pa.Table] = []
    for table in rows.tables:
        new = np.ones(len(table), dtype=bool)
        places = np.empty(len(table), dtype=np.int64)
        for row, image_id in enumerate(table["image_id"].to_pylist()):
            if gathering.knows(image_id):
                new[row] = False
                gathering.problems.add("photo that comes again, the first kept", image_id)
            else:
                places[row] = gathering.image(image_id, "rows")
                new[row] = places[row] >= 0
        if not new.all():
            table, places = table.filter(pa.array(new)), places[new]
        for name in table.column_names:
            if name in MEMBERSHIPS:
                _gather_lists(gathering, MEMBERSHIPS[name], table[name], places)
        if "class_ids" in table.column_names:
            labelled.append(table.select(["image_id", "class_ids"]))
        single = [n for n in table.column_names if not pa.types.is_list(table[n].type)]
        parts.append(table.select(single))
    if not parts:
        return image_schema().empty_table(), {}
    images = _with_fixed(pa.concat_tables(parts, promote_options="default").combine_chunks())
    truths = {}
    if labelled and rows.found.space is not None:
        truths[rows.found.truth] = _truth(pa.concat_tables(labelled))
    return images, truths


def write_rows(rows: Rows, path: Path) -> int:
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
    """The table with ``class_id`` beside ``class_ids``: the class of a row that has one only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if "class_ids" not in table.column_names:
        return table
    lists = table["class_ids"].combine_chunks()
    one = pc.equal(pc.list_value_length(lists), 1).fill_null(False)
    first = pc.list_flatten(pc.if_else(one, lists, pa.scalar(None, lists.type)))
    place = np.where(one, np.cumsum(one) - 1, -1)
    ids = first.take(pa.array(place, mask=place < 0))
    return table.append_column("class_id", ids)


def _gather_lists(gathering: Gathering, name: str, column: Any, places: Any) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = column.combine_chunks()
    coded = lists.flatten().cast(pa.string()).dictionary_encode()
    clean = Names()
    words = [clean.clean(word) for word in coded.dictionary.to_pylist()]
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    used = np.array([bool(word) for word in words], dtype=bool)[codes]
    rows = pc.list_parent_indices(lists).to_numpy()
    gathering.add_codes(name, places[rows[used]], codes[used], [word or "-" for word in words])


def _with_fixed(table: pa.Table) -> pa.Table:
    """The table with all fixed columns of images first."""
    import pyarrow as pa

    fixed = [
        table[f.name].cast(f.type) if f.name in table.column_names else pa.nulls(len(table), f.type)
        for f in image_schema()
    ]
    further = [name for name in table.column_names if name not in IMAGE_COLUMNS]
    return pa.table([*fixed, *(table[name] for name in further)], names=[*IMAGE_COLUMNS, *further])


def _truth(table: pa.Table) -> pa.Table:
    """A truth of lists; the class of an image that has one only, else none in particular."""
    lists = table["class_ids"].to_pylist()
    return truth_table(
        table["image_id"].to_pylist(),
        [classes[0] if len(classes) == 1 else None for classes in lists],
        correct=lists,
    )

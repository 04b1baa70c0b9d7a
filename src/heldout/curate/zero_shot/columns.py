"""The columns that assignment adds to images, as Arrow tables, a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heldout.curate.zero_shot.assigning import Assigned
from heldout.curate.zero_shot.similarities import Similarity
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.columns import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

LABEL = "class_id"
TIES = "tied_with"
TOP = "top_classes"
TOP_COSINES = "top_cosines"


def column_types(similarities: Sequence[Similarity], *, k: int) -> dict[str, ColumnType]:
    """Types of the columns that :func:`annotation_tables` gives."""
    made = {LABEL: ColumnType(kind="categorical")}
    made |= {each.column: ColumnType(kind="ordered") for each in similarities}
    made |= {TIES: ColumnType(kind="text")}
    if k > 1:
        made |= {TOP: ColumnType(kind="text"), TOP_COSINES: ColumnType(kind="text")}
    return made


def annotation_tables(
    ids: Sequence[str],
    blocks: Iterator[Assigned],
    *,
    space: LabelSpace,
    similarities: Sequence[Similarity],
    k: int = 1,
) -> Iterator[pa.Table]:
    """Tables of image_id and the new columns, one a block of images, in order.

    ``class_id``       the label; null where an image has no vector
    ``similarity_*``, ``margin``  as asked for; null where there is none
    ``tied_with``      other classes with exactly the label's cosine; null for none
    ``top_classes``, ``top_cosines``  the best k, for k > 1
    """
    import pyarrow as pa

    names = pa.array(space.ids, pa.string())
    start = 0
    for found in blocks:
        n = len(found)
        columns: dict[str, Any] = {"image_id": pa.array(ids[start : start + n], pa.string())}
        bad = found.label < 0
        columns[LABEL] = names.take(pa.array(found.label, pa.int32(), mask=bad))
        for each in similarities:
            values = each.values(found)
            columns[each.column] = pa.array(values, mask=np.isnan(values))
        columns[TIES] = _lists(found.ties[:, 0], names.take(pa.array(found.ties[:, 1])), n)
        if k > 1:
            row = np.repeat(np.arange(n), k)
            kept = (found.topk >= 0).ravel()
            columns[TOP] = _lists(row[kept], names.take(pa.array(found.topk.ravel()[kept])), n)
            columns[TOP_COSINES] = _lists(row[kept], pa.array(found.topk_cosine.ravel()[kept]), n)
        start += n
        yield pa.table(columns)


def _lists(rows: np.ndarray, values: Any, n: int) -> Any:
    """Values by ascending row as lists; a row without any is null."""
    import pyarrow as pa

    counts = np.bincount(rows, minlength=n)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    empty = pa.array(np.append(counts == 0, False))
    places = pa.array(offsets, mask=empty.to_numpy(zero_copy_only=False))
    return pa.ListArray.from_arrays(places, values)

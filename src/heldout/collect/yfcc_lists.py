"""Comma-separated lists of form-encoded texts: split first, then decode, as a tag may have a comma."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.collect.yfcc_text import decoded


def lists_of(
    column: Any,
    *,
    parents: NDArray[np.int64] | None = None,
    keep: NDArray[np.bool_] | None = None,
    count: int | None = None,
    decode: bool = False,
) -> Any:
    """Lists from texts with commas, or from flat values with the row that each belongs to.

    ``column``   Arrow binary or string without nulls: one text a row, or with ``parents`` (rising)
                 one value an entry, of ``count`` rows
    ``keep``     which values count; empty ones never do
    ``decode``   form-decode the values
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    flat = column
    rows = len(column) if count is None else count
    if parents is None:
        cut = pc.split_pattern(column, ",")
        parents = parents_of(cut)
        flat = cut.flatten()
    used = pc.not_equal(pc.binary_length(flat), 0).to_numpy(zero_copy_only=False)
    if keep is not None:
        used = used & keep
    if not used.all():
        flat, parents = flat.filter(pa.array(used)), parents[used]
    if decode:
        flat, _ = decoded(flat)
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(parents, minlength=rows), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def parents_of(lists: Any) -> NDArray[np.int64]:
    """The row of each value of a list array, (values,)."""
    import pyarrow.compute as pc

    parents: NDArray[np.int64] = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return parents.astype(np.int64)

"""Parts of a set: by a flag of the source, by held-out values, or drawn so that groups stay whole.

A drawn part follows from a hash of the row's id, or of its group's value, and the seed. So a row is in
the same part in every set that has it: in one with a smaller cap, with fewer classes, or from other
files. Shares are met on average, and the larger the groups, the more they vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heldout.core.errors import NotFound, UserError
from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.domains.selection import id_texts
from heldout.data.testset.hashing import derived_seed, row_hash, uniform

COLUMN = "split"
TRAIN, TEST = "train", "test"


def split_rows(rows: Any, parameters: DomainsParameters, *, seed: int) -> Any:
    """The part of every row as an Arrow array of texts; rows as ``Selection.rows``.

    ``flag:COLUMN``        true and 1 -> train, false and 0 -> test; other texts as they are
    ``values:COLUMN=A,B``  rows with these values -> test, others -> train
    ``rows``               drawn by id, shares by ``parts``
    ``group:COLUMN``       drawn by the value of the column; rows without one by their id
    """
    import pyarrow.compute as pc

    kind, _, name = (parameters.split or "").partition(":")
    values = ""
    if kind == "values":
        name, _, values = name.partition("=")
    if kind == "rows" and not name:
        return _drawn(rows["image_id"], parameters.parts, derived_seed("split of rows", seed))
    if not name or kind not in ("flag", "group", "values") or (kind == "values" and not values):
        raise UserError(
            f"no split {parameters.split!r}",
            fix="write flag:COLUMN, values:COLUMN=A,B, rows or group:COLUMN",
        )
    if name not in rows.column_names:
        raise NotFound(
            f"no column {name!r} to split by", fix=f"there is {', '.join(rows.column_names)}"
        )
    texts = id_texts(rows[name].combine_chunks())
    if kind == "flag":
        return _by_flag(texts)
    if kind == "values":
        return _by_values(texts, [value.strip() for value in values.split(",")])
    mark = pc.binary_join_element_wise("group", texts, "=")
    alone = pc.binary_join_element_wise("row", rows["image_id"].combine_chunks(), "=")
    own = derived_seed("split of groups", seed)
    return _drawn(pc.coalesce(mark, alone), parameters.parts, own)


def read_parts(texts: Sequence[str]) -> dict[str, float]:
    """Parts with their shares from ``name=share`` texts; shares must sum to 1.

    >>> read_parts(["train=0.8", "test=0.2"])
    {'train': 0.8, 'test': 0.2}
    """
    parts: dict[str, float] = {}
    for text in texts:
        name, _, share = text.partition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not name or not 0 < number <= 1 or name in parts:
            raise UserError(f"{text!r} is not a part", fix="write NAME=SHARE, each name once")
        parts[name] = number
    if abs(sum(parts.values()) - 1) > 1e-9:
        raise UserError(f"the parts sum to {sum(parts.values()):g}", fix="make them sum to 1")
    return parts


def _by_flag(texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array([TRAIN, TRAIN, TEST, TEST])
    place = pc.index_in(texts, value_set=pa.array(["true", "1", "false", "0"]))
    return pc.coalesce(names.take(place), texts)


def _by_values(texts: Any, wanted: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = [value for value in wanted if value not in pc.unique(texts).to_pylist()]
    if missing:
        raise NotFound(
            f"no row has {missing[0]!r} to hold out", fix="check the names of --split-by"
        )
    return pc.if_else(pc.is_in(texts, value_set=pa.array(wanted, pa.string())), TEST, TRAIN)


def _drawn(names: Any, parts: Sequence[str], seed: int) -> Any:
    import pyarrow as pa

    shares = read_parts(parts)
    edges = np.cumsum(list(shares.values()))[:-1]
    codes = np.searchsorted(edges, uniform(row_hash(names, seed=seed)), side="right")
    return pa.array(list(shares), pa.string()).take(pa.array(codes))

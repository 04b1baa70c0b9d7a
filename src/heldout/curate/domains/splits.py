"""Parts of a set: by a flag of the source, by held-out values, or drawn so that groups stay whole.

A drawn part follows from a hash of the row's id, or of its group's value, and the seed. So a row is in
the same part in every set that has it: in one with a smaller cap, with fewer classes, or from other
files. Shares are met on average, and the larger the groups, the more they vary. Stratified parts
(:mod:`heldout.curate.domains.stratifying`) have their shares in every class and domain, as nearly as
groups allow, and depend on all rows of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from heldout.core.errors import NotFound, UserError
from heldout.curate.domains.capping import id_texts
from heldout.curate.domains.parameters import DomainsParameters
from heldout.curate.domains.reading import CLASS
from heldout.curate.domains.stratifying import deal_out
from heldout.data.testset.hashing import derived_seed, row_hash, uniform

COLUMN = "split"
TRAIN, TEST = "train", "test"


def split_rows(rows: Any, parameters: DomainsParameters, *, seed: int) -> Any:
    """The part of every row as an Arrow array of texts; rows as ``Selection.rows``.

    ``flag:COLUMN``           true, 1 or a text train -> train, false, 0 -> test; other texts as they are
    ``domain:A,B``            rows of these domains -> test, others -> train
    ``values:COLUMN=A,B``     the same for another column
    ``rows``                  drawn by id, shares by ``parts``
    ``group:COLUMN``          drawn by the value of the column; rows without one by their id
    ``stratified:COLUMN``     the same, with shares met in every class and domain
    """
    if parameters.split is None:
        raise ValueError("no split was asked for")
    kind, _, rest = parameters.split.partition(":")
    if kind == "flag" and rest:
        return _by_flag(_column(rows, rest))
    if kind == "domain" and rest:
        return _by_values(_column(rows, parameters.domain), rest.split(","))
    if kind == "values" and "=" in rest:
        name, _, values = rest.partition("=")
        return _by_values(_column(rows, name), values.split(","))
    if kind == "rows" and not rest:
        return _drawn(rows["image_id"], parameters.parts, derived_seed("split of rows", seed))
    if kind == "group" and rest:
        groups = _groups(rows["image_id"], _column(rows, rest))
        return _drawn(groups, parameters.parts, derived_seed("split of groups", seed))
    if kind == "stratified" and rest:
        return _stratified(rows, parameters, rest, derived_seed("split of groups", seed))
    raise UserError(
        f"no split {parameters.split!r}",
        fix="write flag:COLUMN, domain:A,B, values:COLUMN=A,B, rows, group:COLUMN or "
        "stratified:COLUMN",
    )


def split_columns(parameters: DomainsParameters) -> tuple[str, ...]:
    """Columns that the split and intervals need, which must be kept for them."""
    kind, _, rest = (parameters.split or "").partition(":")
    name = rest.partition("=")[0]
    split = (name,) if kind in ("flag", "group", "stratified", "values") and name else ()
    return split if parameters.clusters is None else (*split, parameters.clusters)


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
            raise UserError(f"{text!r} is no part", fix="write NAME=SHARE, each name once")
        parts[name] = number
    if abs(sum(parts.values()) - 1) > 1e-9:
        raise UserError(f"the parts sum to {sum(parts.values()):g}", fix="make them sum to 1")
    return parts


def _column(rows: Any, name: str) -> Any:
    if name not in rows.column_names:
        raise NotFound(
            f"no column {name!r} to split by", fix=f"there is {', '.join(rows.column_names)}"
        )
    return rows[name].combine_chunks()


def _by_flag(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    if not (pa.types.is_boolean(column.type) or pa.types.is_integer(column.type)):
        raise UserError(
            f"a flag of type {column.type}", fix="give true and false, 1 and 0, or texts"
        )
    values = pc.unique(column).drop_null().to_pylist()
    if not set(values) <= {0, 1}:
        raise UserError(f"a flag with the value {max(values)}", fix="give 1 for train, 0 for test")
    return pc.if_else(pc.cast(column, pa.bool_()), TRAIN, TEST)


def _by_values(column: Any, values: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = id_texts(column)
    wanted = [value.strip() for value in values]
    known = set(pc.unique(texts).to_pylist())
    missing = [value for value in wanted if value not in known]
    if missing:
        raise NotFound(f"no row has {missing[0]!r} to hold out", fix="check the names of --split")
    return pc.if_else(pc.is_in(texts, value_set=pa.array(wanted, pa.string())), TEST, TRAIN)


def _groups(ids: Any, column: Any) -> Any:
    """What is drawn: a row's group, or the row itself where it has none."""
    import pyarrow.compute as pc

    mark = pc.binary_join_element_wise("group", id_texts(column), "=")
    alone = pc.binary_join_element_wise("row", ids.combine_chunks(), "=")
    return pc.coalesce(mark, alone)


def _stratified(rows: Any, parameters: DomainsParameters, name: str, seed: int) -> Any:
    import pyarrow as pa

    shares = read_parts(parameters.parts)
    groups, names = _sorted_codes(_groups(rows["image_id"], _column(rows, name)))
    codes = deal_out(
        groups,
        _sorted_codes(rows[CLASS].combine_chunks())[0],
        _sorted_codes(id_texts(_column(rows, parameters.domain)))[0],
        row_hash(names, seed=seed),
        list(shares.values()),
    )
    return pa.array(list(shares), pa.string()).take(pa.array(codes))


def _sorted_codes(column: Any) -> tuple[np.ndarray, Any]:
    """Codes in the order of the values, which follow: the same whatever the order of the rows."""
    import pyarrow.compute as pc

    values = pc.unique(column)
    values = values.take(pc.array_sort_indices(values))
    codes = pc.index_in(column, value_set=values).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), values


def _drawn(names: Any, parts: Sequence[str], seed: int) -> Any:
    import pyarrow as pa

    shares = read_parts(parts)
    edges = np.cumsum(list(shares.values()))[:-1]
    codes = np.searchsorted(edges, uniform(row_hash(names, seed=seed)), side="right")
    return pa.array(list(shares), pa.string()).take(pa.array(codes))

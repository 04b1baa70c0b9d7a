"""Parts of a set: by a flag of the source, by held-out values, or drawn so that groups stay whole.

A drawn part follows from a hash of the row's id, or of its group's value, and the seed. So a row is in
the same part in every set that has it: in one with a smaller cap, with fewer classes, or from other
files. Shares are met on average, and the larger the groups, the more they vary. Stratified parts
have their shares in every class and domain, as nearly as groups allow, and depend on all rows of the
set.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import NotFound, UserError
from heldout.curate.domains.requests import DomainsParameters
from heldout.curate.domains.selection import CLASS, id_texts
from heldout.data.testset.hashing import derived_seed, row_hash, uniform

Codes = NDArray[np.int64]


def deal_out(
    groups: Codes,
    classes: Codes,
    domains: Codes,
    hashes: NDArray[np.uint64],
    shares: Sequence[float],
) -> Codes:
    """The part of every row, int64 (n,): rows of one group are in one part.

    ``groups``, ``classes``, ``domains``  int64 (n,) from 0, codes in the order of their names
    ``hashes``  uint64 (groups,): decide between equal choices
    ``shares``  of the parts, summing to 1
    """
    if not len(groups):
        return np.zeros(0, dtype=np.int64)
    wide = int(domains.max()) + 1
    cells = classes * wide + domains
    high = int(classes.max()) + 1
    sizes = np.bincount(groups, minlength=len(hashes))
    part_of = np.full(len(hashes), -1, dtype=np.int64)
    # One table for cells, classes, domains and all rows: what is still to come, and what is there.
    strata = [cells, high * wide + classes, high * wide + high + domains]
    total = np.bincount(np.concatenate(strata), minlength=high * wide + high + wide + 1)
    total[-1] = len(groups)
    several = np.flatnonzero(sizes > 1)
    order = several[np.lexsort((hashes[several], -sizes[several]))]
    filled = _deal_groups(order, groups, strata, total, shares, part_of)
    alone = np.flatnonzero(sizes[groups] == 1)
    along = alone[np.lexsort((hashes[groups[alone]], cells[alone]))]
    part_of[groups[along]] = _deal_rows(cells[along], total, filled, shares)
    return part_of[groups]


def _deal_groups(
    order: Codes,
    groups: Codes,
    strata: list[Codes],
    total: NDArray[np.int64],
    shares: Sequence[float],
    part_of: Codes,
) -> NDArray[np.float64]:
    """Deal groups out, writing to ``part_of``; rows of each part in each stratum."""
    parts = len(shares)
    filled = np.zeros((parts, len(total)))
    goal = np.asarray(shares)[:, None] * total[None, :]
    weight = 1 / np.maximum(goal, 1e-9)
    rows = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(part_of)))
    everything = len(total) - 1
    for group in order.tolist():
        members = rows[ends[group - 1] if group else 0 : ends[group]]
        places = np.concatenate([column[members] for column in strata])
        places, counts = np.unique(places, return_counts=True)
        places, counts = np.append(places, everything), np.append(counts, len(members))
        # (f + c - g)^2 - (f - g)^2, over g: how much worse each part would fit.
        gap = filled[:, places] - goal[:, places]
        worse = ((counts * (2 * gap + counts)) * weight[:, places]).sum(axis=1)
        part = int(np.argmin(worse))
        filled[part, places] += counts
        part_of[group] = part
    return filled


def _deal_rows(
    cells: Codes,
    total: NDArray[np.int64],
    filled: NDArray[np.float64],
    shares: Sequence[float],
) -> Codes:
    """Deal single rows out, in the order given, which goes cell by cell."""
    parts = len(shares)
    found = np.zeros(len(cells), dtype=np.int64)
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    owed = [0.0] * parts
    for start, stop in pairwise([*starts.tolist(), len(cells)]):
        cell = int(cells[start])
        behind = [max(s * total[cell] - filled[p, cell], 0.0) for p, s in enumerate(shares)]
        whole = sum(behind)
        rate = [b / whole for b in behind] if whole > 0 else list(shares)
        for row in range(start, stop):
            for part in range(parts):
                owed[part] += rate[part]
            best = max(range(parts), key=owed.__getitem__)
            owed[best] -= 1
            found[row] = best
    return found


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
    kind, _, rest = (parameters.split or "").partition(":")
    column, given, values = rest.partition("=")
    if kind == "domain":
        column, given, values = parameters.domain, rest, rest
    if kind == "flag" and rest:
        return _by_flag(_column(rows, rest))
    if kind in ("domain", "values") and given:
        return _by_values(_column(rows, column), values.split(","))
    if kind == "rows" and not rest:
        return _drawn(rows["image_id"], parameters.parts, derived_seed("split of rows", seed))
    if kind in ("group", "stratified") and rest:
        groups = _groups(rows["image_id"], _column(rows, rest))
        own = derived_seed("split of groups", seed)
        if kind == "group":
            return _drawn(groups, parameters.parts, own)
        return _stratified(rows, parameters, groups, own)
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
            raise UserError(f"{text!r} is not a part", fix="write NAME=SHARE, each name once")
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
        raise NotFound(
            f"no row has {missing[0]!r} to hold out", fix="check the names of --split-by"
        )
    return pc.if_else(pc.is_in(texts, value_set=pa.array(wanted, pa.string())), TEST, TRAIN)


def _groups(ids: Any, column: Any) -> Any:
    """What is drawn: a row's group, or the row itself where it has none."""
    import pyarrow.compute as pc

    mark = pc.binary_join_element_wise("group", id_texts(column), "=")
    alone = pc.binary_join_element_wise("row", ids.combine_chunks(), "=")
    return pc.coalesce(mark, alone)


def _stratified(rows: Any, parameters: DomainsParameters, rows_groups: Any, seed: int) -> Any:
    import pyarrow as pa

    shares = read_parts(parameters.parts)
    groups, names = _sorted_codes(rows_groups)
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

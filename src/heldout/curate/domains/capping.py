"""At most so many rows of each group, drawn by a hash of each row's id.

A row's number follows from its id and the seed alone, and a group keeps its rows of the smallest
numbers. So neither order nor files matter, a smaller cap keeps a part of what a larger one keeps, and
leaving groups out changes nothing in the others.

Numbers are spread evenly, so the cap-th smallest of n lies near ``cap / n`` of the range. A pass looks
only at rows a little beyond that. Where a group turns out to have fewer rows there than its cap, it is
looked at again with a wider range: chance decides how much is read, never which rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import UserError
from heldout.curate.domains.counting import Counts
from heldout.curate.domains.reading import Codes, Mask, Reader, Seen
from heldout.data.testset.hashing import row_hash

Hashes = NDArray[np.uint64]
MOST = (1 << 64) - 1


def id_texts(column: Any) -> Any:
    """Ids as texts, as which they are hashed: 7 and "7" are drawn alike."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string())


def range_for(sizes: NDArray[np.int64], cap: int | None, *, spare: float = 8.0) -> Hashes:
    """The greatest number to look at in each group, uint64: some way beyond ``cap`` of its rows."""
    if cap is None:
        return np.full(len(sizes), MOST, dtype=np.uint64)
    wanted = cap + spare * np.sqrt(cap) + 16
    share = wanted / np.maximum(sizes, 1)
    whole = (sizes <= cap) | (share >= 1)
    limits = np.where(whole, 0.0, share) * 2.0**64
    return np.where(whole, np.uint64(MOST), limits.astype(np.uint64))


def lowest_in_groups(groups: Codes, hashes: Hashes, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of the ``wanted`` smallest numbers in each group; int64, in no order.

    A group that has no more rows than are wanted keeps all, and its numbers do not matter.
    """
    order = np.argsort(
        groups.astype(np.uint16 if len(wanted) < 1 << 16 else np.int64), kind="stable"
    )
    ends = np.cumsum(np.bincount(groups, minlength=len(wanted)))
    kept = [order[:0]]
    for group in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        rows = order[ends[group - 1] if group else 0 : ends[group]]
        count = int(wanted[group])
        if len(rows) > count:
            rows = rows[hashes[rows] <= _limit(hashes[rows], count)]
        kept.append(rows)
    return np.concatenate(kept)


def _limit(hashes: Hashes, count: int) -> np.uint64:
    """The ``count``-th smallest number; it must not be that of the next row too."""
    last: np.uint64 = np.partition(hashes, count - 1)[count - 1]
    if np.count_nonzero(hashes <= last) > count:
        raise UserError(
            "two rows have the same id, or ids of the same hash, where a cap cuts",
            fix="give every row an id of its own, or use another --seed",
        )
    return last


def domain_limits(
    reader: Reader,
    counts: Counts,
    keeps: Callable[[Seen], Mask],
    columns: tuple[str, ...],
    *,
    cap: int,
    seed: int,
) -> Hashes:
    """The greatest number that each domain keeps, uint64, in the order of ``counts.domains``."""
    sizes = counts.by_domain
    limits = np.full(len(sizes), MOST, dtype=np.uint64)
    waiting = sizes > cap
    wanted = tuple(dict.fromkeys((*columns, reader.domain, reader.id)))
    place = np.full(len(reader.domains.names) + 1, -1, dtype=np.int64)
    for code, name in enumerate(reader.domains.names):
        place[code] = counts.domains.index(name)
    spare = 8.0
    while waiting.any():
        reach = range_for(sizes, cap, spare=spare)
        looked_at = np.append(waiting, False)[place]

        def look(
            seen: Seen, reach: Hashes = reach, looked_at: Mask = looked_at
        ) -> tuple[Codes, Hashes]:
            codes = reader.domains.codes(seen.batch.column(reader.domain))
            rows = np.flatnonzero(keeps(seen) & looked_at[codes])
            hashes = row_hash(id_texts(seen.batch.column(reader.id).take(rows)), seed=seed)
            domains = place[codes[rows]]
            within = hashes <= reach[domains]
            return domains[within], hashes[within]

        found = list(reader.scan(wanted, look))
        domains = np.concatenate([part for part, _ in found])
        hashes = np.concatenate([part for _, part in found])
        for domain in np.flatnonzero(waiting).tolist():
            inside = hashes[domains == domain]
            if len(inside) > cap or (len(inside) == cap and reach[domain] < MOST):
                limits[domain] = _limit(inside, cap)
                waiting[domain] = False
            elif reach[domain] == MOST:
                raise UserError("rows changed while they were read", fix="build again")
        spare *= 64
    return limits

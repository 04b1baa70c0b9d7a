"""At most so many rows of each group, drawn by a hash of each row's id.

A row's number follows from its id and the seed alone, and a group keeps its rows of the smallest
numbers. So neither order nor files matter, a smaller cap keeps a part of what a larger one keeps, and
leaving groups out changes nothing in the others.

Numbers are spread evenly, so the cap-th smallest of n lies near ``cap / n`` of the range. A pass looks
only at rows a little beyond that. Where a group turns out to have fewer rows there than its cap, it is
looked at again with a wider range: chance decides how much is read, never which rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.errors import UserError
from heldout.recipes.domains.counting import Counts
from heldout.recipes.domains.keys import nth_key
from heldout.recipes.domains.reading import Codes, Mask, Reader, Seen
from heldout.testset.rowhash import row_hash

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


def lowest_in_groups(
    ids: Any, groups: Codes, hashes: Hashes, wanted: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows of the ``wanted`` smallest numbers in each group, ties by id; int64, in no order.

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
            last = np.partition(hashes[rows], count - 1)[count - 1]
            below, tied = rows[hashes[rows] < last], rows[hashes[rows] == last]
            room = count - len(below)
            if len(tied) > room:
                tied = tied[_by_id(ids.take(tied).to_pylist(), room)]
            rows = np.concatenate([below, tied])
        kept.append(rows)
    return np.concatenate(kept)


def _by_id(ids: list[str], room: int) -> list[int]:
    order = sorted(range(len(ids)), key=lambda row: ids[row].encode())
    if ids[order[room - 1]] == ids[order[room]]:
        raise UserError(
            f"two rows have the id {ids[order[room]]!r}", fix="give every row an id of its own"
        )
    return order[:room]


@dataclass(frozen=True, eq=False)
class DomainLimits:
    """Which rows a capped domain keeps.

    ``numbers``  uint64, the greatest number that each domain keeps, in the order of ``counts.domains``
    ``last``     by place: the last id kept of rows that share that number, where some are cut
    """

    numbers: Hashes
    last: Mapping[int, str]


def domain_limits(
    reader: Reader,
    counts: Counts,
    keeps: Callable[[Seen], Mask],
    columns: tuple[str, ...],
    *,
    cap: int,
    seed: int,
) -> DomainLimits:
    """The greatest number that each domain keeps.

    Only numbers in a window around the expected one are held: about ``16 * sqrt(cap)`` of a domain.
    """
    sizes = counts.by_domain
    large = np.flatnonzero(sizes > cap)
    limits = np.full(len(sizes), MOST, dtype=np.uint64)
    if not len(large):
        return DomainLimits(limits, {})
    share = cap / np.maximum(sizes, 1)
    slack = (8 * np.sqrt(cap) + 16) / np.maximum(sizes, 1)
    lows = (np.clip(share - slack, 0, 1 - 2**-53) * 2.0**64).astype(np.uint64)
    highs = range_for(sizes, cap)
    place = np.full(len(reader.domains.names) + 1, -1, dtype=np.int64)
    for code, name in enumerate(reader.domains.names):
        place[code] = counts.domains.index(name)
    place[place >= 0] = np.where(np.isin(place[place >= 0], large), place[place >= 0], -1)

    def numbers_and_ids(seen: Seen) -> tuple[Codes, Hashes, Any]:
        kept = keeps(seen)
        domains = place[reader.domains.codes(seen.batch.column(reader.domain))]
        rows = np.flatnonzero(kept & (domains >= 0))
        texts = id_texts(seen.batch.column(reader.id).take(rows))
        return domains[rows], row_hash(texts, seed=seed), texts

    def numbers(seen: Seen) -> tuple[Codes, Hashes]:
        return numbers_and_ids(seen)[:2]

    def look(seen: Seen) -> tuple[NDArray[np.int64], Codes, Hashes]:
        domains, hashes = numbers(seen)
        below = np.bincount(domains[hashes < lows[domains]], minlength=len(sizes))
        inside = (hashes >= lows[domains]) & (hashes <= highs[domains])
        return below, domains[inside], hashes[inside]

    wanted = tuple(dict.fromkeys((*columns, reader.domain, reader.id)))
    below = np.zeros(len(sizes), dtype=np.int64)
    codes, found = [], []
    for under, domains, hashes in reader.scan(wanted, look):
        below += under
        codes.append(domains)
        found.append(hashes)
    of, all_found = np.concatenate(codes), np.concatenate(found)
    room: dict[int, int] = {}
    for domain in large.tolist():
        inside = np.sort(all_found[of == domain])
        rank = cap - int(below[domain])
        if 1 <= rank <= len(inside):
            limits[domain] = inside[rank - 1]
            # Rows of one number beyond the rank: only ids can tell which of them are kept.
            if rank < len(inside) and inside[rank] == inside[rank - 1]:
                room[domain] = rank - int(np.searchsorted(inside, inside[rank - 1], "left"))
            continue

        def scan(low: int, high: int, work: Any, domain: int = domain) -> Any:
            def on_batch(seen: Seen) -> Any:
                domains, hashes = numbers(seen)
                hashes = hashes[domains == domain]
                return work(hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high))])

            return reader.scan(wanted, on_batch)

        found_key = nth_key(scan, cap, low=0, high=MOST)
        limits[domain] = found_key.key
        if cap - found_key.smaller < found_key.equal:
            room[domain] = cap - found_key.smaller
    return DomainLimits(limits, _last_ids(reader, numbers_and_ids, wanted, limits, room))


def _last_ids(
    reader: Reader,
    numbers: Callable[[Seen], tuple[Codes, Hashes, Any]],
    columns: tuple[str, ...],
    limits: Hashes,
    room: dict[int, int],
) -> dict[int, str]:
    """The last id of those with a domain's limit that there is room for."""
    if not room:
        return {}
    tied: dict[int, list[str]] = {domain: [] for domain in room}

    def look(seen: Seen) -> list[tuple[int, str]]:
        domains, hashes, ids = numbers(seen)
        rows = np.flatnonzero(np.isin(domains, list(room)) & (hashes == limits[domains]))
        return [(int(domains[row]), ids[int(row)].as_py()) for row in rows]

    for found in reader.scan(columns, look):
        for domain, name in found:
            tied[domain].append(name)
    return {
        domain: names[_by_id(names, room[domain])[-1]] for domain, names in sorted(tied.items())
    }

"""Parts that keep groups whole and still have their share of every class in every domain.

Groups (photographers) are dealt out, the largest first: each goes to the part that then departs least
from its shares of the classes and domains that the group has rows of (chi-square over cells, classes,
domains and all rows). Rows that are alone in their group are dealt out last, along the classes and
domains in turn, each to the part that is furthest behind; so they make up for what groups left uneven.
Equal choices are decided by hashes. Nothing depends on the order of the rows, but a group's part does
depend on which other rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

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

"""Shares of a budget as whole numbers: exact, never more than there is, the same every time.

The arithmetic is on fractions, so equal weights are equal and nothing depends on rounding.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from heldout.core.errors import UserError


def proportional(
    weights: Sequence[float] | np.ndarray, capacities: Sequence[int] | np.ndarray, budget: int
) -> np.ndarray:
    """``budget`` in proportion to ``weights`` (g,), no group above its capacity; int64 (g,).

    The exact shares are ``min(capacity, s * weight)`` with the one ``s`` that spends the budget;
    largest remainders make them whole (ties: the larger weight, then the lower group). What full
    groups cannot take goes to the others by their weights, and to groups without weight, in equal
    parts, only when all others are full.

    >>> proportional([3, 1, 1], [10, 10, 10], 6).tolist()
    [4, 1, 1]
    >>> proportional([3, 1, 1], [2, 10, 10], 6).tolist()
    [2, 2, 2]
    """
    room = _capacities(capacities, budget)
    shares = [Fraction(float(weight)) for weight in weights]
    if len(shares) != len(room) or any(share < 0 for share in shares):
        raise ValueError("one weight of 0 or more a group is needed")
    counts = [0] * len(room)
    free = [group for group, most in enumerate(room) if most > 0]
    left = budget
    while left:
        if not any(shares[group] for group in free):
            shares = [Fraction(1)] * len(room)
        total = sum((shares[group] for group in free), Fraction(0))
        ideal = {group: left * shares[group] / total for group in free}
        full = [group for group in free if ideal[group] >= room[group]]
        if full:
            for group in full:
                counts[group] = room[group]
                left -= room[group]
            free = [group for group in free if group not in set(full)]
            continue
        for group in free:
            counts[group] = int(ideal[group])
        left -= sum(int(ideal[group]) for group in free)
        order = sorted(free, key=lambda g: (int(ideal[g]) - ideal[g], -shares[g], g))
        for group in order[:left]:
            counts[group] += 1
        break
    return np.array(counts, np.int64)


def in_order(
    order: Sequence[int] | np.ndarray, capacities: Sequence[int] | np.ndarray, budget: int
) -> np.ndarray:
    """All of ``budget`` to the first group of ``order``, what it cannot take to the next; (g,).

    >>> in_order([2, 0, 1], [5, 5, 3], 6).tolist()
    [3, 0, 3]
    """
    room = _capacities(capacities, budget)
    counts = np.zeros(len(room), np.int64)
    left = budget
    for group in order:
        counts[group] = min(left, room[group])
        left -= int(counts[group])
    return counts


def levelling(
    held: Sequence[int] | np.ndarray, capacities: Sequence[int] | np.ndarray, budget: int
) -> np.ndarray:
    """One after the other to the group that then holds least (ties: the lower group); int64 (g,).

    >>> levelling([5, 1, 2], [9, 9, 9], 4).tolist()
    [0, 3, 1]
    """
    room = _capacities(capacities, budget)
    counts = np.zeros(len(room), np.int64)
    heap = [(int(held[group]), group) for group, most in enumerate(room) if most > 0]
    heapq.heapify(heap)
    for _ in range(budget):
        have, group = heapq.heappop(heap)
        counts[group] += 1
        if counts[group] < room[group]:
            heapq.heappush(heap, (have + 1, group))
    return counts


def _capacities(capacities: Sequence[int] | np.ndarray, budget: int) -> list[int]:
    room = [int(most) for most in capacities]
    if any(most < 0 for most in room):
        raise ValueError("capacities must be 0 or more")
    if budget < 0:
        raise UserError(f"a budget of {budget}", fix="give 0 or more")
    if budget > sum(room):
        raise UserError(
            f"{budget:,} images are asked for, {sum(room):,} are left", fix="ask for fewer"
        )
    return room

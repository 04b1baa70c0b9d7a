from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.active.strategies import in_order, levelling, proportional


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[float], list[int], int]:
    size = draw(st.integers(1, 6))
    weights = draw(
        st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5, 7.0]), min_size=size, max_size=size)
    )
    room = draw(st.lists(st.integers(0, 12), min_size=size, max_size=size))
    return weights, room, draw(st.integers(0, sum(room)))


def exact_shares(weights: list[float], room: list[int], budget: int) -> list[Fraction]:
    """min(room, s * weight) with the s that spends the budget: every breakpoint is tried."""
    known = [Fraction(w) for w in weights]
    if sum(r for w, r in zip(known, room, strict=True) if w) < budget:
        rest = budget - sum(r for w, r in zip(known, room, strict=True) if w)
        empty = [r if not w else 0 for w, r in zip(known, room, strict=True)]
        spread = exact_shares([1.0 if r else 0.0 for r in empty], empty, rest)
        return [Fraction(r) if w else s for w, r, s in zip(known, room, spread, strict=True)]
    points = sorted(
        {Fraction(r) / w for w, r in zip(known, room, strict=True) if w} | {Fraction(0)}
    )

    def spent(s: Fraction) -> Fraction:
        return sum((min(Fraction(r), s * w) for w, r in zip(known, room, strict=True)), Fraction(0))

    below = max(p for p in points if spent(p) <= budget)
    slope = sum(w for w, r in zip(known, room, strict=True) if w and Fraction(r) / w > below)
    scale = below if not slope else below + (budget - spent(below)) / slope
    return [min(Fraction(r), scale * w) for w, r in zip(known, room, strict=True)]


@given(requests())
def test_proportional_is_the_largest_remainder_of_exact_shares(
    request_: tuple[list[float], list[int], int],
) -> None:
    weights, room, budget = request_
    got = proportional(weights, room, budget).tolist()
    assert sum(got) == budget
    assert all(0 <= g <= r for g, r in zip(got, room, strict=True))
    shares = exact_shares(weights, room, budget)
    assert sum(shares) == budget
    assert all(abs(g - s) < 1 for g, s in zip(got, shares, strict=True))
    up = [s - int(s) for g, s in zip(got, shares, strict=True) if g > s]
    down = [s - int(s) for g, s in zip(got, shares, strict=True) if g < s]
    assert not up or not down or min(up) >= max(down)


@given(requests())
def test_in_order_fills_one_group_after_the_other(
    request_: tuple[list[float], list[int], int],
) -> None:
    weights, room, budget = request_
    order = sorted(range(len(room)), key=lambda g: (-weights[g], g))
    slots = [group for group in order for _ in range(room[group])][:budget]
    assert (
        in_order(order, room, budget).tolist()
        == np.bincount(np.array(slots, int), minlength=len(room)).tolist()
    )


@given(requests(), st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_levelling_gives_one_at_a_time(
    request_: tuple[list[float], list[int], int], held: list[int]
) -> None:
    _, room, budget = request_
    counts = [0] * len(room)
    for _ in range(budget):
        open_ = [g for g in range(len(room)) if counts[g] < room[g]]
        counts[min(open_, key=lambda g: (held[g] + counts[g], g))] += 1
    assert levelling(held[: len(room)], room, budget).tolist() == counts


@pytest.mark.parametrize("budget", [-1, 7])
def test_more_than_there_is_is_refused(budget: int) -> None:
    for call in (
        lambda: proportional([1, 1], [3, 3], budget),
        lambda: in_order([0, 1], [3, 3], budget),
        lambda: levelling([0, 0], [3, 3], budget),
    ):
        with pytest.raises(UserError):
            call()

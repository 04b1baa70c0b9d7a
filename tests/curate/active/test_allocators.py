from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.strategies import ALLOCATORS, DomainStatus, parse_allocator

NAN = float("nan")


def standing(**changes: Any) -> DomainStatus:
    values = {
        "sizes": np.array([60, 30, 10]),
        "labelled": np.array([12, 6, 2]),
        "capacities": np.array([48, 24, 8]),
        "errors": np.array([0.1, 0.2, 0.5]),
        "losses": np.array([0.5, 1.0, 2.5]),
        "confidences": np.array([0.9, 0.6, 0.8]),
        "validation_confidences": np.array([0.5, 0.6, 0.8]),
        "estimated_errors": np.array([0.3, 0.3, 0.6]),
    } | changes
    return DomainStatus(**values)


def quota(name: str, budget: int = 8, **changes: Any) -> list[int]:
    found = parse_allocator(name)(standing(**changes), budget)
    assert found is not None
    return found.tolist()


def test_every_allocator_by_hand() -> None:
    assert parse_allocator("none")(standing(), 8) is None
    assert quota("ambient", 10) == [6, 3, 1]
    assert quota("uniform", 9) == [3, 3, 3]
    assert quota("error", 8) == [1, 2, 5]
    assert quota("loss", 8) == [1, 2, 5]
    weights = np.exp([0.5, 1.0, 2.5])
    assert quota("exp-loss", 100, capacities=np.array([500, 500, 500])) == [
        round(100 * w / weights.sum()) for w in weights
    ]
    assert quota("estimated-error", 8) == [2, 2, 4]
    assert quota("worst", 8) == [0, 0, 8]
    assert quota("worst", 10) == [0, 2, 8]  # the worst has 8 left: the next worst gets the rest
    assert quota("interpolate:0.5", 12, capacities=np.array([50, 50, 50])) == [2, 2, 8]
    assert quota("interpolate:0", 9) == quota("uniform", 9)
    assert quota("interpolate:1", 8) == quota("worst", 8)
    assert quota("least-labelled", 8) == [0, 2, 6]
    assert quota("lowest-confidence", 8) == [0, 8, 0]
    assert quota("lowest-confidence:validation", 8) == [8, 0, 0]


def test_interpolation_spends_alpha_and_one_minus_alpha() -> None:
    """The published code adds alpha of both; the parts must sum to the whole budget."""
    roomy = np.array([1000, 1000, 1000])
    for alpha in (0.2, 0.25, 0.5, 0.9):
        found = quota(f"interpolate:{alpha}", 300, capacities=roomy)
        each = Fraction(300) * (1 - Fraction(alpha)) / 3
        assert sum(found) == 300
        assert abs(found[0] - each) < 1 and abs(found[2] - (300 * Fraction(alpha) + each)) < 1


def test_domains_without_a_number() -> None:
    errors = np.array([0.1, NAN, 0.5])
    assert quota("error", 9, errors=errors) == [1, 3, 5]  # counts as the mean, 0.3
    assert quota("worst", 33, errors=errors) == [25, 0, 8]
    assert quota("worst", 70, errors=errors) == [48, 14, 8]  # last of all
    nothing = np.full(3, NAN)
    for name in ("error", "worst", "interpolate"):
        with pytest.raises(NotApplicable, match="no domain has an error rate"):
            quota(name, errors=nothing)


def test_no_error_anywhere_gives_equal_parts() -> None:
    assert quota("error", 9, errors=np.zeros(3)) == [3, 3, 3]


@given(
    st.sampled_from([name for name in ALLOCATORS if name != "none"]),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.lists(st.sampled_from([0.0, 0.2, 0.7, NAN]), min_size=3, max_size=3),
    st.data(),
)
def test_the_budget_is_met_and_capacities_hold(
    name: str, room: list[int], numbers: list[float], data: st.DataObject
) -> None:
    budget = data.draw(st.integers(0, sum(room)))
    values = np.array([0.4 if np.isnan(numbers).all() else v for v in numbers])
    found = quota(
        name,
        budget,
        capacities=np.array(room),
        errors=values,
        losses=values,
        confidences=values,
        estimated_errors=values,
    )
    assert sum(found) == budget
    assert all(0 <= f <= r for f, r in zip(found, room, strict=True))


@pytest.mark.parametrize(
    "text", ["", "best", "interpolate:2", "interpolate:x", "worst:3", "lowest-confidence:pool"]
)
def test_texts_that_name_no_allocator(text: str) -> None:
    with pytest.raises(UserError):
        parse_allocator(text)


@pytest.mark.parametrize("text", [*ALLOCATORS, "interpolate:0.25", "lowest-confidence:validation"])
def test_names_are_read_back(text: str) -> None:
    assert parse_allocator(text).name == text
    assert parse_allocator(parse_allocator(text).name) == parse_allocator(text)

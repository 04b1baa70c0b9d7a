"""The nearest vectors by torch: the same bytes as NumPy's, and the bound of products of halves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.dedupe.nearest import TorchArrays, in_parts, nearest
from tests.curate.dedupe.test_nearest import (
    KINDS,
    assert_equal,
    bytes_of,
    check_bound,
    errors_and_bounds,
    rows_of,
    sides_of,
    slow_distances,
    slow_nearest,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(0, 30),
    m=st.integers(0, 60),
    d=st.integers(1, 70),
    k=st.integers(0, 70),
    copies=st.integers(0, 60),
    memory=st.sampled_from([2**28, 200_000, 20_000]),
    seed=st.integers(0, 9999),
)
@example("one bit", 30, 60, 70, 5, 20, 2**28, 0)
@example("few", 30, 60, 70, 5, 60, 20_000, 0)
@example("largest", 30, 60, 70, 3, 0, 20_000, 2)
@settings(max_examples=100)
def test_the_same_bytes_as_numpys(
    kind: str, n: int, m: int, d: int, k: int, copies: int, memory: int, seed: int
) -> None:
    ours, theirs = sides_of(kind, n, m, d, seed, copies)
    found = in_parts(TorchArrays(DEVICE, memory), ours, theirs, k)
    assert_equal(found, nearest(ours, theirs, k, device="cpu"))


@pytest.mark.parametrize("kind", ["normal", "features", "unit", "one bit", "far"])
def test_lists_of_many_groups_and_blocks(kind: str) -> None:
    ours, theirs = sides_of(kind, 150, 2000, 33, 5, 300)
    expected = slow_nearest(slow_distances(ours, theirs), 7)
    for memory in (2**28, 2**19):
        assert_equal(in_parts(TorchArrays(DEVICE, memory), ours, theirs, 7), expected)


@given(
    kind=st.sampled_from(["random", "extreme", "constant", "bits", "near"]),
    n=st.integers(0, 20),
    m=st.integers(0, 40),
    d=st.integers(1, 100) | st.sampled_from([1023, 1025, 3000]),
    k=st.integers(0, 50),
    memory=st.sampled_from([2**28, 200_000]),
    seed=st.integers(0, 9999),
)
@settings(max_examples=50)
def test_bytes_are_compared_in_whole_numbers(
    kind: str, n: int, m: int, d: int, k: int, memory: int, seed: int
) -> None:
    made = np.random.default_rng(seed)
    ours, theirs = (bytes_of(kind, count, d, made) for count in (n, m))
    found = in_parts(TorchArrays(DEVICE, memory), ours, theirs, k)
    assert_equal(found, slow_nearest(slow_distances(ours, theirs), k))


def test_pixels_at_the_limits_of_their_sums() -> None:
    d, made = 256 * 256 * 3, np.random.default_rng(4)
    rows = [np.zeros(d), np.full(d, 255), *(made.integers(0, 2, (3, d)) * 255)]
    images = np.stack([*rows, np.where(np.arange(d) == 130_944, 254, 255)]).astype(np.uint8)
    found = in_parts(TorchArrays(DEVICE, 2**28), images, images, 6)
    assert_equal(found, slow_nearest(slow_distances(images, images), 6))
    assert found.distances.max() == d * 255**2


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 12),
    m=st.integers(1, 40),
    d=st.integers(1, 400),
    seed=st.integers(0, 9999),
)
@settings(max_examples=80)
def test_no_score_is_farther_off_than_its_bound(
    kind: str, n: int, m: int, d: int, seed: int
) -> None:
    check_bound(TorchArrays(DEVICE, 2**28), kind, n, m, d, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_no_score_of_long_vectors_is_farther_off_than_its_bound(kind: str) -> None:
    check_bound(TorchArrays(DEVICE, 2**28), kind, 6, 20, 20_000, 0)


def test_the_bound_is_no_wider_than_it_needs_to_be() -> None:
    """What half precision takes from each vector is most of it, and nearly reached."""
    ours = rows_of("normal", 1, 1, 0)
    theirs = np.linspace(-1, 1, 4000, dtype=np.float32)[:, None]
    error, bound = errors_and_bounds(TorchArrays(DEVICE, 2**28), ours, theirs)
    assert (error / bound).max() > 0.1


@pytest.mark.parametrize("side", ["candidates", "references"])
def test_values_that_are_not_finite_are_refused_by_row(side: str) -> None:
    """The row is that of all vectors, of which a device holds parts."""
    both = dict(zip(("candidates", "references"), sides_of("huge", 60, 90, 65, 0), strict=True))
    both[side][33, 64] = math.nan
    arrays = TorchArrays(DEVICE, 20 * 8 * 65 * 4)
    assert len(list(arrays.parts(both[side]))) > 2
    with pytest.raises(UserError, match=f"{side} have values that are not finite, first in row 33"):
        in_parts(arrays, **both, k=3)


def test_auto_finds_the_same_lists() -> None:
    ours, theirs = sides_of("features", 40, 300, 20, 3, 30)
    assert_equal(nearest(ours, theirs, 9), slow_nearest(slow_distances(ours, theirs), 9))


@pytest.mark.skipif(DEVICE == "cuda", reason="what is said where there is no GPU")
def test_a_gpu_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UserError, match="torch finds no CUDA device"):
        nearest(*sides_of("normal", 2, 2, 2, 0), 1, device="cuda")

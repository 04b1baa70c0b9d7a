"""Accuracy against a number of slices: the line, its errors, and ranks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from heldout.core.errors import NotApplicable
from heldout.measure.score.measure import measure
from heldout.measure.score.memberships import SliceNumber, property_records, weighted_line
from heldout.measure.score.records import Summary

from .test_overlapping import guesses, made


def records(
    chance: list[float], numbers: dict[str, SliceNumber], *, size: int = 60, seed: int = 0
) -> list[Summary]:
    rng = np.random.default_rng(seed)
    right = (rng.random(size * len(chance)) < np.repeat(chance, size)).tolist()
    slices = [list(range(size * j, size * (j + 1))) for j in range(len(chance))]
    testset = made(slices, right)
    said = {f"i{i:02d}": "cat" if hit else "dog" for i, hit in enumerate(right)}
    (measured,) = measure(testset, [guesses(testset, said)])
    return property_records(measured, "subset", numbers)


def distances(values: list[float]) -> dict[str, SliceNumber]:
    return {f"cat(s{j})": SliceNumber(value=value) for j, value in enumerate(values)}


def test_a_fall_with_distance_is_found_and_no_fall_is_not() -> None:
    far = [0.1, 0.3, 0.5, 0.7, 0.9, 1.1]
    falling = {r.name: r for r in records([0.95 - 0.5 * x for x in far], distances(far))}
    slope = falling["slope"]
    assert slope.low is not None and slope.high is not None
    assert slope.low < -0.5 < slope.high < 0
    assert slope.at == "distance" and slope.model == "m"
    rank = falling["rank_correlation"]
    assert rank.value is not None and rank.value < -0.7 and rank.high is not None and rank.high < 0
    flat = {r.name: r for r in records([0.7] * 6, distances(far), seed=4)}["slope"]
    assert flat.low is not None and flat.high is not None and flat.low < 0 < flat.high


def test_limits_of_a_rank_correlation_are_those_of_bonett_and_wright() -> None:
    chance = [0.9, 0.6, 0.8, 0.5, 0.7, 0.3, 0.4, 0.1]
    found = records(chance, distances([0.1 * k for k in range(8)]))
    (rank,) = [r for r in found if r.name == "rank_correlation"]
    assert rank.value is not None and -0.95 < rank.value < -0.5
    # Bonett and Wright (2000): Fisher's z with the error sqrt((1 + r² / 2) / (n - 3))
    half = 1.959964 * np.sqrt((1 + rank.value**2 / 2) / 5)
    limits = np.tanh(np.arctanh(rank.value) + np.array([-half, half]))
    assert (rank.low, rank.high) == pytest.approx(tuple(limits), abs=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_ranks_that_agree_wholly_have_limits(sign: int) -> None:
    far = [0.1, 0.3, 0.5, 0.7, 0.9]
    found = records(far, distances([sign * x for x in far]), size=200)
    (rank,) = [r for r in found if r.name == "rank_correlation"]
    assert rank.value == pytest.approx(sign)
    assert rank.low is not None and rank.high is not None
    assert -1 <= rank.low <= rank.high <= 1 and min(abs(rank.low), abs(rank.high)) > 0.99


def test_the_line_is_that_of_weighted_least_squares() -> None:
    rng = np.random.default_rng(0)
    x, y, w = rng.random(9), rng.random(9), rng.integers(1, 50, 9).astype(float)
    root = np.sqrt(w)
    design = np.stack([np.ones(9), x], axis=1) * root[:, None]
    oracle = np.linalg.lstsq(design, y * root, rcond=None)[0]
    assert weighted_line(x, y, w) == pytest.approx(tuple(oracle))


def test_the_interval_of_the_slope_holds_where_the_line_is_not_true() -> None:
    far = np.linspace(0, 1, 8)
    rng = np.random.default_rng(2)
    inside = []
    for seed in range(80):
        chance = np.clip(0.8 - 0.2 * far + rng.normal(0, 0.08, 8), 0.02, 0.98)
        found = records(chance.tolist(), distances(far.tolist()), size=40, seed=seed)
        (slope,) = [r for r in found if r.name == "slope"]
        assert slope.low is not None and slope.high is not None
        inside.append(slope.low <= -0.2 <= slope.high)
    assert np.mean(inside) >= 0.9


def test_the_interval_of_the_slope_is_that_of_slices_about_the_line() -> None:
    far = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    hits = [380, 200, 360, 120, 340, 100]  # of 400: far more than chance off any line
    right = [i < k for k in hits for i in range(400)]
    testset = made([list(range(400 * j, 400 * (j + 1))) for j in range(6)], right)
    said = {
        image: "cat" if hit else "dog"
        for image, hit in zip(testset.image_ids.to_pylist(), right, strict=True)
    }
    (measured,) = measure(testset, [guesses(testset, said)])
    (slope,) = [
        r
        for r in property_records(measured, "subset", distances(far.tolist()))
        if r.name == "slope"
    ]
    # HC3 of ordinary least squares: the slices are equally large
    design, y = np.stack([np.ones(6), far], axis=1), np.array(hits) / 400
    inverse = np.linalg.inv(design.T @ design)
    left = y - design @ (inverse @ design.T @ y)
    weight = np.einsum("ij,jk,ik->i", design, inverse, design)
    error = np.sqrt((inverse @ (design.T * (left / (1 - weight)) ** 2) @ design @ inverse)[1, 1])
    assert slope.interval == "t, slices about the line (HC3)"
    assert slope.value is not None and slope.high is not None
    assert slope.high - slope.value == pytest.approx(student.ppf(0.975, 4) * error)


def test_numbers_of_slices_are_records_without_a_model() -> None:
    numbers = distances([0.1, 0.4, 0.6, 0.9]) | {"cat(s9)": SliceNumber(value=3.0)}
    numbers["cat(s1)"] = SliceNumber(value=0.4, low=0.3, high=0.5)
    found = [r for r in records([0.8] * 4, numbers) if r.model is None]
    assert [(r.at, r.value, r.low, r.high) for r in found] == [
        ("cat(s0)", 0.1, None, None),
        ("cat(s1)", 0.4, 0.3, 0.5),
        ("cat(s2)", 0.6, None, None),
        ("cat(s3)", 0.9, None, None),
    ]
    assert {r.name for r in found} == {"distance"} and {r.n for r in found} == {60}


def test_too_few_slices_and_equal_numbers_have_no_interval() -> None:
    few = {r.name: r for r in records([0.9, 0.5], distances([0.0, 1.0]))}
    assert few["slope"].value is not None and few["slope"].low is None
    assert few["slope"].reason is not None and "too few" in few["slope"].reason
    same = {r.name: r for r in records([0.9, 0.5, 0.7, 0.8], distances([1.0] * 4))}
    assert same["slope"].value is None and same["rank_correlation"].value is None
    with pytest.raises(NotApplicable, match="has a distance"):
        records([0.5, 0.5], {"elsewhere": SliceNumber(value=1.0)})

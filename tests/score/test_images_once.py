"""A truth may have several rows an image; the headline still counts every image once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.score import measure, scores
from heldout.score.comparing import compare
from heldout.score.scoring import rank_scores
from tests.score.test_overlapping import guesses, pets

Truths = Mapping[str, Sequence[str]]
CLASSES = ("cat", "dog", "n1")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, str], dict[str, str]]:
    """Classes of each image, at least one of them with two, and two models' answers."""
    images = [f"i{number:02}" for number in range(draw(st.integers(2, 12)))]
    some = st.lists(st.sampled_from(CLASSES), min_size=1, max_size=3, unique=True)
    truths = {image: draw(some) for image in images}
    truths[images[0]] = ["cat", "dog"]
    said = [{image: draw(st.sampled_from(CLASSES)) for image in images} for _ in range(2)]
    return truths, said[0], said[1]


def by_hand(truths: Truths, said: Mapping[str, str]) -> float:
    """Each image's share of rows that are right, averaged over images."""
    shares = [
        sum(said[i] == one for one in classes) / len(classes) for i, classes in truths.items()
    ]
    return sum(shares) / len(shares)


@given(worlds())
def test_scores_ranks_and_comparisons_count_an_image_once(
    world: tuple[dict[str, list[str]], dict[str, str], dict[str, str]],
) -> None:
    truths, one, other = world
    testset = pets({image: {c: ["x"] for c in classes} for image, classes in truths.items()})
    (measured,) = measure(testset, [guesses(testset, one, "a"), guesses(testset, other, "b")])
    expected = [by_hand(truths, one), by_hand(truths, other)]
    found = scores(measured, replicates=50)
    assert [record.n for record in found] == [len(truths)] * 2
    assert [record.value for record in found] == pytest.approx(expected)
    for record in found:
        assert record.low is not None and record.high is not None
        assert record.low <= record.value <= record.high
    (difference,) = compare(measured, [("a", "b")], replicates=50)
    assert difference.n == len(truths)
    assert difference.difference == pytest.approx(expected[0] - expected[1])
    assert difference.test == "paired bootstrap"
    ranks = {record.model: record.value for record in rank_scores(measured)}
    if expected[0] > expected[1] + 1e-9:
        assert ranks == {"a": 1.0, "b": 2.0}


def test_slices_count_an_image_once_and_classes_count_their_own_rows() -> None:
    rows = {
        "a": {"cat": ["x"], "dog": ["x"]},
        "b": {"cat": ["x"]},
        "c": {"dog": ["x"]},
    }
    testset = pets(rows, place=["in", "in", "out"])
    (measured,) = measure(testset, [guesses(testset, {"a": "cat", "b": "cat", "c": "cat"})])
    found = {r.slice: r for r in scores(measured, by=["class"])}
    assert (found["all"].n, found["all"].value) == (3, pytest.approx(0.5))
    assert (found["class=cat"].n, found["class=cat"].value) == (2, 1.0)
    assert (found["class=dog"].n, found["class=dog"].value) == (2, 0.0)
    (by_class,) = measure(
        testset,
        [guesses(testset, {"a": "cat", "b": "cat", "c": "cat"})],
        metrics=["mean_per_class"],
        absent_classes="skip",
    )
    (record,) = scores(by_class, replicates=50)
    assert (record.n, record.value) == (4, pytest.approx(0.5))  # cat 2 of 2, dog 0 of 2


def test_without_repeated_images_nothing_changes() -> None:
    testset = pets({"a": {"cat": ["x"]}, "b": {"dog": ["x"]}})
    (measured,) = measure(testset, [guesses(testset, {"a": "cat", "b": "cat"})])
    assert measured.by_image() is measured
    assert measured.counted
    (record,) = scores(measured)
    assert record.interval == "wilson"


def test_confidence_follows_the_first_row_of_each_image() -> None:
    testset = pets({"a": {"cat": ["x"], "dog": ["x"]}, "b": {"cat": ["x"]}})
    (measured,) = measure(testset, [guesses(testset, {"a": "dog", "b": "cat"})])
    once = measured.by_image()
    assert once.values[:, 0].tolist() == [0.5, 1.0]
    assert not once.counted
    assert np.array_equal(once.rows, measured.rows[measured.firsts])

"""A truth may have several rows an image; the headline still counts every image once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    truth_table,
)
from heldout.measure.score.compare import compare
from heldout.measure.score.curve_summaries import curve_records
from heldout.measure.score.estimate import counts, rank_scores, scores
from heldout.measure.score.measure import measure
from heldout.measure.score.records import Summary
from heldout.measure.score.revisions import score_revisions
from heldout.models.predictions import Predictions
from tests.measure.score.test_overlapping import SPACE, guesses, pets

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
    assert difference.test == "paired score"
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


def test_confidence_follows_the_first_row_of_each_image() -> None:
    testset = pets({"a": {"cat": ["x"], "dog": ["x"]}, "b": {"cat": ["x"]}})
    (measured,) = measure(testset, [guesses(testset, {"a": "dog", "b": "cat"})])
    once = measured.one_row_per_image()
    assert once.values[:, 0].tolist() == [0.5, 1.0]
    assert not once.counted
    assert np.array_equal(once.rows, measured.rows[measured.first_row_of_image])


PAIRS = {"a": ["cat", "dog"], "b": ["cat", "dog"], "c": ["cat"], "d": ["cat"], "e": ["cat"]}
SIZES = {"a": 1.0, "b": 2.0, "c": 1.0, "d": 2.0, "e": 2.0}


def sized(truths: Truths, **lists: Sequence[Sequence[str]]) -> TestSet:
    """Images along a size, in a membership that is not about classes."""
    rows = [(image, one) for image, classes in truths.items() for one in classes]
    return make_testset(
        Card(
            name="sized",
            label_space="pets",
            columns={
                "size": ColumnType(kind="ordered"),
                "seen": ColumnType(kind="categorical", multi=True),
            },
        ),
        images=image_table({"image_id": list(truths), "size": [SIZES.get(i, 1.0) for i in truths]}),
        truths={"original": truth_table([r[0] for r in rows], [r[1] for r in rows], **lists)},
        label_space=SPACE,
        memberships=membership_table([(i, "seen", v) for i in truths for v in ("by day", "often")]),
    )


def summaries(testset: TestSet, said: Mapping[str, str], column: str) -> dict[str, Summary]:
    (measured,) = measure(testset, [guesses(testset, said)])
    found = curve_records(measured, [column], replicates=50)
    return {r.name: r for r in found if isinstance(r, Summary) and r.model is not None}


def test_a_curve_counts_an_image_once_as_its_scores_do() -> None:
    testset = sized(PAIRS)
    said = {"a": "cat", "b": "dog", "c": "cat", "d": "dog", "e": "cat"}
    (measured,) = measure(testset, [guesses(testset, said)])
    by_size = {r.slice: r.value for r in scores(measured, by=["size"], replicates=50)}
    found = summaries(testset, said, "size")
    assert (found["image_mean"].n, found["image_mean"].value) == (5, pytest.approx(0.6))
    assert by_size == {
        "all": pytest.approx(0.6),
        "size=1": pytest.approx(0.75),
        "size=2": pytest.approx(0.5),
    }
    assert (found["worst_value"].n, found["worst_value"].value) == (3, pytest.approx(0.5))
    assert found["area"].value == found["group_mean"].value == pytest.approx(0.625)
    (mix,) = [
        r
        for r in curve_records(measured, ["size"], replicates=50)
        if isinstance(r, Summary) and r.name == "mix"
    ]
    assert (mix.n, mix.value) == (2, 1.0)  # both classes stand at both sizes


def test_a_membership_that_is_not_about_classes_counts_an_image_once() -> None:
    truths = {f"i{number}": ["cat", "dog", "n1"] for number in range(7)}
    right = {"correct": [["cat"]] * 21}
    testset = sized(truths, **right)
    said = dict.fromkeys(truths, "cat")
    (measured,) = measure(testset, [guesses(testset, said)])
    scored = [r for r in scores(measured, by=["seen"]) if r.slice != "all"]
    assert {r.n for r in scored} == {7}
    found = summaries(testset, said, "seen")["image_mean"]
    # All right: what seven images may have missed, not a point that rounding made.
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025 ** (1 / 7))


def test_failed_images_are_counted_once() -> None:
    testset = sized(PAIRS)
    outputs = Predictions(
        model="m",
        image_ids=pa.array(list(PAIRS), pa.string()),
        topk=np.array([[-1], [-1], [0], [0], [0]], dtype=np.int32),
        label_space=SPACE,
        failures={0: "broken", 1: "broken"},
    )
    told = {c.name: c.value for c in counts(measure(testset, [outputs]))}
    assert told == {"n_failed": 2}


def test_accepted_is_a_share_and_a_count_of_images() -> None:
    testset = sized(PAIRS, correct=[["cat", "dog"]] * 4 + [["cat"]] * 3)
    group = measure(testset, [guesses(testset, dict.fromkeys(PAIRS, "cat"))], metrics=["accepted"])
    assert {c.name: c.value for c in counts(group)} == {"n_accepted": 5}


def test_a_revision_counts_an_image_once() -> None:
    testset = sized(PAIRS)
    part = guesses(testset, {"a": "cat", "c": "cat", "d": "dog"})
    (record,) = [r for r in score_revisions([testset], {"m": [part]}) if r.record == "score"]
    assert (record.n, record.value) == (3, pytest.approx(0.5))


def test_precision_counts_an_image_once_in_the_class_that_it_is_guessed_to_be_of() -> None:
    testset = sized(PAIRS)
    precision, recall = measure(
        testset, [guesses(testset, dict.fromkeys(PAIRS, "cat"))], metrics=["precision", "recall"]
    )
    (cat,) = scores(precision)
    assert (cat.slice, cat.n, cat.value) == ("class=cat", 5, pytest.approx((2 * 0.5 + 3) / 5))
    assert {r.slice: (r.n, r.value) for r in scores(recall)} == {
        "class=cat": (5, 1.0),
        "class=dog": (2, 0.0),
    }

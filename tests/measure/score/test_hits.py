"""Lists of labels against plain lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import LabelError, UserError
from heldout.data.labels import many_to_one_map
from heldout.measure.score.truth import LabelLists, class_indices, truth_arrays
from tests.measure.score.worlds import Image, World, space_of, world_testset, worlds

CLASSES = 5
rows_of_labels = st.lists(st.lists(st.integers(0, CLASSES - 1), max_size=5), min_size=1, max_size=8)


def made(rows: list[list[int]]) -> LabelLists:
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return LabelLists(starts, np.array([v for row in rows for v in row], dtype=np.int64), CLASSES)


def plain(lists: LabelLists) -> list[list[int]]:
    return [
        lists.values[a:b].tolist() for a, b in zip(lists.starts, lists.starts[1:], strict=False)
    ]


@given(rows_of_labels, st.data())
def test_contain_is_python_in(rows: list[list[int]], data: st.DataObject) -> None:
    guess = st.integers(-1, CLASSES + 3)
    first = data.draw(st.lists(guess, min_size=len(rows), max_size=len(rows)))
    found = made(rows).contain(np.array(first))
    assert found.tolist() == [g in row for g, row in zip(first, rows, strict=True)]
    wide = np.array([data.draw(st.lists(guess, min_size=3, max_size=3)) for _ in rows])
    expected = [
        [g in row for g in guesses] for guesses, row in zip(wide.tolist(), rows, strict=True)
    ]
    assert made(rows).contain(wide).tolist() == expected
    assert made(rows).contain(wide.astype(np.int16)).tolist() == expected


def test_a_guess_outside_the_classes_is_not_the_next_rows_label() -> None:
    lists = made([[1], [0]])  # as one key, class 5 of row 0 would be class 0 of row 1
    assert lists.contain(np.array([CLASSES, 0])).tolist() == [False, True]
    assert lists.contain(np.array([1, -CLASSES])).tolist() == [True, False]


def test_arrow_slices_start_at_zero() -> None:
    space = space_of(3)
    column = pa.chunked_array([pa.array([["c0"], ["c1", "c2"], []], pa.list_(pa.string()))])
    lists = LabelLists.from_arrow(column.slice(1), space)
    assert plain(lists) == [[1, 2], []]


def test_nulls_in_lists_are_refused() -> None:
    space = space_of(3)
    for value, text in ((None, "null where a list"), (["c0", None], "null among")):
        with pytest.raises(UserError, match=text):
            LabelLists.from_arrow(
                pa.chunked_array([pa.array([value], pa.list_(pa.string()))]), space
            )


def test_class_indices() -> None:
    assert class_indices(pa.array(["c2", None, "c0"]), space_of(3)).tolist() == [2, -1, 0]
    with pytest.raises(LabelError, match="'x' is not in label space made"):
        class_indices(pa.array(["c0", "x"]), space_of(3))


@given(worlds(), st.randoms(use_true_random=False))
def test_truth_arrays_do_not_depend_on_row_order(world: World, random: object) -> None:
    order = list(range(len(world.images)))
    random.shuffle(order)  # type: ignore[attr-defined]
    testset = world_testset(world, order)
    truth = truth_arrays(testset)
    assert [testset.image_ids[int(row)].as_py() for row in truth.rows] == [
        i.id for i in world.images
    ]
    assert truth.labels.tolist() == [image.label for image in world.images]
    for name in ("correct", "unclear", "wrong"):
        assert plain(getattr(truth, name)) == [list(getattr(image, name)) for image in world.images]


def test_in_target_keeps_the_classes_of_the_target() -> None:
    images = (
        Image("a", 0, (0,), (3,)),
        Image("b", 1, (1, 2)),
        Image("c", 3, (3, 0)),
        Image("d", None, (2, 3)),
        Image("e", None, (3,)),
    )
    source = space_of(4)
    label_map = many_to_one_map(
        source, {"X": ["c0"], "Y": ["c1", "c2"]}, name="two", reading="full"
    )
    truth = truth_arrays(world_testset(World(4, images))).in_target(label_map)
    assert truth.rows.tolist() == [0, 1, 3]
    assert truth.labels.tolist() == [0, 1, -1]
    assert plain(truth.correct) == [[0], [1, 1], [1]]
    assert plain(truth.unclear) == [[], [], []]
    assert truth.in_target(label_map) is truth
    foreign = many_to_one_map(space_of(9, "other"), {"Z": ["c0"]}, name="far", reading="full")
    with pytest.raises(LabelError, match="goes from other to far"):
        truth_arrays(world_testset(World(4, images))).in_target(foreign)

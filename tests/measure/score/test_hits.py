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


@given(rows_of_labels, st.data())
def test_take_is_python_indexing(rows: list[list[int]], data: st.DataObject) -> None:
    picks = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    assert plain(made(rows).select(np.array(picks, dtype=np.int64))) == [rows[i] for i in picks]


@given(
    rows_of_labels,
    st.lists(st.lists(st.integers(0, 8), max_size=4), min_size=CLASSES, max_size=CLASSES),
)
def test_expanded_replaces_each_label(rows: list[list[int]], table: list[list[int]]) -> None:
    starts = np.concatenate([[0], np.cumsum([len(entry) for entry in table])])
    values = np.array([v for entry in table for v in entry], dtype=np.int64)
    found = made(rows).expanded(starts, values, 9)
    assert plain(found) == [[v for label in row for v in table[label]] for row in rows]
    assert found.classes == 9


@given(rows_of_labels, st.lists(st.integers(-1, 3), min_size=CLASSES, max_size=CLASSES))
def test_renamed_leaves_out_minus_one(rows: list[list[int]], table: list[int]) -> None:
    found = made(rows).renamed(np.array(table), 4)
    assert plain(found) == [[table[v] for v in row if table[v] >= 0] for row in rows]


@given(rows_of_labels)
def test_pairs_name_each_label_once(rows: list[list[int]]) -> None:
    got = list(zip(*(part.tolist() for part in made(rows).pairs()), strict=True))
    assert got == [(i, label) for i, row in enumerate(rows) for label in sorted(set(row))]


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

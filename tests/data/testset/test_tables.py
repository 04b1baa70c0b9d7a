from __future__ import annotations

import pyarrow as pa
import pytest

from heldout.core.errors import UserError
from heldout.data.testset.tables import (
    IMAGE_COLUMNS,
    check_ids,
    check_truth,
    column_names,
    image_schema,
    image_table,
    membership_table,
    truth_schema,
    truth_table,
)


def test_image_table_fills_and_casts_the_fixed_columns() -> None:
    table = image_table({"image_id": ["a", "b"], "width": [3, None], "domain": ["x", None]})
    assert table.column_names == [*IMAGE_COLUMNS, "domain"]
    assert table.schema.field("width").type == pa.int32()
    assert table["sha256"].null_count == 2
    assert column_names(table) == ["domain"]
    assert table.select(IMAGE_COLUMNS).schema == image_schema()


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["a", "a", "b"], "1 repeated image ids, such as 'a'"),
        (["a", None], "without an image_id"),
        (["a", ""], "without an image_id"),
    ],
)
def test_bad_ids_are_refused(ids: list[str | None], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_ids(pa.chunked_array([pa.array(ids, pa.string())]), "the table")


def test_truth_of_one_class_an_image() -> None:
    table = truth_table(["a", "b"], ["x", "y"])
    assert table.schema == truth_schema()
    assert table.to_pylist()[1] == {
        "image_id": "b",
        "class_id": "y",
        "correct": ["y"],
        "unclear": [],
        "wrong": [],
        "problematic": False,
    }
    assert len(truth_table([], [])) == 0


def test_truth_with_lists_may_lack_the_class() -> None:
    table = truth_table(["a"], [None], correct=[["x", "y"]], unclear=[["z"]], problematic=[True])
    assert table.to_pylist()[0]["correct"] == ["x", "y"]
    with pytest.raises(UserError, match="needs a class for every image"):
        truth_table(["a"], [None])


def test_truth_key_is_image_and_class() -> None:
    check_truth(truth_table(["a", "a"], ["x", "y"]))
    with pytest.raises(UserError, match="'a' with class 'x' twice"):
        truth_table(["a", "a"], ["x", "x"])


def test_memberships_are_sorted_and_unique() -> None:
    table = membership_table([("b", "c", "2"), ("a", "c", "1"), ("b", "c", "2")])
    assert table.to_pylist() == [
        {"image_id": "a", "column": "c", "value": "1"},
        {"image_id": "b", "column": "c", "value": "2"},
    ]
    assert len(membership_table([])) == 0

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from heldout.core.errors import MismatchError, UserError
from heldout.data.labels import LabelSpace
from heldout.models.predictions import Predictions, top_k

SPACE = LabelSpace.from_ids("abc", ["a", "b", "c"])


def predictions(ids: list[str], top: list[list[int]], **options: object) -> Predictions:
    return Predictions(
        model="m",
        image_ids=pa.array(ids),
        topk=np.array(top, np.int32),
        label_space=SPACE,
        **options,
    )  # type: ignore[arg-type]


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 8), st.integers(1, 12)),
        elements=st.integers(-3, 3).map(float),
    ),
    st.integers(1, 6),
)
def test_top_k_equals_a_stable_sort(logits: np.ndarray, k: int) -> None:
    expected = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    assert top_k(logits, k).tolist() == expected.tolist()


def test_the_order_of_rows_does_not_change_the_hash_of_failures() -> None:
    there = predictions(["a", "b", "c"], [[-1], [0], [-1]], failures={0: "empty", 2: "broken"})
    back = predictions(["c", "b", "a"], [[-1], [0], [-1]], failures={2: "empty", 0: "broken"})
    assert there.hash == back.hash
    other = predictions(["c", "b", "a"], [[-1], [0], [-1]], failures={0: "empty", 2: "broken"})
    assert other.hash != there.hash


@given(st.permutations(range(4)))
def test_hash_does_not_depend_on_row_order(order: list[int]) -> None:
    ids, top = ["w", "x", "y", "z"], [[0, 1], [1, 2], [2, 0], [0, 2]]
    logits = np.arange(12, dtype=np.float16).reshape(4, 3)
    one = predictions(ids, top, logits=logits, failures={2: "broken"})
    other = predictions(
        [ids[i] for i in order],
        [top[i] for i in order],
        logits=logits[order],
        failures={order.index(2): "broken"},
    )
    assert one.hash == other.hash
    assert one.hash != predictions(ids, top, logits=logits).hash
    assert (
        one.hash != predictions(ids, [[1, 0], *top[1:]], logits=logits, failures={2: "broken"}).hash
    )


def test_rows_are_found_by_id() -> None:
    found = predictions(["z", "x", "y"], [[0], [1], [2]])
    assert found.rows_for(pa.array(["x", "y", "z"]), testset="t").tolist() == [1, 2, 0]
    with pytest.raises(MismatchError, match="lack 1 of the 2 images of t, such as 'q'"):
        found.rows_for(pa.array(["x", "q"]), testset="t")


def test_key_tells_checkpoints_apart() -> None:
    a = predictions(["x"], [[0]], identity={"sha256": "1"})
    b = predictions(["x"], [[0]], identity={"sha256": "2"})
    assert a.key != b.key and a.hash == b.hash


def test_shapes_are_checked() -> None:
    with pytest.raises(UserError, match="top-k of shape"):
        predictions(["x", "y"], [[0]])
    with pytest.raises(UserError, match="do not fit"):
        predictions(["x"], [[0]], logits=np.zeros((1, 4)))

from __future__ import annotations

import numpy as np
import pytest

from heldout.core.errors import UserError
from heldout.curate.zero_shot.assign import class_vectors


def test_equal_vectors_are_one_row_in_the_order_of_their_lowest_class() -> None:
    found = class_vectors(np.float32([[0, 2], [3, 0], [0, 1], [1, 1], [1, -0.0]]))
    assert found.rows.tolist() == np.float32([[0, 1], [1, 0], [0.5**0.5] * 2]).tolist()
    assert found.members.tolist() == [0, 2, 1, 4, 3]
    assert found.offsets.tolist() == [0, 2, 4, 5]
    assert found.shared == ((0, 2), (1, 4))
    assert (len(found), found.dimension, found.counts.tolist()) == (5, 2, [2, 2, 1])


@pytest.mark.parametrize("bad", [[0, 0], [np.nan, 1], [np.inf, 1]])
def test_a_class_without_a_direction_is_named(bad: list[float]) -> None:
    with pytest.raises(UserError, match="class 1 "):
        class_vectors(np.array([[1.0, 0], bad]))


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.zeros(3), np.ones((2, 2), int)])
def test_what_is_no_matrix_of_floats_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(UserError, match="one row per class"):
        class_vectors(bad)

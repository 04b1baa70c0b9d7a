from __future__ import annotations

import math

import numpy as np
import pytest

from heldout.curate.active.study import (
    METRICS,
    Cells,
    count_cells,
    domain_accuracy,
    domain_loss,
    measure,
)


def test_a_table_by_hand() -> None:
    """Two domains of 4 and 2 images, a third without any; two classes."""
    cells = Cells(
        np.array([[2, 2], [1, 1], [0, 0]]),
        np.array([[2, 1], [0, 1], [0, 0]]),
        np.array([2.0, 3.0, 0.0]),
    )
    found = measure(cells, np.array([10, 30, 60]))
    assert found["accuracy"] == 4 / 6
    assert found["mean_of_domains"] == (3 / 4 + 1 / 2) / 2
    assert found["ambient"] == pytest.approx((10 * 3 / 4 + 30 * 1 / 2) / 40)
    assert found["worst_domain"] == 1 / 2
    assert found["worst_cell"] == 0.0
    assert found["loss"] == 5 / 6
    assert found["ambient_loss"] == pytest.approx((10 * 0.5 + 30 * 1.5) / 40)
    assert found["mean_loss_of_domains"] == 1.0
    assert found["worst_loss_of_domains"] == 1.5
    assert tuple(found) == METRICS
    assert math.isnan(domain_accuracy(cells)[2]) and math.isnan(domain_loss(cells)[2])


def test_nothing_at_all_is_null() -> None:
    empty = Cells(np.zeros((2, 2), int), np.zeros((2, 2), int), np.zeros(2))
    assert all(math.isnan(value) for value in measure(empty, np.array([1, 1])).values())


def test_cells_against_a_loop() -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(50, 4)), rng.integers(4, size=50)
    domains = rng.integers(3, size=50)
    cells = count_cells(logits, labels, domains, count=4)
    for d in range(4):
        for c in range(4):
            mine = [i for i in range(50) if domains[i] == d and labels[i] == c]
            assert cells.images[d, c] == len(mine)
            assert cells.right[d, c] == sum(int(np.argmax(logits[i])) == c for i in mine)
        loss = sum(
            math.log(sum(math.exp(x) for x in logits[i])) - logits[i, labels[i]]
            for i in range(50)
            if domains[i] == d
        )
        assert cells.losses[d] == pytest.approx(loss)

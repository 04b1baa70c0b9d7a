"""Interactions of two columns: does the effect of one depend on the other?

Where two columns act independently, a cell of their table is its row's mean plus its column's less
the mean of all. What is left over is the cell's interaction.
"""

from __future__ import annotations

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.curves import Curve


def interaction_weights(curve: Curve) -> np.ndarray:
    """Weights (cells, cells): row c times the accuracies is the interaction of cell c.

    ``a_ij - a_i. - a_.j + a_..`` with plain means over rows, columns and all cells. The table must
    have every cell: a mean over some of a row is the mean of another row.
    """
    rows, columns = curve.axis(0), curve.axis(1)
    if len(curve) < len(rows) * len(columns):
        missing = len(rows) * len(columns) - len(curve)
        raise NotApplicable(
            f"{missing} of {len(rows) * len(columns)} cells of {curve.entry} have no images",
            fix="slice by values that occur together",
        )
    if min(len(rows), len(columns)) < 2:
        raise NotApplicable(f"{curve.entry} has a single row or column", fix="read it as a curve")
    first = np.array([rows.index(text[0]) for text in curve.texts])
    second = np.array([columns.index(text[1]) for text in curve.texts])
    same_row = first[:, None] == first[None, :]
    same_column = second[:, None] == second[None, :]
    return np.asarray(
        np.eye(len(curve)) - same_row / len(columns) - same_column / len(rows) + 1 / len(curve)
    )

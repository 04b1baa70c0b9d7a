"""Batches of one fixed size, so that an image's outputs never depend on how images were grouped.

A kernel may add in another order when the batch has another size, and then the last bits of a
logit move. So whatever batch comes in is cut into micro-batches of one size, the last filled up
with zeros. What remains is that an image's outputs do not depend on its place in the micro-batch
or on its neighbours; :func:`rows_are_independent` tries that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MICRO_BATCH = 4
"""Measured on EfficientNet-Lite with ONNX Runtime: 1 to 16 cost the same within 5 percent of time,
4 least; memory for activations grows with it."""

Run = Callable[[np.ndarray], list[np.ndarray]]


def in_micro_batches(run: Run, inputs: np.ndarray, size: int) -> list[np.ndarray]:
    """The outputs of ``run`` on ``inputs`` (b, ...), each (b, ...), run ``size`` rows at a time."""
    parts: list[list[np.ndarray]] = []
    for start in range(0, len(inputs), size):
        chunk = inputs[start : start + size]
        rows = len(chunk)
        if rows < size:
            filled = np.zeros((size, *inputs.shape[1:]), inputs.dtype)
            filled[:rows] = chunk
            chunk = filled
        parts.append([output[:rows] for output in run(chunk)])
    return (
        parts[0] if len(parts) == 1 else [np.concatenate(each) for each in zip(*parts, strict=True)]
    )


def rows_are_independent(run: Run, inputs: np.ndarray) -> bool:
    """Whether outputs of a row stay the same, to the bit, in other places and beside other rows.

    ``inputs`` is one micro-batch of varied images. Each is tried in the next place, and the first
    also in the last place beside nothing but zeros. Three runs.
    """
    if len(inputs) == 1:
        return True
    plain = run(inputs)
    turned = run(np.roll(inputs, 1, axis=0))
    alone = np.zeros_like(inputs)
    alone[-1] = inputs[0]
    lonely = run(alone)
    return all(
        np.array_equal(np.roll(a, 1, axis=0), b, equal_nan=True)
        and np.array_equal(a[0], c[-1], equal_nan=True)
        for a, b, c in zip(plain, turned, lonely, strict=True)
    )

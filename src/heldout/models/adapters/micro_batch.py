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
"""Measured with ONNX Runtime on EfficientNet-Lite0: 1 to 16 cost the same time within 7 percent, 4
the least of it; memory for activations grows with the size."""

Run = Callable[[np.ndarray], list[np.ndarray]]


def in_micro_batches(run: Run, inputs: np.ndarray, size: int) -> list[np.ndarray]:
    """The outputs of ``run`` on ``inputs`` (b, ...), each (b, ...), run ``size`` rows at a time."""
    parts: list[list[np.ndarray]] = []
    for start in range(0, max(len(inputs), 1), size):
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

    ``inputs`` is one micro-batch of varied images. Each is tried in the next place; the first is
    also tried in the last place, beside zeros and beside louder copies of itself, so that a
    largest, least or mean value taken over the batch must differ. Four runs.
    """
    if len(inputs) == 1:
        return True
    plain = run(inputs)
    turned = run(np.roll(inputs, 1, axis=0))
    quiet = np.zeros_like(inputs)
    loud = np.repeat(inputs[:1] * inputs.dtype.type(3), len(inputs), axis=0)
    quiet[-1] = loud[-1] = inputs[0]
    return all(
        _same(np.roll(a, 1, axis=0), b) and _same(a[0], c[-1]) and _same(a[0], d[-1])
        for a, b, c, d in zip(plain, turned, run(quiet), run(loud), strict=True)
    )


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=True)

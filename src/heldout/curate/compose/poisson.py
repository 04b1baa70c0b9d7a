"""The membrane of seamless cloning: a harmonic function on a region, from its values around it.

Seamless cloning (Pérez, Gangnet, Blake: Poisson image editing, 2003) asks for an image whose
gradients are the object's and whose border is the background's. Less the object itself, that is a
function whose Laplacian is zero: a membrane spanned over the border. The five-point equations are
solved directly, by a sparse factorisation that images with the same outline share.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Planes = NDArray[np.float64]
Mask = NDArray[np.bool_]

_STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))


def membrane(values: Planes, *, region: Mask, border: Mask) -> Planes:
    """The harmonic function on ``region`` with ``values`` on ``border``; float64 (h, w, c).

    ``values``  (h, w, c); only those on ``border`` count, which the result repeats
    ``region``  (h, w); each of its pixels has its neighbours (up, down, left, right) in ``region``,
                in ``border`` or outside the array. Over the edge of the array nothing flows.

    A part of the region that touches no border has no solution of its own; it is zero.
    """
    made = np.where(border[:, :, None], values, 0.0)
    inside = _anchored(region & ~border, border)
    if inside.any():
        right = np.zeros((int(inside.sum()), values.shape[2]))
        for step in _STEPS:
            right += _shifted(made, step)[inside]
        made[inside] = _factors(inside.shape, np.packbits(inside).tobytes()).solve(right)
    return made


def _anchored(region: Mask, border: Mask) -> Mask:
    """The parts of a region that touch its border."""
    from scipy.ndimage import label

    parts, count = label(region)
    if not count:
        return region
    touching = np.zeros(count + 1, dtype=bool)
    for step in _STEPS:
        touching[parts[_shifted(border, step)]] = True
    touching[0] = False
    anchored: Mask = touching[parts]
    return anchored


def _shifted(array: NDArray[Any], step: tuple[int, int]) -> NDArray[Any]:
    """The neighbour of each pixel in one direction; zero beyond the edge."""
    down, across = step
    height, width = array.shape[:2]
    made = np.zeros_like(array)
    made[max(0, -down) : height - max(0, down), max(0, -across) : width - max(0, across)] = array[
        max(0, down) : height - max(0, -down), max(0, across) : width - max(0, -across)
    ]
    return made


@lru_cache(maxsize=2)
def _factors(shape: tuple[int, int], packed: bytes) -> Any:
    """The factorised equations of one region."""
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import splu

    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=shape[0] * shape[1])
    inside = bits.reshape(shape).astype(bool)
    count = int(inside.sum())
    number = np.full(shape, -1, dtype=np.int64)
    number[inside] = np.arange(count)
    frame = np.ones(shape, dtype=np.int64)
    degree = np.sum([_shifted(frame, step) for step in _STEPS], axis=0)[inside]
    rows, columns = [np.arange(count)], [np.arange(count)]
    entries = [degree.astype(np.float64)]
    for step in _STEPS:
        # Zero beyond the edge must not be taken for the first pixel: numbers count from 1 here.
        other = _shifted(number + 1, step)[inside] - 1
        here = np.flatnonzero(other >= 0)
        rows.append(here)
        columns.append(other[here])
        entries.append(np.full(len(here), -1.0))
    matrix = coo_array(
        (np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))),
        shape=(count, count),
    ).tocsc()
    return splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})

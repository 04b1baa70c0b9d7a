"""Assignment the slow and obvious way: all cosines of all pairs, sorted."""

from __future__ import annotations

import math

import numpy as np


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows over their lengths, rounded to float32."""
    wide = vectors.astype(np.float64)
    made = [row / math.sqrt(math.fsum(x * x for x in row)) for row in wide]
    return np.array(made, np.float64).reshape(vectors.shape).astype(np.float32)


def cosines(images: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Every cosine of unit float32 rows, the exact sum rounded to float32: (n, classes)."""
    return np.array(
        [
            [math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True)) for b in classes]
            for a in images
        ]
    ).astype(np.float32)


def best(row: np.ndarray, k: int) -> list[int]:
    """The best k classes of a row of cosines; equal ones by number."""
    return sorted(range(len(row)), key=lambda j: (-row[j], j))[:k]


def tied(row: np.ndarray) -> list[int]:
    """Classes that share the best cosine, without the first of them."""
    return [j for j in range(len(row)) if row[j] == row.max()][1:]


def log_sum_exp(row: np.ndarray, temperature: float) -> float:
    """``log Σ exp(T·c)`` in exact sums."""
    scaled = [temperature * float(c) for c in row]
    top = max(scaled)
    return top + math.log(math.fsum(math.exp(value - top) for value in scaled))

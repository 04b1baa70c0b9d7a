"""BERT in plain NumPy and float64, one text at a time, as its paper describes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np


def sentence_vector(
    weights: Mapping[str, np.ndarray], tokens: Sequence[int], *, layers: int, heads: int
) -> np.ndarray:
    """The mean over the last layer's tokens, as a unit vector."""

    def array(name: str) -> np.ndarray:
        return np.asarray(weights[name], np.float64)

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        mean = x.mean(axis=1, keepdims=True)
        spread = np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + 1e-12)
        return (x - mean) / spread * array(f"{name}.weight") + array(f"{name}.bias")

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ array(f"{name}.weight").T + array(f"{name}.bias")

    x = np.stack([array("embeddings.word_embeddings.weight")[token] for token in tokens])
    x = x + array("embeddings.position_embeddings.weight")[: len(tokens)]
    x = normed(x + array("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        q, k, v = (dense(x, f"{at}.attention.self.{part}") for part in ("query", "key", "value"))
        width = x.shape[1] // heads
        mixed = np.zeros_like(x)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = np.exp(q[:, part] @ k[:, part].T / math.sqrt(width))
            mixed[:, part] = scores / scores.sum(axis=1, keepdims=True) @ v[:, part]
        x = normed(
            x + dense(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm"
        )
        grown = dense(x, f"{at}.intermediate.dense")
        erf = np.vectorize(math.erf)(grown / math.sqrt(2))
        x = normed(x + dense(grown * (1 + erf) / 2, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)

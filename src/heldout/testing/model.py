"""A model for tests and examples: the colours of an image decide, nothing is trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from heldout.core.files import sha256_text
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.model import ModelOutput

_BINS = 8


class FakeModel:
    """Logits from a colour histogram and fixed weights that follow from ``name`` alone.

    Eight bins a channel, counted; logits are whole-number combinations of the counts, scaled. All
    sums are of integers, so the outputs are the same to the bit on every machine and in every
    batch. Features are the 24 shares of the histogram.
    """

    device = "cpu"

    def __init__(
        self,
        name: str = "fake",
        *,
        label_space: LabelSpace | None = None,
        preprocessing: Preprocessing | None = None,
    ) -> None:
        self.name = name
        self.label_space = label_space or LabelSpace.from_ids("fake", [f"c{i}" for i in range(10)])
        self.preprocessing: Preprocessing = preprocessing or Preprocessing()
        self.identity: Mapping[str, Any] = {"adapter": "fake", "name": name}
        self._weights = _weights(name, 3 * _BINS, len(self.label_space))

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        """Logits float32 (b, classes) and features float32 (b, 24) of uint8 pixels (b, h, w, 3)."""
        rows, height, width, _ = pixels.shape
        bins = (pixels >> 5).astype(np.int64) + _BINS * np.arange(3)
        bins += 3 * _BINS * np.arange(rows)[:, None, None, None]
        counts = np.bincount(bins.ravel(), minlength=rows * 3 * _BINS).reshape(rows, 3 * _BINS)
        area = height * width
        logits = (counts @ self._weights) / (area * 128)
        return ModelOutput(logits.astype(np.float32), (counts / area).astype(np.float32))

    def with_preprocessing(self, preprocessing: Preprocessing) -> FakeModel:
        """The same model behind another preprocessing; only its geometry makes a difference."""
        made = copy.copy(self)
        made.preprocessing = preprocessing
        return made


def _weights(name: str, rows: int, columns: int) -> np.ndarray:
    """Whole numbers from -1024 to 1023, int64 (rows, columns), from the name's hash."""
    seed = int(sha256_text(name)[:8], 16)
    # The last steps of MurmurHash3 on 64-bit integers that hold 32 bits.
    x = (np.arange(rows * columns, dtype=np.uint64) * 0x9E3779B1 + seed) & 0xFFFFFFFF
    for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(16)
    made: np.ndarray = (x & np.uint64(2047)).astype(np.int64).reshape(rows, columns) - 1024
    return made

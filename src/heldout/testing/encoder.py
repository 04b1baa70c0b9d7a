"""An encoder for tests and examples: colours of pixels and names of colours, nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heldout.core.files import sha256_text
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.adapters.model import unit_rows

_LEVELS = 3
COLOURS = {
    "black": (0, 0, 0),
    "blue": (0, 0, 2),
    "cyan": (0, 2, 2),
    "green": (0, 2, 0),
    "grey": (1, 1, 1),
    "magenta": (2, 0, 2),
    "red": (2, 0, 0),
    "white": (2, 2, 2),
    "yellow": (2, 2, 0),
}
"""Colours that the encoder knows by name, as levels of red, green and blue."""


class FakeEncoder:
    """An image is its histogram over 27 colours; a text the sum of its words.

    A word that names a colour is that colour; any other is a small vector that follows from the
    word's hash. All sums are of whole numbers, so vectors are the same to the bit in every batch.
    """

    def __init__(self, *, name: str = "fake", side: int = 16) -> None:
        self.name = name
        self.dimension = _LEVELS**3
        geometry = Geometry(
            resize="exact",
            resize_height=side,
            resize_width=side,
            crop_height=side,
            crop_width=side,
        )
        self.preprocessing: Preprocessing = Preprocessing(geometry=geometry)
        self.identity: Mapping[str, Any] = {"adapter": "fake", "name": name, "side": side}
        self.scale = 10.0

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Histograms of uint8 pixels (b, h, w, 3) as unit vectors, float32 (b, 27)."""
        levels = np.minimum(pixels.astype(np.int64) * _LEVELS // 256, _LEVELS - 1)
        cells = (levels * np.array([_LEVELS**2, _LEVELS, 1])).sum(axis=3).reshape(len(pixels), -1)
        counts = [np.bincount(row, minlength=self.dimension) for row in cells]
        return unit_rows(np.array(counts, np.float64).reshape(-1, self.dimension))

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Sums of words as unit vectors, float32 (texts, 27)."""
        made = np.zeros((len(texts), self.dimension))
        for row, text in enumerate(texts):
            for word in "".join(c if c.isalnum() else " " for c in text.lower()).split() or [""]:
                made[row] += self._word(word)
        return unit_rows(made)

    def _word(self, word: str) -> np.ndarray:
        digest = bytes.fromhex(sha256_text(word))[: self.dimension]
        vector = np.frombuffer(digest, np.uint8).astype(np.float64) - 127.5
        if word in COLOURS:
            red, green, blue = COLOURS[word]
            vector[red * _LEVELS**2 + green * _LEVELS + blue] += 4096
        return vector


load = FakeEncoder  # what ``--encoder fake`` names

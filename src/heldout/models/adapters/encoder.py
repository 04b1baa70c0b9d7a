"""What an image-text encoder is: images and texts as unit vectors of one space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from heldout.data.images.preprocessing import Preprocessing


@runtime_checkable
class Encoder(Protocol):
    """Images and texts in one space, where the cosine says how well they fit.

    ``dimension``  of the space
    ``identity``   what tells it from any other encoder: hash of the weights, library versions that
                   change outputs, arguments
    ``scale``      what a cosine is multiplied by before a softmax, as the encoder was trained

    Like a :class:`~heldout.models.adapters.Model` it gets uint8 pixels (b, height, width, 3), RGB, after the
    geometry of ``preprocessing``. It must be safe to call from several threads at once.
    """

    name: str
    dimension: int
    preprocessing: Preprocessing
    identity: Mapping[str, Any]
    scale: float

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """A batch as vectors of length 1; float32 (b, dimension)."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as vectors of length 1; float32 (texts, dimension)."""
        ...

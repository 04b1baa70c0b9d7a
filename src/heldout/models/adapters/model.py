"""What a model is: a label space, preprocessing as data, and a batch of pixels in, logits out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace


@dataclass(frozen=True, eq=False)
class Answer:
    """What a model says about a batch: logits float32 (b, classes); features float32 (b, d) or None."""

    logits: np.ndarray
    features: np.ndarray | None = None


@runtime_checkable
class Model(Protocol):
    """A classifier. ``__call__`` gets uint8 pixels (b, height, width, 3), RGB, after the geometry
    of ``preprocessing``, and applies scale, mean, std and layout itself, so that the same decoded
    pixels serve many models.

    ``identity`` is what tells it from any other model: hash of the weights, library versions that
    change outputs, arguments. It must be safe to call from several threads at once.
    """

    name: str
    label_space: LabelSpace
    preprocessing: Preprocessing
    identity: Mapping[str, Any]

    def __call__(self, pixels: np.ndarray) -> Answer:
        """Logits (and features) of a batch."""
        ...

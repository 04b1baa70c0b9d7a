"""``conse``: a real image-text space without torch or a download, from a classifier and MiniLM.

An image is the mean of the text vectors of its ten most probable classes, weighted by their
probabilities; a text is its own vector (ConSE: Norouzi et al. 2014). The classifier knows
ImageNet-1k; the space reaches beyond it as far as names of classes are near to each other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.core.files import canonical_json, sha256_text
from heldout.data.images.preprocessing import Preprocessing
from heldout.models.adapters.minilm import SCALE, MiniLM
from heldout.models.adapters.model import Model
from heldout.models.adapters.prompts import class_texts
from heldout.models.adapters.registry import PredictionFile, load_model
from heldout.models.adapters.unit_vectors import unit_rows

TOP = 10
"""Classes that make up an image."""


class Conse:
    """A classifier and a text encoder as an :class:`~heldout.models.adapters.Encoder`."""

    def __init__(self, model: Model, text: MiniLM, *, name: str = "conse", top: int = TOP) -> None:
        self.name = name
        self.dimension = text.dimension
        self.preprocessing: Preprocessing = model.preprocessing
        self.scale = SCALE
        self._model, self._text = model, text
        self._top = min(top, len(model.label_space))
        self._names = class_texts(model.label_space, "lemmas")
        self.identity: Mapping[str, Any] = {
            "adapter": "conse",
            "classifier": dict(model.identity),
            "text": dict(text.identity),
            "names": sha256_text(canonical_json(self._names)),
            "top": self._top,
        }
        self._vectors: np.ndarray | None = None
        self._lock = threading.Lock()

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Images as unit vectors, float32 (b, 384)."""
        logits = self._model(pixels).logits.astype(np.float64)
        best = np.argsort(-logits, axis=1, kind="stable")[:, : self._top]
        chosen = np.take_along_axis(logits, best, axis=1)
        # Over the chosen alone: the rest of a softmax is one factor, and the length is set to 1.
        shares = np.exp(chosen - chosen[:, :1])
        made = (shares[:, :, None] * self._class_vectors()[best]).sum(axis=1)
        return unit_rows(made)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as unit vectors, float32 (texts, 384)."""
        return self._text(texts)

    def _class_vectors(self) -> np.ndarray:
        with self._lock:
            if self._vectors is None:
                self._vectors = self._text(self._names)
            return self._vectors


def load(name: str = "lite0") -> Conse:
    """``conse:lite0`` and so on: any classifier that has names for its classes."""
    model = load_model(name)
    if isinstance(model, PredictionFile):
        raise NotApplicable(
            f"conse:{name} names predictions, which cannot look at images",
            fix="name a classifier, such as conse:lite0",
        )
    return Conse(model, MiniLM(), name=f"conse:{name}")

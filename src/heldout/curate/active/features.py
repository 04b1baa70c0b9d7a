"""Frozen features of images: vectors made elsewhere, an encoder's, or a classifier's last layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import NotApplicable, UserError
from heldout.core.workspace import Workspace
from heldout.data.images import ImageSource, Preprocessing
from heldout.data.testset.pool import Pool
from heldout.models.adapters.model import Encoder, Model
from heldout.models.embeddings.encode import embed
from heldout.models.embeddings.store import Embeddings, is_embeddings, read_embeddings

_PREFIX = "embeddings:"
_ENCODERS = ("conse", "onnx-pair:")


class FeatureEncoder:
    """A classifier as the image side of an encoder: its features, as they are, not of length 1."""

    scale = 1.0

    def __init__(self, model: Model) -> None:
        geometry = model.preprocessing.geometry
        probe = model(np.zeros((1, geometry.crop_height, geometry.crop_width, 3), np.uint8))
        if probe.features is None:
            raise NotApplicable(
                f"{model.name} gives no features",
                fix="name a model that does, such as lite0, or give vectors: --features FILE.npy",
            )
        self._model = model
        self.name = f"{model.name}-features"
        self.dimension = int(probe.features.shape[1])
        self.preprocessing: Preprocessing = model.preprocessing
        self.identity: Mapping[str, Any] = {"features": True, **model.identity}

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Features of a batch, float32 (b, dimension)."""
        found = self._model(pixels).features
        if found is None:
            raise NotApplicable(f"{self.name} gave no features", fix="name another model")
        return found

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """A classifier reads no texts."""
        raise NotApplicable(f"{self.name} reads no texts", fix="name an image-text encoder")


def image_encoder(text: str) -> Encoder:
    """What turns images into vectors: an encoder (``conse``, ``onnx-pair:FOLDER``) or a model."""
    from heldout.models.adapters import load_encoder, load_model

    if text.startswith(_ENCODERS):
        return load_encoder(text)
    model = load_model(text)
    if not isinstance(model, Model):
        raise UserError(f"{text} holds predictions, not a model", fix="name a model such as lite0")
    return FeatureEncoder(model)


def pool_features(
    pool: Pool,
    text: str,
    *,
    workspace: Workspace,
    images: ImageSource | Path | str | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> Embeddings:
    """Features of a pool's images: read where ``text`` is a path of vectors, else made and kept.

    ``text``  ``embeddings:PATH`` or a path; the name of an encoder; or that of a model
    """
    path = Path(text.removeprefix(_PREFIX))
    if text.startswith(_PREFIX) or is_embeddings(path):
        return read_embeddings(path)
    if not len(pool):
        raise UserError(f"{pool.name} has no images", fix="give a pool of images")
    return embed(
        pool,
        image_encoder(text),
        workspace=workspace,
        images=images,
        workers=workers,
        progress=progress,
    )

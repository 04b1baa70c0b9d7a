"""What turns an image into the vector by which it is compared: pixels, or a model's features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.adapters.model import Encoder, Model


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
        return np.asarray(self._model(pixels).features)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """A classifier reads no texts."""
        raise NotApplicable(f"{self.name} reads no texts", fix="name an image-text encoder")


SIDE = 256
"""Height and width of the pixels that near duplicates are compared by, as ImageNetV2 published it."""


class PixelEncoder:
    """The pixels of an image as its vector: uint8, 256 × 256 × 3, the aspect not kept.

    Orientation is applied, so that a photograph and its upright copy are alike.
    """

    name = "pixels"
    scale = 1.0
    dtype = np.uint8
    dimension = SIDE * SIDE * 3
    preprocessing = Preprocessing(
        geometry=Geometry(
            resize="exact",
            resize_height=SIDE,
            resize_width=SIDE,
            interpolation="bilinear",
            crop_height=SIDE,
            crop_width=SIDE,
            exif=True,
        ),
        scale=1.0,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        layout="NHWC",
    )
    identity: Mapping[str, Any] = MappingProxyType({"pixels": SIDE})

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels of a batch, uint8 (b, 196608)."""
        return pixels.reshape(len(pixels), -1)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Pixels read no texts."""
        raise NotApplicable("pixels read no texts", fix="name an image-text encoder")


def image_encoder(text: str) -> Encoder:
    """What turns images into vectors: ``pixels``, the encoder ``conse``, or a model's features."""
    from heldout.models.adapters import load_encoder, load_model

    if text == PixelEncoder.name:
        return PixelEncoder()
    if text.startswith("conse"):
        return load_encoder(text)
    model = load_model(text)
    if not isinstance(model, Model):
        raise UserError(f"{text} holds predictions, not a model", fix="name a model such as lite0")
    return FeatureEncoder(model)

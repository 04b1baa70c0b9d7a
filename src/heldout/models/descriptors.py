"""What turns an image into the vector by which it is compared: pixels, hashes, a model's features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.files import sha256_file
from heldout.data.images.preprocessing import Geometry, Interpolation, Preprocessing
from heldout.models.adapters.model import Encoder, Model, unit_rows


class FeatureEncoder:
    """A classifier as the image side of an encoder: its features, as they are unless ``unit`` is asked.

    ``unit``  of length 1, so that squared L2 is 2 − 2 cosine, and of the upright image. Copies of a
              photo are told from other photos better so: what blurs or darkens it makes its features
              shorter
    ``name``, ``identity``  the model's unless they are given
    """

    scale = 1.0

    def __init__(
        self,
        model: Model,
        *,
        unit: bool = False,
        name: str = "",
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        geometry = model.preprocessing.geometry
        probe = model(np.zeros((1, geometry.crop_height, geometry.crop_width, 3), np.uint8))
        if probe.features is None:
            raise NotApplicable(
                f"{model.name} gives no features",
                fix="name a model that does, such as lite0, or give vectors: --features FILE.npy",
            )
        self._model, self._unit = model, unit
        self.name = name or f"{model.name}-features"
        self.dimension = int(probe.features.shape[1])
        self.preprocessing: Preprocessing = model.preprocessing
        if unit:
            self.preprocessing = replace(self.preprocessing, geometry=replace(geometry, exif=True))
        self.identity: Mapping[str, Any] = identity or {
            "features": "unit" if unit else True,
            **model.identity,
        }

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Features of a batch, float32 (b, dimension)."""
        features = np.asarray(self._model(pixels).features)
        return unit_rows(features) if self._unit else features

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """A classifier reads no texts."""
        raise NotApplicable(f"{self.name} reads no texts", fix="name an image-text encoder")


def raw_pixels(width: int, height: int, interpolation: Interpolation = "bilinear") -> Preprocessing:
    """Values from 0 to 255 of the whole image, upright, brought to one size; aspect is not kept."""
    geometry = Geometry(
        resize="exact",
        resize_height=height,
        resize_width=width,
        interpolation=interpolation,
        crop_height=height,
        crop_width=width,
        exif=True,
    )
    return Preprocessing(geometry=geometry, scale=1.0, mean=(0.0,) * 3, std=(1.0,) * 3)


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
    preprocessing = raw_pixels(SIDE, SIDE)
    identity: Mapping[str, Any] = MappingProxyType({"pixels": SIDE})

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels of a batch, uint8 (b, 196608)."""
        return pixels.reshape(len(pixels), -1)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Pixels read no texts."""
        raise NotApplicable("pixels read no texts", fix="name an image-text encoder")


BITS = 16
"""Rows of a hash, and bits in each: a picture of 17 × 16 has 16 differences in a row."""
_GREY = np.array([299, 587, 114])  # of 1,000; whole numbers, so that ties are the same everywhere


class HashEncoder(PixelEncoder):
    """A perceptual hash of 256 bits as a vector of 0 and 1, so that squared L2 counts bits that differ.

    A difference hash: of a grey picture of 17 × 16, whether each pixel is darker than the one on its
    right. Where an image is of one colour all bits are 0.
    """

    name = "hash"
    dimension = BITS * BITS
    preprocessing = raw_pixels(BITS + 1, BITS, "bicubic")
    identity: Mapping[str, Any] = MappingProxyType({"hash": "difference", "bits": BITS * BITS})

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Bits of a batch, uint8 (b, 256), row by row."""
        grey = pixels.astype(np.int64) @ _GREY
        bits: np.ndarray = grey[..., 1:] > grey[..., :-1]
        return bits.reshape(len(pixels), -1).astype(np.uint8)


FC7_WEIGHTS = "397923af"
"""How the SHA-256 of torchvision's file of VGG-16's weights begins, with which fc7 was published."""


def fc7(**model_args: Any) -> FeatureEncoder:
    """The features that ImageNetV2 was searched for near duplicates with, 4,096 after the ReLU.

    VGG-16's last layer but one, on pixels from 0 to 255 that are *not* normalised, of the whole image
    brought to 224 × 224. ``model_args`` are those of torchvision's models, such as ``checkpoint``, a
    file of weights.

    With the published weights the identity is theirs alone, whatever the version of the library: the
    published threshold belongs to it.
    """
    from heldout.models.adapters.torch_model import require_torch
    from heldout.models.adapters.torch_zoo import load_torchvision

    model = load_torchvision("vgg16.IMAGENET1K_V1", **model_args)
    folder = Path(require_torch().hub.get_dir()) / "checkpoints"
    weights = Path(model_args.get("checkpoint") or folder / f"vgg16-{FC7_WEIGHTS}.pth")
    published = (
        (model_args.get("pretrained", True) or "checkpoint" in model_args)
        and model.dtype == "float32"
        and sha256_file(weights).startswith(FC7_WEIGHTS)
    )
    model = model.with_preprocessing(raw_pixels(224, 224))
    identity = FC7_IDENTITY if published else None
    return FeatureEncoder(model, name="fc7", identity=identity)


FC7_IDENTITY: Mapping[str, Any] = MappingProxyType({"fc7": f"vgg16-{FC7_WEIGHTS}"})


def image_encoder(text: str, *, unit: bool = False, **model_args: Any) -> Encoder:
    """What turns images into vectors: ``pixels``, ``hash``, ``fc7``, the encoder ``conse``, or a model.

    ``unit``        a model's features as near duplicates are compared by; fc7 stays as published
    ``model_args``  go to the model
    """
    from heldout.models.adapters import load_encoder, load_model

    for own in (PixelEncoder, HashEncoder):
        if text == own.name:
            return own()
    if text == "fc7":
        return fc7(**model_args)
    if text.startswith("conse"):
        return load_encoder(text, **model_args)
    model = load_model(text, **model_args)
    if not isinstance(model, Model):
        raise UserError(f"{text} holds predictions, not a model", fix="name a model such as lite0")
    return FeatureEncoder(model, unit=unit)

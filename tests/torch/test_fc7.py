"""fc7 with any weights: published preprocessing and layer, against a forward pass written out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from heldout.core.files import sha256_file
from heldout.data.images.preprocessing import pixels_of
from heldout.models import descriptors
from heldout.models.descriptors import FC7_IDENTITY, image_encoder
from heldout.models.embeddings import encoder_key
from tests.torch.conftest import assert_close


@pytest.fixture(scope="module")
def vgg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """VGG-16 with weights of its own, and the file of them."""
    torch.manual_seed(5)
    module = torchvision.models.vgg16(weights=None).eval()
    for layer in module.features:
        if isinstance(layer, torch.nn.Conv2d):
            layer.weight.data *= 0.02  # values from 0 to 255 would grow from layer to layer
            layer.bias.data.normal_(0, 0.5)
    path = tmp_path_factory.mktemp("weights") / "vgg16.pth"
    torch.save(module.state_dict(), path)
    yield module, path
    path.unlink()  # half a gigabyte


def _photo(seed: int, size: tuple[int, int]) -> bytes:
    small = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), np.uint8)
    handle = io.BytesIO()
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(handle, "PNG")
    return handle.getvalue()


def test_fc7_is_the_published_layer_of_pixels_that_are_not_normalised(
    vgg: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, path = vgg
    encoder = image_encoder("fc7", checkpoint=str(path), device="cpu")
    photos = [_photo(seed, size) for seed, size in enumerate([(300, 200), (120, 260), (224, 224)])]
    pixels = np.stack([pixels_of(data, encoder.preprocessing.geometry) for data in photos])
    whole = [  # the whole image: its aspect is not kept, nothing is cut off
        Image.open(io.BytesIO(data)).resize((224, 224), Image.Resampling.BILINEAR)
        for data in photos
    ]
    values = torch.from_numpy(np.stack([np.asarray(image) for image in whole]))
    with torch.inference_mode():
        inside = module.avgpool(module.features(values.permute(0, 3, 1, 2).float()))
        inside = torch.relu(module.classifier[0](inside.flatten(1)))
        expected = torch.relu(module.classifier[3](inside))
    made = encoder.encode_images(pixels)
    assert_close(made, expected)
    assert made.shape == (3, encoder.dimension) == (3, 4096)
    assert (made >= 0).all() and (made == 0).any()
    # Other weights are another encoder: the published threshold does not belong to them.
    assert encoder.identity["weights"] and encoder.identity != FC7_IDENTITY
    monkeypatch.setattr(descriptors, "FC7_WEIGHTS", sha256_file(path)[:8])
    published = image_encoder("fc7", checkpoint=str(path), device="cpu")
    assert published.identity == FC7_IDENTITY and encoder_key(published) != encoder_key(encoder)
    lower = image_encoder("fc7", checkpoint=str(path), device="cpu", dtype="bfloat16")
    assert lower.identity != FC7_IDENTITY


def test_random_weights_are_never_the_published_ones() -> None:
    encoder = image_encoder("fc7", pretrained=False, device="cpu")
    assert encoder.name == "fc7" and encoder.identity != FC7_IDENTITY

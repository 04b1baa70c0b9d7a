"""The built-in models, made without torch, against the torch modules of the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from heldout.data.images.preprocessing import pixels_of
from heldout.models.adapters import load_model
from heldout.models.adapters.efficientnet_lite import VARIANTS, weights_path
from heldout.models.adapters.model import model_input

NUMBERS = {name: f"efficientnet-{name}" for name in VARIANTS}


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_logits_and_features_are_those_of_the_torch_module(name: str, photos: list[bytes]) -> None:
    model: Any = load_model(name)
    reference = EfficientNet.from_name(NUMBERS[name]).eval()
    reference.load_state_dict(torch.load(weights_path(name), weights_only=True))
    pixels = np.stack([pixels_of(data, model.preprocessing.geometry) for data in photos])
    inputs = torch.from_numpy(model_input(pixels, model.preprocessing))
    with torch.inference_mode():
        expected = reference(inputs).numpy()
        features = reference.extract_features(inputs).mean((2, 3)).numpy()
    answer = model(pixels)
    assert np.abs(expected).max() > 5
    assert np.abs(answer.logits - expected).max() <= 1e-4
    np.testing.assert_allclose(answer.features, features, atol=1e-4)

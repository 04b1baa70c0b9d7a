from __future__ import annotations

import numpy as np
import pytest

from heldout.models.adapters.efficientnet_lite import lite_graph, same_padding
from heldout.models.adapters.onnx import Session

from .lite_oracle import TINY, random_weights, slow_conv, slow_forward

REPEATS = [stage.repeats for stage in TINY]


@pytest.mark.parametrize("size", [12, 13, 17])
def test_graph_equals_the_definition(size: int) -> None:
    weights = random_weights(seed=size)
    images = np.random.default_rng(1).standard_normal((2, 3, size, size)).astype(np.float32)
    session = Session(lite_graph(weights, size, REPEATS), purpose="a test")
    logits, features = session.run({"pixels": images}, ["logits", "features"])
    for row, image in enumerate(images):
        expected_logits, expected_features = slow_forward(weights, image)
        np.testing.assert_allclose(features[row], expected_features, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(logits[row], expected_logits, rtol=1e-4, atol=2e-4)


def test_the_definition_sees_epsilon_and_padding() -> None:
    """The oracle is sharp: what could be got wrong moves its outputs far beyond the tolerance."""
    weights = random_weights()
    image = np.random.default_rng(1).standard_normal((3, 13, 13)).astype(np.float32)
    plain, _ = slow_forward(weights, image)
    other = {
        k: (v + np.float32(1e-5 - 1e-3) if k.endswith("running_var") else v)
        for k, v in weights.items()
    }
    assert np.abs(slow_forward(other, image)[0] - plain).max() > 0.01
    x = np.arange(16.0).reshape(1, 4, 4)
    # Even size, stride 2, kernel 3: TensorFlow pads after, torch's padding=1 would pad before.
    assert slow_conv(x, np.ones((1, 1, 3, 3)), 2, 1)[0, 0, 0] == x[0, :3, :3].sum()


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_same_padding_by_counting(kernel: int, stride: int) -> None:
    for size in range(1, 40):
        before, after = same_padding(size, kernel=kernel, stride=stride)
        places = len(range(0, size, stride))
        assert (size + before + after - kernel) // stride + 1 == places
        assert after - before in (0, 1)

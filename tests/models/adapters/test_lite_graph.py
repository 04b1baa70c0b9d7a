from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heldout.core.errors import UserError
from heldout.models.adapters.efficientnet_lite import (
    LiteConfig,
    Stage,
    lite_graph,
    same_padding,
    scaled,
)
from heldout.models.adapters.onnx import Session

from .lite_oracle import TINY, random_weights, slow_conv, slow_forward


def run(graph: bytes, x: np.ndarray) -> list[np.ndarray]:
    session = Session(graph, purpose="a test")
    return session.run({"pixels": x}, ["logits", "features"])


@pytest.mark.parametrize("size", [12, 13, 17])
def test_graph_equals_the_definition(size: int) -> None:
    config = replace(TINY, size=size)
    weights = random_weights(config, seed=size)
    images = np.random.default_rng(1).standard_normal((2, 3, size, size)).astype(np.float32)
    logits, features = run(lite_graph(weights, config), images)
    for row, image in enumerate(images):
        expected_logits, expected_features = slow_forward(weights, config, image)
        np.testing.assert_allclose(features[row], expected_features, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(logits[row], expected_logits, rtol=1e-4, atol=2e-4)


def test_the_definition_sees_epsilon_and_padding() -> None:
    """The oracle is sharp: what could be got wrong moves its outputs far beyond the tolerance."""
    weights = random_weights(TINY)
    image = np.random.default_rng(1).standard_normal((3, 13, 13)).astype(np.float32)
    plain, _ = slow_forward(weights, TINY, image)
    other = {
        k: (v + np.float32(1e-5 - 1e-3) if k.endswith("running_var") else v)
        for k, v in weights.items()
    }
    assert np.abs(slow_forward(other, TINY, image)[0] - plain).max() > 0.01
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


def test_published_widths_and_depths() -> None:
    lite0 = scaled(width=1.0, depth=1.0, size=224)
    assert [s.repeats for s in lite0.stages] == [1, 2, 2, 3, 3, 4, 1]
    assert sum(1 for _ in lite0.blocks()) == 16
    lite2 = scaled(width=1.1, depth=1.2, size=260)
    assert [s.repeats for s in lite2.stages] == [1, 3, 3, 4, 4, 5, 1]
    lite4 = scaled(width=1.4, depth=1.8, size=300)
    assert [s.width for s in lite4.stages] == [24, 32, 56, 112, 160, 272, 448]
    assert sum(1 for _ in lite4.blocks()) == 30


def test_wrong_weights_are_refused() -> None:
    weights = random_weights(TINY)
    with pytest.raises(UserError, match=r"'_blocks\.1\._bn1\.bias' of the weights is missing"):
        lite_graph({k: v for k, v in weights.items() if k != "_blocks.1._bn1.bias"}, TINY)
    with pytest.raises(UserError, match="'extra', which has no place"):
        lite_graph({**weights, "extra": np.zeros(1)}, TINY)
    with pytest.raises(UserError, match=r"'_fc.weight' of the weights is float32 \(7, 10\)"):
        lite_graph(weights, replace(TINY, classes=8))
    with pytest.raises(UserError, match="int64"):
        lite_graph({**weights, "_fc.bias": np.zeros(7, np.int64)}, TINY)


def test_no_skip_where_width_or_stride_changes() -> None:
    config = LiteConfig(size=8, stages=(Stage(2, 3, 2, 1, 4),), stem=4, head=2, classes=2)
    assert [block.skips for block in config.blocks()] == [False, True]

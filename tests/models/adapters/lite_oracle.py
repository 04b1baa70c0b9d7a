"""EfficientNet-Lite by definition: loops, float64, batch normalisation not folded. Slow and obvious."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Stage(NamedTuple):
    """Blocks that share kernel and width; only the first of them has the stride."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    width: int


TINY = (Stage(1, 3, 1, 1, 4), Stage(2, 3, 2, 2, 6), Stage(2, 5, 2, 3, 6), Stage(1, 3, 2, 2, 8))
STEM, HEAD, CLASSES = 4, 10, 7


def random_weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}

    def conv(name: str, shape: tuple[int, ...], norm: str) -> None:
        fan = int(np.prod(shape[1:]))
        made[f"{name}.weight"] = (rng.standard_normal(shape) * 1.5 / fan**0.5).astype(np.float32)
        made[f"{norm}.weight"] = rng.uniform(0.5, 2, shape[0]).astype(np.float32)
        made[f"{norm}.bias"] = rng.standard_normal(shape[0]).astype(np.float32)
        made[f"{norm}.running_mean"] = rng.standard_normal(shape[0]).astype(np.float32)
        # Some variances are as small as epsilon, so that a wrong epsilon is seen.
        made[f"{norm}.running_var"] = (10 ** rng.uniform(-3, 0, shape[0])).astype(np.float32)
        made[f"{norm}.num_batches_tracked"] = np.array(1)

    conv("_conv_stem", (STEM, 3, 3, 3), "_bn0")
    inputs = STEM
    for number, stage in enumerate(each for each in TINY for _ in range(each.repeats)):
        at, wide = f"_blocks.{number}", inputs * stage.expand
        if stage.expand != 1:
            conv(f"{at}._expand_conv", (wide, inputs, 1, 1), f"{at}._bn0")
        conv(f"{at}._depthwise_conv", (wide, 1, stage.kernel, stage.kernel), f"{at}._bn1")
        conv(f"{at}._project_conv", (stage.width, wide, 1, 1), f"{at}._bn2")
        inputs = stage.width
    conv("_conv_head", (HEAD, inputs, 1, 1), "_bn1")
    made["_fc.weight"] = rng.standard_normal((CLASSES, HEAD)).astype(np.float32)
    made["_fc.bias"] = rng.standard_normal(CLASSES).astype(np.float32)
    return made


def slow_conv(x: np.ndarray, w: np.ndarray, stride: int, groups: int) -> np.ndarray:
    """x (channels, h, w) and TensorFlow's "SAME": output place i looks at input i·stride + k − before."""
    outputs, _, kernel, _ = w.shape
    size = x.shape[1]
    places = -(-size // stride)
    before = max((places - 1) * stride + kernel - size, 0) // 2
    per_in, per_out = x.shape[0] // groups, outputs // groups
    y = np.zeros((outputs, places, places))
    for o in range(outputs):
        for i in range(per_in):
            channel = o // per_out * per_in + i
            for row in range(places):
                for column in range(places):
                    for a in range(kernel):
                        for b in range(kernel):
                            r, c = row * stride + a - before, column * stride + b - before
                            if 0 <= r < size and 0 <= c < size:
                                y[o, row, column] += w[o, i, a, b] * x[channel, r, c]
    return y


def slow_forward(
    weights: dict[str, np.ndarray], image: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logits (classes,) and features (head,) of one image (3, size, size)."""
    w = {key: value.astype(np.float64) for key, value in weights.items()}

    def layer(
        x: np.ndarray,
        conv: str,
        norm: str,
        *,
        stride: int = 1,
        depthwise: bool = False,
        act: bool = True,
    ) -> np.ndarray:
        x = slow_conv(x, w[f"{conv}.weight"], stride, len(x) if depthwise else 1)
        mean, var = w[f"{norm}.running_mean"], w[f"{norm}.running_var"]
        for channel in range(len(x)):
            x[channel] = (x[channel] - mean[channel]) / (var[channel] + 1e-3) ** 0.5
            x[channel] = x[channel] * w[f"{norm}.weight"][channel] + w[f"{norm}.bias"][channel]
        return np.minimum(np.maximum(x, 0), 6) if act else x

    x = layer(image.astype(np.float64), "_conv_stem", "_bn0", stride=2)
    number = 0
    width = STEM
    for stage in TINY:
        for repeat in range(stage.repeats):
            at, start = f"_blocks.{number}", x
            stride = stage.stride if repeat == 0 else 1
            if stage.expand != 1:
                x = layer(x, f"{at}._expand_conv", f"{at}._bn0")
            x = layer(x, f"{at}._depthwise_conv", f"{at}._bn1", stride=stride, depthwise=True)
            x = layer(x, f"{at}._project_conv", f"{at}._bn2", act=False)
            if stride == 1 and width == stage.width:
                x = x + start
            width = stage.width
            number += 1
    x = layer(x, "_conv_head", "_bn1")
    features = x.mean(axis=(1, 2))
    return w["_fc.weight"] @ features + w["_fc.bias"], features

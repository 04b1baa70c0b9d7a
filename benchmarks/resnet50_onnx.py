"""ResNet-50 as an ONNX file, from the state dict of torchvision's or timm's module.

BatchNorm is folded into the convolutions, as every exporter does. Written with heldout's own
writer, so that neither ``onnx`` nor ``onnxscript`` is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from heldout.models.adapters.onnx_file import GraphWriter, Value

STAGES = (3, 4, 6, 3)
EPSILON = 1e-5


def resnet50_onnx(weights: Mapping[str, np.ndarray], *, size: int = 224) -> bytes:
    """The bytes of an ONNX file: ``input`` (n, 3, size, size) to ``logits`` (n, classes)."""
    graph = GraphWriter("resnet50")

    def conv(name: str, bn: str, source: str, *, stride: int = 1, pad: int = 0) -> str:
        kernel = weights[f"{name}.weight"].astype(np.float64)
        gain = weights[f"{bn}.weight"].astype(np.float64) / np.sqrt(
            weights[f"{bn}.running_var"].astype(np.float64) + EPSILON
        )
        shift = weights[f"{bn}.bias"] - weights[f"{bn}.running_mean"] * gain
        return graph.node(
            "Conv",
            source,
            graph.constant(
                f"{name}.weight", (kernel * gain[:, None, None, None]).astype(np.float32)
            ),
            graph.constant(f"{name}.bias", shift.astype(np.float32)),
            output=name,
            kernel_shape=list(kernel.shape[2:]),
            strides=[stride, stride],
            pads=[pad] * 4,
        )

    def relu(source: str) -> str:
        return graph.node("Relu", source, output=f"{source}.relu")

    here = relu(conv("conv1", "bn1", "input", stride=2, pad=3))
    here = graph.node(
        "MaxPool", here, output="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
    )
    for stage, blocks in enumerate(STAGES, 1):
        for block in range(blocks):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            inner = relu(conv(f"{at}.conv1", f"{at}.bn1", here))
            inner = relu(conv(f"{at}.conv2", f"{at}.bn2", inner, stride=stride, pad=1))
            inner = conv(f"{at}.conv3", f"{at}.bn3", inner)
            if block == 0:
                here = conv(f"{at}.downsample.0", f"{at}.downsample.1", here, stride=stride)
            here = relu(graph.node("Add", inner, here, output=f"{at}.sum"))
    here = graph.node("GlobalAveragePool", here, output="mean")
    here = graph.node("Flatten", here, output="features", axis=1)
    weight = graph.constant("fc.weight", weights["fc.weight"])
    bias = graph.constant("fc.bias", weights["fc.bias"])
    graph.node("Gemm", here, weight, bias, output="logits", transB=1)
    classes = len(weights["fc.bias"])
    return graph.model([Value("input", ("n", 3, size, size))], [Value("logits", ("n", classes))])

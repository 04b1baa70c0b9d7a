"""A torch classifier along both paths: half precision for all images, float32 for the rechecked."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from heldout.images.preprocessing import Preprocessing

Precision = Literal["float16", "bfloat16", "float32"]


class TorchClassifier(Protocol):
    """What the GPU path needs of a model: a name, its preprocessing, and a torch module that turns
    normalised float images (b, 3, h, w) into logits (b, classes)."""

    name: str
    preprocessing: Preprocessing
    module: Any


@dataclass(frozen=True, eq=False)
class FastResult:
    """On the device: ``logits`` float16 (b, classes), ``topk`` int32 (b, k), ``margin`` float32 (b,)."""

    logits: Any
    topk: Any
    margin: Any


class Network:
    """One classifier on one device. Both copies of the weights stay on the device."""

    def __init__(
        self,
        model: TorchClassifier,
        device: str,
        *,
        precision: Precision = "float16",
        compiled: bool = False,
        exact_too: bool = True,
        k: int = 5,
    ) -> None:
        import torch

        self.name = model.name
        self.preprocessing = model.preprocessing
        self.device = device
        self.k = k
        self._type = getattr(torch, precision)
        module = copy.deepcopy(model.module).eval().requires_grad_(False)
        layout = torch.channels_last
        self._fast = copy.deepcopy(module).to(device, self._type, memory_format=layout)
        self._exact = None
        if exact_too:
            self._exact = module.to(device, torch.float32, memory_format=layout)
        values = model.preprocessing
        # Tensors, not numbers: a GPU would multiply by the inverse of a number.
        self._values = tuple(
            torch.tensor(v, dtype=torch.float32, device=device)
            for v in ([values.scale], values.mean, values.std)
        )
        self._reverse = values.colours == "BGR"
        self._step = _compiled_step() if compiled else _step

    def fast(self, pixels: Any) -> FastResult:
        """Run a batch of uint8 pixels (b, h, w, 3) in reduced precision."""
        import torch

        with torch.inference_mode():
            logits, topk, margin = self._step(
                self._fast, pixels, self._values, self._type, self._reverse, self.k
            )
        return FastResult(logits, topk, margin)

    def exact(self, pixels: Any) -> Any:
        """Logits float32 (b, classes), without TF32."""
        import torch

        if self._exact is None:
            raise ValueError("this network was built without its exact copy")
        with torch.inference_mode():
            images = _normalised(pixels, self._values, torch.float32, self._reverse)
            return self._exact(images).float()


@contextlib.contextmanager
def arithmetic() -> Iterator[None]:
    """Float32 means float32 (no TF32) and convolutions are chosen by trial, while it lasts.

    These switches belong to the process: half precision does not notice the first, and fixed
    batches pay for the second once.
    """
    import torch

    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32)
    cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32 = False, True, False
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32 = before


def _normalised(pixels: Any, values: tuple[Any, ...], dtype: Any, reverse: bool) -> Any:
    """Values as torchvision computes them, in float32, then rounded once to ``dtype``; a view as
    (b, 3, h, w) in channels-last order."""
    scale, mean, std = values
    images = pixels.flip(3) if reverse else pixels
    return ((images.float() / scale - mean) / std).to(dtype).permute(0, 3, 1, 2)


def _forward(module: Any, pixels: Any, values: tuple[Any, ...], dtype: Any, reverse: bool) -> Any:
    return module(_normalised(pixels, values, dtype, reverse))


def _step(
    module: Any, pixels: Any, values: tuple[Any, ...], dtype: Any, reverse: bool, k: int
) -> tuple[Any, Any, Any]:
    return _best(_forward(module, pixels, values, dtype, reverse), k)


def _best(logits: Any, k: int) -> tuple[Any, Any, Any]:
    import torch

    stored = logits.to(torch.float16)
    # Of what is stored, and stable: equal logits keep the order of the classes.
    values, order = torch.sort(stored.float(), dim=1, descending=True, stable=True)
    return stored, order[:, :k].to(torch.int32), values[:, 0] - values[:, 1]


_compiled: list[Any] = []


def _compiled_step() -> Any:
    """One compiled function for all networks: equal architectures share what was compiled."""
    import torch

    if not _compiled:
        forward = torch.compile(_forward, dynamic=False)

        def step(
            module: Any, pixels: Any, values: tuple[Any, ...], dtype: Any, reverse: bool, k: int
        ) -> tuple[Any, Any, Any]:
            return _best(forward(module, pixels, values, dtype, reverse), k)

        _compiled.append(step)
    return _compiled[0]

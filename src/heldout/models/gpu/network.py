"""A torch classifier along both paths: half precision for all images, float32 for the rechecked."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

from heldout.data.images.preprocessing import Preprocessing
from heldout.models.gpu.fused import fused, is_complete, no_worse

Precision = Literal["float16", "bfloat16", "float32"]
Form = Literal["plain", "partly fused", "fused"]
FLOAT16_MAX = 65504.0
_PROBE = 8  # images that a rewritten model is compared on


class TorchClassifier(Protocol):
    """What the GPU path needs of a model: a name, its preprocessing, and a torch module that turns
    normalised float images (b, 3, h, w) into logits (b, classes)."""

    name: str
    preprocessing: Preprocessing
    module: Any


class Network:
    """One classifier on one device. Both copies of the weights stay on the device.

    ``fuse``  replace chains of a convolution and what follows it by one kernel each, where the
              model allows it; ``form`` says what came of it
    """

    def __init__(
        self,
        model: TorchClassifier,
        device: str,
        *,
        precision: Precision = "float16",
        fuse: bool = True,
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
        values = model.preprocessing
        # Tensors, not numbers: a GPU would multiply by the inverse of a number.
        self._values = tuple(
            torch.tensor(v, dtype=torch.float32, device=device)
            for v in ([values.scale], values.mean, values.std)
        )
        self._reverse = values.colours == "BGR"
        self.form: Form = "plain"
        rewritten = fused(module) if fuse else None
        plain = functools.cache(lambda: self._reduced(copy.deepcopy(module)))
        # Without tensor cores torch's default layout is a sixth faster than channels last.
        self._exact = module.to(device, torch.float32) if exact_too or rewritten else None
        if rewritten is not None and self._no_worse(self._reduced(rewritten), plain):
            self._fast: Any = rewritten
            self.form = "fused" if is_complete(rewritten) else "partly fused"
        else:
            self._fast = plain()
        if not exact_too:
            self._exact = None

    def fast(self, pixels: Any) -> tuple[Any, Any, Any]:
        """Run a batch of uint8 pixels (b, h, w, 3) in reduced precision. On the device: logits
        float16 (b, classes), top k int32 (b, k), margin float32 (b,)."""
        import torch

        with torch.inference_mode():
            images = _normalised(pixels, self._values, self._type, self._reverse)
            return _best(self._fast(images), self.k)

    def _reduced(self, module: Any) -> Any:
        import torch

        return module.to(self.device, self._type, memory_format=torch.channels_last)

    def _no_worse(self, candidate: Any, plain: Callable[[], Any]) -> bool:
        """Whether a rewritten model is as near to the exact one as the plain one, on a few images."""
        import torch

        geometry = self.preprocessing.geometry
        pixels = _probe(geometry.crop_height, geometry.crop_width).to(self.device)
        images = _normalised(pixels, self._values, torch.float32, self._reverse)
        with arithmetic(), torch.inference_mode():
            return no_worse(candidate, plain, self._exact, images, self._type)

    def exact(self, pixels: Any) -> Any:
        """Logits float32 (b, classes), without TF32."""
        import torch

        if self._exact is None:
            raise ValueError("this network was built without its exact copy")
        with torch.inference_mode():
            images = _normalised(pixels, self._values, torch.float32, self._reverse)
            return self._exact(images.contiguous()).float()


@contextlib.contextmanager
def arithmetic() -> Iterator[None]:
    """Float32 means float32 (no TF32) and convolutions are chosen without trial, while it lasts.

    These switches belong to the process; half precision does not notice the first. Trials take
    seconds in every new thread, as cuDNN's choices are kept a thread, and gain next to nothing.
    """
    import torch

    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32)
    cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32 = False, False, False
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


def _probe(height: int, width: int) -> Any:
    """A few images, uint8 (n, height, width, 3): colours that change slowly, and some noise."""
    import torch

    source = torch.Generator().manual_seed(0)
    coarse = torch.rand((_PROBE, 3, 8, 8), generator=source)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    noise = torch.rand(smooth.shape, generator=source) - 0.5
    return ((smooth + noise / 4).clamp(0, 1) * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _best(logits: Any, k: int) -> tuple[Any, Any, Any]:
    import torch

    stored = logits.float().clamp(-FLOAT16_MAX, FLOAT16_MAX).to(torch.float16)
    # Of what is stored, and stable: equal logits keep the order of the classes.
    values, order = torch.sort(stored.float(), dim=1, descending=True, stable=True)
    margin = values[:, 0] - values[:, 1]
    # A number that overflowed says nothing about its row: no margin is large enough for it.
    margin = margin.masked_fill(~torch.isfinite(logits).all(1), float("nan"))
    return stored, order[:, :k].to(torch.int32), margin

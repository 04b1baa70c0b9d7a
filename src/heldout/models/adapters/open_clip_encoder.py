"""``open_clip:ARCH/TAG`` as an encoder: both towers of a model, for classes named later.

The zero-shot classifier of :mod:`heldout.models.adapters.open_clip` has its classes built in; here images
and texts are encoded apart, so that images need to be looked at once for any list of classes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from heldout.core.errors import UserError
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.open_clip import clip_preprocessing, towers
from heldout.models.adapters.torch_model import DTYPES, TorchModel, require_library, require_torch
from heldout.models.adapters.torch_weights import weights_hash
from heldout.models.adapters.unit_vectors import unit_rows

_TEXTS_AT_ONCE = 256


class OpenClipEncoder:
    """Both towers as an :class:`~heldout.models.adapters.Encoder`.

    The image tower runs as a :class:`TorchModel` does: one thread a worker on the CPU, turns on a
    GPU, batches halved that do not fit into memory. The text tower runs on the same device.
    """

    def __init__(
        self,
        clip: Any,
        tokenizer: Any,
        *,
        name: str,
        preprocessing: Preprocessing,
        identity: Mapping[str, Any],
        device: str = "auto",
        dtype: str = "float32",
    ) -> None:
        torch = require_torch()
        if dtype not in DTYPES:
            raise UserError(f"dtype {dtype!r} of {name}", fix=f"use {', '.join(DTYPES)}")
        self._torch, self._clip, self._tokenizer = torch, clip, tokenizer
        self.name = name
        self.preprocessing: Preprocessing = preprocessing
        self.scale = float(clip.logit_scale.detach().exp())
        with torch.inference_mode():
            self.dimension = int(clip.encode_text(tokenizer(["a"])).shape[1])
        self._image = TorchModel(
            _image_tower(clip),
            name=name,
            # A tower has no classes; its numbers stand where a classifier's logits would.
            label_space=LabelSpace.from_ids("dimensions", map(str, range(self.dimension))),
            preprocessing=preprocessing,
            identity=identity,
            device=device,
            dtype=dtype,
        )
        self.identity: Mapping[str, Any] = self._image.identity
        self.device = self._image.device
        self._turn = threading.Lock()

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Images as unit vectors, float32 (b, d)."""
        return unit_rows(self._image(pixels).logits)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as unit vectors, float32 (texts, d)."""
        torch = self._torch
        rows = [np.zeros((0, self.dimension), np.float32)]
        turn = nullcontext() if self.device == "cpu" else self._turn
        with turn, torch.inference_mode():
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                tokens = self._tokenizer(list(texts[start : start + _TEXTS_AT_ONCE]))
                made = self._clip.encode_text(tokens.to(self.device))
                rows.append(unit_rows(made.float().cpu().numpy()))
        return np.concatenate(rows)


def _image_tower(clip: Any) -> Any:
    torch = require_torch()

    class ImageTower(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.clip = clip  # whole, so that both towers move to one device and number format

        def forward(self, images: Any) -> Any:
            return self.clip.encode_image(images)

    return ImageTower()


def load(
    name: str,
    *,
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
) -> OpenClipEncoder:
    """Both towers of ``ViT-B-32/openai``, or of a hub's model, ``hf-hub:owner/model``.

    ``pretrained``, ``checkpoint``, ``seed``, ``device``, ``dtype`` are as for the classifier.
    """
    library = require_library("open_clip", extra="clip", purpose="an image-text encoder")
    clip, tokenizer, arch = towers(name, pretrained=pretrained, checkpoint=checkpoint, seed=seed)
    spec = f"open_clip:{name}"
    return OpenClipEncoder(
        clip,
        tokenizer,
        name=spec,
        preprocessing=clip_preprocessing(library.get_model_preprocess_cfg(clip), spec),
        identity={
            "adapter": "open_clip-encoder",
            "architecture": arch,
            "weights": weights_hash(clip),
            "version": library.__version__,
        },
        device=device,
        dtype=dtype,
    )

"""``open_clip:ARCH/TAG``: zero-shot classifiers and image-text encoders of open_clip.

A class is the mean of the normalised embeddings of its prompts, normalised again; a logit is the
model's scale times the cosine between image and class, plus its bias where it has one (Radford et
al. 2021; Zhai et al. 2023). As an encoder, both towers of the same model encode images and texts
separately, for classes that are named later.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.data.images.preprocessing import Interpolation, Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.model import label_space_of, resize_and_crop, unit_rows
from heldout.models.adapters.prompts import class_texts, prompt_templates
from heldout.models.adapters.torch_model import (
    TorchModel,
    fetching,
    other_architecture,
    read_checkpoint,
    require_library,
    require_torch,
    seeded,
    weights_hash,
)

_PROMPTS_AT_ONCE = 256


def names() -> tuple[str, ...]:
    """Every architecture of open_clip with every tag of weights for it."""
    return tuple(f"{arch}/{tag}" for arch, tag in _library().list_pretrained())


def load(
    name: str,
    *,
    classes: str | LabelSpace = "imagenet-1k",
    class_names: str = "first",
    templates: str = "single",
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
) -> TorchModel:
    """A zero-shot classifier: ``ViT-B-32/openai``, or a model of a hub, ``hf-hub:owner/model``.

    ``classes``      the label space to tell apart, by name or file
    ``class_names``  ``first``: the usual name of each class, with more of what is known of it where
                     classes share that name; ``openai``: the names that open_clip carries for
                     ImageNet-1k; or a file, one name per line in the order of the classes
    ``templates``    ``none``: the bare name; ``single``: "a photo of a {}."; ``openai``: the 80 of
                     CLIP's paper, from open_clip; or a file, one per line, ``{}`` where the name goes
    ``pretrained``   fetch the weights, or find them in the cache; without it they are random, made
                     from ``seed``
    ``checkpoint``   a file of your own weights instead
    """
    space = label_space_of(classes)
    texts = class_texts(space, class_names)
    patterns = prompt_templates(templates)
    clip, tokenizer, arch = towers(name, pretrained=pretrained, checkpoint=checkpoint, seed=seed)
    # The hash is of the two towers, not of the class matrix, whose last bits depend on the machine.
    stated = _stated(clip, name, arch, "open_clip", device, dtype)
    stated["identity"]["prompts"] = sha256_text(canonical_json([texts, patterns]))
    module = zero_shot(clip, class_matrix(clip, tokenizer, texts, patterns))
    return TorchModel(module, label_space=space, classifier=module.classifier, **stated)


class OpenClipEncoder:
    """Both towers as an :class:`~heldout.models.adapters.Encoder`.

    The image tower runs as a :class:`TorchModel` does, which ``stated`` goes to: one thread per
    worker on the CPU, turns on a GPU. The text tower runs on the same device.
    """

    def __init__(self, clip: Any, tokenizer: Any, **stated: Any) -> None:
        self._torch, self._clip, self._tokenizer = require_torch(), clip, tokenizer
        self.scale = float(clip.logit_scale.detach().exp())
        with self._torch.inference_mode():
            self.dimension = int(clip.encode_text(tokenizer(["a"])).shape[1])
        self._image = TorchModel(
            _image_tower(clip),
            # A tower has no classes; its dimensions take the place of a classifier's logits.
            label_space=LabelSpace.from_ids("dimensions", map(str, range(self.dimension))),
            **stated,
        )
        self.name = self._image.name
        self.preprocessing: Preprocessing = self._image.preprocessing
        self.identity: Mapping[str, Any] = self._image.identity
        self.device = self._image.device
        self._turn = nullcontext() if self.device == "cpu" else threading.Lock()

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Images as unit vectors, float32 (b, d)."""
        return unit_rows(self._image(pixels).logits)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Texts as unit vectors, float32 (texts, d)."""
        rows = [np.zeros((0, self.dimension), np.float32)]
        with self._turn, self._torch.inference_mode():
            for start in range(0, len(texts), _PROMPTS_AT_ONCE):
                tokens = self._tokenizer(list(texts[start : start + _PROMPTS_AT_ONCE]))
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


def load_encoder(
    name: str,
    *,
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
) -> OpenClipEncoder:
    """Both towers of ``ViT-B-32/openai``, or of a hub's model; arguments as for :func:`load`."""
    clip, tokenizer, arch = towers(name, pretrained=pretrained, checkpoint=checkpoint, seed=seed)
    stated = _stated(clip, name, arch, "open_clip-encoder", device, dtype)
    return OpenClipEncoder(clip, tokenizer, **stated)


def _stated(
    clip: Any, name: str, arch: str, adapter: str, device: str, dtype: str
) -> dict[str, Any]:
    """What classifier and encoder have in common: preprocessing, identity, where they run."""
    library = _library()
    spec = f"open_clip:{name}"
    return {
        "name": spec,
        "preprocessing": clip_preprocessing(library.get_model_preprocess_cfg(clip), spec),
        "identity": {
            "adapter": adapter,
            "architecture": arch,
            "weights": weights_hash(clip),
            "version": library.__version__,
        },
        "device": device,
        "dtype": dtype,
    }


def towers(
    name: str, *, pretrained: bool = True, checkpoint: str | None = None, seed: int = 0
) -> tuple[Any, Any, str]:
    """Both towers of a model of open_clip in evaluation mode, its tokenizer, its architecture."""
    library = _library()
    arch, tag = _parse(library, name)
    fetched = pretrained and checkpoint is None
    with seeded(seed), fetching(f"open_clip:{name}"):
        clip = _create(library, arch, tag, fetched=fetched)
        if checkpoint is not None:
            _load_checkpoint(library, clip, Path(checkpoint))
        tokenizer = library.get_tokenizer(arch)
    return clip.eval().requires_grad_(False), tokenizer, arch


def class_matrix(clip: Any, tokenizer: Any, texts: Sequence[str], templates: Sequence[str]) -> Any:
    """Embeddings of classes, a float32 tensor (classes, d) of unit rows, from names and templates."""
    torch = require_torch()
    classes_at_once = max(1, _PROMPTS_AT_ONCE // len(templates))
    rows = []
    with torch.inference_mode():
        for start in range(0, len(texts), classes_at_once):
            some = texts[start : start + classes_at_once]
            prompts = [template.replace("{}", text) for text in some for template in templates]
            made = clip.encode_text(tokenizer(prompts), normalize=True)
            mean = made.reshape(len(some), len(templates), -1).mean(dim=1)
            rows.append(mean / mean.norm(dim=1, keepdim=True))
        # Cloned out of inference mode, so that a module may hold it.
        matrix = torch.cat(rows)
    return matrix.clone()


def zero_shot(clip: Any, matrix: Any) -> Any:
    """A module from images to logits over the rows of ``matrix``; ``classifier`` is its last layer."""
    torch = require_torch()

    class Cosine(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", matrix)
            self.register_buffer("scale", clip.logit_scale.detach().exp().clone())
            bias = getattr(clip, "logit_bias", None)
            self.register_buffer("bias", None if bias is None else bias.detach().clone())

        def forward(self, features: Any) -> Any:
            logits = self.scale * features @ self.matrix.T
            return logits if self.bias is None else logits + self.bias

    class ZeroShot(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.clip = clip
            self.classifier = Cosine()

        def forward(self, images: Any) -> Any:
            return self.classifier(self.clip.encode_image(images, normalize=True))

    return ZeroShot()


def clip_preprocessing(config: Mapping[str, Any], name: str) -> Preprocessing:
    """open_clip's preprocessing of a model as data of ours; what pads the longer side is refused.

    open_clip resizes before it converts to RGB; for RGB and grey images that is the same, and for
    the palette images where it is not, converting first is what was meant.
    """
    size = config["size"]
    height, width = (size, size) if isinstance(size, int) else size
    mode = config["resize_mode"]
    if mode not in ("shortest", "squash") or (mode == "shortest" and height != width):
        raise NotApplicable(
            f"{name} is evaluated with resize_mode={mode} at {height} x {width}",
            fix="only resize_mode=squash, and shortest with a square size, can be done",
        )
    filter_name: Interpolation = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    size = (height, width)
    return Preprocessing(
        geometry=resize_and_crop(size, size, filter_name, keep_aspect=mode == "shortest"),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def _library() -> Any:
    return require_library("open_clip", extra="clip", purpose="a zero-shot classifier")


def _parse(library: Any, name: str) -> tuple[str, str | None]:
    if name.startswith(("hf-hub:", "local-dir:")):
        return name, None
    arch, _, tag = name.partition("/")
    if library.get_model_config(arch) is None:
        near = get_close_matches(arch, library.list_models(), n=5, cutoff=0.5)
        fix = f"it has {', '.join(near)}" if near else "open_clip.list_models() lists them"
        raise NotFound(f"open_clip has no architecture {arch!r}", fix=fix)
    if tag and not library.get_pretrained_cfg(arch, tag):
        tags = ", ".join(library.list_pretrained_tags_by_model(arch)[:8])
        raise NotFound(f"open_clip has no weights {tag!r} for {arch}", fix=f"it has {tags}")
    return arch, tag or None


def _create(library: Any, arch: str, tag: str | None, *, fetched: bool) -> Any:
    is_elsewhere = ":" in arch
    if fetched and tag is None and not is_elsewhere:
        tags = ", ".join(library.list_pretrained_tags_by_model(arch)[:5])
        raise UserError(
            f"which weights of {arch}", fix=f"write open_clip:{arch}/TAG, one of {tags}"
        )
    stated = library.get_pretrained_cfg(arch, tag) if tag else {}
    fields = ("size", "mean", "std", "interpolation", "resize_mode", "fill_color")
    try:
        return library.create_model(
            arch,
            pretrained=tag if fetched else None,
            load_weights=fetched,
            # Without it a failed download leaves random weights and a line in a log.
            require_pretrained=fetched,
            # Weights trained with QuickGELU lose accuracy without it, and open_clip only warns.
            force_quick_gelu=bool(stated.get("quick_gelu")),
            force_preprocess_cfg={key: stated[key] for key in fields if key in stated},
            pretrained_text=False,
            weights_only=True,
        )
    except RuntimeError as error:
        if not str(error).startswith("Required pretrained weights"):
            raise
        raise NotFound(
            f"there are no weights with open_clip:{arch}",
            fix="give yours with --model-args checkpoint=FILE",
        ) from None


def _load_checkpoint(library: Any, clip: Any, path: Path) -> None:
    read_checkpoint(path)  # refused or broken files end here, with a line that says why
    try:
        # open_clip's own, which knows the names that other libraries give to the same weights.
        library.load_checkpoint(clip, str(path), strict=True, weights_only=True)
    except (RuntimeError, AssertionError) as error:  # it asserts that widths are equal
        raise other_architecture(path, error) from None

"""``cadene:NAME``: models of the package ``pretrainedmodels``, which ImageNetV2 was evaluated with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from heldout.core.errors import LabelError, NotFound
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.torch_model import TorchModel, require_library
from heldout.models.adapters.torch_weights import fetching, load_checkpoint, seeded, weights_hash

SCALE = 0.875
"""Crop side over resized side, where a model states none."""


def names() -> tuple[str, ...]:
    """Every model of the package."""
    return tuple(_library().pretrained_settings)


def load(
    name: str,
    *,
    weights: str | None = None,
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    classes: str | LabelSpace | None = None,
    scale: float | None = None,
    device: str = "auto",
    dtype: str = "float32",
) -> TorchModel:
    """A model by name, such as ``resnet152``, or ``dpn92.imagenet+5k`` with its weights.

    ``weights``     which of the published weights; ``imagenet`` where a model has several
    ``pretrained``  fetch them, or find them in torch's cache; without it weights are random, made
                    from ``seed``
    ``checkpoint``  a file of your own weights instead
    ``classes``     the label space of your own weights, by name or file
    ``scale``       crop side over resized side, instead of the model's own
    """
    library = _library()
    name, _, tag = name.partition(".")
    tag, settings = _settings(library, name, tag or weights)
    spec = f"cadene:{name}"
    space = _label_space(settings, classes, spec)
    fetched = pretrained and checkpoint is None
    with seeded(seed), fetching(spec), warnings.catch_warnings():
        # The package calls torchvision as it was in 2018, and is warned for it.
        warnings.simplefilter("ignore")
        module = getattr(library, name)(
            num_classes=settings["num_classes"] if fetched else len(space),
            pretrained=tag if fetched else None,
        )
    if checkpoint is not None:
        load_checkpoint(module, Path(checkpoint))
    return TorchModel(
        module,
        name=spec,
        label_space=space,
        preprocessing=settings_preprocessing(settings, scale=scale),
        identity={
            "adapter": "cadene",
            "architecture": name,
            "weights": weights_hash(module),
            "version": library.__version__,
        },
        classifier=getattr(module, "last_linear", None),  # SqueezeNet has none
        device=device,
        dtype=dtype,
    )


def settings_preprocessing(
    settings: Mapping[str, Any], *, scale: float | None = None
) -> Preprocessing:
    """The package's settings of a model as data of ours, read as its ``TransformImage`` reads them."""
    size = max(settings["input_size"])
    resized = math.floor(size / (scale or settings.get("scale", SCALE)))
    return Preprocessing(
        geometry=Geometry(
            resize="shorter",
            resize_height=resized,
            resize_width=resized,
            interpolation="bilinear",
            crop_height=size,
            crop_width=size,
        ),
        scale=1.0 if max(settings["input_range"]) == 255 else 255.0,
        mean=_three(settings["mean"]),
        std=_three(settings["std"]),
        colours="BGR" if settings["input_space"] == "BGR" else "RGB",
    )


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    first, second, third = values
    return float(first), float(second), float(third)


def _library() -> Any:
    return require_library(
        "pretrainedmodels", extra="cadene", purpose="a model of pretrainedmodels"
    )


def _settings(library: Any, name: str, tag: str | None) -> tuple[str, Mapping[str, Any]]:
    known = library.pretrained_settings
    if name not in known:
        near = get_close_matches(name, known, n=5, cutoff=0.5) or list(known)[:5]
        raise NotFound(f"no model cadene:{name}", fix=f"it has {', '.join(near)}")
    found = known[name]
    chosen = tag or ("imagenet" if "imagenet" in found else next(iter(found)))
    if chosen not in found:
        raise NotFound(f"no weights {chosen!r} for cadene:{name}", fix=f"it has {', '.join(found)}")
    return chosen, found[chosen]


def _label_space(
    settings: Mapping[str, Any], classes: str | LabelSpace | None, name: str
) -> LabelSpace:
    if classes is not None:
        return classes if isinstance(classes, LabelSpace) else LabelSpace.load(classes)
    space = LabelSpace.load("imagenet-1k")
    if settings["num_classes"] != len(space):
        raise LabelError(
            f"these weights of {name} have {settings['num_classes']} classes",
            fix="use its weights imagenet, or name the label space with --model-args classes=FILE",
        )
    return space

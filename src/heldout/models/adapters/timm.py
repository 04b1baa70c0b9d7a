"""``timm:NAME``: models of timm, with the preprocessing that timm itself would evaluate them with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from heldout.core.errors import LabelError, NotApplicable, NotFound, UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.models.adapters.torch_model import TorchModel, require_library
from heldout.models.adapters.torch_weights import fetching, load_checkpoint, seeded, weights_hash


def names() -> tuple[str, ...]:
    """Every model that timm has weights for, with the tag of the weights."""
    return tuple(_timm().list_models(pretrained=True))


def load(
    name: str,
    *,
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    classes: str | LabelSpace | None = None,
    device: str = "auto",
    dtype: str = "float32",
    test_size: bool = True,
    img_size: int | None = None,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    interpolation: str | None = None,
    **options: Any,
) -> TorchModel:
    """A model of timm by name, such as ``resnet50.a1_in1k``.

    ``pretrained``  fetch timm's weights, or find them in its cache; without it they are random,
                    made from ``seed``
    ``checkpoint``  a file of your own weights instead, ``.safetensors`` or what ``torch.save`` wrote
    ``classes``     the label space, by name or file, where the number of classes does not tell
    ``test_size``   the resolution that timm's ``validate.py`` uses where a model has one of its own
                    for testing; without it that of training, as in timm's model cards
    ``img_size``, ``crop_pct``, ``crop_mode``, ``interpolation``  instead of the model's own
    ``options``     go to ``timm.create_model``, such as ``num_classes``
    """
    timm = _timm()
    spec = f"timm:{name}"
    fetched = pretrained and checkpoint is None
    if fetched and "num_classes" in options:
        raise UserError(
            f"{spec} with another number of classes has a random last layer",
            fix="give your weights with checkpoint=FILE",
        )
    # A model of one fixed resolution is built for another one; the others just take it.
    built_for = {"img_size": img_size} if img_size and _has_fixed_size(timm, name) else {}
    with seeded(seed), fetching(spec):
        module = _create(timm, name, spec, pretrained=fetched, options={**options, **built_for})
    if checkpoint is not None:
        load_checkpoint(module, Path(checkpoint))
    stated = {
        "img_size": img_size,
        "crop_pct": crop_pct,
        "crop_mode": crop_mode,
        "interpolation": interpolation,
    }
    config = timm.data.resolve_model_data_config(module, args=stated, use_test_size=test_size)
    return TorchModel(
        module,
        name=spec,
        label_space=_label_space(timm, module, classes, spec),
        preprocessing=timm_preprocessing(config, spec),
        identity={
            "adapter": "timm",
            "architecture": module.pretrained_cfg.get("architecture") or name.partition(".")[0],
            "weights": weights_hash(module),
            "version": timm.__version__,
            "options": {**options, **built_for},
        },
        classifier=_classifier(module),
        device=device,
        dtype=dtype,
    )


def timm_preprocessing(config: dict[str, Any], name: str) -> Preprocessing:
    """timm's data configuration as data of ours.

    ``center`` resizes the shorter side to ``floor(size / crop_pct)`` and crops; ``squash`` brings
    both sides there. ``border`` pads, which no classifier of timm asks for, and is refused.
    """
    channels, height, width = config["input_size"]
    crop_pct, mode = float(config["crop_pct"]), config["crop_mode"] or "center"
    resized = (math.floor(height / crop_pct), math.floor(width / crop_pct))
    if channels != 3:
        raise NotApplicable(f"{name} wants {channels} channels", fix="only RGB images are read")
    if mode not in ("center", "squash") or (mode == "center" and height != width):
        raise NotApplicable(
            f"{name} is evaluated with crop_mode={mode} at {height} x {width}",
            fix="give crop_mode=center with a square img_size, or crop_mode=squash",
        )
    return Preprocessing(
        geometry=Geometry(
            resize="shorter" if mode == "center" else "exact",
            resize_height=resized[0],
            resize_width=resized[1],
            interpolation=config["interpolation"],
            crop_height=height,
            crop_width=width,
        ),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def _timm() -> Any:
    return require_library("timm", extra="torch", purpose="a model of timm")


def _create(timm: Any, name: str, spec: str, *, pretrained: bool, options: dict[str, Any]) -> Any:
    try:
        return timm.create_model(name, pretrained=pretrained, **options)
    except (TypeError, ValueError) as error:
        raise UserError(f"{spec} cannot be built ({error})", fix="correct --model-args") from None
    except RuntimeError as error:
        text = str(error)
        if text.startswith(("Unknown model", "Invalid pretrained tag")):
            near = timm.list_models(f"*{name.partition('.')[0]}*", pretrained=True)[:5]
            fix = f"timm has {', '.join(near)}" if near else "timm.list_models() lists them"
            raise NotFound(f"no model {spec}", fix=fix) from None
        if text.startswith("No pretrained weights"):
            raise NotFound(
                f"timm has no weights for {spec}",
                fix="give yours with checkpoint=FILE, or pretrained=false for random ones",
            ) from None
        raise


def _has_fixed_size(timm: Any, name: str) -> bool:
    if ":" in name or not timm.is_model(name.partition(".")[0]):
        return False  # from a hub or a folder, or unknown: what it says of itself comes later
    config = timm.models.get_pretrained_cfg(name, allow_unregistered=True)
    return bool(config and config.fixed_input_size)


def _label_space(timm: Any, module: Any, classes: str | LabelSpace | None, name: str) -> LabelSpace:
    count = int(module.num_classes)
    if classes is not None:
        space = classes if isinstance(classes, LabelSpace) else LabelSpace.load(classes)
        if len(space) != count:
            raise LabelError(
                f"{name} has {count} outputs, label space {space.name} has {len(space)} classes",
                fix="name the label space that it was trained with",
            )
        return space
    stated = module.pretrained_cfg.get("label_names")
    if stated and len(stated) == count:
        return LabelSpace(f"timm-{count}", tuple(_class(str(label)) for label in stated))
    subset = timm.data.infer_imagenet_subset(module)
    if subset is None:
        raise LabelError(
            f"{name} has {count} outputs and does not say what they stand for",
            fix="name its label space with --model-args classes=FILE",
        )
    return imagenet_subset(timm, subset)


def imagenet_subset(timm: Any, subset: str) -> LabelSpace:
    """One of timm's ImageNet class lists as a label space; built-in where the order is the same."""
    synsets = timm.data.ImageNetInfo(subset).label_names()
    for name in ("imagenet-1k", "imagenet-21k"):
        built_in = LabelSpace.load(name)
        if built_in.ids == tuple(synsets):
            return built_in
    return LabelSpace(f"timm-{subset}", tuple(_class(synset) for synset in synsets))


def _class(label: str) -> Class:
    nodes = LabelSpace.load("wordnet-nodes")
    return nodes.get(label) if label in nodes else Class(label, (label,))


def _classifier(module: Any) -> Any | None:
    """The last layer, if the model has exactly one."""
    torch = require_library("torch", extra="torch", purpose="a model of timm")
    found = module.get_classifier() if hasattr(module, "get_classifier") else None
    return found if isinstance(found, torch.nn.Linear | torch.nn.Conv2d) else None

"""``timm:NAME``, ``torchvision:NAME``, ``cadene:NAME``: classifiers of three torch libraries.

Each has the preprocessing that its library itself would evaluate it with. ``cadene`` is the package
``pretrainedmodels``, which ImageNetV2 was evaluated with. All take these arguments:

``pretrained``  fetch the library's weights, or find them in its cache; without it they are random,
                made from ``seed``
``checkpoint``  a file of your own weights instead, ``.safetensors`` or what ``torch.save`` wrote
``classes``     the label space, by name or file, where the library does not state it; those of
                ``cadene`` are always ImageNet-1k's
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from heldout.core.errors import LabelError, NotApplicable, NotFound, UserError
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.models.adapters.model import label_space_of, resize_and_crop
from heldout.models.adapters.torch_model import (
    TorchModel,
    fetching,
    load_checkpoint,
    require_library,
    require_torch,
    seeded,
    weights_hash,
)

_CADENE_SCALE = 0.875
"""Crop side over resized side, where a model of cadene states none."""
_OTHER = "name another model, or other weights of it"
_NAME_CLASSES = "name its label space with --model-args classes=FILE"


def timm_names() -> tuple[str, ...]:
    """Every model that timm has weights for, with the tag of the weights."""
    return tuple(_library("timm").list_models(pretrained=True))


def load_timm(
    name: str,
    *,
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    classes: str | LabelSpace | None = None,
    device: str = "auto",
    dtype: str = "float32",
    img_size: int | None = None,
    crop_pct: float | None = None,
    **options: Any,
) -> TorchModel:
    """A model of timm by name, such as ``resnet50.a1_in1k``, at the resolution that timm's
    ``validate.py`` uses.

    ``img_size``, ``crop_pct``  instead of the model's own
    ``options``     go to ``timm.create_model``, such as ``num_classes``
    """
    timm = _library("timm")
    spec = f"timm:{name}"
    fetched = pretrained and checkpoint is None
    if fetched and "num_classes" in options:
        raise UserError(
            f"{spec} with another number of classes has a random last layer",
            fix="give your weights with checkpoint=FILE",
        )
    if img_size and _has_fixed_size(timm, name):
        # A model of one fixed resolution is built for another one; the others just take it.
        options["img_size"] = img_size
    with seeded(seed), fetching(spec):
        module = _create_timm(timm, name, spec, pretrained=fetched, options=options)
    stated = {"img_size": img_size, "crop_pct": crop_pct}
    config = timm.data.resolve_model_data_config(module, args=stated, use_test_size=True)
    head = module.get_classifier() if hasattr(module, "get_classifier") else None
    torch = require_torch()
    return _wrapped(
        module,
        spec,
        architecture=module.pretrained_cfg.get("architecture") or name.partition(".")[0],
        version=timm.__version__,
        options=options,
        checkpoint=checkpoint,
        label_space=_timm_label_space(timm, module, classes, spec),
        preprocessing=timm_preprocessing(config, spec),
        # The last layer, if the model has exactly one.
        classifier=head if isinstance(head, torch.nn.Linear | torch.nn.Conv2d) else None,
        device=device,
        dtype=dtype,
    )


def timm_preprocessing(config: Mapping[str, Any], name: str) -> Preprocessing:
    """timm's data configuration as our :class:`Preprocessing`.

    ``center`` resizes the shorter side to ``floor(size / crop_pct)`` and crops; ``squash`` brings
    both sides there. ``border`` pads, which no classifier of timm asks for, and is refused.
    """
    channels, height, width = config["input_size"]
    crop_pct, mode = float(config["crop_pct"]), config["crop_mode"] or "center"
    if channels != 3:
        raise NotApplicable(f"{name} wants {channels} channels", fix="only RGB images are read")
    if mode not in ("center", "squash") or (mode == "center" and height != width):
        raise NotApplicable(
            f"{name} is evaluated with crop_mode={mode} at {height} x {width}",
            fix=_OTHER,
        )
    resized = (math.floor(height / crop_pct), math.floor(width / crop_pct))
    return Preprocessing(
        geometry=resize_and_crop(
            resized, (height, width), config["interpolation"], keep_aspect=mode == "center"
        ),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )


def torchvision_names() -> tuple[str, ...]:
    """Every classifier of torchvision."""
    models = _library("torchvision").models
    return tuple(models.list_models(module=models))


def load_torchvision(
    name: str,
    *,
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    classes: str | LabelSpace | None = None,
    device: str = "auto",
    dtype: str = "float32",
) -> TorchModel:
    """A classifier of torchvision: ``resnet50`` with its newest weights, or those of a name as in
    ``resnet50.IMAGENET1K_V1``. They also state the preprocessing when your own weights are used."""
    library = _library("torchvision")
    name, _, tag = name.partition(".")
    spec = f"torchvision:{name}.{tag}" if tag else f"torchvision:{name}"
    known = torchvision_names()
    if name not in known:
        raise NotFound(f"torchvision has no classifier {name!r}", fix=_near(name, known))
    published = library.models.get_model_weights(name)
    if tag and tag not in published.__members__:
        raise NotFound(
            f"torchvision has no weights {tag!r} for {name}",
            fix=f"it has {', '.join(published.__members__)}",
        )
    chosen = published[tag or "DEFAULT"]
    space = _torchvision_label_space(chosen, classes, spec)
    options: dict[str, Any] = {"num_classes": len(space)}
    if name in ("inception_v3", "googlenet"):
        # These weights expect the values of another scaling, which the module then does itself.
        options |= {"transform_input": True, "aux_logits": True, "init_weights": False}
    if name.startswith("vit_"):
        options["image_size"] = chosen.meta["min_size"][0]
    if name.startswith("maxvit"):
        options["input_size"] = chosen.meta["min_size"]
    with seeded(seed):
        module = library.models.get_model(name, weights=None, **options)
    if pretrained and checkpoint is None:
        with fetching(spec):
            # The restricted loader is asked for by name: without it torchvision unpickles freely.
            state = chosen.get_state_dict(progress=False, check_hash=True, weights_only=True)
        module.load_state_dict(state)
    parts = [part for part in module.modules() if not list(part.children())]
    head = next((part for part in reversed(parts) if list(part.parameters())), None)
    return _wrapped(
        module,
        spec,
        architecture=name,
        version=library.__version__,
        checkpoint=checkpoint,
        label_space=space,
        preprocessing=preset_preprocessing(chosen.transforms(), spec),
        classifier=head if isinstance(head, require_torch().nn.Linear) else None,
        device=device,
        dtype=dtype,
    )


def preset_preprocessing(preset: Any, name: str) -> Preprocessing:
    """torchvision's ``ImageClassification`` preset as our :class:`Preprocessing`."""
    fields = ("crop_size", "resize_size", "mean", "std", "interpolation")
    if not all(hasattr(preset, field) for field in fields):
        raise NotApplicable(f"{name} is not a classifier of images", fix=_OTHER)
    (crop,), (resize,) = preset.crop_size, preset.resize_size
    return Preprocessing(
        geometry=resize_and_crop(resize, crop, preset.interpolation.value),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
    )


def cadene_names() -> tuple[str, ...]:
    """Every model of cadene."""
    return tuple(_library("cadene").pretrained_settings)


def load_cadene(
    name: str,
    *,
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
) -> TorchModel:
    """A model by name, such as ``resnet152``; of several weights it has those named ``imagenet``."""
    library = _library("cadene")
    spec = f"cadene:{name}"
    published = library.pretrained_settings
    if name not in published:
        raise NotFound(f"no model {spec}", fix=_near(name, list(published)))
    tag = min(published[name], key=len)  # others are imagenet+5k, imagenet+background
    settings = published[name][tag]
    fetched = pretrained and checkpoint is None
    with seeded(seed), fetching(spec), warnings.catch_warnings():
        # The package calls torchvision as it was in 2018, and is warned for it.
        warnings.simplefilter("ignore")
        module = getattr(library, name)(
            num_classes=settings["num_classes"], pretrained=tag if fetched else None
        )
    return _wrapped(
        module,
        spec,
        architecture=name,
        version=library.__version__,
        checkpoint=checkpoint,
        label_space=LabelSpace.load("imagenet-1k"),
        preprocessing=cadene_preprocessing(settings),
        classifier=getattr(module, "last_linear", None),  # SqueezeNet has none
        device=device,
        dtype=dtype,
    )


def cadene_preprocessing(settings: Mapping[str, Any]) -> Preprocessing:
    """cadene's settings of a model as our :class:`Preprocessing`, as its ``TransformImage`` does."""
    size = max(settings["input_size"])
    resized = math.floor(size / settings.get("scale", _CADENE_SCALE))
    return Preprocessing(
        geometry=resize_and_crop(resized, size, "bilinear"),
        scale=1.0 if max(settings["input_range"]) == 255 else 255.0,
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        colours=settings["input_space"],
    )


def _library(name: str) -> Any:
    module, extra = ("pretrainedmodels", "cadene") if name == "cadene" else (name, "torch")
    return require_library(module, extra=extra, purpose=f"a model of {module}")


def _wrapped(
    module: Any,
    spec: str,
    *,
    architecture: str,
    version: str,
    checkpoint: str | None,
    options: Mapping[str, Any] | None = None,
    **wrapping: Any,
) -> TorchModel:
    """A built module, filled from ``checkpoint`` where there is one, as a model with its identity."""
    if checkpoint is not None:
        load_checkpoint(module, Path(checkpoint))
    identity: dict[str, Any] = {
        "adapter": spec.partition(":")[0],
        "architecture": architecture,
        "weights": weights_hash(module),
        "version": version,
    }
    if options is not None:
        identity["options"] = options
    return TorchModel(module, name=spec, identity=identity, **wrapping)


def _near(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=5, cutoff=0.5) or known[:5]
    return f"it has {', '.join(near)}"


def _create_timm(
    timm: Any, name: str, spec: str, *, pretrained: bool, options: dict[str, Any]
) -> Any:
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


def _timm_label_space(
    timm: Any, module: Any, classes: str | LabelSpace | None, name: str
) -> LabelSpace:
    count = int(module.num_classes)
    if classes is not None:
        space = label_space_of(classes)
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
            f"{name} has {count} outputs and does not say what they mean", fix=_NAME_CLASSES
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


def _torchvision_label_space(
    weights: Any, classes: str | LabelSpace | None, name: str
) -> LabelSpace:
    """The label space of all of torchvision's published classifiers, unless another is named."""
    categories = weights.meta["categories"]
    if classes is None and not categories:
        raise NotApplicable(
            f"{name} with the weights {weights.name} is not a classifier", fix=_OTHER
        )
    space = label_space_of(classes or "imagenet-1k")
    if classes is None and len(categories) != len(space):
        raise LabelError(f"the classes of {name} are not those of ImageNet-1k", fix=_NAME_CLASSES)
    return space

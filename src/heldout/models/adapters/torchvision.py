"""``torchvision:NAME``: classifiers of torchvision, with the transforms that their weights state."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from heldout.core.errors import LabelError, NotApplicable, NotFound
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels.label_space import LabelSpace, folded
from heldout.models.adapters.torch_model import TorchModel, require_library
from heldout.models.adapters.torch_weights import fetching, load_checkpoint, seeded, weights_hash

_OTHER = "name another model, or other weights of it"


def names() -> tuple[str, ...]:
    """Every classifier of torchvision."""
    models = _models()
    return tuple(models.list_models(module=models))


def load(
    name: str,
    *,
    weights: str = "DEFAULT",
    pretrained: bool = True,
    checkpoint: str | None = None,
    seed: int = 0,
    classes: str | LabelSpace | None = None,
    device: str = "auto",
    dtype: str = "float32",
) -> TorchModel:
    """A classifier of torchvision: ``resnet50``, or ``resnet50.IMAGENET1K_V1`` with its weights.

    ``weights``     which of the published weights, by name; ``DEFAULT`` are the newest. They also
                    state the preprocessing when your own weights are used
    ``pretrained``  fetch them, or find them in torch's cache; without it weights are random, made
                    from ``seed``
    ``checkpoint``  a file of your own weights instead
    ``classes``     the label space of your own weights, by name or file
    """
    models = _models()
    name, _, tag = name.partition(".")
    chosen = _weights(models, name, tag or weights)
    spec = f"torchvision:{name}.{tag}" if tag else f"torchvision:{name}"
    space = _label_space(chosen, classes, spec)
    module = _build(models, name, chosen, outputs=len(space), seed=seed)
    if checkpoint is not None:
        load_checkpoint(module, Path(checkpoint))
    elif pretrained:
        with fetching(spec):
            # The restricted loader is asked for by name: without it torchvision unpickles freely.
            state = chosen.get_state_dict(progress=False, check_hash=True, weights_only=True)
        module.load_state_dict(state)
    version = require_library("torchvision", extra="torch", purpose=spec).__version__
    return TorchModel(
        module,
        name=spec,
        label_space=space,
        preprocessing=preset_preprocessing(chosen.transforms(), spec),
        identity={
            "adapter": "torchvision",
            "architecture": name,
            "weights": weights_hash(module),
            "version": version,
        },
        classifier=_last_linear(module),
        device=device,
        dtype=dtype,
    )


def preset_preprocessing(preset: Any, name: str) -> Preprocessing:
    """torchvision's ``ImageClassification`` preset as data of ours."""
    fields = ("crop_size", "resize_size", "mean", "std", "interpolation")
    if not all(hasattr(preset, field) for field in fields):
        raise NotApplicable(f"{name} is no classifier of images", fix=_OTHER)
    (crop,), (resize,) = preset.crop_size, preset.resize_size
    return Preprocessing(
        geometry=Geometry(
            resize="shorter",
            resize_height=resize,
            resize_width=resize,
            interpolation=preset.interpolation.value,
            crop_height=crop,
            crop_width=crop,
        ),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
    )


def same_classes(categories: list[str], space: LabelSpace) -> bool:
    """Whether torchvision's class names are those of a label space, class for class.

    Its names are WordNet's but where two classes share one, so one in a hundred may differ.
    """
    if len(categories) != len(space):
        return False
    agree = sum(
        folded(category) in {folded(name) for name in item.names}
        for category, item in zip(categories, space, strict=True)
    )
    return agree >= 0.99 * len(space)


def _models() -> Any:
    library = require_library("torchvision", extra="torch", purpose="a model of torchvision")
    return library.models


def _weights(models: Any, name: str, tag: str) -> Any:
    known = models.list_models(module=models)
    if name not in known:
        near = get_close_matches(name, known, n=5, cutoff=0.5)
        fix = f"it has {', '.join(near)}" if near else "torchvision.models.list_models() lists them"
        raise NotFound(f"torchvision has no classifier {name!r}", fix=fix)
    published = models.get_model_weights(name)
    if tag not in published.__members__:
        offered = ", ".join(published.__members__)
        raise NotFound(f"torchvision has no weights {tag!r} for {name}", fix=f"it has {offered}")
    return published[tag]


def _build(models: Any, name: str, weights: Any, *, outputs: int, seed: int) -> Any:
    """The architecture as torchvision builds it for these weights, with random ones."""
    options: dict[str, Any] = {"num_classes": outputs}
    if name in ("inception_v3", "googlenet"):
        # These weights expect the values of another scaling, which the module then does itself.
        options |= {"transform_input": True, "aux_logits": True, "init_weights": False}
    if name.startswith("vit_"):
        options["image_size"] = weights.meta["min_size"][0]
    if name.startswith("maxvit"):
        options["input_size"] = weights.meta["min_size"]
    with seeded(seed):
        return models.get_model(name, weights=None, **options)


def _label_space(weights: Any, classes: str | LabelSpace | None, name: str) -> LabelSpace:
    if classes is not None:
        return classes if isinstance(classes, LabelSpace) else LabelSpace.load(classes)
    if not weights.meta["categories"]:
        raise NotApplicable(f"{name} with the weights {weights.name} is no classifier", fix=_OTHER)
    space = LabelSpace.load("imagenet-1k")
    if not same_classes(weights.meta["categories"], space):
        raise LabelError(
            f"the classes of {name} are not those of ImageNet-1k",
            fix="name its label space with --model-args classes=FILE",
        )
    return space


def _last_linear(module: Any) -> Any | None:
    torch = require_library("torch", extra="torch", purpose="a model of torchvision")
    parts = [part for _, part in module.named_modules() if not list(part.children())]
    head = next((part for part in reversed(parts) if list(part.parameters())), None)
    return head if isinstance(head, torch.nn.Linear) else None

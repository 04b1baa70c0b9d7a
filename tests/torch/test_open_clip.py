from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch

from heldout.core.errors import (
    BadFile,
    LabelError,
    MissingExtra,
    NotApplicable,
    NotFound,
    UserError,
)
from heldout.data.images.preprocessing import pixels_of
from heldout.data.labels import Class, LabelSpace
from heldout.models.adapters import list_models, load_model
from heldout.models.adapters.model import model_input
from heldout.models.adapters.open_clip import clip_preprocessing, load
from heldout.models.adapters.prompts import class_texts, distinct_names, prompt_templates
from tests.torch.conftest import assert_close

CIFAR = LabelSpace.load("cifar-10")
TINY: dict[str, Any] = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}


@pytest.fixture(scope="module", autouse=True)
def architectures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two architectures small enough to test with, one of them with SigLIP's bias."""
    folder = tmp_path_factory.mktemp("configs")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    biased = {**TINY, "custom_text": True, "init_logit_bias": -10, "init_logit_scale": 2.3}
    (folder / "tiny-biased.json").write_text(json.dumps(biased))
    open_clip.add_model_config(folder)
    yield


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    """A model with weights, in the folder layout of open_clip's hub."""
    from safetensors.torch import save_file

    folder = tmp_path / "model"
    folder.mkdir()
    torch.manual_seed(11)
    clip = open_clip.create_model("tiny")
    save_file(clip.state_dict(), folder / "open_clip_model.safetensors")
    squash = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
    config = {"model_cfg": TINY, "preprocess_cfg": squash}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return folder


def reference_logits(clip: Any, weights: Any, inputs: Any) -> Any:
    """As open_clip's own evaluation computes them."""
    with torch.inference_mode():
        features = clip.encode_image(inputs, normalize=True)
        logits = clip.logit_scale.exp() * features @ weights
        return logits if clip.logit_bias is None else logits + clip.logit_bias


@pytest.mark.shared
@pytest.mark.parametrize("arch", ["tiny", "tiny-biased", "ViT-S-32-alt"])
@pytest.mark.parametrize("templates", ["none", "openai"])
def test_logits_are_those_of_open_clip(
    arch: str, templates: str, photos: list[bytes], images: list[Any]
) -> None:
    if arch == "ViT-S-32-alt" and templates == "openai":
        templates = "single"  # 800 prompts through ten layers add nothing but time
    options = {"classes": "cifar-10", "templates": templates, "class_names": "first"}
    model = load(arch, pretrained=False, seed=3, device="cpu", **options)
    torch.manual_seed(3)
    clip = open_clip.create_model(arch).eval()
    sentences = {
        "none": ["{}"],
        "single": ["a photo of a {}."],
        "openai": open_clip.OPENAI_IMAGENET_TEMPLATES,
    }[templates]
    weights = open_clip.build_zero_shot_classifier(
        clip, open_clip.get_tokenizer(arch), [item.name for item in CIFAR], sentences
    )
    config = open_clip.transform.PreprocessCfg(**open_clip.get_model_preprocess_cfg(clip))
    transform = open_clip.transform.image_transform_v2(config, is_train=False)
    inputs = torch.stack([transform(image) for image in images])
    pixels = np.stack([pixels_of(data, model.preprocessing.geometry) for data in photos])
    assert torch.equal(model.prepare(pixels), inputs)
    answer = model(pixels)
    assert_close(answer.logits, reference_logits(clip, weights, inputs))
    assert answer.features is not None
    np.testing.assert_allclose(np.linalg.norm(answer.features, axis=1), 1, atol=1e-5)
    assert model.label_space == CIFAR


@pytest.mark.shared
def test_every_preprocessing_of_open_clip_is_bit_equal(
    photos: list[bytes], images: list[Any]
) -> None:
    configs: dict[str, Any] = {}
    for arch, tag in open_clip.list_pretrained():
        stated = open_clip.get_pretrained_cfg(arch, tag)
        size = open_clip.get_model_config(arch)["vision_cfg"]["image_size"]
        merged = open_clip.transform.merge_preprocess_dict(
            open_clip.transform.PreprocessCfg(size=size), stated
        )
        configs[str(merged)] = merged
    assert len(configs) > 10
    for number, config in enumerate(configs.values()):
        preprocessing = clip_preprocessing(config, "x")
        transform = open_clip.transform.image_transform_v2(
            open_clip.transform.PreprocessCfg(**config), is_train=False
        )
        place = number % len(photos)
        mine = pixels_of(photos[place], preprocessing.geometry)
        assert isinstance(mine, np.ndarray)
        made = model_input(mine[None], preprocessing)[0]
        np.testing.assert_array_equal(made, transform(images[place]).numpy(), err_msg=str(config))


def test_what_pads_is_refused() -> None:
    config = {**open_clip.get_model_preprocess_cfg(open_clip.create_model("tiny"))}
    with pytest.raises(NotApplicable, match="x is evaluated with resize_mode=longest"):
        clip_preprocessing({**config, "resize_mode": "longest"}, "x")


def test_weights_of_a_folder_are_loaded(tiny_folder: Path) -> None:
    model = load(f"local-dir:{tiny_folder}", classes="cifar-10", device="cpu")
    torch.manual_seed(11)
    clip = open_clip.create_model("tiny").eval()
    weights = open_clip.build_zero_shot_classifier(
        clip, open_clip.get_tokenizer("tiny"), [item.name for item in CIFAR], ["a photo of a {}."]
    )
    batch = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    logits = model(batch).logits
    assert_close(logits, reference_logits(clip, weights, model.prepare(batch)))
    assert model.preprocessing.geometry.resize == "exact"
    assert model.preprocessing.mean == (0.5, 0.5, 0.5)


def test_a_folder_without_weights_is_not_taken_for_a_random_model(tiny_folder: Path) -> None:
    (tiny_folder / "open_clip_model.safetensors").unlink()
    with pytest.raises(NotFound, match="there are no weights with open_clip:local-dir:"):
        load(f"local-dir:{tiny_folder}", classes="cifar-10")


def test_checkpoints(tmp_path: Path, write_hostile: Callable[[Path], Path]) -> None:
    path = tmp_path / "epoch_3.pt"
    identities = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        state = {f"module.{k}": v for k, v in open_clip.create_model("tiny").state_dict().items()}
        torch.save({"epoch": 3, "state_dict": state}, path)
        identities.append(load("tiny", checkpoint=str(path), classes="cifar-10").identity)
    assert identities[0] == identities[2] != identities[1]
    with pytest.raises(BadFile, match=r"epoch_3\.pt: is of another architecture"):
        load("ViT-S-32-alt", checkpoint=str(path), classes="cifar-10")
    with pytest.raises(BadFile, match="it holds more than weights"):
        load("tiny", checkpoint=str(write_hostile(path)), classes="cifar-10")
    assert not (tmp_path / "boom").exists()


def test_prompts_are_part_of_the_identity() -> None:
    def identity(**options: Any) -> Any:
        return load("tiny", pretrained=False, **{"classes": "cifar-10", **options}).identity

    plain = identity()
    assert plain == identity()
    assert plain != identity(templates="none")
    assert plain != identity(seed=1)
    assert plain["weights"] == identity(templates="none")["weights"]


def test_weights_trained_with_quick_gelu_get_it() -> None:
    model = load("ViT-B-32/openai", pretrained=False, classes="cifar-10", device="cpu")
    kinds = {type(part).__name__ for part in model._module.modules()}
    assert "QuickGELU" in kinds
    assert "GELU" not in kinds
    assert model.preprocessing.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))


def test_names_and_mistakes_in_them(
    monkeypatch: pytest.MonkeyPatch, hub_home: Callable[[str, str], Path]
) -> None:
    assert "open_clip:ViT-B-32/openai" in list_models("open_clip:ViT-B-32/*")
    made = load_model("open_clip:tiny", pretrained=False, classes="cifar-10")
    assert made.name == "open_clip:tiny"
    with pytest.raises(NotFound, match="no architecture 'ViT-B-33': it has ViT-B-32"):
        load("ViT-B-33/openai")
    with pytest.raises(NotFound, match="no weights 'x' for ViT-B-32: it has openai"):
        load("ViT-B-32/x")
    with pytest.raises(UserError, match="which weights of ViT-B-32: write open_clip:ViT-B-32/TAG"):
        load("ViT-B-32")
    with pytest.raises(UserError, match="open_clip:ViT-B-32/openai could not be fetched"):
        load("ViT-B-32/openai")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(MissingExtra, match=r"pip install 'heldout\[clip\]'"):
        load("ViT-B-32/openai")


def test_published_names_and_templates() -> None:
    imagenet = LabelSpace.load("imagenet-1k")
    names = class_texts(imagenet, "openai")
    assert (len(names), names[0]) == (1000, "tench")
    with pytest.raises(LabelError, match="no published class names for cifar-10"):
        class_texts(CIFAR, "openai")
    model = load("tiny", pretrained=False, class_names="openai", device="cpu")
    assert model.label_space is imagenet


def test_names_that_classes_share_are_told_apart() -> None:
    imagenet = LabelSpace.load("imagenet-1k")
    texts = distinct_names(imagenet)
    assert len({text.casefold() for text in texts}) == 1000
    changed = {imagenet.ids[k] for k in range(1000) if texts[k] != imagenet.classes[k].name}
    assert changed == {"n02012849", "n02113186", "n03126707", "n03710721"}
    twins = LabelSpace("twins", (Class("a", ("x",)), Class("b", ("X",)), Class("c", ("y",))))
    assert distinct_names(twins)[2] == "y"
    assert len({text.casefold() for text in distinct_names(twins)}) == 3


def test_files_of_names_and_templates(tmp_path: Path) -> None:
    names, templates = tmp_path / "names.txt", tmp_path / "templates.txt"
    names.write_text("".join(f"thing {k}\n" for k in range(10)))
    templates.write_text("a {}\n\na drawing of the {}.\n")
    assert class_texts(CIFAR, str(names))[3] == "thing 3"
    assert prompt_templates(str(templates)) == ("a {}", "a drawing of the {}.")
    names.write_text("one\n")
    with pytest.raises(BadFile, match="has 1 names, cifar-10 has 10 classes"):
        class_texts(CIFAR, str(names))
    templates.write_text("a {}\nno place\n")
    with pytest.raises(BadFile, match=r"line 2 has no single \{\}"):
        prompt_templates(str(templates))
    templates.write_text("\n")
    with pytest.raises(BadFile, match="has no templates"):
        prompt_templates(str(templates))
    templates.write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadFile, match="not UTF-8"):
        prompt_templates(str(templates))
    with pytest.raises(NotFound, match="no file of templates"):
        prompt_templates(str(tmp_path / "none.txt"))

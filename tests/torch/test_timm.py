from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from timm.models import get_pretrained_cfg

from heldout.core.errors import (
    BadFile,
    LabelError,
    MissingExtra,
    NotApplicable,
    NotFound,
    UserError,
)
from heldout.data.images.preprocessing import pixels_of
from heldout.data.labels import LabelSpace
from heldout.models.adapters import list_models, load_model
from heldout.models.adapters.model import model_input
from heldout.models.adapters.torch_zoo import imagenet_subset, timm_preprocessing
from heldout.models.adapters.torch_zoo import load_timm as load
from tests.torch.conftest import assert_close

ARCHITECTURES = [
    "resnet18.a1_in1k",  # bicubic, tested at 288 with all of the image
    "resnet18.tv_in1k",  # bilinear
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k",  # mean and std 0.5, crop 0.9, one fixed size
    "convnext_atto.d2_in1k",
    "mobilenetv3_small_050.lamb_in1k",
    "inception_v3.tv_in1k",  # 299
    "efficientnet_b0.ra_in1k",
    "deit_tiny_distilled_patch16_224.fb_in1k",  # two last layers, so no features
]


def pixels(photos: list[bytes], model: Any) -> np.ndarray:
    return np.stack([pixels_of(data, model.preprocessing.geometry) for data in photos])


@pytest.mark.shared
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_those_of_timm(name: str, photos: list[bytes], images: list[Any]) -> None:
    photos, images = photos[:4], images[:4]
    model = load(name, pretrained=False, seed=3, device="cpu")
    torch.manual_seed(3)
    reference = timm.create_model(name, pretrained=False).eval()
    config = timm.data.resolve_model_data_config(reference, use_test_size=True)
    transform = timm.data.create_transform(**config, is_training=False)
    inputs = torch.stack([transform(image) for image in images])
    mine = pixels(photos, model)
    assert torch.equal(model.prepare(mine), inputs)
    answer = model(mine)
    with torch.inference_mode():
        features = reference.forward_features(inputs)
        assert_close(answer.logits, reference(inputs))
        if "distilled" in name:
            assert answer.features is None
        else:
            assert answer.features is not None
            assert_close(answer.features, reference.forward_head(features, pre_logits=True))
    assert model.label_space is LabelSpace.load("imagenet-1k")
    assert model.name == f"timm:{name}"


def every_preprocessing() -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in timm.list_models(pretrained=True):
        config = get_pretrained_cfg(name).to_dict()
        if config["num_classes"]:
            for test_size in (True, False):
                data = timm.data.resolve_data_config(pretrained_cfg=config, use_test_size=test_size)
                found.setdefault(str(sorted(data.items())), data)
    return [found[key] for key in sorted(found)]


@pytest.mark.shared
def test_every_preprocessing_of_timm_is_bit_equal(photos: list[bytes], images: list[Any]) -> None:
    configs = every_preprocessing()
    assert len(configs) > 100
    for number, config in enumerate(configs):
        preprocessing = timm_preprocessing(config, "x")
        transform = timm.data.create_transform(**config, is_training=False)
        place = number % len(photos)
        mine = pixels_of(photos[place], preprocessing.geometry)
        assert isinstance(mine, np.ndarray)
        made = model_input(mine[None], preprocessing)[0]
        np.testing.assert_array_equal(made, transform(images[place]).numpy(), err_msg=str(config))


@pytest.mark.shared
def test_size_and_crop_can_be_overruled(photos: list[bytes], images: list[Any]) -> None:
    stated: dict[str, Any] = {"img_size": 192, "crop_pct": 0.83}
    model = load("test_resnet", pretrained=False, device="cpu", **stated)
    config = timm.data.resolve_data_config(
        args=stated, pretrained_cfg=get_pretrained_cfg("test_resnet").to_dict()
    )
    transform = timm.data.create_transform(**config, is_training=False)
    inputs = torch.stack([transform(image) for image in images[:4]])
    assert inputs.shape[-1] == 192
    assert torch.equal(model.prepare(pixels(photos[:4], model)), inputs)


def test_a_model_of_one_fixed_size_is_built_for_another() -> None:
    model = load("test_vit", pretrained=False, img_size=96, device="cpu")
    assert model.preprocessing.geometry.crop_height == 96
    assert model(np.zeros((1, 96, 96, 3), np.uint8)).logits.shape == (1, 1000)
    assert model.identity["options"] == {"img_size": 96}


def test_the_resolution_for_tests_is_the_default() -> None:
    of_test = load("resnet18.a1_in1k", pretrained=False).preprocessing.geometry
    assert (of_test.crop_height, of_test.resize_height) == (288, 288)


def test_what_pads_is_refused() -> None:
    config = timm.data.resolve_data_config(
        args={"crop_mode": "border"}, pretrained_cfg=get_pretrained_cfg("test_vit").to_dict()
    )
    with pytest.raises(NotApplicable, match="x is evaluated with crop_mode=border"):
        timm_preprocessing(config, "x")


@pytest.mark.parametrize(
    ("subset", "name", "count"),
    [
        ("imagenet-1k", "imagenet-1k", 1000),
        ("imagenet-21k-goog", "imagenet-21k", 21843),
        ("imagenet-22k", "timm-imagenet-22k", 21841),
        ("imagenet-22k-ms", "timm-imagenet-22k-ms", 21842),
        ("imagenet-12k", "timm-imagenet-12k", 11821),
        ("imagenet-21k-miil", "timm-imagenet-21k-miil", 11221),
    ],
)
def test_label_spaces_of_timms_class_lists(subset: str, name: str, count: int) -> None:
    space = imagenet_subset(timm, subset)
    assert (space.name, len(space)) == (name, count)
    assert list(space.ids) == timm.data.ImageNetInfo(subset).label_names()
    assert all(item.names and item.wnid == item.id for item in space)


def test_label_spaces_that_timm_does_not_know_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="has 10 outputs and does not say what they mean"):
        load("test_vit", pretrained=False, num_classes=10)
    model = load("test_vit", pretrained=False, num_classes=10, classes="cifar-10")
    assert model.label_space == LabelSpace.load("cifar-10")
    with pytest.raises(LabelError, match="has 1000 outputs, label space cifar-10 has 10 classes"):
        load("test_vit", pretrained=False, classes="cifar-10")


def test_a_random_last_layer_is_never_taken_for_a_trained_one() -> None:
    with pytest.raises(UserError, match="with another number of classes has a random last layer"):
        load("test_vit", num_classes=10)


def test_fetched_weights_are_found_in_the_cache(hub_home: Callable[[str, str], Path]) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(11)
    reference = timm.create_model("test_vit").eval()
    path = hub_home("timm/test_vit.r160_in1k", "model.safetensors")
    save_file(reference.state_dict(), path)
    model = load("test_vit.r160_in1k", device="cpu")
    batch = np.random.default_rng(0).integers(0, 256, (2, 160, 160, 3), dtype=np.uint8)
    with torch.inference_mode():
        assert_close(model(batch).logits, reference(model.prepare(batch)))
    again = load("test_vit.r160_in1k", seed=5, device="cpu")
    assert again.identity == model.identity


def test_weights_that_cannot_be_fetched_are_one_line(hub_home: Callable[[str, str], Path]) -> None:
    with pytest.raises(UserError) as caught:
        load("test_vit.r160_in1k")
    line = caught.value.line
    assert line.startswith("the weights of timm:test_vit.r160_in1k could not be fetched (")
    assert "--model-args checkpoint=FILE" in line
    assert "\n" not in line


def test_fetched_weights_with_code_are_refused(
    tmp_path: Path, hub_home: Callable[[str, str], Path], write_hostile: Callable[[Path], Path]
) -> None:
    write_hostile(hub_home("timm/test_vit.r160_in1k", "pytorch_model.bin"))
    with pytest.raises(UserError, match=r"the weights of timm:test_vit\.r160_in1k were refused"):
        load("test_vit.r160_in1k")
    assert not (tmp_path / "boom").exists()


def test_another_checkpoint_under_the_same_name_is_another_model(tmp_path: Path) -> None:
    identities = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "best.pth")
        model = load("test_vit", checkpoint=str(tmp_path / "best.pth"))
        identities.append(model.identity)
        assert model.name == "timm:test_vit"
    assert identities[0] == identities[2]
    assert identities[0] != identities[1]
    assert {k: v for k, v in identities[0].items() if k != "weights"} == {
        k: v for k, v in identities[1].items() if k != "weights"
    }


def test_a_checkpoint_with_code_is_refused(
    tmp_path: Path, write_hostile: Callable[[Path], Path]
) -> None:
    with pytest.raises(BadFile, match="it holds more than weights"):
        load("test_vit", checkpoint=str(write_hostile(tmp_path / "bad.pth")))
    assert not (tmp_path / "boom").exists()


def test_names_and_mistakes_in_them() -> None:
    assert "timm:resnet18.a1_in1k" in list_models("timm:resnet18.*")
    made = load_model("timm:test_vit", pretrained=False)
    assert made.name == "timm:test_vit"
    with pytest.raises(NotFound, match=r"no model timm:test_vit\.nope: timm has test_vit"):
        load("test_vit.nope")
    with pytest.raises(NotFound, match=r"no model timm:qqq: timm\.list_models"):
        load("qqq")
    with pytest.raises(UserError, match="no source prefix"):
        load("owner/model")
    with pytest.raises(UserError, match=r"cannot be built .*unexpected keyword argument 'foo'"):
        load("test_vit", pretrained=False, foo=1)


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, line in {
        "timm": "a model of timm needs the package timm, which is not installed: "
        "pip install 'heldout[torch]'",
        "torch": "a model of torch needs the package torch, which is not installed: "
        "pip install 'heldout[torch]'",
    }.items():
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(MissingExtra) as caught:
                load("test_vit", pretrained=False)
        assert caught.value.line == line

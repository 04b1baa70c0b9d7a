from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision

from heldout.core.errors import BadFile, MissingExtra, NotApplicable, NotFound, UserError
from heldout.data.images.preprocessing import pixels_of
from heldout.data.labels import LabelSpace
from heldout.data.labels.label_space import folded
from heldout.models.adapters import list_models, load_model
from heldout.models.adapters.model import model_input
from heldout.models.adapters.torch_zoo import load_torchvision as load
from heldout.models.adapters.torch_zoo import preset_preprocessing
from tests.torch.conftest import assert_close

IMAGENET = LabelSpace.load("imagenet-1k")
# What torchvision's own builder does when it is given weights.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "resnet18": {},
    "mobilenet_v3_small": {},
    "efficientnet_b0": {},
    "squeezenet1_1": {},
    "inception_v3": {"transform_input": True, "init_weights": False},
    "googlenet": {"transform_input": True, "aux_logits": True, "init_weights": False},
    "shufflenet_v2_x0_5": {},
}


@pytest.mark.shared
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_those_of_torchvision(name: str, photos: list[bytes], images: list[Any]) -> None:
    model = load(name, pretrained=False, seed=3, device="cpu")
    torch.manual_seed(3)
    reference = torchvision.models.get_model(name, weights=None, **ARCHITECTURES[name]).eval()
    transform = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    inputs = torch.stack([transform(image) for image in images[:4]])
    pixels = np.stack([pixels_of(data, model.preprocessing.geometry) for data in photos[:4]])
    assert torch.equal(model.prepare(pixels), inputs)
    answer = model(pixels)
    seen: list[Any] = []
    last = getattr(reference, "fc", None) or reference.classifier[-1]
    last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        assert_close(answer.logits, reference(inputs))
    if name == "squeezenet1_1":  # its last layer is a convolution
        assert answer.features is None
    else:
        assert answer.features is not None
        assert_close(answer.features, seen[0])
    assert model.label_space is IMAGENET


@pytest.mark.shared
def test_every_preset_of_torchvision_is_bit_equal(photos: list[bytes], images: list[Any]) -> None:
    models = torchvision.models
    presets = {
        str(weights.transforms()): weights.transforms()
        for name in models.list_models(module=models)
        for weights in models.get_model_weights(name)
    }
    assert len(presets) > 20
    for number, preset in enumerate(presets.values()):
        preprocessing = preset_preprocessing(preset, "x")
        place = number % len(photos)
        mine = pixels_of(photos[place], preprocessing.geometry)
        assert isinstance(mine, np.ndarray)
        made = model_input(mine[None], preprocessing)[0]
        np.testing.assert_array_equal(made, preset(images[place]).numpy(), err_msg=str(preset))


def test_every_published_classifier_has_the_classes_of_imagenet() -> None:
    models = torchvision.models
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            if weights is not models.VGG16_Weights.IMAGENET1K_FEATURES:
                names = zip(weights.meta["categories"], IMAGENET, strict=True)
                # WordNet's, except where two classes share one.
                agree = sum(
                    folded(category) in {folded(name) for name in item.names}
                    for category, item in names
                )
                assert agree >= 990, weights


def test_weights_are_chosen_by_name() -> None:
    def sizes(name: str, **options: Any) -> tuple[int, int]:
        model = load(name, pretrained=False, **options)
        return model.preprocessing.geometry.resize_height, model.preprocessing.geometry.crop_height

    assert sizes("resnet50") == (232, 224)
    assert sizes("resnet50.IMAGENET1K_V1") == (256, 224)
    assert sizes("resnet50.IMAGENET1K_V1") == (256, 224)
    with pytest.raises(NotFound, match="no weights 'V9' for resnet50: it has IMAGENET1K_V1, IMAG"):
        load("resnet50.V9")
    with pytest.raises(NotFound, match="torchvision has no classifier 'resnet51': it has resnet50"):
        load("resnet51")
    with pytest.raises(NotFound, match="no classifier 'fcn_resnet50'"):
        load("fcn_resnet50")


def test_what_is_no_classifier_is_refused() -> None:
    with pytest.raises(NotApplicable, match="x is not a classifier"):
        preset_preprocessing(torch.nn.Identity(), "x")
    with pytest.raises(
        NotApplicable, match="with the weights IMAGENET1K_FEATURES is not a classifie"
    ):
        load("vgg16.IMAGENET1K_FEATURES")


def test_models_of_other_resolutions_are_built_for_them() -> None:
    weights = torchvision.models.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1
    assert weights.meta["min_size"] == (384, 384)
    model = load("vit_b_16.IMAGENET1K_SWAG_E2E_V1", pretrained=False, device="cpu")
    answer = model(np.zeros((1, 384, 384, 3), np.uint8))
    assert answer.logits.shape == (1, 1000)
    assert answer.features is not None
    assert answer.features.shape == (1, 768)


def _cached(home: Path, seed: int) -> tuple[Any, Path]:
    torch.manual_seed(seed)
    reference = torchvision.models.shufflenet_v2_x0_5().eval()
    url = torchvision.models.ShuffleNet_V2_X0_5_Weights.DEFAULT.url
    path = home / url.rpartition("/")[2]
    torch.save(reference.state_dict(), path)
    return reference, path


def test_fetched_weights_are_found_in_the_cache(torch_home: Path) -> None:
    reference, _ = _cached(torch_home, 11)
    model = load("shufflenet_v2_x0_5", device="cpu")
    batch = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    with torch.inference_mode():
        assert_close(model(batch).logits, reference(model.prepare(batch)))
    _cached(torch_home, 12)
    other = load("shufflenet_v2_x0_5", device="cpu")
    assert other.name == model.name
    assert other.identity != model.identity


def test_fetched_weights_with_code_are_refused(
    tmp_path: Path, torch_home: Path, write_hostile: Callable[[Path], Path]
) -> None:
    _, path = _cached(torch_home, 1)
    write_hostile(path)
    with pytest.raises(UserError, match="the weights of torchvision:shufflenet_v2_x0_5 were refus"):
        load("shufflenet_v2_x0_5")
    assert not (tmp_path / "boom").exists()


def test_weights_that_cannot_be_fetched_are_one_line(
    torch_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "https"):  # nothing listens there
        monkeypatch.setenv(f"{scheme}_proxy", "http://127.0.0.1:9")
    with pytest.raises(UserError) as caught:
        load("shufflenet_v2_x0_5")
    assert "could not be fetched" in caught.value.line
    assert "--model-args checkpoint=FILE" in caught.value.line


def test_a_checkpoint_with_classes_of_its_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained = torchvision.models.shufflenet_v2_x0_5(num_classes=10)
    torch.save({"model": trained.state_dict()}, tmp_path / "best.pth")
    checkpoint = str(tmp_path / "best.pth")
    model = load("shufflenet_v2_x0_5", checkpoint=checkpoint, classes="cifar-10", device="cpu")
    assert model(np.zeros((2, 224, 224, 3), np.uint8)).logits.shape == (2, 10)
    with pytest.raises(BadFile, match=r"size mismatch for fc\.weight"):
        load("shufflenet_v2_x0_5", checkpoint=checkpoint)


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_models("torchvision:resnet1?") == ("torchvision:resnet18",)
    assert load_model("torchvision:squeezenet1_1", pretrained=False).name == (
        "torchvision:squeezenet1_1"
    )
    with pytest.raises(UserError, match="does not take the model arguments depth"):
        load_model("torchvision:squeezenet1_1", depth=3)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingExtra, match="needs the package torchvision, which is not installed"):
        load("resnet18")

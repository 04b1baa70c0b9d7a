from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pretrainedmodels
import pretrainedmodels.utils
import pytest
import torch

from heldout.core.errors import MissingExtra, NotFound, UserError
from heldout.data.images.preprocessing import pixels_of
from heldout.data.labels import LabelSpace
from heldout.models.adapters import list_models, load_model
from heldout.models.adapters.model import model_input
from heldout.models.adapters.torch_zoo import cadene_preprocessing
from heldout.models.adapters.torch_zoo import load_cadene as load
from tests.torch.conftest import assert_close

ARCHITECTURES = [
    "resnet18",
    "squeezenet1_1",
    "dpn68",  # its last layer is a convolution after the pooling
    "bninception",  # BGR, 0 to 255
    "nasnetamobile",
    "xception",  # 299, a scale of its own
]


def build(name: str, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        return getattr(pretrainedmodels, name)(num_classes=1000, pretrained=None).eval()


def transform_of(name: str, tag: str = "imagenet") -> Any:
    settings = pretrainedmodels.pretrained_settings[name][tag]
    return pretrainedmodels.utils.TransformImage(settings, scale=settings.get("scale", 0.875))


@pytest.mark.shared
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_those_of_the_package(name: str, photos: list[bytes], images: list[Any]) -> None:
    model = load(name, pretrained=False, seed=3, device="cpu")
    reference, transform = build(name, 3), transform_of(name)
    inputs = torch.stack([transform(image) for image in images[:4]])
    pixels = np.stack([pixels_of(data, model.preprocessing.geometry) for data in photos[:4]])
    assert torch.equal(model.prepare(pixels), inputs)
    answer = model(pixels)
    if name == "squeezenet1_1":  # its last layer is a convolution before the pooling
        assert answer.features is None
        with torch.inference_mode():
            assert_close(answer.logits, reference(inputs).flatten(1))
    else:
        seen: list[Any] = []
        reference.last_linear.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        with torch.inference_mode():
            assert_close(answer.logits, reference(inputs))
        assert answer.features is not None
        assert_close(answer.features, seen[0].flatten(1))
    assert model.label_space is LabelSpace.load("imagenet-1k")


@pytest.mark.shared
def test_every_preprocessing_of_the_package_is_bit_equal(
    photos: list[bytes], images: list[Any]
) -> None:
    place = 0
    for name, published in pretrainedmodels.pretrained_settings.items():
        for tag, settings in published.items():
            place = (place + 1) % len(photos)
            preprocessing = cadene_preprocessing(settings)
            mine = pixels_of(photos[place], preprocessing.geometry)
            assert isinstance(mine, np.ndarray)
            made = model_input(mine[None], preprocessing)[0]
            expected = transform_of(name, tag)(images[place]).numpy()
            np.testing.assert_array_equal(made, expected, err_msg=f"{name} {tag}")


def test_fetched_weights_are_found_in_the_cache(torch_home: Path) -> None:
    reference = build("resnet18", 11)
    url = pretrainedmodels.pretrained_settings["resnet18"]["imagenet"]["url"]
    path = torch_home / url.rpartition("/")[2]
    names = {"last_linear.weight": "fc.weight", "last_linear.bias": "fc.bias"}
    state = {names.get(name, name): value for name, value in reference.state_dict().items()}
    torch.save(state, path)
    model = load("resnet18", device="cpu")
    batch = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    with torch.inference_mode():
        assert_close(model(batch).logits, reference(model.prepare(batch)))


def test_fetched_weights_with_code_are_refused(
    tmp_path: Path, torch_home: Path, write_hostile: Callable[[Path], Path]
) -> None:
    url = pretrainedmodels.pretrained_settings["resnet18"]["imagenet"]["url"]
    write_hostile(torch_home / url.rpartition("/")[2])
    with pytest.raises(UserError, match="the weights of cadene:resnet18 were refused"):
        load("resnet18")
    assert not (tmp_path / "boom").exists()


def test_another_checkpoint_is_another_model(tmp_path: Path) -> None:
    identities = []
    for seed in (1, 2):
        torch.save(build("squeezenet1_1", seed).state_dict(), tmp_path / "best.pth")
        identities.append(load("squeezenet1_1", checkpoint=str(tmp_path / "best.pth")).identity)
    assert identities[0] != identities[1]


def test_names_and_mistakes_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cadene:resnet152" in list_models("cadene:resnet*")
    assert load_model("cadene:squeezenet1_1", pretrained=False).name == "cadene:squeezenet1_1"
    with pytest.raises(NotFound, match="no model cadene:resnet19: it has resnet1"):
        load("resnet19")
    monkeypatch.setitem(sys.modules, "pretrainedmodels", None)
    with pytest.raises(MissingExtra, match=r"pip install 'heldout\[cadene\]'"):
        load("resnet18")

"""What ``predict_cpu.py`` runs on: image files, a test set over them, models in torch and as ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

CORES = 2


def make_photos(folder: Path, count: int) -> None:
    """JPEGs of about 110 kB: smooth noise of several octaves with grain, 500 x 375 and 375 x 500."""
    from PIL import Image

    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        size = (500, 375) if rng.random() < 0.7 else (375, 500)
        total = np.full((size[1], size[0], 3), 128.0) + rng.normal(0, 12, (size[1], size[0], 3))
        for cells, strength in ((3, 60), (8, 40), (25, 25), (80, 12)):
            grid = (128 + 40 * rng.normal(0, 1, (cells, cells, 3))).clip(0, 255).astype(np.uint8)
            layer = Image.fromarray(grid).resize(size, Image.Resampling.BICUBIC)
            total += strength / 40 * (np.asarray(layer, float) - 128)
        image = Image.fromarray(total.clip(0, 255).astype(np.uint8))
        image.save(folder / f"{number:04d}.jpg", quality=94)


def testset(folder: Path, count: int) -> Any:
    """A test set of ``count`` images: the files of ``folder`` in order, listed again as needed."""
    from heldout.core.files import sha256_file
    from heldout.data.labels import LabelSpace
    from heldout.data.testset import Card, image_table, make_testset, truth_table

    space = LabelSpace.load("imagenet-1k")
    files = listed(folder, count)
    digests = {file: sha256_file(file) for file in set(files)}
    ids = [f"{place:05d}" for place in range(count)]
    return make_testset(
        Card(name="photos-1", label_space=space.name),
        images=image_table(
            {
                "image_id": ids,
                "path": [file.name for file in files],
                "sha256": [digests[file] for file in files],
            }
        ),
        truths={"original": truth_table(ids, [space.ids[0]] * count)},
        label_space=space,
    )


def listed(folder: Path, count: int) -> list[Path]:
    """``count`` image files: those of ``folder`` in order, again and again."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpeg", ".jpg"))
    return [files[place % len(files)] for place in range(count)]


def import_torchvision() -> Any:
    """torchvision; beside a CPU build of torch its C++ operators may be missing: declare them."""
    import torch

    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_torchvision.kept = library  # type: ignore[attr-defined]
        import torchvision
    return torchvision


def torch_module(name: str, folder: Path) -> Any:
    """The torch module of a model, with the weights that heldout's has."""
    import torch

    if name == "lite0":
        from efficientnet_lite_pytorch import EfficientNet

        from heldout.models.adapters.efficientnet_lite import weights_path

        module = EfficientNet.from_name("efficientnet-lite0")
        module.load_state_dict(torch.load(weights_path("lite0"), weights_only=True))
        return module.eval()
    module = import_torchvision().models.resnet50()
    module.load_state_dict(torch.load(folder / "resnet50.pt", weights_only=True))
    return module.eval()


def torch_transform(preprocessing: Any) -> Any:
    """timm's evaluation transform of a heldout preprocessing."""
    import_torchvision()
    from timm.data import create_transform

    geometry, scale = preprocessing.geometry, preprocessing.scale / 255
    return create_transform(
        input_size=(3, geometry.crop_height, geometry.crop_width),
        interpolation=geometry.interpolation,
        crop_pct=geometry.crop_height / geometry.resize_height,
        mean=[scale * value for value in preprocessing.mean],
        std=[scale * value for value in preprocessing.std],
    )


def write_models(folder: Path, photos: Path) -> None:
    """ResNet-50 (random weights) for torch and as ONNX; lite0 again as ONNX under another name.

    BatchNorm gets the statistics of a few photos, so that activations have the sizes that those
    of a trained network have.
    """
    import torch
    from PIL import Image

    from heldout.data.images.preprocessing import Geometry, Preprocessing
    from heldout.models.adapters.efficientnet_lite import VARIANTS, onnx_bytes
    from resnet50_onnx import resnet50_onnx

    torch.manual_seed(0)
    torch.set_num_threads(CORES)
    module = import_torchvision().models.resnet50()
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    usual = Preprocessing(geometry=Geometry(interpolation="bilinear"))
    transform = torch_transform(usual)
    with torch.no_grad():
        images = [Image.open(path).convert("RGB") for path in listed(photos, 16)]
        module.train()(torch.stack([transform(image) for image in images]))
    torch.save(module.state_dict(), folder / "resnet50.pt")
    weights = {key: value.numpy() for key, value in module.state_dict().items()}
    lite = VARIANTS["lite0"].preprocessing
    for name, graph, stated in (
        ("resnet50", resnet50_onnx(weights), usual),
        ("second", onnx_bytes("lite0"), Preprocessing(geometry=lite.geometry)),
    ):
        (folder / f"{name}.onnx").write_bytes(graph)
        sidecar = {
            "schema_version": 1,
            "name": name,
            "label_space": "imagenet-1k",
            "preprocessing": stated.to_dict(),
        }
        (folder / f"{name}.json").write_text(json.dumps(sidecar), encoding="utf-8")


def heldout_model(name: str, folder: Path) -> Any:
    from heldout.models.adapters import load_model

    return load_model("lite0" if name == "lite0" else f"onnx:{folder / name}.onnx")

"""Preprocessing is bit-equal with torchvision's on Pillow images, and with timm's."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from torchvision import transforms

from heldout.data.images import BadImage, Geometry, Preprocessing, decode, normalise, pixels_of
from heldout.models.adapters.torch_zoo import timm_preprocessing

ODD_SIZES = [
    (224, 224),
    (256, 256),
    (257, 255),
    (100, 80),
    (31, 100),
    (90, 7),
    (1, 1),
    (225, 999),
    (1023, 768),
    (2000, 301),
]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="session")
def files(shared_data: Path) -> dict[str, bytes]:
    """Forty photographs, and noise of odd sizes, as PNG so that it is the same everywhere."""
    found = {
        path.name: path.read_bytes()
        for path in sorted((shared_data / "photos").glob("*.JPEG"))[::5]
    }
    assert len(found) == 40
    dice = np.random.default_rng(0)
    for width, height in ODD_SIZES:
        buffer = io.BytesIO()
        noise = dice.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(buffer, "PNG")
        found[f"{width}x{height}"] = buffer.getvalue()
    return found


def opened(data: bytes) -> Image.Image:
    """As torchvision's and timm's datasets open an image."""
    with io.BytesIO(data) as handle:
        return Image.open(handle).convert("RGB")


def ours(data: bytes, preprocessing: Preprocessing) -> np.ndarray:
    pixels = pixels_of(data, preprocessing.geometry)
    assert not isinstance(pixels, BadImage), pixels
    return normalise(pixels[None], preprocessing)[0]


def assert_same(files: dict[str, bytes], transform: Any, preprocessing: Preprocessing) -> None:
    for name, data in files.items():
        theirs = transform(opened(data)).numpy()
        np.testing.assert_array_equal(ours(data, preprocessing), theirs, err_msg=name)


def test_decoding_is_theirs(files: dict[str, bytes]) -> None:
    for name, data in files.items():
        image = decode(data)
        assert not isinstance(image, BadImage)
        np.testing.assert_array_equal(np.asarray(image), np.asarray(opened(data)), err_msg=name)


@pytest.mark.parametrize("interpolation", ["nearest", "lanczos", "box", "hamming"])
def test_torchvision_other_filters(files: dict[str, bytes], interpolation: str) -> None:
    some = dict(list(files.items())[::3])
    test_torchvision(some, interpolation, 256, 224)
    test_torchvision(some, interpolation, 40, 33)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("resize", "crop"), [(256, 224), (232, 224), (299, 299), (342, 299), (128, 200), (40, 33)]
)
def test_torchvision(files: dict[str, bytes], interpolation: str, resize: int, crop: int) -> None:
    """Resize to a shorter side, centre crop (with padding where the crop is larger)."""
    mode = transforms.InterpolationMode(interpolation)
    transform = transforms.Compose(
        [
            transforms.Resize(resize, interpolation=mode),
            transforms.CenterCrop(crop),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    geometry = Geometry(
        resize_height=resize,
        interpolation=interpolation,  # type: ignore[arg-type]
        crop_height=crop,
        crop_width=crop,
    )
    assert_same(files, transform, Preprocessing(geometry=geometry, mean=MEAN, std=STD))


@pytest.mark.parametrize(("height", "width"), [(224, 224), (225, 96), (1, 400), (700, 701)])
def test_torchvision_crop_without_resize(files: dict[str, bytes], height: int, width: int) -> None:
    transform = transforms.Compose(
        [
            transforms.CenterCrop((height, width)),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    geometry = Geometry(resize="none", crop_height=height, crop_width=width)
    assert_same(files, transform, Preprocessing(geometry=geometry, mean=MEAN, std=STD))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(150, 300), (64, 64)])
def test_torchvision_exact(
    files: dict[str, bytes], interpolation: str, size: tuple[int, int]
) -> None:
    mode = transforms.InterpolationMode(interpolation)
    transform = transforms.Compose(
        [
            transforms.Resize(size, interpolation=mode),
            transforms.CenterCrop(64),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    geometry = Geometry(
        resize="exact",
        resize_height=size[0],
        resize_width=size[1],
        interpolation=interpolation,  # type: ignore[arg-type]
        crop_height=64,
        crop_width=64,
    )
    assert_same(files, transform, Preprocessing(geometry=geometry, mean=MEAN, std=STD))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("crop_pct", [0.875, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("crop_mode", ["center", "squash"])
@pytest.mark.parametrize("size", [224, 299])
def test_timm(
    files: dict[str, bytes], interpolation: str, crop_pct: float, crop_mode: str, size: int
) -> None:
    config = {
        "input_size": (3, size, size),
        "interpolation": interpolation,
        "mean": (0.5, 0.48, 0.46),
        "std": (0.27, 0.26, 0.25),
        "crop_pct": crop_pct,
        "crop_mode": crop_mode,
    }
    transform = create_transform(**config, is_training=False)
    assert_same(files, transform, timm_preprocessing(config, "a model"))


@pytest.mark.parametrize("mean", [MEAN, (0.5, 0.5, 0.5), (0.48145466, 0.4578275, 0.40821073)])
@pytest.mark.parametrize("std", [STD, (0.5, 0.5, 0.5), (0.26862954, 0.26130258, 0.27577711)])
def test_every_value_of_every_channel(
    mean: tuple[float, float, float], std: tuple[float, float, float]
) -> None:
    """All 256 values, through the operations of ToTensor and Normalize."""
    values = np.arange(256, dtype=np.uint8)
    image = np.stack([values, values, values], axis=-1)[None]  # one row
    theirs = transforms.Normalize(mean, std)(transforms.ToTensor()(image))
    for layout in ("NCHW", "NHWC"):
        made = Preprocessing(mean=mean, std=std, layout=layout)  # type: ignore[arg-type]
        got = normalise(image[None], made)[0]
        got = got if layout == "NCHW" else got.transpose(2, 0, 1)
        np.testing.assert_array_equal(got, theirs.numpy())
    assert theirs.dtype == torch.float32

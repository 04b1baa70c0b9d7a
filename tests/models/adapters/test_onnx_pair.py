from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from heldout.core.errors import BadFile, MismatchError, NotFound, UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.adapters import Encoder, load_encoder
from heldout.models.adapters.model import model_input, unit_rows
from heldout.models.adapters.onnx_file import GraphWriter, Value
from heldout.models.adapters.onnx_pair import example_pair

SIDE, LENGTH, WIDTH = 4, 5, 3
WORDS = ["[PAD]", "[UNK]", "a", "red", "dog"]
PREPROCESSING = Preprocessing(
    geometry=Geometry(
        resize="exact",
        resize_height=SIDE,
        resize_width=SIDE,
        crop_height=SIDE,
        crop_width=SIDE,
    )
)


def image_graph(width: int = WIDTH) -> bytes:
    """Mean colours times a matrix."""
    graph = GraphWriter("image")
    pooled = graph.node("GlobalAveragePool", "pixel_values", output="pooled")
    flat = graph.node("Flatten", pooled, output="flat", axis=1)
    matrix = np.random.default_rng(0).standard_normal((3, width)).astype(np.float32)
    graph.node("MatMul", flat, graph.constant("matrix", matrix), output="image_embeds")
    return graph.model(
        [Value("pixel_values", ("n", 3, SIDE, SIDE))], [Value("image_embeds", ("n", width))]
    )


def word_vectors() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((len(WORDS), WIDTH)).astype(np.float32)


def text_graph(*, masked: bool, tokens: str = "int64") -> bytes:
    """The sum of word vectors; with a mask, of words that are there."""
    graph = GraphWriter("text")
    table = graph.constant("table", word_vectors())
    found = graph.node("Gather", table, "input_ids", output="found")
    inputs = [Value("input_ids", ("n", LENGTH), tokens)]
    if masked:
        inputs.append(Value("attention_mask", ("n", LENGTH), "int64"))
        flags = graph.node("Cast", "attention_mask", output="flags", to=1)
        axes = graph.constant("last", np.array([2], np.int64))
        flags = graph.node("Unsqueeze", flags, axes, output="wide")
        found = graph.node("Mul", found, flags, output="kept")
    graph.node("ReduceMean", found, output="text_embeds", axes=(1,), keepdims=0)
    return graph.model(inputs, [Value("text_embeds", ("n", WIDTH))])


def sidecar(**changes: Any) -> dict[str, Any]:
    made = {
        "schema_version": 1,
        "preprocessing": PREPROCESSING.to_dict(),
        "scale": 50,
        "context_length": LENGTH,
    }
    return {key: value for key, value in {**made, **changes}.items() if value is not None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    made = tmp_path / "pair"
    made.mkdir()
    tokenizer.save(str(made / "tokenizer.json"))
    (made / "image.onnx").write_bytes(image_graph())
    (made / "text.onnx").write_bytes(text_graph(masked=True))
    (made / "encoder.json").write_text(json.dumps(sidecar()))
    return made


@pytest.mark.parametrize("masked", [True, False])
def test_vectors_are_what_the_graphs_give(folder: Path, masked: bool) -> None:
    (folder / "text.onnx").write_bytes(text_graph(masked=masked))
    encoder = load_encoder(f"onnx-pair:{folder}")
    assert isinstance(encoder, Encoder)
    assert (encoder.dimension, encoder.scale, encoder.name) == (WIDTH, 50.0, "onnx-pair:pair")
    pixels = np.random.default_rng(2).integers(0, 256, (7, SIDE, SIDE, 3), np.uint8)
    matrix = np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)
    means = model_input(pixels, PREPROCESSING).mean(axis=(2, 3))
    np.testing.assert_allclose(
        encoder.encode_images(pixels), unit_rows(means @ matrix), rtol=1e-4, atol=1e-6
    )
    table = word_vectors().astype(np.float64)
    expected = []
    for ids in ([2, 3, 4], [4], [2, 1], [2, 2, 2, 2, 2]):
        padded = ids if masked else ids + [0] * (LENGTH - len(ids))
        expected.append(table[padded].sum(axis=0))
    texts = ["a red dog", "dog", "a cat", "a a a a a a dog"]  # an unknown word; one too long
    found = encoder.encode_texts(texts)
    np.testing.assert_allclose(found, unit_rows(np.array(expected)), rtol=1e-4, atol=1e-6)
    for row, text in enumerate(texts):
        np.testing.assert_array_equal(encoder.encode_texts([text])[0], found[row])


def test_identity_follows_weights_tokenizer_and_length(folder: Path) -> None:
    before = load_encoder(f"onnx-pair:{folder}").identity
    (folder / "encoder.json").write_text(json.dumps(sidecar(name="mine", pad_id=1)))
    named = load_encoder(f"onnx-pair:{folder}")
    assert named.name == "mine"
    assert named.identity != before
    assert {key: named.identity[key] for key in ("image", "text", "tokenizer")} == {
        key: before[key] for key in ("image", "text", "tokenizer")
    }


def test_a_missing_sidecar_is_an_error_that_shows_how_to_write_it(folder: Path) -> None:
    (folder / "encoder.json").unlink()
    with pytest.raises(NotFound) as caught:
        load_encoder(f"onnx-pair:{folder}")
    shown = caught.value.line[caught.value.line.index("{") :]
    assert json.loads(shown) == json.loads(example_pair())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale": None}, "missing required field scale"),
        ({"scale": "x"}, "scale: Expected float, got str"),
        ({"scale": 0}, "scale: Expected float > 0"),
        ({"context_length": 2.5}, "context_length: Expected int, got float"),
        ({"preprocessing": {"resize": "exact"}}, "does not state"),
        ({"temperature": 1}, "unknown field"),
        ({"text_input": 3}, "text_input: Expected str"),
    ],
)
def test_a_bad_sidecar_is_refused(folder: Path, changes: dict[str, Any], words: str) -> None:
    (folder / "encoder.json").write_text(json.dumps(sidecar(**changes)))
    with pytest.raises(BadFile, match=words):
        load_encoder(f"onnx-pair:{folder}")


def test_what_is_missing_or_does_not_fit_is_refused(folder: Path) -> None:
    (folder / "image.onnx").write_bytes(image_graph(width=2))
    with pytest.raises(MismatchError, match="images have 2 numbers, texts 3"):
        load_encoder(f"onnx-pair:{folder}")
    (folder / "image.onnx").write_bytes(image_graph())
    (folder / "encoder.json").write_text(json.dumps(sidecar(context_length=LENGTH + 1)))
    with pytest.raises(UserError, match="cannot run"):
        load_encoder(f"onnx-pair:{folder}")
    (folder / "encoder.json").write_text(json.dumps(sidecar(text_input="words")))
    with pytest.raises(UserError, match="no text_input 'words'"):
        load_encoder(f"onnx-pair:{folder}")
    (folder / "encoder.json").write_text(json.dumps(sidecar()))
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BadFile, match="not a tokenizer"):
        load_encoder(f"onnx-pair:{folder}")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(NotFound, match="has no tokenizer"):
        load_encoder(f"onnx-pair:{folder}")
    with pytest.raises(NotFound):
        load_encoder(f"onnx-pair:{folder}/none")

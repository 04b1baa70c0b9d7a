"""MiniLM and ConSE with their real weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile, LabelError, NotFound
from heldout.data.images.preprocessing import pixels_of
from heldout.data.labels import Hierarchy, LabelSpace
from heldout.models.adapters import Encoder, Model, load_encoder, load_model
from heldout.models.adapters.prompts import class_texts
from heldout.models.adapters.text_encoders import (
    FILES,
    HEADS,
    LAYERS,
    ClassNameEncoder,
    MiniLM,
    read_safetensors,
    weights_folder,
)
from tests.models.adapters.bert_oracle import sentence_vector

TEXTS = ["a cat", "dog, domestic dog, Canis familiaris", "the stock market fell", "café ☕", ""]


@pytest.fixture(scope="module")
def text() -> MiniLM:
    return MiniLM()


@pytest.fixture(scope="module")
def conse(text: MiniLM) -> ClassNameEncoder:
    model = load_model("lite0")
    assert isinstance(model, Model)
    return ClassNameEncoder(model, text, name="conse:lite0")


def test_vectors_equal_a_plain_transformer_of_the_same_weights(text: MiniLM) -> None:
    weights = read_safetensors(weights_folder() / "model.safetensors")
    for vector, entry in zip(text(TEXTS), text._tokenizer.encode_batch(TEXTS), strict=True):
        expected = sentence_vector(weights, entry.ids, layers=LAYERS, heads=HEADS)
        np.testing.assert_allclose(vector, expected, atol=2e-6)


def test_published_similarities_of_sentences(text: MiniLM) -> None:
    """Near texts are near and far ones far, whatever the last bits."""
    cat, dog, market = text(["a photo of a cat", "a photo of a kitten", "stocks fell on Monday"])
    assert float(cat @ dog) > 0.7 > 0.2 > float(cat @ market)


def test_a_vector_does_not_depend_on_the_texts_beside_it(text: MiniLM) -> None:
    together = text(TEXTS)
    for row, alone in enumerate(TEXTS):
        np.testing.assert_array_equal(text([alone])[0], together[row])
    np.testing.assert_array_equal(text(TEXTS[::-1])[::-1], together)
    assert text([]).shape == (0, 384)


def test_a_long_text_is_cut(text: MiniLM) -> None:
    long = "word " * 400
    np.testing.assert_array_equal(text([long]), text([long + "and more"]))


def test_arrays_of_a_safetensors_file_are_read(tmp_path: Path) -> None:
    numbers, ids = np.arange(6, dtype="<f4").reshape(2, 3), np.array([7], "<i8")
    header = {
        "__metadata__": {"format": "pt"},
        "ids": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]},
        "m": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers.tobytes() + ids.tobytes())
    found = read_safetensors(path)
    np.testing.assert_array_equal(found["m"], numbers)
    assert found["ids"].tolist() == [7]


def test_files_that_are_not_the_published_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no .*model\.safetensors"):
        MiniLM(tmp_path)
    for name in FILES:
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(BadFile, match="not the published file"):
        MiniLM(tmp_path)


def test_an_image_is_the_weighted_mean_of_its_ten_classes(
    conse: ClassNameEncoder, text: MiniLM
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8)
    model = load_model("lite0")
    assert isinstance(model, Model)
    names = class_texts(LabelSpace.load("imagenet-1k"), "lemmas")
    answers = model(pixels).logits.astype(np.float64)
    for logits, vector in zip(answers, conse.encode_images(pixels), strict=True):
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        top = np.argsort(-shares)[:10]
        mean = sum(shares[place] * text([names[place]])[0].astype(np.float64) for place in top)
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


def test_it_is_an_encoder_with_an_identity_of_its_parts(conse: ClassNameEncoder) -> None:
    assert isinstance(conse, Encoder)
    assert (conse.dimension, conse.scale) == (384, 20.0)
    assert conse.identity["classifier"]["adapter"] == "lite"
    assert set(FILES) < set(conse.identity["text"])
    np.testing.assert_array_equal(conse.encode_texts(["x"]), conse.encode_texts(["x", "y"])[:1])


def test_names_of_conse(tmp_path: Path) -> None:
    found = load_encoder("conse:lite1")
    assert found.name == "conse:lite1"
    assert found.preprocessing.geometry.crop_height == 240
    with pytest.raises(NotFound):
        load_encoder("conse:lite9")


@pytest.mark.shared
def test_photos_are_labelled_among_some_thousand_classes(
    conse: ClassNameEncoder, shared_data: Path
) -> None:
    """A third of the shared photographs; the classes above them and 2,000 others. All 21,843 are a
    matter of minutes: benchmarks/zero_shot.py."""
    space = LabelSpace.load("imagenet-21k")
    photos = sorted((shared_data / "photos").iterdir())[::3]
    hierarchy = Hierarchy.wordnet()
    truths = [photo.name.split("_")[0] for photo in photos]
    near = {relative for truth in truths for relative in hierarchy.ancestors(truth)[:6]}
    chosen = sorted({*truths, *near, *space.ids[::11]} & set(space.ids))
    texts = class_texts(space.subset("some", chosen), "lemmas")
    matrix = conse.encode_texts(texts)
    right = 0
    for photo, truth in zip(photos, truths, strict=True):
        pixels = pixels_of(photo.read_bytes(), conse.preprocessing.geometry)
        assert isinstance(pixels, np.ndarray)
        best = chosen[int((matrix @ conse.encode_images(pixels[None])[0]).argmax())]
        right += best == truth
    assert right / len(photos) >= 0.8


def test_a_label_space_without_names_still_has_texts() -> None:
    assert class_texts(LabelSpace.from_ids("x", ["n1", "n2"]), "lemmas") == ("n1", "n2")
    with pytest.raises(LabelError):
        class_texts(LabelSpace.from_ids("x", ["n1"]), "openai")

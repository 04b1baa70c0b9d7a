"""Out of vocabulary with encoders of our own making: what is there, what is not, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.errors import BadFile, MismatchError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.measure.mistakes.categories import Wording, propose
from heldout.measure.mistakes.evidence import OutOfVocabulary, Vectors, typicality
from heldout.models.adapters.model import Encoder
from heldout.models.embeddings import Embeddings, read_embeddings, write_embeddings
from tests.measure.mistakes.evidence_case import (
    IDS,
    PETS,
    TREE,
    as_table,
    evidence,
    knowledge,
    mistake,
)

WORDS = (*IDS, "dog", "cat", "pet", "thing", "collie")
NAMES = {word: word for word in WORDS}


class WordEncoder:
    """Every word is a direction of its own; an image of one grey shows the word of that number."""

    name = "words"
    dimension = len(WORDS)
    scale = 100.0
    identity: Mapping[str, Any] = {"adapter": "test"}

    def __init__(self) -> None:
        geometry = Geometry(
            resize="exact", resize_height=8, resize_width=8, crop_height=8, crop_width=8
        )
        self.preprocessing = Preprocessing(geometry=geometry)

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        places = pixels.reshape(len(pixels), -1).mean(axis=1).round().astype(int) % len(WORDS)
        found: np.ndarray = np.eye(len(WORDS), dtype=np.float32)[places]
        return found

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        found = np.zeros((len(texts), len(WORDS)), dtype=np.float32)
        for row, text in enumerate(texts):
            word = text.removeprefix("a photo of a ").removesuffix(".")
            found[row, WORDS.index(word)] = 1.0
        return found


def _shows(*words: str) -> Vectors:
    """An image for each word, named after it."""
    return _vectors(words, np.eye(len(WORDS))[[WORDS.index(word) for word in words]])


def _vectors(names: Sequence[str], values: np.ndarray) -> Vectors:
    return Vectors(Embeddings(names, values))


def _outsiders(images: Vectors, **options: Any) -> OutOfVocabulary:
    encode = options.get("encode", WordEncoder().encode_texts)
    return OutOfVocabulary(space=PETS, hierarchy=TREE, names=NAMES, images=images, encode=encode)


def test_the_encoder_of_these_tests_is_one() -> None:
    assert isinstance(WordEncoder(), Encoder)


def test_a_collie_is_no_class_and_looks_like_a_pug() -> None:
    known = _outsiders(_shows("collie", "boxer", "pug", "dog"))
    mistakes = [mistake(image, "pug", "sofa") for image in ("collie", "boxer", "pug", "elsewhere")]
    shares, best = known.compare(as_table(mistakes))
    assert shares[:3] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6) and np.isnan(shares[3])
    assert best.tolist() == ["collie", "collie", "collie", None]


def test_what_is_over_a_class_or_a_right_label_is_no_outsider() -> None:
    known = _outsiders(_shows("dog"))
    inside, outside = known._candidates(mistake("dog", "pug", "sofa"))
    assert set(inside) == {"pug", "sofa", "beagle", "boxer"} and outside == ("collie",)
    far = known._candidates(mistake("dog", "sofa", "pug"))
    assert set(far[0]) == {"sofa", "pug", "leash"} and far[1] == ()


def test_the_category_follows() -> None:
    known = knowledge(outsiders=_outsiders(_shows("collie", "pug")))
    found = propose(
        evidence([mistake("collie", "pug", "sofa"), mistake("pug", "pug", "sofa")], known)
    )
    assert [p.category for p in found] == ["Fine-grained error with OOV", "Other"]
    assert found[0].evidence[0].text.endswith("most with collie")
    table = evidence([mistake("collie", "pug", "sofa")], known)
    assert Wording(table).say("outside_share", 0) is not None


def test_texts_encoded_before() -> None:
    texts = [f"a photo of a {word}." for word in WORDS]
    before = _vectors(texts, WordEncoder().encode_texts(texts))
    table = as_table([mistake("collie", "pug", "sofa")])
    known = _outsiders(_shows("collie"), encode=before.encode)
    assert known.compare(table)[0][0] == pytest.approx(1.0)
    few = _vectors(texts[:1], before.values[:1])
    with pytest.raises(MismatchError, match="texts have no vector"):
        _outsiders(_shows("collie"), encode=few.encode).compare(table)


def test_vectors_of_another_space() -> None:
    known = _outsiders(_vectors(("x",), np.ones((1, 3))))
    with pytest.raises(MismatchError, match="dimension"):
        known.compare(as_table([mistake("x", "pug", "sofa")]))


def test_files_of_vectors(tmp_path: Path) -> None:
    """Files of image_ids or texts, and the folders that ``heldout annotate`` writes."""
    values = np.array([[3.0, 4.0], [0.0, 2.0], [np.nan, 1.0], [0.0, 0.0]])
    names = ["a", "b", "unread", "dark"]
    path = tmp_path / "v.npz"
    for kind in ("image_ids", "texts", "ids"):
        np.savez(path, vectors=values, **{kind: np.array(names)})
        found = Vectors(read_embeddings(path))
        assert found.values[:2] == pytest.approx(np.array([[0.6, 0.8], [0.0, 1.0]]))
        assert found.rows(["b", "z", "unread", "dark"]).tolist() == [1, -1, -1, -1]
    write_embeddings(tmp_path / "v", Embeddings(names, values.astype(np.float32)))
    assert Vectors(read_embeddings(tmp_path / "v")).rows(["b", "z"]).tolist() == [1, -1]
    np.savez(path, vectors=values)
    with pytest.raises(BadFile, match="lacks the arrays"):
        read_embeddings(path)


def test_typicality_is_closeness_to_the_others() -> None:
    values = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [1.0, 0.0]])
    found = typicality(
        _vectors(("a", "b", "c", "alone"), values), {"a": "x", "b": "x", "c": "x", "alone": "y"}
    )
    assert set(found) == {"a", "b", "c"}
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    for place, name in enumerate("abc"):
        rest = np.delete(unit[:3], place, axis=0).sum(axis=0)
        assert found[name] == pytest.approx(
            float(unit[place] @ rest / np.linalg.norm(rest)), abs=1e-6
        )
    assert found["c"] < found["a"] and found["c"] < found["b"]

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
from heldout.measure.mistakes.evidence import (
    OutOfVocabulary,
    Vectors,
    evidence_table,
    image_vectors,
    read_vectors,
    texts_from,
    typicality,
)
from heldout.models.adapters.model import Encoder
from tests.measure.mistakes.evidence_case import IDS, PETS, TREE, knowledge, mistake
from tests.models.predictions.running_case import make_set

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
    return Vectors(words, np.eye(len(WORDS), dtype=np.float32)[[WORDS.index(w) for w in words]])


def _outsiders(images: Vectors) -> OutOfVocabulary:
    return OutOfVocabulary.of_encoder(
        WordEncoder(), images, space=PETS, hierarchy=TREE, names=NAMES
    )


def test_the_encoder_of_these_tests_is_one() -> None:
    assert isinstance(WordEncoder(), Encoder)


def test_a_collie_is_no_class_and_looks_like_a_pug() -> None:
    known = _outsiders(_shows("collie", "boxer", "pug", "dog"))
    mistakes = [mistake(image, "pug", "sofa") for image in ("collie", "boxer", "pug", "elsewhere")]
    shares = known.shares(mistakes)
    assert shares[:3] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6) and np.isnan(shares[3])
    best = known.best(mistakes)
    assert best["collie", "pug"].name == "collie" and best["collie", "pug"].share > 0.99
    assert ("elsewhere", "pug") not in best


def test_what_is_over_a_class_or_a_right_label_is_no_outsider() -> None:
    known = _outsiders(_shows("dog"))
    inside, outside = known._candidates(mistake("dog", "pug", "sofa"))
    assert set(inside) == {"pug", "sofa", "beagle", "boxer"} and outside == ("collie",)
    far = known._candidates(mistake("dog", "sofa", "pug"))
    assert set(far[0]) == {"sofa", "pug", "leash"} and far[1] == ()


def test_the_category_follows() -> None:
    known = knowledge(outsiders=_outsiders(_shows("collie", "pug")))
    found = propose([mistake("collie", "pug", "sofa"), mistake("pug", "pug", "sofa")], known)
    assert [p.category for p in found] == ["Fine-grained error with OOV", "Other"]
    assert found[0].evidence[0].text.endswith("most with collie")
    table = evidence_table([mistake("collie", "pug", "sofa")], known)
    assert Wording(table).say("outside_share", 0) is not None


def test_texts_encoded_before() -> None:
    texts = [f"a photo of a {word}." for word in WORDS]
    before = Vectors(tuple(texts), WordEncoder().encode_texts(texts))
    known = OutOfVocabulary(
        space=PETS, hierarchy=TREE, names=NAMES, images=_shows("collie"), encode=texts_from(before)
    )
    assert known.shares([mistake("collie", "pug", "sofa")])[0] == pytest.approx(1.0)
    few = Vectors((texts[0],), before.values[:1])
    known = OutOfVocabulary(
        space=PETS, hierarchy=TREE, names=NAMES, images=_shows("collie"), encode=texts_from(few)
    )
    with pytest.raises(MismatchError, match="texts have no vector"):
        known.shares([mistake("collie", "pug", "sofa")])


def test_vectors_of_another_space() -> None:
    known = _outsiders(Vectors(("x",), np.ones((1, 3), dtype=np.float32)))
    with pytest.raises(MismatchError, match="dimension"):
        known.shares([mistake("x", "pug", "sofa")])


def test_files_of_vectors(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    np.savez(path, image_ids=np.array(["a", "b"]), vectors=np.array([[3.0, 4.0], [0.0, 2.0]]))
    found = read_vectors(path, names="image_ids")
    assert found.names == ("a", "b") and found.values == pytest.approx(
        np.array([[0.6, 0.8], [0.0, 1.0]])
    )
    assert found.rows(["b", "z"]).tolist() == [1, -1]
    with pytest.raises(BadFile, match="texts"):
        read_vectors(path, names="texts")
    (tmp_path / "x.npz").write_bytes(b"no")
    with pytest.raises(BadFile):
        read_vectors(tmp_path / "x.npz", names="texts")
    for values in (np.zeros((2, 2)), np.full((2, 2), np.nan), np.ones((3, 2))):
        with pytest.raises(MismatchError):
            Vectors(("a", "b"), values)


def test_images_are_read_once_and_bad_ones_left_out(tmp_path: Path) -> None:
    testset = make_set(tmp_path, images=9, broken=(4,))
    ids = testset.image_ids.to_pylist()
    seen: list[tuple[int, int]] = []
    found = image_vectors(
        WordEncoder(), testset, [*ids, ids[0], "foreign"], batch=4,
        show=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    assert sorted(found.names) == sorted(set(ids) - {ids[4]})
    assert seen == [(4, 9), (8, 9), (9, 9)]
    again = image_vectors(WordEncoder(), testset, ids, batch=9)
    assert again.values.tolist() == found.values.tolist()


def test_typicality_is_closeness_to_the_others() -> None:
    values = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [1.0, 0.0]])
    found = typicality(
        Vectors(("a", "b", "c", "alone"), values), {"a": "x", "b": "x", "c": "x", "alone": "y"}
    )
    assert set(found) == {"a", "b", "c"}
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    for place, name in enumerate("abc"):
        rest = np.delete(unit[:3], place, axis=0).sum(axis=0)
        assert found[name] == pytest.approx(
            float(unit[place] @ rest / np.linalg.norm(rest)), abs=1e-6
        )
    assert found["c"] < found["a"] and found["c"] < found["b"]

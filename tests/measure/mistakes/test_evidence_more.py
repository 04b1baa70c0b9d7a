"""Tests of :mod:`heldout.measure.mistakes.evidence`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from heldout.core.errors import UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.testset import Card, TestSet, image_table, make_testset
from heldout.data.testset.tables import truth_table
from heldout.measure.mistakes.categories import (
    Wording,
    propose,
)
from heldout.measure.mistakes.evidence import (
    OutOfVocabulary,
    gather_knowledge,
    read_prototypes,
)
from heldout.measure.mistakes.verdicts import mistakes_at
from heldout.models.adapters.model import Encoder
from heldout.models.embeddings import Embeddings
from tests.measure.mistakes.evidence_case import (
    IDS,
    PETS,
    TREE,
    as_table,
    evidence,
    knowledge,
    mistake,
)

# Out of vocabulary with encoders of our own making: what is there, what is not, what is missing.


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


def _outsiders(*words: str) -> OutOfVocabulary:
    """With an image for each word, named after it."""
    images = Embeddings(words, np.eye(len(WORDS))[[WORDS.index(word) for word in words]])
    return OutOfVocabulary(
        space=PETS, hierarchy=TREE, names=NAMES, images=images, encoder=WordEncoder()
    )


def test_the_encoder_of_these_tests_is_one() -> None:
    assert isinstance(WordEncoder(), Encoder)


def test_a_collie_is_no_class_and_looks_like_a_pug() -> None:
    known = _outsiders("collie", "boxer", "pug", "dog")
    mistakes = [mistake(image, "pug", "sofa") for image in ("collie", "boxer", "pug", "elsewhere")]
    shares, best = known.compare(as_table(mistakes))
    assert shares[:3] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6) and np.isnan(shares[3])
    assert best.tolist() == ["collie", "collie", "collie", None]


def test_what_is_over_a_class_or_a_right_label_is_no_outsider() -> None:
    known = _outsiders("dog")
    inside, outside = known._candidates(mistake("dog", "pug", "sofa"))
    assert set(inside) == {"pug", "sofa", "beagle", "boxer"} and outside == ("collie",)
    far = known._candidates(mistake("dog", "sofa", "pug"))
    assert set(far[0]) == {"sofa", "pug", "leash"} and far[1] == ()


def test_the_category_follows() -> None:
    known = knowledge(outsiders=_outsiders("collie", "pug"))
    found = propose(
        evidence([mistake("collie", "pug", "sofa"), mistake("pug", "pug", "sofa")], known)
    )
    assert [p.category for p in found] == ["Fine-grained error with OOV", "Other"]
    assert found[0].evidence[0].text.endswith("most with collie")
    table = evidence([mistake("collie", "pug", "sofa")], known)
    assert Wording(table).say("outside_share", 0) is not None


def test_an_image_without_a_direction_is_not_there() -> None:
    unread = Embeddings(("x", "y"), np.array([[np.nan] * len(WORDS), [0.0] * len(WORDS)]))
    known = OutOfVocabulary(
        space=PETS, hierarchy=TREE, names=NAMES, images=unread, encoder=WordEncoder()
    )
    shares, _ = known.compare(as_table([mistake(image, "pug", "sofa") for image in "xy"]))
    assert np.isnan(shares).all()


# Files of proposals, what a test set knows by itself, and judged pairs as mistakes.


def _set(**columns: list[object]) -> TestSet:
    images = ["a", "b", "c", "d"]
    labels = [["pug"], ["pug", "sofa"], ["tabby", "sofa"], []]
    return make_testset(
        Card(name="pets-1", label_space="pets", truths={"panel": {"kind": "multilabel"}}),
        images=image_table({"image_id": images, **columns}),
        truths={
            "panel": truth_table(
                images,
                ["pug", "sofa", "tabby", "pug"],
                correct=labels,
                unclear=[[], [], ["manx"], []],
                wrong=[["leash"], [], [], []],
            )
        },
        label_space=PETS,
    )


def test_judged_pairs_as_mistakes() -> None:
    pairs = [
        ("b", "tabby"),
        ("a", "boxer"),
        ("a", "boxer"),
        ("c", "manx"),
        ("z", "pug"),
        ("a", "wolf"),
    ]
    found, unknown, right = mistakes_at(_set(), pairs, truth="panel")
    assert [(m.image_id, m.prediction, m.acceptable) for m in found] == [
        ("a", "boxer", ("pug",)),
        ("b", "tabby", ("sofa", "pug")),
    ]
    assert (unknown, right) == (2, 1)


def test_what_a_test_set_knows_by_itself() -> None:
    found = gather_knowledge(_set(), truth="panel")
    sofa, tabby = (np.array([PETS.index(name)]) for name in ("sofa", "tabby"))
    assert found.cooccurrence is not None
    assert found.cooccurrence.together(sofa, tabby).tolist() == [1]
    assert found.hierarchy is not None and "dog" in found.hierarchy  # the classes' own parents
    assert found.peers is None and found.affinity is None


def test_prototypes_from_a_column() -> None:
    testset = _set(selection_frequency=[0.1, None, 0.9, 0.5], source=["x", "y", "z", "w"])
    assert read_prototypes(testset, "selection_frequency") == {"a": 0.1, "c": 0.9, "d": 0.5}
    odd = _set(selection_frequency=[0.1, float("nan"), float("inf"), 0.5])
    assert read_prototypes(odd, "selection_frequency") == {"a": 0.1, "d": 0.5}
    with pytest.raises(UserError, match="not one of numbers"):
        read_prototypes(testset, "source")
    with pytest.raises(UserError, match="no column"):
        read_prototypes(testset, "beauty")

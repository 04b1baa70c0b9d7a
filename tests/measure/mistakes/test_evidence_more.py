"""Tests of :mod:`heldout.measure.mistakes.evidence`."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from heldout.core.errors import BadFile, MismatchError, UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.testset import Card, TestSet, image_table, make_testset
from heldout.data.testset.tables import truth_table
from heldout.measure.mistakes.categories import (
    COLUMNS,
    Proposal,
    Wording,
    lessons_from,
    propose,
    read_proposals,
    write_proposals,
)
from heldout.measure.mistakes.evidence import (
    OutOfVocabulary,
    Vectors,
    gather_knowledge,
    read_prototypes,
    typicality,
)
from heldout.measure.mistakes.verdicts import mistakes_at
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
    planted,
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


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    mistakes, verdicts = planted(60, 0)
    table = evidence(mistakes, knowledge())
    for proposals in (propose(table), propose(table, lessons_from(table, verdicts))):
        path = tmp_path / "p.jsonl"
        write_proposals(path, proposals, mistakes=mistakes, label_space=PETS)
        assert read_proposals(path) == proposals
        write_proposals(tmp_path / "p.csv", proposals, mistakes=mistakes, label_space=PETS)
        with (tmp_path / "p.csv").open(newline="") as handle:
            rows = list(csv.DictReader(handle))
        assert tuple(rows[0]) == COLUMNS and len(rows) == len(proposals)
        assert [row["category"] for row in rows] == [p.category for p in proposals]
    strange = Proposal("a\u2028b\x85.jpg", "pug", "Other")
    path.write_text(
        json.dumps({"schema_version": 1, **msgspec.to_builtins(strange)}, ensure_ascii=False)
    )
    assert [proposal.image_id for proposal in read_proposals(path)] == ["a\u2028b\x85.jpg"]
    path.write_bytes(b'{"schema_version": 1, "image_id": "\xff"}\n')
    with pytest.raises(BadFile, match="line 1 is not a proposal"):
        read_proposals(path)
    with pytest.raises(UserError, match="neither"):
        write_proposals(tmp_path / "p.txt", (), mistakes=(), label_space=PETS)


@pytest.mark.parametrize("line", ["{}", "nothing", "[1]", '{"schema_version": 99}'])
def test_other_files_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "p.jsonl").write_text(line + "\n")
    with pytest.raises(BadFile):
        read_proposals(tmp_path / "p.jsonl")


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
    assert [(m.image_id, m.prediction, m.acceptable, m.original) for m in found] == [
        ("a", "boxer", ("pug",), "pug"),
        ("b", "tabby", ("sofa", "pug"), "sofa"),
    ]
    assert (unknown, right) == (2, 1)


def test_what_a_test_set_knows_by_itself() -> None:
    found = gather_knowledge(_set(), truth="panel")
    assert found.cooccurrence is not None and found.cooccurrence.count("sofa", "tabby") == 1
    assert found.hierarchy is not None and "dog" in found.hierarchy  # the classes' own parents
    assert found.peers is None and found.affinity is None
    assert gather_knowledge(_set(), truth="panel", seen_together="none").cooccurrence is None


def test_prototypes_from_a_column_or_a_file(tmp_path: Path) -> None:
    testset = _set(selection_frequency=[0.1, None, 0.9, 0.5], source=["x", "y", "z", "w"])
    assert read_prototypes(testset, "selection_frequency") == {"a": 0.1, "c": 0.9, "d": 0.5}
    odd = _set(selection_frequency=[0.1, float("nan"), float("inf"), 0.5])
    assert read_prototypes(odd, "selection_frequency") == {"a": 0.1, "d": 0.5}
    with pytest.raises(UserError, match="not one of numbers"):
        read_prototypes(testset, "source")
    with pytest.raises(UserError, match="no column"):
        read_prototypes(testset, "beauty")
    path = tmp_path / "t.csv"
    path.write_text("image_id,typicality\na,0.25\nq,3\n")
    assert read_prototypes(testset, path) == {"a": 0.25, "q": 3.0}
    for text, match in (
        ("image_id,x\na,1\n", "lacks a column"),
        ("image_id,typicality\na,nan\n", "not a number"),
        ("image_id,typicality\nq,1\n", "no image"),
        ("image_id,typicality\n\udcff,1\n", "not valid CSV"),
    ):
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        with pytest.raises(BadFile, match=match):
            read_prototypes(testset, path)

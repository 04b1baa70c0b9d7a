from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.published.options import Words, singular, tokens
from heldout.data.testset.testset import TestSet

Members = Callable[[TestSet, str], set[tuple[str, str]]]
Written = Callable[..., Path]


def captions(*texts: Any) -> dict[str, Any]:
    return {
        "images": [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}],
        "annotations": [{"id": n, "image_id": 1, "caption": text} for n, text in enumerate(texts)],
    }


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A man, eating.", ["a", "man", "eating"]),
        ("The DOG'S t-shirt\u2019s red", ["the", "dog", "t-shirt", "red"]),
        ("it's 2 o'clock -- x_y 3d", ["it", "o'clock", "x", "y", "d"]),
        ("Caf\u0065\u0301 \u00c9t\u00e9", ["caf\u00e9", "\u00e9t\u00e9"]),
        ("", []),
        ("!? 12 --", []),
    ],
)
def test_words_of_a_sentence(sentence: str, expected: list[str]) -> None:
    assert tokens(sentence) == expected


@given(st.text())
def test_words_are_words(sentence: str) -> None:
    for word in tokens(sentence):
        assert word and word == word.lower() and not re.search(r"[\s\d_]", word)


@pytest.mark.parametrize(
    ("plural", "single"),
    [
        ("dogs", "dog"), ("berries", "berry"), ("knives", "knife"), ("leaves", "leaf"),
        ("boxes", "box"), ("benches", "bench"), ("men", "man"), ("firemen", "fireman"),
        ("women", "woman"), ("people", "person"), ("fire hydrants", "fire hydrant"),
        ("shoes", "shoe"), ("glass", "glass"), ("bus", "bus"), ("tennis", "tennis"),
        ("s", "s"), ("children", "child"), ("geese", "goose"), ("buses", "bus"),
    ],
)  # fmt: skip
def test_singulars(plural: str, single: str) -> None:
    assert singular(plural, {single}) == single
    assert singular(plural, set()) == plural


vocabularies = st.sets(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(" ".join), max_size=6
)


@given(vocabularies, st.lists(st.sampled_from("abcd"), max_size=12))
def test_longest_phrases_by_the_plain_way(vocabulary: set[str], sentence: list[str]) -> None:
    text, found = " ".join(sentence), set()
    longest_first = sorted(vocabulary, key=len, reverse=True)
    while text:
        phrase = next((p for p in longest_first if f"{text} ".startswith(f"{p} ")), None)
        if phrase is None:
            text = text.partition(" ")[2]
        else:
            found.add(phrase)
            text = text[len(phrase) :].strip()
    assert Words(vocabulary).of(" ".join(sentence)) == found


def test_words_of_captions(written: Written, members: Members) -> None:
    path = written(captions("A dog.", "Two dogs and the dog's ball", None, 5))
    pool = read_metadata("coco-captions", path)
    assert {word for _, word in members(pool, "caption_word")} == {
        "a", "dog", "dogs", "two", "and", "the", "ball",
    }  # fmt: skip
    assert len(pool) == 2
    assert [(p.kind, p.count) for p in report_of(pool).problems] == [
        ("annotation without an image or a caption, left out", 2)
    ]
    folded = read_metadata("coco-captions", path, fold_plurals=True)
    assert ("1", "dogs") not in members(folded, "caption_word")
    few = read_metadata("coco-captions", path, vocabulary=written("Ball\n\ndogs\n", "v.txt"))
    assert members(few, "caption_word") == {("1", "ball"), ("1", "dogs")}
    listed = written({"animal": ["dog"], "thing": ["ball"]}, "v.json")
    few = read_metadata("coco-captions", path, vocabulary=listed, fold_plurals=True)
    assert members(few, "caption_word") == {("1", "ball"), ("1", "dog")}


def test_captions_of_images_that_are_not_listed(written: Written, members: Members) -> None:
    value = captions("a dog", "a cat")
    value["annotations"][1]["image_id"] = 77
    pool = read_metadata("coco-captions", written(value))
    assert members(pool, "caption_word") == {("1", "a"), ("1", "dog")}
    assert report_of(pool).lost_images and report_of(pool).problems[0].examples == ("77",)


def test_vocabularies_that_are_none(written: Written) -> None:
    for text, name in (("\n \n", "v.txt"), ("{}", "v.json"), (b"\xff\xfe", "v.txt")):
        with pytest.raises(BadFile):
            read_metadata("coco-captions", written(captions("a")), vocabulary=written(text, name))


@pytest.mark.shared
def test_published_captions(shared_data: Path, members: Members) -> None:
    path = shared_data / "metashift" / "coco-mini" / "captions_val2017.json"
    pool = read_metadata("coco-captions", path)
    value = json.loads(path.read_bytes())
    expected = {
        (str(entry["image_id"]), word)
        for entry in value["annotations"]
        for word in re.sub(r"['\u2019]s\b", "", entry["caption"].lower())
        .translate(str.maketrans(dict.fromkeys('.,"!?;:()0123456789&/#$`*', " ")))
        .split()
    }
    # The plain way keeps lone marks and odd joins; words of letters alone are the same.
    plain = {(image, word) for image, word in expected if word.isalpha()}
    assert plain == {pair for pair in members(pool, "caption_word") if pair[1].isalpha()}

"""Tests of :mod:`heldout.data.published.annotations`."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, UserError
from heldout.core.request import make
from heldout.data.importing.pools import collect, read_metadata, report_of
from heldout.data.published.annotations import Words, box_share, singular, tokens
from heldout.data.published.requests import CollectRequest
from heldout.data.testset.testset import TestSet, save
from heldout.data.testset.verify import verify

# Whatever a file holds, a reader gives a pool or one line that says what is wrong.


BOX = {"x": 1, "y": 2, "w": 30, "h": 40}
SIZE = {"width": 100, "height": 80}
CAT = {"name": "cat", "attributes": ["black", "big"], **BOX}
RELATED = {"relations": [{"name": "on", "object": "2"}]}
NAMED = {"names": ["cat"], "synsets": ["cat.n.01"], "attributes": ["black"], **BOX}
LISTED = {"images": [{"id": 1, "file_name": "1.jpg", "license": 3, **SIZE}, {"id": 2}]}
FILES: dict[str, list[Any]] = {
    "gqa": [
        {
            "1": {"objects": {"1": CAT | RELATED, "2": {"name": "mat"}}, "location": "in", **SIZE},
            "2": {"objects": {"1": CAT}, "weather": "sunny", **SIZE},
        }
    ],
    "visual-genome": [
        [{"image_id": 1, "objects": [NAMED, NAMED]}, {"image_id": 2, "objects": [NAMED]}],
        [
            {
                "image_id": 1,
                "relationships": [{"predicate": "on", "subject": NAMED, "object": NAMED}],
            }
        ],
        [{"image_id": 1, "url": "https://host/1.jpg", **SIZE}, {"image_id": 2, **SIZE}],
    ],
    "coco": [
        {
            "licenses": [{"id": 3, "url": "https://host/licence"}],
            **LISTED,
            "annotations": [
                {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40]},
                {"id": 2, "image_id": 2, "category_id": 2, "bbox": [1, 2, 30, 40]},
            ],
            "categories": [
                {"id": 1, "name": "cat", "supercategory": "animal"},
                {"id": 2, "name": "mat"},
            ],
        },
        [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.9}],
    ],
    "coco-captions": [
        {
            **LISTED,
            "annotations": [
                {"image_id": 1, "caption": "Two cats, one hot dog."},
                {"image_id": 2, "caption": "a cat"},
            ],
        }
    ],
    "metashift": [
        {"cat(black)": ["1", "2"], "cat(white)": ["2"], "dog(black)": ["3", 4]},
        {"color": {"cat": {"black": ["1"], "white": ["2"]}}, "size": {"dog": {"big": ["1"]}}},
    ],
}
OPTIONS = {
    "gqa": {"min_box_area": 0.1},
    "visual-genome": {"min_box_area": 0.1},
    "coco": {"min_box_area": 0.1},
    "coco-captions": {},
    "metashift": {},
}
ODD = st.sampled_from(
    [math.nan, math.inf, -math.inf, 10**400, -1, 0, 1.5, "", " ", "cat", "\ud800", "\0", "a/../b",
     None, True, "1", 1, 2, "cats (2)", ":)", "cat(x)", [], {}, [[]], [None], {"1": 5}, {"": ""}]
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value: (container, key)."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def changed(value: Any, data: Any) -> Any:
    """The value with a few of its places changed."""
    value = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(0, 4))):
        every = list(places(value))
        if not every:
            return copy.deepcopy(data.draw(ODD))
        container, key = every[data.draw(st.integers(0, len(every) - 1))]
        how = data.draw(st.sampled_from(["change", "drop", "repeat", "move"]))
        if how == "change":
            container[key] = copy.deepcopy(data.draw(ODD))
        elif how == "drop":
            del container[key]
        elif how == "repeat" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        else:
            other, place = every[data.draw(st.integers(0, len(every) - 1))]
            container[key] = copy.deepcopy(other[place])
    return value


@pytest.mark.parametrize("source", sorted(FILES))
@given(st.data())
@settings(max_examples=120)
def test_any_json(tmp_path_factory: Any, source: str, data: Any) -> None:
    folder = tmp_path_factory.mktemp("any")
    paths = []
    for place, value in enumerate(FILES[source]):
        if source == "metashift" or data.draw(st.booleans()):
            text = json.dumps(changed(value, data))
            cut = data.draw(st.just(len(text)) | st.integers(0, len(text)))
            paths.append(folder / f"{place}.json")
            paths[-1].write_text(text[:cut], "utf-8")
    for options in (OPTIONS[source], {}):
        try:
            found = collect(make(CollectRequest, {"source": source, "paths": paths, **options}))
        except UserError as error:
            assert "\n" not in error.line and len(error.line) < 700
        else:
            save(found, folder / "pool", replace=True)
            assert verify(folder / "pool").ok
            assert len(found) == report_of(found).counts["images"] > 0


@pytest.mark.parametrize("source", sorted(FILES))
def test_unchanged_they_are_read_without_a_word(tmp_path_factory: Any, source: str) -> None:
    for place, value in enumerate(FILES[source]):
        if source == "coco" and place:
            continue  # detections need a file of images
        path = tmp_path_factory.mktemp("plain") / f"{place}.json"
        path.write_text(json.dumps(value))
        found = collect(make(CollectRequest, {"source": source, "paths": path}))
        assert report_of(found).problems == ()
        assert report_of(found).counts["memberships"] > 0 or "width" in json.dumps(value)


# captions


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
    few = read_metadata("coco-captions", path, vocabulary=written("Ball\n\ndogs\n", "v.txt"))
    assert members(few, "caption_word") == {("1", "ball"), ("1", "dogs")}
    listed = written("dog\nball\n", "v.txt")
    few = read_metadata("coco-captions", path, vocabulary=listed)
    assert members(few, "caption_word") == {("1", "ball"), ("1", "dog")}


def test_captions_of_images_that_are_not_listed(written: Written, members: Members) -> None:
    value = captions("a dog", "a cat")
    value["annotations"][1]["image_id"] = 77
    pool = read_metadata("coco-captions", written(value))
    assert members(pool, "caption_word") == {("1", "a"), ("1", "dog")}
    assert report_of(pool).lost_images and report_of(pool).problems[0].examples == ("77",)


def test_vocabularies_that_are_none(written: Written) -> None:
    for text, name in (("\n \n", "v.txt"), ("", "v.txt"), (b"\xff\xfe", "v.txt")):
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


# coco


def instances(**changes: Any) -> dict[str, Any]:
    """The published order: categories come last."""
    value: dict[str, Any] = {
        "info": {"year": 2017},
        "licenses": [{"id": 4, "url": "http://creativecommons.org/licenses/by/2.0/", "name": "x"}],
        "images": [
            {"id": 1, "file_name": "000001.jpg", "width": 100, "height": 50, "license": 4,
             "coco_url": "http://host/1.jpg", "flickr_url": "http://flickr/1"},
            {"id": 2, "file_name": "000002.jpg", "width": 10, "height": 10},
        ],
        "annotations": [
            {"id": 1, "image_id": 1, "category_id": 17, "bbox": [0, 0, 50, 50], "iscrowd": 0,
             "segmentation": [[0, 0, 1, 1, 2, 2]]},
            {"id": 2, "image_id": 1, "category_id": 17, "bbox": [0, 0, 1, 1]},
            {"id": 3, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "iscrowd": 1,
             "segmentation": {"counts": [1, 2], "size": [50, 100]}},
        ],
        "categories": [
            {"id": 1, "name": "person", "supercategory": "person"},
            {"id": 17, "name": "cat", "supercategory": "animal"},
        ],
    }  # fmt: skip
    return {**value, **changes}


def test_categories_and_supercategories(written: Written, members: Members) -> None:
    pool = read_metadata("coco", written(instances()))
    assert members(pool, "object") == {("1", "cat"), ("1", "person")}
    assert members(pool, "supercategory") == {("1", "animal"), ("1", "person")}
    assert pool.images.to_pylist()[0] == {
        "image_id": "1", "path": "000001.jpg", "uri": "http://host/1.jpg", "sha256": None,
        "width": 100, "height": 50, "source": "http://flickr/1",
        "licence": "http://creativecommons.org/licenses/by/2.0/", "attribution": None,
        "weight": None,
    }  # fmt: skip
    assert pool.image_ids.to_pylist() == ["1", "2"] and report_of(pool).problems == ()
    assert "COCO" in pool.card.citation


def test_sections_in_any_order(written: Written) -> None:
    value = instances()
    turned = {key: value[key] for key in reversed(value)}
    hashes = {read_metadata("coco", written(v)).content_hash for v in (value, turned)}
    assert len(hashes) == 1


def test_small_boxes(written: Written, members: Members) -> None:
    pool = read_metadata("coco", written(instances()), min_box_area=0.1)
    assert members(pool, "object") == {("1", "cat")}
    assert report_of(pool).problems[0].count == 2


box = st.tuples(*[st.integers(-5, 30) | st.floats(width=32)] * 4) | st.none() | st.just((1, 2))


@given(st.lists(box, max_size=8), st.floats(0.01, 1))
def test_shares_of_many_are_those_of_one(
    tmp_path_factory: Any, boxes: list[Any], least: float
) -> None:
    large = [b for b in boxes if b is not None and len(b) == 4 and box_share(b, 20, 10) >= least]
    names = [{"id": n, "name": f"c{n}"} for n in range(len(boxes))]
    path = tmp_path_factory.mktemp("coco") / "x.json"
    path.write_text(
        json.dumps(
            {
                "images": [{"id": 1, "width": 20, "height": 10}],
                "annotations": [
                    {"image_id": 1, "category_id": n, "bbox": b} for n, b in enumerate(boxes)
                ],
                "categories": names,
            }
        )
    )
    pool = read_metadata("coco", path, min_box_area=least)
    assert len(pool.memberships) == len(large)
    unusable = sum(b is None or len(b) < 4 or math.isnan(box_share(b, 20, 10)) for b in boxes)
    counts = {problem.kind: problem.count for problem in report_of(pool).problems}
    assert counts.get("object without a usable box, left out", 0) == unusable


def test_odd_values_are_counted(written: Written, members: Members) -> None:
    value = instances()
    value["images"] += [5, {"id": 1, "width": 7}, {"file_name": "x"}, {"id": "a/../b"}]
    value["images"][1] |= {"file_name": "/etc/passwd", "width": math.nan}
    value["annotations"] += [
        None, {"id": 9}, {"id": 10, "image_id": 99, "category_id": 1},
        {"id": 11, "image_id": 2, "category_id": 99}, {"id": 12, "image_id": 2, "category_id": 17},
    ]  # fmt: skip
    value["categories"] += [{"id": 1, "name": "dog"}, {"id": 5}, {"name": "x"}, "cat"]
    pool = read_metadata("coco", written(value))
    assert pool.image_ids.to_pylist() == ["1", "2"]
    assert members(pool, "object") == {("1", "cat"), ("1", "person"), ("2", "cat")}
    assert pool.images["path"].to_pylist() == ["000001.jpg", None]
    assert {problem.kind: problem.count for problem in report_of(pool).problems} == {
        "annotation of an image that the file does not list, left out": 1,
        "element of images that is no object, left out": 1,
        "image without a usable id, left out": 2,
        "annotation of an unknown category, left out": 1,
        "annotation without an image or a category, left out": 1,
        "category id that comes again, the first kept": 1,
        "category without an id or a name, left out": 2,
        "element of annotations that is no object, left out": 1,
        "element of categories that is no object, left out": 1,
        "file name that is no plain path, left empty": 1,
        "image id that comes again, the first kept": 1,
        "width or height that is no size, left empty": 1,
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "no list 'images'"),
        ({"images": []}, "no list 'annotations'"),
        ({"images": [], "annotations": []}, "no list 'categories'"),
        ({"images": {}, "annotations": []}, "a list is expected"),
        ({"images": [], "annotations": [], "categories": []}, "holds no images"),
        ([], "detections without images"),
        (5, "an object is expected"),
    ],
)
def test_other_files_are_refused(written: Written, value: Any, said: str) -> None:
    with pytest.raises(BadFile, match=said):
        read_metadata("coco", written(value))


def test_what_a_detector_found(written: Written, members: Members) -> None:
    listing = instances()
    detections = [
        {"image_id": 2, "category_id": 17, "bbox": [0, 0, 5, 5], "score": 0.9},
        {"image_id": 2, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 0.5},
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 50, 50], "score": 0.2},
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "score": math.nan},
        {"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]},
        {"image_id": 9, "category_id": 1, "score": 1},
        7,
    ]
    files = [written(detections, "found.json"), written(listing)]
    pool = read_metadata("coco", files, min_score=0.5)
    assert members(pool, "object") == {("2", "cat"), ("2", "person")}
    assert {problem.kind: problem.count for problem in report_of(pool).problems} == {
        "annotation of an image that the file does not list, left out": 1,
        "detection below the least score, left out": 2,
        "element of detections that is no object, left out": 1,
        "detection without a score, left out": 1,
    }
    every = read_metadata("coco", files, min_box_area=0.2)
    assert members(every, "object") == {("1", "person"), ("2", "cat")}
    del listing["annotations"]
    assert len(read_metadata("coco", [files[0], written(listing)])) == 2
    with pytest.raises(BadFile, match="detections without images"):
        read_metadata("coco", files[:1])
    with pytest.raises(BadFile, match="holds no detections"):
        read_metadata("coco", files[1:], min_score=0.5)


@pytest.mark.shared
def test_published_instances_against_the_plain_way(shared_data: Path, members: Members) -> None:
    folder = shared_data / "metashift" / "coco-mini"
    paths = [folder / f"instances_{part}2017.json" for part in ("train", "val")]
    pool = read_metadata("coco", paths)
    expected = set()
    for path in paths:
        value = json.loads(path.read_bytes())
        names = {entry["id"]: entry["name"] for entry in value["categories"]}
        expected |= {(str(a["image_id"]), names[a["category_id"]]) for a in value["annotations"]}
    assert members(pool, "object") == expected and len(pool) == 159
    assert len({value for _, value in members(pool, "object")}) == 80
    assert len({value for _, value in members(pool, "supercategory")}) == 12
    assert report_of(pool).problems == ()


# gqa


# The shape of the published file: location and weather optional, relations in a list.
SCENES: dict[str, Any] = {
    "2407890": {
        "width": 640,
        "height": 480,
        "location": "living room",
        "weather": "none",
        "objects": {
            "271881": {
                "name": "chair",
                "x": 220, "y": 310, "w": 50, "h": 80,
                "attributes": ["brown", "wooden", "small"],
                "relations": [
                    {"object": "32452", "name": "on"},
                    {"object": "32452", "name": "near"},
                ],
            },
            "32452": {"name": "rug", "x": 0, "y": 240, "w": 640, "h": 240, "attributes": []},
            "32453": {"name": "chair", "x": 0, "y": 0, "w": 9, "h": 9, "attributes": ["brown"]},
        },
    },
    "12": {"width": 10, "height": 20, "objects": {}},
}  # fmt: skip


def kinds(pool: TestSet) -> dict[str, int]:
    return {problem.kind: problem.count for problem in report_of(pool).problems}


def test_a_scene_graph(written: Written, members: Members) -> None:
    pool = read_metadata("gqa", written(SCENES))
    assert pool.image_ids.to_pylist() == ["2407890", "12"]
    assert members(pool, "object") == {("2407890", "chair"), ("2407890", "rug")}
    assert members(pool, "attribute") == {
        ("2407890", f"chair({attribute})") for attribute in ("brown", "wooden", "small")
    }
    assert members(pool, "general") == {("2407890", "living room"), ("2407890", "none")}
    assert not members(pool, "relation")
    rows = pool.images.select(["width", "height", "location", "weather"]).to_pylist()
    assert rows[0] == {"width": 640, "height": 480, "location": "living room", "weather": "none"}
    assert rows[1] == {"width": 10, "height": 20, "location": None, "weather": None}
    assert report_of(pool).problems == ()
    assert report_of(pool).counts == {
        "images": 2, "memberships": 7, "attribute_memberships": 3, "attribute_values": 3,
        "general_memberships": 2, "general_values": 2, "object_memberships": 2, "object_values": 2,
    }  # fmt: skip


def test_objects_too_small_do_not_count(written: Written, members: Members) -> None:
    least = 50 * 80 / (640 * 480)
    pool = read_metadata("gqa", written(SCENES), min_box_area=least)
    assert ("2407890", "chair") in members(pool, "object")
    assert kinds(pool) == {"object below the least box area, left out": 1}
    pool = read_metadata("gqa", written(SCENES), min_box_area=0.02)
    assert members(pool, "object") == {("2407890", "rug")}
    assert not members(pool, "attribute")


@pytest.mark.parametrize("area", [-0.1, 1.5, math.nan])
def test_an_area_is_a_share(written: Written, area: float) -> None:
    with pytest.raises(UserError, match=r"min_box_area is .*: give a"):
        read_metadata("gqa", written(SCENES), min_box_area=area)


numbers = st.integers(-50, 150)


@given(numbers, numbers, st.integers(0, 150), st.integers(0, 150))
def test_the_share_counts_pixels(x: int, y: int, w: int, h: int) -> None:
    inside = len(range(max(x, 0), min(x + w, 40))) * len(range(max(y, 0), min(y + h, 30)))
    assert box_share((x, y, w, h), 40, 30) == pytest.approx(inside / 1200)


@pytest.mark.parametrize(
    "box",
    [
        (0, 0, -1, 5),
        (0, 0, math.nan, 5),
        (math.inf, 0, 1, 1),
        (None, 0, 1, 1),
        ("1", 0, 1, 1),
        (0, 0, 10**400, 1),
    ],
)
def test_boxes_that_are_none(box: Any) -> None:
    assert math.isnan(box_share(box, 10, 10))


def test_an_ontology_says_what_is_kept(written: Written, members: Members) -> None:
    ontology = written({"color": ["brown", "red"], "size": ["small"], "look": ["brown"]}, "a.json")
    pool = read_metadata("gqa", written(SCENES), ontology=ontology)
    assert {value for _, value in members(pool, "attribute")} == {"chair(brown)", "chair(small)"}
    assert pool.card.facts["attribute_categories"] == {
        "brown": ["color", "look"], "red": ["color"], "small": ["size"],
    }  # fmt: skip
    assert kinds(pool) == {"attribute that the ontology does not list, left out": 1}
    for bad in ({"color": [1]}, ["red"], {"a": "b"}, {}):
        with pytest.raises(BadFile):
            read_metadata("gqa", written(SCENES), ontology=written(bad, "bad.json"))


HOSTILE: dict[str, Any] = {
    "none": None,
    "list": [],
    "empty": {},
    "sizes": {"width": math.nan, "height": -3, "objects": {"1": {"name": "cat"}}},
    "long": {"width": 10**30, "height": "20", "objects": {"1": {"name": "cat"}}},
    "half": {"width": 10.5, "height": True, "objects": {"1": {"name": "cat"}}},
    "numbers": {"objects": {"1": 5, "2": {"name": 5}, "3": {"name": "  "}, "4": {}}},
    "objects": {"objects": [{"name": "a  dog "}, {"name": "cat", "attributes": "red"}]},
    "text": {"objects": "cat"},
    "told": {"objects": {"1": {"name": "cat", "attributes": {"a": 1}}}},
    "mixed": {"objects": {"1": {"name": "cat", "attributes": ["red", 5, None, "", "red", ":)"]}}},
    "place": {"location": 7, "weather": ["sunny", "cold"], "objects": {}},
    "../x": {"objects": {"1": {"name": "cat"}}},
    "": {"objects": {"1": {"name": "cat"}}},
    "surrogate": {"objects": {"1": {"name": "\ud800"}, "2": {"name": "\u200dok"}}},
}


def test_odd_values_are_counted_and_the_rest_is_kept(written: Written, members: Members) -> None:
    pool = read_metadata("gqa", written(HOSTILE))
    lost = {"none", "list", "../x", ""}
    assert pool.image_ids.to_pylist() == [key for key in HOSTILE if key not in lost]
    assert members(pool, "object") == {
        ("sizes", "cat"), ("long", "cat"), ("half", "cat"), ("objects", "a dog"),
        ("objects", "cat"), ("told", "cat"), ("mixed", "cat"), ("surrogate", "\u200dok"),
    }  # fmt: skip
    assert members(pool, "attribute") == {
        ("objects", "cat(red)"), ("mixed", "cat(red)"), ("mixed", "cat(:%29)"),
    }  # fmt: skip
    assert members(pool, "general") == {("place", "sunny"), ("place", "cold")}
    assert pool.images["width"].null_count == pool.images["height"].null_count == len(pool)
    assert kinds(pool) == {
        "image that is no object, left out": 2,
        "image without a usable id, left out": 2,
        "width or height that is no size, left empty": 6,
        "object that is no JSON object, left out": 2,
        "object without a name, left out": 4,
        "attributes that are no list, left out": 1,
        "attribute that is not text, left out": 3,
        "location that is not text, left out": 1,
    }
    assert report_of(pool).lost_images
    assert [problem.images for problem in report_of(pool).problems[:3]] == [True, True, False]


def test_without_a_usable_box_an_object_is_not_large_enough(written: Written) -> None:
    pool = read_metadata("gqa", written(HOSTILE), min_box_area=0.001)
    assert kinds(pool)["object without a usable box, left out"] == 8
    assert "object" not in pool.memberships["column"].to_pylist()


def test_repeated_ids_are_merged_and_said(written: Written, members: Members) -> None:
    one = '"1": {"width": 5, "height": 5, "objects": {"a": {"name": "cat"}}}'
    two = '"1": {"width": 6, "objects": {"a": {"name": "dog"}, "b": {"name": "cat"}}}'
    inside = read_metadata("gqa", written("{" + one + ", " + two + "}"))
    apart = read_metadata(
        "gqa", [written("{" + t + "}", f"{n}.json") for n, t in enumerate((one, two))]
    )
    for pool in (inside, apart):
        assert members(pool, "object") == {("1", "cat"), ("1", "dog")}
        assert pool.images["width"].to_pylist() == [5]
        assert kinds(pool) == {
            "image id that comes again, merged": 1,
            "image with two values of width, the first kept": 1,
        }
        assert not report_of(pool).lost_images
    assert inside.content_hash == apart.content_hash


def test_a_file_that_breaks_off(written: Written) -> None:
    text = json.dumps(SCENES)
    path = written(text[: text.index('"12"') + 30])
    with pytest.raises(BadFile, match="not valid JSON near character"):
        read_metadata("gqa", path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" ", "not valid JSON"),
        ("{}", "holds no images"),
        ("not json", "not the JSON expected"),
        ("[]", "an object is expected"),
        ('{"1": null}', "1 × image that is no object"),
        ("\x80\x04N.", "not the JSON expected"),
    ],
)
def test_files_that_hold_none(written: Written, text: str, said: str) -> None:
    with pytest.raises(BadFile) as caught:
        read_metadata("gqa", written(text))
    assert said in caught.value.line and "file.json" in caught.value.line


names = st.sampled_from(["cat", "dog", "fire hydrant", "a(b)", "x)", "%29"])
scenes = st.dictionaries(
    st.integers(0, 30).map(str),
    st.fixed_dictionaries(
        {
            "objects": st.dictionaries(
                st.integers(0, 9).map(str),
                st.fixed_dictionaries({"name": names, "attributes": st.lists(names, max_size=3)}),
                max_size=5,
            )
        },
        optional={"location": names, "weather": names},
    ),
    min_size=1,
)


@given(scenes)
def test_memberships_are_those_of_the_plain_way(tmp_path_factory: Any, value: Any) -> None:
    from heldout.data.published.metashift import join_subset_name

    path = tmp_path_factory.mktemp("gqa") / "x.json"
    path.write_text(json.dumps(value))
    rows = set()
    for image, scene in value.items():
        for thing in scene["objects"].values():
            rows.add((image, "object", thing["name"]))
            for word in thing["attributes"]:
                rows.add((image, "attribute", join_subset_name(thing["name"], word)))
        for key in ("location", "weather"):
            if key in scene:
                rows.add((image, "general", scene[key]))
    pool = read_metadata("gqa", path)
    found = [tuple(row.values()) for row in pool.memberships.to_pylist()]
    assert set(found) == rows and len(found) == len(rows)

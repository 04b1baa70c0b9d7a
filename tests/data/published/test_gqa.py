from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, UserError
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.published.options import box_share
from heldout.data.testset.testset import TestSet

Members = Callable[[TestSet, str], set[tuple[str, str]]]
Written = Callable[..., Path]

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


def test_relations_on_request_as_list_or_object(written: Written, members: Members) -> None:
    expected = {("2407890", "chair(on rug)"), ("2407890", "chair(near rug)")}
    assert members(read_metadata("gqa", written(SCENES), relations=True), "relation") == expected
    scenes = json.loads(json.dumps(SCENES))
    chair = scenes["2407890"]["objects"]["271881"]
    chair["relations"] = dict(enumerate(chair["relations"]))
    assert members(read_metadata("gqa", written(scenes), relations=True), "relation") == expected
    chair["relations"] = {"object": "32452", "name": "on"}
    pool = read_metadata("gqa", written(scenes), relations=True)
    assert members(pool, "relation") == {("2407890", "chair(on rug)")}


def test_objects_too_small_do_not_count(written: Written, members: Members) -> None:
    least = 50 * 80 / (640 * 480)
    pool = read_metadata("gqa", written(SCENES), min_box_area=least, relations=True)
    assert ("2407890", "chair") in members(pool, "object")
    assert kinds(pool) == {"object below the least box area, left out": 1}
    pool = read_metadata("gqa", written(SCENES), min_box_area=0.02, relations=True)
    assert members(pool, "object") == {("2407890", "rug")}
    assert not members(pool, "attribute") and not members(pool, "relation")


@pytest.mark.parametrize("area", [-0.1, 1.5, math.nan])
def test_an_area_is_a_share(written: Written, area: float) -> None:
    with pytest.raises(UserError, match="not a share of the image"):
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
    files = [
        written({"color": ["brown", "red"], "size": ["small"], "look": ["brown"]}, "a.json"),
        written("attribute,category\nbrown,look\nbrown,color\nred,color\nsmall,size\n", "a.csv"),
    ]
    for file in files:
        pool = read_metadata("gqa", written(SCENES), ontology=file)
        assert {value for _, value in members(pool, "attribute")} == {
            "chair(brown)",
            "chair(small)",
        }
        assert pool.card.facts["attribute_categories"] == {
            "brown": ["color", "look"], "red": ["color"], "small": ["size"],
        }  # fmt: skip
        assert kinds(pool) == {"attribute that the ontology does not list, left out": 1}
    other = read_metadata("gqa", written(SCENES), ontology=written({"small": "size"}, "b.json"))
    assert {value for _, value in members(other, "attribute")} == {"chair(small)"}
    for bad in ({"color": [1]}, ["red"], {"a": "b", "c": ["d"]}, {}):
        with pytest.raises(BadFile, match="attribute"):
            read_metadata("gqa", written(SCENES), ontology=written(bad, "bad.json"))


def test_places_are_general_contexts_too(written: Written, members: Members) -> None:
    pool = read_metadata("gqa", written(SCENES), places=written("Rug\nstreet\n", "places.txt"))
    assert ("2407890", "rug") in members(pool, "general") & members(pool, "object")


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
    pool = read_metadata("gqa", written(HOSTILE), relations=True)
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
        "attribute that is no text, left out": 3,
        "location that is no text, left out": 1,
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

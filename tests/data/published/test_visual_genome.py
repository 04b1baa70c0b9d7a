from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heldout.core.errors import BadFile
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.testset.testset import TestSet

Members = Callable[[TestSet, str], set[tuple[str, str]]]
Written = Callable[..., Path]


def thing(*names: str, box: tuple[int, ...] = (0, 0, 10, 10), **more: Any) -> dict[str, Any]:
    x, y, w, h = box
    return {
        "object_id": 7, "names": list(names), "merged_object_ids": [],
        "synsets": [f"{name.lower()}.n.01" for name in names],
        "x": x, "y": y, "w": w, "h": h, **more,
    }  # fmt: skip


# The shapes of the published files, version 1.4.
IMAGE_DATA = [
    {"image_id": 1, "url": "https://host/1.jpg", "width": 100, "height": 100, "coco_id": None},
    {"image_id": 2, "url": "https://host/2.jpg", "width": 50, "height": 20, "flickr_id": 5},
]
OBJECTS = [
    {"image_id": 1, "image_url": "https://host/1.jpg", "objects": [thing("Tree "), thing("man", "person")]},
    {"image_id": 2, "image_url": "https://host/2.jpg", "objects": [thing("cat", box=(0, 0, 50, 20))]},
]  # fmt: skip
ATTRIBUTES = [
    {"image_id": 1, "attributes": [thing("tree", attributes=["Green", "tall"]), thing("sky")]},
    {"image_id": 2, "attributes": [thing("cat", attributes=None)]},
]
RELATIONSHIPS = [
    {
        "image_id": 2,
        "relationships": [
            {
                "predicate": "ON",
                "relationship_id": 15927,
                "synsets": ["along.r.01"],
                "subject": {"name": "shade", "x": 1, "y": 1, "w": 2, "h": 2, "synsets": []},
                "object": thing("street", box=(0, 0, 50, 20)),
            }
        ],
    }
]


@pytest.fixture
def files(written: Written) -> list[Path]:
    every = {
        "relationships": RELATIONSHIPS, "objects": OBJECTS, "attributes": ATTRIBUTES,
        "image_data": IMAGE_DATA,
    }  # fmt: skip
    return [written(value, f"{name}.json") for name, value in every.items()]


def test_all_files_make_one_pool(files: list[Path], members: Members) -> None:
    pool = read_metadata("visual-genome", files)
    assert sorted(pool.image_ids.to_pylist()) == ["1", "2"]
    assert members(pool, "object") == {
        ("1", "tree"), ("1", "man"), ("1", "person"), ("1", "sky"), ("2", "cat"), ("2", "shade"),
        ("2", "street"),
    }  # fmt: skip
    assert members(pool, "attribute") == {("1", "tree(green)"), ("1", "tree(tall)")}
    assert members(pool, "relation") == {("2", "shade(on street)")}
    assert ("1", "person.n.01") in members(pool, "synset")
    assert pool.images.select(["image_id", "uri", "width", "height"]).to_pylist() == [
        {"image_id": "1", "uri": "https://host/1.jpg", "width": 100, "height": 100},
        {"image_id": "2", "uri": "https://host/2.jpg", "width": 50, "height": 20},
    ]
    assert report_of(pool).problems == ()


def test_the_order_of_files_does_not_matter(files: list[Path]) -> None:
    one = read_metadata("visual-genome", files, min_box_area=0.02)
    other = read_metadata("visual-genome", files[::-1], min_box_area=0.02)
    assert one.content_hash == other.content_hash


def test_sizes_come_from_another_file(files: list[Path], members: Members) -> None:
    pool = read_metadata("visual-genome", files, min_box_area=0.02)
    assert members(pool, "object") == {("2", "cat"), ("2", "street")}
    alone = read_metadata("visual-genome", [files[1]], min_box_area=0.02)
    assert not members(alone, "object")
    assert report_of(alone).problems[0].kind == "object without a usable box, left out"


def test_odd_values_are_counted(written: Written, members: Members) -> None:
    entries = [
        {"image_id": 1, "objects": [thing("cat"), 5, thing(), {"name": "old"}, {"names": [None]}]},
        {"id": 2, "objects": [thing("cat", attributes="red"), thing("dog", attributes=4)]},
        {"image_id": 3, "objects": {"a": 1}},
        {"image_id": None, "objects": []},
        {"image_id": 2.5, "objects": []},
        {"image_id": 1, "objects": [thing("dog")], "width": "wide"},
        [],
    ]
    pool = read_metadata("visual-genome", written(entries))
    assert pool.image_ids.to_pylist() == ["1", "2", "3"]
    assert members(pool, "object") == {
        ("1", "cat"), ("1", "old"), ("1", "dog"), ("2", "cat"), ("2", "dog"),
    }  # fmt: skip
    assert members(pool, "attribute") == {("2", "cat(red)")}
    assert {problem.kind: problem.count for problem in report_of(pool).problems} == {
        "image that is no object, left out": 1,
        "image without a usable id, left out": 2,
        "attributes that are no list, left out": 1,
        "image id that comes again, merged": 2,
        "image without a list of objects": 1,
        "object that is no JSON object, left out": 1,
        "object without a name, left out": 2,
        "width or height that is no size, left empty": 1,
    }


def test_relations_that_lead_nowhere(written: Written, members: Members) -> None:
    ends = {"subject": thing("cat"), "object": thing("mat")}
    entries = [
        {"image_id": 1, "relationships": [
            {**ends, "predicate": "on"}, {**ends, "predicate": None}, {"predicate": "on"}, "on",
        ]}
    ]  # fmt: skip
    pool = read_metadata("visual-genome", written(entries))
    assert members(pool, "relation") == {("1", "cat(on mat)")}
    assert {problem.kind: problem.count for problem in report_of(pool).problems} == {
        "object that is no JSON object, left out": 2,
        "relation that is no JSON object, left out": 1,
        "relation to no object that counts, left out": 2,
    }


@pytest.mark.parametrize("value", [{}, [], [1], [{"image_id": 1, "regions": []}], {"objects": []}])
def test_other_files_are_refused(written: Written, value: Any) -> None:
    with pytest.raises(BadFile, match=r"Visual Genome|a list is expected"):
        read_metadata("visual-genome", written(value))

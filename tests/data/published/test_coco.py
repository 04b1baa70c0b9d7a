from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.published.options import box_share
from heldout.data.testset.testset import TestSet

Members = Callable[[TestSet, str], set[tuple[str, str]]]
Written = Callable[..., Path]


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
    pool = read_metadata("coco", written(instances()), places=frozenset({"animal"}))
    assert members(pool, "object") == {("1", "cat"), ("1", "person")}
    assert members(pool, "supercategory") == {("1", "animal"), ("1", "person")}
    assert members(pool, "general") == {("1", "animal")}
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

"""Files of COCO and OpenImages: which objects they name, and every way in which they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.curate.cutouts.outlines import (
    MaskFile,
    Polygons,
    RunLengths,
    coco_jobs,
    openimages_jobs,
    read_class_names,
)
from heldout.curate.cutouts.photos import Box, Photographs
from tests.curate.cutouts.scenes import ellipse, write

PHOTOS = Photographs(["val/1.jpg", "val/2.jpg"])
SQUARE = [[10, 10, 50, 10, 50, 50, 10, 50]]


def coco(tmp_path: Path, *annotations: dict[str, Any], **changes: Any) -> Path:
    value = {
        "images": [
            {"id": 1, "file_name": "1.jpg", "width": 120, "height": 90, "license": 4},
            {"id": 2, "file_name": "2.jpg", "width": 120, "height": 90, "flickr_url": "http://f/2"},
            {"id": 3, "file_name": "3.jpg", "width": 120, "height": 90},
        ],
        "licenses": [
            {"id": 4, "name": "Attribution", "url": "http://creativecommons.org/licenses/by/2.0/"}
        ],
        "categories": [{"id": 7, "name": "dog"}, {"id": 8, "name": "traffic light"}],
        "annotations": [
            {"id": 100 + n, "image_id": 1, "category_id": 7, "segmentation": SQUARE, **entry}
            for n, entry in enumerate(annotations)
        ],
        **changes,
    }
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(value))
    return path


def test_objects_of_coco(tmp_path: Path) -> None:
    runs = {"size": [90, 120], "counts": [100, 50, 10_650]}
    text = {"size": [90, 120], "counts": "T3b1jY:"}
    path = coco(
        tmp_path,
        {},
        {"image_id": 2, "category_id": 8, "segmentation": runs},
        {"segmentation": text},
        {"iscrowd": 1, "segmentation": runs},
    )
    found = coco_jobs(path, PHOTOS)
    assert [s.file for s in found.jobs] == [
        "dog/1_100.png", "dog/1_102.png", "traffic light/2_101.png",
    ]  # fmt: skip
    outlines = [s.outline for s in found.jobs]
    assert isinstance(outlines[0], Polygons) and outlines[0].parts == (
        tuple(map(float, SQUARE[0])),
    )
    assert outlines[2] == RunLengths(120, 90, (100, 50, 10_650))
    assert outlines[1] == RunLengths(120, 90, "T3b1jY:")
    assert (found.jobs[0].licence, found.jobs[2].source) == ("CC-BY-2.0", "http://f/2")
    assert [p.reason for p in found.skipped] == ["a crowd, not one object"] and not found.failures


def test_classes_can_be_chosen(tmp_path: Path) -> None:
    path = coco(tmp_path, {}, {"image_id": 2, "category_id": 8})
    found = coco_jobs(path, PHOTOS, only=["traffic light"])
    assert [s.photo for s in found.jobs] == ["val/2.jpg"] and not found.failures
    with pytest.raises(BadFile, match="no category 'cat'"):
        coco_jobs(path, PHOTOS, only=["cat"])


def test_boxes_of_coco(tmp_path: Path) -> None:
    path = coco(tmp_path, {"bbox": [1, 2.5, 30, 40]}, {"bbox": [1, 2, 0, 4]}, {"bbox": "x"}, {})
    found = coco_jobs(path, PHOTOS, boxes=True)
    assert [s.box for s in found.jobs] == [Box(1, 2.5, 30, 40)]
    assert [p.object for p in found.failures] == [
        "annotation 101",
        "annotation 102",
        "annotation 103",
    ]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"segmentation": []}, "no segmentation"),
        ({"segmentation": None}, "no segmentation"),
        ({"segmentation": [[1, 2, 3]]}, "three corners"),
        ({"segmentation": [[1, 2, 3, 4]]}, "three corners"),
        ({"segmentation": [[1, 2, 3, 4, 5, "x"]]}, "three corners"),
        ({"segmentation": [[500, 500, 600, 500, 600, 600]]}, "outside the image"),
        ({"segmentation": [[-9, -9, -1, -9, -1, -1]]}, "outside the image"),
        ({"segmentation": {"counts": "1"}}, "no size"),
        ({"segmentation": {"size": [90, 120]}}, "no counts"),
        ({"segmentation": {"size": [90, 120], "counts": [1.5]}}, "no counts"),
        ({"image_id": 99}, "image 99 is not in the file"),
        ({"category_id": 99}, "no category 99"),
        ({"image_id": 3}, "the photo is not there"),
    ],
)
def test_wrong_annotations_are_listed_and_the_rest_is_made(
    entry: dict[str, Any], says: str, tmp_path: Path
) -> None:
    found = coco_jobs(coco(tmp_path, entry, {}), PHOTOS)
    assert [s.name for s in found.jobs] == ["1_101"]
    assert len(found.failures) == 1 and says in found.failures[0].reason


def test_numbers_that_are_none(tmp_path: Path) -> None:
    path = coco(tmp_path, {"segmentation": [[1, 2, 3, 4, 5, float("nan")]]})
    found = coco_jobs(path, PHOTOS)
    assert "three corners" in found.failures[0].reason


@pytest.mark.parametrize(
    "changes",
    [
        {"licenses": 5},
        {"licenses": {"id": 4}},
        {"images": [{"id": 1, "file_name": "1.jpg", "width": 120, "height": 90, "license": [4]}]},
    ],
)
def test_licences_that_are_none_leave_none(changes: dict[str, Any], tmp_path: Path) -> None:
    (found,) = coco_jobs(coco(tmp_path, {}, **changes), PHOTOS).jobs
    assert found.licence == ""


def test_missing_photos_may_be_allowed(tmp_path: Path) -> None:
    found = coco_jobs(coco(tmp_path, {"image_id": 3}, {}), PHOTOS, allow_missing=True)
    assert not found.failures and len(found.jobs) == 1
    assert {p.reason for p in found.skipped} == {"the photo is not there", "no object is annotated"}


@pytest.mark.parametrize(
    "changes",
    [
        {"images": None},
        {"images": [{"id": 1}]},
        {"images": [{"id": "1", "file_name": "1.jpg"}]},
        {"annotations": {}},
        {"annotations": [{"id": 1, "image_id": None}]},
        {"categories": [{"id": True, "name": "x"}]},
    ],
)
def test_files_that_are_not_coco(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"instances\.json"):
        coco_jobs(coco(tmp_path, {}, **changes), PHOTOS)


def test_files_that_are_not_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[")
    with pytest.raises(BadFile):
        coco_jobs(tmp_path / "x.json", PHOTOS)
    with pytest.raises(NotFound):
        coco_jobs(tmp_path / "none.json", PHOTOS)


@pytest.fixture
def openimages(tmp_path: Path) -> Path:
    write(tmp_path / "masks/a/1_m0k_x.png", (255 * ellipse()).astype(np.uint8))
    (tmp_path / "names.csv").write_text("/m/0k,Dog\n/m/0z,Zebra\n")
    (tmp_path / "seg.csv").write_text(
        "MaskPath,ImageID,LabelName,BoxID,BoxXMin\n"
        "1_m0k_x.png,1,/m/0k,x,0.1\n"
        "gone.png,1,/m/0k,y,0.1\n"
        "3_m0z.png,3,/m/0z,z,0.1\n"
    )
    (tmp_path / "boxes.csv").write_text(
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsGroupOf\n"
        "1,x,/m/0k,1,0.25,0.75,0.1,0.9,0\n"
        "1,x,/m/0k,1,0.25,0.75,0.1,0.9,1\n"
        "2,x,/m/0z,1,0.9,0.1,0.1,0.9,0\n"
        "2,x,/m/0z,1,a,0.1,0.1,0.9,0\n"
    )
    return tmp_path


def test_masks_of_openimages(openimages: Path) -> None:
    found = openimages_jobs(
        openimages / "seg.csv", PHOTOS, masks=openimages / "masks", class_names=openimages / "names.csv"
    )  # fmt: skip
    assert [s.file for s in found.jobs] == ["Dog/1_m0k_x.png"]
    assert isinstance(found.jobs[0].outline, MaskFile) and found.jobs[0].outline.resize
    assert [(p.photo, p.object) for p in found.failures] == [
        ("3", "3_m0z.png"), ("val/1.jpg", "gone.png"),
    ]  # fmt: skip
    assert [p.photo for p in found.skipped] == ["val/2.jpg"]


def test_boxes_of_openimages(openimages: Path) -> None:
    found = openimages_jobs(openimages / "boxes.csv", PHOTOS, class_names=openimages / "names.csv")
    assert [s.file for s in found.jobs] == ["Dog/1_1.png"]
    box = found.jobs[0].box
    assert box is not None and box.relative and box.in_pixels(200, 100) == Box(50, 10, 100, 80)
    assert [p.reason for p in found.skipped] == ["a group, not one object"]
    assert len(found.failures) == 2


def test_classes_of_openimages_need_their_names(openimages: Path) -> None:
    with pytest.raises(BadFile, match="--class-names"):
        openimages_jobs(openimages / "seg.csv", PHOTOS, masks=openimages / "masks")
    only = openimages_jobs(
        openimages / "seg.csv", PHOTOS, masks=openimages / "masks",
        class_names=openimages / "names.csv", only=["Dog"], allow_missing=True,
    )  # fmt: skip
    assert [p.object for p in only.failures] == ["gone.png"]


@pytest.mark.parametrize(
    "text", ["", "ImageID,LabelName\n1,/m/0k\n", "MaskPath,ImageID,LabelName\n"]
)
def test_other_tables_are_refused(text: str, openimages: Path) -> None:
    (openimages / "seg.csv").write_text(text)
    with pytest.raises(BadFile, match=r"seg\.csv"):
        openimages_jobs(openimages / "seg.csv", PHOTOS, masks=openimages / "masks")


def test_names_of_classes_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("/m/0k\n")
    with pytest.raises(BadFile, match="without a name"):
        read_class_names(tmp_path / "n.csv")
    with pytest.raises(NotFound):
        read_class_names(tmp_path / "none.csv")
    with pytest.raises(UserError):
        read_class_names(tmp_path)

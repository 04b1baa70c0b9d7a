"""ImageNetV2's dataset files with their reviews and the blacklist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heldout.core.errors import BadFile, LabelError, NotFound
from heldout.core.files import sha256_file
from heldout.data.importing import read_imagenetv2, read_testset
from heldout.data.published.imagenetv2 import part_of, read_class_info
from tests.data.testset.importers.small import IMAGENET

WNIDS = IMAGENET.ids
FILE: dict[str, Any] = {
    "sampling_function": "above_threshold",
    "seed": 7,
    "starting_from": "../data/datasets/imagenetv2-a-1.json",
    "min_num_annotations": 10,
    "image_filenames": [["cand-1", WNIDS[3]], ["cand-2", WNIDS[0]], ["cand-3", WNIDS[3]]],
}


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_dataset_and_review(tmp_path: Path) -> None:
    path = write(tmp_path / "imagenetv2-a-2.json", FILE)
    review = write(
        tmp_path / "imagenetv2-a-2_review.json",
        {WNIDS[3]: {"reviewed": True, "problematic": False}},
    )
    testset = read_imagenetv2(path, review=review)
    assert testset.name == "imagenetv2-a-2"
    assert testset.image_ids.to_pylist() == ["cand-1", "cand-2", "cand-3"]  # the file's order
    assert testset.truth()["class_id"].to_pylist() == [WNIDS[3], WNIDS[0], WNIDS[3]]
    assert testset.images["class_reviewed"].to_pylist() == [True, None, True]
    assert testset.card.recipe == {
        "name": "imagenetv2/above_threshold",
        "parameters": {"min_num_annotations": 10},
        "seed": 7,
    }
    assert [parent.get("file", parent.get("name")) for parent in testset.card.parents] == [
        "imagenetv2-a-2.json",
        "imagenetv2-a-2_review.json",
        "imagenetv2-a-1",
    ]
    where = testset.card.truths["original"]
    assert (where["kind"], where["version"], where["sha256"]) == ("single", "2", sha256_file(path))
    same = read_testset(path, reviews=tmp_path)  # a folder of reviews
    assert same.card.content_hash == testset.card.content_hash


@pytest.mark.parametrize(
    ("image", "part"),
    [
        ("ILSVRC2012_val_00000001.JPEG", "validation"),
        ("ILSVRC2012_test_00000001.JPEG", "test"),
        ("n01440764_12.JPEG", "train"),
        ("1a2b3c", "candidate"),
    ],
)
def test_where_an_image_comes_from(image: str, part: str) -> None:
    assert part_of(image) == part


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"image_filenames": []}, "lists no images"),
        ({"image_filenames": None}, "no list image_filenames"),
        ({"image_filenames": [["a"]]}, "no list image_filenames"),
        ({"image_filenames": [["a", 3]]}, "no list image_filenames"),
        ({"image_filenames": [["a", WNIDS[0]], ["a", WNIDS[1]]]}, "lists image 'a' twice"),
    ],
)
def test_hostile_dataset_files(tmp_path: Path, change: dict[str, Any], pattern: str) -> None:
    path = write(tmp_path / "x.json", FILE | change)
    with pytest.raises(BadFile, match=pattern) as caught:
        read_imagenetv2(path)
    assert "x.json" in caught.value.line and "\n" not in caught.value.line


def test_a_class_of_another_label_space_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", FILE | {"image_filenames": [["a", "n99999999"]]})
    with pytest.raises(LabelError, match=r"of x has class 'n99999999', which .* imagenet-1k does"):
        read_imagenetv2(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_imagenetv2(tmp_path / "no.json")
    path = tmp_path / "x.json"
    for text in ("", "[1, 2]", json.dumps(FILE)[:-5]):
        path.write_text(text)
        with pytest.raises(BadFile):
            read_imagenetv2(path)
    write(path, FILE)
    for value in ([], {"a": 3}, {"a": {"reviewed": "yes"}}):
        with pytest.raises(BadFile, match="a JSON object of classes"):
            read_imagenetv2(path, review=write(tmp_path / "r.json", value))


def test_class_catalogues(tmp_path: Path) -> None:
    rows = [{"cid": n, "wnid": c.id, "synset": list(c.names)} for n, c in enumerate(IMAGENET)]
    path = write(tmp_path / "class_info.json", rows[::-1])
    assert read_class_info(path).name == "imagenet-1k"  # ordered by cid, whatever the file's order
    some = read_class_info(write(path, rows[:3]))
    assert some.ids == WNIDS[:3] and some.name.startswith("classes-")
    for value, pattern in (
        ([], "class ids that are not 0, 1, 2"),
        ({}, "Expected array, got object"),
        ([{"cid": 1, "wnid": "n1"}], "class ids that are not 0, 1, 2"),
        ([{"cid": 0}], "missing required field wnid"),
        ([{"cid": 0, "wnid": "n1"}, {"cid": 1, "wnid": "n1"}], "twice"),
    ):
        with pytest.raises(BadFile, match=pattern):
            read_class_info(write(path, value))


@pytest.mark.shared
def test_published_files(shared_data: Path) -> None:
    folder = shared_data / "imagenetv2"
    assert read_class_info(folder / "metadata/class_info.json").name == "imagenet-1k"
    for name, images in (("imagenetv2-a-24", 9_999), ("imagenetv2-c-12", 10_000)):
        testset = read_imagenetv2(
            folder / f"datasets/{name}.json", review=folder / f"reviews/{name}_review.json"
        )
        assert testset.card.counts["classes"] == 1_000 and len(testset) == images


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"cid": 0, "wnid": "n1", "synset": "tench"}, "synset: Expected array, got str"),
        ({"cid": 0, "wnid": 7, "synset": ["tench"]}, "wnid: Expected str, got int"),
        ({"cid": 0, "wnid": "n1", "gloss": 3}, "gloss: Expected str, got int"),
    ],
)
def test_a_class_of_the_wrong_types_is_refused(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    with pytest.raises(BadFile, match=message):
        read_class_info(write(tmp_path / "class_info.json", [row]))

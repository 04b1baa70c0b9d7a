from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound
from heldout.data.importing.audit import (
    Audit,
    audit,
    read_blacklist,
    read_image_ids,
    read_near_duplicates,
)
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table

from .conftest import SPACE

Maker = Callable[..., TestSet]


def simple(rows: dict[str, str], **columns: Any) -> TestSet:
    ids = list(rows)
    return make_testset(
        Card(name="a", label_space="pets"),
        images=image_table({"image_id": ids, **columns}),
        truths={"original": truth_table(ids, list(rows.values()))},
        label_space=SPACE,
    )


FULL = {f"{label}-{n}": label for label in SPACE.ids for n in range(2)}


def test_a_clean_set() -> None:
    result = audit(simple(FULL))
    assert result.clean
    assert not any(result.counts.values())
    assert (result.images, result.classes, result.sizes) == (8, 4, {2: 4})
    assert result.target_per_class == 2
    assert result.sources == {"unknown": 8}
    assert result.checked == ()
    json.dumps(result.to_dict())


def test_short_long_and_absent_classes() -> None:
    rows = {"a": "cat", "b": "cat", "c": "cat", "d": "dog", "e": "crane-bird", "f": "crane-bird"}
    unknown = audit(simple(rows))
    assert unknown.absent == ("crane-lift",)
    assert unknown.sizes == {1: 1, 2: 1, 3: 1}
    assert (unknown.target_per_class, unknown.short, unknown.long) == (0, (), ())
    usual = audit(simple({**rows, "g": "dog"}))
    assert usual.target_per_class == 2
    assert [c["class_id"] for c in usual.long] == ["cat"]
    lacking = audit(simple({image: label for image, label in FULL.items() if image != "cat-0"}))
    assert [(c["class_id"], c["n"]) for c in lacking.short] == [("cat", 1)]


def test_images_without_class_or_with_several(pets: TestSet, make_pets: Maker) -> None:
    truth = truth_table(
        ["i1", "i1", "i2", "i4"],
        ["cat", "dog", None, "dog"],
        correct=[["cat"], ["dog"], [], ["dog"]],
        problematic=[True, False, False, True],
    )
    result = audit(make_pets(truths={"original": truth}))
    assert result.without_class == ("i2", "i5", "i6", "ü/3 «x»")
    assert result.several_classes == ("i1",)
    assert result.problematic_images == ("i1", "i4")
    assert audit(pets, truth="multi").problematic_images == ("i4",)
    with pytest.raises(NotFound):
        audit(pets, truth="none")


def test_blacklist() -> None:
    found = audit(simple(FULL), blacklist={"dog-0": "drawing", "elsewhere": "x"})
    assert [(b["image_id"], b["reason"]) for b in found.blacklisted] == [("dog-0", "drawing")]
    assert found.checked == ("blacklist",) and not found.clean


def test_repeated_files_and_foreign_images() -> None:
    digests = ["aa", "aa", "bb", None, None, "cc", "aa", "dd"]
    made = simple(FULL, sha256=digests)
    other = simple({"cat-0": "cat", "x": "dog"}, sha256=[None, "bb"])
    result = audit(made, others={"validation": other, "train": ["dog-1", "y"], "none": []})
    assert result.repeated_files == (("cat-0", "cat-1", "crane-lift-0"),)
    assert [(f["image_id"], f["belongs_to"], f["by"]) for f in result.foreign] == [
        ("cat-0", "validation", "id"),
        ("dog-0", "validation", "sha256"),
        ("dog-1", "train", "id"),
    ]
    assert result.counts["repeated_files"] == 2
    assert result.counts["foreign"] == 3


def test_near_duplicates_inside_and_elsewhere() -> None:
    listed = {
        "cat-0": ["cat-1", "n01440764_10.JPEG"],
        "cat-1": ["cat-0", "cat-1"],
        "dog-0": ["outside"],
        "outside": ["crane-bird-0", "far"],
        "ILSVRC2012_val_00000001.JPEG": ["dog-1"],
        "p": ["q"],
    }
    result = audit(simple(FULL), near_duplicates=listed, others={"pool": ["far", "outside"]})
    assert result.duplicate_pairs == (("cat-0", "cat-1"),)
    assert result.duplicate_groups == (("cat-0", "cat-1"), ("crane-bird-0", "dog-0"))
    assert [(link["image_id"], link["other"], link["part"]) for link in result.duplicate_links] == [
        ("cat-0", "n01440764_10.JPEG", "train"),
        ("crane-bird-0", "outside", "pool"),
        ("dog-0", "outside", "pool"),
        ("dog-1", "ILSVRC2012_val_00000001.JPEG", "validation"),
    ]
    assert result.counts["duplicates_elsewhere"] == 4


NODES = [*FULL, "x1", "x2", "x3"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=12))
def test_groups_are_connected_components(edges: list[tuple[str, str]]) -> None:
    listed: dict[str, list[str]] = defaultdict(list)
    for a, b in edges:
        listed[a].append(b)
    reach = {node: {node} for node in NODES}
    for _ in NODES:  # slow and obvious: spread until nothing can change
        for a, b in edges:
            joined = reach[a] | reach[b]
            for node in joined:
                reach[node] = reach[node] | joined
    wanted = {tuple(sorted(reach[node] & FULL.keys())) for node in FULL}
    result = audit(simple(FULL), near_duplicates=listed)
    assert set(result.duplicate_groups) == {group for group in wanted if len(group) > 1}
    inside = {
        tuple(sorted(edge)) for edge in edges if set(edge) <= FULL.keys() and len(set(edge)) > 1
    }
    assert set(result.duplicate_pairs) == inside


def test_reviews_and_expected_classes() -> None:
    marks = [None if image.startswith("crane-lift") else "bird" not in image for image in FULL]
    bad = [image.startswith("dog") for image in FULL]
    made = simple(FULL, class_reviewed=marks, class_problematic=bad)
    result = audit(made, expected_classes={"cat-0": "dog", "cat-1": "cat"})
    assert result.problematic_classes == ("dog",)
    assert result.unreviewed_classes == ("crane-bird", "crane-lift")
    (mismatch,) = result.class_mismatches
    assert (mismatch["image_id"], mismatch["class_id"], mismatch["expected"]) == (
        "cat-0",
        "cat",
        "dog",
    )
    column = audit(simple(FULL, class_reviewed=[True] * 7 + [None], class_problematic=[False] * 8))
    assert (column.problematic_classes, column.unreviewed_classes) == ((), ())
    assert column.checked == ("review",)


class TestFiles:
    def test_read(self, tmp_path: Path) -> None:
        path = tmp_path / "x.json"
        path.write_text('{"a": "drawing"}')
        assert read_blacklist(path) == {"a": "drawing"}
        path.write_text('{"a": ["b"]}')
        assert read_near_duplicates(path) == {"a": ("b",)}
        path.write_text('["a", "b"]')
        assert read_image_ids(path) == ("a", "b")
        (tmp_path / "x.txt").write_text("\ufeff a\n\nb\n", encoding="utf-8")  # as Windows saves it
        assert read_image_ids(tmp_path / "x.txt") == ("a", "b")

    @pytest.mark.parametrize("text", ["[]", '{"a": 1}', "3", "{", '{"a": [1]}'])
    def test_bad(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "x.json"
        path.write_text(text)
        for read in (read_blacklist, read_near_duplicates):
            with pytest.raises(BadFile, match=r"x\.json"):
                read(path)
        if text != "[]":
            with pytest.raises(BadFile):
                read_image_ids(path)

    def test_bad_text(self, tmp_path: Path) -> None:
        (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(BadFile, match="UTF-8"):
            read_image_ids(tmp_path / "x.txt")
        with pytest.raises(NotFound):
            read_image_ids(tmp_path / "none.txt")


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "imagenetv2"


def published(folder: Path, name: str) -> Audit:
    testset = read_imagenetv2(
        folder / "datasets" / f"{name}.json", review=folder / "reviews" / f"{name}_review.json"
    )
    validation = read_imagenetv2(folder / "datasets" / "imagenet-validation-original.json")
    return audit(
        testset,
        blacklist=read_blacklist(folder / "metadata" / "candidate_blacklist.json"),
        near_duplicates=read_near_duplicates(folder / "metadata" / "near_duplicates.json"),
        others={"imagenet-validation-original": validation},
    )


# set: blacklisted, pairs, groups, images in groups, near duplicates of ImageNet images
FINAL = {
    "imagenetv2-a-44": (0, 4, 4, 9, 1),
    "imagenetv2-b-33": (1, 2, 2, 4, 1),
    "imagenetv2-c-12": (0, 0, 1, 2, 1),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", FINAL)
def test_final_revisions_of_imagenetv2(folder: Path, name: str) -> None:
    result = published(folder, name)
    counts = result.counts
    assert (
        counts["blacklisted"],
        counts["duplicate_pairs"],
        counts["duplicate_groups"],
        sum(map(len, result.duplicate_groups)),
        counts["duplicates_elsewhere"],
    ) == FINAL[name]
    (link,) = result.duplicate_links
    assert link["part"] == "imagenet-validation-original"
    assert link["other"].startswith("ILSVRC2012_val_")
    assert result.sizes == {10: 1000}
    assert result.sources == {"candidate": 10_000}
    found = ("blacklisted", "duplicate_pairs", "duplicate_groups", "duplicates_elsewhere")
    assert not any(n for problem, n in counts.items() if problem not in found)
    assert result.checked == ("blacklist", "near_duplicates", "others", "review")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["imagenetv2-b-33", "imagenetv2-a-22", "imagenetv2-b-0"])
def test_against_plain_sets(folder: Path, name: str) -> None:
    """The same lists, computed from the raw files without any of our code."""
    result = published(folder, name)
    rows = json.loads((folder / "datasets" / f"{name}.json").read_text())["image_filenames"]
    images = {image for image, _ in rows}
    blacklist = json.loads((folder / "metadata" / "candidate_blacklist.json").read_text())
    assert {b["image_id"]: b["reason"] for b in result.blacklisted} == {
        image: blacklist[image] for image in images & blacklist.keys()
    }
    listed = json.loads((folder / "metadata" / "near_duplicates.json").read_text())
    edges = {frozenset((a, b)) for a, found in listed.items() for b in found if a != b}
    assert {frozenset(pair) for pair in result.duplicate_pairs} == {e for e in edges if e <= images}
    sizes = Counter(Counter(label for _, label in rows).values())
    assert result.sizes == dict(sorted(sizes.items()))
    assert {c["class_id"] for c in result.short} == {
        label for label, n in Counter(label for _, label in rows).items() if n < 10
    }
    review = json.loads((folder / "reviews" / f"{name}_review.json").read_text())
    problematic = {label for label, mark in review.items() if mark["problematic"]}
    assert set(result.problematic_classes) == problematic


@pytest.mark.shared
def test_early_revision_has_what_the_reviews_removed(folder: Path) -> None:
    counts = published(folder, "imagenetv2-b-0").counts
    assert counts["blacklisted"] == 2020
    assert counts["duplicate_pairs"] == 577
    assert counts["duplicate_groups"] == 486
    assert counts["short_classes"] == 6
    assert counts["problematic_classes"] == 694


@pytest.mark.shared
def test_a_validation_subset_is_foreign_to_itself(folder: Path) -> None:
    names = ("imagenet-annotatedval20k-0", "imagenet-validation-original", "imagenetv2-c-12")
    twenty, validation, top = (
        read_imagenetv2(folder / "datasets" / f"{name}.json") for name in names
    )
    result = audit(twenty, others={"validation": validation, "top": top})
    assert result.counts["foreign"] == 20_000
    assert {item["belongs_to"] for item in result.foreign} == {"validation"}
    assert result.sources == {"validation": 20_000}

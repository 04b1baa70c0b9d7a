"""Multi-label, ReaL and ImageNet-M files on small generated sets."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import BadFile, MismatchError, NotFound, UserError
from heldout.data.importing import (
    match_images,
    read_imagenet_m,
    read_multilabel,
    read_real,
    read_real_scores,
    read_truth,
)
from heldout.data.published.truths import name_key, validation_number
from heldout.data.testset import TestSet, add_truth, save
from heldout.data.testset.subset import subset
from tests.data.testset.importers.small import IMAGENET, plain_set, val

HEADER = [
    "id",
    "category",
    "original_label",
    "proposed_labels",
    "manually_validated",
    "unclear_multi_labels",
    "wrong_multi_labels",
    "is_problematic",
]
ROWS: list[list[Any]] = [
    [val(1), "A", 24, "24", True, "", "", False],
    [val(2), "M", 582, "415, 813, 415", True, "7", "582, 813", True],
    [val(3), "M", 9, "", True, "", "9", True],
    [val(5), "M", 5, "5, 6", True, "6", "5", False],
]


def write_csv(path: Path, rows: list[list[Any]], header: list[str] = HEADER) -> Path:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([header, *rows])
    return path


def five(ids: list[str] | None = None) -> TestSet:
    return plain_set(ids or [val(n) for n in range(1, 6)], [24, 582, 9, 3, 5])


def rows_of(table: Any) -> dict[str, dict[str, Any]]:
    return {row["image_id"]: row for row in table.to_pylist()}


def names(*indices: int) -> list[str]:
    return [IMAGENET.ids[index] for index in indices]


def test_multilabel_csv(tmp_path: Path) -> None:
    truth = read_multilabel(write_csv(tmp_path / "m.csv", ROWS), testset=five())
    rows = rows_of(truth.table)
    assert list(rows) == [val(n) for n in (1, 2, 3, 5)]
    second = rows[val(2)]
    assert second["class_id"] == IMAGENET.ids[582] and second["problematic"]
    assert second["correct"] == names(415, 813)  # the repeat is gone
    assert second["wrong"] == names(582, 813)  # as published: 813 is correct too, the hit wins
    assert second["unclear"] == names(7)
    where = truth.provenance
    assert (where["kind"], where["source"], where["version"]) == ("multilabel", "m.csv", "unknown")
    assert where["counts"]["images"] == 4 and where["counts"]["problematic"] == 2
    assert where["counts"]["correct_labels"] == 6 and where["counts"]["correct_images"] == 3
    assert where["conflicts"] == {"correct_and_wrong": 2, "repeated_labels": 1}
    assert where["matching"]["exact"] == 4 and where["matching"]["not_in_file"] == 1
    assert any("hit wins" in note for note in truth.notes)


def source_json(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "initial_annots": {
            val(1): {"correct": names(24)},
            val(2): {
                "correct": names(415, 813, 415),
                "unclear": names(7),
                "wrong": names(582, 813),
            },
            val(3): {"wrong": names(9)},
            val(5): {"correct": names(5, 6), "unclear": names(6), "wrong": names(5)},
            "n01440764/another-set.jpeg": {"correct": names(0)},
        },
        "problematic_images": {val(2): "drawing", val(3): "wrong"},
        "imagenet_m": [val(5), val(2)],
    }
    return value | changes


def test_multilabel_json_equals_csv(tmp_path: Path) -> None:
    path = tmp_path / "human_accuracy_v3.0.0.json"
    path.write_text(json.dumps(source_json()))
    truth = read_multilabel(path, testset=five())
    assert truth.provenance["version"] == "3.0.0"
    assert truth.provenance["matching"]["not_in_testset"] == 1
    same = read_multilabel(write_csv(tmp_path / "m.csv", ROWS), testset=five())
    assert rows_of(truth.table) == rows_of(same.table)
    assert truth.provenance["conflicts"] == same.provenance["conflicts"]
    assert read_truth(path, five()).table.equals(truth.table)


@pytest.mark.parametrize(
    "ids",
    [
        [f"ILSVRC2012_val_{n:08d}" for n in range(1, 6)],
        [f"val/{IMAGENET.ids[n]}/{val(n)}" for n in range(1, 6)],
        [f"ILSVRC2012_val_{n:08d}_{IMAGENET.ids[n]}.JPEG" for n in range(1, 6)],
    ],
)
def test_ids_are_matched_by_name_and_that_is_said(tmp_path: Path, ids: list[str]) -> None:
    testset = five(ids)
    truth = read_multilabel(write_csv(tmp_path / "m.csv", ROWS), testset=testset)
    assert truth.table["image_id"].to_pylist() == [ids[0], ids[1], ids[2], ids[4]]
    assert truth.provenance["matching"]["by_name"] == 4
    assert any("matched by file name" in note for note in truth.notes)


def test_matching_refuses_what_is_ambiguous() -> None:
    testset = plain_set(["0/0.jpeg", "1/0.jpeg", "2/1.jpeg"], [0, 1, 2])
    with pytest.raises(MismatchError, match="fits 2 images"):
        match_images(testset, ["0.jpeg"], source="f")
    assert match_images(testset, ["1", "0/0.jpeg"], source="f").image_ids == (
        "2/1.jpeg",
        "0/0.jpeg",
    )
    with pytest.raises(MismatchError, match="twice"):
        match_images(testset, ["1.jpeg", "2/1.jpeg"], source="f")
    with pytest.raises(MismatchError, match="none of its 1 images"):
        match_images(testset, ["zebra.jpg"], source="f")
    with pytest.raises(MismatchError, match="none of its 0 images"):
        match_images(testset, [], source="f")


def test_name_keys() -> None:
    assert name_key("a\\b\\c.PNG") == "c"
    assert name_key("v1.5") == "v1.5"  # no image ending
    assert name_key("x/.jpg") == ".jpg"
    assert name_key("ILSVRC2012_val_000002931.JPEG") == "ILSVRC2012_val_000002931"  # nine digits
    assert validation_number("ILSVRC2012_val_00000293") == 293
    assert validation_number("ILSVRC2012_test_00000293.JPEG") is None


@pytest.mark.parametrize(
    ("change", "error", "pattern"),
    [
        ({3: "24, 1000"}, BadFile, "class index 1000 is outside"),
        ({3: "24, x"}, BadFile, "'x' is not a class index"),
        ({3: "24,"}, BadFile, "'' is not a class index"),
        ({3: "nan"}, BadFile, "'nan' is not a class index"),
        ({2: ""}, BadFile, "0 original labels"),
        ({7: "maybe"}, BadFile, "is_problematic 'maybe'"),
        ({0: ""}, BadFile, "row 1 has no image id"),
        ({0: val(2)}, BadFile, "rows 1 and 2"),
        ({0: "ILSVRC2012_val_00000002"}, MismatchError, "twice"),
    ],
)
def test_hostile_multilabel_csv(
    tmp_path: Path, change: dict[int, Any], error: type[UserError], pattern: str
) -> None:
    rows = [list(row) for row in ROWS]
    for column, value in change.items():
        rows[0][column] = value
    with pytest.raises(error, match=pattern) as caught:
        read_multilabel(write_csv(tmp_path / "m.csv", rows), testset=five())
    assert "m.csv" in caught.value.line and "\n" not in caught.value.line


def test_multilabel_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_multilabel(tmp_path / "nowhere.csv", testset=five())
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(BadFile, match="is empty"):
        read_multilabel(tmp_path / "empty.csv", testset=five())
    with pytest.raises(BadFile, match="has no rows"):
        read_multilabel(write_csv(tmp_path / "head.csv", []), testset=five())
    short = write_csv(tmp_path / "short.csv", [row[:3] for row in ROWS], HEADER[:3])
    with pytest.raises(BadFile, match="has no column 'correct_multi_labels'"):
        read_multilabel(short, testset=five())
    cut = tmp_path / "cut.csv"
    cut.write_text(write_csv(tmp_path / "m.csv", ROWS).read_text()[:-20])
    with pytest.raises(BadFile, match="cannot be read as CSV"):
        read_multilabel(cut, testset=five())


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ([], "initial_annots"),
        ({"initial_annots": {}}, "initial_annots"),
        ({"initial_annots": {val(1): ["x"]}}, "no lists of labels"),
        ({"initial_annots": {val(1): {"correct": "n01440764"}}}, "no lists of labels"),
        ({"initial_annots": {val(1): {"correct": ["n99999999"]}}}, "n99999999"),
        ({"initial_annots": {val(1): {}}, "problematic_images": 3}, "problematic_images"),
    ],
)
def test_hostile_multilabel_json(tmp_path: Path, value: Any, pattern: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BadFile, match=pattern):
        read_multilabel(path, testset=five())
    path.write_text(json.dumps(value)[:-1])
    with pytest.raises(BadFile, match="not valid JSON"):
        read_multilabel(path, testset=five())


def test_multilabel_of_another_labelling_is_refused(tmp_path: Path) -> None:
    shifted = plain_set([val(n) for n in range(1, 6)], [25, 583, 10, 4, 6])
    with pytest.raises(MismatchError, match="the original class of 4 of 4 images is another"):
        read_multilabel(write_csv(tmp_path / "m.csv", ROWS), testset=shifted)
    one = plain_set([val(n) for n in range(1, 6)], [25, 582, 9, 3, 5])
    truth = read_multilabel(write_csv(tmp_path / "m.csv", ROWS), testset=one)
    assert truth.provenance["original_differs"] == 1


def write_real(folder: Path, value: Any) -> Path:
    path = folder / "real.json"
    path.write_text(json.dumps(value))
    return path


def write_scores(folder: Path, pairs: list[tuple[str, str]], scores: list[float]) -> Path:
    path = folder / "scores.npz"
    np.savez(path, tensor=np.array(scores), info=np.array(pairs))
    return path


def test_real_list_and_scores_agree(tmp_path: Path) -> None:
    lists: list[list[int]] = [[24, 3], [], [9], [3], [6, 5]]
    pairs = [
        (val(1), "24"),
        (val(1), "3"),
        (val(1), "8"),
        (val(2), "582"),
        (val(5), "5"),
        (val(5), "6"),
    ]
    scores = [0.9, 0.8, 0.79, 0.1, 1.0, 0.85]
    testset = five()
    real = read_real(write_real(tmp_path, lists), testset=testset)
    cut = read_real_scores(write_scores(tmp_path, pairs, scores), testset=testset, cut=0.8)
    assert real.table.equals(cut.table)
    assert real.provenance["kind"] == cut.provenance["kind"] == "real"
    assert cut.provenance["cut"] == 0.8 and cut.provenance["counts"]["kept_original"] == 2
    counts = real.provenance["counts"]
    assert (counts["empty"], counts["labels"], counts["several_labels"]) == (1, 6, 2)
    assert rows_of(real.table)[val(1)]["correct"] == names(3, 24)
    assert (real.name, cut.name) == ("real", "real")
    assert read_truth(tmp_path / "scores.npz", testset, cut=0.5).name == "real-0.5"
    assert read_truth(tmp_path / "real.json", testset).table.equals(real.table)


@settings(max_examples=30, deadline=None)
@given(
    scores=st.lists(st.floats(0, 1), min_size=1, max_size=20),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_higher_cut_keeps_a_subset(
    scores: list[float], cuts: tuple[float, float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("real")
    pairs = [(val(1 + n % 3), str(n)) for n in range(len(scores))]
    path = write_scores(folder, pairs, scores)
    low, high = (
        rows_of(read_real_scores(path, testset=five(), cut=cut).table) for cut in sorted(cuts)
    )
    for image, row in high.items():
        assert set(row["correct"]) <= set(low[image]["correct"])
    oracle = [IMAGENET.ids[n] for n, s in enumerate(scores) if n % 3 == 0 and s >= min(cuts)]
    assert sorted(low[val(1)]["correct"]) == sorted(oracle)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ({}, "Expected array, got object"),
        ([[1], "x"], "got str"),
        ([[1], [1000]], "<= 999"),
        ([[True]], "got bool"),
        ([[1.0]], "got float"),
        ([[-1]], ">= 0"),
    ],
)
def test_hostile_real_json(tmp_path: Path, value: Any, pattern: str) -> None:
    with pytest.raises(BadFile, match=pattern):
        read_real(write_real(tmp_path, value), testset=five())


def test_real_of_another_set(tmp_path: Path) -> None:
    path = write_real(tmp_path, [[1]] * 3)
    with pytest.raises(MismatchError, match="has 3 lists and none for"):
        read_real(path, testset=five())
    with pytest.raises(MismatchError, match="no images named ILSVRC2012_val"):
        read_real(path, testset=plain_set(["a.jpg"], [0]))
    twice = plain_set([val(1), f"x/{val(1)}"], [0, 0])
    with pytest.raises(MismatchError, match="both validation image 1"):
        read_real(path, testset=twice)
    mixed = plain_set([val(1), "a.jpg"], [0, 0])
    truth = read_real(path, testset=mixed)
    assert len(truth.table) == 1 and truth.provenance["matching"]["not_in_file"] == 1


@pytest.mark.parametrize(
    ("pairs", "scores", "pattern"),
    [
        ([(val(1), "1")], [float("nan")], "not in 0..1"),
        ([(val(1), "1")], [1.5], "not in 0..1"),
        ([(val(1), "1000")], [0.5], "'1000'"),
        ([(val(1), "x")], [0.5], "'x'"),
        ([("zebra.jpg", "1")], [0.5], "zebra.jpg"),
        ([(val(1), "1")], [0.5, 0.6], "shape"),
    ],
)
def test_hostile_scores(
    tmp_path: Path, pairs: list[tuple[str, str]], scores: list[float], pattern: str
) -> None:
    with pytest.raises(BadFile, match=pattern):
        read_real_scores(write_scores(tmp_path, pairs, scores), testset=five())


def test_scores_files_that_are_none(tmp_path: Path) -> None:
    path = write_scores(tmp_path, [(val(1), "1")], [0.9])
    with pytest.raises(UserError, match="not a score cut"):
        read_real_scores(path, testset=five(), cut=float("nan"))
    with pytest.raises(MismatchError, match="none of its images"):
        read_real_scores(path, testset=plain_set([val(9)], [0]))
    bare = five()
    unlabelled = TestSet(
        bare.card.updated(truths={}), bare.images, {}, bare.memberships, bare.label_space
    )
    with pytest.raises(MismatchError, match="no original class"):
        read_real_scores(path, testset=unlabelled)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadFile):
        read_real_scores(path, testset=five())
    np.savez(tmp_path / "other.npz", a=np.zeros(1))
    with pytest.raises(BadFile, match="has no array 'tensor'"):
        read_real_scores(tmp_path / "other.npz", testset=five())


def with_truth(tmp_path: Path) -> TestSet:
    testset = save(five(), tmp_path / "sets" / "val")
    truth = read_multilabel(write_csv(tmp_path / "m.csv", ROWS), testset=testset)
    return add_truth(testset, "multilabel", truth.table, provenance=truth.provenance)


def test_imagenet_m_is_a_subset_judged_by_the_multilabel_truth(tmp_path: Path) -> None:
    parent = with_truth(tmp_path)
    lists = {
        "m.txt": f"# comment\n{val(5)}\n\nILSVRC2012_val_00000002\n",
        "m.json": json.dumps([val(2), val(5)]),
        "human_accuracy_v3.0.0.json": json.dumps(source_json()),
    }
    made = []
    for name, text in lists.items():
        (tmp_path / name).write_text(text)
        made.append(read_imagenet_m(tmp_path / name, parent=parent))
    first = made[0]
    assert {m.card.content_hash for m in made} == {first.card.content_hash}  # order plays no part
    assert first.image_ids.to_pylist() == [val(2), val(5)]
    assert first.card.default_truth == "multilabel" and "original" in first.card.truths
    assert first.truth().equals(parent.truth("multilabel").slice(1, 3).filter([True, False, True]))
    assert first.card.parents[0]["content_hash"] == parent.card.content_hash
    assert first.card.parents[1]["file"] == "m.txt"
    saved = save(first, tmp_path / "sets" / "imagenet-m")
    assert saved.card.content_hash == first.card.content_hash


def test_hostile_imagenet_m(tmp_path: Path) -> None:
    parent = with_truth(tmp_path)
    path = tmp_path / "m.txt"
    with pytest.raises(NotFound):
        read_imagenet_m(path, parent=parent)
    for text, error, pattern in (
        ("", BadFile, "lists no images"),
        (f"{val(2)}\n{val(2)}\n", BadFile, "twice"),
        (f"{val(2)}\n{val(77)}\n", MismatchError, "is not in test set val"),
        (f"{val(2)}\n{val(4)}\n", MismatchError, "have no truth multilabel"),
    ):
        path.write_text(text)
        with pytest.raises(error, match=pattern):
            read_imagenet_m(path, parent=parent)
    path.write_text(val(2))
    with pytest.raises(NotFound, match="no multi-label truth"):
        read_imagenet_m(path, parent=five())
    for value in ({"initial_annots": {}}, [1, 2], "x"):
        (tmp_path / "m.json").write_text(json.dumps(value))
        with pytest.raises(BadFile, match="imagenet_m"):
            read_imagenet_m(tmp_path / "m.json", parent=parent)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFile, match="UTF-8"):
        read_imagenet_m(path, parent=parent)


def test_subset_keeps_rows_and_refuses_strangers(tmp_path: Path) -> None:
    parent = with_truth(tmp_path)
    recipe = {"name": "test", "parameters": {}, "seed": 1}
    made = subset(parent, [val(3), val(1)], name="two", recipe=recipe)
    assert made.image_ids.to_pylist() == [val(1), val(3)]
    assert list(made.truths) == ["original", "multilabel"]
    assert made.card.counts == {"parent": 5, "images": 2}
    again = subset(parent, [val(1), val(3), val(1)], name="two", recipe=recipe)
    assert again.card.content_hash == made.card.content_hash
    lone = subset(parent, [val(4)], name="one", recipe=recipe)
    assert list(lone.truths) == ["original"]  # the multi-label truth has none of its images
    with pytest.raises(MismatchError, match="is not in test set"):
        subset(parent, [val(1), "zebra"], name="x", recipe=recipe)
    with pytest.raises(UserError, match="no images"):
        subset(parent, [], name="x", recipe=recipe)
    with pytest.raises(NotFound, match="no truth 'panel'"):
        subset(parent, [val(1)], name="x", recipe=recipe, truths=["panel"])

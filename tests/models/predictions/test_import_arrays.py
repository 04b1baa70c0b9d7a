"""Tests of :mod:`heldout.models.predictions.import_arrays`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile, MismatchError, NotFound
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.data.testset import TestSet
from heldout.models.predictions.import_arrays import (
    check_order,
    first_labels,
    image_order,
    labels_in_order,
    looks_reversed,
    read_outputs,
)
from heldout.models.predictions.import_predictions import find_aliases

# arrays


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64]
)
def test_any_integer_width(tmp_path: Path, dtype: type) -> None:
    np.save(tmp_path / "m.npy", np.array([[3, 1], [0, 2]], dtype))
    outputs = read_outputs(tmp_path / "m.npy", classes=4)
    assert outputs.topk.dtype == np.int32 and outputs.topk.tolist() == [[3, 1], [0, 2]]
    assert outputs.logits is None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_logits_give_their_top_k(tmp_path: Path, dtype: type) -> None:
    np.savez(tmp_path / "m.npz", logits=np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]], dtype))
    outputs = read_outputs(tmp_path / "m.npz", classes=3)
    assert outputs.topk.tolist() == [[1, 2, 0], [0, 1, 2]]


def test_an_archive_of_several_arrays_needs_a_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=np.zeros((1, 3)), b=np.ones((1, 3)))
    with pytest.raises(BadFile, match="a, b"):
        read_outputs(tmp_path / "m.npz", classes=3)
    assert read_outputs(tmp_path / "m.npz", classes=3, array="b").logits is not None
    with pytest.raises(BadFile, match="no array 'c'"):
        read_outputs(tmp_path / "m.npz", classes=3, array="c")


@pytest.mark.parametrize("cut", [0, 5, 60, 130])
def test_truncated_files(tmp_path: Path, cut: int) -> None:
    np.save(tmp_path / "m.npy", np.zeros((100, 5), np.int16))
    data = (tmp_path / "m.npy").read_bytes()
    (tmp_path / "m.npy").write_bytes(data[:cut])
    with pytest.raises(BadFile, match=r"m\.npy"):
        read_outputs(tmp_path / "m.npy", classes=10)


def test_reversed_columns_are_told_from_weak_models() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 100, 5000)
    top = np.stack([rng.permutation(100)[:5] for _ in labels])
    assert not looks_reversed(top, labels)
    right = rng.random(5000)
    for i, label in enumerate(labels):
        if right[i] < 0.25:
            top[i] = np.r_[label, np.setdiff1d(top[i], [label])[:4]]
    assert not looks_reversed(top, labels)
    assert looks_reversed(top[:, ::-1], labels)
    assert not looks_reversed(top[:, :1], labels)


def test_false_alarm_rate_of_reversal_is_tiny() -> None:
    """Guessing models have equal columns: the test must stay silent on all of many of them."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        labels = rng.integers(0, 5, 400)
        top = np.argsort(rng.random((400, 5)), axis=1)
        assert not looks_reversed(top, labels)


def test_aliases_only_across_sets() -> None:
    assert find_aliases({"a": ["x", "x_model"], "b": ["x"]}) == {}
    assert find_aliases({"a": ["x_model"], "b": ["y"]}) == {}
    assert find_aliases({"a": ["x_model"], "b": ["x"]}) == {"a": {"x_model": "x"}}


# orders


@pytest.fixture
def testset(tmp_path: Path) -> TestSet:
    wnids = ["n01440764", "n01443537", "n01484850", "n01491361"]
    rows = [[f"ILSVRC2012_val_{(7 * i) % 41 + 1:08d}.JPEG", wnids[(3 * i) % 4]] for i in range(40)]
    path = tmp_path / "some-set.json"
    path.write_text(json.dumps({"image_filenames": rows}))
    return read_imagenetv2(path)


def test_named_orders(testset: TestSet) -> None:
    ids = testset.image_ids.to_pylist()
    assert image_order(testset) == ids
    assert image_order(testset, "name") == sorted(ids)
    labels = dict(zip(ids, first_labels(testset).tolist(), strict=True))
    assert image_order(testset, "class") == sorted(ids, key=lambda i: (labels[i], i))


def test_order_files(testset: TestSet, tmp_path: Path) -> None:
    ids = sorted(testset.image_ids.to_pylist())
    (tmp_path / "a.json").write_text(json.dumps(ids))
    (tmp_path / "a.txt").write_text("\n".join(ids) + "\n")
    assert image_order(testset, str(tmp_path / "a.json")) == ids
    assert image_order(testset, str(tmp_path / "a.txt")) == ids
    (tmp_path / "twice.txt").write_text("\n".join([*ids, ids[3]]))
    with pytest.raises(BadFile, match="twice"):
        image_order(testset, str(tmp_path / "twice.txt"))
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(BadFile, match="not an order"):
        image_order(testset, str(tmp_path / "b.json"))
    with pytest.raises(NotFound, match="testset, name, class"):
        image_order(testset, "alphabetical")


@pytest.mark.parametrize("true_order", ["testset", "name", "class"])
@pytest.mark.parametrize("stated", ["testset", "name", "class"])
def test_a_wrong_order_is_refused_with_the_right_one(
    testset: TestSet, true_order: str, stated: str
) -> None:
    top = labels_in_order(testset, image_order(testset, true_order))[:, None].astype(np.int32)
    ids = image_order(testset, stated)
    hits = int((top[:, 0] == labels_in_order(testset, ids)).sum())
    if true_order == stated:
        check_order(top, testset, ids, path=Path("m.npy"))
    elif hits < 12:  # not by luck nearly right
        with pytest.raises(MismatchError, match=f"--order {true_order}"):
            check_order(top, testset, ids, path=Path("m.npy"))


@pytest.mark.shared
def test_real_predictions_in_validation_order_are_refused(shared_data: Path) -> None:
    """Row order of the published arrays is by class, then name: 78.312 % aligned, 0.112 % if not."""
    folder = shared_data / "imagenetv2"
    name = "imagenet-validation-original"
    testset = read_imagenetv2(folder / "datasets" / f"{name}.json")
    top = np.load(folder / "predictions" / name / "resnet152.npy").astype(np.int32)
    check_order(top, testset, image_order(testset), path=Path("resnet152.npy"))
    ids = image_order(testset, "name")
    assert (top[:, 0] == labels_in_order(testset, ids)).mean() == pytest.approx(0.00112)
    with pytest.raises(MismatchError, match="--order"):
        check_order(top, testset, ids, path=Path("resnet152.npy"))

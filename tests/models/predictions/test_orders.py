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
)


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

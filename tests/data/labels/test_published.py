from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import LabelError
from heldout.data.labels import LabelSpace, published_map


@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r"])
def test_two_hundred_classes_under_both_readings(name: str) -> None:
    made = published_map(name)
    assert made.describe() == f"subset:{name}:restricted"
    assert published_map(name, reading="full").describe() == f"subset:{name}:full"
    assert len(made.target) == 200
    assert made.source == LabelSpace.load("imagenet-1k")
    assert made.target.ids == LabelSpace.load(name).ids
    assert [made.source.ids[sources[0]] for sources in made.accepted] == list(made.target.ids)


def test_known_members() -> None:
    a, r = LabelSpace.load("imagenet-a"), LabelSpace.load("imagenet-r")
    imagenet = LabelSpace.load("imagenet-1k")
    assert [imagenet.index(i) for i in a.ids[:3]] == [6, 11, 13]
    assert [imagenet.index(i) for i in r.ids[:3]] == [1, 2, 4]


def test_nothing_else_is_built_in() -> None:
    with pytest.raises(LabelError, match="use one of imagenet-a, imagenet-r"):
        published_map("imagenet-c")


# The same torchvision weights, scored from all logits by two other groups: percent top-1 of the
# validation images of the same classes. Ours has the stored top-5 only, hence bounds.
MODELS = ("resnet152", "resnet50", "densenet121", "vgg19_bn", "alexnet")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.shared
@pytest.mark.parametrize("name", ["imagenet-a", "imagenet-r"])
@pytest.mark.parametrize("model", MODELS)
def test_the_clean_baseline_brackets_published_accuracies(
    shared_data: Path, name: str, model: str
) -> None:
    folder = shared_data / "imagenetv2"
    label_map = published_map(name)
    listing = json.loads((folder / "datasets/imagenet-validation-original.json").read_text())
    indices = label_map.source.indices(w for _, w in listing["image_filenames"])
    truth = label_map.target_of_source[indices]
    keep = truth >= 0
    assert keep.sum() == 10_000
    topk = np.load(folder / f"predictions/imagenet-validation-original/{model}.npy")[keep]
    read = label_map.read_topk(topk)
    hits = read.hits(truth[keep])[:, 0]
    low, high = hits.mean(), (hits | read.unknown()).mean()
    assert 0 < high - low < 0.07

    reference = shared_data / "reference"
    testbed = {
        next(iter(row.values())): float(row[f"val-on-{name}-classes"]) / 100
        for row in table(reference / "imagenet-testbed/robustness_top1s.csv")
        if row[f"val-on-{name}-classes"]
    }
    assert low < testbed[model] < high
    timm = {
        row["model"]: float(row["top1"]) / 100
        for row in table(reference / f"timm/results-{name}-clean.csv")
    }
    if f"{model}.tv_in1k" in timm:
        assert low < timm[f"{model}.tv_in1k"] < high
    # The other reading is another number altogether.
    full = replace(label_map, reading="full").judge_topk(topk, truth[keep])[:, 0].mean()
    assert full < low - 0.05

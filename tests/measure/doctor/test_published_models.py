"""On the published predictions: no false alarm, and every injected defect found and read right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heldout.data.labels import LabelSpace
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.data.testset.subset import subset
from heldout.measure.doctor.alignment import single_labels
from heldout.measure.doctor.diagnose import diagnose, diagnose_array
from heldout.models.predictions.import_arrays import image_order

from .cases import predictions

pytestmark = pytest.mark.shared
SETS = (
    "imagenet-validation-original",
    "imagenetv2-a-44",
    "imagenetv2-b-33",
    "imagenetv2-c-12",
)
MODELS = ("resnet50", "alexnet", "fv_64k")


@pytest.fixture(scope="module")
def published(shared_data: Path) -> dict[str, TestSet]:
    folder = shared_data / "imagenetv2" / "datasets"
    return {name: read_imagenetv2(folder / f"{name}.json") for name in SETS}


def _topk(shared_data: Path, testset: str, model: str) -> np.ndarray:
    return np.load(shared_data / "imagenetv2" / "predictions" / testset / f"{model}.npy")


@pytest.mark.parametrize("name", SETS)
def test_no_false_alarm(name: str, published: dict[str, TestSet], shared_data: Path) -> None:
    testset = published[name]
    files = sorted((shared_data / "imagenetv2" / "predictions" / name).glob("*.npy"))
    assert len(files) == 22
    models = [predictions(testset, np.load(file), model=file.stem) for file in files]
    found = {(f.model.removesuffix("_model"), f.code) for f in diagnose(testset, models)}
    reversed_there = name != "imagenet-validation-original"
    assert found == ({("fv_16k", "reversed-topk")} if reversed_there else set())


@pytest.mark.parametrize("chosen_by", MODELS)
def test_images_that_a_model_gets_wrong_raise_no_alarm_about_labels(
    chosen_by: str, published: dict[str, TestSet], shared_data: Path
) -> None:
    """Such a set looks as if labels were exchanged: the doctor must know better."""
    whole = published["imagenetv2-b-33"]
    labels = single_labels(whole)
    wrong = _topk(shared_data, whole.name, chosen_by)[:, 0] != labels
    ids = np.array(whole.image_ids.to_pylist())[wrong]
    hard = subset(whole, ids.tolist(), name="hard", recipe={"name": "test"})
    for model in ("resnet50", "alexnet", "fv_64k", "senet154"):
        topk = _topk(shared_data, whole.name, model)[wrong]
        for k in (1, 2, 5):
            codes = {f.code for f in diagnose(hard, predictions(hard, topk[:, :k]))}
            assert codes <= {"at-chance"}, (model, k)
            assert "at-chance" not in codes or model == chosen_by


TEXT = np.array(sorted(range(1000), key=str))


def _injected(defect: str, topk: np.ndarray, testset: TestSet) -> np.ndarray:
    space = testset.label_space
    names = np.array(sorted(range(1000), key=lambda i: space.classes[i].name))
    if defect == "rows":
        place = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
        order = "name" if testset.name == SETS[0] else "class"
        return topk[[place[image] for image in image_order(testset, order)]]
    return {
        "reversed": lambda: topk[:, ::-1],
        "text-outputs": lambda: np.argsort(TEXT)[topk],
        "text-labels": lambda: TEXT[topk],
        "name-outputs": lambda: np.argsort(names)[topk],
        "name-labels": lambda: names[topk],
        "from-one": lambda: topk.astype(np.int64) + 1,
    }[defect]()


CODES = {
    "reversed": "reversed-topk",
    "text-outputs": "text-sorted-classes",
    "text-labels": "text-sorted-classes",
    "name-outputs": "name-sorted-classes",
    "name-labels": "name-sorted-classes",
    "from-one": "off-by-one",
    "rows": "rows-in-other-order",
}


@pytest.mark.parametrize("defect", CODES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", [SETS[0], SETS[2]])
def test_a_defect_is_found_and_read_exactly(
    defect: str, model: str, name: str, published: dict[str, TestSet], shared_data: Path
) -> None:
    testset = published[name]
    labels = single_labels(testset)
    good = _topk(shared_data, name, model)
    bad = predictions(testset, _injected(defect, good, testset))
    findings = diagnose(testset, bad, cheap=True)
    assert {f.code for f in findings} - {"ids-out-of-range"} == {CODES[defect]}
    assert ("ids-out-of-range" in {f.code for f in findings}) == (defect == "from-one")
    (finding,) = (f for f in findings if f.code == CODES[defect])
    side = {"outputs": "predictions", "labels": "testset"}.get(defect.split("-")[-1])
    assert side is None or finding.evidence["side"] == side
    assert finding.evidence["top1_repaired"] == (good[:, 0] == labels).mean()


@pytest.mark.parametrize("model", MODELS)
def test_an_unknown_order_is_recovered(
    model: str, published: dict[str, TestSet], shared_data: Path
) -> None:
    testset = published[SETS[0]]
    labels = single_labels(testset)
    good = _topk(shared_data, testset.name, model)
    order = np.random.default_rng(3).permutation(1000)
    (finding,) = diagnose(testset, predictions(testset, order[good]))
    assert finding.code == "permuted-labels"
    true = (good[:, 0] == labels).mean()
    assert finding.evidence["top1_repaired"] == pytest.approx(true, abs=0.003)


@pytest.fixture(scope="module")
def two_hundred(
    published: dict[str, TestSet], shared_data: Path
) -> tuple[list[str], list[str], np.ndarray]:
    """The validation images of ImageNet-A's classes: ids, class ids, and ResNet-50's outputs."""
    whole = published[SETS[0]]
    labels = single_labels(whole)
    wanted = whole.label_space.indices(LabelSpace.load("imagenet-a").ids)
    rows = np.flatnonzero(np.isin(labels, wanted))
    ids = np.array(whole.image_ids.to_pylist())[rows].tolist()
    topk = _topk(shared_data, whole.name, "resnet50")[rows]
    return ids, [whole.label_space.ids[labels[r]] for r in rows], topk


def _set(ids: list[str], classes: list[str], space: LabelSpace) -> TestSet:
    return make_testset(
        Card(name="a-clean", label_space=space.name),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, classes)},
        label_space=space,
    )


def test_a_subset_set_has_two_readings(
    two_hundred: tuple[list[str], list[str], np.ndarray],
) -> None:
    ids, classes, topk = two_hundred
    thousand, small = LabelSpace.load("imagenet-1k"), LabelSpace.load("imagenet-a")
    for space, code in ((thousand, "subset-of-classes"), (small, "label-space-differs")):
        testset = _set(ids, classes, space)
        (finding,) = diagnose(testset, predictions(testset, topk, label_space=thousand))
        assert finding.code == code
        assert finding.evidence["top1_full"] == 0.8077
        assert finding.evidence["top1_restricted"] == 0.9109


def test_a_subset_set_over_the_wrong_label_space(
    two_hundred: tuple[list[str], list[str], np.ndarray],
) -> None:
    ids, classes, topk = two_hundred
    thousand, small = LabelSpace.load("imagenet-1k"), LabelSpace.load("imagenet-a")
    # Labels 0 to 199 taken for ImageNet-1k's.
    shifted = _set(ids, [thousand.ids[small.index(c)] for c in classes], thousand)
    (finding,) = diagnose(shifted, predictions(shifted, topk))
    assert (finding.code, finding.evidence["side"]) == ("wrong-label-space", "testset")
    assert finding.evidence["top1_repaired"] == 0.8077
    # Predictions 0 to 199 taken for ImageNet-1k's.
    back = np.full(1000, -1)
    back[thousand.indices(small.ids)] = np.arange(200)
    within = back[topk]
    first = within[np.arange(len(within)), (within >= 0).argmax(axis=1)]
    right = _set(ids, classes, thousand)
    (finding,) = diagnose(right, predictions(right, first[:, None]))
    assert (finding.code, finding.evidence["side"]) == ("wrong-label-space", "predictions")
    assert finding.evidence["top1_repaired"] == 0.9109
    # Outputs over 1,000 classes for a set that knows its 200 only.
    own = _set(ids, classes, small)
    found = {f.code: f for f in diagnose_array(own, topk)}
    assert set(found) == {"ids-out-of-range", "wrong-label-space"}
    assert found["wrong-label-space"].evidence["top1_repaired"] == 0.8077
    assert "--classes imagenet-1k" in found["wrong-label-space"].fix

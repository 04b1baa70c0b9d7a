"""Every defect, injected into generated outputs, is found under its code with the right accuracy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from heldout.core.errors import MismatchError, UserError
from heldout.data.labels import LabelSpace
from heldout.data.testset import TestSet, make_testset
from heldout.data.testset.card import CHOSEN_FOR_MISTAKES
from heldout.measure.doctor.diagnose import diagnose, diagnose_array
from heldout.measure.doctor.findings import CODES
from heldout.models.predictions.import_arrays import image_order

from .cases import balanced, outputs, predictions, set_of, space_of

Inject = Callable[[np.ndarray, TestSet], np.ndarray]

TEXT = np.array(sorted(range(120), key=str))


def _by_name(testset: TestSet) -> np.ndarray:
    space = testset.label_space
    return np.array(sorted(range(len(space)), key=lambda i: space.classes[i].name))


def _rows(order: str) -> Inject:
    def inject(topk: np.ndarray, testset: TestSet) -> np.ndarray:
        place = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
        return topk[[place[image] for image in image_order(testset, order)]]

    return inject


DEFECTS: dict[str, tuple[Inject, list[str]]] = {
    "reversed": (lambda k, t: k[:, ::-1], ["reversed-topk"]),
    "text order in outputs": (lambda k, t: np.argsort(TEXT)[k], ["text-sorted-classes"]),
    "text order in labels": (lambda k, t: TEXT[k], ["text-sorted-classes"]),
    "name order in outputs": (
        lambda k, t: np.argsort(_by_name(t))[k],
        ["name-sorted-classes"],
    ),
    "name order in labels": (lambda k, t: _by_name(t)[k], ["name-sorted-classes"]),
    "text order, reversed": (
        lambda k, t: np.argsort(TEXT)[k][:, ::-1],
        ["text-sorted-classes", "reversed-topk"],
    ),
    "rows by file name": (_rows("name"), ["rows-in-other-order"]),
    "rows by class": (_rows("class"), ["rows-in-other-order"]),
    "rows by class, reversed": (
        lambda k, t: _rows("class")(k, t)[:, ::-1],
        ["rows-in-other-order", "reversed-topk"],
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("accuracy", [0.25, 0.8])
def test_a_defect_is_found_and_read_right(defect: str, accuracy: float) -> None:
    labels = balanced(120, 20)
    testset = set_of(labels, space_of(120))
    good = outputs(labels, 120, accuracy=accuracy)
    inject, codes = DEFECTS[defect]
    bad = predictions(testset, inject(good, testset))
    findings = diagnose(testset, bad)
    assert sorted(f.code for f in findings) == sorted(codes)
    assert all(f.severity == "error" and f.fix for f in findings)
    assert not any("heldout." in f.fix for f in findings), "advice is for users of the verb"
    assert findings[-1].evidence["top1_repaired"] == (good[:, 0] == labels).mean()


def test_sound_outputs_raise_nothing() -> None:
    labels = balanced(60, 20)
    testset = set_of(labels, space_of(60))
    sound = predictions(testset, outputs(labels, 60))
    assert diagnose(testset, sound) == []


@pytest.mark.parametrize("classes", [2, 3, 10, 40])
@pytest.mark.parametrize("k", [1, 5])
def test_few_classes(classes: int, k: int) -> None:
    labels = balanced(classes, 400)
    testset = set_of(labels, space_of(classes))
    good = outputs(labels, classes, accuracy=0.85, k=k)
    assert diagnose(testset, predictions(testset, good)) == []
    if good.shape[1] > 2:
        turned = diagnose(testset, predictions(testset, good[:, ::-1]))
        assert [f.code for f in turned] == ["reversed-topk"]
    order = np.roll(np.arange(classes), 1)[::-1] if classes > 2 else np.array([1, 0])
    bad = predictions(testset, order[good])
    findings = diagnose(testset, bad)
    assert len(findings) == 1
    assert findings[0].evidence["top1_repaired"] == pytest.approx(
        (good[:, 0] == labels).mean(), abs=0.01
    )


@pytest.mark.parametrize("k", [1, 5])
def test_an_unknown_order_is_fitted_and_told_honestly(k: int) -> None:
    labels = balanced(100, 30)
    testset = set_of(labels, space_of(100))
    good = outputs(labels, 100, k=k)
    order = np.random.default_rng(5).permutation(100)
    bad = predictions(testset, order[good])
    (finding,) = diagnose(testset, bad)
    assert finding.code == "permuted-labels"
    true = float((good[:, 0] == labels).mean())
    evidence = finding.evidence
    assert evidence["top1_as_given"] == pytest.approx(0.01, abs=0.01)
    assert evidence["top1_repaired"] == pytest.approx(true, abs=0.005)
    crossed = float(evidence["top1_on_other_half"])
    assert crossed <= float(evidence["top1_repaired"])  # never flattering
    assert crossed == pytest.approx(true, abs=0.03)
    assert int(evidence["classes_moved"]) >= 97


def test_two_exchanged_classes_are_named_and_no_others_touched() -> None:
    labels = balanced(100, 60)
    testset = set_of(labels, space_of(100))
    good = outputs(labels, 100)
    swap = np.arange(100)
    swap[[7, 70]] = [70, 7]
    bad = predictions(testset, swap[good])
    (finding,) = diagnose(testset, bad)
    assert finding.code == "swapped-classes"
    assert finding.evidence["classes"] == "t0007 t0070"
    assert finding.evidence["top1_repaired"] == (good[:, 0] == labels).mean()
    assert diagnose(testset, bad, cheap=True) == []  # the cheap checks leave these out


def test_ids_from_one_fit_no_label_space_and_are_read_all_the_same() -> None:
    labels = balanced(50, 20)
    testset = set_of(labels, space_of(50))
    good = outputs(labels, 50)
    findings = diagnose_array(testset, good.astype(np.int64) + 1, model="from-one")
    assert [f.code for f in findings] == ["ids-out-of-range", "off-by-one"]
    assert findings[0].evidence["largest"] == 50
    assert findings[1].evidence["side"] == "predictions"
    assert findings[1].evidence["top1_repaired"] == (good[:, 0] == labels).mean()


def test_labels_from_one_are_the_test_sets_fault() -> None:
    labels = balanced(50, 20)
    labels = labels[labels < 49]
    testset = set_of(labels + 1, space_of(50))  # as if class 0 did not exist
    bad = predictions(testset, outputs(labels, 50))
    found = [f for f in diagnose(testset, bad) if f.severity == "error"]
    assert [f.code for f in found] == ["off-by-one"]
    assert found[0].evidence["side"] == "testset"
    assert found[0].evidence["top1_repaired"] == (bad.topk[:, 0] == labels).mean()


def test_a_background_class_in_the_models_own_space_is_no_defect() -> None:
    labels = balanced(50, 20)
    testset = set_of(labels, space_of(50))
    wide = LabelSpace.from_ids("with-background", ["background", *space_of(50).ids])
    model = predictions(testset, outputs(labels, 50) + 1, label_space=wide)
    findings = diagnose(testset, model)
    assert [f.code for f in findings] == ["label-space-differs"]
    assert findings[0].evidence["top1_full"] == pytest.approx(
        float((model.topk[:, 0] - 1 == labels).mean())
    )


def test_rows_in_an_order_that_was_misnamed() -> None:
    """The file is in the set's own order, and was imported as sorted by class."""
    labels = balanced(80, 20)
    testset = set_of(labels, space_of(80))
    good = outputs(labels, 80)
    place = {image: row for row, image in enumerate(testset.image_ids.to_pylist())}
    stated = np.array([place[image] for image in image_order(testset, "class")])
    laid = np.empty_like(good)
    laid[stated] = good
    bad = predictions(testset, laid, run={"order": "class"})
    (finding,) = diagnose(testset, bad)
    assert finding.code == "rows-in-other-order"
    assert finding.evidence["order"] == "testset"
    assert "--order testset" in finding.fix
    assert finding.evidence["top1_repaired"] == (good[:, 0] == labels).mean()


def test_a_set_of_mistakes_is_not_called_at_chance() -> None:
    labels = balanced(80, 20)
    testset = set_of(labels, space_of(80))
    good = outputs(labels, 80)
    wrong = good[np.random.default_rng(1).permutation(len(good))]
    assert [f.code for f in diagnose(testset, predictions(testset, wrong))] == ["at-chance"]
    chosen = {"kind": "multilabel", CHOSEN_FOR_MISTAKES: True}
    card = testset.card.updated(truths={testset.card.default_truth: chosen})
    hard = make_testset(
        card, images=testset.images, truths=testset.truths, label_space=testset.label_space
    )
    assert diagnose(hard, predictions(hard, wrong)) == []


def test_rows_shuffled_beyond_repair_are_at_chance() -> None:
    labels = balanced(80, 20)
    testset = set_of(labels, space_of(80))
    good = outputs(labels, 80)
    shuffled = good[np.random.default_rng(1).permutation(len(good))]
    (finding,) = diagnose(testset, predictions(testset, shuffled))
    assert finding.code == "at-chance"
    assert finding.evidence["expected"] == pytest.approx(20, rel=0.1)


def test_a_collapsed_model() -> None:
    labels = balanced(20, 30)
    testset = set_of(labels, space_of(20))
    (finding,) = diagnose(testset, predictions(testset, np.full((600, 1), 3)))
    assert finding.code == "constant-predictions"
    assert finding.evidence["class"] == "t0003"


def test_a_collapsed_model_on_an_unbalanced_set_blames_no_order() -> None:
    """Under some order the one class is the frequent one, which proves nothing."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(2000) < 0.8, 4, rng.integers(0, 50, 2000))
    testset = set_of(labels, space_of(50))
    for constant in (3, 5):
        topk = np.full((2000, 1), constant)
        codes = {f.code for f in diagnose(testset, predictions(testset, topk))}
        assert codes <= {"constant-predictions", "subset-of-classes"}


def test_a_perfect_score_is_suspicious_from_a_hundred_images_on() -> None:
    labels = balanced(10, 10)
    testset = set_of(labels, space_of(10))
    (finding,) = diagnose(testset, predictions(testset, labels[:, None]))
    assert finding.code == "perfect-score"
    few = set_of(labels[:99], space_of(10))
    assert diagnose(few, predictions(few, labels[:99, None])) == []


def test_two_models_with_the_same_outputs() -> None:
    labels = balanced(20, 20)
    testset = set_of(labels, space_of(20))
    topk = outputs(labels, 20)
    one, two = (predictions(testset, topk, model=name) for name in ("one", "two"))
    (finding,) = diagnose(testset, [one, two])
    assert (finding.code, finding.model, finding.evidence["other"]) == (
        "same-outputs",
        "two",
        "one",
    )


def test_cheap_finds_what_is_often_wrong() -> None:
    labels = balanced(120, 20)
    testset = set_of(labels, space_of(120))
    good = outputs(labels, 120)
    for defect, (inject, codes) in DEFECTS.items():
        found = diagnose(testset, predictions(testset, inject(good, testset)), cheap=True)
        assert sorted(f.code for f in found) == sorted(codes), defect
    order = np.random.default_rng(5).permutation(120)
    found = diagnose(testset, predictions(testset, order[good]), cheap=True)
    assert [f.code for f in found] == ["permuted-labels"]


def test_bad_arrays_are_refused() -> None:
    testset = set_of([0, 1, 0], space_of(2))
    with pytest.raises(UserError, match="whole numbers"):
        diagnose_array(testset, np.zeros((3, 2)))
    with pytest.raises(MismatchError, match="3 images"):
        diagnose_array(testset, np.zeros((2, 2), dtype=int))


def test_findings_are_json_and_codes_are_documented() -> None:
    import json

    labels = balanced(20, 30)
    testset = set_of(labels, space_of(20))
    for finding in diagnose(testset, predictions(testset, outputs(labels, 20)[:, ::-1])):
        text = json.dumps(finding.to_dict(), allow_nan=False)
        assert json.loads(text)["code"] in CODES


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("classes", [1, 2, 30])
def test_tiny_sets_and_failed_outputs_are_survived(n: int, classes: int) -> None:
    labels = np.arange(n) % classes
    testset = set_of(labels, space_of(classes))
    for topk in (np.full((n, 3), -1), np.zeros((n, 1), dtype=int), labels[:, None]):
        codes = {f.code for f in diagnose(testset, predictions(testset, topk))}
        assert codes <= {"subset-of-classes"}, codes


def test_outputs_that_all_failed_are_at_chance() -> None:
    labels = balanced(10, 20)
    testset = set_of(labels, space_of(10))
    (finding,) = diagnose(testset, predictions(testset, np.full((200, 5), -1)))
    assert finding.code == "at-chance"


def test_a_set_labelled_in_classes_that_the_model_does_not_know() -> None:
    labels = balanced(10, 20)
    testset = set_of(labels, space_of(10))
    other = LabelSpace.from_ids("other", [f"o{i}" for i in range(10)])
    good = outputs(labels, 10, k=1)
    (finding,) = diagnose(testset, predictions(testset, good, label_space=other))
    assert finding.code == "wrong-label-space"  # other names for the same positions
    assert "not of other" in finding.message
    assert finding.evidence["top1_repaired"] == (good[:, 0] == labels).mean()
    shuffled = np.random.default_rng(0).permutation(good)
    codes = {f.code for f in diagnose(testset, predictions(testset, shuffled, label_space=other))}
    assert codes == {"at-chance", "label-space-differs"}


def test_a_model_that_answered_once_is_at_chance() -> None:
    labels = balanced(10, 20)
    testset = set_of(labels, space_of(10))
    topk = np.full((200, 1), -1)
    topk[0] = 3
    codes = [f.code for f in diagnose(testset, predictions(testset, topk))]
    assert codes == ["at-chance"]


def test_ids_that_no_list_of_classes_has() -> None:
    labels = balanced(10, 20)
    testset = set_of(labels, space_of(10))
    wild = labels.copy()
    wild[0] = 2**40  # a number of an image, say
    assert [f.code for f in diagnose_array(testset, wild)] == ["ids-out-of-range"]
    wide = space_of(1000)
    small = set_of(labels, wide.subset("ten", wide.ids[:10]))
    low = np.full((200, 2), -5)
    codes = [f.code for f in diagnose_array(small, low, label_space=wide)]
    assert codes[0] == "ids-out-of-range"


@pytest.mark.parametrize(("rare", "wrong"), [(12, 3), (20, 5), (6, 0)])
def test_a_good_model_of_few_unequal_classes_is_not_at_chance(rare: int, wrong: int) -> None:
    labels = np.array([0] * (60 - rare) + [1] * rare)
    topk = labels.copy()
    topk[-wrong or 60 :] = 0
    testset = set_of(labels, space_of(2))
    assert diagnose(testset, predictions(testset, topk[:, None])) == []
    shuffled = np.random.default_rng(0).permutation(topk)[:, None]
    codes = [f.code for f in diagnose(testset, predictions(testset, shuffled))]
    assert codes == ["at-chance"]

"""Published answers: the numbers that are known of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from heldout.data.judgements.consensus import consensus, dawid_skene, panel, subject_key
from heldout.data.judgements.store import JudgementStore
from heldout.data.judgements.workers import worker_quality
from heldout.data.labels import LabelSpace
from heldout.data.published.answers import (
    choice_as_labels,
    read_label_errors,
    read_mistakes,
    read_real_answers,
    read_real_panel,
)
from heldout.data.published.imagenetv2 import (
    read_blacklist,
    read_class_reviews,
    read_duplicate_overrides,
    read_duplicate_reviews,
    read_near_duplicates,
)

pytestmark = pytest.mark.shared


@pytest.mark.parametrize(
    ("revision", "problematic"),
    [("a-25", 0), ("a-44", 0), ("b-0", 694), ("b-23", 0), ("b-33", 0), ("c-0", 473), ("c-12", 0)],
)
def test_class_reviews_of_imagenetv2(shared_data: Path, revision: str, problematic: int) -> None:
    path = shared_data / f"imagenetv2/reviews/imagenetv2-{revision}_review.json"
    made = list(read_class_reviews(path))
    assert len(made) == 1000
    assert sum(j.answer == "problematic" for j in made) == problematic
    assert {j.testset for j in made} == {f"imagenetv2-{revision}"}


def test_sets_that_nobody_reviewed_have_no_answers(shared_data: Path) -> None:
    path = shared_data / "imagenetv2/reviews/imagenet-validation-original_review.json"
    assert list(read_class_reviews(path)) == []


def test_blacklist_and_near_duplicates_of_imagenetv2(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "imagenetv2/metadata"
    blacklist = list(read_blacklist(folder / "candidate_blacklist.json"))
    assert len(blacklist) == 31_337
    reasons = Counter(j.evidence["reason"] for j in blacklist)
    assert reasons["invalid image (added in the review server)"] == 7_161
    duplicates = [
        *read_near_duplicates(folder / "near_duplicates.json"),
        *read_duplicate_overrides(folder / "near_duplicate_resolution_override.json"),
    ]
    pairs = [j for j in duplicates if j.answer == "duplicate"]
    listed: dict[str, set[str]] = {}
    for judgement in pairs:
        ends = set(judgement.subject.values())
        for root in judgement.evidence["roots"]:
            listed.setdefault(root, set()).update(ends - {root} or ends)
    published = json.loads((folder / "near_duplicates.json").read_text())
    assert len(published) == 7_386
    assert sum(map(len, published.values())) == 16_361
    assert {root: set(others) for root, others in published.items()} == listed
    assert len(pairs) == 14_525
    assert [j.subject for j in duplicates if j.answer == "keep"] == [
        {"image_id": "15ff82dcf40eb6a12ea128a57e06fc938ef719a6"}
    ]
    with JudgementStore(tmp_path / "j.db") as store:
        assert store.add([*blacklist, *duplicates]).added == len(blacklist) + len(duplicates)


def test_duplicate_reviews_of_imagenetv2(shared_data: Path) -> None:
    folder = shared_data / "imagenetv2/metadata"
    made = list(
        read_duplicate_reviews(
            folder / "nearest_neighbor_reviews_v2.json", folder / "near_duplicates.json"
        )
    )
    assert len(made) == len({j.judgement_id for j in made}) == 57_576
    assert len({j.evidence["seen_from"] for j in made}) == 5_121
    reviews = {(j.evidence["seen_from"], j.evidence["metric"]) for j in made}
    assert Counter(metric for _, metric in reviews) == {"dssim": 3_022, "fc7": 2_745, "l2": 2_252}
    by_pair = {j.subject_key: j.answer for j in made}
    assert Counter(by_pair.values()) == {"different": 48_142, "duplicate": 2_599}


def test_mistakes_are_one_verdict_an_image_and_prediction(
    shared_data: Path, tmp_path: Path
) -> None:
    folder = shared_data / "mistakes"
    vit = list(read_mistakes(folder / "vit3b_mistakes.json"))
    soups = list(read_mistakes(folder / "greedy_soups_mistakes.json"))
    assert (len(vit), len(soups)) == (378, 249)
    by_subject = {j.subject_key: j for j in vit}
    shared = [j for j in soups if j.subject_key in by_subject]
    assert len(shared) == 143
    assert all(j.judgement_id == by_subject[j.subject_key].judgement_id for j in shared)
    with JudgementStore(tmp_path / "j.db") as store:
        assert store.add(vit).added == 378
        added = store.add(soups)
        assert (added.added, added.known) == (249 - 143, 143)
    severities = ("Borderline", "Major", "Minor")
    for made, table in (
        (
            vit,
            {
                "Fine-grained error": (53, 87, 101),
                "Fine-grained error with OOV": (10, 22, 22),
                "Fine-grained with Multilabel Options": (0, 1, 0),
                "Non-prototypical": (9, 7, 14),
                "Spurious Correlation": (2, 37, 13),
            },
        ),
        (
            soups,
            {
                "Fine-grained error": (35, 53, 84),
                "Fine-grained error with OOV": (6 + 1, 6 + 2, 5 + 6),
                "Non-prototypical": (5, 6, 8),
                "Spurious Correlation": (2, 22, 8),
            },
        ),
    ):
        counts = Counter((dict(j.answer)["category"], dict(j.answer)["severity"]) for j in made)
        expected = {
            (category, severity): n
            for category, row in table.items()
            for severity, n in zip(severities, row, strict=True)
            if n
        }
        assert counts == expected


def test_label_errors(shared_data: Path) -> None:
    made = list(read_label_errors(shared_data / "mistakes/mturk_label_errors.json"))
    assert len(made) == 5 * 5_440
    answers = panel(made)
    assert len(answers.subjects) == 5_440
    assert (answers.counts().sum(axis=1) == 5).all()
    verdicts = Counter(consensus(answers, rule="majority").answer)
    rows = json.loads((shared_data / "mistakes/mturk_label_errors.json").read_text())
    for answer in ("given", "guessed", "both", "neither"):
        assert verdicts[answer] == sum(row["mturk"][answer] >= 3 for row in rows)
    assert len(list(choice_as_labels(made[:100]))) == 200


@pytest.fixture(scope="module")
def scores(shared_data: Path) -> tuple[list[str], np.ndarray]:
    ids = LabelSpace.load("imagenet-1k").ids
    with np.load(shared_data / "mistakes/real/scores.npz") as file:
        keys = [
            subject_key({"image_id": image, "class_id": ids[int(number)]})
            for image, number in file["info"].tolist()
        ]
        return keys, file["tensor"]


def test_the_raters_of_real_weighted_by_reliability_give_its_scores(
    shared_data: Path, scores: tuple[list[str], np.ndarray]
) -> None:
    made = read_real_panel(shared_data / "mistakes/real/raters.npz")
    assert (len(made), len(made.subjects), len(made.workers)) == (924_810, 184_962, 85)
    assert (made.counts().sum(axis=1) == 5).all()
    assert made.counts().sum(axis=0).tolist() == [116_444, 78_942, 729_424]
    place = {key: row for row, key in enumerate(made.subjects)}
    published = np.empty(len(made.subjects))
    published[[place[key] for key in scores[0]]] = scores[1]
    fit = dawid_skene(made, tolerance=1e-3)
    ours = fit.posterior[:, fit.truths.index("correct")]
    assert np.corrcoef(ours, published)[0, 1] > 0.984
    kept = published >= 0.8
    assert ((ours >= 0.8) == kept).mean() > 0.982
    majority = np.array(consensus(made).answer) == "correct"
    assert (majority == kept).mean() < 0.94  # counting votes is not what ReaL did


def test_the_raters_of_real_against_the_experts_on_the_gold_set(shared_data: Path) -> None:
    folder = shared_data / "mistakes/real"
    experts = read_real_panel(folder / "golden.npz", prefix="expert")
    raters = read_real_panel(folder / "raters_golden.npz")
    assert (len(experts.workers), len(experts.subjects)) == (5, 1_135)
    assert (len(raters.workers), len(raters)) == (78, 78 * 1_135)
    agreed = consensus(experts)
    assert Counter(agreed.answer) == {"wrong": 887, "correct": 248}
    found = worker_quality(raters, agreed.by_subject())
    assert len(found) == 78
    assert all(quality.n == 1_135 for quality in found)
    # The worst says yes to nearly everything; the best misses labels rather than invent them.
    assert (found[0].who, found[0].by_gold) == (
        "real-145",
        {"correct": (248, 226), "wrong": (887, 17)},
    )
    assert (found[-1].who, found[-1].right) == ("real-152", 1_013)


def test_real_answers_of_some_images_into_a_store(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "mistakes/real/raters.npz"
    images = {f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 401)}
    with JudgementStore(tmp_path / "j.db") as store:
        added = store.add(read_real_answers(path, images=images)).added
        assert added > 0 and added % 5 == 0
        kept = panel(store.current(question="label"))
    direct = read_real_panel(path, images=images)
    assert kept.subjects == direct.subjects
    assert kept.workers == direct.workers
    assert (kept.counts() == direct.counts()).all()

"""Published numbers, from the published files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from heldout.core.records import Count
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.data.published.truths import read_multilabel, read_real
from heldout.data.testset import TestSet, make_testset
from heldout.measure.score.estimate import counts, rank_scores, scores
from heldout.measure.score.fits import fit_points, read_population
from heldout.measure.score.measure import measure
from heldout.measure.score.records import Score
from heldout.measure.score.revisions import score_revisions
from heldout.models.predictions import Predictions
from heldout.models.predictions.import_predictions import import_predictions

pytestmark = pytest.mark.shared

# model: top-1, ReaL, MLA, micro, correct only (percent), errors, unreviewed; imagenet_mistakes table
TABLE = {
    "pnasnet_large_tf": (82.858, 87.704, 91.858, 91.922, 91.733, 1510, 44),
    "nasnetalarge": (82.506, 87.279, 91.615, 91.686, 91.470, 1554, 36),
    "senet154": (81.304, 86.346, 90.524, 90.707, 90.363, 1737, 33),
    "inceptionresnetv2": (80.270, 86.022, 89.531, 89.627, 89.375, 1939, 38),
    "resnet152": (78.312, 84.815, 87.560, 87.743, 87.423, 2291, 48),
    "resnet50": (76.130, 82.958, 85.080, 85.282, 84.957, 2751, 54),
    "densenet121": (74.434, 81.487, 83.159, 83.351, 83.035, 3112, 57),
    "vgg16": (71.592, 79.040, 80.417, 80.585, 80.292, 3629, 62),
    "alexnet": (56.518, 63.061, 64.280, 64.621, 64.165, 6613, 71),
    "fv_64k": (35.078, 40.359, 39.877, 40.397, 39.824, 11141, 7685),
}


@pytest.fixture(scope="module")
def validation(shared_data: Path) -> TestSet:
    """The validation set with its three truths."""
    testset = read_imagenetv2(shared_data / "imagenetv2/datasets/imagenet-validation-original.json")
    real = read_real(shared_data / "mistakes/real/real.json", testset=testset)
    multilabel = read_multilabel(shared_data / "mistakes/multilabel.csv", testset=testset)
    return make_testset(
        testset.card.updated(
            truths={
                **testset.card.truths,
                "real": real.provenance,
                "multilabel": multilabel.provenance,
            }
        ),
        images=testset.images,
        truths={**testset.truths, "real": real.table, "multilabel": multilabel.table},
        label_space=testset.label_space,
    )


@pytest.fixture(scope="module")
def outputs(shared_data: Path, validation: TestSet) -> list[Predictions]:
    folder = shared_data / "imagenetv2/predictions/imagenet-validation-original"
    return [import_predictions(folder / f"{name}.npy", validation) for name in TABLE]


def test_the_table_of_imagenet_mistakes(validation: TestSet, outputs: list[Predictions]) -> None:
    (top1,) = measure(validation, outputs)
    (real,) = measure(validation, outputs, metrics=["real"], truth="real")
    group = measure(
        validation,
        outputs,
        metrics=["mla", "mla_micro", "mla_correct_only", "mla_upper"],
        truth="multilabel",
    )
    mla, micro, correct_only, upper = group
    found = np.stack([m.estimates() for m in (top1, real, mla, micro, correct_only)], axis=1)
    assert (100 * found).round(3).tolist() == [list(row[:5]) for row in TABLE.values()]
    errors = len(micro) - micro.values.sum(axis=0)
    assert errors.tolist() == [row[5] for row in TABLE.values()]
    assert list(mla.unreviewed) == [row[6] for row in TABLE.values()]
    assert (len(top1), len(real), len(mla), mla.left_out) == (50_000, 46_837, 18_692, 1_308)
    assert (upper.estimates() >= mla.estimates()).all()
    assert 100 * upper.estimates()[upper.position("resnet152")] == pytest.approx(87.831, abs=5e-4)
    assert 100 * upper.estimates()[upper.position("fv_64k")] == pytest.approx(81.6, abs=0.05)
    unreviewed = {c.model: c.value for c in counts(group) if c.name == "n_unreviewed"}
    assert unreviewed == {model: row[6] for model, row in TABLE.items()}
    assert [c.value for c in counts(group) if c.name == "n_left_out"] == [1_308]
    records = {r.model: r for r in scores(mla, replicates=200)}
    for model, record in records.items():
        assert record.low is not None and record.high is not None
        assert record.low < TABLE[model][2] / 100 < record.high


def test_ranks_and_confusions(validation: TestSet, outputs: list[Predictions]) -> None:
    top1, recall = measure(validation, outputs, metrics=["top1", "recall"])
    ranks = {r.model: int(r.value) for r in rank_scores(top1)}
    assert [model for model, _ in sorted(ranks.items(), key=lambda item: item[1])] == list(TABLE)
    assert recall.guesses is not None
    dense = np.zeros((1000, 1000), dtype=int)
    np.add.at(dense, (recall.groups, recall.guesses[:, recall.position("resnet152")]), 1)
    assert (np.trace(dense), dense.sum() - np.trace(dense)) == (39_156, 10_844)
    # unordered pairs of the published study, as sums of both directions
    for a, b, n in ((638, 639, 48), (657, 744, 44), (987, 998, 40), (620, 681, 37), (435, 876, 35)):
        assert dense[a, b] + dense[b, a] == n
    assert (np.triu(dense + dense.T, 1) > 0).sum() == 6_271
    per_class = [r for r in scores(recall) if r.model == "resnet152"]
    assert len(per_class) == 1000 and {r.n for r in per_class} == {50}
    assert np.mean([r.value for r in per_class]) == pytest.approx(0.78312)


@pytest.mark.parametrize(
    ("stored", "revisions"),
    [
        ("imagenetv2-a-44", ("a-22", "a-23", "a-24", "a-25", "a-44")),
        ("imagenetv2-c-12", ("c-9", "c-10", "c-11", "c-12")),
    ],
)
def test_revisions(shared_data: Path, stored: str, revisions: tuple[str, ...]) -> None:
    root = shared_data / "imagenetv2"
    order = json.loads((root / f"datasets/{stored}.json").read_bytes())["image_filenames"]
    classes = {
        c["wnid"]: int(c["cid"])
        for c in json.loads((root / "metadata/class_info.json").read_bytes())
    }
    sets = [read_imagenetv2(root / f"datasets/imagenetv2-{name}.json") for name in revisions]
    known = read_imagenetv2(root / f"datasets/{stored}.json")
    given = {}
    guesses = {}
    for model in ("resnet152", "alexnet"):
        path = root / f"predictions/{stored}/{model}.npy"
        given[model] = [import_predictions(path, known)]
        first = np.load(path)[:, 0].tolist()
        guesses[model] = {image: guess for (image, _), guess in zip(order, first, strict=True)}
    records = score_revisions(sets, given)
    told = {(r.name, r.model, r.testset): r.value for r in records if isinstance(r, Count)}
    found = {(r.model, r.testset): r for r in records if isinstance(r, Score)}
    for name in revisions:
        rows = json.loads((root / f"datasets/imagenetv2-{name}.json").read_bytes())[
            "image_filenames"
        ]
        for model, answers in guesses.items():
            covered = [(image, wnid) for image, wnid in rows if image in answers]
            hits = sum(answers[image] == classes[wnid] for image, wnid in covered)
            where = (model, f"imagenetv2-{name}")
            assert told["n_images", *where] == len(rows)
            assert told["n_predicted", *where] == len(covered)
            assert (found[where].n, found[where].value) == (len(covered), hits / len(covered))
            assert found[where].slice == ("all" if len(covered) == len(rows) else "predicted=true")
    last = found["resnet152", stored]
    assert last.value == {"imagenetv2-a-44": 0.7535, "imagenetv2-c-12": 0.8028}[stored]


def test_published_populations(shared_data: Path) -> None:
    reference = shared_data / "reference"
    testbed = read_population(
        [reference / "imagenet-testbed/robustness_top1s.csv"],
        x="val",
        y="imagenetv2-matched-frequency-format-val",
    )
    timm = read_population(
        [
            reference / "timm/results-imagenet.csv",
            reference / "timm/results-imagenetv2-matched-frequency.csv",
        ],
        x="top1",
        y="top1",
    )
    for population, models, expected in (
        (testbed, 335, (0.934, -0.496, 0.9994)),
        (timm, 1556, (0.916, -0.486, 0.993)),
    ):
        fit = fit_points(population.x, population.y, axes="logit", testset="new", baseline="val")
        digits = 4 if expected[2] == 0.9994 else 3
        assert fit.models == models
        assert (round(fit.slope, 3), round(fit.intercept, 3), round(fit.r2, digits)) == expected

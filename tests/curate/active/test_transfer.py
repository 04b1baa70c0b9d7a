"""What one domain is worth on another, m1 to m4, and their correlations with data efficiency."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.classifier import Logistic
from heldout.curate.active.strategies import parse_strategies
from heldout.curate.active.study import LabelPlan, run_study
from heldout.curate.active.task import TEST, TRAIN
from heldout.curate.active.transfer import (
    PREDICTORS,
    correlations,
    efficiency_predictors,
    first_selected,
    of_domains,
    transfer_accuracies,
    transfer_records,
)
from heldout.measure.score.records import EfficiencyPredictors
from tests.curate.active.conftest import made_problem

# lilyjiayi/pytorch-cifar, metric_prediction/ (MIT): DomainNet-40, accuracy on a domain (column) after
# 1,000 images of another (row); clipart, infograph, painting, quickdraw, real, sketch.
ACCURACIES = np.array(
    [
        [0.6494, 0.1652, 0.3111, 0.09699, 0.4735, 0.287],
        [0.3247, 0.4174, 0.3926, 0.05351, 0.4875, 0.2963],
        [0.3247, 0.2435, 0.763, 0.0903, 0.6072, 0.3889],
        [0.1299, 0.04348, 0.05926, 0.7458, 0.1142, 0.1019],
        [0.4156, 0.1478, 0.437, 0.08027, 0.8384, 0.3796],
        [0.4286, 0.09565, 0.2444, 0.1739, 0.4652, 0.6574],
    ]
)
SIZES = np.array([3672, 5069, 6553, 14000, 15985, 5466])
# Domains of a mixture; its data efficiency in sixtieths; percentages of the domains among the labels
# that margin chose, added over three rounds.
MIXTURES = (
    ("12345", 95, (30, 48, 42, 116, 64, 0)),
    ("2456", 87, (0, 60, 0, 142, 52, 46)),
    ("345", 105, (0, 0, 54, 160, 86, 0)),
    ("234", 102, (0, 90, 76, 134, 0, 0)),
    ("1235", 117, (40, 100, 48, 0, 112, 0)),
    ("145", 73, (40, 0, 0, 168, 92, 0)),
    ("356", 133, (0, 0, 80, 0, 110, 110)),
    ("1246", 65, (40, 66, 0, 132, 0, 62)),
    ("1236", 58, (56, 104, 80, 0, 0, 60)),
    ("1245", 65, (28, 56, 0, 124, 92, 0)),
    ("12356", 77, (32, 66, 64, 0, 80, 58)),
    ("13456", 89, (12, 0, 46, 118, 78, 46)),
    ("12346", 57, (38, 74, 34, 112, 0, 42)),
    ("1346", 71, (42, 0, 62, 134, 0, 62)),
)


def plain(accuracies: np.ndarray, natural: np.ndarray, selected: np.ndarray) -> dict[str, float]:
    """The formulas as they are written, sum by sum."""
    w, s, k = natural / natural.sum(), selected / selected.sum(), range(len(natural))
    own = [accuracies[i, i] for i in k]

    def m1(mix: np.ndarray) -> float:
        return sum(w[i] * sum(mix[j] * accuracies[j, i] for j in k) for i in k)

    def m2(mix: np.ndarray) -> float:
        return sum(w[i] * sum(mix[j] * accuracies[j, i] / own[i] for j in k) for i in k)

    return {"m1": m1(s), "m2": m2(s), "m3": m1(w) / m1(s), "m4": m2(w) / m2(s)}


def test_the_formulas() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        accuracies = rng.uniform(0.1, 1, (4, 4))
        natural, selected = rng.integers(0, 9, (2, 4)) + np.array([[1, 0, 0, 0]] * 2)
        found = efficiency_predictors(accuracies, natural, selected)
        assert found == pytest.approx(plain(accuracies, natural, selected))


def test_the_natural_mix_selected_predicts_nothing() -> None:
    found = efficiency_predictors(ACCURACIES, SIZES, 3 * SIZES)
    assert found["m3"] == pytest.approx(1)
    assert found["m4"] == pytest.approx(1)


def test_a_domain_that_is_never_right_has_no_relative_accuracy() -> None:
    found = efficiency_predictors(np.array([[0.5, 0.2], [0.1, 0.0]]), [1, 1], [1, 0])
    assert found["m1"] == pytest.approx(0.35)
    assert np.isnan(found["m2"])
    assert np.isnan(found["m4"])


def test_the_authors_correlations() -> None:
    """As computed from their committed logs: Pearson's and Spearman's, four places."""
    pairs = []
    for domains, efficiency, selected in MIXTURES:
        assert sum(selected) == 300
        there = np.isin(np.arange(6), [int(name) - 1 for name in domains])
        found = efficiency_predictors(ACCURACIES, np.where(there, SIZES, 0), np.array(selected))
        pairs.append(
            EfficiencyPredictors(
                testset="DomainNet-40", strategy=domains, efficiency=efficiency / 60, **found
            )
        )
    found = {each.predictor: each for each in correlations(pairs)}
    assert {name: round(each.value, 4) for name, each in found.items()} == {
        "m1": 0.6811, "m2": 0.5345, "m3": 0.7048, "m4": 0.7613
    }  # fmt: skip
    assert {name: round(each.ranks, 4) for name, each in found.items()} == {
        "m1": 0.5281, "m2": 0.4730, "m3": 0.7173, "m4": 0.8405
    }  # fmt: skip
    assert found["m4"].n == 14
    # Fisher's interval, from scipy.
    from scipy.stats import pearsonr

    limits = pearsonr([p.m4 for p in pairs], [p.efficiency for p in pairs]).confidence_interval()
    assert (found["m4"].low, found["m4"].high) == pytest.approx(tuple(limits))
    with pytest.raises(NotApplicable, match="3 pairs of m1"):
        correlations(pairs[:3])


def test_transfer_is_the_accuracy_of_a_classifier_of_one_domain() -> None:
    problem = made_problem()
    found = transfer_accuracies(problem, Logistic(), 8, seeds=[0, 1])
    count = len(problem.domain_names)
    assert found.shape == (count, count)
    assert ((found >= 0) & (found <= 1)).all()
    # All candidates of a domain: no draw is left, and the seed makes no difference.
    least = int(problem.domain_sizes.min())
    smallest = int(problem.domain_sizes.argmin())
    rows = problem.rows(TRAIN)[problem.domains[problem.rows(TRAIN)] == smallest]
    trained = Logistic()(
        problem.images(rows), problem.labels[rows], classes=len(problem.classes), seed=0
    )
    whole = transfer_accuracies(problem, Logistic(), least, seeds=[5])[smallest]
    for domain in range(count):
        test = problem.rows(TEST)[problem.domains[problem.rows(TEST)] == domain]
        right = trained(problem.images(test)).logits.argmax(axis=1) == problem.labels[test]
        assert whole[domain] == pytest.approx(right.mean())
    with pytest.raises(UserError, match=r"labels of one domain are asked for"):
        transfer_accuracies(problem, Logistic(), least + 1, seeds=[0])


def test_records_of_a_study_and_of_mixtures(tmp_path: Path) -> None:
    problem = made_problem()
    plan = LabelPlan(initial=10, budget=6, rounds=4)
    names = ("random", "margin")
    outcome = run_study(
        problem, Logistic(), parse_strategies(names), plan=plan, seeds=[0, 1], runs=tmp_path
    )
    quotas = [outcome.rounds["margin"][seed][k].quota for seed in (0, 1) for k in range(3)]
    assert first_selected(outcome, "margin").tolist() == np.sum(quotas, axis=0).tolist()
    assert first_selected(outcome, "margin").sum() == 2 * 3 * 6
    records = transfer_records(outcome, Logistic(), 8, efficiencies={"margin": 1.5})
    predicted = {r.strategy: r for r in records if isinstance(r, EfficiencyPredictors)}
    assert (predicted["margin"].efficiency, predicted["random"].efficiency) == (1.5, None)
    accuracies = transfer_accuracies(problem, Logistic(), 8, seeds=[0, 1])
    expected = efficiency_predictors(
        accuracies, problem.domain_sizes, first_selected(outcome, "margin")
    )
    assert {key: getattr(predicted["margin"], key) for key in PREDICTORS} == pytest.approx(expected)
    for some in itertools.combinations(problem.domain_names, 2):
        part = of_domains(problem, some[::-1])
        assert part.domain_names == some
        for name in some:
            mine, whole = part.domain_names.index(name), problem.domain_names.index(name)
            ids = [part.ids[row] for row in np.flatnonzero(part.domains == mine)]
            assert ids == [problem.ids[row] for row in np.flatnonzero(problem.domains == whole)]
        assert part.features is not None
        assert len(part) == len(part.features) == len(part.labels) == len(part.parts)
    with pytest.raises(UserError, match="has no domain moon"):
        of_domains(problem, ["moon"])

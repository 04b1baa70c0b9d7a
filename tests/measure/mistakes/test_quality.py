"""Tests of :mod:`heldout.measure.mistakes.quality`."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.measure.mistakes.categories import (
    decided,
    learn,
    lessons_from,
    propose,
    propose_learning,
    suggested,
)
from heldout.measure.mistakes.evidence import EvidenceTable
from heldout.measure.mistakes.quality import (
    JudgedMistakes,
    agreement,
    cross_validate,
    kappa_of,
    learned_categories,
    weighted_auc,
)
from heldout.stats.agreement import cohen_kappa
from tests.measure.mistakes.evidence_case import evidence, knowledge, mistake, planted

# Agreement and severity numbers against plain definitions.


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=2, max_size=40))
def test_kappa_is_cohen_s(rows: list[tuple[str, str]]) -> None:
    judged, proposed = [a for a, _ in rows], [b for _, b in rows]
    names = sorted({*judged, *proposed})
    counts = np.zeros((len(names), len(names)))
    for one, other in rows:
        counts[names.index(one), names.index(other)] += 1
    if len(names) == 1:
        assert kappa_of(counts) == 0.0
        return
    assert kappa_of(counts) == pytest.approx(cohen_kappa(judged, proposed))


def test_agreement_counts() -> None:
    judged = ["a"] * 6 + ["b"] * 3 + ["c"]
    proposed = ["a"] * 5 + ["b"] + ["b"] * 2 + ["a"] + ["a"]
    found = agreement(judged, proposed, [f"i{n}" for n in range(10)], replicates=200)
    assert found.n == 10 and found.accuracy == pytest.approx(0.7)
    assert found.kappa_low is not None and found.kappa is not None
    assert found.kappa_low < found.kappa < (found.kappa_high or 0)


def test_always_the_same_answer_has_no_kappa_to_speak_of() -> None:
    found = agreement(["a", "a", "b"] * 10, ["a"] * 30, [str(n) for n in range(30)], replicates=50)
    assert found.kappa == found.kappa_low == found.kappa_high == 0.0
    assert found.accuracy == pytest.approx(2 / 3)


def test_mistakes_of_one_image_are_drawn_together() -> None:
    rng = np.random.default_rng(0)
    images = np.repeat(np.arange(40), 5)
    right = np.repeat(rng.random(40) < 0.6, 5)
    judged = np.where(rng.random(200) < 0.5, "a", "b")
    proposed = np.where(right, judged, np.where(judged == "a", "b", "a"))
    alone = agreement(judged.tolist(), proposed.tolist(), [str(n) for n in range(200)])
    grouped = agreement(judged.tolist(), proposed.tolist(), [str(n) for n in images])
    assert grouped.images == 40 and alone.images == 200

    def width(item: object) -> float:
        return float(item.accuracy_high - item.accuracy_low)  # type: ignore[attr-defined]

    assert width(grouped) > 1.7 * width(alone)


def test_too_few() -> None:
    with pytest.raises(NotApplicable):
        agreement(["a"], ["a"], ["i"])


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=30
    )
)
def test_auc_counts_pairs(rows: list[tuple[bool, int, int]]) -> None:
    wins = total = 0.0
    for yes, score, weight in rows:
        for no, other, other_weight in rows:
            if yes and not no:
                total += weight * other_weight
                wins += weight * other_weight * ((score > other) + 0.5 * (score == other))
    truth, scores, weights = (np.array(side) for side in zip(*rows, strict=True))
    expected = wins / total if total else 0.5
    assert weighted_auc(truth, scores.astype(float), weights.astype(float)) == pytest.approx(
        expected
    )


# Learning and its validation: a planted signal is found, and nothing is found where nothing is.


def _case(
    n: int, seed: int, **options: object
) -> tuple[EvidenceTable, dict[tuple[str, str], tuple[str, str]]]:
    mistakes, verdicts = planted(n, seed, **options)  # type: ignore[arg-type]
    return evidence(mistakes, knowledge()), verdicts


def test_a_planted_signal_is_found() -> None:
    table, verdicts = _case(200, 0)
    found = cross_validate(table, verdicts, replicates=300)
    learned = found.learned
    assert learned.kappa is not None and learned.kappa_low is not None
    assert learned.kappa > 0.6 and learned.kappa_low > 0.4
    assert found.majority.kappa == 0.0
    assert found.severity is not None and found.severity.auc_low > 0.6


def test_nothing_is_found_where_there_is_nothing() -> None:
    """Answers without any connection: a leak of test into training would show as agreement."""
    kappas, aucs = [], []
    for seed in range(8):
        table, verdicts = _case(150, seed, signal=False)
        found = cross_validate(table, verdicts, replicates=50)
        kappas.append(found.learned.kappa or 0.0)
        aucs.append(0.5 if found.severity is None else found.severity.auc)
    assert abs(np.mean(kappas)) < 0.08
    assert abs(np.mean(aucs) - 0.5) < 0.08


def test_several_mistakes_of_an_image_leak_nothing() -> None:
    """Answers that only the image tells, each image twice: folds by image leave nothing to learn."""
    rng = np.random.default_rng(0)
    mistakes, verdicts, typical = [], {}, {}
    for number in range(80):
        answer = str(rng.choice(["Fine-grained error", "Spurious Correlation"]))
        typical[f"i{number}"] = float(rng.random())
        for prediction in ("pug", "sofa"):
            mistakes.append(mistake(f"i{number}", prediction, "boxer"))
            verdicts[f"i{number}", prediction] = (answer, "Minor")
    table = evidence(mistakes, knowledge(prototypes=typical))
    found = cross_validate(table, verdicts, folds=5, replicates=50)
    assert abs(found.learned.kappa or 0.0) < 0.2
    assert found.severity is None  # there is but one severity


def test_the_order_of_mistakes_does_not_matter() -> None:
    mistakes, verdicts = planted(90, 3)
    mixed = list(mistakes)
    random.Random(0).shuffle(mixed)
    one = cross_validate(evidence(mistakes, knowledge()), verdicts, replicates=40)
    other = cross_validate(evidence(mixed, knowledge()), verdicts, replicates=40)
    for mine, theirs in ((one.learned, other.learned), (one.majority, other.majority)):
        assert (mine.kappa, mine.accuracy) == (theirs.kappa, theirs.accuracy)
        assert mine.kappa_low == pytest.approx(theirs.kappa_low)
    assert one.severity is not None and other.severity is not None
    assert one.severity.auc == pytest.approx(other.severity.auc)


def test_a_rare_category_is_not_learned() -> None:
    table, verdicts = _case(80, 5)
    rare = dict(verdicts)
    for key in list(rare)[:3]:
        rare[key] = ("Non-prototypical", "Minor")
    lessons = lessons_from(table, rare)
    assert lessons.categories.answers == ("Fine-grained error", "Spurious Correlation")
    judged = JudgedMistakes.of(table, rare)
    assert judged.categories.count("Non-prototypical") == 3
    assert "Non-prototypical" not in learned_categories(judged, judged, 0)


def test_too_few_to_learn_from() -> None:
    table, verdicts = _case(80, 5)
    with pytest.raises(NotApplicable, match="two categories"):
        learn(table.take(range(8)), ["Fine-grained error"] * 8)
    with pytest.raises(NotApplicable, match="too few"):
        cross_validate(table.take(range(8)), verdicts)


def test_proposals_for_judged_images_come_from_other_images() -> None:
    """Each image is the only one of its kind: what its own verdict says can come from nowhere else."""
    mistakes, verdicts = planted(160, 8)
    odd = mistake("odd", "leash", "sofa")
    typical = {item.image_id: 0.0 for item in mistakes} | {"odd": 1.0}
    known = knowledge(prototypes=typical)
    table = evidence([*mistakes, odd], known)
    own = {}
    for category in ("Fine-grained error", "Spurious Correlation"):
        said = {**verdicts, ("odd", "leash"): (category, "Major")}
        apart = {p.key: p for p in propose_learning(table, table, said)}
        inside = {p.key: p for p in propose(table, lessons_from(table, said))}
        own[category] = (
            apart["odd", "leash"].scores[category],
            inside["odd", "leash"].scores[category],
        )
    for apart_score, inside_score in own.values():
        assert apart_score < inside_score
    assert sum(apart_score for apart_score, _ in own.values()) == pytest.approx(1.0, abs=0.1)
    fresh = evidence([mistake("new", "pug", "boxer")], known)
    (one,) = propose_learning(fresh, table, verdicts)
    (other,) = propose(fresh, lessons_from(table, verdicts))
    assert one == other


def test_learned_proposals_carry_probabilities_and_reasons() -> None:
    table, verdicts = _case(160, 8)
    found = propose(table, lessons_from(table, verdicts))
    for proposal in found:
        assert sum(proposal.scores.values()) == pytest.approx(1.0)
        assert proposal.scores[proposal.category] > 0
        low, high = proposal.severity_low, proposal.severity_high
        assert low is not None and high is not None and proposal.severity_probability is not None
        assert 0 <= low <= proposal.severity_probability <= high <= 1
        assert proposal.severity == suggested(low, high)
        assert 1 <= len(proposal.evidence) <= 4
    assert {p.severity for p in found} == {"Major", "Minor"} | {p.severity for p in found}


def test_severity_is_not_suggested_in_doubt() -> None:
    assert suggested(0.4, 0.6) is None
    assert suggested(0.51, 0.9) == "Major" and suggested(0.1, 0.49) == "Minor"
    table, verdicts = _case(60, 4, signal=False)
    found = propose(table, lessons_from(table, verdicts))
    assert sum(p.severity is None for p in found) > len(found) / 2


def test_undecided_verdicts_teach_nothing() -> None:
    verdicts = {
        ("a", "x"): ("Other", "Major"),
        ("b", "x"): ("unclear", "Major"),
        ("c", "x"): ("Other", "unclear"),
    }
    assert decided(verdicts) == {("a", "x"): ("Other", "Major")}

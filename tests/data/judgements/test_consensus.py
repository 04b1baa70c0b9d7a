from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.data.judgements.consensus import RULES, consensus, dawid_skene, panel
from heldout.data.judgements.judgement import Judgement

from .test_dawid_skene import simulated

NAMES = ("correct", "unclear", "wrong")


def labels(image: str, answers: str) -> list[Judgement]:
    return [
        Judgement(
            question="label",
            subject={"image_id": image, "class_id": "c"},
            answer={"c": "correct", "u": "unclear", "w": "wrong"}[letter],
            who=f"w{number}",
        )
        for number, letter in enumerate(answers)
    ]


@pytest.mark.parametrize(
    ("answers", "rule", "share", "verdict"),
    [
        ("ccw", "majority", None, "correct"),
        ("cw", "majority", None, "unclear"),
        ("ccuw", "majority", None, "unclear"),
        ("ccuw", "plurality", None, "correct"),
        ("ccww", "plurality", None, "unclear"),
        ("ccc", "unanimous", None, "correct"),
        ("ccu", "unanimous", None, "unclear"),
        ("c" * 7 + "w" * 3, "threshold", 0.7, "correct"),
        ("c" * 6 + "w" * 4, "threshold", 0.7, "unclear"),
        ("ccww", "threshold", 0.5, "unclear"),
        ("uuu", "majority", None, "unclear"),
    ],
)
def test_the_rules_by_hand(answers: str, rule: str, share: float | None, verdict: str) -> None:
    (one,) = consensus(labels("a", answers), rule=rule, share=share)  # type: ignore[arg-type]
    assert one.answer == verdict
    assert one.subject == {"image_id": "a", "class_id": "c"}
    counts = Counter(answers)
    assert one.votes == {"correct": counts["c"], "unclear": counts["u"], "wrong": counts["w"]}
    assert one.n == len(answers)
    assert one.share == max(counts.values()) / len(answers)


@settings(max_examples=100)
@given(
    st.lists(st.text("cuw", min_size=1, max_size=8), min_size=1, max_size=5),
    st.sampled_from(("majority", "plurality", "unanimous", "threshold")),
    st.integers(1, 10),
)
def test_the_rules_against_a_slow_reading_of_their_definitions(
    images: list[str], rule: str, tenths: int
) -> None:
    rows = [row for n, answers in enumerate(images) for row in labels(f"i{n}", answers)]
    share = tenths / 10 if rule == "threshold" else None
    made = consensus(rows, rule=rule, share=share)  # type: ignore[arg-type]
    assert len(made) == len(images)
    for verdict, answers in zip(made, images, strict=True):
        ranked = Counter(answers).most_common()
        best, votes = ranked[0]
        alone = len(ranked) == 1 or ranked[1][1] < votes
        need = {
            "majority": votes > Fraction(len(answers), 2),
            "plurality": True,
            "unanimous": votes == len(answers),
            "threshold": votes >= Fraction(tenths, 10) * len(answers),
        }[rule]
        expected = {"c": "correct", "u": "unclear", "w": "wrong"}[best]
        assert verdict.answer == (expected if need and alone else "unclear")
        pairs = [
            answers[i] == answers[j]
            for i in range(len(answers))
            for j in range(len(answers))
            if i != j
        ]
        if pairs:
            assert verdict.agreement == pytest.approx(sum(pairs) / len(pairs))
        else:
            assert math.isnan(verdict.agreement)


def test_reliable_workers_outvote_others_and_doubt_can_stay_unclear() -> None:
    made, truth = simulated(3, subjects=400, workers=12, answers=3, each=5, skill=0.6)
    fit = dawid_skene(made)
    sure = consensus(made, rule="dawid-skene")
    assert [made.answers.index(a) for a in sure.answer] == fit.posterior.argmax(axis=1).tolist()
    np.testing.assert_array_equal(sure.share, fit.posterior.max(axis=1))
    strict = consensus(made, rule="dawid-skene", share=0.9)
    doubt = np.array([a == "unclear" for a in strict.answer])
    np.testing.assert_array_equal(doubt, fit.posterior.max(axis=1) < 0.9)
    codes = np.array([-1 if a == "unclear" else made.answers.index(a) for a in strict.answer])
    assert (codes == truth)[~doubt].mean() > (fit.posterior.argmax(axis=1) == truth).mean()
    least = consensus(made, rule="dawid-skene", share=float(sure.share.min()))
    assert least.answer == sure.answer, "a share that is just reached is reached"


def test_a_score_is_a_probability_cut_where_one_says() -> None:
    rows = [row for n in range(30) for row in labels(f"i{n:02d}", "ccc" if n % 2 else "www")]
    rows += labels("odd", "ccw")
    made = panel(rows)
    fit = dawid_skene(made)
    score = fit.posterior[:, fit.truths.index("correct")]
    for cut in (0.8, 0.99999):
        cutting = consensus(made, rule="score", positive="correct", share=cut)
        assert [a == "correct" for a in cutting.answer] == (score >= cut).tolist()
        assert set(cutting.answer) == {"correct", "wrong"}
    assert (
        consensus(made, rule="score", positive="correct").answer
        == consensus(made, rule="score", positive="correct", share=0.8).answer
    )


def test_a_part_of_an_answer_has_its_own_consensus() -> None:
    rows = [
        Judgement(
            question="mistake",
            subject={"image_id": "a", "prediction": "p"},
            answer={"category": category, "severity": "Major"},
            who=who,
        )
        for who, category in (("x", "Other"), ("y", "Non-prototypical"))
    ]
    assert consensus(rows, part="severity").answer == ("Major",)
    assert consensus(rows, part="category").answer == ("unclear",)


def test_rules_that_are_not_there_or_lack_something() -> None:
    rows = labels("a", "ccw")
    with pytest.raises(UserError, match=", ".join(RULES)):
        consensus(rows, rule="loudest")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="needs a share"):
        consensus(rows, rule="threshold")
    with pytest.raises(UserError, match="takes no share"):
        consensus(rows, rule="majority", share=0.5)
    for share in (0.0, 1.1, math.nan):
        with pytest.raises(UserError, match="a share of"):
            consensus(rows, rule="threshold", share=share)
    with pytest.raises(UserError, match="answer to score"):
        consensus(rows, rule="score")

"""Rulings against plain counting of votes, and how far reviewers agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.data.judgements.judgement import CATEGORIES, SEVERITIES, Judgement
from heldout.measure.mistakes.panel import agreement, panel_answers, rulings

ANSWERS = ("correct", "unclear", "wrong")


def label(
    who: str, image: str, answer: str, *, prediction: str = "b", queue: str = "", aim: str = ""
) -> Judgement:
    evidence = {k: v for k, v in (("queue", queue), ("aim", aim)) if v}
    return Judgement(
        question="label",
        subject={"image_id": image, "class_id": prediction},
        answer=answer,
        who=who,
        evidence=evidence,
    )


def mistake(
    who: str, image: str, severity: str, *, category: str = "Other", prediction: str = "b"
) -> Judgement:
    return Judgement(
        question="mistake",
        subject={"image_id": image, "prediction": prediction},
        answer={"category": category, "severity": severity},
        who=who,
    )


_vote = st.tuples(
    st.sampled_from(["ann", "bob", "cyd", "dan"]),
    st.sampled_from(["i1", "i2", "i3"]),
    st.sampled_from([None, *ANSWERS]),
    st.sampled_from([None, *SEVERITIES]),
    st.sampled_from(CATEGORIES),
)


@settings(max_examples=150)
@given(
    st.lists(_vote, max_size=14, unique_by=lambda v: v[:2]),
    st.sampled_from(["majority", "unanimous"]),
    st.integers(1, 3),
    st.booleans(),
    st.randoms(),
)
def test_rulings_count_votes(
    votes: list[tuple[str, str, str | None, str | None, str]],
    rule: str,
    people: int,
    fold: bool,
    random: object,
) -> None:
    judgements = []
    for who, image, answer, severity, category in votes:
        if answer is not None:
            judgements.append(label(who, image, answer))
        if severity is not None:
            judgements.append(mistake(who, image, severity, category=category))
    random.shuffle(judgements)  # type: ignore[attr-defined]
    found = rulings(panel_answers(judgements, fold=fold), rule=rule, people=people)  # type: ignore[arg-type]
    for image in ("i1", "i2", "i3"):
        mine = [v for v in votes if v[1] == image and (v[2] or v[3])]
        said = [answer or "wrong" for _, _, answer, _, _ in mine]
        if not said or len(said) < people:
            assert (image, "b") not in found
            continue
        ruling = found[image, "b"]
        assert ruling.answer == _plain(said, rule)
        assert ruling.people == len(said)
        assert ruling.votes == tuple(said.count(answer) for answer in ANSWERS)
        assert ruling.accepted == (ruling.answer != "wrong")
        worst = [
            "Minor" if fold and severity == "Borderline" else severity
            for _, _, answer, severity, _ in mine
            if severity is not None and answer in (None, "wrong")
        ]
        expected = _plain(worst, rule) if worst and ruling.answer == "wrong" else None
        assert ruling.severity == expected
    assert list(found) == sorted(found)


def _plain(votes: list[str], rule: str) -> str:
    best = max(sorted(set(votes)), key=votes.count)
    enough = (
        votes.count(best) == len(votes)
        if rule == "unanimous"
        else 2 * votes.count(best) > len(votes)
    )
    return best if enough else "unclear"


def test_who_is_asked_by_which_queue() -> None:
    answers = panel_answers(
        [
            label("ann", "i1", "wrong", queue="q1", aim="accuracy"),
            label("bob", "i1", "wrong", queue="q2", aim="accuracy"),
            label("ann", "i2", "wrong", queue="q1", aim="hard"),
            label("ann", "i3", "wrong"),
        ]
    )
    found = rulings(answers)
    assert found["i1", "b"].queues == ("q1", "q2")
    assert found["i2", "b"].queues == () and found["i3", "b"].queues == ()


def test_agreement_on_each_part() -> None:
    judgements = []
    for number in range(20):
        image = f"i{number:02d}"
        for who in ("ann", "bob"):
            odd = who == "bob" and number % 5 == 0
            judgements.append(mistake(who, image, "Minor" if (number % 2 == 0) != odd else "Major"))
    given_answers = panel_answers(judgements)
    severity = agreement(given_answers, "severity")
    assert (severity.subjects, severity.people) == (20, 2)
    assert severity.share == pytest.approx(16 / 20)
    assert severity.alpha is not None and severity.low is not None and severity.high is not None
    assert severity.low < severity.alpha < severity.high and 0.5 < severity.alpha < 0.7
    ((one, other, n, kappa),) = severity.kappas
    assert (one, other, n) == ("ann", "bob", 20) and kappa == pytest.approx(0.6)
    answer = agreement(given_answers, "answer")
    assert answer.share == 1 and answer.alpha is None, "all said wrong: nothing to disagree about"
    assert agreement(given_answers, "severity") == severity, "the same seed, the same interval"


def test_what_a_panel_cannot_say() -> None:
    lonely = panel_answers([mistake("ann", "i1", "Major")])
    with pytest.raises(NotApplicable, match="no \\(image, prediction\\) has two"):
        agreement(lonely, "severity")
    with pytest.raises(NotApplicable, match="nobody on the panel gave a severity"):
        agreement(panel_answers([label("ann", "i1", "wrong")]), "severity")


def test_folding_makes_minor_and_borderline_one() -> None:
    both = [mistake("ann", "i1", "Minor"), mistake("bob", "i1", "Borderline")]
    assert rulings(panel_answers(both))["i1", "b"].severity == "Minor"
    assert rulings(panel_answers(both, fold=False))["i1", "b"].severity == "unclear"
    assert np.isclose(agreement(panel_answers(both), "severity").share, 1.0)


def test_a_rule_that_does_not_settle_drops_no_verdict() -> None:
    """One reviewer alone: the model of reviewers has nothing to learn their reliability from."""
    said = [mistake("ann", str(n), "Major" if n % 2 else "Minor") for n in range(6)]
    with pytest.raises(NotApplicable, match="no two people answered") as caught:
        rulings(panel_answers(said), rule="dawid-skene")
    assert "the rule majority" in caught.value.fix
    # Where answers are shared and severities are not, a sole verdict stands.
    both = [label(who, str(n), "wrong") for who in ("ann", "bob") for n in range(6)]
    found = rulings(panel_answers(both + said), rule="dawid-skene")
    assert [found[str(n), "b"].severity for n in range(6)] == ["Minor", "Major"] * 3
    labels = [label("ann", str(n), "wrong") for n in range(6)]
    assert {r.severity for r in rulings(panel_answers(labels)).values()} == {None}, (
        "nobody gave a severity"
    )

"""Tests of :mod:`heldout.data.judgements.workers`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.consensus import consensus, panel, subject_key
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.workers import counted_votes, selection_frequency, worker_quality
from heldout.stats.intervals import wilson

from .strategies import vote

# frequency


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from("xy"),
            st.sampled_from(("selected", "not-selected")),
            st.sampled_from(("Submitted", "Approved", "Rejected", None)),
            st.sampled_from(("g1", "g2", "bad")),
        ),
        max_size=25,
    )
)
def test_frequency_is_selections_over_counted_votes(
    rows: list[tuple[str, str, str, str | None, str]],
) -> None:
    votes = [
        vote(image, who, answer, evidence={"status": status, "grid": grid, "number": n})
        for n, (image, who, answer, status, grid) in enumerate(rows)
    ]
    counted = [row for row in rows if row[3] != "Rejected" and row[4] != "bad"]
    found = selection_frequency(votes, leave_out={"bad"})
    assert [f.image_id for f in found] == sorted({row[0] for row in counted})
    for one in found:
        mine = [row for row in counted if row[0] == one.image_id]
        selected = sum(row[2] == "selected" for row in mine)
        assert (one.class_id, one.selected, one.n) == ("c", selected, len(mine))
        assert one.frequency == selected / len(mine)
        interval = wilson(selected, len(mine))
        assert (one.low, one.high) == (interval.low, interval.high)


def test_one_image_has_a_frequency_for_each_class_it_was_shown_for() -> None:
    votes = [
        Judgement(
            question="vote", subject={"image_id": "a", "class_id": c}, answer=answer, who=f"w{n}"
        )
        for n in range(10)
        for c, answer in (("cat", "selected" if n < 7 else "not-selected"), ("dog", "not-selected"))
    ]
    cat, dog = selection_frequency(votes)
    assert (cat.class_id, cat.frequency) == ("cat", 0.7)
    assert (dog.class_id, dog.frequency) == ("dog", 0.0) and dog.high > 0.0


def test_a_rejected_vote_takes_back_the_one_that_it_supersedes() -> None:
    """Whatever else is asked for, and in whatever order they come; a later one counts again."""
    first = vote("a", "x", "selected", evidence={"status": "Submitted"})
    others = [vote("a", "y", "not-selected", evidence={"status": "Approved"})]
    states = [first]
    for status in ("Rejected", "Submitted"):
        before = states[-1].judgement_id
        states.append(vote("a", "x", "selected", evidence={"status": status}, supersedes=before))
    for known, n in ((1, 2), (2, 1), (3, 2)):
        for votes in (states[:known] + others, [*others, *reversed(states[:known])]):
            (one,) = selection_frequency(votes)
            assert (one.n, one.selected) == (n, n - 1)
            assert len(counted_votes(votes)) == n


def test_only_votes_have_a_selection_frequency() -> None:
    with pytest.raises(UserError, match="label judgement is not a vote"):
        selection_frequency(
            [
                Judgement(
                    question="label",
                    subject={"image_id": "a", "class_id": "c"},
                    answer="correct",
                    who="w",
                )
            ]
        )


def test_what_was_rejected_or_taken_back_counts_as_no_vote() -> None:
    given = vote("a", "w", when="2026-01-01T00:00:00Z")
    back = vote("a", "w", answer="withdrawn", when="2026-01-02T00:00:00Z")
    assert selection_frequency([vote("a", "w", evidence={"status": "Rejected"})]) == ()
    assert selection_frequency([given, back]) == ()
    assert len(selection_frequency([given])) == 1


# workers


def gold(**answers: str) -> dict[str, str]:
    return {
        subject_key({"image_id": image, "class_id": "c"}): answer
        for image, answer in answers.items()
    }


def test_controls_by_hand() -> None:
    controls = gold(p1="selected", p2="selected", n1="not-selected")
    votes = [
        vote("p1", "good"), vote("p2", "good"), vote("n1", "good", "not-selected"),
        vote("x", "good"),
        vote("p1", "eager"), vote("p2", "eager"), vote("n1", "eager"),
        vote("x", "unseen"),
    ]  # fmt: skip
    eager, good = worker_quality(panel(votes), controls)
    assert (eager.who, eager.n, eager.right) == ("eager", 3, 2)
    assert eager.by_gold == {"selected": (2, 2), "not-selected": (1, 0)}
    assert (good.who, good.accuracy) == ("good", 1.0)
    assert (eager.low, eager.high) == (wilson(2, 3).low, wilson(2, 3).high)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.sampled_from("xyz"),
            st.sampled_from(("selected", "not-selected")),
        ),
        min_size=1,
        unique_by=lambda row: row[:2],
    ),
    st.dictionaries(
        st.sampled_from("abcd"), st.sampled_from(("selected", "not-selected")), min_size=1
    ),
)
def test_quality_is_what_counting_one_by_one_gives(
    rows: list[tuple[str, str, str]], truth: dict[str, str]
) -> None:
    made = panel([vote(*row) for row in rows])
    expected = {}
    for who in {who for _, who, _ in rows}:
        mine = [
            answer == truth[image] for image, by, answer in rows if by == who and image in truth
        ]
        if mine:
            expected[who] = (len(mine), sum(mine))
    if not expected:
        with pytest.raises(NotApplicable, match="control"):
            worker_quality(made, gold(**truth))
        return
    found = worker_quality(made, gold(**truth))
    assert {q.who: (q.n, q.right) for q in found} == expected
    assert [(q.accuracy, q.who) for q in found] == sorted((q.accuracy, q.who) for q in found)
    for quality in found:
        assert sum(n for n, _ in quality.by_gold.values()) == quality.n
        assert sum(right for _, right in quality.by_gold.values()) == quality.right


def test_experts_consensus_serves_as_gold_and_an_answer_nobody_gave_is_never_right() -> None:
    experts = consensus(
        [vote("a", "e1"), vote("a", "e2"), vote("b", "e1"), vote("b", "e2", "not-selected")]
    )
    assert experts.by_subject() == gold(a="selected", b="unclear")
    (quality,) = worker_quality(panel([vote("a", "w"), vote("b", "w")]), experts.by_subject())
    assert quality.by_gold == {"selected": (1, 1), "unclear": (1, 0)}

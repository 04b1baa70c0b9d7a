from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.workers import selection_frequency
from heldout.stats.intervals import wilson

from .strategies import vote


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
    if not counted:
        with pytest.raises(NotApplicable):
            selection_frequency(votes, leave_out={"bad"})
        return
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
    with pytest.raises(NotApplicable):
        selection_frequency([vote("a", "w", evidence={"status": "Rejected"})])

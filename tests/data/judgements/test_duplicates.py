"""What people said of pairs, and down to which distance an image was reviewed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.workspace import Workspace
from heldout.data.judgements.duplicates import (
    ALL_REVIEWED,
    FIRST,
    REVIEW_TARGETS,
    THRESHOLD,
    PairVerdict,
    listed_counts,
    review_thresholds,
    reviewed_down_to,
    sufficiently_reviewed,
    verdicts,
)
from heldout.data.judgements.judgement import WITHDRAWN, Judgement, pair_subject
from heldout.data.judgements.resolution import near_duplicates
from heldout.data.judgements.store import JudgementStore
from heldout.testing.example import example_testset


def said(who: str, answer: str, one: str = "a", other: str = "b", **more: Any) -> Judgement:
    return Judgement(
        question="duplicate", subject=pair_subject(one, other), answer=answer, who=who, **more
    )


EARLY, LATE = "2026-01-01T00:00:00.000000Z", "2026-02-01T00:00:00.000000Z"
YES, NO = "duplicate", "different"


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        ([("ann", YES, LATE)], PairVerdict("duplicate", "ann", LATE)),
        ([("ann", NO, None), ("bob", NO, EARLY)], PairVerdict("different", "ann, bob", EARLY)),
        # A person's latest answer counts.
        ([("ann", YES, EARLY), ("ann", NO, LATE)], PairVerdict("different", "ann", LATE)),
        # No answer has more than half: nothing holds, and who disagrees is said.
        (
            [("bob", NO, LATE), ("ann", YES, EARLY)],
            PairVerdict("unresolved", "ann: duplicate, bob: different", LATE),
        ),
        # Two against one settle it; the time is that of those who said it.
        (
            [("ann", YES, LATE), ("bob", NO, EARLY), ("cid", NO, None)],
            PairVerdict("different", "ann: duplicate, bob: different, cid: different", EARLY),
        ),
        # A distance decides only where nobody looked.
        ([(THRESHOLD, YES, LATE)], PairVerdict("duplicate", THRESHOLD, LATE)),
        ([(THRESHOLD, YES, LATE), ("ann", NO, EARLY)], PairVerdict("different", "ann", EARLY)),
    ],
)
def test_the_verdict_on_a_pair(
    answers: list[tuple[str, str, str | None]], verdict: PairVerdict
) -> None:
    judgements = [said(who, answer, when=when) for who, answer, when in answers]
    assert verdicts(judgements) == {("a", "b"): verdict}
    assert verdicts(reversed(judgements)) == {("a", "b"): verdict}


def test_what_is_taken_back_or_about_one_image_is_no_verdict() -> None:
    given = [
        said("ann", "duplicate", when=EARLY),
        said("ann", WITHDRAWN, when=LATE),
        said("ann", "keep", "c", "d"),
        Judgement(question="duplicate", subject={"image_id": "a"}, answer="keep", who="ann"),
    ]
    assert verdicts(given) == {}


@given(st.lists(st.tuples(st.sampled_from("wxyz"), st.sampled_from(["duplicate", "different"]))))
def test_more_than_half_of_the_people_decide(answers: list[tuple[str, str]]) -> None:
    latest = dict(answers)
    times = enumerate(answers, 1)
    given = [said(who, answer, when=f"2026-01-01T00:{n:02}:00Z") for n, (who, answer) in times]
    yes = sum(answer == "duplicate" for answer in latest.values())
    expected = {
        "duplicate": yes > len(latest) - yes,
        "different": yes < len(latest) - yes,
        "unresolved": 2 * yes == len(latest),
    }
    for verdict in verdicts(given).values():
        assert [name for name, holds in expected.items() if holds] == [verdict.answer]
    assert len(verdicts(given)) == bool(answers)


def test_verdicts_of_a_test_set(tmp_path: Path) -> None:
    testset = example_testset("new", images=20)
    one, two, three, *_ = testset.image_ids.to_pylist()
    workspace = Workspace(tmp_path / "w")
    known = near_duplicates(testset, workspace)
    assert known.verdicts == {} and not Path(workspace.judgements).exists()
    itself = {"image_id": one, "other_id": one}
    with JudgementStore(workspace.judgements) as store:
        store.add(
            [
                said("ann", "duplicate", one, two, testset="new"),
                said("ann", "different", one, "train:x"),  # for no set by name
                said("ann", "duplicate", three, "0smaller", testset="new"),
                said("ann", "duplicate", two, "elsewhere", testset="other"),
                said("ann", "duplicate", "x", "y", testset="new"),
                Judgement(question="duplicate", subject=itself, answer="duplicate", who="ann"),
            ]
        )
    found = near_duplicates(testset, workspace).verdicts
    assert {pair: verdict.answer for pair, verdict in found.items()} == {
        (one, two): "duplicate",
        (one, "train:x"): "different",
        ("0smaller", three): "duplicate",
    }
    assert all(pair[0] < pair[1] for pair in found)


def test_counts_of_a_listing() -> None:
    assert listed_counts({}) == {"roots": 0, "listed": 0, "pairs": 0, "with_itself": 0}
    assert listed_counts({"a": ["b", "b"], "b": ["a", "b"], "c": []}) == {
        "roots": 3,
        "listed": 4,
        "pairs": 2,
        "with_itself": 1,
    }


# Review thresholds

NEAR = st.lists(
    st.tuples(st.sampled_from("abcdefghij"), st.floats(0, 1e9)), max_size=40
).map(lambda found: sorted(found, key=lambda pair: pair[1]))  # fmt: skip


def slow_threshold(near: Iterable[tuple[str, float]], skipped: Iterable[str], first: int) -> float:
    left = [distance for other, distance in list(near)[:first] if other not in set(skipped)]
    return min(left, default=1e100)


@given(
    NEAR,
    st.frozensets(st.sampled_from("bcdef")),
    st.frozensets(st.sampled_from("ghi")),
    st.integers(1, 35),
)
def test_the_nearest_that_nobody_reviewed(
    near: list[tuple[str, float]], reviewed: frozenset[str], photo: frozenset[str], first: int
) -> None:  # fmt: skip
    found = reviewed_down_to(near, reviewed, image_id="a", same_photo=photo, first=first)
    assert found == slow_threshold(near, {"a", *reviewed, *photo}, first)


def test_only_the_first_neighbours_are_asked_for() -> None:
    near = [("a", 0.0), *((f"r{n}", float(n)) for n in range(1, FIRST + 5))]
    first_ones = {f"r{n}" for n in range(1, FIRST)}
    assert reviewed_down_to(near, first_ones, image_id="a") == ALL_REVIEWED == 1e100
    assert reviewed_down_to(near, first_ones - {f"r{FIRST - 1}"}, image_id="a") == FIRST - 1
    assert reviewed_down_to(None, first_ones) == 0.0  # never compared
    assert reviewed_down_to([], ()) == ALL_REVIEWED


def test_review_thresholds_as_published() -> None:
    neighbours = {
        "a": {"l2": [("a", 0.0), ("b", 1.0), ("c", 2.0)], "dssim": [("a", 0.0), ("d", 0.1)]},
        "b": {"l2": [("b", 0.0), ("a", 1.0)]},
    }
    reviewed = {"a": {"l2": ["c"], "dssim": ["d"]}, "b": {"dssim": ["a"]}}
    every = {"metrics": ("l2", "dssim"), "photos": {"a": "p", "b": "p", "c": "q"}}
    assert review_thresholds(neighbours, reviewed, **every) == {  # type: ignore[arg-type]
        "a": {"l2": 1e100, "dssim": 1e100},
        "b": {"l2": 1e100, "dssim": 0.0},
    }
    assert review_thresholds(neighbours, reviewed, metrics=("l2",)) == {
        "a": {"l2": 1.0},
        "b": {"l2": 1.0},  # what was reviewed from a's side was not from b's
    }


def test_sufficiently_reviewed_beyond_every_target() -> None:
    beyond = {"l2": 1.3e8, "dssim": 0.23, "fc7": 1e100}
    assert sufficiently_reviewed(beyond, REVIEW_TARGETS)
    for metric, target in REVIEW_TARGETS.items():
        assert not sufficiently_reviewed({**beyond, metric: target}, REVIEW_TARGETS)
        rest = {name: found for name, found in beyond.items() if name != metric}
        assert not sufficiently_reviewed(rest, REVIEW_TARGETS)
        others = {name: limit for name, limit in REVIEW_TARGETS.items() if name != metric}
        assert sufficiently_reviewed(rest, others)

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.data.judgements.consensus import Panel, panel, subject_key
from heldout.data.judgements.judgement import WITHDRAWN, Judgement, Question
from heldout.data.judgements.store import JudgementStore
from heldout.stats.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha

from .strategies import busy_votes, vote


def label(image: str, who: str, answer: str, **evidence: object) -> Judgement:
    return Judgement(
        question="label",
        subject={"image_id": image, "class_id": "c"},
        answer=answer,
        who=who,
        evidence=evidence,
    )


ANSWERS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from("xyz"),
        st.sampled_from(("correct", "unclear", "wrong")),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda row: row[:2],
)


@given(ANSWERS, st.randoms(use_true_random=False))
def test_the_matrices_hold_what_was_answered_in_any_order(
    rows: list[tuple[str, str, str]], chance: random.Random
) -> None:
    chance.shuffle(rows)
    made = panel([label(*row) for row in rows])
    assert made.answers == ("correct", "unclear", "wrong")
    assert list(made.subjects) == sorted(made.subjects)
    assert list(made.workers) == sorted({who for _, who, _ in rows})
    counts, matrix = made.counts(), made.matrix()
    assert counts.sum() == len(made) == len(rows) == np.isfinite(matrix).sum()
    for image, who, answer in rows:
        row = made.subjects.index(subject_key({"image_id": image, "class_id": "c"}))
        column = made.answers.index(answer)
        assert matrix[made.workers.index(who), row] == column
        assert counts[row, column] == sum(r[0] == image and r[2] == answer for r in rows)
    for one in made.workers:
        for other in made.workers:
            a, b = made.pair(one, other)
            both = {i: w for i, who, w in rows if who == one}
            common = [(both[i], w) for i, who, w in sorted(rows) if who == other and i in both]
            assert [(made.answers[x], made.answers[y]) for x, y in zip(a, b, strict=True)] == common


def test_the_matrices_are_those_that_the_agreement_measures_take() -> None:
    rows = {"x": "ccwwuc", "y": "ccwwwc", "z": "cwwwuc"}
    names = {"c": "correct", "u": "unclear", "w": "wrong"}
    made = panel(
        label(f"i{n}", who, names[letter])
        for who, letters in rows.items()
        for n, letter in enumerate(letters)
    )
    counts = np.array([[col.count(x) for x in "cuw"] for col in zip(*rows.values(), strict=True)])
    assert fleiss_kappa(made.counts()) == fleiss_kappa(counts)
    assert cohen_kappa(*made.pair("x", "y")) == pytest.approx(
        cohen_kappa(list(rows["x"]), list(rows["y"]))
    )
    by_hand = [["cuw".index(letter) for letter in letters] for letters in rows.values()]
    assert krippendorff_alpha(made.matrix()) == pytest.approx(
        krippendorff_alpha(np.array(by_hand, dtype=float))
    )


@given(busy_votes())
def test_pooling_counts_each_answer_that_nobody_took_back(votes: list[Judgement]) -> None:
    kept = []
    for one in votes:
        mine = [other for other in votes if other.key == one.key]
        if one.answer == WITHDRAWN or any(o.supersedes == one.judgement_id for o in mine):
            continue
        replaced = {o.supersedes for o in mine}
        later = [
            o
            for o in mine
            if o.answer == WITHDRAWN and o.judgement_id not in replaced and o.recency > one.recency
        ]
        if not later:
            kept.append(one)
    if not kept:
        with pytest.raises(NotApplicable):
            panel(votes, repeats="all")
        return
    made = panel(votes, repeats="all")
    rows = zip(made.subject, made.worker, made.answer, strict=True)
    got = sorted((made.subjects[s], made.workers[w], made.answers[a]) for s, w, a in rows)
    assert got == sorted((v.subject_key, v.who, v.answer_key) for v in kept)


def test_repeats_are_the_latest_unless_all_are_wanted() -> None:
    votes = [
        vote("a", "w", when="2024-01-01T00:00:00Z"),
        vote("a", "w", "not-selected", when="2024-01-02T00:00:00Z"),
    ]
    assert panel(votes).counts().tolist() == [[0, 1]]
    both = panel(votes, repeats="all")
    assert both.counts().tolist() == [[1, 1]]
    for refused in (both.matrix, lambda: both.pair("w", "w")):
        with pytest.raises(NotApplicable, match="more than once"):
            refused()


def test_an_answer_of_several_parts_is_taken_whole_or_by_part() -> None:
    def mistake(image: str, severity: str) -> Judgement:
        return Judgement(
            question="mistake",
            subject={"image_id": image, "prediction": "p"},
            answer={"category": "Other", "severity": severity},
            who="w",
        )

    rows = [mistake("a", "Major"), mistake("b", "Borderline")]
    assert panel(rows, part="severity").answers == ("Major", "Minor", "Borderline")
    assert panel(rows).answers == (
        '{"category":"Other","severity":"Borderline"}',
        '{"category":"Other","severity":"Major"}',
    )
    with pytest.raises(UserError, match="no part 'colour'"):
        panel(rows, part="colour")
    with pytest.raises(UserError, match="no part 'severity'"):
        panel([vote("a", "w")], part="severity")


def test_what_makes_no_panel() -> None:
    with pytest.raises(NotApplicable, match="no judgements"):
        panel([])
    with pytest.raises(UserError, match="label, vote"):
        panel([vote("a", "w"), label("a", "w", "correct")])
    with pytest.raises(NotFound, match="nobody"):
        panel([vote("a", "w")]).pair("w", "nobody")
    with pytest.raises(NotApplicable, match="totals"):
        panel([label("a", "mturk-1", "correct", anonymous=True)]).pair("mturk-1", "mturk-1")


@settings(max_examples=30, deadline=None)
@given(busy_votes())
def test_a_panel_straight_from_the_store_is_that_of_its_current_answers(
    tmp_path_factory: pytest.TempPathFactory, votes: list[Judgement]
) -> None:
    with JudgementStore(tmp_path_factory.mktemp("store") / "j.db") as store:
        store.add(votes)
        if not list(store.current()):
            with pytest.raises(NotApplicable, match="no judgements"):
                store.panel("vote")
            return
        assert same(store.panel("vote"), panel(votes))


def test_a_store_gives_panels_by_part_and_test_set_and_knows_totals(tmp_path: Path) -> None:
    mistakes = [
        Judgement(
            question="mistake",
            subject={"image_id": image, "prediction": "p"},
            answer={"category": "Other", "severity": severity},
            who="w",
            testset=testset,
        )
        for image, severity, testset in (
            ("a", "Major", "t"),
            ("b", "Minor", "u"),
            ("c", "Minor", None),
        )
    ]
    total = label("a", "mturk-1", "correct", anonymous=True)
    with JudgementStore(tmp_path / "j.db") as store:
        store.add([*mistakes, total, vote("a", "w", evidence={"anonymous": False})])
        assert same(store.panel("mistake", part="severity"), panel(mistakes, part="severity"))
        assert same(store.panel("mistake", testset="u"), panel(mistakes[1:2]))
        assert store.panel("label").anonymous
        assert not store.panel("vote").anonymous
        store.define(Question(kind="size", subjects=(("image_id",),), answers=("small", "big")))
        store.add([Judgement(question="size", subject={"image_id": "a"}, answer="big", who="w")])
        assert store.panel("size").answers == ("small", "big")


def same(one: Panel, other: Panel) -> bool:
    return (
        (one.question, one.subjects, one.workers, one.answers, one.anonymous)
        == (other.question, other.subjects, other.workers, other.answers, other.anonymous)
        and one.subject.tolist() == other.subject.tolist()
        and one.worker.tolist() == other.worker.tolist()
        and one.answer.tolist() == other.answer.tolist()
    )

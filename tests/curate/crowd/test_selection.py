"""Which candidates are asked about: the published exclusions in their order, counted."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from heldout.core.workspace import Workspace
from heldout.curate.crowd.selection import (
    Candidate,
    PoolJudgements,
    candidates_of,
    select,
    vote_counts,
)
from heldout.curate.crowd.stopping import StoppingRules
from heldout.data.judgements.for_testset import votes_about
from heldout.data.judgements.judgement import Judgement, pair_subject
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool

SPACE = LabelSpace("pets", (Class("cat"), Class("dog"), Class("owl")))
IMAGES = st.lists(st.sampled_from("abcdefghij"), unique=True)


def pool_of(images: dict[str, str]) -> TestSet:
    return make_pool(
        "pets",
        images=image_table({"image_id": list(images)}),
        truths={"original": truth_table(list(images), list(images.values()))},
        label_space=SPACE,
    )


def vote(image: str, label: str, who: str, grid: str = "g1", **other: object) -> Judgement:
    evidence = {"grid": grid, "status": other.pop("status", "Approved")}
    return Judgement(
        question="vote",
        subject={"image_id": image, "class_id": label},
        answer="selected",
        who=who,
        evidence=evidence,
        testset=other.pop("testset", "pets"),  # type: ignore[arg-type]
    )


@given(
    voted=IMAGES,
    unloved=IMAGES,
    blacklisted=IMAGES,
    duplicates=IMAGES,
    controls=IMAGES,
    classes=st.integers(1, 4),
)
def test_the_first_reason_counts(
    voted: list[str],
    unloved: list[str],
    blacklisted: list[str],
    duplicates: list[str],
    controls: list[str],
    classes: int,
) -> None:
    candidates = [
        Candidate(image, ("cat", "dog", "owl")[n % 3]) for n, image in enumerate("abcdefghij")
    ]
    votes = {
        (image, label): (image not in unloved, 3 if image in voted else 2)
        for image, label in candidates
    }
    votes |= {(image, "other"): (9, 9) for image in "abc"}  # of another class: these do not count
    standing = PoolJudgements(votes=votes, blacklisted=blacklisted, duplicates=duplicates)
    asked = select(
        candidates,
        standing,
        votes=3,
        stopping=StoppingRules.read('{"*": "0/2", "owl": "2/2"}', 3),
        excluded={"dog": "too easy"},
        classes=classes,
        controls=controls,
    )
    expected: dict[str, int] = {}
    kept = []
    for image, label in candidates:
        for reason, holds in (
            ("controls", image in controls),
            ("enough_votes", image in voted),
            ("settled", image in unloved and label != "owl"),
            ("blacklisted", image in blacklisted),
            ("near_duplicates_of_references", image in duplicates),
            ("excluded_class: too easy", label == "dog"),
        ):
            if holds:
                expected[reason] = expected.get(reason, 0) + 1
                break
        else:
            kept.append((image, label))
    first = sorted({label for _, label in kept})[:classes]
    if over := [label for _, label in kept if label not in first]:
        expected["over_the_number_of_classes"] = len(over)
    assert list(asked.candidates) == [each for each in kept if each[1] in first]
    assert asked.left_out == expected
    assert asked.votes_saved == expected.get("settled", 0)
    assert len(asked.candidates) + sum(asked.left_out.values()) == len(candidates)


def test_what_people_said_is_read_from_the_judgements(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    images = {"a": "cat", "b": "cat", "c": "dog", "d": "dog", "e": "owl", "f": "owl"}
    pool = pool_of(images)
    assert PoolJudgements.of(pool, workspace) == PoolJudgements(blacklisted=set(), duplicates=set())
    assert not Path(str(workspace.judgements)).exists()  # reading makes no table
    review = {"question": "review", "answer": "blacklisted", "who": "ann"}
    pairs = [("a", "b"), ("c", "train:1"), ("d", "train:2")]
    answers = ["duplicate", "duplicate", "different"]
    said = [
        vote("a", "cat", "w1"),
        vote("a", "cat", "w1", "g2"),  # the same worker in another grid counts again
        vote("a", "cat", "w2", status="Rejected"),
        vote("a", "dog", "w3"),
        vote("b", "cat", "w1", testset="elsewhere"),
        Judgement(subject={"image_id": "e"}, **review),  # type: ignore[arg-type]
        *(
            Judgement(question="duplicate", subject=pair_subject(*pair), answer=answer, who="ann")
            for pair, answer in zip(pairs, answers, strict=True)
        ),
    ]
    random.Random(0).shuffle(said)
    with JudgementStore(workspace.judgements) as store:
        store.add(said)
    standing = PoolJudgements.of(pool, workspace)
    assert standing.votes == {("a", "cat"): (2, 2), ("a", "dog"): (1, 1)}
    assert standing.blacklisted == {"e"}
    assert set(images) & set(standing.duplicates) == {"c"}  # not of another candidate
    anywhere = vote_counts(votes_about([], workspace.judgements, listed=["b"]))
    assert anywhere == {("b", "cat"): (1, 1)}
    asked = select(candidates_of(pool), standing, votes=2)
    assert [image for image, _ in asked.candidates] == ["b", "d", "f"]
    assert asked.left_out == {
        "enough_votes": 1,
        "blacklisted": 1,
        "near_duplicates_of_references": 1,
    }


def test_votes_that_were_all_rejected_count_as_none(tmp_path: Path) -> None:
    pool, workspace = pool_of({"a": "cat"}), Workspace(tmp_path)
    with JudgementStore(workspace.judgements) as store:
        store.add([vote("a", "cat", "ann", status="Rejected")])
    assert PoolJudgements.of(pool, workspace).votes == {}

"""``score --adjust-to``: from votes and predictions of a workspace to records; what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import heldout
from heldout.core.errors import NotApplicable, UserError
from heldout.core.workspace import Workspace
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels import LabelSpace
from heldout.data.testset import (
    Card,
    TestSet,
    image_table,
    make_pool,
    make_testset,
    save,
    truth_table,
)
from heldout.measure.score.selection_adjusted import (
    AdjustedScore,
    HeldOutFrequencies,
    voted_sets,
)
from heldout.models.predictions import Predictions, PredictionStore
from heldout.stats.selection_bias import ESTIMAND, ESTIMATORS, Votes, held_out_votes

SPACE = LabelSpace.from_ids("letters", [f"c{i}" for i in range(10)])
PEOPLE = 10
SHAPES = {"candidates": (300, (2, 1)), "val": (120, (5, 1))}


def tables(name: str, n: int, **more: object) -> dict[str, object]:
    ids = [f"{name}-{i:03d}" for i in range(n)]
    classes = [SPACE.ids[i % len(SPACE)] for i in range(n)]
    return {
        "images": image_table({"image_id": ids, "source": ["made"] * n, **more}),
        "truths": {"original": truth_table(ids, classes)},
        "label_space": SPACE,
    }


def vote(
    testset: TestSet, row: int, person: int, yes: bool, evidence: Mapping[str, object] | None = None
) -> Judgement:
    image = testset.image_ids[row].as_py()
    return Judgement(
        question="vote",
        subject={"image_id": image, "class_id": SPACE.ids[row % len(SPACE)]},
        answer="selected" if yes else "not-selected",
        who=f"person-{person}",
        testset=testset.name,
        evidence=dict(evidence or {}),
    )


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A pool, an original set, ten votes on each image, and two models on the pool."""
    workspace = Workspace(tmp_path)
    rng = np.random.default_rng(0)
    with JudgementStore(workspace.judgements) as store:
        for name, (n, shape) in SHAPES.items():
            more = {"place": [f"p{i % 25}" for i in range(n)]}
            if name == "val":
                card = Card(name=name, label_space=SPACE.name)
                made = make_testset(card, **tables(name, n, **more))
                save(made, workspace.testsets / name)
            else:
                made = make_pool(name, **tables(name, n, **more))
                save(made, workspace.pools / name)
                predict(workspace, made, rng)
            s = rng.beta(*shape, n)
            store.add(
                vote(made, row, person, bool(rng.random() < s[row]))
                for row in range(n)
                for person in range(PEOPLE)
            )
    return workspace


def predict(workspace: Workspace, testset: TestSet, rng: np.random.Generator) -> None:
    labels = np.arange(len(testset)) % len(SPACE)
    store = PredictionStore(workspace.predictions)
    for model, skill in (("oak", 0.8), ("yew", 0.5)):
        wrong = rng.random(len(testset)) > skill
        topk = (labels + wrong)[:, None] + np.arange(5)
        found = Predictions(
            model=model,
            image_ids=testset.image_ids,
            topk=(topk % len(SPACE)).astype(np.int32),
            label_space=SPACE,
            identity={"simulated": model},
        )
        found = replace(found, run=store.owner(testset))
        store.write(found, images_hash=testset.card.images_hash)


def sets_of(place: Workspace) -> tuple[TestSet, TestSet]:
    return heldout.load_testset("candidates", workspace=place), heldout.load_testset(
        "val", workspace=place
    )


def test_records_name_estimand_and_estimator_and_are_the_arithmetic(place: Workspace) -> None:
    found = heldout.verbs.score(
        testsets="candidates", metrics="top1", adjust_to="val", workspace=place
    )
    records = [one for one in found.records if isinstance(one, AdjustedScore)]
    assert [(one.model, one.estimator) for one in records] == [
        (model, name) for model in ("oak", "yew") for name in ESTIMATORS
    ]
    with JudgementStore(place.judgements) as store:
        said = {
            name: np.array(
                [
                    sum(
                        one.answer == "selected"
                        for one in store.stream(question="vote")
                        if one.subject["image_id"] == f"{name}-{row:03d}"
                    )
                    for row in range(5)
                ]
            )
            for name in SHAPES
        }
    pool, original = sets_of(place)
    voted = voted_sets(pool, original, place.judgements)
    np.testing.assert_array_equal(voted.of_pool.votes.selected[:5], said["candidates"])
    np.testing.assert_array_equal(voted.of_original.votes.selected[:5], said["val"])
    store_of = PredictionStore(place.predictions)
    for model in ("oak", "yew"):
        (run,) = store_of.select(pool.card.images_hash, [model], testset=pool.name)
        right = store_of.read(run).topk[:, 0] == np.arange(len(pool)) % len(SPACE)
        for name, estimator in ESTIMATORS.items():
            wanted = estimator(voted.of_original.votes, voted.of_pool.votes, right.astype(float))
            (one,) = (r for r in records if (r.model, r.estimator) == (model, name))
            assert one.value == pytest.approx(wanted.value, abs=1e-12)
            assert (one.low, one.high) == pytest.approx(
                (wanted.interval().low, wanted.interval().high)
            )
            assert (one.n, one.n_original, one.votes) == (300, 120, PEOPLE)
            assert (one.estimand, one.original, one.testset) == (ESTIMAND, "val", "candidates")
    (halves,) = (one for one in found.records if isinstance(one, HeldOutFrequencies))
    wanted_halves = held_out_votes(voted.of_original.votes, voted.of_pool.votes)
    assert halves.drop == pytest.approx(wanted_halves.drop.value)
    # Candidates are worse than originals, so the lucky ones among them stand in for good ones.
    assert halves.low is not None
    assert halves.low > 0
    assert json.loads(found.to_json())[-1]["record"] == "held-out votes"
    assert "at the true selection frequencies of val" in str(found)


def test_a_pool_is_scored_by_its_name_and_sets_in_memory_work(place: Workspace) -> None:
    pool, original = sets_of(place)
    named = heldout.verbs.score(testsets="candidates", metrics="top1", workspace=place)
    assert {one.testset for one in named.scores} == {"candidates"}
    assert not any(isinstance(one, AdjustedScore) for one in named.records)
    given = heldout.verbs.score(
        testsets=[pool], models="oak", metrics="top1", adjust_to=original, workspace=place
    )
    assert sum(isinstance(one, AdjustedScore) for one in given.records) == len(ESTIMATORS)


def test_clusters_are_those_of_both_sets(place: Workspace) -> None:
    pool, original = sets_of(place)
    by_class = voted_sets(pool, original, place.judgements, cluster="class")
    ours, theirs = by_class.of_original.votes.cluster, by_class.of_pool.votes.cluster
    assert ours is not None
    assert theirs is not None
    assert len(np.unique(np.concatenate([ours, theirs]))) == len(SPACE)
    np.testing.assert_array_equal(ours[:10], theirs[:10])
    by_column = voted_sets(pool, original, place.judgements, cluster="place").of_pool.votes
    assert by_column.cluster is not None
    assert len(np.unique(by_column.cluster)) == 25
    scores = [
        heldout.verbs.score(
            testsets="candidates",
            models="oak",
            metrics="top1",
            adjust_to="val",
            cluster=column,
            workspace=place,
        )
        for column in ("class", None)
    ]
    limits = [
        next((r.low, r.high) for r in one.records if isinstance(r, AdjustedScore)) for one in scores
    ]
    assert limits[0] != limits[1]


def test_images_with_fewer_votes_are_left_out_and_said_so(place: Workspace) -> None:
    pool, original = sets_of(place)
    with JudgementStore(place.judgements) as store:
        votes = list(store.stream(question="vote"))
    # Three votes on each of ten images of the pool were rejected, and do not count.
    given = [
        replace(one, evidence={"status": "Rejected"}, judgement_id="")
        if one.testset == "candidates"
        and one.subject["image_id"] < "candidates-010"
        and one.who > "person-6"
        else one
        for one in votes
    ]
    address = place.root / "fewer.db"
    with JudgementStore(address) as store:
        store.add(given)
    voted = voted_sets(pool, original, address)
    assert voted.needed == PEOPLE
    assert len(voted.of_pool.rows) == 290
    assert voted.left_out == (10, 0)
    assert list(voted.lines) == [
        "candidates: 10 images with fewer than 10 votes are left out of the adjusted scores"
    ]
    np.testing.assert_array_equal(voted.of_pool.rows, np.arange(10, 300))


def test_unequal_votes_are_all_used(place: Workspace) -> None:
    pool, original = sets_of(place)
    with JudgementStore(place.judgements) as store:
        store.add(vote(pool, row, person, True) for row in range(40) for person in range(10, 15))
    voted = voted_sets(pool, original, place.judgements)
    assert voted.needed == PEOPLE
    assert voted.of_pool.votes.n.tolist() == [15] * 40 + [10] * 260
    assert isinstance(voted.of_pool.votes, Votes)


def test_votes_that_stopped_early_are_refused(place: Workspace) -> None:
    pool, original = sets_of(place)
    with JudgementStore(place.judgements) as store:
        store.add([vote(pool, 3, 99, True, {"settled": True})])
    with pytest.raises(NotApplicable, match="1 images have fewer votes because their fate"):
        voted_sets(pool, original, place.judgements)


def test_what_cannot_be_adjusted_is_refused(place: Workspace) -> None:
    def score(**asked: object) -> object:
        return heldout.verbs.score(workspace=place, **asked)

    with pytest.raises(UserError, match="no pool beside val"):
        score(testsets="val", adjust_to="val")
    with pytest.raises(UserError, match="adjust_to"):
        score(testsets="val", pooled="candidates", adjust_to="val")
    with pytest.raises(NotApplicable, match="mean_per_class cannot be adjusted"):
        score(testsets="candidates", metrics="mean_per_class", adjust_to="val")
    silent = make_testset(Card(name="silent", label_space=SPACE.name), **tables("silent", 40))
    with pytest.raises(NotApplicable, match="no image of silent has votes"):
        score(testsets="candidates", metrics="top1", adjust_to=silent)
    pool, original = sets_of(place)
    with pytest.raises(NotApplicable, match="no votes on images of candidates and val"):
        voted_sets(pool, original, place.root / "nothing.db")


def test_few_clusters_have_no_interval_and_say_why(place: Workspace) -> None:
    few = LabelSpace.from_ids("two", ["x", "y"])
    made = {}
    for name, n in (("few", 120), ("old", 60)):
        ids = [f"{name}-{i}" for i in range(n)]
        truth = truth_table(ids, [few.ids[i % 2] for i in range(n)])
        parts = {"images": image_table({"image_id": ids}), "truths": {"original": truth}}
        made[name] = make_testset(Card(name=name, label_space="two"), label_space=few, **parts)
    with JudgementStore(place.judgements) as store:
        for name, testset in made.items():
            store.add(
                Judgement(
                    question="vote",
                    subject={"image_id": image, "class_id": few.ids[row % 2]},
                    answer="selected" if (row + person) % 3 else "not-selected",
                    who=f"person-{person}",
                    testset=name,
                )
                for row, image in enumerate(testset.image_ids.to_pylist())
                for person in range(4)
            )
    voted = voted_sets(made["few"], made["old"], place.judgements, cluster="class")
    assert voted.few == "2 clusters (class) are too few, 8 are needed"


def test_frequency_is_a_column_and_revisions_take_predictions_of_the_pool(place: Workspace) -> None:
    drawn = [
        heldout.verbs.build_replicate("candidates", sampler=sampler, workspace=place)
        for sampler in ("top", "annotated")
    ]
    names = [one.name for one in drawn]
    revisions = heldout.verbs.score(testsets=names, pooled="candidates", workspace=place)
    assert {(one.testset, one.model) for one in revisions.scores} == {
        (name, model) for name in names for model in ("oak", "yew")
    }
    assert {one.slice for one in revisions.scores} == {"all"}
    predict(place, drawn[1], np.random.default_rng(1))
    by = heldout.verbs.score(
        testsets=names[1],
        metrics="top1",
        by="frequency@0.2,0.4,0.6,0.8",
        curves=True,
        workspace=place,
    )
    bins = {one.slice: one.n for one in by.scores if one.slice != "all" and one.model == "oak"}
    shares = np.array(drawn[1].images["frequency"].to_pylist())
    counted = np.bincount(np.digitize(shares, [0.2, 0.4, 0.6, 0.8]))
    assert sorted(bins.values()) == sorted(counted[counted > 0].tolist())
    assert any(one.columns.startswith("frequency") for one in by.summaries)

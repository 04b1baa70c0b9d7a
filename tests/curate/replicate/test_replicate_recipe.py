"""The recipe of replicated sets: through its protocol, and what its card and documents say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.build import build_recipe
from heldout.curate.crowd.stopping import StoppingRule
from heldout.curate.recipe import RecipeInput
from heldout.curate.registry import get_recipe
from heldout.curate.replicate.recipe import (
    Drawn,
    draw,
    exclusions_source,
    notes,
    previous_source,
    recipe,
    votes_source,
)
from heldout.curate.replicate.requests import ReplicateParameters
from heldout.data.judgements.judgement import Judgement
from heldout.data.published.imagenetv2_revisions import ClassReview, read_reviews, read_revision
from heldout.data.testset import TestSet
from heldout.data.testset.verify import verify
from heldout.stats.intervals import wilson
from heldout.testing.recipe_conformance import check_recipe
from tests.curate.replicate.replicate_examples import (
    blacklisted,
    duplicate,
    make_images,
    make_sources,
    search_within,
    votes_for,
)

EXAMPLES = "tests.curate.replicate.replicate_examples"


@pytest.mark.parametrize(
    ("sources", "parameters"),
    [
        ("make_sources", {"sampler": "matched", "per_class": 6, "upward": True}),
        ("required_sources", {"sampler": "threshold", "per_class": 4, "threshold": 0.6}),
        ("make_sources", {"sampler": "top", "per_class": 5, "legacy": True, "photo": "shot"}),
        ("make_sources", {"sampler": "annotated", "per_class": 5, "stop": "no=2"}),
    ],
)
def test_conformance(tmp_path: Path, sources: str, parameters: Mapping[str, Any]) -> None:
    check_recipe(
        "heldout.curate.replicate.recipe:recipe",
        f"{EXAMPLES}:{sources}",
        scratch=tmp_path,
        parameters=parameters,
    )


def test_it_is_built_in() -> None:
    assert get_recipe("replicate") is recipe


def build(tmp_path: Path, sources: Mapping[str, Any], **values: Any) -> tuple[TestSet, Drawn]:
    return build_recipe(
        recipe,
        sources,
        folder=tmp_path / "testsets" / "new",
        runs=tmp_path / "runs",
        parameters=recipe.read(values),
        seed=3,
    )


def small(
    selected: Mapping[str, int],
    *,
    said: tuple[Judgement, ...] = (),
    searches: tuple[Any, ...] = (),
    people: int = 10,
) -> dict[str, Any]:
    """A pool of 30 images, three classes in turn, of which some were voted on."""
    pool = make_images("pool", 30, "i")
    return {
        "pool": pool,
        "votes": votes_source(votes_for(pool, selected, people=people)),
        "exclusions": exclusions_source(said, searches),
    }


def reasons(drawn: Drawn) -> dict[str, str]:
    return {i: reason for one in drawn.sample.classes for i, reason in one.excluded.items()}


def test_the_first_reason_counts_and_the_counts_add_up(tmp_path: Path) -> None:
    pool = make_images("pool", 30, "i")
    sources = small(
        {"i000": 9, "i003": 8, "i006": 3, "i009": 10, "i012": 7, "i015": 9, "i018": 2},
        said=(
            blacklisted("i003"),
            blacklisted("i018"),
            duplicate("i000", "i009"),
            duplicate("i006", "i015"),
        ),
        searches=(search_within(pool, {"i012": [("i021", 0.2)]}, left_out=["i027"]),),
    )
    made, drawn = build(tmp_path, sources)
    found = reasons(drawn)
    assert {i: found.get(i) for i in ("i000", "i003", "i006", "i012", "i018", "i024")} == {
        "i000": "near_duplicate",  # i009 was selected more often
        "i003": "blacklisted",
        "i006": "below_threshold",  # and a near duplicate
        "i012": "unreviewed",  # nobody decided about i021
        "i018": "blacklisted",  # and below the threshold
        "i024": "few_votes",
    }
    assert made.image_ids.to_pylist() == ["i009", "i015"]
    counts = made.card.counts
    assert [
        counts[name]
        for name in (
            "candidates",
            "not_blacklisted",
            "with_votes",
            "at_threshold",
            "not_near_duplicate",
            "eligible",
            "images",
        )
    ] == [30, 28, 5, 4, 3, 2, 2]
    rows = list(csv.DictReader(io.StringIO((made.folder / "excluded.csv").read_text())))
    assert {row["image_id"]: row["reason"] for row in rows} == found and len(rows) == 28
    revision = read_revision(made.folder / "revision.json")
    assert dict(revision.image_filenames) == {"i009": "a", "i015": "a"}
    assert revision.is_valid is False
    assert revision.near_duplicate_review_targets == {"l2": 1.0}
    assert verify(made.folder).ok


def test_frequencies_are_columns_with_their_interval(tmp_path: Path) -> None:
    made, drawn = build(tmp_path, small({"i000": 9, "i001": 7, "i002": 10}))
    rows = {row["image_id"]: row for row in made.images.to_pylist()}
    assert {image: (row["frequency"], row["votes"]) for image, row in rows.items()} == {
        "i000": (0.9, 10),
        "i001": (0.7, 10),
        "i002": (1.0, 10),
    }
    for image, row in rows.items():
        said = drawn.frequencies[image, "abc"[int(image[1:]) % 3]]
        assert (row["frequency_low"], row["frequency_high"]) == (said.low, said.high)
        assert row["frequency_low"] < row["frequency"]
    assert {made.card.columns[name].kind for name in ("frequency", "votes")} == {"ordered"}
    random, _ = build(tmp_path / "random", small({"i000": 9}), sampler="random")
    given = {r["image_id"]: (r["frequency"], r["votes"]) for r in random.images.to_pylist()}
    assert len(given) == 30 and given["i000"] == (0.9, 10) and given["i005"] == (None, 0)


@pytest.mark.parametrize(("people", "needed"), [(3, 3), (10, 10), (14, 10)])
def test_votes_needed_are_ten_or_all_people(people: int, needed: int) -> None:
    sources = small(dict.fromkeys(["i000", "i001"], people), people=people)
    drawn = draw(sources, ReplicateParameters(), seed=0)
    assert (drawn.votes, drawn.people) == (needed, people)
    assert len(drawn.sample.rows) == 2
    with pytest.raises(NotApplicable, match=f"{people} people voted"):
        draw(sources, ReplicateParameters(votes=people + 1), seed=0)


def test_nobody_voted() -> None:
    with pytest.raises(NotApplicable, match="nobody has voted"):
        draw(small({}), ReplicateParameters(), seed=0)
    assert len(draw(small({}), ReplicateParameters(sampler="random"), seed=0).sample.rows) == 30


def test_settled_images_need_no_more_votes(tmp_path: Path) -> None:
    pool = make_images("pool", 30, "i")
    votes = [
        *votes_for(pool, {"i000": 5, "i002": 3}, people=5),
        *votes_for(pool, {"i003": 4, "i001": 2}, people=4),
        *votes_for(pool, {"i004": 3, "i006": 0}, people=3),
    ]
    sources = {**small({}), "votes": votes_source(votes)}
    assert [image for image, _ in draw(sources, ReplicateParameters(), seed=0).sample.rows] == [
        "i000"
    ]
    # Four of five people are as many as a share of 0.7 needs.
    made, drawn = build(tmp_path, sources, stop="threshold=0.7")
    found = reasons(drawn)
    assert {i: found.get(i) for i in ("i001", "i002", "i003", "i004", "i006", "i009")} == {
        "i001": "below_threshold",
        "i002": "below_threshold",
        "i003": None,
        "i004": "few_votes",
        "i006": "below_threshold",
        "i009": "few_votes",
    }
    assert any("stopped by a rule (1 of 2 have fewer votes)" in note for note in made.card.notes)
    assert made.card.recipe["parameters"]["stop"] == "threshold=0.7"
    own = ReplicateParameters(stop='{"a": "4/4", "*": "2/4"}', per_class=9)
    assert {image for image, _ in draw(sources, own, seed=0).sample.rows} == {"i000", "i003"}


def test_frequencies_after_stopping_are_without_its_bias(tmp_path: Path) -> None:
    pool = make_images("pool", 30, "i")
    votes = [
        *votes_for(pool, {"i000": 7}, people=9),  # asking stopped at the second "no"
        *votes_for(pool, {"i001": 9, "i003": 7}, people=10),  # and these ten were asked at once
    ]
    sources = {**small({}), "votes": votes_source(votes)}
    made, _ = build(tmp_path, sources, stop="no=2")
    rows = {row["image_id"]: row for row in made.images.to_pylist()}
    assert {image: (row["frequency"], row["votes"]) for image, row in rows.items()} == {
        "i000": (7 / 8, 9),  # of the eight votes before the last one
        "i001": (0.9, 10),
        "i003": (0.7, 10),
    }
    wanted = StoppingRule.read("no=2", 10).interval((2, 7))
    assert (rows["i000"]["frequency_low"], rows["i000"]["frequency_high"]) == wanted
    fixed = wilson(7, 10)
    assert (rows["i003"]["frequency_low"], rows["i003"]["frequency_high"]) == (
        fixed.low,
        fixed.high,
    )


def test_bins_of_the_original_set_count_its_settled_images() -> None:
    pool, val = make_images("pool", 30, "i"), make_images("val", 30, "val")
    votes = [
        *votes_for(pool, {"i000": 5, "i003": 4}, people=5),
        *votes_for(val, {"val000": 0, "val003": 0, "val006": 0}, people=4),
    ]
    sources = {**small({}), "votes": votes_source(votes), "originals": val}
    for stop, originals in (("matched", 0), ("0/4", 3)):
        chosen = ReplicateParameters(sampler="matched", stop=stop)
        if not originals:
            with pytest.raises(NotApplicable, match="no image of val has 5 votes"):
                draw(sources, chosen, seed=0)
            continue
        drawn = draw(sources, chosen, seed=0)
        assert drawn.sample.classes[0].bins[0].originals == originals


@given(st.integers(0, 100), st.integers(2, 7), st.sampled_from(["threshold", "matched"]))
@settings(max_examples=25, deadline=None)
def test_a_certain_rule_gives_the_set_that_all_votes_give(
    seed: int, people: int, sampler: Any
) -> None:
    """People are asked one after the other about what the rule leaves open, against all about all."""
    stop = "matched" if sampler == "matched" else "threshold=0.7"
    pool, val = make_images("pool", 30, "i"), make_images("val", 12, "val")
    rng = np.random.default_rng(seed)
    everything = votes_for(pool, dict.fromkeys(pool.image_ids.to_pylist(), people), people=people)
    said = {
        vote.judgement_id: replace(
            vote, answer="selected" if rng.random() < 0.75 else "not-selected", judgement_id=""
        )
        for vote in everything
    }
    originals = votes_for(val, dict.fromkeys(val.image_ids.to_pylist(), people - 1), people=people)
    rule = StoppingRule.read(stop, people)
    given_votes: dict[str, list[Judgement]] = {}
    for vote in sorted(said.values(), key=lambda one: one.who):
        mine = given_votes.setdefault(vote.subject["image_id"], [])
        selected = sum(one.answer == "selected" for one in mine)
        if not mine or not rule.settled((len(mine) - selected, selected)):
            mine.append(vote)
    fewer = [vote for mine in given_votes.values() for vote in mine]
    sources = {**small({}), "originals": val}
    rows = [
        draw({**sources, "votes": votes_source([*votes, *originals])},
             ReplicateParameters(sampler=sampler, stop=chosen), seed=seed).sample.rows
        for votes, chosen in ((fewer, stop), (list(said.values()), None))
    ]  # fmt: skip
    assert rows[0] == rows[1]
    assert len(fewer) <= len(everything)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"stop": "threshold=0.6"}, "decides about frequencies of 0.6"),
        ({"stop": "threshold=0.7", "thresholds": {"a": 0.6}}, "decides about frequencies of 0.7"),
        ({"stop": '{"a": "threshold=0.6"}'}, "decides about frequencies of 0.6"),
        ({"stop": "matched"}, "sampler threshold"),
        ({"stop": "matched", "sampler": "top"}, "sampler top"),
        ({"stop": "threshold=0.7", "sampler": "matched"}, "sampler matched"),
        ({"stop": "no=2", "sampler": "random"}, "stop has no use"),
        ({"stop": "maybe"}, "stop is 'maybe'"),
    ],
)
def test_rules_that_do_not_fit_the_sampler_are_refused(
    parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        recipe.read(parameters)


def test_rules_that_fit_the_sampler() -> None:
    own = {"a": 0.6}
    for parameters in (
        {"stop": "threshold=0.6", "threshold": 0.6},
        {"stop": '{"a": "threshold=0.6", "*": "threshold=0.7"}', "thresholds": own},
        {"stop": "threshold=0.7,sure=0.9", "sampler": "annotated"},
        {"stop": "width=0.4", "sampler": "top"},
    ):
        assert recipe.read(parameters).stop == parameters["stop"]


def test_rejected_votes_do_not_count() -> None:
    pool = make_images("pool", 30, "i")
    votes = [
        *votes_for(pool, {"i000": 4}, people=4, evidence={"grid": "g1"}),
        *votes_for(pool, {"i002": 4}, people=4, evidence={"status": "Rejected"}),
    ]
    sources = {**small({}), "votes": votes_source(votes)}
    drawn = draw(sources, ReplicateParameters(), seed=0)
    assert [image for image, _ in drawn.sample.rows] == ["i000"]


def test_the_card_says_what_was_done_about_near_duplicates(tmp_path: Path) -> None:
    none, _ = build(tmp_path / "none", small({"i000": 9}))
    assert any("not searched for (0 pairs judged)" in note for note in none.card.notes)
    pool = make_images("pool", 30, "i")
    searched = small({"i000": 9}, searches=(search_within(pool, {}),))
    made, _ = build(tmp_path / "some", searched)
    assert any("searched for by l2 (down to 1)" in note for note in made.card.notes)
    # A search without a threshold ranks pairs: only images that it has not seen are unreviewed.
    near = {"i000": [("i003", 0.1)]}
    ranked = search_within(pool, near, threshold=None)
    drawn = draw(small({"i000": 9}, searches=(ranked,)), ReplicateParameters(), seed=0)
    assert "i000" not in reasons(drawn)
    assert any("classes are short: a 1 of 10" in note for note in made.card.notes)


def test_an_override_stays_and_photos_hang_together() -> None:
    keep = Judgement(question="duplicate", subject={"image_id": "i000"}, answer="keep", who="ann")
    sources = small({"i000": 8, "i003": 9}, said=(duplicate("i000", "i003"), keep))
    drawn = draw(sources, ReplicateParameters(), seed=0)
    assert [image for image, _ in drawn.sample.rows] == ["i000"]
    sources = small({"i000": 8, "i001": 9})  # both of one photo, in two classes
    assert len(draw(sources, ReplicateParameters(), seed=0).sample.rows) == 2
    drawn = draw(sources, ReplicateParameters(photo="shot"), seed=0)
    assert [image for image, _ in drawn.sample.rows] == ["i000"]  # a tie: the first class


def test_duplicates_of_images_of_other_sets_do_not_stay() -> None:
    train, val, gone = "n01440764_9.JPEG", "val004", "some-other-candidate"
    pairs = [("i000", train), ("i001", val), ("i002", gone), ("i000", "i003"), ("i006", "i009")]
    sources = small(dict.fromkeys(["i000", "i001", "i002", "i003", "i006", "i009"], 9),
                    said=tuple(duplicate(*pair) for pair in pairs))  # fmt: skip
    sources["originals"] = make_images("val", 30, "val")
    drawn = draw(sources, ReplicateParameters(), seed=0)
    assert sorted(image for image, _ in drawn.sample.rows) == ["i002", "i009"]
    # Without the original set nothing says that its image is not another candidate.
    del sources["originals"]
    drawn = draw(sources, ReplicateParameters(), seed=0)
    assert sorted(image for image, _ in drawn.sample.rows) == ["i001", "i002", "i009"]


def test_a_revision_keeps_images_and_reviews(tmp_path: Path) -> None:
    sources = make_sources()
    made, drawn = build(tmp_path, sources, sampler="annotated", per_class=20, votes=2)
    before = dict(sources["previous"].value.rows)
    assert set(before) - {"gone"} <= set(made.image_ids.to_pylist())
    assert [one.gone for one in drawn.sample.classes] == [(), (), ("gone",)]
    revision = json.loads((made.folder / "revision.json").read_text())
    assert revision["starting_from"] == "before.json"
    assert "3 of 4 images of before.json stay (1 not in the pool)" in made.card.notes
    reviews = read_reviews(made.folder / "review.json")
    assert not any(review.reviewed for review in reviews.values()), "class a has other images"
    assert set(made.images["class_reviewed"].to_pylist()) == {False}
    assert [p["relation"] for p in made.card.parents] == list(recipe.roles)


def test_reviews_hold_where_images_are_the_same(tmp_path: Path) -> None:
    sources = make_sources()
    first, _ = build(tmp_path / "1", sources, sampler="annotated", per_class=2, votes=2)
    rows = read_revision(first.folder / "revision.json").image_filenames
    marks = {"a": ClassReview(True), "b": ClassReview(True, True), "c": ClassReview(False)}
    sources["previous"] = previous_source(rows, name="new", file="new.json", reviews=marks)
    again, _ = build(tmp_path / "2", sources, sampler="annotated", per_class=2, votes=2)
    assert again.image_ids.to_pylist() == first.image_ids.to_pylist()
    found = read_reviews(again.folder / "review.json")
    assert [found[label] for label in "abc"] == [ClassReview(True), ClassReview(), ClassReview()]


def test_why_images_of_the_revision_before_do_not_stay() -> None:
    sources = small(dict.fromkeys(["i000", "i003", "i006"], 9), said=(blacklisted("i003"),))
    rows = [(image, "a") for image in ("i000", "i003", "i006", "i009", "i012", "elsewhere")]
    sources["previous"] = previous_source(rows, name="before", file="before.json")
    drawn = draw(sources, ReplicateParameters(per_class=1), seed=0)
    said = notes(drawn, ReplicateParameters(per_class=1))
    wanted = "1 of 6 images of before.json stay (1 blacklisted, 2 few votes, 1 not drawn, 1 not in the pool)"
    assert wanted in said


def test_refused(tmp_path: Path) -> None:
    sources = make_sources()
    with pytest.raises(UserError, match="original set"):
        draw(
            {role: sources[role] for role in ("pool", "votes", "exclusions")},
            recipe.read({"sampler": "matched"}),
            seed=0,
        )
    unvoted = {**small({"i000": 9}), "originals": make_images("val", 30, "val")}
    with pytest.raises(NotApplicable, match="no image of val has 10 votes"):
        draw(unvoted, recipe.read({"sampler": "matched"}), seed=0)
    with pytest.raises(UserError, match="no candidate is of class 'z'"):
        draw(sources, ReplicateParameters(thresholds={"z": 0.5}), seed=0)
    with pytest.raises(UserError, match="no column 'nowhere'"):
        draw(sources, ReplicateParameters(photo="nowhere"), seed=0)
    with pytest.raises(NotApplicable, match=r"no candidate .* may be drawn: 90 candidates"):
        build(
            tmp_path,
            {**sources, "votes": votes_source(votes_for(sources["pool"], {"image000": 0}))},
        )
    with pytest.raises(UserError, match="votes_source"):
        draw({**sources, "votes": RecipeInput("x", "0", 5)}, ReplicateParameters(), seed=0)
    with pytest.raises(UserError, match="was given"):
        build_recipe(recipe, sources["pool"], folder=tmp_path / "x", runs=tmp_path)
    for wrong in (
        {"sampler": "top", "threshold": 0.5},
        {"upward": True},
        {"sampler": "random", "votes": 3},
        {"thresholds": {"a": 1.5}},
    ):
        with pytest.raises(UserError):
            recipe.read(wrong)

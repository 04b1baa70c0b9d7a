"""The recipe of hard images: through its protocol, against plain loops, and its rule case by case."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.curate.build import run_recipe
from heldout.curate.hard import guesses_source, judged, recipe
from heldout.curate.registry import get_recipe
from heldout.curate.requests import HardParameters
from heldout.data.testset import TestSet
from heldout.testing.recipe_conformance import check_recipe
from tests.curate.hard.hard_examples import SPACE, four_images, make_sources, peers, verdict

A, B, C, D = range(4)


@pytest.mark.parametrize(
    "parameters",
    [
        {"wrong": 2, "truth": "multilabel"},
        {
            "wrong": 1,
            "major": 1,
            "people": 2,
            "rule": "unanimous",
            "truth": "original",
        },
    ],
)
def test_the_recipe_conforms(parameters: dict[str, Any], tmp_path: Path) -> None:
    check_recipe(
        "heldout.curate.hard:recipe",
        "hard.hard_examples:make_sources",
        parameters=parameters,
        scratch=tmp_path / "builds",
    )


def test_it_is_known_by_name() -> None:
    assert get_recipe("hard") is recipe


def build(tmp_path: Path, sources: Mapping[str, Any], **parameters: Any) -> TestSet:
    return run_recipe(
        recipe,
        sources,
        folder=tmp_path / "set",
        runs=tmp_path / "runs",
        parameters=HardParameters(**parameters),
    )


def test_a_set_says_by_which_rule_it_was_made(tmp_path: Path) -> None:
    made = build(tmp_path, make_sources(), wrong=2, truth="multilabel", people=2)
    card = made.card
    assert card.recipe["name"] == "hard" and card.recipe["parameters"]["wrong"] == 2
    assert [parent["relation"] for parent in card.parents] == ["pool", "predictions", "judgements"]
    assert card.default_truth == "reviewed" and list(card.truths) == ["reviewed", "original"]
    where = card.truths["reviewed"]
    assert where["kind"] == "multilabel" and where["metrics"] == ["accepted"]
    assert where["revises"] == "multilabel" and where["rule"] == "majority"
    assert "at least 2 of 3 models wrong (m0, m1, m2)" in card.notes[0]
    assert card.counts["pool"] >= card.counts["unproblematic"] >= card.counts["missed"]
    assert card.counts["missed"] >= card.counts["reviewed"] >= card.counts["images"] == len(made)
    assert card.columns["models_wrong"].kind == "ordered"
    assert set(made.images["models_wrong"].to_pylist()) <= {2, 3}
    kinds = {
        row["value"] for row in made.memberships.to_pylist() if row["column"] == "mistake_category"
    }
    assert kinds == {"Other"}
    assert "light" in made.images.column_names and card.citation == "Somebody: Letters"


@settings(max_examples=40)
@given(
    st.integers(0, 50),
    st.integers(1, 3),
    st.sampled_from([None, 1, 2]),
    st.integers(1, 2),
)
def test_images_are_those_that_loops_find(
    seed: int, wrong: int, major: int | None, people: int
) -> None:
    sources = make_sources(24, seed)
    parameters = HardParameters(wrong=wrong, major=major, people=people, truth="multilabel")
    found = recipe.plan(sources, parameters)
    assert list(found.images) == _loops(sources, wrong, wrong if major is None else major, people)


def _loops(sources: Mapping[str, Any], wrong: int, major: int, people: int) -> list[str]:
    labels: dict[tuple[str, str], dict[str, str]] = {}
    severities: dict[tuple[str, str], dict[str, str]] = {}
    for j in sources["judgements"].value:
        if j.question == "label":
            labels.setdefault((j.subject["image_id"], j.subject["class_id"]), {})[j.who] = j.answer
        else:
            severity = "Minor" if j.answer["severity"] == "Borderline" else j.answer["severity"]
            key = (j.subject["image_id"], j.subject["prediction"])
            severities.setdefault(key, {})[j.who] = severity
    hard = []
    guesses = sources["predictions"].value
    for row in sources["pool"].truths["multilabel"].to_pylist():
        image = row["image_id"]
        if row["problematic"]:
            continue
        at = guesses.image_ids.index(image)
        errors = [
            g
            for g in guesses.topk[at, :, 0].tolist()
            if g < 0 or SPACE.ids[g] not in row["correct"]
        ]
        if len(errors) < wrong:
            continue
        says = [SPACE.ids[g] for g in errors if g >= 0]

        def ruled(label: str, image: str = image) -> bool:
            return len(labels.get((image, label), {})) >= people

        if not all(ruled(label) or label in row["wrong"] for label in says):
            continue
        votes = [
            list(severities.get((image, label), {}).values()) for label in says if ruled(label)
        ]
        if sum(2 * v.count("Major") > len(v) for v in votes if v) >= major:
            hard.append(image)
    return hard


def test_a_prediction_that_the_panel_finds_right_is_no_mistake() -> None:
    said = [*verdict("ann", "i0", "b", "Major"), *verdict("ann", "i1", "b", None)]
    sources = four_images([[B, B], [B, B]], said)
    assert recipe.plan(sources, HardParameters()).images == ("i0",)


def test_every_label_must_be_reviewed() -> None:
    said = [*verdict("ann", "i0", "b", "Major"), *verdict("ann", "i1", "b", "Major")]
    sources = four_images([[B, B, C], [B, B, C]], said, wrong=[[], ["c"]])
    found = recipe.plan(sources, HardParameters(major=2))
    assert found.images == ("i1",), "reviewers of the truth called c wrong for i1, nobody for i0"
    assert found.waiting == ("i0",)


def test_models_count_not_predictions() -> None:
    said = [*verdict("ann", "i0", "b", "Major"), *verdict("ann", "i0", "c", "Minor")]
    sources = four_images([[B, B, C]], said)
    assert recipe.plan(sources, HardParameters(major=2)).images == ("i0",)
    assert recipe.plan(sources, HardParameters(major=3)).images == ()
    assert recipe.plan(sources, HardParameters(wrong=2)).images == ("i0",)


def test_no_output_is_wrong_and_cannot_be_major() -> None:
    said = verdict("ann", "i0", "b", "Major")
    sources = four_images([[B, -1]], said)
    assert recipe.plan(sources, HardParameters(major=1)).images == ("i0",)
    assert recipe.plan(sources, HardParameters()).images == ()


def test_reviewers_without_agreement_say_nothing() -> None:
    said = [*verdict("ann", "i0", "b", "Major"), *verdict("bob", "i0", "b", "Minor")]
    sources = four_images([[B]], said)
    assert recipe.plan(sources, HardParameters()).images == ()


def test_what_cannot_be_built_is_refused(tmp_path: Path) -> None:
    sources = four_images([[B, B]], verdict("ann", "i0", "b", "Minor"))
    with pytest.raises(
        NotApplicable, match="no image of four is hard by this rule: 1 unproblematic"
    ):
        build(tmp_path, sources)
    with pytest.raises(NotApplicable, match="nobody has judged a mistake on four"):
        build(tmp_path, four_images([[B, B]], []))
    with pytest.raises(NotApplicable, match="no mistake on four was judged by 2 people or more"):
        build(tmp_path, sources, people=2)
    with pytest.raises(UserError, match="3 of 2 models wrong"):
        build(tmp_path, sources, wrong=3)
    with pytest.raises(UserError, match="wrong is 0"):
        recipe.read({"wrong": 0})
    with pytest.raises(UserError, match="people is 0"):
        recipe.read({"people": 0})
    few = guesses_source(peers((), ("m0", "m1"), np.zeros((0, 2))))
    with pytest.raises(MismatchError, match="the predictions lack image 'i0'"):
        build(tmp_path, {**sources, "predictions": few})
    with pytest.raises(UserError, match="first guesses and judgements"):
        build(tmp_path, {**sources, "judgements": sources["pool"]})


def test_sources_hash_content_and_not_order() -> None:
    ids, models, guesses = ("x", "y"), ("m", "n"), np.array([[A, B], [C, D]])
    found = guesses_source(peers(ids, models, guesses)).content_hash
    turned = peers(ids[::-1], models[::-1], guesses[::-1, ::-1])
    assert guesses_source(turned).content_hash == found
    assert guesses_source(peers(ids, models, guesses[::-1])).content_hash != found
    said = [*verdict("ann", "x", "b", "Major"), *verdict("bob", "y", "b", "Minor")]
    assert judged(said, ids).content_hash == judged(said[::-1], ids).content_hash
    assert judged(said[1:], ids).content_hash != judged(said, ids).content_hash


def test_judgements_of_a_set() -> None:
    said = [*verdict("ann", "i000", "b", "Major"), *verdict("ann", "elsewhere", "b", None)]
    assert len(judged(said + said, ["i000"])) == 2

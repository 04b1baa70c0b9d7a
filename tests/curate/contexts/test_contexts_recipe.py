"""The recipe through its protocol, and what a set says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.errors import LabelError, UserError
from heldout.curate.build import run_recipe
from heldout.curate.contexts.describe import (
    describe_subsets,
    unique_subsets,
)
from heldout.curate.contexts.graph import meta_graph
from heldout.curate.contexts.recipe import recipe
from heldout.curate.contexts.requests import ContextsParameters
from heldout.curate.contexts.subsets import find_candidates, read_subsets
from heldout.curate.recipe import RecipeInput
from heldout.curate.registry import get_recipe
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.published.metashift import split_subset_name
from heldout.stats.intervals import wilson
from heldout.stats.multiple import simultaneous_level
from heldout.testing.recipe_conformance import check_recipe
from tests.curate.contexts.contexts_examples import (
    make_sources,
    pool_of_words,
    random_shown,
    slow_pairs,
    subsets_from,
)

SMALL: dict[str, Any] = {"minimum": 8, "more_than": 2}


def build(tmp_path: Path, pool: Any = None, *, seed: int = 0, **parameters: Any) -> Any:
    return run_recipe(
        recipe,
        pool if pool is not None else make_sources(),
        folder=tmp_path / "set",
        runs=tmp_path / "runs",
        parameters=ContextsParameters(**{**SMALL, **parameters}),
        seed=seed,
    )


@pytest.mark.parametrize(
    "parameters",
    [
        SMALL,
        {
            **SMALL,
            "context_kinds": ["object"],
            "communities": "louvain",
            "pairs": ["cat+dog"],
            "hierarchy": ["cat<animal", "dog<animal"],
            "roll_up": True,
        },
    ],
)
def test_the_recipe_conforms(parameters: dict[str, Any], tmp_path: Path) -> None:
    check_recipe(
        "heldout.curate.contexts.recipe:recipe",
        "contexts.contexts_examples:make_sources",
        parameters=parameters,
        scratch=tmp_path / "builds",
    )


def test_it_is_known_by_name() -> None:
    assert get_recipe("contexts") is recipe


def test_a_set_holds_subsets_classes_and_communities(tmp_path: Path) -> None:
    shown = random_shown(3, 120, "cat dog sofa bed car tree grass", most=4)
    testset = build(tmp_path, pool_of_words(shown))
    rows = testset.memberships.to_pylist()
    found: dict[str, set[str]] = {}
    for row in rows:
        if row["column"] == "subset":
            found.setdefault(row["value"], set()).add(row["image_id"])
    large = {name: ids for name, ids in slow_pairs(shown).items() if len(ids) >= 8}
    assert found == large  # with so few words, every class has enough subsets
    truth = {(r["image_id"], r["class_id"]) for r in testset.truth().to_pylist()}
    assert truth == {(image, name.split("(")[0]) for name, ids in large.items() for image in ids}
    assert testset.label_space.ids == tuple(sorted({name.split("(")[0] for name in large}))
    values = json.loads((tmp_path / "set" / "values.json").read_text())["columns"]
    assert set(values["subset"]) == set(found)
    images_of: dict[str, set[str]] = {}
    for row in rows:
        if row["column"] == "community":
            images_of.setdefault(row["value"], set()).add(row["image_id"])
    for title, known in values["community"].items():
        expected = set().union(*(found[name] for name in known["subsets"]))
        assert images_of[title] == expected
        assert known["images"] == len(expected)
        number = int(title.split("#")[1].split()[0])
        assert {values["subset"][name]["community"] for name in known["subsets"]} == {number}
    assert sorted(n for c in values["community"].values() for n in c["subsets"]) == sorted(found)


def test_the_card_says_what_was_done(tmp_path: Path) -> None:
    testset = build(tmp_path, pairs=("cat+dog",), subjects=("cat", "dog"), more_than=0, minimum=2)
    card = testset.card
    assert card.recipe["parameters"]["pairs"] == ["cat+dog"]
    assert list(card.counts) == [
        "pool", "with_context", "unambiguous", "at_minimum", "images", "classes",
    ]  # fmt: skip
    assert card.counts["with_context"] > card.counts["unambiguous"]
    assert "candidate subsets of 2 subjects" in card.notes[0]
    assert card.columns["subset"].multi
    counts = json.loads((tmp_path / "set" / "statistics.json").read_text())["counts"]
    assert counts["images_kept"] == len(testset)


def test_general_memberships_are_kept_for_slicing(tmp_path: Path) -> None:
    testset = build(tmp_path)
    columns = set(testset.memberships["column"].to_pylist())
    assert columns == {"subset", "community", "general"}


def test_options_of_the_reader_are_in_the_card(tmp_path: Path) -> None:
    import dataclasses

    pool = make_sources()["pool"]
    read = dataclasses.replace(
        pool, card=pool.card.updated(facts={"options": {"min_box_area": 0.01}})
    )
    testset = build(tmp_path, read)
    assert any("min_box_area=0.01" in note for note in testset.card.notes)


def test_a_given_label_space(tmp_path: Path) -> None:
    space = LabelSpace(
        "pets", (Class("n2", ("domestic cat", "cat")), Class("n1", ("dog",)), Class("n3", ("cow",)))
    )
    space.write(tmp_path / "pets.json")
    chosen = {"classes": str(tmp_path / "pets.json"), "subjects": ("cat", "dog")}
    testset = build(tmp_path, **chosen)
    assert testset.label_space == space
    assert set(testset.truth()["class_id"].to_pylist()) == {"n1", "n2"}
    with pytest.raises(LabelError, match="has no class named 'bed'"):
        build(tmp_path / "other", **{**chosen, "subjects": ("cat", "bed")})


def test_two_subjects_of_one_class_are_refused(tmp_path: Path) -> None:
    LabelSpace("pets", (Class("n1", ("cat", "dog")),)).write(tmp_path / "pets.json")
    with pytest.raises(UserError, match="cat and dog are one class of pets"):
        build(tmp_path, classes=str(tmp_path / "pets.json"), subjects=("cat", "dog"))


def test_a_built_set_is_a_pool_again(tmp_path: Path) -> None:
    """Its subsets are stated pairs: the same set comes out of them."""
    first = build(tmp_path, context_kinds=("object",))
    again = build(tmp_path / "again", first, context_kinds=("stated",))
    assert read_subsets(again).names == read_subsets(first).names


def test_only_pools_are_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="notes is not a pool"):
        build(tmp_path, {"pool": RecipeInput("notes", "0" * 64, [])})


def test_what_is_unique_by_counting() -> None:
    rng = np.random.default_rng(2)
    sets: dict[str, set[str]] = {f"cat(c{k})": set() for k in range(6)}
    for i in range(400):
        near = rng.random() < 0.3
        for k in range(6):
            if rng.random() < (0.7 if near == (k < 3) else 0.1):
                sets[f"cat(c{k})"].add(f"{i:03d}")
    subsets = subsets_from(sets)
    communities = meta_graph(subsets, subsets.subjects[0], minimum=1).communities
    found = unique_subsets(subsets, communities)
    everyone = set().union(*sets.values())
    for unique in found:
        mine = sets[unique.name]
        assert unique.images == len(mine)
        assert unique.share_of_class == len(mine) / len(everyone)
        expected = {}
        for other, ids in sets.items():
            if other != unique.name:
                limits = wilson(len(mine & ids), len(mine), level=simultaneous_level(0.95, 5))
                base = len(ids) / len(everyone)
                if limits.low / base > 1:
                    expected[other[4:-1]] = (len(mine & ids) / len(mine) / base, limits.low / base)
        assert {x.context for x in unique.lifts} == set(expected)
        for lift in unique.lifts:
            assert (lift.lift, lift.low) == pytest.approx(expected[lift.context])
        assert [x.low for x in unique.lifts] == sorted((x.low for x in unique.lifts), reverse=True)
        side = {f"cat(c{k})" for k in (range(3) if unique.context < "c3" else range(3, 6))}
        assert unique.nearest[0].name in side
        assert unique.farthest[0].name not in side
        assert unique.text.startswith(f"{len(mine)} images")
        assert unique.lifts[0].context in unique.text
        assert unique.nearest[0].distance < unique.farthest[0].distance


def test_a_subset_alone_in_its_class_has_nothing_to_compare_with() -> None:
    subsets = subsets_from({"cat(a)": {"1", "2"}})
    (unique,) = unique_subsets(subsets, ((0,),))
    assert (unique.lifts, unique.nearest, unique.farthest) == ((), (), ())
    assert "no context is surely more frequent" in unique.text


def test_odd_words_are_read_back_from_subsets_and_communities() -> None:
    words = [":)", "x(y", "a)b", "%28", "(", "toy|cat", "a&b=c", "#1"]
    chance = np.random.default_rng(1)
    shown = {f"i{k}": chance.choice(words, 4, replace=False).tolist() for k in range(60)}
    parameters = ContextsParameters(minimum=2, more_than=0)
    found = describe_subsets(
        find_candidates(pool_of_words(shown), parameters).kept, parameters, seed=0
    )
    for names in found:
        for name in names:
            subject, context = split_subset_name(name)
            assert subject in words
            assert context.partition(" ")[2] in words or context in words

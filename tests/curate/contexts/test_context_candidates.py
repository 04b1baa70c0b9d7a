"""From pools to subsets: counts and members by plain sets, policies, words, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotApplicable, UserError
from heldout.core.request import make
from heldout.curate.contexts.requests import ContextsParameters
from heldout.curate.contexts.subsets import Candidates, Subsets, find_candidates
from heldout.curate.contexts.vocabulary import (
    groups,
    normalise_vocabulary,
    read_hierarchy,
    rules_in,
)
from heldout.data.published.annotations import singular
from tests.curate.contexts.contexts_examples import pool_of_words, random_shown, slow_pairs

WORDS = ("cat", "dog", "sofa", "car", "tree")
shown_words = st.dictionaries(
    st.sampled_from([f"i{i}" for i in range(12)]),
    st.sets(st.sampled_from(WORDS), min_size=1),
    min_size=1,
)
ALL: dict[str, Any] = {"minimum": 1, "more_than": 0}


def sets_of(subsets: Subsets) -> dict[str, set[str]]:
    return {name: set(subsets.image_ids[subsets.members(name)]) for name in subsets.names}


def find(shown: dict[str, Any], **parameters: Any) -> Candidates:
    extra = {key: parameters.pop(key) for key in ("stated", "general") if key in parameters}
    return find_candidates(
        pool_of_words(shown, **extra), ContextsParameters(**{**ALL, **parameters})
    )


def pairs_with(
    shown: dict[str, set[str]], least: int, more_than: int
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Pairs of enough images; and of these, the ones of classes that have enough of them."""
    large = {n: i for n, i in slow_pairs(shown).items() if len(i) >= least}
    classes: dict[str, int] = {}
    for name in large:
        classes[name.split("(")[0]] = classes.get(name.split("(")[0], 0) + 1
    return large, {n: i for n, i in large.items() if classes[n.split("(")[0]] > more_than}


@given(shown=shown_words, least=st.integers(1, 4), more_than=st.integers(0, 3))
def test_pairs_are_those_of_sets(shown: dict[str, set[str]], least: int, more_than: int) -> None:
    every = slow_pairs(shown)
    large, kept = pairs_with(shown, least, more_than)
    if not kept:
        with pytest.raises(NotApplicable):
            find(shown, minimum=least, more_than=more_than)
        return
    found = find(shown, minimum=least, more_than=more_than)
    assert sets_of(found.kept) == kept
    names = [name[:-1].split("(") for name in every]
    assert found.counts == {
        "candidate_images": len(set().union(*every.values())),
        "subsets": len(every),
        "subjects": len({subject for subject, _ in names}),
        "contexts": len({context for _, context in names}),
        "images": len(set().union(*every.values())),
        "subsets_at_minimum": len(large),
        "subjects_at_minimum": len({name.split("(")[0] for name in large}),
        "images_at_minimum": len(set().union(*large.values())),
        "classes_above_minimum": len({name.split("(")[0] for name in kept}),
        "subsets_kept": len(kept),
        "images_kept": len(set().union(*kept.values())),
    }


@given(shown=shown_words)
def test_ambiguous_images_leave_both_classes_and_no_other(shown: dict[str, set[str]]) -> None:
    both = {image for image, words in shown.items() if {"cat", "dog"} <= words}
    expected = {
        name: left
        for name, images in slow_pairs(shown).items()
        if (left := images - both if name.split("(")[0] in ("cat", "dog") else images)
    }
    present = set().union(*shown.values())
    if not expected or not {"cat", "dog"} <= present:
        return
    found = find(shown, pairs=("cat+dog",))
    assert sets_of(found.kept) == expected
    assert "cat(dog)" not in found.kept.names


def test_images_of_a_pair_leave_both_however_they_are_known() -> None:
    shown = {"1": ["cat", "sofa"], "2": ["cat", "dog", "sofa"], "3": ["dog", "car"]}
    stated = {"4": ["cat(black)", "bird(red)"], "3": ["cat(black)"]}
    shown["5"] = ["dog", "car"]
    found = find(shown, stated=stated, subjects=("cat", "dog"), pairs=("cat+dog", "cat+bird"))
    assert sets_of(found.kept) == {"cat(sofa)": {"1"}, "dog(car)": {"5"}}
    assert (found.counts["candidate_images"], found.counts["images"]) == (5, 2)


def test_stated_pairs_join_those_of_objects() -> None:
    shown = {"1": ["orange", "cat"], "2": ["cat"]}
    stated = {"1": ["orange(orange)"], "2": ["cat(orange)", "cat(big)"]}
    found = find(shown, stated=stated)
    assert sets_of(found.kept) == {
        "cat(big)": {"2"},
        "cat(orange)": {"1", "2"},  # an orange beside it, or an orange cat
        "orange(cat)": {"1"},
        "orange(orange)": {"1"},  # stated, so kept; that an orange shows an orange is not
    }
    alone = find(shown, stated=stated, context_kinds=("stated",))
    assert set(alone.kept.names) == {"cat(big)", "cat(orange)", "orange(orange)"}


def test_general_contexts_are_no_subjects() -> None:
    shown = {"1": ["dog", "cat"], "2": ["dog"]}
    general = {"1": ["beach"], "2": ["beach", "sunny"]}
    one_way = find(shown, general=general, context_kinds=("general",))
    assert set(one_way.kept.names) == {"cat(beach)", "dog(beach)", "dog(sunny)"}
    both = find(shown, general=general)
    assert set(both.kept.names) == {*one_way.kept.names, "cat(dog)", "dog(cat)"}


def test_general_columns_of_images_count() -> None:
    import dataclasses

    import pyarrow as pa

    pool = pool_of_words({"1": ["dog"], "2": ["dog"]})
    images = pool.images.append_column("weather", pa.array(["sunny", None], pa.string()))
    found = find_candidates(
        dataclasses.replace(pool, images=images),
        ContextsParameters(minimum=1, more_than=0, general=("weather",)),
    )
    assert sets_of(found.kept) == {"dog(sunny)": {"1"}}


SCENE = {
    "1": ["man", "shirt", "head", "dog"],
    "2": ["dog", "shirt", "tail"],
    "3": ["street", "dog", "man"],
}
KINDS = ("man<person", "woman<person", "shirt<clothing", "hat<clothing", "dog<animal")


@pytest.mark.parametrize(
    ("parameters", "absent", "present"),
    [
        ({"exclude": ("*(@body part)", "@body part")}, ("dog(tail)", "head(man)"), ("dog(man)",)),
        ({"exclude": ("dog(shirt)",)}, ("dog(shirt)",), ("shirt(dog)", "man(shirt)")),
        ({"exclude": ("street",)}, ("street(dog)",), ("dog(street)",)),
        ({"only": ("@person(@clothing)",)}, ("dog(shirt)",), ("man(shirt)", "shirt(dog)")),
        ({"subjects": ("d*",)}, ("man(dog)",), ("dog(man)",)),
        ({"contexts": ("@person",)}, ("man(dog)",), ("dog(man)",)),
    ],
)
def test_policies(
    parameters: dict[str, Any], absent: Iterable[str], present: Iterable[str]
) -> None:
    names = set(find(SCENE, hierarchy=KINDS, **parameters).kept.names)
    assert not names & set(absent)
    assert set(present) <= names


def test_words_count_as_others() -> None:
    shown = {"1": ["couch", "cats"], "2": ["sofa", "cat"], "3": ["cat", "dog"]}
    merged = find(shown, synonyms=("couch=sofa",), plurals=True)
    assert sets_of(merged.kept)["cat(sofa)"] == {"1", "2"}
    assert dict(merged.merged) == {"couch": ("sofa",), "cats": ("cat",)}
    added = find(shown, hierarchy=("cat<animal", "dog<animal"), roll_up=True)
    names = set(added.kept.names)
    assert {"animal(couch)", "animal(sofa)", "cat(dog)"} - names == {"animal(couch)"}
    assert not {"cat(animal)", "animal(cat)", "dog(animal)"} & names  # true of every cat


def test_stated_subjects_are_merged_too() -> None:
    shown = {"1": ["cats"], "2": ["cat"]}
    stated = {"1": ["cats(white)"], "2": ["cat(white)"]}
    found = find(shown, stated=stated, plurals=True, context_kinds=("stated",))
    assert sets_of(found.kept) == {"cat(white)": {"1", "2"}}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("books", "book"), ("boxes", "box"), ("ladies", "lady"), ("men", "man"), ("bus", "bus"),
        ("lens", "lens"),
        ("glasses", "glasses"), ("traffic lights", "traffic light"), ("grass", "grass"),
        ("horses", "horse"), ("unknowns", "unknowns"), ("as", "as"),
    ],
)  # fmt: skip
def test_plurals(word: str, expected: str) -> None:
    known = {"book", "box", "lady", "man", "glass", "traffic light", "gras", "horse", "hors"}
    assert singular(word, known) == expected


def test_synonyms_are_followed_and_hierarchies_climbed() -> None:
    assert normalise_vocabulary({"a", "b"}, synonyms=("a=b", "b=c")) == {"a": ("c",), "b": ("c",)}
    # the plural of a word that is itself a synonym goes with it
    words = {"couch", "couches", "sofa", "sofas"}
    assert normalise_vocabulary(words, synonyms=("couch=sofa",), plurals=True) == {
        "couch": ("sofa",),
        "couches": ("sofa",),
        "sofas": ("sofa",),
    }
    found = normalise_vocabulary({"kitten"}, hierarchy=("kitten<cat", "cat<animal"), roll_up=True)
    assert found == {"kitten": ("animal", "cat", "kitten")}
    assert groups(("kitten<cat", "cat<animal"))["animal"] == {"animal", "cat", "kitten"}


def test_a_cycle_is_refused_by_its_words(tmp_path: Path) -> None:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps({"a": ["b"], "b": ["c"], "c": ["a"], "x": ["x", "y"]}))
    with pytest.raises(UserError, match="the hierarchy has a cycle: a < c < b < a"):
        read_hierarchy(rules_in([str(path)], "<"))
    with pytest.raises(UserError, match="synonyms go round: a = b = a"):
        normalise_vocabulary({"a"}, synonyms=("a=b", "b=a"))
    assert read_hierarchy(("x<x", "y<x")) == {"y": ("x",)}  # a word of its own group is no cycle


@pytest.mark.parametrize("text", ["[]", '{"a": 1}', '{"a": [1]}'])
def test_files_that_are_no_word_lists_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"words.json: .*write {"):
        rules_in([str(path)], "=")


def test_rules_stand_among_files_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text('{"sofa": ["couch", "sofa"], "bike": ["bicycle"]}')
    assert rules_in(["a=b", str(path)], "=") == ("a=b", "bicycle=bike", "couch=sofa")


@pytest.mark.shared
def test_the_published_hierarchy_is_read(shared_data: Path) -> None:
    rules = rules_in([str(shared_data / "metashift" / "class_hierarchy.json")], "<")
    found = groups(rules)
    assert {"cat", "dog", "bird"} <= found["animal"]
    assert len(read_hierarchy(rules)) > 1000


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"minimum": 0}, "minimum is 0: give a whole number >= 1"),
        ({"more_than": -1}, "more_than is -1"),
        ({"threshold": 1.5}, "threshold is 1.5: give a number <= 1.0"),
        ({"context_kinds": ()}, "context_kinds is missing"),
        (
            {"context_kinds": ("colour",)},
            "context_kinds is 'colour': give one of object, stated, general",
        ),
        ({"roll_up": True}, "roll_up needs hierarchy"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(ContextsParameters, parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"minimum": 9}, "no subset reaches 9 images: the largest of 20 has 2"),
        ({"minimum": 1, "more_than": 9}, "no class has more than 9 subsets of 1 images: dog has 5"),
        ({"subjects": ("dgo",)}, "no subject 'dgo' in the source: did you mean dog"),
        ({"contexts": ("@fish",)}, "no group '@fish'"),
        ({"pairs": ("cat+dog",)}, "no class 'cat' in the source"),
        ({"pairs": ("cat",)}, "is not a pair of classes: write cat.dog"),
        ({"exclude": ("*",)}, "gives no subset of a subject with a context"),
        ({"synonyms": ("a",)}, "is not a rule: write couch=sofa"),
        ({"synonyms": ("a=b", "a=c")}, "a synonym of two words"),
        ({"hierarchy": ("a",)}, "write cat<animal"),
        ({"objects": ("thing",)}, "it has object"),
    ],
)
def test_what_cannot_be_built_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        find(SCENE, **{**ALL, **parameters})


def test_stated_values_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(UserError, match="pool pool, memberships attribute, subset: 'white' is no"):
        find({"1": ["cat"]}, stated={"1": ["white"]})


def test_rows_in_any_order_give_the_same() -> None:
    pool = pool_of_words(random_shown(1, 60, "cat dog sofa bed car tree"))
    parameters = ContextsParameters(minimum=3, more_than=1)
    one, other = (find_candidates(p, parameters) for p in (pool, pool.reordered(4)))
    assert one.counts == other.counts
    assert sets_of(one.kept) == sets_of(other.kept)
    assert one.kept.names == other.kept.names

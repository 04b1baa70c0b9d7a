"""What is searched for, from label spaces with and without WordNet."""

from __future__ import annotations

import pytest

from heldout.core.errors import LabelError, UserError
from heldout.curate.collect.queries import parent_term, queries
from heldout.data.labels import BUILT_IN, Class, Hierarchy, LabelSpace

OWN = LabelSpace(
    "pets",
    (
        Class("cat", ("cat", "house cat"), search_terms=("cat", "kitten", "Cat  ")),
        Class("dog", ("dog", "guide dog"), gloss="an animal that barks"),
        Class("x7"),
    ),
)


def asked(space: LabelSpace, **options: object) -> list[tuple[str, str, int]]:
    found = queries(space, **options)  # type: ignore[arg-type]
    return [(query.class_id, query.term, query.images) for query in found]


def test_search_terms_stand_before_names_and_names_before_the_id() -> None:
    assert asked(OWN) == [
        ("cat", "cat", 100),
        ("cat", "kitten", 100),
        ("dog", "dog", 100),
        ("dog", "guide dog", 100),
        ("x7", "x7", 200),
    ]


def test_images_are_shared_equally_and_each_term_has_one_at_least() -> None:
    space = LabelSpace.load("imagenet-1k")
    shares = {query.images for query in queries(space, only=["n02423022"], per_class=200)}
    assert shares == {200}
    koala = queries(space, only=["n01882714"], per_class=200)
    assert [query.images for query in koala] == [40] * 5  # as published: 200 over five terms
    assert [query.images for query in queries(space, only=["n01882714"], per_class=3)] == [1] * 5


def test_compounds_are_joined_and_equal_terms_asked_once() -> None:
    space = LabelSpace.load("imagenet-1k")
    assert asked(space, only=["n01491361"], join_compounds=True) == [
        ("n01491361", "tigershark", 100),
        ("n01491361", "Galeocerdocuvieri", 100),
    ]
    assert asked(space, only=["n04328186"], join_compounds=True) == [
        ("n04328186", "stopwatch", 200)
    ]


def test_parent_terms_of_wordnet_and_none_without_it() -> None:
    space = LabelSpace.load("imagenet-1k")
    wanted = [("n04550184", f"{name} furniture", 66) for name in ("wardrobe", "closet", "press")]
    assert asked(space, only=["n04550184"], parent_terms=True) == wanted
    assert asked(OWN, parent_terms=True) == asked(OWN)


def test_parent_terms_against_the_published_rule() -> None:
    tree, nodes = Hierarchy.wordnet(), LabelSpace.load("wordnet-nodes")
    found = 0
    for item in LabelSpace.load("imagenet-1k"):
        chosen = ""
        for parent in tree.parents(item.id):
            words = [word for word in item.gloss.split() if word in nodes.get(parent).names]
            if words:
                chosen = words[0]
        assert parent_term(item) == chosen
        found += bool(chosen)
    assert found > 200
    assert "imagenet-1k" in BUILT_IN


def test_hand_chosen_terms_replace_those_of_their_class() -> None:
    chosen = {"dog": ["puppy", "-cat dog"]}
    found = asked(OWN, chosen=chosen, only=["dog", "x7"], parent_terms=True)
    assert found == [("dog", "puppy", 100), ("dog", "-cat dog", 100), ("x7", "x7", 200)]


def test_unknown_classes_and_empty_terms_are_refused() -> None:
    with pytest.raises(LabelError, match="'dgo' is not a class of pets"):
        queries(OWN, chosen={"dgo": ["puppy"]})
    with pytest.raises(LabelError, match="'cow' is not a class of pets"):
        queries(OWN, only=["cow"])
    with pytest.raises(UserError, match="class dog has an empty search term"):
        queries(OWN, chosen={"dog": [" "]})

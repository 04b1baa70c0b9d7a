"""Overlaps by sparse products are those of plain sets, exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.curate.contexts.graph import overlaps
from heldout.curate.contexts.requests import Measure
from heldout.curate.contexts.subsets import make_subsets, read_subsets
from tests.curate.contexts.contexts_examples import (
    class_sets,
    pool_of_words,
    published_sets,
    slow_overlap,
    subsets_from,
)


@given(
    cats=class_sets("cat"), dogs=class_sets("dog"), measure=st.sampled_from(["overlap", "jaccard"])
)
def test_overlaps_are_those_of_sets(
    cats: dict[str, set[str]], dogs: dict[str, set[str]], measure: Measure
) -> None:
    sets = cats | dogs
    subsets = subsets_from(sets)
    found = overlaps(subsets, measure=measure).toarray()
    for i, a in enumerate(subsets.names):
        for j, b in enumerate(subsets.names):
            expected = slow_overlap(sets[a], sets[b], measure) if a[:3] == b[:3] else 0.0
            assert found[i, j] == expected, (a, b)


@pytest.mark.shared
def test_overlaps_of_the_published_subsets_are_exact(shared_data: object) -> None:
    sets = published_sets(shared_data)  # type: ignore[arg-type]
    chosen = {name: ids for name, ids in sets.items() if name.startswith(("cat(", "dog("))}
    subsets = subsets_from(chosen)
    found = overlaps(subsets).toarray()
    expected = np.array(
        [
            [
                slow_overlap(chosen[a], chosen[b], "overlap") if a[:3] == b[:3] else 0.0
                for b in subsets.names
            ]
            for a in subsets.names
        ]
    )
    assert (found == expected).all()


def test_subsets_hold_what_was_given() -> None:
    subsets = make_subsets(["b", "a", "b", "a"], ["cat(x)", "cat(x)", "cat(x)", "cat(y)"])
    assert subsets.names == ("cat(x)", "cat(y)")
    assert subsets.sizes.tolist() == [2, 1]
    assert subsets.image_ids[subsets.members("cat(x)")].tolist() == ["a", "b"]
    assert subsets.matrix.toarray().tolist() == [[1, 1], [1, 0]]


@given(sets=class_sets())
def test_taking_all_subsets_changes_nothing(sets: dict[str, set[str]]) -> None:
    subsets = subsets_from(sets)
    again = subsets.take(range(len(subsets)))
    assert again.names == subsets.names
    for name in sets:
        assert set(again.image_ids[again.members(name)]) == sets[name]


def test_unknown_names_are_refused_with_near_ones() -> None:
    subsets = subsets_from({"cat(sofa)": {"a"}, "cat(bed)": {"a", "b"}})
    with pytest.raises(NotFound, match=r"no class 'cats': did you mean cat"):
        subsets.of("cats")
    with pytest.raises(NotFound, match=r"did you mean cat\(sofa\)"):
        subsets.position("cat(sofas)")
    with pytest.raises(UserError, match="is not a subset"):
        subsets.position("sofa")
    with pytest.raises(NotApplicable, match=r"the largest is cat\(bed\) with 2"):
        subsets.at_least(3)


def test_a_set_without_subsets_is_refused() -> None:
    with pytest.raises(NotApplicable, match=r"has no membership 'subset' \(it has colour"):
        read_subsets(pool_of_words({"a": ["red"]}, column="colour"))

"""Names of subsets come back whole, whatever their words hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.data.published.metashift import join_subset_name, split_subset_name

words = st.text(alphabet="ab ()%25,89é+", min_size=1, max_size=12)


@given(subject=words, context=words)
def test_every_pair_of_words_comes_back(subject: str, context: str) -> None:
    assert split_subset_name(join_subset_name(subject, context)) == (subject, context)


@given(one=st.tuples(words, words), other=st.tuples(words, words))
def test_two_pairs_never_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (join_subset_name(*one) == join_subset_name(*other)) == (one == other)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cat(bathroom)", ("cat", "bathroom")),
        ("fire truck(stop sign)", ("fire truck", "stop sign")),
        ("bird (toy)(cage (red))", ("bird (toy)", "cage (red)")),
        ("cat(shelf (wall))", ("cat", "shelf (wall)")),
        ("a)(b)", ("a)", "b")),
    ],
)
def test_plain_names_read_as_published(name: str, words: tuple[str, str]) -> None:
    assert split_subset_name(name) == words
    assert join_subset_name(*words) == name


@pytest.mark.parametrize("name", ["", "cat", "cat(", "(sofa)", "cat()", "cat(sofa) ", "cat)sofa("])
def test_what_is_no_subset_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="is not a subset"):
        split_subset_name(name)

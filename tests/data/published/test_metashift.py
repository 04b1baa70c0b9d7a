"""Tests of :mod:`heldout.data.published.metashift`."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotApplicable, UserError
from heldout.data.importing.pools import read_metadata, report_of
from heldout.data.published.metashift import (
    join_subset_name,
    split_subset_name,
    subsets_of,
    write_subsets,
)
from heldout.data.testset import image_table
from heldout.data.testset.testset import TestSet, make_pool

# metashift


Members = Callable[[TestSet, str], set[tuple[str, str]]]
Written = Callable[..., Path]

FLAT = {
    "cat(black)": {"1", "2"},
    "cat(white)": {"2"},
    "bird (toy)(cage (red))": {"3"},
    "dog(black)": {"1"},
}
CATEGORIES = {"black": "color", "white": "color", "cage (red)": "thing"}


def flat_pickle(path: Path, subsets: Any = FLAT) -> Path:
    made: defaultdict[str, set[str]] = defaultdict(set)
    made.update(subsets)
    path.write_bytes(pickle.dumps(made, protocol=3))
    return path


def nested(subsets: dict[str, set[str]], category_of: Callable[[str], str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, ids in subsets.items():
        subject, context = split_subset_name(name)
        found.setdefault(category_of(context), {}).setdefault(subject, {})[context] = ids
    return found


def test_the_flat_layout(tmp_path: Path, members: Members) -> None:
    pool = read_metadata("metashift", flat_pickle(tmp_path / "a.pkl"))
    assert members(pool, "attribute") == {(i, name) for name, ids in FLAT.items() for i in ids}
    assert members(pool, "object") == {
        ("1", "cat"), ("2", "cat"), ("3", "bird (toy)"), ("1", "dog"),
    }  # fmt: skip
    assert pool.card.facts["contexts"] == "attribute" and report_of(pool).problems == ()


def test_the_structured_layout_says_the_same(tmp_path: Path, written: Written) -> None:
    flat = read_metadata("metashift", flat_pickle(tmp_path / "a.pkl"))
    layers = nested(FLAT, CATEGORIES.__getitem__)
    full_names = {
        category: {
            s: {f"{s}({c})": ids for c, ids in found.items()} for s, found in subjects.items()
        }
        for category, subjects in layers.items()
    }
    lists = json.loads(json.dumps(layers, default=sorted))
    for place, value in enumerate((layers, full_names)):
        path = tmp_path / f"s{place}.pkl"
        path.write_bytes(pickle.dumps(value))
        pool = read_metadata("metashift", path)
        assert pool.content_hash == flat.content_hash
        assert pool.card.facts["attribute_categories"] == {
            "black": ["color"], "cage (red)": ["thing"], "white": ["color"],
        }  # fmt: skip
    assert read_metadata("metashift", written(lists)).content_hash == flat.content_hash


def test_contexts_that_are_objects(tmp_path: Path, members: Members) -> None:
    path = flat_pickle(
        tmp_path / "a.pkl", {"cat(dog)": {"1"}, "dog(cat)": {"1"}, "cat(sofa)": {"2"}}
    )
    pool = read_metadata("metashift", path)
    assert pool.card.facts["contexts"] == "object"
    assert members(pool, "subset") == {("1", "cat(dog)"), ("1", "dog(cat)"), ("2", "cat(sofa)")}
    assert members(pool, "object") == {("1", "cat"), ("1", "dog"), ("2", "cat"), ("2", "sofa")}


def test_an_ontology_says_what_is_kept(tmp_path: Path, written: Written, members: Members) -> None:
    ontology = written({"colour": ["black"]}, "o.json")
    pool = read_metadata("metashift", flat_pickle(tmp_path / "a.pkl"), ontology=ontology)
    assert {value for _, value in members(pool, "attribute")} == {"cat(black)", "dog(black)"}
    assert pool.card.facts["attribute_categories"] == {"black": ["colour"]}
    assert report_of(pool).problems[0].count == 2


def test_subsets_go_out_and_come_back(tmp_path: Path) -> None:
    layers = tmp_path / "s.pkl"
    layers.write_bytes(pickle.dumps(nested(FLAT, CATEGORIES.__getitem__)))
    pool = read_metadata("metashift", layers)
    assert subsets_of(pool) == {name: sorted(FLAT[name]) for name in sorted(FLAT)}
    for one in (read_metadata("metashift", flat_pickle(tmp_path / "a.pkl")), pool):
        write_subsets(one, tmp_path / "out.json")
        back = read_metadata("metashift", tmp_path / "out.json")
        assert back.content_hash == one.content_hash
    assert back.card.facts["attribute_categories"] == pool.card.facts["attribute_categories"]
    bare = make_pool("bare", images=image_table({"image_id": ["a"]}))
    with pytest.raises(NotApplicable, match="no subsets of its own"):
        subsets_of(bare)


class Runs:
    """A pickle that would write a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "evil.pkl"
    for value in (Runs(mark), {"cat(black)": Runs(mark)}, {"cat(black)": {"1"}, "x": Runs(mark)}):
        path.write_bytes(pickle.dumps(value, protocol=protocol))
        with pytest.raises(BadFile, match="refused as a pickle") as caught:
            read_metadata("metashift", path)
        assert not mark.exists() and "evil.pkl" in caught.value.line
    for text in (b"cos\nsystem\n(S'touch ran'\ntR.", b"c__builtin__\neval\n(S'1'\ntR."):
        path.write_bytes(text)
        with pytest.raises(BadFile, match="it names"):
            read_metadata("metashift", path)


@given(st.binary(max_size=6), st.integers(0, 400), st.integers(0, 6), st.sampled_from([0, 2, 4]))
def test_any_pickle(tmp_path_factory: Any, put: bytes, at: int, drop: int, protocol: int) -> None:
    whole = pickle.dumps(FLAT, protocol=protocol)
    at %= len(whole)
    path = tmp_path_factory.mktemp("pickle") / "a.pkl"
    path.write_bytes(whole[:at] + put + whole[at + drop :])
    try:
        pool = read_metadata("metashift", path)
    except UserError as error:
        assert "\n" not in error.line
    else:
        assert len(pool) > 0


@pytest.mark.parametrize(
    "value",
    [
        [], {}, {"cat": {"1"}}, {5: {"1"}}, {"(black)": {"1"}}, {"cat()": {"1"}},
        {"cat(black)": {"1"}, "color": {"cat": {}}}, {"color": {"cat": {"1"}}}, "text", None,
    ],
)  # fmt: skip
def test_other_layouts_are_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(value))
    with pytest.raises(BadFile, match=r"a\.pkl"):
        read_metadata("metashift", path)


def test_a_pickle_that_holds_itself(tmp_path: Path) -> None:
    ring: dict[str, Any] = {}
    ring["color"] = ring
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(ring))
    with pytest.raises(BadFile):
        read_metadata("metashift", path)


def test_odd_subsets_are_counted(tmp_path: Path, members: Members) -> None:
    odd = {
        "cat(black)": ["1", 2, None, 2.5, "../x"], "cat(empty)": set(), "cat(none)": None,
        "cat( )": {"1"}, "cat(white)": ("1", "1"),
    }  # fmt: skip
    path = tmp_path / "a.pkl"
    del odd["cat( )"]
    path.write_bytes(pickle.dumps(odd))
    pool = read_metadata("metashift", path)
    assert members(pool, "attribute") == {
        ("1", "cat(black)"), ("2", "cat(black)"), ("1", "cat(white)"),
    }  # fmt: skip
    assert {problem.kind: problem.count for problem in report_of(pool).problems} == {
        "image without a usable id, left out": 3,
        "subset without a set of images, left out": 1,
        "subset without any image, left out": 1,
    }


@pytest.mark.shared
def test_the_published_attribute_subsets(
    shared_data: Path, tmp_path: Path, members: Members
) -> None:
    path = shared_data / "metashift" / "attributes-candidate-subsets.pkl"
    pool = read_metadata("metashift", path)
    rows = members(pool, "attribute")
    names = {split_subset_name(value) for _, value in rows}
    assert (len(names), len({s for s, _ in names}), len({c for _, c in names})) == (4962, 337, 101)
    assert len(pool) == 59_663 and len(rows) == 172_039
    assert report_of(pool).problems == () and pool.card.facts["contexts"] == "attribute"
    sizes: dict[str, int] = {}
    for _, value in rows:
        sizes[value] = sizes.get(value, 0) + 1
    assert max(sizes.values()) == 7713 and sum(size >= 25 for size in sizes.values()) == 1194
    # The structured layout, made from the flat one, says the same.
    subsets: dict[str, set[str]] = {}
    for image, value in rows:
        subsets.setdefault(value, set()).add(image)
    layers = nested(subsets, lambda context: f"category {len(context) % 5}")
    structured = tmp_path / "structured.pkl"
    structured.write_bytes(pickle.dumps(layers))
    other = read_metadata("metashift", structured)
    assert members(other, "attribute") == rows
    assert members(other, "object") == members(pool, "object")
    # Two subjects in one image, both ways round.
    shown: dict[str, set[str]] = {}
    for image, subject in members(pool, "object"):
        shown.setdefault(image, set()).add(subject)
    pairs: dict[tuple[str, str], int] = {}
    for subjects in shown.values():
        for a in subjects:
            for b in subjects:
                if a != b:
                    pairs[a, b] = pairs.get((a, b), 0) + 1
    assert len(pairs) == 42_416 and sum(size >= 25 for size in pairs.values()) == 2808


# Names of subsets come back whole, whatever their words hold.


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

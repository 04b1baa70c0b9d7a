from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, LabelError
from heldout.data.labels import LabelSpace, read_label_map
from heldout.data.labels.word_matching import (
    ClassTree,
    Vocabulary,
    match_subsets,
    match_words,
    matching_tables,
    read_class_tree,
    read_overrides,
    read_vocabulary,
    words_of,
)
from heldout.data.labels.wordnet import WordNetNouns

NOUNS = WordNetNouns.built_in()
TREE = {
    "id": "root",
    "name": "all",
    "children": [
        {
            "id": "n02121808",
            "name": "domestic cat",
            "children": [
                {"id": "n02123045", "name": "tabby", "index": 281},
                {"id": "n02123394", "name": "Persian cat", "index": 283},
            ],
        },
        {
            "id": "n02691156",
            "name": "airplane",
            "child  ren": [{"id": "n02690373", "name": "airliner", "index": 404}],
        },
        {"id": "n01608432", "name": "kite", "index": 21},
        {"id": "n07930864", "name": "cup", "index": 968},
        {"id": "n02129604", "name": "tiger", "index": 292},
    ],
}


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.fixture
def tree(tmp_path: Path) -> ClassTree:
    return read_class_tree(written(tmp_path / "tree.json", TREE))


def vocabulary(**parents: str) -> Vocabulary:
    return Vocabulary({word: tuple(above.split()) for word, above in parents.items()})


def test_the_tree_is_read_without_its_root_and_with_its_typo_corrected(tree: ClassTree) -> None:
    assert len(tree.hierarchy) == 8 and "root" not in tree
    assert tree.leaves_under("n02691156") == ("n02690373",)
    assert len(tree.leaves) == 6
    assert tree.notes == ("tree.json: read the key 'child  ren' of n02691156 as 'children'",)


def test_a_leaf_under_two_parents_counts_once(tmp_path: Path) -> None:
    leaf = {"id": "c", "index": 0}
    twice = {
        "id": "r",
        "children": [{"id": "a", "children": [leaf]}, {"id": "b", "children": [leaf]}],
    }
    tree = read_class_tree(written(tmp_path / "t.json", twice))
    assert (len(tree.hierarchy), tree.leaves) == (3, ("c",))
    assert tree.hierarchy.parents("c") == ("a", "b")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "the root has no id"),
        ({"id": "r"}, "no nodes under its root"),
        ({"id": "r", "children": {"id": "a"}}, "children of r are not a list"),
        ({"id": "r", "children": ["a"]}, "a child of the root has no id"),
        (
            {
                "id": "r",
                "children": [{"id": "a", "children": [{"id": "b", "children": [{"id": "a"}]}]}],
            },
            "'a' is above itself",
        ),
    ],
)
def test_bad_trees_are_one_line(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(BadFile) as caught:
        read_class_tree(written(tmp_path / "t.json", value))
    assert said in caught.value.line and "t.json" in caught.value.line


def test_a_vocabulary_keeps_the_order_and_the_parents(tmp_path: Path) -> None:
    found = read_vocabulary(
        written(tmp_path / "v.json", {"food": ["apple", "food"], "fruit": ["apple"]})
    )
    assert tuple(found.parents) == ("food", "apple", "fruit")
    assert found.parents["apple"] == ("food", "fruit")
    assert found.parents["food"] == ()
    assert "1 words are under themselves (food)" in found.notes[0]


def test_what_is_no_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    with pytest.raises(BadFile, match="not a hierarchy of words"):
        read_vocabulary(written(path, {"a": "b"}))
    with pytest.raises(BadFile, match="not a hierarchy of words"):
        read_vocabulary(written(path, []))


def test_the_first_sense_that_is_a_node_wins(tree: ClassTree) -> None:
    words = match_words(
        vocabulary(cats="", kite="", cup="tableware", tiger="animal", plane="", sofa=""),
        tree,
        NOUNS,
    )
    # cat.n.01 is not in this tree; a tiger is a person before it is an animal
    assert {word: m.node for word, m in words.matches.items()} == {
        "kite": "n01608432",
        "cup": "n07930864",
        "tiger": "n02129604",
        "plane": "n02691156",
    }
    assert words.unmatched == ("cats", "sofa")
    verdicts = {word: m.verdict for word, m in words.matches.items()}
    assert verdicts == {
        "kite": "unconfirmed",
        "cup": "contradicted",
        "tiger": "confirmed",
        "plane": "first",
    }
    assert [m.word for m in words.suspicious] == ["cup", "kite"]
    assert words.matches["cup"].place == 6


def test_overrides_come_first(tree: ClassTree) -> None:
    words = match_words(
        vocabulary(cat="", kite="", cup=""),
        tree,
        NOUNS,
        overrides={"cat": "n02121808", "kite": None},
    )
    assert words.matches["cat"].verdict == "override"
    assert words.unmatched == ("kite",)
    with pytest.raises(LabelError, match="'n00000000', which is not a node of tree"):
        match_words(vocabulary(cat=""), tree, NOUNS, overrides={"cat": "n00000000"})


def test_accepted_labels_belong_to_one_class_alone(tree: ClassTree) -> None:
    words = match_words(
        vocabulary(cat="", airplane=""), tree, NOUNS, overrides={"cat": "n02121808"}
    )
    assert words.accepted("cat") == ("n02123045", "n02123394")
    assert words.accepted("airplane") == ("n02690373",)
    with pytest.raises(LabelError, match="'dog' has no node"):
        words.accepted("dog")


def test_subsets_need_both_words(tree: ClassTree) -> None:
    names = {f"{a}({b})": (a, b) for a, b in itertools.permutations(["kite", "cup", "sofa"], 2)}
    words = match_words(words_of(names.values()), tree, NOUNS)
    found = match_subsets(names, words)
    assert found.names == ("kite(cup)", "cup(kite)")
    assert found.classes == ("cup", "kite")
    assert found.covered == ("n01608432", "n07930864")
    assert found.accepted == {"cup": ("n07930864",), "kite": ("n01608432",)}


def test_any_sense_covers_as_published_and_the_matched_one_on_demand(tmp_path: Path) -> None:
    crane = list(NOUNS.synsets("crane"))
    tree = read_class_tree(
        written(
            tmp_path / "t.json",
            {"id": "r", "children": [{"id": s, "name": s} for s in crane[2:]]},
        )
    )
    words = match_words(vocabulary(crane=""), tree, NOUNS)
    names = {"crane(crane)": ("crane", "crane")}
    assert match_subsets(names, words).covered == tuple(sorted(crane[2:]))
    assert match_subsets(names, words, senses="matched").covered == (crane[2],)
    over = match_words(vocabulary(crane=""), tree, NOUNS, overrides={"crane": crane[3]})
    assert match_subsets(names, over).covered == (crane[3],)


def test_overrides_file(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    path.write_text("word,node\nkite,\ncup,n03147509\n")
    assert read_overrides(path) == {"kite": None, "cup": "n03147509"}
    for text, said in (
        ("word\nkite\n", "has no column 'node'"),
        ("word,node\n,n1\n", "row 1 has no word"),
        ("word,node\nkite,n1\nkite,n2\n", "overridden twice"),
    ):
        path.write_text(text)
        with pytest.raises(BadFile, match=said):
            read_overrides(path)


def test_tables_lead_back_in_as_overrides_and_as_a_label_map(
    tmp_path: Path, tree: ClassTree
) -> None:
    names = {"kite(cup)": ("kite", "cup"), "tiger(cup)": ("tiger", "cup")}
    words = match_words(vocabulary(kite="", cup="tableware", tiger="animal"), tree, NOUNS)
    tables = matching_tables(match_subsets(names, words), source=LabelSpace.load("imagenet-1k"))
    doubts = list(csv.DictReader(io.StringIO(tables["suspicious.csv"])))
    assert [row["word"] for row in doubts] == ["cup", "kite"]
    assert "hawk" in doubts[1]["meaning"]
    for name in ("suspicious.csv", "label_map.json"):
        (tmp_path / name).write_text(tables[name])
    assert read_overrides(tmp_path / "suspicious.csv") == {"cup": "n07930864", "kite": "n01608432"}
    back = read_label_map(tmp_path / "label_map.json")
    assert back.accepted_ids("tiger") == ("n02129604",)
    assert back.target.ids == ("kite", "tiger")
    assert tables["subsets.txt"] == "kite(cup)\ntiger(cup)\n"


LEAVES = st.lists(st.sampled_from(range(8)), min_size=1, max_size=4)


@given(st.lists(LEAVES, min_size=1, max_size=4), st.randoms())
def test_accepted_sets_follow_a_slow_walk(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[int]], random: Any
) -> None:
    """Against a walk over the nested file, whatever the order of its children."""
    nodes = [
        {"id": f"g{i}", "children": [{"id": f"leaf{n}"} for n in leaves]}
        for i, leaves in enumerate(groups)
    ]
    random.shuffle(nodes)
    folder = tmp_path_factory.mktemp("tree")
    tree = read_class_tree(written(folder / "t.json", {"id": "r", "children": nodes}))
    for i, leaves in enumerate(groups):
        assert tree.leaves_under(f"g{i}") == tuple(sorted({f"leaf{n}" for n in leaves}))


@pytest.mark.shared
class TestPublished:
    """The published vocabulary and tree: MetaShift's matching to ImageNet."""

    @pytest.fixture
    def published(self, shared_data: Path) -> tuple[ClassTree, Vocabulary]:
        folder = shared_data / "metashift"
        return (
            read_class_tree(folder / "imagenet1k_node_names.json"),
            read_vocabulary(folder / "class_hierarchy.json"),
        )

    def test_427_words_match(self, published: tuple[ClassTree, Vocabulary]) -> None:
        tree, words = published
        assert (len(tree.leaves), len(words.parents)) == (1_000, 1_262)
        assert tree.leaves == LabelSpace.load("imagenet-1k").ids
        found = match_words(words, tree, NOUNS)
        assert len(found.matches) == 427
        # every sense that the study of the published result found wrong is doubted
        wrong = {"kite", "cup", "napkin", "jacket", "cream", "pipe", "screen", "plate", "lid"}
        assert wrong <= {match.word for match in found.suspicious}
        assert len(found.suspicious) == 54

    def test_each_class_has_its_own_labels(self, published: tuple[ClassTree, Vocabulary]) -> None:
        tree, words = published
        found = match_words(words, tree, NOUNS)
        sizes = {"airplane": 1, "elephant": 2, "cat": 7, "dog": 118, "horse": 1}
        assert {word: len(found.accepted(word)) for word in sizes} == sizes
        assert "n02088364" not in found.accepted("cat")  # a beagle is not a cat
        names = {f"{word}(dog)": (word, "dog") for word in sizes}
        label_map = match_subsets(names, found).label_map(
            LabelSpace.load("imagenet-1k"), name="five"
        )
        assert [len(a) for a in label_map.accepted] == [1, 7, 118, 2, 1]

    def test_counts_of_all_pairs_of_words(self, published: tuple[ClassTree, Vocabulary]) -> None:
        """Against the published rule written out, with nested loops over the file as it is."""
        tree, words = published
        every = list(words.parents)[::7]
        names = {f"{a}({b})": (a, b) for a in every for b in every[::9]}
        found = match_subsets(names, match_words(words, tree, NOUNS))
        nodes = set(tree.hierarchy.nodes)
        matched = {w for w in words.parents if any(s in nodes for s in NOUNS.synsets(w))}
        selected = [n for n, (a, b) in names.items() if a in matched and b in matched]
        assert list(found.names) == selected
        classes = {names[name][0] for name in selected}
        assert found.classes == tuple(sorted(classes))
        senses = {s for word in classes for s in NOUNS.synsets(word)}
        covered = {leaf for leaf in tree.leaves if senses & {leaf, *tree.hierarchy.ancestors(leaf)}}
        assert set(found.covered) == covered
